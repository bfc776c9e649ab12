"""What the short names of a plan stand for, in one sentence beside it."""

from __future__ import annotations

from optimizer.job.plan import Plan

SHARED = {
    0: "each with all of the optimizer state",
    1: "which share the optimizer state",
    2: "which share the optimizer state and the gradients",
    3: "which share the optimizer state, the gradients and the weights",
}


def plan_words(plan: Plan) -> str:
    """The parallelism of a plan in words.

    >>> plan_words(Plan(tp=4, pp=8, dp=32, vpp=6, sequence_parallel=True))
    'a matrix product on 4 GPUs (TP), the rest of a layer there along the sequence (SP); 8 pipeline stages (PP) of 6 \
virtual stages (VPP); 32 replicas (DP), which share the optimizer state (ZeRO-1)'
    >>> plan_words(Plan(dp=64, zero_stage=3))
    '64 replicas (DP), which share the optimizer state, the gradients and the weights (ZeRO-3)'
    >>> plan_words(Plan(dp=64, zero_stage=1, shard=8))
    '64 replicas (DP), which share the optimizer state in groups of 8 GPUs (ZeRO-1)'
    """
    layer = [f"a matrix product on {plan.tp} GPUs (TP)"] * (plan.tp > 1)
    layer += ["the rest of a layer there along the sequence (SP)"] * (plan.tp > 1 and plan.sequence_parallel)
    layer += [f"a sequence on {plan.cp} (CP)"] * (plan.cp > 1)
    layer += [f"the experts on {plan.ep} (EP)"] * (plan.ep > 1)
    layer += [f"each expert on {plan.etp} (ETP)"] * (plan.etp > 1)
    stages = f"{plan.pp} pipeline stages (PP)" + (f" of {plan.vpp} virtual stages (VPP)" if plan.vpp > 1 else "")
    groups = f" in groups of {plan.shard} GPUs" if plan.shard else ""
    copies = f"{plan.dp} replicas (DP), {SHARED[plan.zero_stage]}{groups} (ZeRO-{plan.zero_stage})"
    parts = [", ".join(layer)] * bool(layer) + [stages] * (plan.pp > 1) + [copies] * (plan.dp > 1)
    return "; ".join(parts) or "one GPU does everything"
