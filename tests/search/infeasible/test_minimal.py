"""Conflicts of tiny jobs by hand, and which rules are left of clashing ones that are made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from optimizer.constraints.rule import Rule
from optimizer.job.job import Job
from optimizer.job.stack import Features
from optimizer.search.infeasible import conflict as module
from optimizer.search.infeasible.conflict import CUT_SHORT, ConflictQuestion, conflict, minimal
from tests.search.jobs import DENSE, small_job

TINY = replace(DENSE, layers=2, heads=2, kv_heads=2, hidden=256, ffn_hidden=512, vocab=1000)
PLAIN = Features(recompute=("none",), zero_stages=(1,), settable=(), sequence_parallel=False)


def tiny(gpus: int, **limits: Any) -> Job:
    """Eight sequences for two layers, on nodes of 4 GPUs of which there are 16 at most."""
    job = replace(small_job(gpus, model=TINY, features=PLAIN, **limits), global_batch=8, seq_len=1024)
    return replace(job, cluster=replace(job.cluster, max_gpus=16, gpus_per_node=4))


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (tiny(2, fixed={"tp": 5}), {"gpu-product": "", "fix tp=5": "drop fix tp=5"}),
        (
            tiny(2, bubble=0.05, fixed={"pp": 2, "vpp": 1}),  # 1 / (8 + 1), and 1 / (19 + 1)
            {
                "batch": "global batch 8 -> 19",
                "bubble": "bubble 5.0% -> 11.2%",
                "fix pp=2": "drop fix pp=2",
                "fix vpp=1": "",
            },
        ),
        (tiny(2, max_tp=1, fixed={"tp": 2}), {"tp-scale-up": "largest tp 1 -> 2", "fix tp=2": "drop fix tp=2"}),
        (tiny(7), {"gpu-product": "7 -> 8 GPUs", "batch": "global batch 8 -> 7", "heads": ""}),
        (
            tiny(2, max_micro_batch=1, fixed={"micro_batch": 4}),
            {"micro-batch": "largest micro-batch 1 -> 4", "fix micro_batch=4": "drop fix micro_batch=4"},
        ),
    ],
)
def test_conflicts_of_tiny_jobs(job: Job, told: dict[str, str]) -> None:
    clashes = conflict(job)
    assert {clash.rule: clash.relaxation for clash in clashes} == told
    assert all(clash.reason for clash in clashes)


def test_where_there_is_no_time_limits_numbers_and_pins_are_told_and_where_there_is_enough_all_is_found() -> None:
    job = tiny(2, max_tp=1, fixed={"tp": 2})
    hurried = conflict(job, time_limit=0)
    facts = {"heads", "kv-heads", "layers", "mlp-width"}
    assert {"gpu-product", "batch", "tp-scale-up", "fix tp=2", "memory"} <= {clash.rule for clash in hurried}
    assert facts.isdisjoint(clash.rule for clash in hurried)
    assert {(clash.relaxation, clash.note) for clash in hurried} == {("", CUT_SHORT)}
    assert [clash.rule for clash in conflict(job, time_limit=600)] == ["tp-scale-up", "fix tp=2"]


@dataclass
class Question:
    """Rules clash where all of a core are among them; of a plan that only memory rules out there is one."""

    every: tuple[Rule, ...]
    cores: Sequence[set[str]]
    job: Job

    def feasible(self, rules: Sequence[Rule]) -> bool:
        return not any(core <= {rule.name for rule in rules} for core in self.cores)

    holds = feasible

    def plans(self, rules: Sequence[Rule]) -> Iterator[int]:
        yield from [1] * self.feasible(rules)


@pytest.mark.parametrize(
    ("cores", "left"),
    [
        ([{"heads", "fix tp=2"}], ["heads", "fix tp=2"]),
        # of two, the facts are left out first, then limits, then pins, the bubble, the batch, GPUs and memory
        ([{"heads"}, {"vocabulary"}], ["vocabulary"]),
        ([{"heads", "memory"}, {"fix tp=2", "gpu-product"}], ["gpu-product", "fix tp=2"]),
        ([{"tp-scale-up"}, {"fix tp=2"}], ["fix tp=2"]),
        ([{"fix tp=2"}, {"bubble"}], ["bubble"]),
        ([{"bubble"}, {"batch"}], ["batch"]),
        ([{"batch"}, {"gpu-product"}], ["gpu-product"]),
        # facts take no part where only memory is in the way
        ([{"heads", "memory"}], ["memory"]),
        ([{"fix tp=2", "memory", "batch"}], ["batch", "memory", "fix tp=2"]),
        ([{"memory", "gpu-product"}, {"memory", "bubble"}], ["gpu-product", "memory"]),
    ],
)
def test_of_rules_that_clash_as_few_are_left_as_clash(
    cores: list[set[str]], left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_core", lambda question, clashing: clashing)
    job = tiny(2, fixed={"tp": 2})
    rules = ConflictQuestion(job=job).rules()
    assert {name for core in cores for name in core} <= {rule.name for rule in rules}
    names = minimal(cast(Any, Question(every=rules, cores=cores, job=job)), rules)
    assert sorted(names) == sorted(left)
