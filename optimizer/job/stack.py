"""How well a training software uses the hardware: few parameters, each physical, bounded, and fitted or known.

A Stack is one set of values for PARAMETERS. `optimize calibrate` fits those that measured runs tell and leaves the
others at their defaults; presets/stacks holds the fitted ones with their source, date, number of runs and residuals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import exp, log
from typing import Annotated

from optimizer.job.known import RunError
from optimizer.job.model import Provenance
from optimizer.job.recomputation import MODES, MODULES
from optimizer.job.variables import DISPATCHERS, SCHEDULES


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter."""

    default: float  # its value where nothing is known
    low: float  # least value
    high: float  # largest value
    unit: str  # of the three
    meaning: str  # in words

    @property
    def logarithmic(self) -> bool:
        """Whether its bounds are positive and far apart, so that it moves in log."""
        return self.low > 0 and self.high / self.low > 4

    def place(self, value: float) -> float:
        """Position of a value between the bounds, 0 to 1."""
        if self.logarithmic:
            return log(max(value, self.low) / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, place: float) -> float:
        """The value at a position between the bounds.

        >>> launch = PARAMETERS["launch"]
        >>> round(launch.at(launch.place(7e-6)), 9), PARAMETERS["tp_overlap"].at(0.25)
        (7e-06, 0.25)
        """
        if self.logarithmic:
            return self.low * exp(place * log(self.high / self.low))
        return self.low + place * (self.high - self.low)


PRIOR_SPREAD = 0.25  # of a parameter that no run tells, as a share of the distance between its bounds
# Of each: default, least and largest value, unit, meaning.
_PARAMETERS: Mapping[str, tuple[float, float, float, str, str]] = {
    # kernels
    "gemm_efficiency": (0.90, 0.5, 1.0, "1", "GEMM rate in training / isolated kernel (power, contention)"),
    "attention_efficiency": (0.55, 0.1, 0.9, "1", "share of the peak that the fused attention kernel reaches"),
    "score_passes": (5.0, 2.0, 20.0, "1", "HBM passes over the scores, forward, of unfused attention"),
    "hbm_efficiency": (0.80, 0.3, 0.95, "1", "share of the HBM bandwidth of element-wise kernels"),
    "elementwise_passes": (1.0, 0.3, 5.0, "1", "HBM traffic of element-wise kernels / that of fused ones"),
    "dequantise_passes": (4.0, 1.0, 20.0, "1", "time of dequantising frozen weights / one read and write of HBM"),
    "launch": (4e-6, 5e-7, 2e-4, "s", "time between two kernels that the host can launch"),
    "pipelined_collective": (
        0.0,
        0.0,
        1e-3,
        "s",
        "wait per TP rank and collective of pipelines between nodes, and a share of it of TP groups between nodes",
    ),
    "microbatch_overhead": (5e-4, 0.0, 2e-2, "s", "host time per micro-batch and (virtual) stage"),
    # communication
    "network_efficiency": (0.9, 0.1, 1.0, "1", "collective rate across nodes in training / isolated"),
    "scale_up_efficiency": (0.9, 0.1, 1.0, "1", "collective rate inside the node in training / isolated"),
    "collective_skew": (5e-6, 1e-6, 3e-4, "s", "wait of a collective's ranks for each other, per doubling"),
    "tp_overlap": (0.0, 0.0, 1.0, "1", "share of the TP collectives hidden under GEMMs"),
    "cp_overlap": (0.7, 0.0, 1.0, "1", "share of the hideable CP communication that is hidden"),
    "ep_overlap": (0.0, 0.0, 1.0, "1", "share of the hideable MoE all-to-all that is hidden"),
    # Between 0.5, which Qwen3-235B on 256 H100 tells (19.7 s without, 17.6 s with it: yanring/Megatron-MoE-ModelZoo
    # @e865051), and 0.906 of DeepSeek's own kernels (deepseek-ai/profile-data @4496024, train.json).
    "pair_overlap": (0.7, 0.0, 1.0, "1", "share of the MoE all-to-all that another micro-batch hides"),
    "dp_overlap": (0.7, 0.0, 1.0, "1", "share of the hideable DP collectives that is hidden"),
    "p2p_overlap": (0.5, 0.0, 1.0, "1", "share of the pipeline transfers that is hidden"),
    # step
    "optimizer_passes": (1.5, 0.5, 10.0, "1", "HBM traffic of the optimizer step / one read and write"),
    "step_overhead": (0.03, 0.0, 2.0, "s", "host time per step: data, logging, clipping"),
    "straggler": (0.003, 0.0, 0.05, "1", "slowdown per doubling of the number of nodes"),
    "expert_imbalance": (1.1, 1.0, 8.0, "1", "tokens of the busiest expert rank / mean"),
    "expert_efficiency": (0.75, 0.4, 1.0, "1", "rate of grouped expert products / dense ones of their shape"),
    "expert_host": (
        6e-3,
        5e-4,
        2e-2,
        "s",
        "host time of an eager MoE layer's forward pass: router, sizes of the all-to-all, waits for the GPU",
    ),
    # memory
    # Up to 14 GB on AMD (ROCm/ATOM pull request 1649), where each communicator of RCCL holds 0.65 GiB
    # (Lumi-supercomputer/LUMI-AI-Guide issue 111).
    "context_memory": (
        2.0e9,
        0.5e9,
        16e9,
        "B",
        "outside of the framework's allocator: context of the driver, buffers of communicators, libraries",
    ),
    "fragmentation": (0.05, 0.0, 0.4, "1", "reserved over allocated dynamic memory - 1"),
    "workspace": (0.3e9, 0.0, 3e9, "B", "library workspaces and buffers in the allocator"),
    "logit_memory": (8.0, 2.0, 24.0, "B", "bytes held per logit at the peak of the loss"),
    "activation_factor": (1.0, 0.5, 2.5, "1", "activations kept / those of the formula"),
}
PARAMETERS: Mapping[str, Parameter] = {
    name: Parameter(default=default, low=low, high=high, unit=unit, meaning=meaning)
    for name, (default, low, high, unit, meaning) in _PARAMETERS.items()
}


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The value of a parameter that no run of the stack fits: a fact about the software, or another stack's."""

    value: float  # the parameter's value
    why: str  # how it is known


SELECTIVE = ("core", "ops", "qkv")
# tokens of the busiest expert rank / mean. Trained: real dropless routing takes 1.245 and 1.15 times as long as forced
# balance (Qwen3-235B on 256 H100 at 16k and 64k, yanring/Megatron-MoE-ModelZoo @e865051), which 1.65 makes 1.25 and
# 1.13. Fresh: assumed; an untrained router let steps take up to 18 times as long (awslabs/awsome-distributed-ai
# @95b939c).
ROUTING: Mapping[str, float] = {"forced": 1.0, "trained": 1.65, "fresh": 4.0}
COPIES = ("alltoall", "deduplicated")  # one copy for each expert, or one for each destination (DeepEP, HybridEP)
BY_STAGE, BY_VIRTUAL_STAGE, ALL_LAYERS = "stage", "virtual stage", "all layers"
SETTABLE = ("bucket", "comm_sm_share", "offload")
SWITCHABLE = ("liger",)  # of switches.toml
RECOMPUTE_BY = (BY_STAGE, BY_VIRTUAL_STAGE, ALL_LAYERS)
GRAPHED = ("attention", "router", "shared_experts")
UNFUSED = ("router", "scales", "swizzle")  # the router's operations, scales' buffers, their order for the matrix units
MXFP8 = "mxfp8"
FP8_RECIPES = (
    "",
    "delayed",
    "tensorwise",
    "rowwise",
    "blockwise",
    MXFP8,
)  # how operands of 8 bits get their scales (objectives.kernels.recipes)
NARROW_PRODUCTS = ("all", "experts", "linears")  # which products a run in a narrow format quantises
ATTENTION = ("unfused", "fused_softmax", "flash1", "flash", "flash3")


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the software does, as facts that are known without measuring; words are of the lists named."""

    # kernels
    fused_norm: bool = True  # norms are one kernel
    eager: bool = False  # every operation is a kernel of its own, as PyTorch runs the code of Transformers
    # rotary embeddings are products of complex numbers in fp32, which no compiler fuses
    complex_rotary: bool = False
    # kernels of attention: separate ones for the softmax (unfused), one for it, the first or second generation of flash
    # attention, or kernels written for the device (flash3)
    attention: Annotated[str, ATTENTION] = "flash"
    fused_accumulation: bool = True  # products of weight gradients add to the accumulated ones themselves
    dropout: bool = False  # the model is trained with it
    adapter_dropout: bool = False  # adapters are, on their inputs
    cuda_graphs: bool = False  # layers are replayed without the host
    bound_host: bool = True  # processes are bound to the cores beside their GPU
    narrow_inputs: bool = False  # where products run in 8 bits, the activation's inputs are kept in them
    fp8_recipe: Annotated[str, FP8_RECIPES] = ""  # how 8-bit operands get their scales; empty: as in its runs
    narrow_products: Annotated[str, NARROW_PRODUCTS] = "all"  # products that run in the narrow format
    # bytes of an element
    param_bytes: int = 2  # weights resident beside the master copy; 0: cast from it when they are gathered [B]
    grad_bytes: int = 4  # gradients, resident and as they travel [B]
    wire_bytes: int = 0  # gradients as they travel, where that is another width [B]
    sum_bytes: int = 0  # beside gradients of weights in bf16, their sums over micro-batches [B]
    optimizer_bytes: int = 12  # master weights and Adam's two moments; 12 in fp32, 8 with moments of two bytes [B]
    update_bytes: int = 0  # temporaries of an element while its weight is updated, by kernels over all tensors [B]
    update_group: float = 0.0  # elements that are updated at once under ZeRO-3, their gradients in fp32; 0: no copies
    master_bytes: int = 4  # of these, the master weight; 0: the weights are updated themselves [B]
    logit_bytes: int = 4  # logits in the loss [B]
    # beside weights that bitsandbytes quantised, all others and the residual stream are in fp32
    wide_rest: bool = False
    loads_whole: bool = False  # frozen weights stay whole on each device beside their shards
    # a compiler makes the loss one kernel a pass: logits and their gradients stay in half precision
    compiled_loss: bool = False
    loss_chunks: int = 1  # parts of the tokens of which the loss has the logits in turn; 0: vocabulary / hidden of them
    recomputed_logits: bool = False  # the loss has logits in passing; its backward pass computes them again
    # what sequence parallelism gathers before products stays whole for the backward pass, which gathers it no more
    keeps_gathered: bool = False
    wide_adapters: bool = False  # adapters, their gradients and moments are in fp32, whatever the weights are in
    narrow_qlora: bool = False  # but not beside a base of few bits
    fused_adapters: bool = False  # a function of autograd has them with the products of a module, where it can
    # products with weights that bitsandbytes quantised keep their inputs, frozen as they are: until its release 0.43.2
    keeps_quantised_inputs: bool = False
    wide_embedding: bool = False  # moments of embeddings are in fp32 where an optimizer has others in 8 bits
    # what a plan may have
    default_zero: int = 1  # ZeRO stage of a run that names none
    default_vpp: int = 1  # virtual stages of a run that names none
    default_dtype: str = ""  # number format of a run that names none
    default_bucket: float = 160e6  # gradients in a bucket of a run that names none [B]
    accumulates: bool = True  # a run that names no micro-batch may deal its step in several; else it is one
    zero_stages: tuple[int, ...] = (0, 1)  # ZeRO stages that it offers
    # the same under a pipeline, whose micro-batches follow each other; empty: those of zero_stages but 2. FSDP that
    # keeps weights whole between micro-batches and reduces gradients once a step is ZeRO-1 there
    piped_zero_stages: tuple[int, ...] = ()
    # under a pipeline ZeRO-3 frees weights after a forward pass alone, and gradients are whole until they are reduced
    # once a step
    reduces_once: bool = False
    # ZeRO-2 and 3 reduce gradients in the last micro-batch of a step alone; until then they are whole, in 16 bits
    syncs_last: bool = False
    schedules: Annotated[tuple[str, ...], SCHEDULES] = ("1f1b", "interleaved")  # pipeline schedules that it offers
    max_vpp: int = 16  # most virtual stages of a stage
    sequence_parallel: bool = True  # it offers sequence parallelism
    uneven_stages: bool = True  # PP need not divide the layers
    filled_stages: bool = False  # unless a run says otherwise, as objectives.stages.filled_stages splits them
    tied_stages: bool = True  # an embedding and a head that share weights may lie on two stages
    settable: Annotated[tuple[str, ...], SETTABLE] = SETTABLE  # knobs that its launcher can set
    switchable: Annotated[tuple[str, ...], SWITCHABLE] = ()  # switches that its launchers leave open
    # recomputation
    recompute: Annotated[tuple[str, ...], MODES] = ("none", "selective", "full")  # modes of it that it offers
    # layers that full recomputation may recompute: any number on each stage; equally many, the first of every virtual
    # stage; or all
    recompute_by: Annotated[str, RECOMPUTE_BY] = BY_STAGE
    recompute_modules: Annotated[tuple[str, ...], MODULES] = ()  # modules that it can recompute by name
    # what selective recomputation covers: the attention core; norms, activations and every second product; or all but
    # the projections into attention
    selective: Annotated[str, SELECTIVE] = "core"
    selective_on_host: bool = False  # what selective recomputation keeps lies on host until its layer needs it
    activation_offload: bool = False  # it can keep activations on host
    # weights, gradients and states that ZeRO-3 shards lie on host, where they are updated
    hosted_weights: bool = False
    hosted_checkpoints: bool = False  # it can keep the inputs of recomputed layers on host
    # recomputing a layer ends where all that the backward pass needs is resident: before a dense layer's last product,
    # before what experts return travels back where it was weighed before
    stops_early: bool = False
    # communication
    bucket_per_rank: float = 4e6  # least of a bucket of gradients for each rank of its group, whatever is set [B]
    reduces_whole: bool = False  # ZeRO-1 reduces all gradients on every rank, in one call, and gathers weights in one
    overlap_sharded: bool = True  # collectives of ZeRO-1 and 2 run under the passes
    gathers_layers: bool = True  # ZeRO-3 gathers a layer at a time; else a matrix, as a compiler schedules it
    sharded_host: float = 0.0  # host time of a layer's hooks and allocations in a pass of ZeRO-3 [s]
    sliced_host: float = 0.0  # host time of a tensor's slice for a rank, where ZeRO-1 slices each by itself [s]
    sharded_rate: float = 1.0  # rate of ZeRO-3's collectives / those of whole layers [1]
    # ZeRO-3 copies what it gathers into tensors, and gradients into the buffer that it scatters, between the passes
    copies_sharded: bool = False
    context_shares: bool = False  # ranks of context parallelism always share weights
    # without sequence parallelism too, each TP rank sends its share to the next stage, which gathers them again
    scatter_gather: bool = False
    gathered_logits: bool = False  # every TP rank has the logits of the whole vocabulary
    unsplit_head_rate: float = 1.0  # rate of the head's products, vocabulary unsplit by TP / split [1]
    # MoE layers
    posts_tokens: bool = False  # threads on the host post the messages of DeepEP and HybridEP token by token, as UCCL
    fp8_dispatch: bool = False  # tokens go to their experts in fp8 where products are in fp8
    # how tokens travel where a run names no dispatcher: one copy for each expert, or one for each destination
    dispatcher: Annotated[str, COPIES] = "alltoall"
    dispatchers: Annotated[tuple[str, ...], DISPATCHERS] = ()  # dispatchers that it offers; empty: as `dispatcher` says
    # ep_overlap holds for every plan, under the products of the same pass; else the all-to-all is overlapped only where
    # a plan asks for it
    overlap_exchange: bool = True
    offers_overlap: bool = False  # a plan may overlap its expert-parallel all-to-all with another micro-batch
    # the host launches MoE layers kernel by kernel and waits for the sizes of their all-to-all, so that expert_host
    # holds; tuned recipes capture what they can in graphs and do not wait
    eager_experts: bool = False
    # the host waits in every MoE layer for the sizes of its all-to-all, as dropless routing needs, so that launches of
    # small kernels show after it (objectives.layer.drained_host)
    synchronised: bool = False
    graphed: Annotated[tuple[str, ...], GRAPHED] = ()  # parts of MoE layers that graphs replay
    unfused: Annotated[tuple[str, ...], UNFUSED] = ()  # what runs expert by expert or kernel by kernel
    fused_experts: bool = False  # the dispatcher permutes tokens on their way, and products of experts apply the gate
    weighed_early: bool = False  # what experts return is weighed between their products: their output is not resident
    whole_experts: bool = False  # experts of several ranks are whole, those of one rank split as other weights are
    balanced_experts: bool = False  # routing is forced to be even, as benchmarks do
    dealt_in_order: bool = False  # and then deals experts in order, so that those of a token lie side by side
    # how even routing is; empty: as balanced_experts or expert_imbalance say
    routing: Annotated[str, ("", *ROUTING)] = ""
    lifted: tuple[str, ...] = ()  # what is assumed beyond the software itself, as optimizer.catalog.targets does it


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A training software: facts about it, and its parameters (see PARAMETERS for units and bounds)."""

    name: str  # what the stack is called
    parent: str = ""  # the stack that a fit starts from, for what its runs do not show
    features: Features = Features()  # what the software does; may be empty
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)  # those that were fitted
    fixed: Mapping[str, Fixed] = field(default_factory=dict, hash=False)  # those that are known, and why
    provenance: Provenance = Provenance()  # where it comes from
    runs: int = 0  # runs behind the fit
    residuals: Mapping[str, float] = field(default_factory=dict, hash=False)  # errors of the fit
    devices: tuple[str, ...] = ()  # devices of these runs
    # errors on runs of one's own, beside those of presets/belief.csv
    known: tuple[RunError, ...] = field(default=(), hash=False)
    # span of these runs, by coordinate (optimizer.objectives.step.interval)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)

    def named(self, name: str) -> Stack:
        """The stack under another name, which its own runs follow."""
        own = [replace(row, software=name) if row.software == self.name else row for row in self.known]
        return replace(self, name=name, known=tuple(own))

    def __getitem__(self, name: str) -> float:
        """The value of one parameter: fitted, else fixed, else its default.

        >>> Stack(name="mine", parameters={"launch": 6e-6})["launch"]
        6e-06
        """
        if name in self.parameters:
            return self.parameters[name]
        return self.fixed[name].value if name in self.fixed else PARAMETERS[name].default

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many parameters are fitted, fixed and at their default."""
        known = self.fixed.keys() - self.parameters.keys()
        return len(self.parameters), len(known), len(PARAMETERS) - len(self.parameters) - len(known)

    def zero_stages(self, piped: bool) -> tuple[int, ...]:
        """ZeRO stages that it offers without a pipeline, or with one.

        >>> Stack(name="its", features=Features(zero_stages=(0, 2, 3))).zero_stages(piped=True)
        (0, 3)
        """
        features = self.features
        if not piped:
            return features.zero_stages
        return tuple(stage for stage in features.piped_zero_stages or features.zero_stages if stage != 2)

    @property
    def dispatchers(self) -> tuple[str, ...]:
        """The dispatchers that the software offers, of optimizer.job.variables.DISPATCHERS.

        >>> Stack(name="mine").dispatchers, Stack(name="its", features=Features(dispatcher="deduplicated")).dispatchers
        (('alltoall',), ('alltoall', 'deepep', 'hybridep'))
        """
        usual = DISPATCHERS if self.features.dispatcher == "deduplicated" else DISPATCHERS[:1]
        return self.features.dispatchers or usual

    @property
    def usual_dispatcher(self) -> str:
        """The dispatcher of a run that names none."""
        kernels = [name for name in self.dispatchers if name != DISPATCHERS[0]]
        return kernels[0] if self.features.dispatcher == "deduplicated" and kernels else self.dispatchers[0]

    @property
    def expert_overlap(self) -> float:
        """Share of the expert-parallel all-to-all that is overlapped with the products of its own pass [1]."""
        return self["ep_overlap"] if self.features.overlap_exchange else 0.0

    @property
    def routing_forced(self) -> bool:
        """Whether routing is forced to be even."""
        return self.features.routing == "forced" or (self.features.balanced_experts and not self.features.routing)

    @property
    def imbalance(self) -> float:
        """Tokens of the busiest expert rank / mean [1]: 1 where routing is forced to be even.

        >>> Stack(name="mine").imbalance, Stack(name="mine", features=Features(routing="trained")).imbalance
        (1.1, 1.65)
        """
        if self.features.routing:
            return ROUTING[self.features.routing]
        return 1.0 if self.features.balanced_experts else self["expert_imbalance"]


FEATURES = tuple(f.name for f in fields(Features))
