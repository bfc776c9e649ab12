"""Every key of an answer's JSON, once: its name, type with unit, meaning, and how it is computed from the answer.

`Keys.of` writes the JSON. optimizer.answer.schema makes pydantic models of the same tables, which read saved answers
back and give the JSON schema; the tables of docs/file-formats.md are written from them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, get_args, get_type_hints

from optimizer.job.fields import FAST
from optimizer.job.job import DTYPES, TIME, TRY_COST, Limits
from optimizer.job.known import RunsSource
from optimizer.job.lengths import OFF
from optimizer.job.method import FULL
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.minimised.registry import NAMES, PREFERRED
from optimizer.objectives.step.flops import CAUSAL, CONVENTIONS
from optimizer.objectives.step.interval import EXTRAPOLATED, INTERPOLATED, Interval, interval, mfu
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.safe_memory import chance_to_fit, safe_memory
from optimizer.objectives.step.time_terms import TIME_TERMS

SCHEMA_VERSION = 1
STATUSES = ("optimal", "feasible", "infeasible", "unknown")
NOT_READ: Final = object()  # stands for the default of a key that is compared with what is found again, never read
SECONDS = "s"  # unit of values whose keys end in _s
GIVEN: Any = ...  # as the default when read: a saved answer must have the key


@dataclass(frozen=True, kw_only=True)
class Values:
    """What values of a type are."""

    unit: str = ""  # as the docs and the schema write it, "" for none
    low: int | None = None  # least value; None for no limit
    high: int | None = None  # largest value; None for no limit
    options: tuple[Any, ...] = ()  # the values that there are; empty for no such list


Seconds = Annotated[float, Values(unit="s", low=0)]
Bytes = Annotated[float, Values(unit="B", low=0)]
Share = Annotated[float, Values(unit="1", low=0)]
Chance = Annotated[float, Values(unit="1", low=0, high=1)]
Ratio = Annotated[float, Values(unit="1")]
MoreSeconds = Annotated[float, Values(unit="s")]
MoreBytes = Annotated[float, Values(unit="B")]
Rate = Annotated[float, Values(unit="tokens/s")]
Count = Annotated[int, Values(low=1)]
Trials = Annotated[int, Values(low=0, high=10_000)]
Objective = Annotated[str, Values(options=NAMES)]
Preference = Annotated[str, Values(options=PREFERRED)]
Dtype = Annotated[str, Values(options=DTYPES)]
Status = Annotated[str, Values(options=STATUSES)]
Kind = Annotated[str, Values(options=(INTERPOLATED, EXTRAPOLATED))]
Convention = Annotated[str, Values(options=tuple(CONVENTIONS))]
Label = Annotated[str, Values(options=("formula", "fitted", "assumed"))]
Version = Annotated[int, Values(options=(SCHEMA_VERSION,))]


@dataclass(frozen=True)
class Key:
    """One key of a table; its name and type are those of the class variable that holds it."""

    about: str  # what it means
    # its value: an attribute of the subject, else a function of the subject and what that is part of
    of: str | Callable[..., Any] = ""
    read: Any = NOT_READ  # what stands for it where a saved answer lacks it; GIVEN, or NOT_READ
    extra: bool = False  # whether it is there only when asked for, or where it is not what is implied
    implied: Any = ()  # what an answer without it means
    valued: bool = False  # a value of what is minimised: named without _s where the subject's unit is another


key: Any = Key


def usual(name: str, value: Any, about: str) -> Any:
    """A key of a job that is left out where the job has the usual value."""

    def differing(job: Any, *_: Any) -> Any:
        own = getattr(job, name)
        return None if own == value else own

    return Key(about, differing, read=value, extra=True, implied=value)


class Keys:
    """A table of keys."""

    @classmethod
    @cache
    def table(cls) -> Mapping[str, tuple[Key, Any]]:
        """Every key with its type, by name, inherited ones first."""
        hints = get_type_hints(cls, include_extras=True)
        each = ((name, getattr(cls, name)) for name in hints)
        return {name: (replace(one, of=one.of or name), hints[name]) for name, one in each}

    @classmethod
    def of(cls, subject: Any, *within: Any) -> dict[str, Any]:
        """The table as plain values, of a subject and of what that is part of, the nearest first."""
        values: dict[str, Any] = {}
        for name, (one, hint) in cls.table().items():
            value = getattr(subject, one.of, None) if isinstance(one.of, str) else one.of(subject, *within)
            if value is not None or not one.extra:
                shown = name.removesuffix("_s") if one.valued and subject.unit != SECONDS else name
                values[shown] = _json(value, next(tables(hint), None), (subject, *within))
        return values


def tables(hint: Any) -> Iterator[type[Keys]]:
    """The tables of keys in a type."""
    if isinstance(hint, type) and issubclass(hint, Keys):
        yield hint
    for inner in get_args(hint):
        yield from tables(inner)


def _json(value: Any, table: type[Keys] | None, within: tuple[Any, ...]) -> Any:
    if table is None or value is None:
        return plain(value)
    if isinstance(value, Mapping):
        return {name: table.of(part, *within) for name, part in value.items()}
    return [table.of(part, *within) for part in value] if isinstance(value, tuple) else table.of(value, *within)


def plain(value: Any) -> Any:
    """A value for JSON: of a dataclass its fields, of a tuple a list, of a mapping a dict.

    >>> plain(Knobs(offload=0.5)), plain((1, "a"))
    ({'bucket': 160000000.0, 'comm_sm_share': 0.12, 'offload': 0.5}, [1, 'a'])
    """
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, tuple | list) else value


class JobKeys(Keys):
    """What was asked."""

    model: str = key("preset or file of the model", lambda job, *_: job.model.name, read=GIVEN)
    params: int = key("parameters of the model", lambda job, *_: job.model.params)
    cluster: str = key("preset or file of the cluster", lambda job, *_: job.cluster.name, read=GIVEN)
    device: str = key("GPU of the cluster", lambda job, *_: job.cluster.device.name)
    stack: str = key("preset or file of the training software", lambda job, *_: job.stack.name, read=GIVEN)
    gpus: Count = key("GPUs", read=GIVEN)
    seq_len: Count = key("tokens of a sequence", read=GIVEN)
    global_batch: Count = key("sequences of a step", read=GIVEN)
    dtype: Dtype = key("number format", read=GIVEN)
    limits: Limits = key(f"limits on the plans: {', '.join(item.name for item in fields(Limits))}", read=GIVEN)
    settings: tuple[str, ...] = key("fields changed with --set", read=())
    train: str = usual("train", FULL, "what is trained; left out for all of it")
    base: str = usual("base", "", "how frozen weights are stored; left out where the method says it")
    optimizer: str = usual("optimizer", "", "optimizer; left out for AdamW as the software has it")
    loss: str = usual(
        "loss", "", "what the model is trained towards; left out for supervised fine-tuning and pretraining"
    )
    lengths: str = usual("lengths", "", "lengths of documents; left out where each is as long as a sequence")
    packing: str = usual("packing", OFF, "whether documents fill sequences together; left out where they do not")
    minimize: Objective = usual("minimize", TIME, "what the plan takes least of; left out for time")
    prefer: Preference = usual("prefer", FAST, "whether what may go wrong counts (expected) or not; left out for fast")
    try_cost: Seconds = usual(
        "try_cost", TRY_COST, "time of the cluster that a failed start takes; left out for half an hour"
    )
    own_runs: RunsSource | None = key(
        "what --runs named, with the SHA-256 of its files and how many runs count; left out without",
        read=None,
        extra=True,
    )


def _memory(estimate: Any, *_: Any) -> dict[str, float]:
    return {"peak_reserved": estimate.reserved, "peak_allocated": estimate.allocated, **estimate.memory}


def _job(holder: Any, *within: Any) -> Any:
    """The job that a plan is for: the answer's, in the plan's number format."""
    job = (holder, *within)[-1].job
    return replace(job, dtype=getattr(holder, "dtype", job.dtype))


def _interval(estimate: Any, holder: Any, *within: Any, quantity: str = "time") -> Interval:
    value = estimate.step_time if quantity == "time" else estimate.reserved
    return interval(_job(holder, *within), holder.plan, value, quantity)


def _ends(of: Interval) -> tuple[float, float]:
    return of.low, of.high


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


class EstimateKeys(Keys):
    """What a plan costs; the terms of time_s add up to step_time_s."""

    step_time_s: Seconds = key("time of a step", "step_time", read=None)
    mfu: Share = key("model FLOPs utilisation", read=None)
    hfu: Share = key("hardware FLOPs utilisation, recomputed FLOPs included")
    tflops_per_gpu: float = key("model TFLOP/s of a GPU", lambda estimate, *_: estimate.flops_per_gpu / 1e12)
    tokens_per_s_per_gpu: Rate = key("tokens that a GPU trains on")
    bubble_fraction: Share = key("share of a step that the pipeline idles")
    time_s: dict[str, Seconds] = key("by term", "time", read={})
    memory_bytes: dict[str, Bytes] = key("by term, with peak_reserved and peak_allocated", _memory, read={})


class SureKeys(EstimateKeys):
    """What a plan costs and how sure that is; of an estimate, the holder of its plan, and the answer with its job."""

    interval_s: tuple[Seconds, Seconds] = key("low and high at 90 %", lambda *e: _ends(_interval(*e)))
    interval_known: bool = key(
        "whether its ends are at most a factor of 4 apart; else reports call the time not known",
        lambda *e: _interval(*e).known,
        read=GIVEN,
    )
    interval_kind: Kind = key("whether runs of the stack surround the job", lambda *e: _interval(*e).kind)
    interval_reasons: tuple[str, ...] = key("what is extrapolated", lambda *e: _interval(*e).reasons)
    memory_interval_bytes: tuple[Bytes, Bytes] = key(
        "low and high of peak_reserved at 90 %", lambda *e: _ends(_interval(*e, quantity="memory"))
    )
    chance_to_fit: Chance = key("chance that it fits the memory", lambda e, *of: chance_to_fit(_job(*of), e.reserved))
    mfu_convention: Convention = key("how mfu counts FLOPs", lambda *_: CAUSAL)
    mfu_by_convention: dict[Convention, Share] = key(
        "MFU by every convention: causal (attention scores that the mask leaves, and MTP layers: it cannot exceed the "
        "peak), megatron-2021 (every score), 6n (6 x active parameters)",
        lambda e, *of: {name: mfu(_job(*of), e.step_time, name) for name in CONVENTIONS},
    )


class OtherKeys(Keys):
    """An alternative to the best plan."""

    plan: Plan = key("its variables", read=GIVEN)
    knobs: Knobs = key("its knobs", read=GIVEN)
    estimate: SureKeys = key("what it costs")
    slower: Ratio = key("value of what is minimised over that of the best plan, minus one")


class FormatKeys(Keys):
    """The best plan of another number format, null where none fits."""

    dtype: Dtype = key("number format", read=GIVEN)
    status: Status = key("as of the answer")
    plan: Plan | None = key("its variables", read=GIVEN)
    knobs: Knobs = key("its knobs", read=GIVEN)
    estimate: SureKeys | None = key("what it costs")
    slower: Ratio = key("value of what is minimised over that of the best plan, minus one")


class CertificateKeys(Keys):
    """What was proven, in values of what is minimised."""

    proven: bool = key("whether no plan is better", read=GIVEN)
    unit: str = key(
        "of the values whose keys name none; left out for s",
        lambda proof, *_: None if proof.unit == SECONDS else proof.unit,
        extra=True,
        implied=SECONDS,
    )
    lower_bound_s: Seconds = key("no plan is better", "lower_bound", read=GIVEN, valued=True)
    best_s: Seconds | None = key("value of the plan", lambda proof, *_: _finite(proof.best), valued=True)
    run_bound_s: Seconds | None = key(
        "step that no run is expected to beat: the low end of interval_s, less the gap; null of one of several dtypes",
        lambda _, of, *__: getattr(of, "run_bound", None),
    )
    gap: Share | None = key("best / lower_bound - 1", lambda proof, *_: _finite(proof.gap))
    space: int = key("plans that satisfy every rule but memory", read=GIVEN)
    fitting: int = key("plans of these that fit", read=GIVEN)
    candidates: int = key("plans that CP-SAT read", read=GIVEN)
    held_all: bool = key("whether those are all")
    knob_bound_s: Seconds = key("no setting of the knobs is better on any plan", "knob_bound", read=GIVEN, valued=True)
    even_split_s: Seconds | None = key(
        "value of the best even split", lambda proof, *_: _finite(proof.even), valued=True
    )
    layout_gain: Ratio | None = key("even_split / best - 1")
    band: int = key("plans that could beat the best even split")
    layouts_solved: int = key("plans whose layers CP-SAT assigned", "solved", read=GIVEN)
    layout_given: bool = key("whether the user placed the layers", "given")
    method: str = key("what was proven over what: plans and layouts, each at knobs of its own")
    left_out: list[str] = key("what the space leaves out, at most five lines, with the loss that was measured")
    by_format: dict[str, CertificateKeys] = key("with several --dtype, the certificate of each", read={})


class SafetyKeys(Keys):
    """What --oom-risk costs."""

    safe_memory_bytes: Bytes = key("most that a plan may be predicted to reserve", lambda _, of: safe_memory(of.job))
    cost: Ratio = key("value over that of the best plan that is predicted to fit, minus one")
    fastest: OtherKeys | None = key("that plan, null where it is the answer", read=GIVEN)


class ClashKeys(Keys):
    """A rule of a conflict."""

    rule: str = key("its name")
    reason: str = key("why it fails")
    relaxation: str = key("least change that is enough, empty where none is")
    note: str = key("what was tried where nothing helps")


class NearTiesKeys(Keys):
    """Plans that come close to the best, at the same knobs."""

    within_1_percent: int = key("plans at most 1 % slower")
    within_5_percent: int = key("plans at most 5 % slower")


class SearchKeys(Keys):
    """How hard the knobs were searched."""

    trials: Trials = key("trials", read=0)
    seed: int = key("seed", read=0)


class ExplainedKeys(Keys):
    """One term: evaluating formula with values gives value."""

    name: str = key("the term")
    value: float = key("seconds or bytes")
    unit: str = key("its unit")
    formula: str = key("the formula that was executed")
    values: dict[str, float | tuple[float, ...]] = key("inputs of the formula, several for what differs by layer")
    about: str = key("the formula in words")
    inputs: dict[str, str] = key("parameters of the stack, quantities of the device, recomputed modules")
    kernels: dict[str, str] = key("formulas behind it")
    source: str = key("where the formula is from")
    label: Label = key("what it rests on")


class ComparisonKeys(Keys):
    """The best plan under the pins of --why-not."""

    pins: str = key("variables pinned", read=GIVEN)
    verdict: str = key("slower, same, faster or infeasible")
    slower: Ratio | None = key("value over that of the answer, minus one", lambda o: o.slower if o.estimate else None)
    plan: Plan | None = key("the plan, where none fits that of least memory")
    estimate: EstimateKeys | None = key("what it costs")
    time_s: dict[str, MoreSeconds] = key("more than the answer, by term", lambda o: {i.term: i.more for i in o.time})
    memory_bytes: dict[str, MoreBytes] = key(
        "more than the answer, by term", lambda o: {i.term: i.more for i in o.memory}
    )
    broken: tuple[ClashKeys, ...] = key("the rules that it breaks")


class RobustKeys(Keys):
    """How the plans stand when the parameters of the stack are drawn."""

    draws: int = key("draws")
    parameter_spread: float = key("standard deviation of a parameter over its span", "spread")
    shape: str = key("broad or brittle")
    least_regret: int = key("0 for the answer, else the number of the runner-up", "steadiest")
    plans: tuple[dict[str, Any], ...] = key("chance to be the fastest and expected regret of each plan", "standings")


class AnswerKeys(Keys):
    """One answer of `optimize --json`."""

    schema_version: Version = key("changes when a key is renamed", lambda _: SCHEMA_VERSION)
    status: Status = key("optimal, feasible (time limit: see the gap), infeasible or unknown, by the certificate")
    job: JobKeys = key("what was asked", read=GIVEN)
    plan: Plan | None = key(
        "tp, cp, ep, etp, pp, vpp, dp, micro_batch, num_microbatches, sequence_parallel, zero_stage, shard, recompute "
        "(none, selective, full or modules joined by +), activation_offload [%], schedule, dispatcher, "
        "overlap_exchange, layers_per_stage (of the stages, or of all virtual stages), recompute_layers (per stage), "
        "recompute_first (on every virtual stage), mtp_ahead",
        read=GIVEN,
    )
    knobs: Knobs = key("bucket [B], comm_sm_share [1], offload [1]", read=GIVEN)
    estimate: SureKeys | None = key("what the plan costs", read=None)
    certificate: CertificateKeys | None = key("what was proven", read=None)
    safety: SafetyKeys | None = key("what --oom-risk costs", read=None)
    alternatives: tuple[OtherKeys, ...] = key("runners-up of another structure, each at its own knobs", read=())
    formats: tuple[FormatKeys, ...] = key("with several --dtype: the best plan of each other number format", read=())
    conflict: tuple[ClashKeys, ...] = key("the rules that cannot hold together")
    near_ties: NearTiesKeys = key("how many plans come close")
    flags: tuple[str, ...] = key("warnings")
    search: SearchKeys = key("how hard the knobs were searched", lambda answer: answer, read=GIVEN)
    search_s: dict[str, Seconds] = key("time of the search, by phase")
    assumptions: tuple[str, ...] = key("what was assumed", extra=True)
    explain: tuple[ExplainedKeys, ...] = key("with --explain: every term with its origin", extra=True)
    why_not: ComparisonKeys | None = key("with --why-not: the best plan under its pins", read=None, extra=True)
    robust: RobustKeys | None = key("with --robust: how sure it is that the best plan is the fastest", extra=True)


# Columns of `Answer.to_frame`, and where the JSON of a plan has them.
COLUMNS: Mapping[str, tuple[str | int, ...]] = {
    **{item.name: ("plan", item.name) for item in fields(Plan)},
    **{item.name: ("knobs", item.name) for item in fields(Knobs)},
    "step_time_s": ("estimate", "step_time_s"),
    "step_time_low_s": ("estimate", "interval_s", 0),
    "step_time_high_s": ("estimate", "interval_s", 1),
    **{name: ("estimate", name) for name in ("mfu", "hfu", "tflops_per_gpu", "tokens_per_s_per_gpu")},
    "bubble_fraction": ("estimate", "bubble_fraction"),
    "peak_reserved_bytes": ("estimate", "memory_bytes", "peak_reserved"),
    "peak_reserved_low_bytes": ("estimate", "memory_interval_bytes", 0),
    "peak_reserved_high_bytes": ("estimate", "memory_interval_bytes", 1),
    "chance_to_fit": ("estimate", "chance_to_fit"),
    "slower": ("slower",),
    **{f"{name}_s": ("estimate", "time_s", name) for name in TIME_TERMS},
    **{f"{name}_bytes": ("estimate", "memory_bytes", name) for name in MEMORY_TERMS},
}


def row(other: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of an alternative as a row under COLUMNS, without the terms that it lacks."""
    cells: dict[str, Any] = {}
    for column, place in COLUMNS.items():
        value: Any = other
        for step in place:
            value = value[step] if isinstance(step, int) else value.get(step)
        if value is not None:
            cells[column] = value
    return cells
