"""Both readings of every rule over a few values of its own variables: what it checks, and what it posts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from optimizer.constraints.posted import allowed
from optimizer.constraints.program import Program
from optimizer.constraints.rule import Rule
from optimizer.constraints.rules.every import STRUCTURAL
from optimizer.job.plan import Plan, Plans
from optimizer.job.variables import RECOMPUTE, SCHEDULES
from tests.constraints import test_cases as jobs

# Few enough for every combination of the variables of a rule: 1, and what divides 8 GPUs, 12 layers or 48 sequences, or
# does not.
VALUES: dict[str, tuple[int, ...]] = {
    **{"tp": (1, 2, 3, 8), "cp": (1, 2, 8), "pp": (1, 2, 3, 5), "dp": (1, 4, 8), "ep": (1, 2, 3), "etp": (1, 2)},
    **{"vpp": (1, 2, 6), "micro_batch": (1, 5), "num_microbatches": (1, 6, 8), "zero_stage": (0, 1, 2, 3)},
    **{"shard": (0, 2, 3, 4, 8), "sequence_parallel": (0, 1), "overlap_exchange": (0, 1)},
    **{"recompute": (0, 1, 2), "activation_offload": (0, 50), "schedule": tuple(range(len(SCHEDULES)))},
}
JOBS = {
    **{"dense": jobs.JOB, "experts": jobs.MOE, "overlaps": jobs.OVERLAPS, "whole experts": jobs.WHOLE},
    **{"asked": jobs.ASKED, "fsdp": replace(jobs.FSDP, gpus=16), "no sp": jobs.NO_SP, "offloads": jobs.OFFLOADS},
    **{"even": jobs.EVEN, "domain": jobs.ODD_DOMAIN, "unfused": jobs.UNFUSED, "few modes": jobs.SELECTIVE},
}


RULES = [rule for rule in STRUCTURAL if set(rule.variables) <= VALUES.keys()]


def plans_of(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> Plans:
    words: dict[str, tuple[str, ...]] = {"schedule": SCHEDULES, "recompute": RECOMPUTE}
    plans = []
    for row in rows:
        values: dict[str, Any] = dict(zip(names, row, strict=True))
        plans.append(Plan(**values | {name: words[name][values[name]] for name in words if name in values}))
    return Plans.of(plans)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_posts_what_it_checks(rule: Rule) -> None:
    rows = list(product(*(VALUES[variable] for variable in rule.variables)))
    plans, columns = plans_of(rule.variables, rows), dict(zip(rule.variables, np.array(rows).T, strict=True))
    for name, job in JOBS.items():
        program = Program({variable: VALUES[variable] for variable in rule.variables})
        rule.post(job, program, program.literal(rule.name))
        posted = np.broadcast_to(allowed(program, columns)[rule.name], len(rows))
        checked = np.broadcast_to(rule.check(job, plans), len(rows))
        assert [(name, rows[place]) for place in np.flatnonzero(posted != checked)] == []


def test_a_table_allows_its_rows_alone() -> None:
    program = Program({"tp": (1, 2, 4), "pp": (1, 3), "dp": (1, 2, 5)})
    listed = [(1, 3, 5), (2, 1, 1), (4, 3, 1), (1, 1, 2)]
    program.allow(("tp", "pp", "dp"), [*listed, (8, 9, 9), (4, 2, 1)], program.literal("table"))  # of no domain
    program.allow(("pp",), [(3,)], program.literal("one"))
    rows = list(product((1, 2, 4), (1, 3), (1, 2, 5)))
    found = allowed(program, dict(zip(("tp", "pp", "dp"), np.array(rows).T, strict=True)))
    assert [row for row, there in zip(rows, found["table"], strict=True) if there] == sorted(listed)
    assert [row for row, there in zip(rows, found["one"], strict=True) if there] == [row for row in rows if row[1] == 3]
