"""Local shapes of the layers of many plans, and what of a plan decides them."""

from __future__ import annotations

import numpy as np

from optimizer.job.plan import FIELDS, Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.kernels.shapes import LAYER_KEYS, REPLICA_KEYS, SHAPE_KEYS, shapes_of, without_full
from tests.objectives.questions import TOKENS, job

PLANS = Plans.of(
    [
        Plan(tp=4, cp=2, micro_batch=3, sequence_parallel=True),
        Plan(tp=4, cp=2, micro_batch=3),
        Plan(tp=4, cp=2, micro_batch=3, pp=8, dp=16, recompute="full", zero_stage=3),
    ]
)


def test_the_tokens_of_a_micro_batch_are_split_over_the_ranks() -> None:
    shapes = shapes_of(job("gpt3"), PLANS)
    assert shapes.tokens.tolist() == [3 * TOKENS / 2] * 3
    assert (shapes.sp * np.ones(3)).tolist() == [4, 1, 1]


def test_what_is_no_key_changes_no_shape() -> None:
    shapes = shapes_of(job("gpt3"), PLANS)
    fields = {"overlap_exchange": "overlap"}
    assert shapes.overlap is None
    for name in LAYER_KEYS:
        column = np.broadcast_to(getattr(shapes, fields.get(name, name)), 3)
        assert column[1] == column[2], name
    assert set(LAYER_KEYS) < set(SHAPE_KEYS) <= set(FIELDS)
    assert set(REPLICA_KEYS) <= set(FIELDS)


def test_a_spared_layer_keeps_every_mode_but_full() -> None:
    every = np.arange(len(RECOMPUTE))
    found = without_full(every)
    changed = np.flatnonzero(found != every).tolist()
    assert changed == [RECOMPUTE.index("full")]
    assert found[changed[0]] == RECOMPUTE.index("none")
