"""How well a training software uses the hardware: few parameters, each physical, bounded, and fitted or known.

A Stack is one set of values for PARAMETERS. `optimize calibrate` fits those that measured runs tell and leaves the
others at their defaults; presets/stacks holds the fitted ones with their source, date, number of runs and residuals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import exp, log

from optimizer.job.model import Provenance
from optimizer.job.variables import DISPATCHERS


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter: its default, bounds, unit and meaning."""

    default: float
    low: float
    high: float
    unit: str
    meaning: str

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
PARAMETERS: Mapping[str, Parameter] = {
    # kernels
    "gemm_efficiency": Parameter(
        default=0.90, low=0.5, high=1.0, unit="1", meaning="GEMM rate in training / isolated kernel (power, contention)"
    ),
    "attention_efficiency": Parameter(
        default=0.55, low=0.1, high=0.9, unit="1", meaning="share of the peak that the fused attention kernel reaches"
    ),
    "score_passes": Parameter(
        default=5.0, low=2.0, high=20.0, unit="1", meaning="HBM passes over the scores, forward, of unfused attention"
    ),
    "hbm_efficiency": Parameter(
        default=0.80, low=0.3, high=0.95, unit="1", meaning="share of the HBM bandwidth of element-wise kernels"
    ),
    "elementwise_passes": Parameter(
        default=1.0, low=0.3, high=5.0, unit="1", meaning="HBM traffic of element-wise kernels / that of fused ones"
    ),
    "launch": Parameter(
        default=4e-6, low=5e-7, high=2e-4, unit="s", meaning="time between two kernels that the host can launch"
    ),
    "pipelined_collective": Parameter(
        default=0.0, low=0.0, high=1e-3, unit="s", meaning="wait per TP rank and collective of pipelines between nodes"
    ),
    "microbatch_overhead": Parameter(
        default=5e-4, low=0.0, high=2e-2, unit="s", meaning="host time per micro-batch and (virtual) stage"
    ),
    # communication
    "network_efficiency": Parameter(
        default=0.9, low=0.1, high=1.0, unit="1", meaning="collective rate across nodes in training / isolated"
    ),
    "scale_up_efficiency": Parameter(
        default=0.9, low=0.1, high=1.0, unit="1", meaning="collective rate inside the node in training / isolated"
    ),
    "collective_skew": Parameter(
        default=5e-6, low=1e-6, high=3e-4, unit="s", meaning="wait of a collective's ranks for each other, per doubling"
    ),
    "tp_overlap": Parameter(
        default=0.0, low=0.0, high=1.0, unit="1", meaning="share of the TP collectives hidden under GEMMs"
    ),
    "cp_overlap": Parameter(
        default=0.7, low=0.0, high=1.0, unit="1", meaning="share of the hideable CP exchange that is hidden"
    ),
    "ep_overlap": Parameter(
        default=0.0, low=0.0, high=1.0, unit="1", meaning="share of the hideable MoE all-to-all that is hidden"
    ),
    "pair_overlap": Parameter(
        # Between 0.5, which Qwen3-235B on 256 H100 tells (19.7 s without, 17.6 s with it: yanring/Megatron-MoE-ModelZoo
        # @e865051), and 0.906 of DeepSeek's own kernels (deepseek-ai/profile-data @4496024, train.json).
        default=0.7,
        low=0.0,
        high=1.0,
        unit="1",
        meaning="share of the MoE exchange beside another micro-batch that is hidden",
    ),
    "dp_overlap": Parameter(
        default=0.7, low=0.0, high=1.0, unit="1", meaning="share of the hideable DP collectives that is hidden"
    ),
    "p2p_overlap": Parameter(
        default=0.5, low=0.0, high=1.0, unit="1", meaning="share of the pipeline transfers that is hidden"
    ),
    # step
    "optimizer_passes": Parameter(
        default=1.5, low=0.5, high=10.0, unit="1", meaning="HBM traffic of the optimizer step / one read and write"
    ),
    "step_overhead": Parameter(
        default=0.03, low=0.0, high=2.0, unit="s", meaning="host time per step: data, logging, clipping"
    ),
    "straggler": Parameter(
        default=0.003, low=0.0, high=0.05, unit="1", meaning="slowdown per doubling of the number of nodes"
    ),
    "expert_imbalance": Parameter(
        default=1.1, low=1.0, high=8.0, unit="1", meaning="tokens of the busiest expert rank / mean"
    ),
    "expert_efficiency": Parameter(
        default=0.75, low=0.4, high=1.0, unit="1", meaning="rate of grouped expert products / dense ones of their shape"
    ),
    "expert_host": Parameter(
        default=6e-3,
        low=5e-4,
        high=2e-2,
        unit="s",
        meaning="host time of an eager mixture's forward pass: router, sizes of the exchange, waits for the GPU",
    ),
    # memory
    "context_memory": Parameter(
        # Up to 14 GB on AMD (ROCm/ATOM pull request 1649), where each communicator of RCCL holds 0.65 GiB
        # (Lumi-supercomputer/LUMI-AI-Guide issue 111).
        default=2.0e9,
        low=0.5e9,
        high=16e9,
        unit="B",
        meaning="outside of the framework's allocator: context of the driver, buffers of communicators, libraries",
    ),
    "fragmentation": Parameter(
        default=0.05, low=0.0, high=0.4, unit="1", meaning="reserved over allocated dynamic memory - 1"
    ),
    "workspace": Parameter(
        default=0.3e9, low=0.0, high=3e9, unit="B", meaning="library workspaces and buffers in the allocator"
    ),
    "logit_memory": Parameter(
        default=8.0, low=2.0, high=24.0, unit="B", meaning="bytes held per logit at the peak of the loss"
    ),
    "activation_factor": Parameter(
        default=1.0, low=0.5, high=2.5, unit="1", meaning="activations kept / those of the formula"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The value of a parameter that no run of the stack fits: a fact about the software, or another stack's."""

    value: float
    why: str


SELECTIVE = ("core", "ops", "qkv")
# tokens of the busiest expert rank / mean. Trained: real dropless routing takes 1.245 and 1.15 times as long as forced
# balance (Qwen3-235B on 256 H100 at 16k and 64k, yanring/Megatron-MoE-ModelZoo @e865051), which 1.65 makes 1.25 and
# 1.13. Fresh: assumed; an untrained router let steps take up to 18 times as long (awslabs/awsome-distributed-ai
# @95b939c).
ROUTING: Mapping[str, float] = {"forced": 1.0, "trained": 1.65, "fresh": 4.0}
COPIES = ("alltoall", "deduplicated")  # one copy for each expert, or one for each destination (DeepEP, HybridEP)
BY_STAGE, BY_VIRTUAL_STAGE, ALL_LAYERS = "stage", "virtual stage", "all layers"
SETTABLE = ("bucket", "comm_sm_share", "offload")
RECOMPUTE_BY = (BY_STAGE, BY_VIRTUAL_STAGE, ALL_LAYERS)
GRAPHED = ("attention", "router", "shared_experts")
UNFUSED = ("router", "scales", "swizzle")  # the router's operations, scales' buffers, their order for the matrix units
FP8_RECIPES = ("", "tensorwise", "rowwise")  # how operands of 8 bits get their scales (objectives.kernels.recipes)
NARROW_PRODUCTS = ("all", "experts", "linears")  # which products a run in a narrow format quantises
ATTENTION = ("unfused", "fused_softmax", "flash1", "flash", "flash3")


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the software does, as facts that are known without measuring.

    attention: "unfused" (separate softmax kernels), "fused_softmax", "flash1", "flash" (second generation) or "flash3"
    (kernels written for the device). selective: what selective recomputation covers, one of SELECTIVE: the attention
    core; norms, activations and every second product; or all but the projections into attention. selective_on_host:
    what it keeps lies in the host's memory until its layer needs it. fused_norm: norms are one kernel. overlap_sharded:
    ZeRO-1/2 collectives run under the passes. default_zero, default_vpp, default_dtype: the ZeRO stage, virtual stages
    and number format of a run that names none. param_bytes: bytes per element of the weights that stay on the device
    beside the master copy, 0 where they are cast from it when they are gathered. gathers_layers: ZeRO-3 gathers a layer
    at a time, else, as a compiler schedules it, a matrix at a time. grad_bytes: bytes per element of the gradients, as
    they are held and as they travel. optimizer_bytes: of the master weights and Adam's two moments together, 12 in
    fp32, 8 with moments of two bytes. fused_accumulation: products of weight gradients add to the accumulated ones,
    which else takes kernels of its own. stops_early: recomputing a whole layer ends where all that the backward pass
    needs is there, before a dense layer's last product. zero_stages, schedules, recompute: those it offers.
    recompute_by: which layers full recomputation may recompute, one of RECOMPUTE_BY: any number on each stage; the
    first so many of every virtual stage, equally many on all; or all of them. recompute_modules: what it can recompute
    by name, of optimizer.job.recomputation.MODULES. activation_offload: it can keep activations in the host's memory.
    uneven_stages: PP need not divide the layers. filled_stages: unless told, it splits the layers as
    objectives.stages.filled_stages. logit_bytes: bytes per element of the logits in the loss. dropout: the
    model is trained with it. dispatcher: how MoE tokens travel unless a run says it: "alltoall", one copy for each
    expert, or "deduplicated", one for each destination. dispatchers: those that it offers, of
    optimizer.job.variables.DISPATCHERS; none listed stands for what `dispatcher` says. fp8_dispatch: tokens go to their
    experts in fp8 where products are in fp8. fp8_recipe: one of FP8_RECIPES, "" for the one that the stack's runs had.
    narrow_products: which of them, of NARROW_PRODUCTS. overlap_exchange: ep_overlap holds for every plan, under the
    products of the same pass; without, nothing of the exchange hides but where a plan asks for it. offers_overlap: a
    plan may ask (Plan.overlap_exchange) to run the exchange beside the computation of another micro-batch.
    eager_experts: the host launches mixtures kernel by kernel and waits for the sizes of their exchange, so that
    expert_host holds; tuned recipes capture what they can in graphs and do not wait. cuda_graphs: layers are
    replayed without the host. synchronised: the host waits in every mixture for the sizes of its exchange, as
    dropless routing needs, so that launches of small kernels show after it (objectives.layer.drained_host);
    graphed: parts of mixtures that graphs replay nevertheless, of GRAPHED; unfused: what its release runs expert by
    expert or kernel by kernel, of UNFUSED; bound_host: processes are bound to the cores beside their GPU.
    weighed_early: what the experts return is weighed between their products, so that their output is not kept;
    fused_experts: its dispatcher permutes tokens on their way, and products of experts apply the gate.
    balanced_experts: routing is forced to be even, as benchmarks do.
    routing: one of ROUTING, "" for what balanced_experts or expert_imbalance say. gathered_logits: every TP rank
    holds the logits of the whole vocabulary. unsplit_head_rate: rate of the head's products where TP does not split
    the vocabulary / where it does, below 1 in a stack that leaves such a vocabulary unpadded. scatter_gather:
    without sequence parallelism too, each TP rank sends its share of what goes to the next pipeline stage, which
    gathers it again. settable: the knobs (fields of Knobs) that its launcher can set, each for its own
    traffic alone; others stay at their default. sharded_rate: rate of ZeRO-3's collectives / those of whole layers,
    below 1 where weights are gathered one by one. whole_experts: experts of several ranks are whole, and those of one
    rank split as other weights are. context_shares: ranks of context parallelism always share weights. tied_stages: an
    embedding and a head that share weights may lie on two stages. lifted: what is assumed beyond the software itself,
    as optimizer.catalog.targets does it.
    """

    attention: str = "flash"
    selective: str = "core"
    selective_on_host: bool = False
    fused_norm: bool = True
    overlap_sharded: bool = True
    default_zero: int = 1
    default_vpp: int = 1
    default_dtype: str = ""
    grad_bytes: int = 4
    optimizer_bytes: int = 12
    param_bytes: int = 2
    gathers_layers: bool = True
    fused_accumulation: bool = True
    stops_early: bool = False
    zero_stages: tuple[int, ...] = (0, 1)
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    recompute: tuple[str, ...] = ("none", "selective", "full")
    recompute_by: str = BY_STAGE
    recompute_modules: tuple[str, ...] = ()
    activation_offload: bool = False
    max_vpp: int = 16
    sequence_parallel: bool = True
    uneven_stages: bool = True
    filled_stages: bool = False
    logit_bytes: int = 4
    dropout: bool = False
    dispatcher: str = "alltoall"
    dispatchers: tuple[str, ...] = ()
    settable: tuple[str, ...] = SETTABLE
    fp8_dispatch: bool = False
    fp8_recipe: str = ""
    narrow_products: str = "all"
    overlap_exchange: bool = True
    offers_overlap: bool = False
    eager_experts: bool = False
    cuda_graphs: bool = False
    synchronised: bool = False
    graphed: tuple[str, ...] = ()
    unfused: tuple[str, ...] = ()
    bound_host: bool = True
    balanced_experts: bool = False
    routing: str = ""
    fused_experts: bool = False
    weighed_early: bool = False
    gathered_logits: bool = False
    unsplit_head_rate: float = 1.0
    scatter_gather: bool = False
    sharded_rate: float = 1.0
    whole_experts: bool = False
    context_shares: bool = False
    tied_stages: bool = True
    lifted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A training software: facts about it, and its parameters (see PARAMETERS for units and bounds).

    `parameters` are fitted to its runs, `fixed` ones known; all others are at their default. A fit starts from the
    stack named `parent` and takes from it what the runs do not tell. `intervals` holds half-widths of prediction
    intervals in log, `ranges` the span of the runs it was fitted to by coordinate (optimizer.objectives.step.interval);
    `devices` are those of these runs.
    """

    name: str
    parent: str = ""
    features: Features = Features()
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    fixed: Mapping[str, Fixed] = field(default_factory=dict, hash=False)
    provenance: Provenance = Provenance()
    runs: int = 0
    residuals: Mapping[str, float] = field(default_factory=dict, hash=False)
    devices: tuple[str, ...] = ()
    intervals: Mapping[str, float] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)

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
    def exchange_overlap(self) -> float:
        """Share of the exchange of tokens that could hide under the products of its own pass which does [1]."""
        return self["ep_overlap"] if self.features.overlap_exchange else 0.0

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
