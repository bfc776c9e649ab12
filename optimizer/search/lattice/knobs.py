"""Continuous settings of every plan that matters: a grid over the box, ever finer around its best point, then trials.

What knobs change is cheap to price, and all plans are tuned together, each with settings of its own. Each plan's
settings depend on nothing but the plan and its job, so that a search among fewer plans finds no better ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, reduce
from itertools import product
from typing import Any

import numpy as np

from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, IntArray, KnobColumns, Knobs
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.expected import risk_classes
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.stages import Stages, stages_of
from optimizer.objectives.step.host_memory import OFFLOAD_STEP, fits_host, most_offload
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.per_step import StageWork, slower_on_host, work_of, work_per_step
from optimizer.objectives.step.price import Step
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.saved_trials import keep

NAMES = tuple(field.name for field in fields(Knobs))
DIGITS = {"bucket": 0, "comm_sm_share": 9}  # decimals that a setting keeps: whole bytes
BOX = {"bucket": (10e6, 1e9), "comm_sm_share": (0.01, 0.30)}  # both on a logarithmic scale
SIDE = 8  # points along each side of the first grid
ZOOMS = 10  # finer grids, each of half the step, of the eight points around the best
NOTEWORTHY = 1e-6  # share of a step that a trial must gain to be taken
STARTUP = 10  # trials that TPE draws at random before it starts to learn, Optuna's own default


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The best settings of each plan."""

    knobs: KnobColumns  # one entry per plan
    values: FloatArray  # that each plan reaches with them [unit of the objective]
    fits: BoolArray  # whether it then fits in memory


def knobs_at(knobs: KnobColumns, index: int) -> Knobs:
    """One plan's settings."""
    return Knobs(**{name: float(getattr(knobs, name)[index]) for name in NAMES})


def joined_knobs(parts: Sequence[KnobColumns]) -> KnobColumns:
    """Settings of several batches of plans as one."""
    return KnobColumns(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in NAMES})


def tuned(layer_costs: LayerCosts, knobs: KnobColumns | None = None) -> Tuned:
    """The best settings of every plan, by the seconds that they change: no objective weighs those otherwise.

    As much of the optimizer state is on the host as memory asks for, of the classes of risk that of the least value;
    the other settings are `knobs`, or those of `unhosted` without trials.
    """
    knobs = knobs or unhosted(layer_costs)
    offloads, fits = zip(*_offloads(layer_costs), strict=True)
    settings = joined_knobs([replace(knobs, offload=offload) for offload in offloads])
    # Every share of every plan is priced at once.
    every = layer_costs.take(np.tile(np.arange(len(layer_costs)), len(offloads)))
    values = valued(every, stages_of(every.job.model, every.plans), settings)
    parts = (np.split(column, len(offloads)) for column in (values, np.concatenate(fits) & fits_host(every, settings)))
    options = [
        Tuned(knobs=replace(knobs, offload=offload), values=value, fits=fit)
        for offload, value, fit in zip(offloads, *parts, strict=True)
    ]
    return reduce(_better, options)


def unhosted(layer_costs: LayerCosts, *, trials: int = 0, seed: int = 0, study: str | None = None) -> KnobColumns:
    """The best settings of every plan with no optimizer state on the host, so that they hang on no memory.

    `study` is the URL of an Optuna storage to keep the trials in.
    """
    spot = _Spot(layer_costs=layer_costs, stages=stages_of(layer_costs.job.model, layer_costs.plans))
    place = spot.zoomed()
    if trials > 0:
        place = spot.tried(place, trials, seed, study)
    return spot.knobs(place)


def valued(layer_costs: LayerCosts, stages: Stages, knobs: Knobs | KnobColumns) -> FloatArray:
    """What plans are minimised by at these settings [unit of the objective]."""
    step = Step(layer_costs=layer_costs, stages=stages, knobs=knobs)
    reserved = stage_memory(layer_costs, stages, knobs).reserved.max(axis=0)
    return objective_of(layer_costs.job).value(layer_costs, knobs, step.seconds, reserved)


def _offloads(layer_costs: LayerCosts) -> list[tuple[FloatArray, BoolArray]]:
    """Shares of the optimizer state on the host, the best of each plan among them, and whether a plan fits with each.

    What fits with the least share for the largest risk fits with those for smaller ones, which are no less.
    """
    job, (largest, *smaller) = layer_costs.job, risk_classes(layer_costs.job)
    need = HostNeed.of(layer_costs, stages_of(job.model, layer_costs.plans))
    offload, fits = need.least(job.with_limits(oom_risk=largest.risk))
    options = [(offload, fits)]
    if job.prefer == EXPECTED and not slower_on_host(job):
        options.append((0.0 * offload, need.share(job) == 0))
    for each in smaller:
        less_risk = need.least(job.with_limits(oom_risk=each.risk))[0]
        if np.any(less_risk != options[-1][0]):
            options.append((less_risk, fits))
    return options


def _better(first: Tuned, second: Tuned) -> Tuned:
    """Of each plan the settings that fit, of these the ones of the lower value; the first where both are as good."""
    worth = [np.where(each.fits, each.values, np.inf) for each in (first, second)]
    later = worth[1] < worth[0]
    return Tuned(
        knobs=KnobColumns(
            **{name: np.where(later, getattr(second.knobs, name), getattr(first.knobs, name)) for name in NAMES}
        ),
        values=np.where(later, second.values, first.values),
        fits=np.where(later, second.fits, first.fits),
    )


def at_risk(layer_costs: LayerCosts, risk: float) -> LayerCosts:
    """The same plans of the job that takes this risk of going out of memory [1]."""
    return layer_costs.changed(job=layer_costs.job.with_limits(oom_risk=risk))


def columns(knobs: Knobs, count: int) -> KnobColumns:
    """The same settings for so many plans."""
    return KnobColumns(**{name: np.full(count, getattr(knobs, name)) for name in NAMES})


def at_most_offload(layer_costs: LayerCosts) -> KnobColumns:
    """The default settings with as much optimizer state of every plan on the host as may be."""
    return replace(columns(Knobs(), len(layer_costs)), offload=most_offload(layer_costs))


@dataclass(frozen=True, kw_only=True)
class HostNeed:
    """What decides how much of the optimizer state plans have on the host, but for the room that a risk leaves."""

    reserved: FloatArray  # by every stage (rows) with nothing there [B]
    offloadable: FloatArray  # what may lie there of each stage [B]
    most: FloatArray  # share of each plan that may [1]

    @staticmethod
    def of(layer_costs: LayerCosts, stages: Stages) -> HostNeed:
        """Of plans with such stages."""
        memory = stage_memory(layer_costs, stages)
        return HostNeed(reserved=memory.reserved, offloadable=memory.offloadable, most=most_offload(layer_costs))

    def share(self, job: Job) -> FloatArray:
        """Share of the optimizer state that must leave every stage: (reserved - safe memory) / optimizer bytes [1]."""
        excess = np.maximum(self.reserved - safe_memory(job), 0.0)
        return np.asarray(np.where(excess > 0, excess / np.maximum(self.offloadable, 1e-9), 0.0).max(axis=0))

    def least(self, job: Job) -> tuple[FloatArray, BoolArray]:
        """Share of the optimizer state that must be on the host for a plan to fit, and whether it then does.

        All that may be where even that is too much, or updates are faster there.
        """
        share = self.share(job)
        fits = share <= self.most
        if not slower_on_host(job):
            return self.most, fits
        whole = np.ceil(np.minimum(share, self.most) / OFFLOAD_STEP) * OFFLOAD_STEP
        return np.minimum(whole, self.most), fits

    def needed(self, job: Job) -> FloatArray:
        """Share of the optimizer state that no smaller one replaces: `least` before it is rounded, or less [1]."""
        return np.maximum(self.least(job)[0] - OFFLOAD_STEP, 0.0)


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """Plans with all of the optimizer state on the device; a place is a point of the unit square for each plan."""

    layer_costs: LayerCosts
    stages: Stages

    @cached_property
    def work(self) -> StageWork:
        """What the stages do once per step."""
        return work_of(self.layer_costs, self.stages)

    def knobs(self, place: FloatArray) -> KnobColumns:
        """Settings at places, as a launcher sets them: whole gradients in a bucket, whole multiprocessors.

        What it cannot set stays at its default. A place has rows of bucket and share, with axes for several settings
        and for the plans.
        """
        bucket, share = (low * (high / low) ** unit for unit, (low, high) in zip(place, BOX.values(), strict=True))
        job, zero = self.layer_costs.job, np.zeros_like(bucket)
        whole = job.stack.features.grad_bytes
        settings = {"bucket": np.round(bucket / whole) * whole, "comm_sm_share": _whole_sms(job, share)}
        for name in settings.keys() - set(job.stack.features.settable):
            settings[name] = zero + getattr(Knobs(), name)
        return KnobColumns(**settings, offload=zero)

    def once(self, place: FloatArray) -> FloatArray:
        """What the slowest stage does once per step at each place [s]."""
        return np.asarray(work_per_step(self.work, self.knobs(place)).total.max(axis=0))

    def best(self, places: FloatArray) -> FloatArray:
        """Of several places of each plan the best, of equals the first."""
        first: IntArray = np.argmin(self.once(places), axis=0)
        return np.asarray(np.take_along_axis(places, first[None, None], axis=1)[:, 0])

    def zoomed(self) -> FloatArray:
        """The best place of the grid and of ever finer ones around it; that of the defaults where nothing gains."""
        count, default = len(self.layer_costs), Knobs()
        start = [np.log(getattr(default, name) / low) / np.log(high / low) for name, (low, high) in BOX.items()]
        ends = np.linspace(0.0, 1.0, SIDE)
        grid = np.stack([axis.ravel() for axis in np.meshgrid(ends, ends, indexing="ij")])
        places = np.concatenate([np.array(start)[:, None], grid], axis=1)
        place = self.best(np.repeat(places[:, :, None], count, axis=2))
        step = 1.0 / (SIDE - 1)
        around = np.array(sorted(product((-1.0, 0.0, 1.0), repeat=2), key=lambda move: move != (0.0, 0.0))).T
        for _ in range(ZOOMS):
            step /= 2.0
            place = self.best(np.clip(place[:, None] + step * around[:, :, None], 0.0, 1.0))
        return place

    def tried(self, place: FloatArray, trials: int, seed: int, study: str | None) -> FloatArray:
        """The place of each plan, or the best of Optuna's trials within a step of the grid where that gains.

        A trial moves all plans alike, each from its own place.
        """
        rest = Step(layer_costs=self.layer_costs, stages=self.stages, knobs=self.knobs(place)).rest
        before = self.once(place[:, None])[0]

        def moved(moves: FloatArray) -> tuple[FloatArray, FloatArray]:
            places = np.clip(place[:, None] + moves[:, :, None], 0.0, 1.0)
            return places, self.once(places)

        def lost(trial: Any) -> float:
            return float((rest - before + moved(_move(trial)[:, None])[1][0]).min())

        if study is None and trials <= STARTUP:
            moves = random_moves(trials, seed)
        else:
            import optuna

            optuna.logging.set_verbosity(optuna.logging.ERROR)
            # From nothing, so that one seed gives one answer whatever was kept before.
            search = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP))
            search.optimize(lost, n_trials=trials)
            if study is not None:
                keep(self.layer_costs.job, search.trials, study)
            moves = tuple(tuple(trial.params[name] for name in BOX) for trial in search.trials if trial.params)
        places, seconds = moved(np.array(moves).T)
        first = np.argmin(seconds, axis=0)[None]
        better = np.take_along_axis(seconds, first, axis=0)[0] < before - NOTEWORTHY * rest
        return np.where(better, np.take_along_axis(places, first[None], axis=1)[:, 0], place)


def _whole_sms(job: Job, share: FloatArray) -> FloatArray:
    """Shares of the multiprocessors as whole numbers of them, of which each runs a block of a communicator.

    The default where a device has none that a launcher could count.
    """
    sms = job.cluster.device.sms
    if sms <= 1:
        return np.full_like(share, Knobs().comm_sm_share)
    low, high = (round_(bound * sms) for round_, bound in zip((np.ceil, np.floor), BOX["comm_sm_share"], strict=True))
    return np.asarray(np.clip(np.round(share * sms), low, max(low, high)) / sms)


@cache
def random_moves(trials: int, seed: int) -> tuple[tuple[float, ...], ...]:
    """The moves of Optuna's first trials, which learn from nothing: the same for all plans of all jobs.

    Drawn as its RandomSampler draws them, which a test holds them to: importing it takes longer than all of these.
    """
    step = 1.0 / (SIDE - 1)
    moves = np.random.RandomState(seed).uniform(-step, step, (trials, len(BOX)))
    return tuple(tuple(move) for move in moves.tolist())


def _move(trial: Any) -> FloatArray:
    step = 1.0 / (SIDE - 1)
    return np.array([trial.suggest_float(name, -step, step) for name in BOX])


@dataclass(frozen=True, kw_only=True)
class OwnSettings:
    """The settings of `unhosted` for the plans of one job: neither the risk it takes nor what it prefers moves them."""

    trials: int = 0  # of Optuna
    seed: int = 0  # of the trials
    study: str | None = None  # URL of a storage that keeps the trials
    # settings of the plans so far, by their variables
    settled: dict[tuple[object, ...], tuple[float, ...]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, layer_costs: LayerCosts) -> KnobColumns:
        """The best settings of every plan with no optimizer state on the host."""
        if self.study is not None or self.trials > STARTUP:  # trials that learn move all plans alike
            return unhosted(layer_costs, trials=self.trials, seed=self.seed, study=self.study)
        rows = list(zip(*(getattr(layer_costs.plans, name).tolist() for name in FIELDS), strict=True))
        new = [place for place, row in enumerate(rows) if row not in self.settled]
        if new:
            own = unhosted(layer_costs.take(new), trials=self.trials, seed=self.seed)
            settings = zip(*(getattr(own, name).tolist() for name in NAMES), strict=True)
            self.settled.update(zip((rows[place] for place in new), settings, strict=True))
        columns = np.array([self.settled[row] for row in rows]).reshape(-1, len(NAMES)).T
        return KnobColumns(**dict(zip(NAMES, columns, strict=True)))
