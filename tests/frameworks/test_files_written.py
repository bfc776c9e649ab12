"""Launch files of every target, to the last word: `files_written.json` holds plans and what they are written as.

As few of them as run each line of the writers, twice. A wanted change: `python -m tests.frameworks.test_files_written`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed, launchers
from optimizer.frameworks.export_folder import exported
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.target import on_device
from optimizer.objectives.step.price import price
from tests.clients.accepted import TUNING

PLACE = Path(__file__).with_name("files_written.json")
COMMENT = re.compile(r"\s*#(?!SBATCH)")
WRITTEN: list[dict[str, Any]] = json.loads(PLACE.read_text())


def written(case: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of each file without comments, which say what is predicted; or why there are none."""
    target, asked = case["target"], dict(case["asked"])
    model, cluster = load_model(asked.pop("model")), load_cluster(asked.pop("cluster"))
    stack = aimed(load_stack(asked.pop("stack")), target)
    if target in TUNING:
        stack = on_device(stack, launchers()[target], cluster.device.name, asked["gpus"])
    job = Job(model=model, cluster=cluster, stack=stack, **asked)
    job = job.with_limits(fixed=case["fixed"], bubble=1.0, hbm=1e15)
    plan = Plan(**{name: tuple(value) if isinstance(value, list) else value for name, value in case["plan"].items()})
    estimate = price(job, Plans.of([plan]), Knobs()).estimate(0, job.tokens, job.gpus, 1e15)
    try:
        texts = exported(Answer(status="optimal", job=job, plan=plan, estimate=estimate)).texts
    except InputError as error:
        return {"refused": [str(error)]}
    return {name: [line for line in text.splitlines() if not COMMENT.match(line)] for name, text in texts.items()}


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_a_plan_is_written_to_the_last_word(number: int) -> None:
    assert written(WRITTEN[number]) == WRITTEN[number]["files"]


def write() -> None:
    """The files as they are written today."""
    for case in WRITTEN:
        case["files"] = {}
        case["files"] = written(case)
    PLACE.write_text(json.dumps(WRITTEN, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write()
