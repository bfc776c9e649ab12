"""The report on a calibration: parameters within their bounds, residuals by group, runs that look wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from optimizer.calibration.calibrate import Calibration
from optimizer.catalog.stacks import stack_names
from optimizer.job.known import MEMORY, TIME
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.reports.render.json import json_text
from optimizer.reports.report import Report, Table, Value, columns, notes, section

MOST = 15
PARAMETER = columns("parameter | value [text] | was [text] | bounds [text] | unit | spread [text] | meaning ~")
RESIDUAL = "runs [1] | MAPE [%] | median [%] | 90th pct [%] | bias [%]"
SUSPECT = columns("run ~ | measured [s] | error [%] | robust z [text]")


def calibration_report(calibration: Calibration) -> Report:
    """The whole report."""
    stack, residuals = calibration.stack, calibration.stack.residuals
    left = ""
    if "left_out_mape" in residuals:
        mape, median = residuals["left_out_mape"], residuals["left_out_median"]
        left = f" On groups of like runs left out of the fit: MAPE {mape:.1%}, median {median:.1%}."
    logs = dict(zip((run.id for run in calibration.timed), calibration.errors, strict=True))
    suspects = [
        (run.id, run.step_time, float(np.expm1(logs[run.id])), f"{z:+.1f}") for run, z in calibration.suspects[:MOST]
    ]
    wrong = f"Runs that look wrong (robust z above 4), {len(suspects)} of {len(calibration.suspects)}"
    return Report(
        title=f"{stack.name}: {stack.runs:,} runs, MAPE {residuals['mape']:.1%}, median {residuals['median']:.1%}, "
        f"bias {residuals['bias']:+.1%}",
        subject=(f"On {', '.join(stack.devices)}; {counted(stack)}.{left}",),
        sections=(
            section("Parameters", Table(PARAMETER, _parameters(calibration))),
            *(
                section(
                    f"Residuals by {by}",
                    Table(
                        columns(f"{by} ~ | {RESIDUAL}"),
                        [
                            (name, *astuple(errors))
                            for name, errors in sorted(groups.items(), key=lambda group: -group[1].runs)[:MOST]
                        ],
                    ),
                )
                for by, groups in calibration.groups().items()
            ),
            notes("Fixed", [f"{name} {item.value:.4g}: {item.why}" for name, item in stack.fixed.items()]),
            notes("Memory", _memory(calibration)),
            notes("What its errors are known from", _known(calibration)),
            section(wrong, Table(SUSPECT, suspects)),
            notes("Set aside", _not_counted(calibration)),
        ),
        note="Fitted to measured runs by mfu-optimizer.",
    )


def calibration_json(calibration: Calibration) -> str:
    """The fitted stack, how well its runs tell its parameters, residuals by group, suspect runs, rows set aside."""
    names = ("name", "runs", "devices", "parameters", "fixed", "known", "ranges", "residuals", "provenance")
    return json_text(
        {
            "stack": {name: getattr(calibration.stack, name) for name in names},
            "spreads": calibration.spreads,
            "residuals": calibration.groups(),
            "suspects": [{"id": run.id, "z": z} for run, z in calibration.suspects],
            "refused": [{"id": run.id, "reason": run.refused} for run in calibration.refused],
            "doubtful": calibration.doubtful,
        }
    )


def counted(stack: Stack) -> str:
    """How many parameters are fitted, fixed and at their default.

    >>> counted(Stack(name="mine", parameters={"launch": 6e-6}))
    '1 fitted parameter, 0 fixed, 28 at their default'
    """
    fitted, fixed, default = stack.counts
    return f"{fitted} fitted parameter{'' if fitted == 1 else 's'}, {fixed} fixed, {default} at their default"


def _parameters(calibration: Calibration) -> list[Sequence[Value]]:
    stack, spreads = calibration.stack, calibration.spreads
    return [
        (
            name,
            f"{stack[name]:.4g}",
            f"{calibration.start[name]:.4g}",
            f"{parameter.low:g} to {parameter.high:g}",
            "" if parameter.unit == "1" else parameter.unit,
            "" if spreads.get(name) is None else f"{spreads[name]:.2f}",
            parameter.meaning,
        )
        for name, parameter in PARAMETERS.items()
        if name in stack.parameters
    ]


def _memory(calibration: Calibration) -> list[str]:
    memory = calibration.memory
    lines = []
    if len(memory.residuals):
        size = np.abs(np.expm1(memory.residuals))
        lines.append(f"{len(size):,} measured peaks: MAPE {size.mean():.1%}, median {np.median(size):.1%}")
    if memory.verdicts:
        wrong = f"{memory.wrong_verdicts:,} of {memory.verdicts:,} runs"
        lines.append(f"{wrong} fit, or run out of memory, against the model")
    return lines


def _known(calibration: Calibration) -> list[str]:
    stack = calibration.stack
    if stack.name in stack_names():
        return ["presets/belief.csv, which python -m maintain.belief writes"]
    words = {TIME: "step time", MEMORY: "memory"}
    counts = {what: sum(row.quantity == quantity for row in stack.known) for quantity, what in words.items()}
    return [f"{what}: {count:,} of its runs, like ones together" for what, count in counts.items() if count]


def _not_counted(calibration: Calibration) -> list[str]:
    doubts = f"{calibration.doubtful:,} rows that their source doubts (column quality) or that name no micro_batch"
    reasons = Counter(run.refused for run in calibration.refused).most_common(MOST)
    return [doubts] * bool(calibration.doubtful) + [f"{count:,} × {reason}" for reason, count in reasons]
