"""A calibration as JSON."""

from __future__ import annotations

from dataclasses import asdict

from optimizer.calibration.calibrate import Calibration
from optimizer.reports.table import json_text


def calibration_json(calibration: Calibration) -> str:
    """The fitted stack, how well its runs tell its parameters, residuals by group, suspect runs, rows set aside."""
    stack = calibration.stack
    return json_text(
        {
            "stack": {
                "name": stack.name,
                "runs": stack.runs,
                "devices": list(stack.devices),
                "parameters": dict(stack.parameters),
                "fixed": {name: asdict(item) for name, item in stack.fixed.items()},
                "intervals": dict(stack.intervals),
                "ranges": {name: list(span) for name, span in stack.ranges.items()},
                "residuals": dict(stack.residuals),
                "provenance": asdict(stack.provenance),
            },
            "spreads": dict(calibration.spreads),
            "residuals": {
                by: {name: asdict(errors) for name, errors in groups.items()}
                for by, groups in calibration.groups().items()
            },
            "suspects": [{"id": run.id, "z": z} for run, z in calibration.suspects],
            "refused": [{"id": run.id, "reason": run.refused} for run in calibration.refused],
            "doubtful": calibration.doubtful,
        }
    )
