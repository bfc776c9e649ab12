"""What each rule says of plans at its borders, by hand: its two readings could agree on what is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from optimizer.catalog import load_cluster
from optimizer.constraints.program import Program
from optimizer.constraints.rule import LimitRule, Rule
from optimizer.constraints.rules.activation_offload import ActivationOffload
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.bubble import Bubble
from optimizer.constraints.rules.context_parallel import ContextParallel
from optimizer.constraints.rules.context_shares import ContextShares
from optimizer.constraints.rules.dualpipe import DualPipe
from optimizer.constraints.rules.dualpipe_overlap import DualPipeOverlap
from optimizer.constraints.rules.every import STRUCTURAL
from optimizer.constraints.rules.expert_folding import ExpertFolding
from optimizer.constraints.rules.expert_tp import ExpertTp
from optimizer.constraints.rules.experts import ExpertCount
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.heads import Heads
from optimizer.constraints.rules.in_backward import InBackward
from optimizer.constraints.rules.interleaving import Interleaving
from optimizer.constraints.rules.kv_heads import KvHeads
from optimizer.constraints.rules.layers import Layers
from optimizer.constraints.rules.micro_batch import MicroBatch
from optimizer.constraints.rules.mlp_width import MlpWidth
from optimizer.constraints.rules.overlap_all_to_all import OverlapAllToAll
from optimizer.constraints.rules.overlap_pipeline import OverlapPipeline
from optimizer.constraints.rules.overlap_recompute import OverlapRecompute
from optimizer.constraints.rules.recompute import Recompute
from optimizer.constraints.rules.schedule import OfferedSchedule
from optimizer.constraints.rules.sequence import Sequence
from optimizer.constraints.rules.sequence_parallel import SequenceParallel
from optimizer.constraints.rules.shard import Shard
from optimizer.constraints.rules.tied_pipeline import TiedPipeline
from optimizer.constraints.rules.together import Together
from optimizer.constraints.rules.tp_scale_up import TpScaleUp
from optimizer.constraints.rules.vocabulary import Vocabulary
from optimizer.constraints.rules.zero_stage import ZeroStage
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from tests.search.jobs import DENSE, LATENT, MIXTURE, small_job

# 12 layers, hidden 1,536, 12 heads, 4 key-value heads, MLP 6,144, vocabulary 50,000; 4,096 tokens; H100s by 8.
JOB = small_job()
ODD_LENGTH = replace(JOB, seq_len=4095)
TIGHT = small_job(bubble=0.2)
CP = small_job(min_cp_tokens=1024)
UNFUSED = small_job(features=Features(attention="unfused"), min_cp_tokens=1)
EVEN = small_job(features=Features(uneven_stages=False))
MOE = small_job(model=MIXTURE)  # 8 experts of width 1,024
MTP = small_job(model=replace(MIXTURE, mtp_layers=2), features=Features(offers_overlap=True))
OVERLAPS = small_job(model=MIXTURE, features=Features(offers_overlap=True))
WHOLE = small_job(model=MIXTURE, features=Features(whole_experts=True))
SHARES = small_job(model=MIXTURE, features=Features(context_shares=True))
FSDP = small_job(features=Features(zero_stages=(0, 2, 3), piped_zero_stages=(0, 1)))
ASKED = small_job(ranges={"shard": (0, 8)})
ANY_STAGE = small_job(features=Features(zero_stages=(0, 1, 2, 3), piped_zero_stages=(0, 1, 2, 3)))
NINE = small_job(model=replace(DENSE, layers=9))
MODULE = small_job(features=Features(recompute_modules=("layernorm",)))
PAIR, FEW = replace(JOB, train="lora", loss="dpo"), replace(JOB, train="lora", loss="kto")
NO_SP = small_job(features=Features(sequence_parallel=False))
SELECTIVE = small_job(features=Features(recompute=("none", "selective")))
OFFLOADS = small_job(features=Features(activation_offload=True))
PADDED = small_job(vocab_padding=0.01)
SPLIT_MLP = small_job(model=replace(DENSE, ffn_hidden=6145))
CAPPED = small_job(max_tp=4)
ODD_DOMAIN = replace(
    JOB,
    cluster=replace(
        load_cluster("gb200-nvl72"),
        tiers=tuple(replace(tier, size=min(tier.size, 12)) for tier in load_cluster("gb200-nvl72").tiers[:1])
        + load_cluster("gb200-nvl72").tiers[1:],
    ),
)

PAIRS = replace(
    JOB.with_limits(max_tp=8),
    cluster=replace(JOB.cluster, tiers=(replace(JOB.cluster.tiers[0], size=2), *JOB.cluster.tiers[1:])),
)
OWN, PIPED, OTHER = "stack.zero_stages", "stack.piped_zero_stages", "or a --stack that has it"

HOLDS: tuple[tuple[Rule, Job, dict[str, Any]], ...] = (
    (GpuProduct(), JOB, {"tp": 2, "cp": 2, "pp": 2}),
    (Batch(), JOB, {"dp": 2, "micro_batch": 3, "num_microbatches": 8}),
    (Heads(), JOB, {"tp": 6}),
    (KvHeads(), JOB, {"tp": 4}),
    (KvHeads(), JOB, {"tp": 8}),  # two ranks share a head
    (KvHeads(), small_job(model=LATENT), {"tp": 3}),
    (MlpWidth(), JOB, {"tp": 3}),
    (Vocabulary(), PADDED, {"tp": 2}),  # 50,176: 0.35 %
    (Vocabulary(), small_job(model=replace(DENSE, vocab=512), vocab_padding=1.0), {"tp": 8}),  # twice as many
    (Sequence(), JOB, {"cp": 8, "tp": 8, "sequence_parallel": True}),
    (Sequence(), ODD_LENGTH, {"tp": 8}),  # nobody splits it
    (ContextParallel(), CP, {"cp": 4}),
    (ContextParallel(), UNFUSED, {"cp": 1}),
    (Layers(), JOB, {"pp": 5}),
    (Layers(), JOB, {"pp": 12}),
    (Layers(), EVEN, {"pp": 4}),
    (Layers(), JOB, {"pp": 3, "vpp": 4}),
    (Layers(), MTP, {"pp": 4, "vpp": 2}),  # 16 places: 12 layers, two MTP layers, embedding and head
    (ExpertCount(), MOE, {"ep": 8}),
    (ExpertCount(), JOB, {"ep": 1}),
    (ExpertTp(), MOE, {"tp": 4, "etp": 2}),
    (ExpertTp(), WHOLE, {"tp": 4, "etp": 4}),
    (ExpertTp(), WHOLE, {"tp": 4, "ep": 2}),
    (ExpertFolding(), MOE, {"tp": 2, "dp": 4, "ep": 4, "etp": 2}),
    (TpScaleUp(), JOB, {"tp": 8}),
    (TpScaleUp(), CAPPED, {"tp": 4}),
    (TpScaleUp(), ODD_DOMAIN, {"tp": 3}),  # a quarter of the domain
    (TpScaleUp(), ODD_DOMAIN, {"tp": 8}),  # two whole nodes of four, of a domain of twelve
    (TpScaleUp(), PAIRS, {"tp": 4}),  # half a node, of pairs
    (MicroBatch(), small_job(max_micro_batch=2), {"micro_batch": 2}),
    (Interleaving(), JOB, {"pp": 4, "vpp": 3, "num_microbatches": 8}),
    (Interleaving(), JOB, {"pp": 4, "num_microbatches": 7}),
    (Interleaving(), small_job(max_vpp=2), {"pp": 4, "vpp": 2, "num_microbatches": 8}),
    (OfferedSchedule(), JOB, {"pp": 2, "vpp": 2, "schedule": "interleaved"}),
    (OfferedSchedule(), JOB, {"pp": 1}),
    (Bubble(), TIGHT, {"pp": 2, "num_microbatches": 4}),  # 1 of 5
    (SequenceParallel(), JOB, {"tp": 2, "sequence_parallel": True}),
    (SequenceParallel(), JOB, {"tp": 2}),
    (ZeroStage(), FSDP, {"zero_stage": 2}),
    (ZeroStage(), FSDP, {"pp": 2, "zero_stage": 1}),
    (ZeroStage(), ANY_STAGE, {"pp": 2, "zero_stage": 3}),
    (Shard(), ASKED, {"dp": 8, "shard": 4}),
    (Shard(), ASKED, {"dp": 3, "shard": 1}),
    (Shard(), replace(FSDP, gpus=16), {"dp": 16, "shard": 8, "zero_stage": 3}),  # a node's
    (Shard(), replace(FSDP, gpus=16), {"dp": 8, "cp": 2, "shard": 8, "zero_stage": 3}),  # contexts count
    (Recompute(), SELECTIVE, {"recompute": "selective"}),
    (Recompute(), MODULE, {"recompute": "layernorm"}),
    (ActivationOffload(), OFFLOADS, {"activation_offload": 50}),
    (OverlapAllToAll(), OVERLAPS, {"ep": 2, "overlap_exchange": True}),
    (
        OverlapAllToAll(),
        replace(OVERLAPS, model=replace(MIXTURE, mtp_layers=1)),
        {"ep": 2, "overlap_exchange": True, "dp": 2},
    ),
    (OverlapPipeline(), OVERLAPS, {"pp": 2, "vpp": 2, "overlap_exchange": True}),
    (OverlapPipeline(), OVERLAPS, {"pp": 2, "schedule": "dualpipe", "overlap_exchange": True}),
    (OverlapRecompute(), OVERLAPS, {"recompute": "full"}),
    (OverlapRecompute(), OVERLAPS, {"recompute": "selective", "overlap_exchange": True}),
    (DualPipe(), small_job(fixed={"layout": "even"}), {"pp": 4, "num_microbatches": 8, "schedule": "dualpipe"}),
    (DualPipeOverlap(), OVERLAPS, {"ep": 1, "schedule": "dualpipe"}),
    (ContextShares(), SHARES, {"cp": 2, "zero_stage": 3, "dp": 4, "shard": 4, "ep": 4}),
    (ContextShares(), SHARES, {"cp": 2, "zero_stage": 3, "dp": 3, "shard": 2}),  # groups of one context
    (ContextShares(), SHARES, {"zero_stage": 0, "dp": 4, "shard": 3}),  # nothing is shared
    (ContextShares(), SHARES, {"zero_stage": 1, "dp": 4, "ep": 4}),
    (ContextShares(), SHARES, {"zero_stage": 3, "dp": 3, "shard": 3}),  # all replicas, not a group of them
    (ContextShares(), SHARES, {"cp": 2, "tp": 2, "zero_stage": 1, "dp": 2, "ep": 4, "etp": 2}),
    (Together(), PAIR, {"micro_batch": 2}),
    (Together(), PAIR, {"micro_batch": 4}),
    (Together(), FEW, {"micro_batch": 3}),
    (TiedPipeline(), JOB, {"pp": 1}),
    (InBackward(), JOB, {"num_microbatches": 1}),
)
BREAKS: tuple[tuple[Rule, Job, dict[str, Any]], ...] = (
    (TpScaleUp(), ODD_DOMAIN, {"tp": 5}),
    (GpuProduct(), JOB, {"tp": 2, "cp": 2}),
    (Batch(), JOB, {"dp": 2, "micro_batch": 3, "num_microbatches": 7}),
    (Heads(), JOB, {"tp": 8}),
    (KvHeads(), JOB, {"tp": 3}),
    (KvHeads(), JOB, {"tp": 6}),
    (MlpWidth(), SPLIT_MLP, {"tp": 2}),
    (MlpWidth(), JOB, {"tp": 5}),
    (Vocabulary(), PADDED, {"tp": 16}),  # 51,200: 2.4 %
    (Sequence(), ODD_LENGTH, {"tp": 2, "sequence_parallel": True}),
    (Sequence(), replace(JOB, seq_len=4098), {"cp": 2}),  # two chunks, not four
    (ContextParallel(), CP, {"cp": 8}),
    (ContextParallel(), UNFUSED, {"cp": 2}),
    (Layers(), JOB, {"pp": 13}),
    (Layers(), JOB, {"pp": 5, "vpp": 2}),
    (Layers(), JOB, {"pp": 4, "vpp": 2}),  # 14 places
    (Layers(), JOB, {"pp": 7, "vpp": 2}),  # 14 places, two of which no layer fills
    (Layers(), NINE, {"pp": 2, "vpp": 2}),  # 9 to 11 places
    (Layers(), EVEN, {"pp": 5}),
    (Layers(), replace(EVEN, model=replace(DENSE, layers=11)), {"pp": 4}),
    (ExpertCount(), MOE, {"ep": 3}),
    (ExpertCount(), JOB, {"ep": 2}),
    (ExpertTp(), MOE, {"tp": 2, "etp": 4}),
    (ExpertTp(), JOB, {"tp": 2, "etp": 2}),
    (ExpertTp(), WHOLE, {"tp": 4, "etp": 2}),
    (ExpertFolding(), MOE, {"tp": 2, "dp": 4, "ep": 8, "etp": 2}),
    (TpScaleUp(), JOB, {"tp": 6}),
    (TpScaleUp(), CAPPED, {"tp": 8}),
    (TpScaleUp(), JOB, {"tp": 16}),
    (MicroBatch(), small_job(max_micro_batch=2), {"micro_batch": 3}),
    (Interleaving(), JOB, {"pp": 4, "vpp": 3, "num_microbatches": 6}),
    (Interleaving(), JOB, {"pp": 1, "vpp": 2, "num_microbatches": 6}),
    (Interleaving(), small_job(max_vpp=2), {"pp": 4, "vpp": 3, "num_microbatches": 8}),
    (OfferedSchedule(), JOB, {"pp": 2, "vpp": 2}),
    (OfferedSchedule(), JOB, {"pp": 2, "schedule": "interleaved"}),
    (OfferedSchedule(), EVEN, {"pp": 1, "schedule": "zero-bubble"}),
    (Bubble(), TIGHT, {"pp": 2, "num_microbatches": 3}),  # 1 of 4
    (SequenceParallel(), JOB, {"tp": 1, "sequence_parallel": True}),
    (SequenceParallel(), MOE, {"tp": 2, "ep": 2}),
    (SequenceParallel(), NO_SP, {"tp": 2, "sequence_parallel": True}),
    (ZeroStage(), FSDP, {"zero_stage": 1}),
    (ZeroStage(), FSDP, {"pp": 2, "zero_stage": 3}),
    (ZeroStage(), JOB, {"pp": 2, "zero_stage": 2}),
    (ZeroStage(), ANY_STAGE, {"pp": 2, "zero_stage": 2}),
    (Shard(), ASKED, {"dp": 8, "shard": 3}),
    (Shard(), ASKED, {"dp": 8, "shard": 4, "zero_stage": 0}),
    (Shard(), FSDP, {"dp": 8, "shard": 4, "zero_stage": 3}),  # half a node, unasked
    (Shard(), FSDP, {"dp": 8, "shard": 8, "zero_stage": 3}),  # all replicas by another name
    (Recompute(), SELECTIVE, {"recompute": "full"}),
    (Recompute(), MODULE, {"recompute": "mlp"}),
    (ActivationOffload(), OFFLOADS, {"activation_offload": 50, "recompute": "full"}),
    (ActivationOffload(), JOB, {"activation_offload": 1}),
    (OverlapAllToAll(), OVERLAPS, {"overlap_exchange": True}),
    (OverlapAllToAll(), MOE, {"ep": 2, "overlap_exchange": True}),
    (OverlapAllToAll(), MTP, {"ep": 2, "overlap_exchange": True}),
    (OverlapPipeline(), OVERLAPS, {"pp": 2, "overlap_exchange": True}),
    (OverlapRecompute(), OVERLAPS, {"recompute": "full", "overlap_exchange": True}),
    (DualPipe(), JOB, {"pp": 4, "num_microbatches": 8, "schedule": "dualpipe"}),  # its layers are not given
    (DualPipe(), small_job(fixed={"layout": "even"}), {"pp": 4, "num_microbatches": 6, "schedule": "dualpipe"}),
    (DualPipe(), small_job(fixed={"layout": "even"}), {"pp": 3, "num_microbatches": 8, "schedule": "dualpipe"}),
    (DualPipe(), small_job(fixed={"layout": "even"}), {"pp": 2, "num_microbatches": 5, "schedule": "dualpipe"}),
    (DualPipeOverlap(), OVERLAPS, {"ep": 2, "schedule": "dualpipe"}),
    (DualPipeOverlap(), OVERLAPS, {"schedule": "dualpipe", "overlap_exchange": True}),
    (ContextShares(), SHARES, {"cp": 2, "zero_stage": 0, "dp": 4}),
    (ContextShares(), SHARES, {"zero_stage": 0, "dp": 4, "ep": 4}),
    (ContextShares(), SHARES, {"zero_stage": 0, "dp": 4, "ep": 2}),
    (ContextShares(), SHARES, {"cp": 4, "zero_stage": 3, "dp": 4, "shard": 2}),
    (ContextShares(), SHARES, {"cp": 2, "zero_stage": 3, "dp": 3, "shard": 4}),
    (ContextShares(), SHARES, {"cp": 2, "tp": 2, "zero_stage": 1, "dp": 2, "ep": 8, "etp": 2}),
    (Together(), PAIR, {"micro_batch": 1}),
    (Together(), PAIR, {"micro_batch": 3}),
    (Together(), FEW, {"micro_batch": 1}),
    (ContextShares(), SHARES, {"zero_stage": 3, "dp": 8, "shard": 2, "ep": 4}),
    (TiedPipeline(), JOB, {"pp": 2}),
    (InBackward(), JOB, {"num_microbatches": 2}),
)
# What a rule would have to be for a plan, as it says it; nothing where no change of a limit is enough.
RELAXED: tuple[tuple[LimitRule, Job, dict[str, Any], str], ...] = (
    (TpScaleUp(), CAPPED, {"tp": 8}, "largest tp 4 -> 8"),
    (TpScaleUp(), ODD_DOMAIN, {"tp": 24}, "largest tp 12 -> 24"),  # six whole nodes
    (TpScaleUp(), ODD_DOMAIN.with_limits(max_tp=2), {"tp": 3}, "largest tp 2 -> 3"),  # a quarter of the domain
    (TpScaleUp(), PAIRS.with_limits(max_tp=2), {"tp": 4}, "largest tp 2 -> 4"),
    (TpScaleUp(), JOB, {"tp": 6}, ""),
    (Vocabulary(), PADDED, {"tp": 16}, "vocabulary padding 1% -> 3%"),
    (ContextParallel(), CP, {"cp": 8}, "tokens per context-parallel rank 1,024 -> 512"),
    (ContextParallel(), replace(CP, seq_len=1024), {"cp": 2}, "tokens per context-parallel rank 1,024 -> 512"),
    (ContextParallel(), replace(CP, seq_len=4), {"cp": 4}, "tokens per context-parallel rank 1,024 -> 1"),
    (ContextParallel(), replace(CP, seq_len=4), {"cp": 8}, ""),
    (ContextParallel(), UNFUSED, {"cp": 2}, ""),
    (MicroBatch(), small_job(max_micro_batch=2), {"micro_batch": 3}, "largest micro-batch 2 -> 3"),
    (Bubble(), TIGHT, {"pp": 2, "num_microbatches": 3}, "bubble 20.0% -> 25.0%"),
    (Bubble(), small_job(bubble=0.1), {"pp": 2, "num_microbatches": 8}, "bubble 10.0% -> 11.2%"),  # 1 of 9
    (Recompute(), SELECTIVE, {"recompute": "full"}, "allow full recompute"),
    (Recompute(), MODULE, {"recompute": "mlp"}, "allow mlp recompute"),
    (ZeroStage(), FSDP, {"zero_stage": 1}, f"allow ZeRO-1 (--set {OWN}=[0,1,2,3] --set {PIPED}=[0,1], {OTHER})"),
    (ZeroStage(), FSDP, {"zero_stage": 2}, f"allow ZeRO-2 (--set {OWN}=[0,2,3], {OTHER})"),  # none under a pipeline
    (ZeroStage(), JOB, {"zero_stage": 3}, f"allow ZeRO-3 (--set {OWN}=[0,1,3], {OTHER})"),
    (ZeroStage(), JOB, {"pp": 2, "zero_stage": 2}, ""),
)


def says(rule: Rule, job: Job, plan: Plan) -> tuple[bool, bool]:
    """What the rule's check and what its constraints say of a plan."""
    plans = Plans.of([plan])
    program = Program({name: (int(getattr(plans, name)[0]),) for name in rule.variables})
    rule.post(job, program, program.literal(rule.name))
    program.enforce()
    return bool(rule.check(job, plans)[0]), program.solve().values is not None


def named(case: tuple[Any, ...]) -> str:
    return f"{case[0].name} {case[2]}"


@pytest.mark.parametrize("case", HOLDS, ids=named)
def test_what_a_rule_lets_pass(case: tuple[Rule, Job, dict[str, Any]]) -> None:
    rule, job, plan = case
    assert says(rule, job, Plan(**plan)) == (True, True)


@pytest.mark.parametrize("case", BREAKS, ids=named)
def test_what_a_rule_refuses(case: tuple[Rule, Job, dict[str, Any]]) -> None:
    rule, job, plan = case
    assert says(rule, job, Plan(**plan)) == (False, False)


@pytest.mark.parametrize("case", RELAXED, ids=named)
def test_what_a_rule_would_have_to_be(case: tuple[LimitRule, Job, dict[str, Any], str]) -> None:
    rule, job, plan, relaxation = case
    plans = Plans.of([Plan(**plan)])
    (required,) = rule.required(job, plans).tolist()
    if math.isfinite(required):
        relaxed, said = rule.relax(job, required)
        assert said == relaxation
        assert rule.check(relaxed, plans).all()
    else:
        assert relaxation == ""


def test_limits_move_in_steps_that_people_type() -> None:
    """Padding in whole percent, a bubble in tenths of one."""
    assert Vocabulary().relax(PADDED, 0.0241)[0].limits.vocab_padding == 0.03
    assert Bubble().relax(TIGHT, 1 / 9)[0].limits.bubble == 0.112


def test_every_rule_has_a_case_of_each_sort() -> None:
    """What runs over which ranks is a table of its own: tests/constraints/test_dispatcher.py."""
    rules = {rule.name for rule in STRUCTURAL} - {"dispatcher"}
    assert rules <= {case[0].name for case in HOLDS}
    assert rules <= {case[0].name for case in BREAKS}
