"""A program that fine-tunes models: its words, what it lacks to run a plan as it is priced, and its launch files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from optimizer.base.content import content
from optimizer.catalog.readers.yaml_nodes import yaml_file
from optimizer.catalog.targets import launchers
from optimizer.frameworks.config.frozen import OUTSIDE
from optimizer.frameworks.deepspeed.defaults import STORAGE
from optimizer.frameworks.deepspeed.export import cluster_values, fsdp_values, hosted, synced
from optimizer.frameworks.framework import ExportFiles
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.job.lengths import ON
from optimizer.job.loss import SFT
from optimizer.job.method import ADAMW, GROUPS, VISION
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

PACKAGE = "optimizer.frameworks.tuning"
ACCELERATE = "accelerate.yaml"
FUSED = "adamw-fused"
DATASET, OUTPUT = "YOUR_DATASET", "output"
Text = Callable[["Job", "Plan", "TuningProgram"], str]


@dataclass(frozen=True, kw_only=True)
class TuningProgram:
    """What a program that fine-tunes models calls things.

    Attributes:
        target: as `--target` names it.
        title: name and release.
        methods: of optimizer.job.method.METHODS.
        bases: formats in which it keeps frozen weights.
        optimizers: its names of them by ours.
        chunks: parts of the loss that it can have, as Features.loss_chunks counts them.
        formats: number formats of matrix products.
        liger: the key that switches on a loss of 0 chunks, "" where it has that anyway or not at all.
        hosted: what keeps inputs of checkpointed layers on the host, by key; empty where it cannot.
        in_backward: whether the optimizer can step in the backward pass.
        models: configurations that it ships by our names of models; empty where it takes any model.
        scattered: whether it can train any layers alone, not only the first or the last ones.
        towers: whether it can freeze a vision tower in front of what it trains.
        offloads: whether FSDP's weights can lie on the host.
        losses: what says each loss of optimizer.job.loss.losses() that it has besides supervised fine-tuning, by key.
    """

    target: str
    title: str
    methods: tuple[str, ...]
    bases: tuple[str, ...]
    optimizers: Mapping[str, str]
    chunks: tuple[int, ...]
    formats: tuple[str, ...] = ("bf16",)
    liger: str = ""
    hosted: Mapping[str, object] = field(default_factory=dict)
    in_backward: bool = False
    scattered: bool = True
    towers: bool = False
    offloads: bool = False
    whole_losses: tuple[str, ...] = ()  # that it does not run on a sharded base of few bits
    whole_optimizers: tuple[str, ...] = ()  # that it does not shard
    models: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def unexpressed(self, job: Job, plan: Plan, knobs: Knobs | None = None) -> tuple[str, ...]:
        """What the program lacks to run the plan as it is priced, in words; nothing where it can."""
        can, device, chunks = launchers()[self.target], job.cluster.device, job.stack.features.loss_chunks
        partly = plan.recompute == "full" and bool(plan.recompute_layers or plan.recompute_first)
        other = {name: value for name, value in can.only.items() if getattr(plan, name) != value}
        missing = {
            f"the device {device.name} ({device.vendor})": device.vendor not in can.vendors,
            f"the model {job.model.name}": bool(self.models) and job.model.name not in self.models,
            **{f"{name} of {getattr(plan, name)}": True for name in other},
            f"the number format {job.dtype}": job.dtype not in self.formats,
            "weights in fp16 whose gradients are scaled, without a master copy": (
                job.dtype == "fp16" and not job.method.freezes and not job.stack.features.master_bytes
            ),
            f"frozen weights in {job.method.base}": job.method.freezes and job.method.base not in self.bases,
            f"ZeRO-{plan.zero_stage} on {plan.dp} GPUs": plan.dp > 1
            and (plan.zero_stage not in can.zero_stages or not (plan.zero_stage or can.replicates)),
            f"groups of {plan.shard} that share weights": 0 < plan.shard < plan.dp,
            f"recomputation of {plan.recompute} as priced": plan.recompute not in ("none", "full") or partly,
            "frozen parts of layers": not {*job.method.frozen} <= {*OUTSIDE, VISION},
            "a frozen vision tower": VISION in job.method.frozen and not self.towers,
            "a vision tower frozen with other parts": VISION in job.method.frozen and job.method.frozen != (VISION,),
            "trained layers that are neither the first nor the last": not self.scattered and not at_an_end(job),
            "activations on the host": plan.activation_offload > 0 and not self._hosts(plan),
            # One that has all logits at once is priced at more than any other.
            f"a loss in {chunks or 'Liger'} chunks": chunks not in (1, *self.chunks),
            f"the loss {job.loss}": job.training_loss.name not in (SFT, *self.losses),
            f"the loss {job.loss} on a sharded base in {job.method.base}": (
                job.training_loss.name in self.whole_losses and job.method.base != "bf16" and sharded(plan)
            ),
            f"a sharded {job.optimizer}": job.update_rule.name in self.whole_optimizers and sharded(plan),
            "steps of the optimizer in the backward pass": job.update_rule.in_backward and not self.in_backward,
            "gradients of several micro-batches in such steps": (
                job.update_rule.in_backward and plan.num_microbatches > 1
            ),
            "a file written with weights on the host": hosted(job, plan) and not (self.offloads and sharded(plan)),
            "a share of the optimizer on the host": knobs is not None and knobs.offload > 0,
        }
        return lacks(missing)

    def switched(self, job: Job, plan: Plan) -> dict[str, object]:
        """What it says besides: the loss, Liger's kernels, inputs of checkpointed layers on the host."""
        liger = {self.liger: True} if self.liger and not job.stack.features.loss_chunks else {}
        loss = self.losses.get(job.training_loss.name, {})
        return {**loss, **liger, **(self.hosted if plan.activation_offload else {})}

    def _hosts(self, plan: Plan) -> bool:
        return bool(self.hosted) and plan.activation_offload == 100 and plan.recompute == "full"

    def yaml(self, plan: Plan, command: str, values: Mapping[str, object]) -> str:
        """A configuration under the plan and the command that launches it."""
        return yaml_file([f"{self.title}: {plan.summary()}", command], dict(values))

    def text(self, answer: Answer, write: Text) -> str:
        """A launch file. Raises InputError when the answer holds no plan, or one that the program cannot run."""
        return write(*runnable(answer, self.title, self.unexpressed, hosts=True), self)

    def optimizer(self, job: Job) -> str:
        """What it calls the job's optimizer; AdamW is one kernel an element where no temporaries are priced."""
        rule, features = job.update_rule, job.stack.features
        over_all = rule.at_once and (features.eager or features.update_bytes)
        return self.optimizers[FUSED if rule.name == ADAMW and not over_all else rule.name]


@cache
def program(target: str) -> TuningProgram:
    """The program of a target.

    >>> program("axolotl").optimizers["adamw-8bit"], program("axolotl").bases
    ('adamw_bnb_8bit', ('bf16', 'int8', 'nf4'))
    """
    tables = content(PACKAGE, "programs.toml")
    own = dict(tables[target])
    values: dict[str, Any] = {**tables.get(own.pop("like", ""), {}), **own}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return TuningProgram(target=target, **{**values, **lists})


def export_files(target: str, files: Mapping[str, Text], *, accelerate: bool = False) -> ExportFiles:
    """The launch files of a target, and of Accelerate where several processes are launched with it."""
    own = program(target)
    texts = {name: partial(own.text, write=write) for name, write in files.items()}
    more = {ACCELERATE: partial(own.text, write=accelerate_yaml)} if accelerate else {}
    return ExportFiles(
        files={**texts, **more},
        companions=tuple(more),
        methods=own.methods,
        optimizers=tuple(own.optimizers),
        tunes=True,
    )


def repository(job: Job) -> str:
    """The model on the Hugging Face hub, else the name that the user gave it."""
    return str(content(PACKAGE, "models.toml").get(job.model.name, job.model.name))


def modules(job: Job) -> list[str]:
    """Modules with adapters, as Hugging Face calls them.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.job import Job
    >>> modules(Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=16, train="lora:16:attention"))
    ['q_proj', 'k_proj', 'v_proj', 'o_proj']
    """
    return [f"{name}_proj" for name in job.method.targets]


def every_module(job: Job) -> bool:
    """Whether all linear layers have adapters."""
    return job.method.targets == GROUPS["all"]


def sharded(plan: Plan) -> bool:
    """Whether FSDP shards weights or gradients."""
    return plan.dp > 1 and plan.zero_stage > 0


def checkpoints(plan: Plan) -> bool:
    """Whether the program checkpoints layers itself; FSDP does where it shards."""
    return plan.recompute == "full" and not sharded(plan)


def samples(job: Job, plan: Plan) -> int:
    """Samples of a micro-batch, as programs count: pairs of sequences where the loss compares them."""
    return plan.micro_batch // job.training_loss.together


def trainer_values(job: Job, plan: Plan, own: TuningProgram) -> dict[str, object]:
    """What the Trainer of Hugging Face takes of a plan."""
    return {
        "output_dir": OUTPUT,
        "per_device_train_batch_size": samples(job, plan),
        "gradient_accumulation_steps": plan.num_microbatches,
        **number_format(job, plan),
        "optim": own.optimizer(job),
        **synced(job, plan),
    }


def number_format(job: Job, plan: Plan) -> dict[str, object]:
    """The format of matrix products by the Trainer's keys; bf16, which some take unasked, is denied beside fp16, and
    where weights are `unmixed`.
    """
    return {"fp16": True, "bf16": False} if job.dtype == "fp16" else {"bf16": not unmixed(job, plan)}


def unmixed(job: Job, plan: Plan) -> bool:
    """Whether formats must not be mixed, so that trained weights stay in half precision: Accelerate's FSDP holds them,
    their gradients and moments in fp32 where they are.

    Source: huggingface/accelerate v1.15.0, src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model.
    """
    return sharded(plan) and not job.method.adapts and not job.stack.features.master_bytes


def attention(job: Job, flash: str) -> str:
    """The kernels of attention: FlashAttention-2 by the program's word, on devices with bf16, as its kernels need.

    Source: Dao-AILab/flash-attention, README.md (Ampere, Ada, or Hopper GPUs).
    """
    return flash if "bf16" in job.cluster.device.peak_flops else "sdpa"


def trained_outside(job: Job) -> list[str]:
    """Parts outside of layers that are trained, as Hugging Face calls their modules."""
    return [module for part, module in OUTSIDE.items() if job.method.trains(part)]


def trained_layers(job: Job) -> list[int]:
    """Layers that are trained, counted from 0."""
    return sorted({*range(job.model.layers)} - job.frozen_layers)


def at_an_end(job: Job) -> bool:
    """Whether the layers that are trained are the first or the last ones."""
    these, count = trained_layers(job), job.model.layers
    return these in (list(range(len(these))), list(range(count - len(these), count)))


def adapters(job: Job, rank: str, **others: object) -> dict[str, object]:
    """What PEFT takes of adapters by the program's key of the rank, and `others`; nothing for whole weights."""
    sizes = {rank: job.method.rank, "lora_alpha": 2 * job.method.rank, "lora_dropout": 0.0}
    return {**sizes, **others} if job.method.adapts else {}


def packs(job: Job) -> bool:
    """Whether documents fill sequences together."""
    return job.packing == ON


def whole_weights(job: Job) -> str:
    """In what weights are loaded: those that are trained under a master copy in fp32."""
    if job.stack.features.master_bytes and not job.method.freezes:
        return "float32"
    return "float16" if job.dtype == "fp16" else "bfloat16"


def stored_in_floats(job: Job, plan: Plan) -> dict[str, object]:
    """What has FSDP shard weights of 4 bits: each GPU holds all of those that are stored in integers.

    Source: huggingface/accelerate v1.15.0, src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model.
    """
    return {STORAGE: whole_weights(job)} if job.method.in_nf4 and sharded(plan) else {}


def launched(plan: Plan, alone: str, together: str) -> str:
    """The command of one process, or of one for each GPU."""
    return alone if plan.dp == 1 else together


def accelerate_yaml(job: Job, plan: Plan, own: TuningProgram) -> str:
    """`accelerate launch --config_file` of replicas, or of FSDP2 where it shards; nothing on one GPU."""
    if plan.dp == 1:
        return ""
    mixed = "no" if unmixed(job, plan) else job.dtype
    values = {**cluster_values(job), "mixed_precision": mixed, "distributed_type": "MULTI_GPU"}
    if sharded(plan):
        values |= {"distributed_type": "FSDP", "fsdp_config": fsdp_values(job, plan)}
    return yaml_file([f"{plan.dp} processes, with the file beside it"], dict(sorted(values.items())))
