"""What is not said is nothing: fields and parameters default to 0 or False, or to what is listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "optimizer"
# Factors, and counts of what there is one of at least.
ONE = {
    *("among", "batch", "batch_factor", "burst", "cap", "copies", "default", "dp", "left", "listed"),
    *("multiple", "network_efficiency", "oversubscription", "power_cap", "ranks", "rate", "rest"),
    *("scale_up_efficiency", "spread", "tail", "together", "tp_in", "tp_out", "traffic", "tree", "vpp"),
}
# What is usual, and said where it is not so.
TRUE = {
    *("explained", "gradients", "graphs", "low_precision", "prepare", "priced_risk", "quoted", "read_twice"),
    *("recompute", "scattered", "skewed", "strict", "timed", "uncertain", "weight", "with_knob_bound"),
}
OTHERS: dict[str, float] = {
    **{"input_bytes": 2.0, "output_bytes": 2.0, "element_bytes": 2.0},  # of BF16
    **{"tile_m": 256.0, "tile_n": 128.0, "small_tile": 64.0, "small_rate": 0.95, "wave_softness": 0.5},
    **{"in_switch_ranks": 2.0, "widths": 4.0, "top": 5},
    "search/plan/planner.py: plan trials": 8,
    "search/layouts/assigned.py: Candidate proven": True,
    "frameworks/config/yaml_edit.py: yaml_changed strict": False,
    "frameworks/config/launch.py: whole least": 1,
    "frameworks/software.py: switched zero_stage": 1,
    "objectives/step/per_step.py: _bucketed among": False,
    "purchase/campaign.py: Design oversubscription": 0.0,
    "purchase/designs/figures.py: PlannedRun slower": 1.0,
    "purchase/designs/front.py: shortlist count": 8,
    "purchase/designs/front.py: nearest_points count": 3,
}


def defaults(folder: str) -> Iterator[tuple[str, str, float]]:
    """Where a name has a number by default."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            owner = getattr(node, "name", "")
            given: list[tuple[str, ast.expr | None]] = []
            if isinstance(node, ast.FunctionDef):
                named, last = [*node.args.posonlyargs, *node.args.args], node.args.defaults
                given = [(arg.arg, value) for arg, value in zip(named[len(named) - len(last) :], last, strict=True)]
                given += [(a.arg, v) for a, v in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
            elif isinstance(node, ast.ClassDef):
                fields = [row for row in node.body if isinstance(row, ast.AnnAssign)]
                given = [(row.target.id, row.value) for row in fields if isinstance(row.target, ast.Name)]
            for name, value in given:
                if isinstance(value, ast.Constant) and isinstance(value.value, bool | int | float):
                    yield f"{path.relative_to(PACKAGE)}: {owner} {name}", name, value.value


@pytest.mark.parametrize("folder", ["search", "constraints", "frameworks", "diagnose", "purchase", "objectives"])
def test_what_is_not_said_is_nothing_or_listed(folder: str) -> None:
    wrong = {}
    for where, name, value in defaults(folder):
        usual = OTHERS.get(where, OTHERS.get(name, 1 if name in ONE else name in TRUE))
        if value != usual:
            wrong[where] = value
    assert wrong == {}
