"""What the calibrated cost model says: of the lab's two contexts, of designs, and of published runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, wraps
from math import log
from threading import Lock
from typing import ParamSpec, TypeVar

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.calibration.groups import gathered
from optimizer.calibration.runs import Run, read_runs
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import mfu
from optimizer.objectives.step.price import price
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.content_files import table
from optimizer.studies.scaling import ScalingPoint, data_parallel_point
from optimizer.studies.strategies import NECESSARY, broken_rules
from optimizer.studies.textbook import (
    COUNTS,
    GPUS,
    HBM,
    LAB,
    SEQUENCE,
    Constants,
    DataParallel,
    LabDesign,
    rule_of_thumb_mfu,
)

SMALL, LARGE = CONTEXTS = ("data parallel", "3-D parallel")
FAMILY = ("gpt3-1.3b", "gpt3-2.7b", "gpt3-5b", "gpt3-6.7b", "gpt3-13b", "gpt3-20b", "gpt3-40b", "llama2-70b", "gpt3")
FILE = "published.csv"
PREDICTED = ("textbook", "priced")  # fields of Compared
SAME = ("source", "model", "stack", "gpu", "seq_len", "dtype", "framework")  # of the runs of one series
Given = ParamSpec("Given")
Result = TypeVar("Result")


def once(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same function, which remembers its result for each set of arguments; who asks meanwhile waits.

    >>> calls = []
    >>> double = once(lambda value: calls.append(value) or 2 * value)
    >>> double(2), double(2), calls
    (4, 4, [2])
    """
    remembering, busy = cache(work), Lock()

    @wraps(work)
    def result(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with busy:
            return remembering(*args, **kwargs)  # type: ignore[arg-type]

    return result


def title(context: str) -> str:
    """What the switch shows of a context."""
    return str(next(each["title"] for each in table("lab.toml")["context"] if each["name"] == context))


@cache
def job_of(context: str) -> Job:
    """The job of a context, on DGX H100 with the default software.

    >>> job_of(LARGE).gpus, job_of(SMALL).model.name
    (1024, 'gpt3-6.7b')
    """
    from optimizer.catalog import load_cluster, load_model, load_stack

    numbers = next(each for each in table("lab.toml")["context"] if each["name"] == context)
    return Job(
        model=load_model(numbers["model"]),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        **{name: numbers[name] for name in ("gpus", "seq_len", "global_batch")},
    )


@dataclass(frozen=True, kw_only=True)
class PricedDesign:
    """A design as the cost model sees it."""

    job: Job
    plan: Plan
    estimate: Estimate | None = None  # its price, None where it cannot be built
    reasons: tuple[str, ...] = ()  # why it cannot

    @property
    def fits(self) -> bool:
        """Whether its memory is predicted to fit."""
        return self.estimate is not None and self.estimate.reserved <= self.job.usable_memory

    @property
    def priced(self) -> Estimate:
        """Its price. Raises InputError where it cannot be built."""
        if self.estimate is None:
            raise InputError("; ".join(self.reasons))
        return self.estimate


def estimated(job: Job, plan: Plan) -> PricedDesign:
    """The plan as the cost model prices it, or why it cannot be built."""
    from optimizer.search.plan.alternatives import estimate_of_plan

    broken = broken_rules(job, plan)
    if reasons := tuple(broken[rule] for rule in NECESSARY if rule in broken):
        return PricedDesign(job=job, plan=plan, reasons=reasons)
    return PricedDesign(job=job, plan=plan, estimate=estimate_of_plan(job, plan, Knobs()))


def nearest(billions: float) -> str:
    """The preset of a dense model with the nearest number of parameters, by ratio.

    >>> nearest(7), nearest(30), nearest(175)
    ('gpt3-6.7b', 'gpt3-40b', 'gpt3')
    """
    from optimizer.catalog import load_model

    return min(FAMILY, key=lambda name: abs(log(load_model(name).params / (billions * 1e9))))


@lru_cache(maxsize=256)
def data_parallel(model: str, batch: int) -> tuple[ScalingPoint, ...]:
    """Data parallelism alone on 8 to 1,024 H100, `batch` sequences of 2,048 tokens on each: the least ZeRO stage that
    fits, with its fastest micro-batch.

    >>> [round(100 * point.estimate.mfu) for point in data_parallel("gpt3-6.7b", 32) if point.estimate][::7]
    [58, 58]
    """
    from optimizer.catalog import load_model

    job = replace(job_of(LARGE), model=load_model(model), seq_len=SEQUENCE)
    return tuple(data_parallel_point(replace(job, gpus=count, global_batch=batch * count)) for count in COUNTS)


@lru_cache(maxsize=256)
def designed(design: LabDesign) -> PricedDesign:
    """A design with micro-batches of one sequence, m of them in each replica.

    >>> design = designed(LabDesign(tp=8, pp=4, microbatches=8))
    >>> design.job.global_batch, design.fits
    (256, True)
    """
    job = replace(job_of(LARGE), gpus=GPUS, global_batch=max(1, design.dp) * design.microbatches)
    plan = Plan(
        tp=design.tp,
        pp=design.pp,
        dp=max(1, design.dp),
        num_microbatches=design.microbatches,
        sequence_parallel=design.tp > 1,
    )
    return estimated(job, plan)


@once
def best(context: str = LARGE) -> Answer:
    """The proven best plan of a context's job, without trials on its knobs."""
    from optimizer.search.plan.planner import plan

    return plan(job_of(context), top=1, trials=0, priced_risk=False)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One row of presets/published.csv."""

    run: Run
    job: Job
    plan: Plan
    seconds: float  # of a step, as measured [s]
    measured: float  # its MFU [1]
    priced: float  # MFU of the cost model [1]
    textbook: float = 0.0  # MFU of a textbook's formula [1]
    needs: float = 0.0  # memory of a GPU by the rule of Act II [B], 0 where that was not asked

    @property
    def share(self) -> float:
        """Sequences of each replica in a step [1]."""
        return self.job.global_batch / self.plan.dp

    @property
    def fits(self) -> bool:
        """Whether the rule of Act II gives it room on a GPU of 80 GB."""
        return self.needs <= HBM


@once
def data_parallel_runs() -> tuple[Compared, ...]:
    """Runs in 16 bits with data parallelism alone, of which the same source has another number of GPUs.

    >>> [(each.run.id, each.job.gpus) for each in data_parallel_runs() if each.run.id.startswith("DGXC-003")]
    [('DGXC-0032', 16), ('DGXC-0034', 64)]
    """
    alone = [each for each in _known() if each.plan.tp == each.plan.pp == each.plan.cp == 1 and not each.job.quantised]
    series = gathered(alone, lambda each: tuple(each.run.row.get(name, "") for name in SAME))
    several = [each for one in series.values() if len({other.job.gpus for other in one}) > 1 for each in one]
    compared = [replace(each, textbook=_alone(each.job)) for each in several]
    return tuple(sorted(compared, key=lambda each: (each.job.model.params, each.job.model.name, each.job.gpus)))


@once
def gpt3_runs() -> tuple[Compared, ...]:
    """Runs of GPT-3 175B on H100, least GPUs first.

    >>> any(each.fits for each in gpt3_runs())
    False
    """
    runs = [each for each in _known() if each.job.model.name == "gpt3" and each.job.cluster.device.name == "h100"]
    return tuple(sorted(map(_by_rules, runs), key=lambda each: each.job.gpus))


def error(runs: Iterable[Compared], name: str) -> float:
    """Mean distance of one prediction (`textbook` or `priced`) from the measured MFU, over the measured [1].

    >>> error(data_parallel_runs(), "priced") < 0.10 < error(data_parallel_runs(), "textbook")
    True
    """
    errors = [abs(float(getattr(each, name)) / each.measured - 1.0) for each in runs]
    return sum(errors) / len(errors)


def compared_numbers(runs: Sequence[Compared]) -> ChartNumbers:
    """MFU by the textbook and by the cost model against the measured one [%]; on the diagonal they agree."""
    top = 5 + 100 * max(max(each.measured, each.textbook, each.priced) for each in runs)
    measured = [100 * each.measured for each in runs]
    names = [f"{each.run.id}, {each.job.gpus:,} GPUs" for each in runs]
    series = {
        name: Series(x=measured, y=[100 * float(getattr(each, name)) for each in runs], text=names)
        for name in PREDICTED
    }
    return ChartNumbers(
        series={"diagonal": Series(x=[0, top], y=[0, top]), **series},
        rows=[{"run": each, "plan": each.plan.summary(), "verdict": ", too much" * (not each.fits)} for each in runs],
        values={
            **{"count": len(runs), "refused": sum(not each.fits for each in runs)},
            **{name: error(runs, name) for name in PREDICTED},
        },
    )


@once
def _known() -> tuple[Compared, ...]:
    """The published runs with all that a comparison needs, and what the cost model says of them."""
    from optimizer.catalog.files import presets_folder

    return tuple(
        Compared(
            run=run,
            job=run.job,
            plan=run.plan,
            seconds=run.step_time,
            measured=mfu(run.job, run.step_time),
            priced=float(price(run.job, Plans.of([run.plan])).mfu[0]),
        )
        for run in read_runs(presets_folder() / FILE)
        if run.job and run.plan and run.step_time and not run.doubted
    )


def _alone(job: Job) -> float:
    """MFU by the formula of Act I with the datasheets' constants of the run's own hardware [1]."""
    node, *_, network = (*job.cluster.tiers, job.cluster.tiers[-1])
    constants = Constants(
        name="the datasheets'",
        peak=job.peak_flops,
        nvlink=node.bandwidth,
        infiniband=network.bandwidth,
        tokens_per_sequence=job.seq_len,
        node=node.size,
    )
    return DataParallel(gpus=job.gpus, batch=job.global_batch / job.gpus, constants=constants).mfu  # whatever its size


def _by_rules(run: Compared) -> Compared:
    """The run with its MFU [1] and memory [B] by the rules of Act II."""
    plan = run.plan
    idle = (plan.pp - 1) / (plan.pp * plan.num_microbatches)
    mfu_by_rule = rule_of_thumb_mfu(LAB.reference, tp=plan.tp, dp=plan.dp, bubble=idle)
    return replace(run, textbook=mfu_by_rule, needs=LabDesign(tp=plan.tp, pp=plan.pp).memory)
