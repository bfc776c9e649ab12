"""The parts of a saved answer that are read back, for pydantic; imported only when such a file is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, create_model

from optimizer.answer.saved import Claims, SavedFormat, SavedPlan
from optimizer.catalog.readers.tables import Count, Flag, Natural, Unsigned, one_of, part
from optimizer.catalog.readers.text import shown
from optimizer.job.job import DTYPES, EVEN_RISK, PLACING, TIME, Limits
from optimizer.job.plan import FIELDS, SCHEDULES, Knobs, Plan
from optimizer.job.recomputation import MODES, RECOMPUTE, SIGN
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.minimised.registry import NAMES


def _of_variables(found: dict[str, Any]) -> dict[str, Any]:
    """Pins of variables that there are."""
    if unknown := [name for name in found if name not in (*FIELDS, *PLACING)]:
        raise ValueError(f"{', '.join(unknown)} is no variable of a plan")
    return found


def _plain(value: Any) -> Any:
    """A number, a word or a truth value."""
    if not isinstance(value, int | str):
        raise ValueError(f"expected a value, but got {shown(value)}")
    return value


def _made(kind: type, table: Any) -> Any:
    """The type of a key whose table becomes this dataclass."""
    return Annotated[table, AfterValidator(lambda found: kind(**dict(found)))]


Name = Annotated[str, Field(strict=True, min_length=1), "a name"]
Portion = Annotated[float, Field(strict=True, ge=0, le=1), "a share from 0 to 1"]
Risk = Annotated[float, Field(strict=True, gt=0, le=EVEN_RISK), f"a risk above 0, at most {EVEN_RISK}"]
Percent = Annotated[int, Field(strict=True, ge=0, le=100), "a whole number from 0 to 100"]
Trials = Annotated[int, Field(strict=True, ge=0, le=10_000), "a whole number from 0 to 10,000"]
VirtualStages = Annotated[int, Field(strict=True, gt=0, le=4096), "a whole number from 1 to 4,096"]
Numbers = Annotated[tuple[Natural, ...], "a list of whole numbers"]
Mode = Annotated[Literal[RECOMPUTE], f"one of {', '.join(MODES)}, or modules joined by {SIGN}"]  # type: ignore[valid-type]
Value = Annotated[Any, AfterValidator(_plain)]
Fixed = Annotated[dict[str, Value], AfterValidator(_of_variables)]
Ranges = Annotated[dict[str, tuple[Natural, Natural]], AfterValidator(_of_variables), "two numbers for each variable"]
Listed = Annotated[tuple[Value, ...], Field(min_length=1)]
Choices = Annotated[dict[str, Listed], AfterValidator(_of_variables), "a list of values for each variable"]

PLAN = part(
    Plan,
    **dict.fromkeys(("tp", "pp", "dp", "micro_batch", "num_microbatches"), (Count, ...)),
    **dict.fromkeys(("cp", "ep", "etp"), Count),
    **dict.fromkeys(("layers_per_stage", "recompute_layers"), Numbers),
    vpp=VirtualStages,
    activation_offload=Percent,
    recompute=Mode,
    schedule=one_of(SCHEDULES),
    dispatcher=one_of(DISPATCHERS),
)
KNOBS = part(Knobs, bucket=Unsigned, comm_sm_share=Portion, offload=Portion)
LIMITS = part(
    Limits,
    **dict.fromkeys(("max_micro_batch", "max_vpp", "min_cp_tokens"), Count),
    **dict.fromkeys(("hbm", "vocab_padding"), Unsigned),
    bubble=Portion,
    oom_risk=Risk | None,
    fixed=Fixed,
    ranges=Ranges,
    choices=Choices,
)


class Part(BaseModel):
    """An object whose other keys are compared one by one with what this version finds."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


def _part(**keys: Any) -> Any:
    """A part with these keys, each a type, or a pair of a type and what stands in for a key that is left out."""
    pairs: Any = {name: key if isinstance(key, tuple) else (key, ...) for name, key in keys.items()}
    return create_model("Part", __base__=Part, **pairs)


# What a search says of itself, and no other can find again.
SEARCHED: dict[str, Any] = {
    "proven": Flag,
    "lower_bound": (Unsigned, Field(validation_alias=AliasChoices("lower_bound_s", "lower_bound"))),
    "knob_bound": (Unsigned, Field(validation_alias=AliasChoices("knob_bound_s", "knob_bound"))),
    "space": Natural,
    "fitting": Natural,
    "candidates": Natural,
    "solved": (Natural, Field(validation_alias="layouts_solved")),
}
BY_FORMAT = _made(Claims, _part(**SEARCHED))
CERTIFICATE = _made(Claims, _part(**SEARCHED, by_format=(dict[str, BY_FORMAT], {})))  # type: ignore[valid-type]
ALTERNATIVE = _made(SavedPlan, _part(plan=PLAN, knobs=KNOBS))
FORMAT = _made(SavedFormat, _part(dtype=one_of(DTYPES), plan=PLAN | None, knobs=KNOBS))
ESTIMATE = _part(
    step_time_s=(Unsigned | None, None),
    mfu=(Unsigned | None, None),
    time_s=(dict[str, Unsigned], {}),
    memory_bytes=(dict[str, Unsigned], {}),
)
JOB = _part(
    **dict.fromkeys(("model", "cluster", "stack"), Name),
    **dict.fromkeys(("gpus", "seq_len", "global_batch"), Count),
    dtype=one_of(DTYPES),
    limits=LIMITS,
    settings=(tuple[Name, ...], ()),
    minimize=(one_of(NAMES), TIME),
)
ANSWER = _part(
    job=JOB,
    plan=PLAN | None,
    knobs=KNOBS,
    estimate=(ESTIMATE | None, None),
    certificate=(CERTIFICATE | None, None),
    simpler=(ALTERNATIVE | None, None),
    safety=(_part(fastest=ALTERNATIVE | None) | None, None),
    alternatives=(tuple[ALTERNATIVE, ...], ()),  # type: ignore[valid-type]
    formats=(tuple[FORMAT, ...], ()),  # type: ignore[valid-type]
    search=_part(trials=(Trials, 0), seed=(Natural, 0)),
    why_not=(_part(pins=Name) | None, None),
)
