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
    *("tp", "cp", "ep", "etp", "pp", "micro_batch", "num_microbatches", "zero_stage", "sms", "nodes"),
    *("host_slowness", "ports_per_gpu", "moe_layer_freq", "tp_slowdown", "every", "weights", "low"),
    *("neutral", "rope_share", "loss_chunks", "default_zero", "default_vpp", "sharded_rate", "unsplit_head_rate"),
}
# What is usual, and said where it is not so.
TRUE = {
    *("explained", "gradients", "graphs", "low_precision", "prepare", "priced_risk", "quoted", "read_twice"),
    *("recompute", "scattered", "skewed", "strict", "timed", "uncertain", "weight", "with_knob_bound"),
    *("accumulates", "bound_host", "drawn", "fabric", "fused_accumulation", "fused_norm", "gathers_layers", "known"),
    *("norm_bias", "overlap", "overlap_sharded", "replicates", "selective"),
    *("tied_stages", "uneven_stages", "usual"),
}
OTHERS: dict[str, float] = {
    **{"input_bytes": 2.0, "output_bytes": 2.0, "element_bytes": 2.0},  # of BF16
    **{"tile_m": 256.0, "tile_n": 128.0, "small_tile": 64.0, "small_rate": 0.95, "wave_softness": 0.5},
    **{"in_switch_ranks": 2.0, "widths": 4.0, "top": 5},
    # What is bought and what programs do where nobody says otherwise.
    **{"gpus_per_node": 8, "max_gpus": 10**6, "host_bandwidth": 25e9, "efficiency": 0.8, "comm_sm_share": 0.12},
    **{"param_bytes": 2, "grad_bytes": 4, "master_bytes": 4, "logit_bytes": 4, "optimizer_bytes": 12},
    **{"bucket": 160e6, "default_bucket": 160e6, "bucket_per_rank": 4e6, "max_vpp": 16},
    **{"rope_base": 10000.0, "norm_epsilon": 1e-5, "norms_per_layer": 2, "conv_kernel": 4, "patches": 4},
    "job/known.py: RunError spread": 0.0,
    "job/loss.py: TrainingLoss least": 1,
    "job/recurrence.py: Recurrence groups": 1,
    "job/stack.py: Features overlap_exchange": True,
    "job/stack.py: Features sequence_parallel": True,
    "job/variables.py: Variable least": 1,
    "catalog/readers/yaml_nodes.py: write_plain split": True,
    "catalog/readers/huggingface_fields.py: ConfigFields no_rope_layer_interval": 4,
    "calibration/calibrate.py: calibrate evaluations": 20,
    "calibration/fit.py: fit_times evaluations": 40,
    "calibration/least_squares.py: solve evaluations": 40,
    "calibration/validation.py: worst count": 10,
    "studies/textbook.py: Constants reference": 0.52,
    "studies/textbook.py: Constants node": 8,
    "studies/textbook.py: DataParallel billions": 7,
    "studies/textbook.py: DataParallel gpus": 8,
    "studies/textbook.py: DataParallel batch": 32,
    "studies/textbook.py: LabDesign tp": 8,
    "studies/textbook.py: LabDesign pp": 4,
    "studies/textbook.py: LabDesign microbatches": 8,
    "search/plan/planner.py: plan trials": 8,
    "search/layouts/assigned.py: Candidate proven": True,
    "search/layouts/assigned.py: Candidate safer": 1.0,  # a factor that is none
    "search/layouts/candidates.py: _Search wider": 1.0,
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


FOLDERS = (
    *("answer", "calibration", "catalog", "constraints", "diagnose", "frameworks", "improve", "job", "objectives"),
    *("purchase", "search", "studies"),
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_not_said_is_nothing_or_listed(folder: str) -> None:
    wrong = {}
    for where, name, value in defaults(folder):
        usual = OTHERS.get(where, OTHERS.get(name, 1 if name in ONE else name in TRUE))
        if value != usual:
            wrong[where] = value
    assert wrong == {}
