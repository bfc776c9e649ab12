"""A validation as JSON, the contract with other programs, and its rows as CSV."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from optimizer.calibration.groups import device_name, model_name, source_name
from optimizer.calibration.suspects import suspicion
from optimizer.calibration.validation import Priced, Score, Validation
from optimizer.reports.table import Record, csv_text, json_text


def validation_json(validation: Validation) -> str:
    """schema_version, the scores of every group, and one entry per row of the file in its order."""
    return json_text(
        {
            "groups": [group_record(score) for score in validation.scores],
            "rows": [row_record(row) for row in validation.rows],
        }
    )


def group_record(score: Score) -> dict[str, Any]:
    """One group's errors; the matrix of verdicts and its balanced accuracy under `verdicts`."""
    accuracy = score.verdicts.balanced_accuracy
    return asdict(score) | {"verdicts": asdict(score.verdicts) | {"balanced_accuracy": accuracy}}


def row_record(row: Priced) -> dict[str, Any]:
    """What was predicted for one row; nulls and the reason in `refused` where it could not be priced."""
    return {
        "id": row.run.id,
        "predicted_step_time_s": row.step_time,
        "low_s": row.interval.low if row.interval else None,
        "high_s": row.interval.high if row.interval else None,
        "predicted_reserved_bytes": row.reserved,
        "predicted_allocated_bytes": row.allocated,
        "fits": row.fits,
        "refused": row.run.refused or None,
    }


def validation_csv(validation: Validation) -> str:
    """Every row with its group, measurement, prediction, error and suspected reason."""
    return csv_text([_csv_record(row) for row in validation.rows])


def _csv_record(row: Priced) -> Record:
    run = row.run
    return {
        **row_record(row),
        "source": source_name(run),
        "stack": run.stack_name,
        "device": device_name(run),
        "model": model_name(run),
        "measured_step_time_s": run.step_time,
        "error": row.ratio - 1.0 if row.ratio else None,
        "interval_kind": row.interval.kind if row.interval else None,
        "measured_memory_bytes": run.memory,
        "memory_kind": run.memory_kind,
        "status": run.row.get("status", ""),
        "quality": run.row.get("quality", ""),
        "assumed": "; ".join(run.assumed),
        "suspected": suspicion(row) if row.step_time else "",
    }
