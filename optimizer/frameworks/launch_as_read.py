"""From a launch to what can be priced: the job, the plan that it runs, its knobs; what it leaves open is assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from optimizer.base.errors import InvalidFile
from optimizer.base.units import GB
from optimizer.catalog import load_cluster, load_device, load_stack, preset_cluster
from optimizer.catalog.hardware import with_network
from optimizer.catalog.readers.model_file import impossible
from optimizer.frameworks.every import FRAMEWORKS
from optimizer.frameworks.framework import Framework
from optimizer.frameworks.launch import GROUPS, LARGEST_COUNT, PLAN, Launch
from optimizer.frameworks.maxtext.config import MAXTEXT, MEMORY_SHARES, OWN_SHARE
from optimizer.frameworks.shape import model_of
from optimizer.frameworks.software import switched, widened
from optimizer.job.fields import EXPECTED, LIMITS, SHARE
from optimizer.job.hardware import Cluster, Device
from optimizer.job.job import EVEN_RISK, Job, Limits
from optimizer.job.lengths import OFF, ON
from optimizer.job.method import FULL
from optimizer.job.model import Model
from optimizer.job.plan import Knobs, Plan, Plans, balanced
from optimizer.job.stack import Stack
from optimizer.objectives.kernels.activations import offloaded_modules
from optimizer.objectives.pipeline.stages import filled_stages
from optimizer.objectives.step.host_memory import least_weights_on_host

DEFAULT_CLUSTER = "dgx-h100"
LONGEST = 8192
# What one GPU reaches to a node's drives while all of them do, each way: 25 GB/s of eight drives for the 16 GPUs of a
# DGX-2; Rajbhandari et al., arXiv 2104.07857, figure 2b. Grade C: newer nodes have faster drives and fewer GPUs.
DRIVES = 1.6e9  # [B/s]
# Names that nothing reads and that may say how long sequences are, but not those of what is generated or evaluated.
LENGTH = re.compile(
    r"^(?!.*(?:new|gen|eval|max_prompt|max_response|lora_ga)).*(?:max_(?:\w+_)?(?:len|tokens)|seq_?len|context_len|block_size)",
    re.IGNORECASE,
)
MOST_LAYERS, MOST_SHARDED = 10_000, 3
COUNTED: Mapping[str, str] = {
    **GROUPS["machines"],
    **PLAN,
    **GROUPS["model"],
    "seq_len": "tokens of a sequence",
    "global_batch": "batch",
}
OPTIONAL = (
    *("zero_stage", "shard", "activation_offload", "mtp_ahead", "recompute_first", "mtp_layers"),
    *("q_rank", "shared_ffn", "first_dense", "window", "window_every", "experts", "top_k"),
)


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What the user says besides the files; "" and None leave it to them. `limits` are fields of optimizer.job.Limits.

    `limits` without bounds of its own are as wide as the plan that runs needs.
    """

    model: str = ""
    device: str = ""
    cluster: str = ""
    stack: str = ""
    gpus: int | None = None
    seq_len: int | None = None
    global_batch: int | None = None
    hbm: float = 0.0
    lengths: str = ""


@dataclass(frozen=True, kw_only=True)
class LaunchAsRead:
    """A launch to be priced.

    Attributes:
        launch: what its files say.
        framework: what it trains with.
        job: its job, whose stack is switched as the launch says.
        plan: its plan.
        knobs: its continuous settings.
        settings: what the files say and what was assumed, by the names of a launch.
        stack: the job's software with nothing switched.
    """

    launch: Launch
    framework: Framework
    job: Job
    plan: Plan
    knobs: Knobs
    settings: Mapping[str, Any]
    stack: Any

    @property
    def splits_sequences(self) -> bool:
        """Whether the program splits sequences wherever it splits tensors."""
        return self.framework.sequence_parallel or self.launch.splits_sequences


def launch_as_read(launch: Launch, controls: Controls, name: str) -> LaunchAsRead:
    """The question that a launch asks; what was assumed is added to it.

    Raises InvalidFile with everything that is missing or contradicts itself.
    """
    settings = dict(launch.settings)
    problems = [*launch.problems, *_absurd(settings)]
    if problems:
        raise InvalidFile(name, problems)
    model = model_of(launch, controls.model)
    if model is None:
        unknown = next((sentence for sentence in launch.unsearched if "is no model that is known" in sentence), "")
        problems.append(f"{unknown.removesuffix(' (--model)') or 'the model is not told'}: give --model")
    problems += impossible(model) if model else []
    gpus = controls.gpus or _gpus(settings)
    if not gpus:
        problems.append("the number of GPUs is not told: give --gpus")
    if problems or model is None or not gpus:
        raise InvalidFile(name, problems)
    cluster = _cluster(launch, controls)
    framework = FRAMEWORKS[launch.program]
    software = settings.pop("software", "")
    stack = load_stack(controls.stack or software or framework.stack)
    if settings.get("liger") == OFF and "liger" not in stack.features.switchable:
        del settings["liger"]
    if not controls.stack:
        launch.assumed.append(f"{software or launch.program} behaves as the stack {stack.name} (--stack)")
    settings["seq_len"] = controls.seq_len or settings.get("seq_len") or min(model.max_seq_len, LONGEST)
    if not (controls.seq_len or launch.settings.get("seq_len")):
        launch.length = settings["seq_len"]
        launch.assumed.append(f"sequences of {launch.length:,} tokens (--seq-len)")
        launch.unpriced += [f"{name}, which may be the length" for name in launch.ignored if LENGTH.search(name)]
    settings["gpus"] = gpus
    own = gpus // settings["nodes"] if settings.get("nodes", 1) > 1 else cluster.gpus_per_node
    if settings.pop("hybrid", False) and own < gpus:
        settings.setdefault("shard", own)
    if "packing" in settings and not controls.lengths:
        how = "packed sequences" if settings["packing"] else "sequences without packing"
        launch.assumed.append(f"{how} are full and one document each: how long documents are is not told (--lengths)")
    if settings.get("packing") and settings.get("loss"):
        packs = launch.written.get("packing", "packing")
        problems.append(f"{packs}: --loss {settings['loss']} compares sequences one by one, which none packs")
    if not framework.graphs:
        settings |= {"cuda_graphs": settings.get("cuda_graphs", False), "graphed": settings.get("graphed", ())}
    plan = plan_of(launch, settings, gpus, controls.global_batch, problems)
    if problems:
        raise InvalidFile(name, problems)
    if sum(plan.layers_per_stage) != model.layers:  # counted with the embedding and the head: the program splits them
        plan = replace(plan, layers_per_stage=())
    plan = as_split(plan, model, stack)
    if plan.pp > 1 and not plan.layers_per_stage and model.layers % plan.pp == 0:
        plan = replace(plan, layers_per_stage=balanced(model.layers, plan.pp))
    offered = framework.zero_stages
    if settings.pop("fsdp", False):
        offered = tuple(stage for stage in offered if stage != 1)
    stack = widened(stack, settings, offered)
    dtype = str(settings.get("dtype", "bf16"))
    if dtype == "bf16" and "bf16" not in cluster.device.peak_flops:
        launch.assumed.append(f"fp16, because {cluster.device.name} has no bf16")
        dtype = "fp16"
    memory = controls.hbm or _memory(launch, cluster.device, stack["context_memory"])
    job = Job(
        model=model,
        cluster=cluster,
        stack=switched(stack, settings, plan.zero_stage),
        gpus=gpus,
        seq_len=settings["seq_len"],
        global_batch=plan.dp * plan.micro_batch * plan.num_microbatches,
        dtype=dtype,
        prefer=EXPECTED,
        train=str(settings.get("train", FULL)),
        base=str(settings.get("base", "")),
        optimizer=str(settings.get("optimizer", "")),
        lengths=controls.lengths,
        packing=ON if settings.get("packing") else OFF,
        loss=str(settings.get("loss", "")),
        limits=_limits(launch, cluster, plan, settings["seq_len"], memory),
    )
    if modules := settings.pop("offload_modules", ()):  # of which all are priced on the host
        resident = [name for name in offloaded_modules(model, plan.recompute) if name not in modules]
        without = f"{launch.written['offload_modules']} without {', '.join(resident)}"
        launch.unpriced += [f"{without}, which are priced on the host too"] * bool(resident)
    if job.tower is not None:
        seen = f"one image of {job.tower.image_tokens:,} tokens in each sequence, whatever size the files name"
        unseen = "the passes of the vision tower cost nothing: how many tokens an image has is not told"
        launch.assumed.append(seen if job.tower.image_tokens else unseen)
    elif model.tower is not None and (controls.model or "model" in launch.written):
        launch.unpriced.append(f"the vision tower of {model.name}: neither its weights nor its passes")
    if plan.micro_batch > job.largest_micro_batch:
        job = job.with_limits(max_micro_batch=plan.micro_batch)
    share = settings["blocks"] / cluster.device.sms if "blocks" in settings else Knobs().comm_sm_share
    offload = settings.get("offload", 0.0)
    knobs = Knobs(bucket=bucket_of(settings), comm_sm_share=min(0.3, max(0.01, share)), offload=offload)
    if knobs.bucket != settings.get("bucket", knobs.bucket):
        launch.unsearched.append(
            f"a gradient bucket of {settings['bucket'] / 1e9:.2g} GB is priced as {knobs.bucket / 1e9:.2g} GB"
        )
    if steps := settings.get("steps") or _steps(job, settings.get("samples", 0.0)):
        settings.setdefault("tokens", steps * job.tokens)
    if hosted := float(least_weights_on_host(job, Plans.of([plan]))[0]):
        launch.assumed.append(f"{hosted / GB:,.0f} GB of host memory for each GPU, where weights and their updates are")
    return LaunchAsRead(
        launch=launch, framework=framework, job=job, plan=plan, knobs=knobs, settings=settings, stack=stack
    )


def _steps(job: Job, samples: float) -> float:
    """Steps in which a run sees so many samples; 0 where these share sequences and how many do is not told."""
    own = job.documents
    if job.packing == ON and own is None:
        return 0.0
    each = own.mean / job.seq_len if own is not None and own.packed else job.training_loss.together
    return samples * each / job.global_batch


def _absurd(settings: Mapping[str, Any]) -> list[str]:
    """Counts that none can be."""
    counts = {name: value for name, value in settings.items() if name in COUNTED and type(value) is int}
    problems = [
        f"{COUNTED[name]} must be from {int(name not in OPTIONAL)} to {LARGEST_COUNT:,}, but is {value}"
        for name, value in counts.items()
        if not int(name not in OPTIONAL) <= value <= LARGEST_COUNT
    ]
    if settings.get("zero_stage", MOST_SHARDED) not in range(MOST_SHARDED + 1):
        problems.append(f"{COUNTED['zero_stage']} must be from 0 to {MOST_SHARDED}, but is {settings['zero_stage']}")
    if not problems and settings.get("layers", MOST_LAYERS) > MOST_LAYERS:
        problems.append(f"layers must be at most {MOST_LAYERS:,}, but are {settings['layers']:,}")
    if not problems and {"hidden", "heads"} <= settings.keys() and settings["hidden"] < settings["heads"]:
        problems.append(f"{settings['heads']:,} heads do not fit into a width of {settings['hidden']:,}")
    return problems


def as_split(plan: Plan, model: Model, stack: Stack) -> Plan:
    """The plan with its layers where software that fills stages itself puts them, unless the plan says where."""
    if plan.pp == 1 or plan.layers_per_stage or not stack.features.filled_stages:
        return plan
    return replace(plan, layers_per_stage=filled_stages(model, plan.pp))


def _gpus(settings: Mapping[str, Any]) -> int:
    if "gpus" in settings:
        return int(settings["gpus"])
    if "nodes" in settings and "gpus_per_node" in settings:
        return int(settings["nodes"]) * int(settings["gpus_per_node"])
    degrees = [int(settings.get(name, 1)) for name in ("tp", "cp", "pp")]
    return int(settings["dp"]) * degrees[0] * degrees[1] * degrees[2] if "dp" in settings else 0


def _cluster(launch: Launch, controls: Controls) -> Cluster:
    """The machine of a launch, whose host is its drives where the launch offloads to these."""
    cluster = _machine(launch, controls)
    if not launch.drives or controls.cluster:
        return cluster
    reach = f"drives of {DRIVES / GB:.1f} GB/s a GPU"
    launch.assumed.append(f"{launch.drives} nvme: {reach} and room enough (host_bandwidth of a --cluster file)")
    return replace(cluster, host_bandwidth=min(cluster.host_bandwidth, DRIVES), host_memory=0.0)


def _machine(launch: Launch, controls: Controls) -> Cluster:
    """The machine that the user names, the site of the launch, the usual one of its device, else a guess.

    Nodes of fewer GPUs than the usual one of a device has are nodes of so many.
    """
    if controls.cluster:
        return load_cluster(controls.cluster)
    device = load_device(controls.device).name if controls.device else launch.settings.get("device", "")
    site = "" if controls.device else launch.settings.get("site", "")
    cluster = preset_cluster(site or device or DEFAULT_CLUSTER)
    if controls.device:
        launch.assumed.append(f"cluster {cluster.name} (--cluster)")
    else:
        named_by = "site" if site else "device"
        why = f"{launch.written[named_by]} names {site or device}" if named_by in launch.written else "not told"
        launch.assumed.append(f"cluster {cluster.name} of {cluster.device.name}, {why} (--cluster, --device)")
        launch.machine = "" if site or device else cluster.name
        none = "no device that is known" if launch.family.startswith("gpu:") else "whose kind is not told"
        untold = f"{launch.family}, {none} (--device)"
        if launch.machine and launch.family and untold not in launch.unpriced:
            launch.unpriced.append(untold)
    nodes = launch.settings.get("nodes", 1)
    own = launch.settings.get("gpus_per_node") or launch.settings.get("gpus", 0) // nodes
    if nodes > 1 and 1 < own < cluster.gpus_per_node and cluster.scale_up_size == cluster.gpus_per_node:
        launch.assumed.append(f"nodes of {own} GPUs, one domain each, as the launch says")
        cluster = replace(with_network(cluster, scale_up_size=own), gpus_per_node=own)
    elif own > cluster.gpus_per_node and "gpus_per_node" in launch.written:
        path = launch.written["gpus_per_node"]
        launch.unpriced.append(f"{path} {own}: nodes of {cluster.name} have {cluster.gpus_per_node} (--cluster)")
    return cluster


def plan_of(launch: Launch, settings: dict[str, Any], gpus: int, batch: int | None, problems: list[str]) -> Plan:
    """The plan in a launch's settings on so many GPUs; what contradicts itself goes to the problems."""
    tp, cp, pp = (int(settings.get(name, 1)) for name in ("tp", "cp", "pp"))
    if gpus % (tp * cp * pp):
        problems.append(f"tp x cp x pp = {tp} x {cp} x {pp} does not divide {gpus:,} GPUs (--gpus)")
        return Plan()
    dp = gpus // (tp * cp * pp)
    ep, etp = (int(settings.get(name) or 1) for name in ("ep", "etp"))
    if tp * cp * dp % (ep * etp):
        problems.append(
            f"ep x etp = {ep} x {etp} does not divide the {tp * cp * dp:,} GPUs of a pipeline stage (--gpus)"
        )
        return Plan()
    micro = settings.get("micro_batch")
    batch = batch or settings.get("global_batch")
    count = settings.get("num_microbatches") if "num_microbatches" in launch.written else None
    if micro is None:
        micro = batch // (dp * count) if batch and count and batch % (dp * count) == 0 else 0
        launch.guessed_micro_batch = int(not micro)
        micro = micro or 1
        launch.assumed.append(f"micro-batches of {micro}")
    if batch is None:
        batch = dp * micro * (count or 1)
        why = f"{dp} replicas x {micro} x {count or 1}"
        launch.assumed.append(f"global batch of {batch:,} sequences, {why} (--global-batch)")
    if batch % (dp * micro):
        problems.append(f"a global batch of {batch:,} is no multiple of dp x micro-batch = {dp:,} x {micro}")
        return Plan()
    vpp = int(settings.get("vpp", 1)) if pp > 1 else 1
    values = {name: settings[name] for name in PLAN if name in settings}
    schedule = str(settings.get("schedule", "1f1b"))
    values |= {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "vpp": vpp,
        "dp": dp,
        "micro_batch": int(micro),
        "num_microbatches": batch // (dp * micro),
        "sequence_parallel": bool(settings.get("sequence_parallel")) and tp > 1,
        "schedule": schedule if schedule.startswith("zero-bubble") else "interleaved" if vpp > 1 else "1f1b",
        "layers_per_stage": tuple(settings.get("layers_per_stage", ())),
        "recompute_first": int(settings.get("recompute_first", 0)),
    }
    settings |= {name: values[name] for name in ("dp", "num_microbatches", "micro_batch")}
    settings["global_batch"] = batch
    return Plan(**values)


def _limits(launch: Launch, cluster: Cluster, plan: Plan, seq_len: int, memory: float) -> Limits:
    """Limits that the plan keeps: what runs today is to be compared, not ruled out. What a program cannot do is out."""
    framework = FRAMEWORKS[launch.program]
    only = dict(framework.only)
    if "dispatcher" not in framework.settable:
        only["dispatcher"] = ()
    only |= dict.fromkeys((name for name in launch.fixed if name in PLAN), ())
    choices = {name: tuple(sorted({*values, getattr(plan, name)})) for name, values in only.items()}
    # Shares are as wide as can be, a variable may be what it is by default and in the plan.
    widest: dict[str, Any] = {
        name: float(limit.high) for name, limit in LIMITS.items() if limit.kind == SHARE and limit.default
    }
    widest |= {name: max(limit.default, getattr(plan, limit.of)) for name, limit in LIMITS.items() if limit.of}
    widest |= {"max_tp": max(cluster.scale_up_size, plan.tp), "max_micro_batch": 0}
    return Limits(
        **widest,
        fixed={name: values[0] for name, values in choices.items() if len(values) == 1},
        choices={name: values for name, values in choices.items() if len(values) > 1},
        hbm=memory,
        oom_risk=EVEN_RISK,
        min_cp_tokens=max(1, min(LIMITS["min_cp_tokens"].default, seq_len // plan.cp)),
    )


def _memory(launch: Launch, device: Device, outside: float) -> float:
    """What a program takes of each device's memory, with what lies outside of it, 0 for all there is [B]."""
    if launch.program != MAXTEXT or device.vendor == "Google":
        return 0.0
    if not launch.memory_share:
        name = MEMORY_SHARES[-1]
        launch.assumed.append(f"{name} gives JAX all of each GPU's memory: without it JAX takes {OWN_SHARE:.0%}")
        return 0.0
    own = f"{launch.written['memory_share']} {launch.memory_share:g}"
    launch.assumed.append(f"{own}: no more of each GPU's memory than that")
    return min(device.memory, launch.memory_share * device.memory + outside)


def bucket_of(settings: Mapping[str, Any]) -> float:
    """The gradient bucket of a launch within what is priced [B]."""
    return float(min(1e9, max(10e6, settings.get("bucket", Knobs().bucket))))


def settings_of(question: LaunchAsRead, plan: Plan, turned: Mapping[str, Any] = {}) -> dict[str, Any]:
    """The settings with which a launch runs another plan.

    Args:
        question: the launch.
        plan: the other plan.
        turned: settings that are changed besides.

    Returns:
        Settings by name: those changed, those that the files state, and what the program makes of the rest.
    """
    follows = question.launch.following(plan)
    settings = {**question.settings, **follows, **turned}
    return {name: value for name, value in settings.items() if follows.get(name, value) is not None}


def with_stack(question: LaunchAsRead, settings: Mapping[str, Any], zero_stage: int) -> Job:
    """The job with its stack switched as other settings say."""
    return replace(question.job, stack=switched(question.stack, settings, zero_stage))
