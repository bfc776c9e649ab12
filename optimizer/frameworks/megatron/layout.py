"""How the layers of a plan lie on the stages and virtual stages of its pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.job.model import Model
from optimizer.job.plan import Plan, balanced, virtual_stages
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP, Runs

LETTERS = {EMBEDDING: "E", DENSE: "t", MOE: "t", MTP: "m", HEAD: "L"}


def stage_layers(plan: Plan, layers: int) -> tuple[int, ...]:
    """Layers on each of the pp stages: the plan's own, summed if it lists virtual stages, or the balanced split.

    >>> stage_layers(Plan(pp=4), 32)
    (8, 8, 8, 8)
    """
    given = tuple(plan.layers_per_stage) or balanced(layers, plan.pp)
    return tuple(sum(given[stage :: plan.pp]) for stage in range(plan.pp))


def is_even(plan: Plan, layers: int) -> bool:
    """Whether every virtual stage holds equally many layers.

    >>> is_even(Plan(pp=4, vpp=2), 32), is_even(Plan(pp=4), 30)
    (True, False)
    """
    per_stage = stage_layers(plan, layers)
    return (
        len(set(per_stage)) == 1
        and per_stage[0] % plan.vpp == 0
        and len(set(layers_per_virtual_stage(plan, layers))) == 1
    )


def layers_per_virtual_stage(plan: Plan, layers: int) -> tuple[int, ...]:
    """Layers on each virtual stage in the order of the forward pass: the first of every stage, then the second.

    The plan's own if it lists every virtual stage. Otherwise a stage's layers are dealt to its virtual stages as evenly
    as possible; its last is the first to get one less.

    >>> layers_per_virtual_stage(Plan(pp=2, vpp=2), 7)
    (2, 2, 2, 1)
    """
    return virtual_stages(plan.layers_per_stage, layers, plan.pp, plan.vpp)


def first_and_last(per_stage: Sequence[int]) -> tuple[int | None, int | None] | None:
    """Layers of the first and of the last stage where they differ from the others; None if only a layout can say it.

    That is when the middle is uneven, or an end holds no transformer layer.

    >>> first_and_last([7, 8, 8, 7]), first_and_last([8, 8, 8, 7]), first_and_last([8, 7, 8, 7])
    ((7, 7), (None, 7), None)
    """
    middle = set(per_stage[1:-1]) or {per_stage[-1]}
    if len(middle) > 1 or 0 in per_stage:
        return None
    usual = middle.pop()
    first = per_stage[0] if per_stage[0] != usual else None
    last = per_stage[-1] if per_stage[-1] != usual else None
    return first, last


def plan_layout(plan: Plan, model: Model) -> str:
    """Where all layers of a plan lie, in the notation of Megatron-Core's --pipeline-model-parallel-layout.

    E is the embedding, t a transformer layer, m a multi-token-prediction layer, L the loss; "|" ends a stage.

    Source: Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py.

    >>> from optimizer.catalog import load_model
    >>> plan_layout(Plan(pp=4, layers_per_stage=(21, 20, 20, 0), mtp_ahead=1), load_model("deepseek-v3"))
    'Et*21|t*20|t*20m|L'
    """
    stages = [LETTERS[DENSE] * count for count in layers_per_virtual_stage(plan, model.layers)]
    stages[0] = LETTERS[EMBEDDING] + stages[0]
    stages[len(stages) - 1 - plan.mtp_ahead] += LETTERS[MTP] * model.mtp_layers
    stages[-1] += LETTERS[HEAD]
    return "|".join(_letters(stage) for stage in stages)


def runs_layout(runs: Sequence[Runs]) -> str:
    """The runs of layers on every virtual stage, as search/layouts/solve/layout.py finds them, in the same notation.

    >>> runs_layout([(("embedding", 1), ("dense", 3)), (("moe", 2),), (("moe", 1), ("mtp", 1)), (("head", 1),)])
    'Et*3|t*2|tm|L'
    """
    return "|".join(_letters("".join(LETTERS[kind] * count for kind, count in stage)) for stage in runs)


def _letters(stage: str) -> str:
    """Write repeated letters as a product."""
    return "".join(
        letter if (count := stage.count(letter)) == 1 else f"{letter}*{count}" for letter in dict.fromkeys(stage)
    )
