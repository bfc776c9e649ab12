"""The keys of an answer as `optimize --json` prints it, for its schema; tests hold them to real answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from optimizer.answer.answer import SCHEMA_VERSION, STATUSES
from optimizer.catalog.readers.tables import Table
from optimizer.job.job import DTYPES, Limits
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.minimised.registry import NAMES
from optimizer.objectives.step.flops import CONVENTIONS
from optimizer.objectives.step.interval import EXTRAPOLATED, INTERPOLATED

Seconds = Annotated[float, Field(ge=0, description="[s]")]
Bytes = Annotated[float, Field(ge=0, description="[B]")]
Share = Annotated[float, Field(ge=0, description="share [1]")]


def _among(options: Iterable[str]) -> Any:
    return Field(json_schema_extra={"enum": list(options)})


Status = Annotated[str, _among(STATUSES)]
Dtype = Annotated[str, _among(DTYPES)]
Kind = Annotated[str, _among((INTERPOLATED, EXTRAPOLATED))]
Convention = Annotated[str, _among(CONVENTIONS)]
Label = Annotated[str, _among(("formula", "fitted", "assumed"))]


class JobKeys(Table):
    """What was asked."""

    model: str
    params: Annotated[int, Field(description="of the model")]
    cluster: str
    device: str
    stack: str
    gpus: int
    seq_len: Annotated[int, Field(description="tokens of a sequence")]
    global_batch: Annotated[int, Field(description="sequences of a step")]
    dtype: Dtype
    limits: Limits
    settings: Annotated[tuple[str, ...], Field(description="fields changed with --set")]
    minimize: Annotated[str, Field(description="what the plan takes least of; left out for time")] = NAMES[0]


class EstimateKeys(Table):
    """What a plan costs; the terms of time_s add up to step_time_s."""

    step_time_s: Seconds
    mfu: Share
    hfu: Share
    tflops_per_gpu: float
    tokens_per_s_per_gpu: float
    bubble_fraction: Share
    time_s: Annotated[dict[str, float], Field(description="by term [s]")]
    memory_bytes: Annotated[dict[str, float], Field(description="by term, peak_reserved and peak_allocated [B]")]


class SureKeys(EstimateKeys):
    """An estimate and how sure it is."""

    interval_s: Annotated[tuple[float, float], Field(description="low and high at 90 % [s]")]
    interval_kind: Kind
    interval_reasons: tuple[str, ...]
    memory_interval_bytes: Annotated[tuple[float, float], Field(description="low and high at 90 % [B]")]
    chance_to_fit: Annotated[float, Field(ge=0, le=1)]
    mfu_convention: Convention
    mfu_by_convention: dict[Convention, float]


class OtherKeys(Table):
    """A plan beside the best."""

    plan: Plan
    knobs: Knobs
    estimate: SureKeys
    slower: Annotated[float, Field(description="value of what is minimised over that of the best plan, minus one [1]")]


class FormatKeys(Table):
    """The best plan of another number format."""

    dtype: Dtype
    status: Status
    plan: Plan | None
    knobs: Knobs
    estimate: SureKeys | None
    slower: float


class CertificateKeys(Table):
    """What was proven."""

    proven: bool
    unit: Annotated[str, Field(description="of the values below that name none: what is minimised")] = "s"
    lower_bound_s: Seconds = 0.0
    best_s: Seconds | None = None
    lower_bound: float = 0.0
    best: float | None = None
    gap: Annotated[float | None, Field(description="best / lower_bound - 1 [1]")]
    space: Annotated[int, Field(description="plans that satisfy every rule but memory")]
    fitting: Annotated[int, Field(description="plans of these that fit")]
    candidates: Annotated[int, Field(description="plans that CP-SAT held")]
    held_all: Annotated[bool, Field(description="whether those are all")]
    knob_bound_s: Annotated[float, Field(description="no setting of the knobs is faster on any plan [s]")] = 0.0
    even_split_s: Seconds | None = None
    knob_bound: Annotated[float, Field(description="no setting of the knobs is better on any plan")] = 0.0
    even_split: float | None = None
    layout_gain: float | None
    band: Annotated[int, Field(description="plans that could beat the best even split")]
    layouts_solved: int
    layout_given: bool
    method: str
    by_format: dict[str, CertificateKeys]


class SafetyKeys(Table):
    """What the risk of going out of memory costs."""

    safe_memory_bytes: Bytes
    cost: float
    fastest: OtherKeys | None


class ClashKeys(Table):
    """A rule of a conflict."""

    rule: str
    reason: str
    relaxation: str
    note: str


class NearTiesKeys(Table):
    """Plans that come close."""

    within_1_percent: int
    within_5_percent: int


class SearchKeys(Table):
    """How hard the knobs were searched."""

    trials: int
    seed: int


class ExplainedKeys(Table):
    """One term: evaluating formula with values gives value."""

    name: str
    value: float
    unit: str
    formula: str
    values: dict[str, float | tuple[float, ...]]
    about: str
    inputs: dict[str, str]
    kernels: dict[str, str]
    source: str
    label: Label


class ComparisonKeys(Table):
    """The best plan under the pins of --why-not."""

    pins: str
    verdict: str
    slower: float | None
    plan: Plan | None
    estimate: EstimateKeys | None
    time_s: Annotated[dict[str, float], Field(description="seconds more than the answer, by term [s]")]
    memory_bytes: Annotated[dict[str, float], Field(description="bytes more than the answer, by term [B]")]
    broken: tuple[ClashKeys, ...]


class RobustKeys(Table):
    """How the plans stand when the parameters of the stack are drawn."""

    draws: int
    parameter_spread: float
    shape: str
    least_regret: int
    plans: tuple[dict[str, Any], ...]


class AnswerKeys(Table):
    """One answer of `optimize --json`."""

    schema_version: Annotated[int, Field(json_schema_extra={"const": SCHEMA_VERSION})]
    status: Status
    job: JobKeys
    plan: Plan | None
    knobs: Knobs
    estimate: SureKeys | None
    certificate: CertificateKeys | None
    safety: SafetyKeys | None
    simpler: OtherKeys | None
    alternatives: tuple[OtherKeys, ...]
    formats: tuple[FormatKeys, ...]
    conflict: tuple[ClashKeys, ...]
    near_ties: NearTiesKeys
    flags: tuple[str, ...]
    search: SearchKeys
    search_s: Annotated[dict[str, float], Field(description="seconds of the search, by phase [s]")]
    assumptions: tuple[str, ...] = ()
    explain: Annotated[tuple[ExplainedKeys, ...], Field(description="with --explain")] = ()
    why_not: Annotated[ComparisonKeys | None, Field(description="with --why-not")] = None
    robust: Annotated[RobustKeys | None, Field(description="with --robust")] = None
