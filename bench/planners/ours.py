"""What this program predicts for every job, with the stack that its row names.

python -m bench.planners.ours > predictions.json
"""

from __future__ import annotations

import json
from typing import Any

from bench.planners.score import FORMAT
from optimizer.calibration.runs import read_runs
from optimizer.calibration.validation import priced
from optimizer.catalog.files import presets_folder

TITLE = "mfu-optimizer"


def predictions() -> dict[str, Any]:
    """Step time and verdict of every run that is priced."""
    rows = [row for row in priced(read_runs(presets_folder() / "published.csv")) if row.clean]
    said = [{"id": row.run.id, "step_time_s": row.step_time, "fits": row.fits} for row in rows]
    return {"format": FORMAT, "planner": TITLE, "predictions": said}


if __name__ == "__main__":
    print(json.dumps(predictions(), indent=1))
