"""All rules, in the order in which messages name them."""

from __future__ import annotations

from optimizer.constraints.activation_offload import ActivationOffload
from optimizer.constraints.batch import Batch
from optimizer.constraints.bubble import Bubble
from optimizer.constraints.context_parallel import ContextParallel
from optimizer.constraints.context_shares import ContextShares
from optimizer.constraints.dispatcher import OfferedDispatcher
from optimizer.constraints.dualpipe import DualPipe
from optimizer.constraints.dualpipe_overlap import DualPipeOverlap
from optimizer.constraints.expert_folding import ExpertFolding
from optimizer.constraints.expert_tp import ExpertTp
from optimizer.constraints.experts import ExpertCount
from optimizer.constraints.given_layout import given_layouts
from optimizer.constraints.gpu_product import GpuProduct
from optimizer.constraints.heads import Heads
from optimizer.constraints.host_activations import HostActivations
from optimizer.constraints.interleaving import Interleaving
from optimizer.constraints.kv_heads import KvHeads
from optimizer.constraints.layers import Layers
from optimizer.constraints.micro_batch import MicroBatch
from optimizer.constraints.mlp_width import MlpWidth
from optimizer.constraints.overlap_exchange import OverlapExchange
from optimizer.constraints.overlap_pipeline import OverlapPipeline
from optimizer.constraints.overlap_recompute import OverlapRecompute
from optimizer.constraints.pins import pins
from optimizer.constraints.recompute import Recompute
from optimizer.constraints.rule import Rule
from optimizer.constraints.schedule import Schedule
from optimizer.constraints.sequence import Sequence
from optimizer.constraints.sequence_parallel import SequenceParallel
from optimizer.constraints.shard import Shard
from optimizer.constraints.tied_pipeline import TiedPipeline
from optimizer.constraints.tp_scale_up import TpScaleUp
from optimizer.constraints.vocabulary import Vocabulary
from optimizer.constraints.zero_stage import ZeroStage
from optimizer.job import Job

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
    Schedule(),
    Bubble(),
    SequenceParallel(),
    ZeroStage(),
    Shard(),
    Recompute(),
    ActivationOffload(),
    OfferedDispatcher(),
    OverlapExchange(),
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
        TiedPipeline(): job.model.tied_embeddings and not features.tied_stages,
        ContextShares(): features.context_shares,
        HostActivations(): bool(job.cluster.host_memory) and features.activation_offload,
    }
    return tuple(rule for rule, holds in rules.items() if holds)
