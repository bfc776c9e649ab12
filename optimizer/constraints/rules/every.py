"""All rules, in the order in which messages name them."""

from __future__ import annotations

from optimizer.constraints.given_layout import given_layouts
from optimizer.constraints.pins import pins
from optimizer.constraints.rule import Rule
from optimizer.constraints.rules.activation_offload import ActivationOffload
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.bubble import Bubble
from optimizer.constraints.rules.context_parallel import ContextParallel
from optimizer.constraints.rules.context_shares import ContextShares
from optimizer.constraints.rules.dispatcher import OfferedDispatcher
from optimizer.constraints.rules.dualpipe import DualPipe
from optimizer.constraints.rules.dualpipe_overlap import DualPipeOverlap
from optimizer.constraints.rules.expert_folding import ExpertFolding
from optimizer.constraints.rules.expert_tp import ExpertTp
from optimizer.constraints.rules.experts import ExpertCount
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.heads import Heads
from optimizer.constraints.rules.host_activations import HostActivations
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

STRUCTURAL: tuple[Rule, ...] = (
    GpuProduct(),
    Batch(),
    Heads(),
    KvHeads(),
    MlpWidth(),
    Vocabulary(),
    Sequence(),
    ContextParallel(),
    Layers(),
    ExpertCount(),
    ExpertTp(),
    ExpertFolding(),
    TpScaleUp(),
    MicroBatch(),
    Interleaving(),
    OfferedSchedule(),
    Bubble(),
    SequenceParallel(),
    ZeroStage(),
    Shard(),
    Recompute(),
    ActivationOffload(),
    OfferedDispatcher(),
    OverlapAllToAll(),
    OverlapPipeline(),
    OverlapRecompute(),
    DualPipe(),
    DualPipeOverlap(),
)


def structural(job: Job) -> tuple[Rule, ...]:
    """Every rule but memory: what a plan must satisfy before it is worth pricing.

    Raises InputError for a pin on an unknown variable or a layout that is none of the model's.
    """
    return (*STRUCTURAL, *_of_some(job), *pins(job), *given_layouts(job))


def _of_some(job: Job) -> tuple[Rule, ...]:
    """The rules that only some software, models or clusters have."""
    features = job.stack.features
    rules: dict[Rule, bool] = {
        InBackward(): job.update_rule.in_backward,
        Together(): bool(job.loss),
        TiedPipeline(): job.model.tied_embeddings and not features.tied_stages,
        ContextShares(): features.context_shares,
        HostActivations(): bool(job.cluster.host_memory)
        and (features.activation_offload or features.hosted_checkpoints or features.hosted_weights),
    }
    return tuple(rule for rule, holds in rules.items() if holds)
