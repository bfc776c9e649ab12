"""What to train, on what, under which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.job.fields import FAST, FIELDS, LIMITS
from optimizer.job.hardware import Cluster
from optimizer.job.known import RunsSource
from optimizer.job.loss import TrainingLoss, loss_of
from optimizer.job.method import (
    ADAMW,
    DEQUANTISED,
    FROZEN,
    FULL,
    GROUPS,
    LORA,
    PARTS,
    QLORA,
    VISION,
    Method,
    Optimizer,
    method_of,
    optimizer_of,
    tunes,
)
from optimizer.job.model import Model, Tower
from optimizer.job.stack import ALL_LAYERS, BY_VIRTUAL_STAGE, MXFP8, Stack
from optimizer.job.switches import within_reach

if TYPE_CHECKING:
    from optimizer.job.lengths import Lengths

DTYPES = ("bf16", "fp16", "fp8", "fp4")
QUANTISED = ("fp8", "fp4")  # matrix products alone; the rest of the layer stays in bf16
LAYOUT, LAYERS, RECOMPUTED = "layout", "layers_per_stage", "recompute_layers"
PLACING = (LAYOUT, LAYERS, RECOMPUTED)  # what may be fixed about layouts besides the variables of a plan
EVEN = "even"
TIME: str = FIELDS["minimize"].default
TRY_COST: float = FIELDS["try_cost"].default
# Of going out of memory, of a plan that is predicted to reserve just what is usable.
EVEN_RISK = LIMITS["oom_risk"].high
HALF, WIDE = 2, 4  # bytes of an element of half and of single precision
USUAL_MICRO_BATCH = 16  # most sequences of a micro-batch where nobody says otherwise
WIDE_ACTIVATION = 2**26  # elements of one activation of a micro-batch, tokens x hidden, which fill any kernel
FP32_ADAM = 12  # bytes of an element's master weight and two moments


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the plans; numbers are options, with the defaults and bounds of optimizer.job.fields."""

    bubble: float = LIMITS["bubble"].default  # ceiling on (pp - 1) / (vpp m + pp - 1) [1]
    hbm: float = LIMITS["hbm"].default  # usable memory per GPU, 0 for the device's own [B]
    max_tp: int = LIMITS["max_tp"].default  # largest tp, 0 for the scale-up domain
    max_micro_batch: int = LIMITS["max_micro_batch"].default  # most sequences of a micro-batch, 0: largest_micro_batch
    max_vpp: int = LIMITS["max_vpp"].default  # most virtual stages of a stage
    min_cp_tokens: int = LIMITS["min_cp_tokens"].default  # fewest tokens of a sequence on a context-parallel rank
    vocab_padding: float = LIMITS["vocab_padding"].default  # largest growth of the vocabulary by padding [1]
    # largest chance of going out of memory, by the stack's own errors [1]; at EVEN_RISK what a plan is predicted to
    # reserve must fit, None leaves it to optimizer.objectives.step.safe_memory.risk_of
    oom_risk: float | None = LIMITS["oom_risk"].default
    # variables that the user pins: {"tp": 8}; or where the layers lie: {"layout": "even"},
    # {"layers_per_stage": "19,20,21,20"}, {"recompute_layers": "7,4,1,0"}
    fixed: Mapping[str, int | str | bool] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)  # inclusive: {"pp": (1, 8)}
    # values that a variable may take: {"tp": (2, 8), "recompute": ("none", "selective")}
    choices: Mapping[str, tuple[int | str | bool, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One question: what to train, on what, and under which limits."""

    model: Model
    cluster: Cluster
    stack: Stack
    gpus: int  # GPUs that the job has
    seq_len: int  # tokens of a sequence
    global_batch: int  # sequences of a step
    dtype: str = "bf16"  # one of DTYPES
    limits: Limits = Limits()
    settings: tuple[str, ...] = ()  # fields that a person changed, as optimizer.catalog.settings has them
    minimize: str = TIME  # what a plan is best by, a name of optimizer.objectives.minimised.registry
    train: str = FULL  # what is trained, as optimizer.job.method.method_of reads it
    base: str = ""  # how frozen weights are stored, of optimizer.job.method.BASES; "" as the method has it
    optimizer: str = ""  # as optimizer.job.method.optimizer_of reads it; "" for AdamW as the software has it
    loss: str = ""  # as optimizer.job.loss.loss_of reads it; "" for supervised fine-tuning and pretraining
    lengths: str = ""  # of documents, as optimizer.job.lengths reads it; "": each as long as a sequence
    packing: str = FIELDS["packing"].default  # whether several of them fill a sequence
    prefer: str = FAST  # FAST by that alone, EXPECTED with what may go wrong
    try_cost: float = TRY_COST  # time of the cluster that a failed start takes [s]
    own_runs: RunsSource | None = None  # where the user's runs come from, among what the stack knows

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, but got {value}"
            for name, value in (("gpus", self.gpus), ("seq_len", self.seq_len), ("global_batch", self.global_batch))
            if value < 1
        ]
        if self.gpus > self.cluster.max_gpus:
            problems.append(f"gpus must be at most {self.cluster.max_gpus} on {self.cluster.name}, but got {self.gpus}")
        clashes = (limited.problem(getattr(self.limits, name)) for name, limited in LIMITS.items())
        problems += [problem for problem in clashes if problem]
        device = self.cluster.device
        if self.stack.features.fp8_recipe == MXFP8 and "fp4" not in device.peak_flops:
            do = "another --cluster, or --fix fp8_recipe=blockwise"
            problems.append(f"mxfp8 needs a device with 4-bit units, which {device.name} has not ({do})")
        if problems:
            raise InputError("; ".join(problems))
        method, _ = method_of(self.train, self.base), optimizer_of(self.optimizer)
        if method.frozen == (VISION,) and self.tower is None:
            raise InputError(f"--train {self.train}: no vision tower is in front of {self.model.name}")
        if method.layers:
            self._check_layers(method)
        loss_of(self.loss)
        if self.loss and self.packing == "on":
            raise InputError(f"--loss {self.loss} compares sequences one by one: leave out --packing")
        _ = self.documents
        self.cluster.device.peak(self.dtype)

    def _check_layers(self, method: Method) -> None:
        """Raise InputError for frozen layers that the model has not, all of what there is, or pipelines with some."""
        layers = self.model.layers
        ends = [(end + layers * (end < 0)) for each in method.layers for end in each]
        if any(not 0 <= first <= last < layers for first, last in zip(ends[::2], ends[1::2], strict=True)):
            raise InputError(
                f"--train {self.train}: {self.model.name} has layers 0 to {layers - 1}, or -{layers} to -1; "
                "write the first before the last"
            )
        rest = [part for part in ("embedding", "head") if method.trains(part)]
        if len(self.frozen_layers) == layers and not rest:
            raise InputError(f"--train {self.train}: nothing is left to train")
        if self.limits.fixed.get("pp", 1) != 1:
            raise InputError(f"--train {self.train}: frozen layers are priced without pipelines; leave out --fix pp")

    @cached_property
    def frozen_layers(self) -> frozenset[int]:
        """Layers that are frozen whole, counted from 0."""
        count = self.model.layers
        return frozenset(
            layer for first, last in self.method.layers for layer in range(first % count, last % count + 1)
        )

    @cached_property
    def reached(self) -> int:
        """The first layer that backward passes reach: nothing before it is trained.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), gpus=1, seq_len=2048,
        ...     stack=load_stack("hf-2026"), global_batch=1, train="frozen:layers.0-23")
        >>> job.reached, replace(job, train="frozen:embedding,layers.0-23").reached
        (0, 24)
        """
        below = self.method.trains("embedding") or (self.tower and self.method.trains(VISION))
        return 0 if below else min({*range(self.model.layers)} - self.frozen_layers, default=self.model.layers)

    def layers_alike(self, moe: bool) -> tuple[tuple[Job, float], ...]:
        """Layers with experts, or those without, that mix tokens and are trained alike: jobs all of whose layers are
        such, and the share of each [1]. Of kinds that mix differently as many are taken to be frozen.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), gpus=1, seq_len=2048,
        ...     stack=load_stack("hf-2026"), global_batch=1, train="frozen:embedding,layers.0-7,layers.30-31")
        >>> [(alike.train, share) for alike, share in job.layers_alike(moe=False)]
        [('frozen:embedding', 0.6875), ('frozen:layers.0--1', 0.0625), ('frozen:embedding,vision,layers.0--1', 0.25)]
        """
        kinds = self.model.kinds_with(moe)
        whole = sum(kind.count for kind in kinds)
        alike = [
            (
                self if kind.model is self.model else replace(self, model=kind.model),
                kind.count / whole if kinds[1:] else 1.0,
            )
            for kind in kinds
        ]
        if not self.method.layers:
            return tuple(alike)
        these = {layer for layer, has in enumerate(self.model.moe_pattern) if has == moe}
        ahead = {layer for layer in these & self.frozen_layers if layer < self.reached}
        counts = {
            f"{FROZEN}:{','.join(self.method.frozen)}" if self.method.frozen else FULL: these - self.frozen_layers,
            f"{FROZEN}:layers.0--1": (these & self.frozen_layers) - ahead,
            f"{FROZEN}:{PARTS[0]},{VISION},layers.0--1": ahead,
        }
        return tuple(
            (replace(job, train=train, base=self.base if train != FULL else ""), share * len(layers) / len(these))
            for job, share in alike
            for train, layers in counts.items()
            if layers
        ) or tuple(alike)

    @property
    def tokens(self) -> int:
        """Tokens of one optimizer step, without padding."""
        own = self.documents
        return self.global_batch * (self.seq_len if own is None or own.packed else round(own.mean))

    @cached_property
    def documents(self) -> Lengths | None:
        """Lengths of the documents, where they are not all as long as a sequence."""
        if not self.lengths:
            return None
        from optimizer.job.lengths import lengths_of

        return lengths_of(self.lengths, self.packing, self.seq_len)

    @property
    def usable_memory(self) -> float:
        """Memory the framework's allocator may reserve on a GPU: HBM less what lies outside of it [B]."""
        return (self.limits.hbm or self.cluster.device.memory) - self.stack["context_memory"]

    @property
    def largest_micro_batch(self) -> int:
        """Most sequences of a micro-batch: the limit set; else 16, or as many as make WIDE_ACTIVATION elements.

        Small models are run with more, as their kernels are short: MPT-350m with 128 sequences of 512 tokens.

        Source: mosaicml/llm-foundry @8c8dd48f7, scripts/train/benchmarking/README.md.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> few = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
        ...     gpus=8, seq_len=2048, global_batch=512)
        >>> small = replace(few, model=load_model("mpt-350m"), seq_len=512)
        >>> few.largest_micro_batch, small.largest_micro_batch, few.with_limits(max_micro_batch=4).largest_micro_batch
        (16, 128, 4)
        """
        usual = max(USUAL_MICRO_BATCH, WIDE_ACTIVATION // (self.seq_len * self.model.hidden))
        return self.limits.max_micro_batch or usual

    def with_host_memory(self, size: float) -> Job:
        """The job on nodes whose hosts have so much memory [B]."""
        return replace(self, cluster=replace(self.cluster, host_memory=size))

    @property
    def training(self) -> str:
        """What a proof that nothing fits is about, in words.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"), gpus=8,
        ...     seq_len=2048, global_batch=64).training
        'full training with fp32 Adam by megatron-core'
        """
        size = self.stack.features.optimizer_bytes
        adam = "fp32 Adam" if size == FP32_ADAM else f"Adam of {size} bytes an element"
        what = "full training" if not self.method.freezes else f"training by {self.train}"
        stored = f" on {self.method.base} weights" if self.method.base != "bf16" else ""
        return f"{what}{stored} with {self.optimizer or adam} by {self.stack.name}"

    @cached_property
    def method(self) -> Method:
        """What is trained and how the rest is stored."""
        return method_of(self.train, self.base)

    @property
    def tunes(self) -> bool:
        """Whether a model that exists is trained on, by what is trained and how, or because its documents are known."""
        return tunes(self.method, self.update_rule, self.loss) or bool(self.lengths)

    @property
    def training_loss(self) -> TrainingLoss:
        """What the model is trained towards."""
        return loss_of(self.loss)

    @property
    def forward_passes(self) -> float:
        """Forward passes of a sequence for each that a backward pass follows, this one counted, in those of the model
        [1]. Those of a teacher are as much longer as it has more parameters.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), gpus=8, seq_len=2048,
        ...     stack=load_stack("hf-2026"), global_batch=64)
        >>> [replace(job, loss=name).forward_passes for name in ("", "dpo", "kto")]
        [1.0, 2.0, 4.0]
        """
        loss = self.training_loss
        each = loss.teacher / self.model.params if loss.teacher else 1.0
        return 1.0 + loss.forward + loss.reference * each

    @property
    def reference_params(self) -> float:
        """Parameters of a model that stays as it was, in half precision beside the one that is trained [parameters].

        None where adapters are trained: without them it is the model that it was.

        Source: huggingface/trl v1.16.0, trl/trainer/dpo_trainer.py (ref_model).
        """
        loss = self.training_loss
        own = 0.0 if self.method.adapts or not loss.reference else float(self.model.params)
        return loss.teacher or own

    @property
    def tower(self) -> Tower | None:
        """The vision tower, where the software runs Transformers' own code and so the whole model."""
        return self.model.tower if self.stack.features.eager else None

    @property
    def update_rule(self) -> Optimizer:
        """The optimizer."""
        return optimizer_of(self.optimizer)

    @property
    def state_bytes(self) -> float:
        """Master weight and moments of a trained element, wherever they lie [B].

        Of the software's bytes those beyond its master copy are AdamW's two moments; Muon has two for what is no
        matrix of a layer. Transformers' Trainer keeps moments of embeddings in fp32 beside those of 8 bits.

        Source: huggingface/transformers v5.17.0, src/transformers/trainer.py, create_optimizer.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), gpus=8, seq_len=2048,
        ...     stack=load_stack("megatron-core"), global_batch=64)
        >>> [round(replace(job, optimizer=name).state_bytes, 2) for name in ("", "adamw-8bit", "lion", "muon")]
        [12, 6.03, 8.0, 8.52]
        """
        features, rule = self.stack.features, self.update_rule
        master, whole = self.master_bytes, features.optimizer_bytes
        if self.wide_adapters:
            whole = master + 2 * WIDE
        if not self.optimizer or rule.name == ADAMW:
            return whole
        wide = WIDE if rule.wide else (whole - master) / 2.0
        others = (self.model.embedding_params + self.model.head_params) / self.model.params if rule.orthogonal else 0.0
        each = rule.bytes or wide
        if rule.bytes and features.wide_embedding and not self.method.freezes:
            each += (WIDE - each) * self.model.embedding_params / self.model.params
        return master + (rule.moments + others) * each

    @property
    def wide_adapters(self) -> bool:
        """Whether what is trained is adapters in fp32.

        Source: huggingface/peft v0.21.0, src/peft/tuners/tuners_utils.py, cast_adapter_dtype; huggingface/trl v1.16.0,
        trl/trainer/sft_trainer.py, which casts adapters back where their base is quantised.
        """
        features = self.stack.features
        narrow = features.narrow_qlora and self.method.base in DEQUANTISED
        return self.method.adapts and features.wide_adapters and not narrow

    @property
    def fused_adapters(self) -> bool:
        """Whether functions of autograd have adapters with the products of a dense layer, all of which have one.

        Source: axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/monkeypatch/lora_kernels.py, apply_lora_kernel_patches.
        """
        method, every = self.method, {*GROUPS["all"]}
        able = method.name in (LORA, QLORA) and method.base != "int8" and every <= {*method.targets}
        return self.stack.features.fused_adapters and able and self.model.gated_mlp and not self.model.experts

    @property
    def eager_adapters(self) -> bool:
        """Whether each adapter is operations of its own."""
        return self.stack.features.eager and not self.fused_adapters

    @property
    def wide_rest(self) -> bool:
        """Whether all but the quantised weights, and the residual stream, are in single precision.

        Source: huggingface/peft, src/peft/utils/other.py, prepare_model_for_kbit_training.
        """
        return self.stack.features.wide_rest and self.method.in_nf4

    @property
    def master_bytes(self) -> int:
        """Of an element's state the weight itself; of adapters in fp32 what they have beyond half precision [B]."""
        return HALF if self.wide_adapters else self.stack.features.master_bytes

    @property
    def grad_bytes(self) -> int:
        """Of a trained element's gradient [B]."""
        return WIDE if self.wide_adapters else self.stack.features.grad_bytes

    @property
    def wire_bytes(self) -> int:
        """Of a trained element's gradient as it travels [B]."""
        return self.stack.features.wire_bytes or self.grad_bytes

    @property
    def sum_bytes(self) -> int:
        """Of a trained element's sum of gradients, where it lies beside them [B].

        Source: deepspeedai/DeepSpeed, deepspeed/runtime/bf16_optimizer.py, fp32_groups_gradients_flat.
        """
        return self.stack.features.sum_bytes if self.dtype == "bf16" else 0

    @property
    def most_offload(self) -> float:
        """Share of the optimizer state that may lie on the host [1]: all, or none where the launcher cannot set it."""
        return float("offload" in self.stack.features.settable)

    @property
    def peak_flops(self) -> float:
        """Dense peak of one GPU in the job's dtype [FLOP/s]."""
        return self.cluster.device.peak(self.dtype)

    @property
    def quantised(self) -> bool:
        """Whether matrix products run in a narrower format than the rest of the layer."""
        return any(name in self.dtype for name in QUANTISED)

    @cached_property
    def software(self) -> Stack:
        """The stack without what the job's device, number format or model cannot have switched on."""
        return within_reach(self.stack, self.cluster.device, self.dtype, self.model)

    @property
    def row_multiple(self) -> float:
        """What the rows of each expert are filled up to for its products [1].

        1 where operands are wide; 16 rows of fp8, 32 with the scales of MXFP8, which devices with 4-bit units read.

        Source: NVIDIA/Megatron-LM @3c1b98efdc^, DeepSeek-V3 GB200 guide, section 2.5.
        """
        if not self.quantised:
            return 1.0
        return 32.0 if "fp4" in self.cluster.device.peak_flops else 16.0

    @property
    def layout_given(self) -> bool:
        """Whether the user says where the layers lie, or what is recomputed of them."""
        return any(name in self.limits.fixed for name in PLACING)

    @property
    def recomputes_all(self) -> bool:
        """Whether full recomputation spares no layer: the user asked for it, or the software has nothing else."""
        pinned = self.limits.fixed.get("recompute") == "full" and RECOMPUTED not in self.limits.fixed
        return pinned or self.stack.features.recompute_by == ALL_LAYERS

    @property
    def recomputes_alike(self) -> bool:
        """Whether full recomputation may spare layers, if equally many on every virtual stage."""
        return self.stack.features.recompute_by == BY_VIRTUAL_STAGE and not self.recomputes_all

    @property
    def wide_dtype(self) -> str:
        """The format of everything but quantised matrix products."""
        return "bf16" if self.quantised else self.dtype

    def with_limits(self, **changes: object) -> Job:
        """The same job under other limits."""
        return replace(self, limits=replace(self.limits, **changes))  # type: ignore[arg-type]

    def without_pin(self, *names: str) -> Job:
        """The same job with these variables free."""
        limits = self.limits
        return self.with_limits(
            fixed={name: value for name, value in limits.fixed.items() if name not in names},
            ranges={name: value for name, value in limits.ranges.items() if name not in names},
            choices={name: value for name, value in limits.choices.items() if name not in names},
        )
