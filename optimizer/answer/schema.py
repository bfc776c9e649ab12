"""Pydantic models of the tables of optimizer.answer.keys: to read saved answers back, and for the JSON schema.

Imported only for these: pydantic takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, create_model

import optimizer.catalog.readers.tables as readers
from optimizer.answer.answer import Certificate
from optimizer.answer.keys import (
    NOT_READ,
    AnswerKeys,
    CertificateKeys,
    Count,
    FormatKeys,
    Keys,
    OtherKeys,
    Values,
    tables,
)
from optimizer.answer.saved import SavedFormat, SavedPlan
from optimizer.catalog.readers.tables import FileTable, Flag, Natural, Unsigned, one_of, part
from optimizer.catalog.readers.text import shown
from optimizer.job.job import EVEN_RISK, PLACING, Limits
from optimizer.job.known import RunsSource
from optimizer.job.plan import FIELDS, SCHEDULES, Knobs, Plan
from optimizer.job.recomputation import MODES, RECOMPUTE, SIGN
from optimizer.job.variables import DISPATCHERS


def _of_variables(pins: dict[str, Any]) -> dict[str, Any]:
    """Pins of variables that there are."""
    if unknown := [name for name in pins if name not in (*FIELDS, *PLACING)]:
        raise ValueError(f"{', '.join(unknown)} is no variable of a plan")
    return pins


def _plain(value: Any) -> Any:
    """A number, a word or a truth value."""
    if not isinstance(value, int | str):
        raise ValueError(f"expected a value, but got {shown(value)}")
    return value


Name = Annotated[str, Field(strict=True, min_length=1), "a name"]
Portion = Annotated[float, Field(strict=True, ge=0, le=1), "a share from 0 to 1"]
Risk = Annotated[float, Field(strict=True, gt=0, le=EVEN_RISK), f"a risk above 0, at most {EVEN_RISK}"]
Percent = Annotated[int, Field(strict=True, ge=0, le=100), "a whole number from 0 to 100"]
VirtualStages = Annotated[int, Field(strict=True, gt=0, le=4096), "a whole number from 1 to 4,096"]
Numbers = Annotated[tuple[Natural, ...], "a list of whole numbers"]
Mode = Annotated[Literal[RECOMPUTE], f"one of {', '.join(MODES)}, or modules joined by {SIGN}"]  # type: ignore[valid-type]
Value = Annotated[Any, AfterValidator(_plain)]
Fixed = Annotated[dict[str, Value], AfterValidator(_of_variables)]
Ranges = Annotated[dict[str, tuple[Natural, Natural]], AfterValidator(_of_variables), "two numbers for each variable"]
Listed = Annotated[tuple[Value, ...], Field(min_length=1)]
Choices = Annotated[dict[str, Listed], AfterValidator(_of_variables), "a list of values for each variable"]

# What the types of keys are when a saved answer is read.
READ: dict[Any, Any] = {
    bool: Flag,
    int: Natural,
    float: Unsigned,
    str: Name,
    Count: readers.Count,
    Plan: part(
        Plan,
        **dict.fromkeys(("tp", "pp", "dp", "micro_batch", "num_microbatches"), (readers.Count, ...)),
        **dict.fromkeys(("cp", "ep", "etp"), readers.Count),
        **dict.fromkeys(("layers_per_stage", "recompute_layers"), Numbers),
        vpp=VirtualStages,
        activation_offload=Percent,
        recompute=Mode,
        schedule=one_of(SCHEDULES),
        dispatcher=one_of(DISPATCHERS),
    ),
    Knobs: part(Knobs, bucket=Unsigned, comm_sm_share=Portion, offload=Portion),
    Limits: part(
        Limits,
        **dict.fromkeys(("max_vpp", "min_cp_tokens"), readers.Count),
        **dict.fromkeys(("hbm", "vocab_padding"), Unsigned),
        bubble=Portion,
        oom_risk=Risk | None,
        fixed=Fixed,
        ranges=Ranges,
        choices=Choices,
    ),
    RunsSource: part(RunsSource, runs=Natural),
}
# What tables that were read become.
MADE: dict[type[Keys], type] = {CertificateKeys: Certificate, OtherKeys: SavedPlan, FormatKeys: SavedFormat}


class Part(BaseModel):
    """An object whose other keys are compared one by one with what this version finds."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


def _typed(hint: Any, leaf: Callable[[Any], Any]) -> Any:
    """A type with other leaves; names of a mapping stay any."""
    origin = get_origin(hint)
    if origin is None or origin is Annotated:
        return hint if hint in (Ellipsis, type(None), Any) else leaf(hint)
    if origin is dict and get_args(hint)[0] is str:
        return dict[str, _typed(get_args(hint)[1], leaf)]  # type: ignore[misc]
    parts = tuple(_typed(item, leaf) for item in get_args(hint))
    return Union[parts] if origin is UnionType else origin[parts]  # noqa: UP007


def _values(hint: Any) -> list[Values]:
    """What a type says of its values, and its parts of theirs."""
    if get_origin(hint) is Annotated:
        return [item for item in hint.__metadata__ if isinstance(item, Values)]
    return [values for inner in get_args(hint) for values in _values(inner)]


def written(keys: type[Keys]) -> type[FileTable]:
    """The model of a table as `optimize --json` prints it, for its JSON schema."""

    def typed(leaf: Any) -> Any:
        if any(tables(leaf)):  # a table inside of itself by its name
            return ForwardRef(leaf.__name__) if leaf is keys else written(leaf)
        for values in _values(leaf):
            enum: Any = {"enum": list(values.options)} if values.options else None
            return Annotated[get_args(leaf)[0], Field(ge=values.low, le=values.high, json_schema_extra=enum)]
        return leaf

    columns = dict[str, Any]()
    for name, (key, hint) in keys.table().items():
        unit = next((f" [{values.unit}]" for values in _values(hint) if values.unit), "")
        optional, kind = type(None) in get_args(hint), _typed(hint, typed)
        implied = None if optional else 0.0 if key.valued else key.implied
        default: Any = implied if key.extra or key.valued else ...
        columns[name] = (kind, Field(default, description=f"{key.about}{unit}"))
        if key.valued:
            columns[name.removesuffix("_s")] = (kind, Field(default, description=f"{key.about}, in `unit`"))
    return create_model(keys.__name__, __base__=FileTable, __doc__=keys.__doc__, **columns)


def _read(keys: type[Keys], inside: bool = False) -> Any:
    """The type of what is read of a table: a model, made a dataclass where there is one of it.

    A table `inside` of itself has no third one in it.
    """

    def typed(leaf: Any) -> Any:
        if leaf in READ:
            return READ[leaf]
        if any(tables(leaf)):
            return _read(leaf, leaf is keys)
        (values,) = _values(leaf)
        if values.high is not None:
            words = f"a whole number from {values.low} to {values.high:,}"
            return Annotated[int, Field(strict=True, ge=values.low, le=values.high), words]
        return one_of(values.options) if values.options else READ[get_args(leaf)[0]]

    columns = dict[str, Any]()
    for name, (key, hint) in keys.table().items():
        if key.read is NOT_READ or (inside and keys in get_args(hint)):
            continue
        kind = _typed(hint, typed)
        field = key.of if isinstance(key.of, str) else name
        names = AliasChoices(name, name.removesuffix("_s")) if key.valued else name
        columns[field] = (kind | None if key.read is None else kind, Field(key.read, validation_alias=names))
    table, made = create_model(keys.__name__, __base__=Part, **columns), MADE.get(keys)
    return Annotated[table, AfterValidator(lambda read: made(**dict(read)))] if made else table


SAVED_ANSWER: Any = _read(AnswerKeys)
