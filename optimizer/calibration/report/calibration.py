"""The report on a calibration: parameters within their bounds, residuals by group, runs that look wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.calibration.calibrate import Calibration
from optimizer.calibration.scores import Errors
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.objectives.step.interval import LEVEL
from optimizer.reports.plan_report import notes, title
from optimizer.reports.table import Column, Value, table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

MOST = 15
PARAMETER = (
    Column(label="parameter"),
    Column(label="value", unit="text"),
    Column(label="was", unit="text"),
    Column(label="bounds", unit="text"),
    Column(label="unit"),
    Column(label="spread", unit="text"),
    Column(label="meaning", wraps=True),
)
RESIDUAL = (
    Column(label="runs", unit="1"),
    Column(label="MAPE", unit="%"),
    Column(label="median", unit="%"),
    Column(label="90th pct", unit="%"),
    Column(label="bias", unit="%"),
)
SUSPECT = (
    Column(label="run", wraps=True),
    Column(label="measured", unit="s"),
    Column(label="error", unit="%"),
    Column(label="robust z", unit="text"),
)


def calibration_report(calibration: Calibration) -> Group:
    """The whole report."""
    from rich.console import Group
    from rich.text import Text

    stack = calibration.stack
    residuals = stack.residuals
    parts: list[RenderableType] = [
        Text(
            f"{stack.name}: {stack.runs:,} runs, MAPE {residuals['mape']:.1%}, median {residuals['median']:.1%}, "
            f"bias {residuals['bias']:+.1%}",
            style="bold",
        ),
        Text(f"On {', '.join(stack.devices)}; {counted(stack)}.{_left_out(stack)}"),
        title("Parameters"),
        table(PARAMETER, _parameters(calibration)),
    ]
    for by, groups in calibration.groups().items():
        rows = [[name, *_cells(errors)] for name, errors in sorted(groups.items(), key=lambda g: -g[1].runs)[:MOST]]
        parts += [title(f"Residuals by {by}"), table([Column(label=by, wraps=True), *RESIDUAL], rows)]
    parts += notes("Fixed", [f"{name} {item.value:.4g}: {item.why}" for name, item in stack.fixed.items()])
    parts += notes("Memory", _memory(calibration))
    parts += notes(f"{LEVEL:.0%} intervals, from runs left out of the fit", _intervals(calibration))
    parts += _suspects(calibration)
    parts += notes("Set aside", _set_aside(calibration))
    return Group(*parts)


def counted(stack: Stack) -> str:
    """How many parameters are fitted, fixed and at their default.

    >>> counted(Stack(name="mine", parameters={"launch": 6e-6}))
    '1 fitted parameter, 0 fixed, 27 at their default'
    """
    fitted, fixed, default = stack.counts
    return f"{fitted} fitted parameter{'' if fitted == 1 else 's'}, {fixed} fixed, {default} at their default"


def _left_out(stack: Stack) -> str:
    if "left_out_mape" not in stack.residuals:
        return ""
    mape, median = stack.residuals["left_out_mape"], stack.residuals["left_out_median"]
    return f" On groups of like runs left out of the fit: MAPE {mape:.1%}, median {median:.1%}."


def _parameters(calibration: Calibration) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for name, parameter in PARAMETERS.items():
        if name in calibration.stack.parameters:
            spread = calibration.spreads.get(name)
            rows.append(
                [
                    name,
                    f"{calibration.stack[name]:.4g}",
                    f"{calibration.start[name]:.4g}",
                    f"{parameter.low:g} to {parameter.high:g}",
                    "" if parameter.unit == "1" else parameter.unit,
                    "" if spread is None else f"{spread:.2f}",
                    parameter.meaning,
                ]
            )
    return rows


def _cells(errors: Errors) -> list[Value]:
    return [errors.runs, errors.mape, errors.median, errors.p90, errors.bias]


def _memory(calibration: Calibration) -> list[str]:
    memory = calibration.memory
    lines = []
    if len(memory.residuals):
        size = np.abs(np.expm1(memory.residuals))
        lines.append(f"{len(size):,} measured peaks: MAPE {size.mean():.1%}, median {np.median(size):.1%}")
    if memory.verdicts:
        lines.append(
            f"{memory.wrong_verdicts:,} of {memory.verdicts:,} runs fit, or run out of memory, against the model"
        )
    return lines


def _intervals(calibration: Calibration) -> list[str]:
    found = calibration.stack.intervals
    lines = []
    for quantity, what in (("time", "step time"), ("memory", "memory")):
        if f"{quantity}_n" in found:
            lines.append(
                f"{what}: within {np.expm1(found[f'{quantity}_interpolated']):.1%}, extrapolated within "
                f"{np.expm1(found[f'{quantity}_extrapolated']):.1%}"
            )
    if found.get("time_slope"):
        lines.append(f"below 40% MFU the width of step times grows as (40% / MFU)^{found['time_slope']:g}")
    return lines or ["too few runs: the pooled widths of all stacks are used"]


def _suspects(calibration: Calibration) -> list[RenderableType]:
    rows: list[list[Value]] = []
    by_id = dict(zip((run.id for run in calibration.timed), calibration.errors, strict=True))
    for run, z in calibration.suspects[:MOST]:
        rows.append([run.id, run.step_time, float(np.expm1(by_id[run.id])), f"{z:+.1f}"])
    heading = f"Runs that look wrong (robust z above 4), {len(rows)} of {len(calibration.suspects)}"
    return [title(heading), table(SUSPECT, rows)] if rows else []


def _set_aside(calibration: Calibration) -> list[str]:
    lines = []
    if calibration.doubtful:
        lines.append(
            f"{calibration.doubtful:,} rows that their source doubts (column quality) or that name no micro_batch"
        )
    reasons: dict[str, int] = {}
    for run in calibration.refused:
        reasons[run.refused] = reasons.get(run.refused, 0) + 1
    lines += [f"{count:,} × {reason}" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:MOST]]
    return lines
