"""Any plan that a target can run, written as its launch files, is read back as that plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.frameworks.export_folder import exported
from optimizer.improve.patch import UNSAID
from optimizer.job.plan import Knobs, Plans
from optimizer.objectives.step.price import price
from tests.clients.accepted import STACKS, drawn
from tests.frameworks.read_back import ARGUMENTS, FILES, read_config
from tests.frameworks.test_plans_written import drawn as drawn_plans
from tests.thorough import cases


@pytest.mark.parametrize("target", [target for target in STACKS if target not in ("torchtune", "unsloth")])
def test_a_plan_that_is_exported_is_read_back(target: str, tmp_path: Path) -> None:
    random, folders, written = Random(1), count(), 0
    for _ in range(cases(20, sample=6)):
        job = replace(drawn(random, target), loss="").with_limits(hbm=1e15)  # which no key of some programs tells
        for plan in drawn_plans(job, 3):
            folder = tmp_path / str(next(folders))
            folder.mkdir()
            costs = price(job, Plans.of([plan]), Knobs())
            estimate = costs.estimate(0, job.tokens, job.gpus, 1e15)
            try:
                texts = exported(Answer(status="optimal", job=job, plan=plan, estimate=estimate)).texts
            except InputError:
                continue
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            for name in {*texts} & {ARGUMENTS, *FILES}:
                found, _ = read_config(job, folder / name)
                alone = ("zero_stage",) if plan.dp * plan.cp == 1 else ()  # nobody to share with
                names = [each for each in vars(plan) if each not in (*UNSAID, *alone)]
                unlike = {
                    n: (getattr(plan, n), getattr(found, n)) for n in names if getattr(found, n) != getattr(plan, n)
                }
                assert unlike == {}, (name, plan)
                written += 1
    assert written
