"""Trials replayed on groups of measured runs that differ only in the plan: what is lost after one, two, three."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from maintain.sweeps import FEWEST_PLANS, errors_of_runs, swept, telling
from optimizer.calibration.calibrate import informed
from optimizer.calibration.fit import time_errors
from optimizer.calibration.groups import device_name, gathered, plan_group
from optimizer.calibration.leave_out import refitted
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.predict import batches, predict
from optimizer.calibration.runs import Run
from optimizer.catalog import load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.order import PlanSweep
from optimizer.objectives.belief.places import EASY_MFU, place, plan_columns
from optimizer.trial.belief import Belief
from optimizer.trial.choice import chosen_trials, loss_left, winner

TRIALS = 3
SURELY = -10.0  # log of reserved / usable memory of plans that are known to fit
WRONG = 0.2  # share by which parameters are made wrong
Parameters = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class TrialGroup:
    """Runs of one job with different plans: what was measured [s], infinite where a plan ran out of memory.

    seconds, reserved: as predicted [s, B]; longer: by how much more each is believed to take, by the sweeps that runs
    outside of the group are (optimizer.objectives.belief.order) [1].
    """

    name: str
    job: Job
    plans: tuple[Plan, ...]
    measured: FloatArray
    seconds: FloatArray
    reserved: FloatArray
    longer: FloatArray
    belief: Belief

    @property
    def best(self) -> float:
        """The least step time [s]."""
        return float(self.measured.min())

    def regret(self, tried: Sequence[int]) -> float:
        """Best measured step of these trials / best of all - 1 [1].

        Where none of them trained, one goes on in the order that the model ranks the plans in, until one does.
        """
        fastest = float(self.measured[list(tried)].min())
        if not np.isfinite(fastest):
            ranked = self.measured[ranking(self, len(self.plans))]
            fastest = float(ranked[np.isfinite(ranked)][0])
        return fastest / self.best - 1.0

    def without_first(self) -> TrialGroup:
        """The group whose plan that is ranked first runs out of memory."""
        measured = self.measured.copy()
        measured[ranking(self, 1)[0]] = np.inf
        return replace(self, measured=measured)


# Which plans of a group are tried, in order: so many, with this seed.
Policy = Callable[[TrialGroup, int, int], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class RegretCurve:
    """Mean regret after one trial, two, ... [1] over so many groups; `each` has a row per group."""

    name: str
    each: FloatArray = field(repr=False)

    @property
    def mean(self) -> list[float]:
        """Over the groups."""
        return [float(value) for value in self.each.mean(axis=0)]


def ranking(group: TrialGroup, count: int, seed: int = 0) -> list[int]:
    """The order that the model ranks the plans in: those that should fit before the others, the fastest first."""
    unfit = group.belief.memory.mean > 0.0
    return [int(place) for place in np.lexsort((group.belief.seconds.mean, unfit))[:count]]


def adaptive(group: TrialGroup, count: int, seed: int = 0) -> list[int]:
    """Each trial is chosen after the outcomes of those before it are known."""
    belief, tried = group.belief, list[int]()
    for _ in range(min(count, len(group.plans))):
        tried += chosen_trials(belief, 1, tried=tried, seed=seed)
        belief = after(group, belief, tried[-1])
    return tried


def together(group: TrialGroup, count: int, seed: int = 0) -> list[int]:
    """All trials are chosen before the first is run."""
    return chosen_trials(group.belief, count, seed=seed)


def after(group: TrialGroup, belief: Belief, index: int) -> Belief:
    """What is believed once a plan of the group was tried."""
    seconds = float(group.measured[index])
    return belief.trained(index, seconds) if np.isfinite(seconds) else belief.out_of_memory(index)


def at_random(group: TrialGroup, count: int, seed: int = 0) -> list[int]:
    """Plans drawn without replacement."""
    return [int(place) for place in np.random.default_rng(seed).permutation(len(group.plans))[:count]]


def curve(
    name: str, groups: Sequence[TrialGroup], policy: Policy, *, count: int = TRIALS, seeds: Iterable[int] = (0,)
) -> RegretCurve:
    """Regret of a policy on every group, the mean over the seeds."""
    rows = []
    for group in groups:
        orders = [list(policy(group, count, seed)) for seed in seeds]
        regrets = [[group.regret(order[: k + 1]) for k in range(count)] for order in orders]
        rows.append(np.mean(regrets, axis=0))
    return RegretCurve(name=name, each=np.array(rows))


def expected_losses(groups: Sequence[TrialGroup], count: int = TRIALS) -> FloatArray:
    """Loss that is said to be left after each adaptive trial of each group [1], to be held against the regret."""
    rows = []
    for group in groups:
        belief, row = group.belief, []
        for index in adaptive(group, count):
            belief = after(group, belief, index)
            best = winner(belief)
            row.append(np.nan if best is None else loss_left(belief, best))
        rows.append(row + row[-1:] * (count - len(row)))
    return np.array(rows)


def groups_of(runs: Sequence[Run], *, wrong: int | None = None, oom: bool = False) -> Iterator[TrialGroup]:
    """Groups of at least FEWEST_PLANS plans, each predicted by its stack refitted without the group.

    The stack moves by one Gauss-Newton step from its fit to all its runs, as optimizer.calibration.leave_out has it;
    parameters of memory and what is believed of errors are the stored ones. `wrong`: a seed with which every fitted
    parameter is then made a fifth larger or smaller. `oom`: only groups of which some plans ran out of memory, with
    these.
    """
    clean = [run for run in runs if run.job is not None and not run.doubted and (run.step_time or run.out_of_memory)]
    for name, members in gathered(clean, lambda run: run.stack_name).items():
        stack = load_stack(str(name))
        timed = [run for run in members if run.step_time]
        chosen = [
            (key, group)
            for key, group in gathered(members, plan_group).items()
            if len({run.plan for run in group if run.step_time}) >= FEWEST_PLANS
            and (not oom or any(run.out_of_memory for run in group))
        ]
        known = {device_name(some[0]): [(plan_group(run), run) for run in some] for some in telling(timed)}
        for key, group, values in _left_out(stack, timed, chosen):
            values = values if wrong is None else made_wrong(values, wrong)
            rest = [run for own, run in known.get(device_name(group[0]), []) if own != key]
            sweep = swept(errors_of_runs(rest, -time_errors(rest, values))) if rest else None
            yield _group(str(key), group, values, oom, sweep)


def _left_out(
    stack: Stack, timed: Sequence[Run], chosen: Sequence[tuple[object, list[Run]]]
) -> Iterator[tuple[object, list[Run], Parameters]]:
    """Each group with the stack's parameters of time as they are without it."""
    if not chosen:
        return
    known = informed(timed)
    free = tuple(name for name in stack.parameters if name not in MEMORY_PARAMETERS and name in known)
    places = {id(run): place for place, run in enumerate(timed)}
    parts = [np.array([places[id(run)] for run in group if id(run) in places]) for _, group in chosen]
    home = load_stack(stack.parent) if stack.parent else Stack(name="defaults")
    for (key, group), values in zip(chosen, refitted(timed, parts, stack, free, time_errors, home), strict=True):
        yield key, group, values


def made_wrong(values: Parameters, seed: int) -> dict[str, float]:
    """Every parameter a fifth larger or smaller, within its bounds."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], len(values))
    return {
        name: float(np.clip(value * (1.0 + WRONG) ** sign, PARAMETERS[name].low, PARAMETERS[name].high))
        for (name, value), sign in zip(values.items(), signs, strict=True)
    }


def _group(name: str, members: Sequence[Run], values: Parameters, oom: bool, sweep: PlanSweep | None) -> TrialGroup:
    """One run for each plan, at its median time."""
    by_plan = gathered([run for run in members if run.step_time or oom], lambda run: run.plan)
    runs = [same[0] for same in by_plan.values()]
    times = [[run.step_time for run in same if run.step_time] for same in by_plan.values()]
    predicted = predict(batches(runs), len(runs), values)
    jobs = [run.job for run in runs if run.job]
    plans = [run.plan for run in runs if run.plan]
    usable = np.array([job.usable_memory for job in jobs])
    lead = int(predicted.step_time.argmin())
    measured = np.array([float(np.median(same)) if same else np.inf for same in times])
    where = np.array(place(jobs[lead], plans[lead], EASY_MFU).size)
    longer = np.exp(sweep.at(where, plan_columns(Plans.of(plans)))) if sweep else np.ones(len(plans))
    seconds, filled = predicted.step_time * longer, predicted.reserved / usable
    belief = Belief.predicted(jobs[lead], Plans.of(plans), seconds, filled)
    if not oom:
        belief = replace(belief, memory=replace(belief.memory, mean=np.full(len(runs), SURELY)))
    return TrialGroup(
        name=name,
        job=jobs[lead],
        plans=tuple(plans),
        measured=measured,
        seconds=predicted.step_time,
        reserved=predicted.reserved,
        longer=longer,
        belief=belief,
    )
