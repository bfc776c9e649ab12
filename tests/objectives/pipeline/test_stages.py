"""Representative stages: every kind of layer is found, and the counts are those of the balanced layout."""

from __future__ import annotations

import pytest

from optimizer.catalog import load_model
from optimizer.job.plan import Plan, Plans, balanced
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP, stages_of


@pytest.mark.parametrize(("layers", "pp"), [(126, 16), (61, 16), (94, 12), (96, 8), (5, 5), (7, 3)])
def test_balanced_layouts_hold_every_layer_and_differ_by_one(layers: int, pp: int) -> None:
    counts = balanced(layers, pp)
    assert (len(counts), sum(counts)) == (pp, layers)
    assert max(counts) - min(counts) <= 1
    assert counts[-1] == min(counts)


def test_the_middle_stage_of_deepseek_holds_moe_layers() -> None:
    """61 layers, 3 of them dense, on 32 stages: 1 dense, 1 dense and 1 more, then pairs of MoE layers, 1 at the end.

    The prediction layer lies there as well.
    """
    plans = Plans.of([Plan(pp=32, num_microbatches=64)])
    stages = stages_of(load_model("deepseek-v3"), plans)
    held = {kind: counts[:, 0].tolist() for kind, counts in stages.counts.items()}
    assert (held[DENSE], held[MOE]) == ([1, 0, 0], [0, 2, 1])
    assert (held[EMBEDDING], held[MTP], held[HEAD]) == ([1, 0, 0], [0, 0, 1], [0, 0, 1])
    assert stages.in_flight[:, 0].tolist() == [32, 30, 1]


def test_one_stage_holds_everything() -> None:
    stages = stages_of(load_model("gpt3"), Plans.of([Plan(dp=8)]))
    assert [stages.counts[kind][0, 0] for kind in (DENSE, EMBEDDING, HEAD)] == [96, 1, 1]
    assert (stages.in_flight[0, 0], stages.exists[:, 0].tolist()) == (1, [1, 0, 0])


def test_micro_batches_in_flight_by_schedule() -> None:
    """pp 4, 16 micro-batches, first stage: 4 under 1F1B and ZB-H1, 7 under ZB-2p, (4 + 2 x 3 + 1) / 2 with vpp 2."""
    shapes = Plans.of(
        [
            Plan(pp=4, num_microbatches=16),
            Plan(pp=4, num_microbatches=16, schedule="zero-bubble"),
            Plan(pp=4, num_microbatches=16, schedule="zero-bubble-2p"),
            Plan(pp=4, vpp=2, num_microbatches=16, schedule="interleaved"),
        ]
    )
    assert in_flight(shapes, 0.0 * shapes.pp).tolist() == [4, 4, 7, 5.5]
