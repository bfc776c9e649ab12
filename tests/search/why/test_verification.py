"""The check accepts what the planner says and finds every tampering by name, without loading a solver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optimizer.answer import Answer
from optimizer.job import Job
from optimizer.plan import Plan
from optimizer.readers.answer_file import SavedAnswer, read_answer
from optimizer.search.plan.planner import plan
from optimizer.search.why.verification import rule_findings, verify
from tests.search.jobs import small_job

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def document(gpt3_job: Job) -> dict[str, Any]:
    return json.loads(json.dumps(plan(gpt3_job, trials=0).to_dict()))  # type: ignore[no-any-return]


def broken(document: dict[str, Any]) -> set[str]:
    return {finding.name for finding in verify(read_answer(json.dumps(document))).broken}


@pytest.mark.parametrize("trials", [0, 8])
def test_the_planner_s_own_answer_holds(gpt3_job: Job, trials: int) -> None:
    answer: Answer = plan(gpt3_job, trials=trials)
    found = verify(read_answer(json.dumps(answer.to_dict())))
    assert found.broken == ()
    assert answer.estimate is not None
    assert found.estimate.step_time == pytest.approx(answer.estimate.step_time, rel=1e-9)
    assert found.to_dict()["holds"] is True
    assert any("CP-SAT" in line for line in found.unchecked)


def _change(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        table = document
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("tamper", "names"),
    [
        (_change("plan", "tp", value=16), {"gpu-product", "tp-scale-up", "claim step time"}),
        (_change("plan", "micro_batch", value=5), {"batch"}),
        (_change("plan", "vpp", value=7), {"layers"}),
        (_change("plan", "schedule", value="1f1b"), {"schedule"}),
        (_change("plan", "zero_stage", value=3), {"zero-stage"}),
        (_change("plan", "layers_per_stage", value=[12] * 7 + [11]), {"layers per stage"}),
        (_change("job", "limits", "hbm", value=40e9), {"memory"}),
        (_change("job", "limits", "bubble", value=0.001), {"bubble"}),
        (_change("job", "limits", "fixed", value={"pp": 64}), {"fix pp=64"}),
        (_change("estimate", "step_time_s", value=5.0), {"claim step time", "claim time terms"}),
        (_change("estimate", "time_s", "gemm", value=1.0), {"claim time terms", "claim time gemm"}),
        (_change("estimate", "memory_bytes", "peak_reserved", value=1e9), {"claim memory", "claim memory terms"}),
        (_change("estimate", "mfu", value=0.9), {"claim MFU"}),
        (_change("certificate", "lower_bound_s", value=7.0), {"certificate bound", "certificate figures"}),
        (_change("certificate", "gap", value=0.5), {"certificate figures"}),
        (_change("certificate", "best_s", value=7.0), {"certificate figures", "certificate optimum"}),
        (_change("certificate", "space", value=17), {"certificate space"}),
    ],
)
def test_tampering_is_named(
    document: dict[str, Any], tamper: Callable[[dict[str, Any]], None], names: set[str]
) -> None:
    tamper(document)
    assert names <= broken(document)


def test_a_slower_plan_is_no_proven_optimum(gpt3_job: Job) -> None:
    """The runner-up with its own figures passes every rule and claim, but not the certificate of an optimum."""
    answer = plan(gpt3_job, trials=0)
    document = json.loads(json.dumps(answer.to_dict()))
    other = document["alternatives"][0]
    document |= {"plan": other["plan"], "estimate": other["estimate"]}
    slower = other["estimate"]["step_time_s"]
    document["certificate"] |= {"best_s": slower, "lower_bound_s": slower}
    assert broken(document) == {"certificate bound", "certificate optimum"}


def test_rules_are_checked_by_their_own_check() -> None:
    job = small_job(8)
    findings = {item.name: item for item in rule_findings(job, Plan(tp=2, dp=4, micro_batch=1, num_microbatches=12))}
    assert all(item.holds for item in findings.values())
    findings = {item.name: item for item in rule_findings(job, Plan(tp=2, dp=4, micro_batch=1, num_microbatches=11))}
    assert {name for name, item in findings.items() if not item.holds} == {"batch"}
    assert "48 sequences" in findings["batch"].reason


def test_without_claims_only_rules_are_checked() -> None:
    job = small_job(8)
    found = verify(SavedAnswer(job=job, plan=Plan(tp=2, dp=4, num_microbatches=12)))
    assert found.broken == ()
    assert not any(item.name.startswith(("claim", "certificate")) for item in found.findings)
    assert found.unchecked == ()


def test_no_solver_is_loaded(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    code = (
        "import sys\nfrom optimizer.readers.answer_file import read_answer\n"
        "from optimizer.search.why.verification import verify\n"
        f"assert not verify(read_answer(open({str(path)!r}).read())).broken\n"
        "assert not {'ortools', 'optuna'} & {name.split('.')[0] for name in sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
