"""A fitted Stack as the TOML that presets/stacks holds."""

from __future__ import annotations

from optimizer.base.names import toml_string
from optimizer.job.stack import FEATURES, PARAMETERS, Features, Stack


def stack_toml(stack: Stack) -> str:
    """The stack as TOML: features that differ from the defaults, fitted parameters, fixed ones and why, residuals.

    >>> print(stack_toml(Stack(name="mine", parameters={"launch": 6e-6})).splitlines()[0])
    name = "mine"
    """
    lines = [f"name = {toml_string(stack.name)}", f"runs = {stack.runs}"]
    if stack.parent:
        lines.insert(1, f"parent = {_value(stack.parent)}")
    if stack.devices:
        lines.append(f"devices = {_value(stack.devices)}")
    default = Features()
    changed = [name for name in FEATURES if getattr(stack.features, name) != getattr(default, name)]
    lines += ["", "[features]", *(f"{name} = {_value(getattr(stack.features, name))}" for name in changed)]
    lines += ["", "[parameters]"]
    for name, parameter in PARAMETERS.items():
        if name in stack.parameters:
            lines.append(f"{name} = {stack.parameters[name]:.4g}  # {parameter.unit}: {parameter.meaning}")
    if stack.fixed:
        lines += ["", "[fixed]"]
        lines += [
            f"{name} = {{ value = {stack.fixed[name].value:.4g}, why = {_value(stack.fixed[name].why)} }}"
            for name in PARAMETERS
            if name in stack.fixed
        ]
    lines += ["", "[residuals]", *(f"{key} = {value:.4g}" for key, value in stack.residuals.items())]
    if stack.intervals:
        lines += ["", "[intervals]", *(f"{key} = {value:.4g}" for key, value in stack.intervals.items())]
    if stack.ranges:
        lines += ["", "[ranges]", *(f"{key} = [{low:.10g}, {high:.10g}]" for key, (low, high) in stack.ranges.items())]
    lines += ["", "[provenance]"]
    for key in ("source", "date", "grade", "note"):
        if text := getattr(stack.provenance, key):
            lines.append(f"{key} = {_value(text)}")
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return str(value)
