"""The parts of a saved answer that are read back, for pydantic; imported only when such a file is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, WrapValidator, create_model
from pydantic_core import PydanticCustomError

from optimizer.job import DTYPES, PLACING, Limits
from optimizer.plan import FIELDS, SCHEDULES, Knobs, Plan
from optimizer.recomputation import MODES, RECOMPUTE, SIGN

LARGEST = 2**31
SAID = "said"  # the type of an error whose message is the whole sentence after the place


def must(words: str) -> WrapValidator:
    """Says what a value must be, instead of pydantic's own messages."""

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except ValidationError:
            said = f"must be {words}, but got {shown(value)}"
            raise PydanticCustomError(SAID, "{said}", {"said": said}) from None

    return WrapValidator(check)


def one_of(choices: Iterable[str], said: Iterable[str] = (), hint: str = "") -> Any:
    """One of several texts; `said` of them are named in the message."""
    known = tuple(choices)

    def check(value: Any) -> Any:
        if value not in known:
            message = f"must be one of {', '.join(said or known)}, but got {shown(value)}{hint}"
            raise PydanticCustomError(SAID, "{message}", {"message": message})
        return value

    return Annotated[str, BeforeValidator(check)]


def shown(value: Any) -> str:
    """A value as JSON writes it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _variable(name: str) -> str:
    if name not in (*FIELDS, *PLACING):
        raise PydanticCustomError(SAID, "is no variable of a plan")
    return name


Count = Annotated[int, Strict(), Field(ge=1, le=LARGEST), must("a whole number of at least 1")]
Natural = Annotated[int, Strict(), Field(ge=0, le=LARGEST), must("a whole number of at least 0")]
Percent = Annotated[int, Strict(), Field(ge=0, le=100), must("a whole number from 0 to 100")]
VirtualStages = Annotated[int, Strict(), Field(ge=1, le=4096), must("a whole number from 1 to 4,096")]
Number = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False), must("a number of at least 0")]
Share = Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False), must("a share of at most 1")]
Flag = Annotated[bool, Strict(), must("true or false")]
Word = Annotated[str, Strict(), Field(min_length=1), must("a name")]
Whole = Annotated[int, Strict(), Field(ge=0, le=LARGEST)]
Numbers = Annotated[tuple[Whole, ...], must("a list of whole numbers")]
Value = Annotated[int, Strict()] | Annotated[str, Strict()] | Annotated[bool, Strict()]
Variable = Annotated[str, BeforeValidator(_variable)]
TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("zero_stage", "shard", "recompute_first", "mtp_ahead", "max_tp"), Natural),
    **dict.fromkeys(("comm_sm_share", "offload", "bubble"), Share),
    "activation_offload": Percent,
    "vpp": VirtualStages,
    "recompute": one_of(RECOMPUTE, MODES, f"; modules are joined by {SIGN}"),
    "schedule": one_of(SCHEDULES),
    "fixed": dict[Variable, Annotated[Value, must("a value")]],
    "ranges": dict[Variable, Annotated[tuple[Whole, Whole], must("two whole numbers")]],
    "choices": dict[Variable, Annotated[tuple[Value, ...], Field(min_length=1), must("a list of values")]],
}
OF_KIND: Mapping[type, Any] = {bool: Flag, int: Count, float: Number, tuple: Numbers}
NEEDED = ("tp", "pp", "dp", "micro_batch", "num_microbatches")  # a plan without these is no plan


class Table(BaseModel):
    """An object without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Claims(BaseModel):
    """An object whose other keys are compared one by one with what this version finds."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def table(kind: type) -> Any:
    """The fields of a dataclass, each of the type of its default; what may be left out has that default."""
    made = {}
    for item in fields(kind):
        default = {} if item.default is MISSING else item.default
        own = TYPES.get(item.name) or OF_KIND[type(default)]
        made[item.name] = (own, ... if item.name in NEEDED else default)
    return create_model(f"{kind.__name__}Table", __base__=Table, **made)  # type: ignore[call-overload]


if TYPE_CHECKING:
    PlanTable: TypeAlias = Any
    KnobsTable: TypeAlias = Any
    LimitsTable: TypeAlias = Any
    Dtype: TypeAlias = str
else:
    PlanTable, KnobsTable, LimitsTable = table(Plan), table(Knobs), table(Limits)
    Dtype = one_of(DTYPES)


class JobTable(Claims):
    """What was asked."""

    model: Word
    cluster: Word
    stack: Word
    gpus: Count
    seq_len: Count
    global_batch: Count
    dtype: Dtype
    limits: LimitsTable


class EstimateTable(Claims):
    """Times and bytes that were claimed."""

    step_time_s: Number | None = None
    mfu: Number | None = None
    time_s: dict[str, Number] = {}
    memory_bytes: dict[str, Number] = {}


class CertificateTable(Claims):
    """What the search says of itself, and no other can find again."""

    proven: Flag
    lower_bound: Number = Field(validation_alias="lower_bound_s")
    knob_bound: Number = Field(validation_alias="knob_bound_s")
    space: Natural
    fitting: Natural
    candidates: Natural
    solved: Natural = Field(validation_alias="layouts_solved")
    by_format: dict[str, CertificateTable] = {}


class AlternativeTable(Claims):
    """A runner-up."""

    plan: PlanTable
    knobs: KnobsTable


class FormatTable(Claims):
    """The best plan of another number format."""

    dtype: Dtype
    plan: PlanTable | None
    knobs: KnobsTable


class ComparisonTable(Claims):
    """The plan that somebody asked about."""

    pins: Word


class SearchTable(Table):
    """How the knobs were searched."""

    trials: Natural = 0
    seed: Natural = 0


class AnswerTable(Claims):
    """The whole of it."""

    job: JobTable
    plan: PlanTable | None
    knobs: KnobsTable
    estimate: EstimateTable | None = None
    certificate: CertificateTable | None = None
    alternatives: tuple[AlternativeTable, ...] = ()
    formats: tuple[FormatTable, ...] = ()
    search: SearchTable = SearchTable()
    why_not: ComparisonTable | None = None
