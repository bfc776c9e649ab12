"""A software stack in a TOML file, as `optimize calibrate --out` writes it: what the software does and how well.

[features]                  # what differs from optimizer.job.stack.Features; may be empty
attention = "flash3"

[parameters]                # those that were fitted, of optimizer.job.stack.PARAMETERS
gemm_efficiency = 0.87

[fixed]                     # those that no run of the software tells, and why they are what they are
dp_overlap = { value = 1.0, why = "hides wherever it can" }

name, runs, devices, [residuals], [ranges], [[known]] and [provenance] tell of the fit and may be left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.tables import (
    Count,
    FileTable,
    Natural,
    Number,
    Share,
    Texts,
    Unsigned,
    one_of,
    part,
    table_of,
)
from optimizer.catalog.readers.text import read_described
from optimizer.job.job import DTYPES
from optimizer.job.known import PLAN_COLUMNS, QUANTITIES, SIZES, RunError
from optimizer.job.model import Provenance
from optimizer.job.stack import PARAMETERS, Features, Fixed, Parameter, Stack

NEEDED = 'a table [features] of what the software does, such as attention = "flash"; empty it stands for the defaults'
WIDEST = 20


def _numbers(count: int) -> Any:
    each = Field(min_length=count, max_length=count)
    return Annotated[tuple[Number, ...], each, f"a list of {count} numbers"]


_UP_TO_WIDEST = Annotated[float, Field(strict=True, ge=0, le=WIDEST), f"a number from 0 to {WIDEST}"]
Stage = Annotated[int, Field(strict=True, ge=0, le=3), "0, 1, 2 or 3"]


def _features(table: FileTable) -> Features:
    features = Features(**dict(table))
    if features.recompute_modules and features.selective != "core":
        raise ValueError('recompute_modules needs selective = "core"')
    return features


def _given(table: FileTable) -> dict[str, Any]:
    return {name: getattr(table, name) for name in PARAMETERS if name in table.model_fields_set}


def _bounded(parameter: Parameter) -> tuple[Any, None]:
    low, high = parameter.low, parameter.high
    words = f"a number from {low:g} to {high:g} [{parameter.unit}]"
    return Annotated[float, Field(strict=True, ge=low, le=high), words], None


_FEATURES = table_of(
    Features,
    default_zero=Stage,
    default_vpp=Count,
    default_dtype=one_of(("", *DTYPES)),
    grad_bytes=Count,
    optimizer_bytes=Count,
    **dict.fromkeys(("zero_stages", "piped_zero_stages"), Annotated[tuple[Stage, ...], "a list of some of 0, 1, 2, 3"]),
    max_vpp=Count,
    logit_bytes=Count,
    unsplit_head_rate=Share,
    sharded_rate=Share,
    sharded_host=Unsigned,
    sliced_host=Unsigned,
    lifted=Texts,
)
_BOUNDED: Any = {name: _bounded(parameter) for name, parameter in PARAMETERS.items()}
_PARAMETERS = create_model("Parameters", __base__=FileTable, **_BOUNDED)
_EACH_FIXED: Any = {name: (part(Fixed, value=hint), None) for name, (hint, _) in _BOUNDED.items()}
_FIXED = create_model("FixedParameters", __base__=FileTable, **_EACH_FIXED)
_KNOWN: Any = part(
    RunError,
    quantity=one_of(QUANTITIES),
    size=_numbers(SIZES),
    plan=_numbers(PLAN_COLUMNS),
    error=Annotated[float, Field(strict=True, ge=-WIDEST, le=WIDEST), f"a number from -{WIDEST} to {WIDEST}"],
    **dict.fromkeys(("spread", "hardness"), _UP_TO_WIDEST),
)
KEYS = table_of(
    Stack,
    features=(Annotated[_FEATURES, AfterValidator(_features), NEEDED], ...),
    parameters=Annotated[_PARAMETERS, AfterValidator(_given)],
    fixed=Annotated[_FIXED, AfterValidator(_given)],
    runs=Natural,
    residuals=dict[str, Number],
    devices=Texts,
    known=Annotated[tuple[_KNOWN, ...], "a list of tables, as optimize calibrate writes them"],
    ranges=dict[str, Annotated[tuple[Number, Number], "two numbers, lowest and highest"]],
    provenance=part(Provenance),
)


def read_stack(path: str | Path) -> Stack:
    """The stack in a TOML file; without a `name` the file's own is taken.

    Raises InvalidFile with every problem found.
    """
    path = Path(path)
    data = read_described(path, "stack")
    fitted, fixed = (data.get(name) for name in ("parameters", "fixed"))
    both = [name for name in fixed if name in fitted] if isinstance(fitted, dict) and isinstance(fixed, dict) else []
    problems = [f"fixed.{name}: is in parameters too; keep one of them" for name in both]
    table = validated(KEYS, {"name": path.stem} | data, problems)
    if table is None or problems:
        raise InvalidFile(path, problems)
    return Stack(**dict(table))
