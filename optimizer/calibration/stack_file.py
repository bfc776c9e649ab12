"""A fitted Stack as the TOML that presets/stacks holds."""

from __future__ import annotations

from optimizer.base.names import toml_table, toml_value
from optimizer.job.stack import FEATURES, PARAMETERS, Features, Stack

OPTIONAL = ("fixed", "ranges")  # tables that are left out where they are empty


def stack_toml(stack: Stack) -> str:
    """The stack as TOML: features that differ from the defaults, fitted parameters, fixed ones and why, residuals.

    >>> print(stack_toml(Stack(name="mine", parameters={"launch": 6e-6})).splitlines()[0])
    name = "mine"
    """
    head = {"name": stack.name, "parent": stack.parent, "runs": stack.runs, "devices": stack.devices}
    features = {name: getattr(stack.features, name) for name in FEATURES}
    sources = {key: getattr(stack.provenance, key) for key in ("source", "date", "grade", "note")}
    values, fixed = stack.parameters, stack.fixed
    tables = {
        "features": {name: toml_value(own) for name, own in features.items() if own != getattr(Features(), name)},
        "parameters": {
            name: f"{values[name]:.4g}  # {parameter.unit}: {parameter.meaning}"
            for name, parameter in PARAMETERS.items()
            if name in values
        },
        "fixed": {
            name: f"{{ value = {fixed[name].value:.4g}, why = {toml_value(fixed[name].why)} }}"
            for name in PARAMETERS
            if name in fixed
        },
        "residuals": {key: f"{value:.4g}" for key, value in stack.residuals.items()},
        "ranges": {key: f"[{low:.10g}, {high:.10g}]" for key, (low, high) in stack.ranges.items()},
        "provenance": {key: toml_value(text) for key, text in sources.items() if text},
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in head.items() if value or key == "runs"]
    for table, rows in tables.items():
        if rows or table not in OPTIONAL:
            lines += ["", f"[{table}]", *(f"{key} = {text}" for key, text in rows.items())]
    for row in stack.known:
        lines += ["", *toml_table("[[known]]", vars(row))]
    return "\n".join(lines) + "\n"
