"""Flags of Megatron-LM and Megatron-DeepSpeed as settings.

Source of the names and defaults: NVIDIA/Megatron-LM, megatron/training/arguments.py and
megatron/core/distributed/distributed_data_parallel.py; deepspeedai/Megatron-DeepSpeed, megatron/arguments.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import lcm, prod
from typing import Any

from optimizer.errors import InvalidFile
from optimizer.plan import Plan
from optimizer.scripts.flags import Flag
from optimizer.scripts.launch import Launch
from optimizer.scripts.machines import LAUNCHER
from optimizer.scripts.megatron_args import COUNTS, LISTS, SWITCHES, TEXTS, read_megatron_arguments
from optimizer.units import is_count
from optimizer.variables import DISPATCHERS

MEGATRON, MEGATRON_DEEPSPEED = "Megatron-LM", "Megatron-DeepSpeed"
BF16_OPTIMIZER = "DeepSpeed's bf16 optimizer shards its states by itself"
MISSPELT = 0.94  # likeness from which on a name counts as another one, misspelt
ULYSSES = "--ds-sequence-parallel-size"
FP32_GRADIENTS = "--accumulate-allreduce-grads-in-fp32"  # which bf16 has by itself, and fp16 has not
BUCKET = 40_000_000  # parameters of a bucket at least
BUCKET_PER_REPLICA = 1_000_000
NAMED: Mapping[str, str] = {**COUNTS, **TEXTS, **LISTS, **SWITCHES}
# Where the reader of arguments and this vocabulary differ, and what a plan's variable is written with.
PLAN_FLAGS: Mapping[str, Sequence[str]] = {
    "tp": ("--tensor-model-parallel-size",),
    "cp": ("--context-parallel-size", ULYSSES),
    "pp": ("--pipeline-model-parallel-size",),
    "vpp": (
        "--num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout",
    ),
    "ep": ("--expert-model-parallel-size", "--moe-expert-parallel-size"),
    "etp": ("--expert-tensor-parallel-size",),
    "micro_batch": ("--micro-batch-size",),
    "global_batch": ("--global-batch-size",),
    "seq_len": ("--seq-length",),
    "sequence_parallel": ("--sequence-parallel",),
    "zero_stage": ("--data-parallel-sharding-strategy", "--zero-stage", "--use-distributed-optimizer"),
    "shard": ("--num-distributed-optimizer-instances",),
    "recompute": (
        "--recompute-granularity",
        "--recompute-activations",
        "--checkpoint-activations",
        "--deepspeed-activation-checkpointing",
    ),
    "overlap_exchange": ("--overlap-moe-expert-parallel-comm",),
    "activation_offload": ("--fine-grained-activation-offloading",),
    "layers_per_stage": (
        "--pipeline-model-parallel-layout",
        "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers",
    ),
    "recompute_first": ("--recompute-num-layers",),
    "dtype": ("--fp8-format", "--fp8-hybrid", "--fp8-e4m3", "--fp4-format", "--bf16", "--fp16"),
}
SHAPE_COUNTS: Mapping[str, str] = {
    "--num-layers": "layers",
    "--hidden-size": "hidden",
    "--ffn-hidden-size": "ffn_hidden",
    "--num-attention-heads": "heads",
    "--kv-channels": "head_dim",
    "--vocab-size": "vocab",
    "--max-position-embeddings": "max_seq_len",
    "--num-experts": "experts",
    "--moe-router-topk": "top_k",
    "--topk": "top_k",
    "--moe-ffn-hidden-size": "expert_ffn",
    "--moe-shared-expert-intermediate-size": "shared_ffn",
    "--shared-moe-ffn-hidden-size": "shared_ffn",
    "--q-lora-rank": "q_rank",
    "--kv-lora-rank": "kv_rank",
    "--qk-head-dim": "nope_dim",
    "--qk-pos-emb-head-dim": "rope_dim",
    "--qk-nope-head-dim": "nope_dim",
    "--qk-rope-head-dim": "rope_dim",
    "--v-head-dim": "v_dim",
    "--mtp-num-layers": "mtp_layers",
    "--window-attn-skip-freq": "window_every",
}
SHAPE_SWITCHES: Mapping[str, tuple[str, Any]] = {
    "--swiglu": ("gated_mlp", True),
    "--quick-geglu": ("gated_mlp", True),
    "--squared-relu": ("activation", "squared-relu"),
    "--untie-embeddings-and-output-weights": ("tied_embeddings", False),
    "--disable-bias-linear": ("mlp_bias", False),
    "--add-qkv-bias": ("attention_bias", True),
    "--qk-layernorm": ("qk_norm", True),
    "--embed-layernorm": ("embedding_norm", True),
    "--use-rotary-position-embeddings": ("position", "rope"),
}
POSITIONS: Mapping[str, str] = {"rope": "rope", "learned_absolute": "learned", "rotary": "rope", "alibi": "alibi"}
TOKENIZERS: Mapping[str, int] = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
SOFTWARE_SWITCHES: Mapping[str, tuple[str, Any]] = {
    "--overlap-grad-reduce": ("reduce_overlap", True),
    "--overlap-param-gather": ("gather_overlap", True),
    "--tp-comm-overlap": ("tp_overlap", True),
    "--no-overlap-p2p-communication": ("p2p_overlap", False),
    "--enable-cuda-graph": ("cuda_graphs", True),
    "--external-cuda-graph": ("cuda_graphs", True),
    "--grad-reduce-in-bf16": ("grad_bytes", 2),
    "--no-gradient-accumulation-fusion": ("fused_accumulation", False),
    "--use-flash-attn": ("attention", "flash"),
    "--use-flash-attn-v2": ("attention", "flash"),
    "--use-flash-attn-builder": ("attention", "flash"),
    "--optimizer-cpu-offload": ("offload", 1.0),
    "--cpu-optimizer": ("offload", 1.0),
}
STATES = ("--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype")
BYTES_OF: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
DISPATCHING = ("--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend")
EXPERT_DEGREES = ("--expert-model-parallel-size", "--moe-expert-parallel-size")
# Embedding and head count as layers when the stages are cut.
COUNTED_ENDS = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
RECOMPUTED = ("--recompute-granularity", "--recompute-method", "--recompute-num-layers")
LENGTHS = ("--train-tokens", "--train-samples", "--train-iters")
# Read with another flag, or the framework's own way to say what is the default here.
QUIET = frozenset(
    {
        "--group-query-attention",
        "--multi-latent-attention",
        "--moe-layer-freq",
        "--offload-modules",
        "--use-precision-aware-optimizer",
        "--optimizer-offload-fraction",
        "--moe-flex-dispatcher-backend",
        "--moe-enable-deepep",
        "--delay-wgrad-compute",
        "--accumulate-allreduce-grads-in-fp32",
        "--enable-zero-bubble",
        "--zero-bubble-max-pending-backward",
        "--num-key-value-heads",
        "--attention-head-type",
        "--main-grads-dtype",
        *COUNTED_ENDS,
        *LENGTHS,
        ULYSSES,
        "--deepspeed",
        "--deepspeed-config",
        "--no-pipeline-parallel",
        "--window-size",
        "--expert-interval",
        "--ddp-bucket-size",
        "--normalization",
        "--position-embedding-type",
        "--attention-backend",
        "--moe-token-dispatcher-type",
        "--cuda-graph-impl",
        "--fp8-hybrid",
        "--fp8-e4m3",
        "--fp4-format",
        "--fp4-recipe",
        "--checkpoint-activations",
        "--deepspeed-activation-checkpointing",
        "--checkpoint-num-layers",
        "--zero-stage",
        "--moe-expert-parallel-size",
        "--pad-vocab-size-to",
        "--tokenizer-type",
    }
)
KEPT: Mapping[str, str] = {
    "--rampup-batch-size": "the batch grows at first; the price is that of the full batch",
    "--step-batch-size-schedule": "the batch grows at first; the price is that of the full batch",
    "--curriculum-learning-legacy": "sequences grow at first; the price is that of the full length",
    "--delay-wgrad-compute": "is not priced",
    "--delay-grad-reduce": "is not priced",
    "--moe-pad-expert-input-to-capacity": "is not priced",
    "--tp-comm-bulk-dgrad": "is not priced",
    "--cpu-offloading-num-layers": "is not priced: activations are taken to stay on the device",
    "--enable-zero-bubble": "the schedule of a fork",
}


def read_flags(launch: Launch, flags: Sequence[Flag]) -> None:
    """Note what the flags of a Megatron program say; InvalidFile's problems go to the launch."""
    last: dict[str, Flag] = {}
    for flag in flags:
        if flag.name in last and last[flag.name].values != flag.values and flag.name in NAMED:
            launch.assumed.append(f"the last {flag.written} counts, {flag.value}; {last[flag.name].value} comes before")
        last[flag.name] = flag
    if any(name in last for name in ("--deepspeed", "--deepspeed-config", "--zero-stage")):
        launch.program = MEGATRON_DEEPSPEED
    _shape(launch, last)
    _software(launch, last)
    _machines(launch, last)
    _plan(launch, last)
    for name, flag in last.items():
        if name in KEPT:
            launch.kept.append(f"{flag.written}: {KEPT[name]}")
        elif not _means(name):
            launch.ignore(flag.written)


def _means(name: str) -> bool:
    known = (NAMED, SHAPE_COUNTS, SHAPE_SWITCHES, SOFTWARE_SWITCHES, QUIET, LAUNCHER, KEPT)
    return any(name in names for names in known)


def _number(launch: Launch, flag: Flag) -> int | None:
    text = flag.value.replace("_", "")
    if is_count(text):
        return int(text)
    launch.problems.append(f"{flag.written} {flag.value}: {_open(flag) or 'no whole number'}")
    return None


def _open(flag: Flag) -> str:
    """What a value hangs on that nobody gave, and how to give it; "" where it is told."""
    if not flag.unknown:
        return ""
    if flag.unknown.isdigit():
        return f"which is argument {flag.unknown} of the script (--args)"
    how = f"--env {flag.unknown}=..., or --args" if flag.unknown.isidentifier() else "--env, --args"
    return f"which hangs on {flag.unknown}, that the script does not set ({how})"


def _shape(launch: Launch, last: Mapping[str, Flag]) -> None:
    for name, key in SHAPE_COUNTS.items():
        if name in last and (number := _number(launch, last[name])) is not None:
            launch.say(key, number, last[name].written)
    for name, (key, value) in SHAPE_SWITCHES.items():
        if name in last:
            launch.say(key, value, last[name].written)
    said = launch.settings
    if said.get("gated_mlp"):
        launch.settings["activation"] = "swiglu"
    if "--add-qkv-bias" not in last and "--disable-bias-linear" not in last:
        said.setdefault("attention_bias", True)
    said.setdefault("mlp_bias", True)
    said.setdefault("attention_bias", False)
    said["attention_out_bias"] = said["mlp_bias"]
    said.setdefault("tied_embeddings", True)
    norm = last.get("--normalization")
    launch.say(
        "norm", "rms" if norm and norm.value.lower().startswith("rms") else "layer", norm.written if norm else ""
    )
    if "--position-embedding-type" in last:
        flag = last["--position-embedding-type"]
        launch.say("position", POSITIONS.get(flag.value, "none"), flag.written)
    else:
        said.setdefault("position", "learned")
    for name in ("--num-query-groups", "--num-key-value-heads"):
        if name in last and (name != "--num-query-groups" or "--group-query-attention" in last):
            number = _number(launch, last[name])
            launch.say("kv_heads", number or 1, last[name].written)
    if "--attention-head-type" in last and last["--attention-head-type"].value == "multiquery":
        launch.say("kv_heads", 1, "--attention-head-type")
    if "--pad-vocab-size-to" in last and "vocab" not in said:
        launch.say("vocab", _number(launch, last["--pad-vocab-size-to"]) or 50257, "--pad-vocab-size-to")
    tokenizer = last["--tokenizer-type"].value if "--tokenizer-type" in last else ""
    if "vocab" not in said and tokenizer in TOKENIZERS:
        launch.say("vocab", TOKENIZERS[tokenizer], "--tokenizer-type")
    if "--window-size" in last:
        digits = last["--window-size"].value.strip("(").partition(",")[0]
        launch.say("window", int(digits) + 1 if is_count(digits) else 0, "--window-size")
    if said.get("experts", 0) <= 1:
        for key in ("experts", "top_k", "expert_ffn"):
            said.pop(key, None)
            launch.written.pop(key, None)
    elif "--moe-layer-freq" in last:
        _layer_pattern(launch, last["--moe-layer-freq"])
    elif "--expert-interval" in last or launch.program == MEGATRON_DEEPSPEED:
        # Megatron-DeepSpeed's mixtures are every second layer, with one expert for each token.
        launch.say("every", _number(launch, last["--expert-interval"]) if "--expert-interval" in last else 2)
        said.setdefault("top_k", 1)
    if "experts" in said:
        said.setdefault("top_k", 2)


def _layer_pattern(launch: Launch, flag: Flag) -> None:
    """Which layers are mixtures, from a number or from a Python list such as ([0]*3+[1]*58)."""
    text = "".join(flag.values).replace(" ", "").strip("\"'")
    if is_count(text):
        launch.say("every", int(text), flag.written)
        return
    pattern: list[str] = []
    for part in text.strip("()").split("+"):
        head, _, count = part.partition("*")
        pattern += head.strip("[]").split(",") * (int(count) if is_count(count) else 1)
    if "1" not in pattern:
        launch.kept.append(f"{flag.written} {text}: every layer is taken to be a mixture")
        return
    launch.say("first_dense", pattern.index("1"), flag.written)
    rest = pattern[pattern.index("1") :]
    every = rest.index("1", 1) if "1" in rest[1:] else 1
    if every > 1:
        # A stride counts from its first dense layer.
        launch.say("first_dense", max(0, pattern.index("1") - every + 1), flag.written)
        launch.say("every", every, flag.written)


def _software(launch: Launch, last: Mapping[str, Flag]) -> None:
    for name, (key, value) in SOFTWARE_SWITCHES.items():
        if name in last:
            launch.say(key, value, last[name].written)
    said = launch.settings
    if launch.program == MEGATRON:
        for key in ("reduce_overlap", "gather_overlap", "tp_overlap"):
            said.setdefault(key, False)
    if "--attention-backend" in last:
        backend = last["--attention-backend"]
        if backend.value in ("unfused", "local"):
            launch.say("attention", "unfused", backend.written)
        elif backend.value in ("flash", "fused"):
            launch.say("attention", "flash", backend.written)
    if "experts" in said:
        _dispatcher(launch, last)
    if "--cuda-graph-impl" in last:
        launch.say("cuda_graphs", last["--cuda-graph-impl"].value != "none", "--cuda-graph-impl")
    if launch.program == MEGATRON and "--fp16" in last and FP32_GRADIENTS not in last:
        launch.say("grad_bytes", 2, last["--fp16"].written)
    if "--main-grads-dtype" in last and last["--main-grads-dtype"].value in ("bf16", "fp16"):
        launch.say("grad_bytes", 2, last["--main-grads-dtype"].written)
    if "--use-precision-aware-optimizer" in last and any(name in last for name in STATES):
        sizes = [BYTES_OF.get(last[name].value, 4) if name in last else 4 for name in STATES]
        first = next(name for name in STATES if name in last)
        launch.say("optimizer_bytes", sum(sizes), last[first].written)
    if "--optimizer-cpu-offload" in last and "--optimizer-offload-fraction" in last:
        flag = last["--optimizer-offload-fraction"]
        try:
            launch.say("offload", min(1.0, max(0.0, float(flag.value))), flag.written)
        except ValueError:
            wrong = f"must be a share from 0 to 1, but got {flag.value!r}"
            launch.problems.append(f"{flag.written} {_open(flag) or wrong}")
    if "--ddp-bucket-size" in last and (number := _number(launch, last["--ddp-bucket-size"])):
        launch.say("bucket_params", number, last["--ddp-bucket-size"].written)


def _dispatcher(launch: Launch, last: Mapping[str, Flag]) -> None:
    """How tokens travel where experts are spread: flex takes DeepEP unless it is told otherwise."""
    spread = any(name in last and last[name].value not in ("", "1") for name in EXPERT_DEGREES)
    kind, backend = map(last.get, DISPATCHING)
    if kind is None or kind.value != "flex" or not spread:
        launch.say("dispatcher", DISPATCHERS[0], kind.written if kind and kind.value != "flex" else "")
        return
    launch.say("dispatcher", backend.value if backend else "deepep", (backend or kind).written)
    if launch.settings["dispatcher"] not in DISPATCHERS[1:]:
        launch.problems.append(
            f"{DISPATCHING[1]} must be {' or '.join(DISPATCHERS[1:])}, but got {launch.settings['dispatcher']!r}"
        )


def _machines(launch: Launch, last: Mapping[str, Flag]) -> None:
    for name, key in LAUNCHER.items():
        if name not in last:
            continue
        text = last[name].value.partition(":")[2] or last[name].value
        if is_count(text) and int(text) > 0:
            launch.say(key, int(text), last[name].written)


def _plan(launch: Launch, last: Mapping[str, Flag]) -> None:
    """The plan by the reader of arguments, for the GPUs that the launch has so far."""
    said = launch.settings
    if "--micro-batch-size" not in last:
        launch.problems.append("--micro-batch-size is missing")
    if launch.problems:
        return
    needs = _needed(launch, last)
    gpus = said.get("gpus") or _told(launch, last)
    if gpus % needs and not said.get("gpus_given"):
        launch.assumed.append(f"{needs:,} GPUs: the {gpus:,} of the launch cannot hold its plan (--gpus)")
        gpus = needs
    said["gpus"] = gpus
    opened = [flag for name, flag in last.items() if name in COUNTS and name not in LAUNCHER and flag.unknown]
    launch.problems += [f"{flag.written} {flag.value}: {_open(flag)}" for flag in opened]
    if launch.problems:
        return
    count = last.get("--recompute-num-layers")
    nothing = RECOMPUTED if count and count.value == "0" else ()  # full recomputation of no layer is none
    passed: list[str] = []
    for name, flag in last.items():
        if name in nothing:
            continue
        if name in NAMED and name not in LAUNCHER:
            values = [value.replace("_", "") if name in COUNTS else value for value in flag.values]
            passed += [name, *(values if name in LISTS else values[:1] if name not in SWITCHES else [])]
        elif not _means(name) and (close := get_close_matches(name, NAMED, n=1, cutoff=MISSPELT)):
            launch.problems.append(f"unknown argument {flag.written}; did you mean {close[0]}?")
    passed += _deepspeed_flags(launch, last)
    if launch.program == MEGATRON_DEEPSPEED or any(name in last for name in COUNTED_ENDS):
        # These split the layers as evenly as can be, so that the reader need not find them divisible.
        passed = _divisible(passed, last)
    if "--global-batch-size" not in last:
        micro, replicas = _number(launch, last["--micro-batch-size"]) or 1, max(1, gpus // _ranks(launch, last))
        passed += ["--global-batch-size", str(micro * replicas)]
        launch.assumed.append(
            f"global batch of {micro * replicas:,}, one micro-batch of each replica, as Megatron does"
        )
    try:
        plan, job = read_megatron_arguments(" ".join(passed) + " ", gpus)
    except InvalidFile as error:
        launch.problems += error.problems
        if any(sentence.startswith("one node") for sentence in launch.assumed):
            launch.problems.append(f"it is taken to run on {gpus} GPUs, for it does not say on how many: give --gpus")
        return
    _note(launch, last, plan, job)


def _told(launch: Launch, last: Mapping[str, Flag]) -> int:
    """Nodes times their GPUs; what the launch leaves open is one node, of eight GPUs."""
    said = launch.settings
    opened = [flag for name, flag in last.items() if LAUNCHER.get(name) in ("nodes", "gpus") and flag.unknown]
    if "nodes" not in said:
        why = f"{opened[0].written} hangs on {opened[0].unknown}" if opened else "the launch names no other number"
        launch.assumed.append(f"one node: {why} (--gpus)")
    usual = 1 if said.get("alone") else 8
    if "gpus_per_node" not in said:
        launch.assumed.append(
            "one GPU: nothing starts more processes (--gpus)" if usual == 1 else "8 GPUs on a node (--gpus)"
        )
    return int(said.get("nodes", 1) * said.get("gpus_per_node", usual))


def _degree(launch: Launch, last: Mapping[str, Flag], name: str, default: int = 1) -> int:
    return (_number(launch, last[name]) or default) if name in last else default


def _ranks(launch: Launch, last: Mapping[str, Flag]) -> int:
    """GPUs of one replica."""
    names = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size", ULYSSES)
    return prod(_degree(launch, last, name) for name in names)


def _needed(launch: Launch, last: Mapping[str, Flag]) -> int:
    """The number of GPUs of which the launch's must be a multiple: replicas, and experts on those of a stage."""
    pp = _degree(launch, last, "--pipeline-model-parallel-size")
    if launch.settings.get("experts", 0) <= 1:
        return _ranks(launch, last)
    tp = _degree(launch, last, "--tensor-model-parallel-size")
    etp = _degree(launch, last, "--expert-tensor-parallel-size", tp)
    ep = _degree(launch, last, EXPERT_DEGREES[launch.program == MEGATRON_DEEPSPEED])
    return pp * lcm(_ranks(launch, last) // pp, etp * ep)


def _divisible(passed: list[str], last: Mapping[str, Flag]) -> list[str]:
    """The arguments with as many layers as fill every stage."""
    place, stages = passed.index("--num-layers") + 1 if "--num-layers" in passed else 0, 1
    if "--pipeline-model-parallel-size" in last:
        value = last["--pipeline-model-parallel-size"].value
        stages = max(1, int(value)) if is_count(value) else 1
    if place and is_count(passed[place]):
        passed[place] = str(-(-int(passed[place]) // stages) * stages)
    return passed


def _deepspeed_flags(launch: Launch, last: Mapping[str, Flag]) -> list[str]:
    """What Megatron-DeepSpeed spells in its own way, as Megatron-LM does."""
    found: list[str] = []
    if ULYSSES in last:
        found += ["--context-parallel-size", last[ULYSSES].value]
        launch.kept.append(f"{last[ULYSSES].written}: the parallelism of sequences is priced as context parallelism")
    if "--moe-expert-parallel-size" in last and launch.settings.get("experts", 0) > 1:
        found += ["--expert-model-parallel-size", last["--moe-expert-parallel-size"].value]
    if any(name in last for name in ("--checkpoint-activations", "--deepspeed-activation-checkpointing")):
        found += ["--recompute-granularity", "full"] if "--recompute-granularity" not in last else []
    return found


def _note(launch: Launch, last: Mapping[str, Flag], plan: Plan, job: Mapping[str, Any]) -> None:
    """Put the plan into the vocabulary, with the flag that says each variable."""
    zero = launch.settings.get("zero_stage", plan.zero_stage)
    if "--zero-stage" in last:
        zero = _number(launch, last["--zero-stage"])
        if zero == 0 and job["dtype"] == "bf16":
            zero = 1
            launch.assumed.append(f"{last['--zero-stage'].written} 0 with bf16 shards as ZeRO-1: {BF16_OPTIMIZER}")
    values = {name: getattr(plan, name) for name in PLAN_FLAGS if hasattr(plan, name)} | {"zero_stage": zero}
    values |= {name: job[name] for name in ("global_batch", "seq_len", "dtype")}
    if "--fp4-format" in last:
        values["dtype"] = "fp4"
    elif "--fp8-hybrid" in last or "--fp8-e4m3" in last:
        values["dtype"] = "fp8"
    if not any(name in last for name in PLAN_FLAGS["dtype"]):
        launch.assumed.append("bf16: the launch names no number format (Megatron's own default is fp32)")
    for name, value in values.items():
        said_so = value != () and (value or name != "recompute_first")
        flag = next((flag for flag in PLAN_FLAGS[name] if flag in last), "") if said_so else ""
        launch.say(name, value, last[flag].written if flag else "")
    launch.settings |= {"dp": plan.dp, "num_microbatches": plan.num_microbatches, "schedule": plan.schedule}
    launch.settings["mtp_ahead"] = plan.mtp_ahead
    sizes = {LENGTHS[0]: 1, LENGTHS[1]: job["seq_len"], LENGTHS[2]: job["seq_len"] * job["global_batch"]}
    length = next((name for name in LENGTHS if name in last), "")
    if length and is_count(number := last[length].value.replace("_", "")):
        launch.say("tokens", int(number) * sizes[length], last[length].written)
    if "--enable-zero-bubble" in last:
        launch.say("schedule", "zero-bubble", last["--enable-zero-bubble"].written)
    width = launch.settings.get("grad_bytes", 4)
    launch.settings["bucket"] = launch.settings.pop(
        "bucket_params", max(BUCKET, BUCKET_PER_REPLICA * plan.dp * plan.cp)
    ) * float(width)
    if "--ddp-bucket-size" in last:
        launch.written["bucket"] = "--ddp-bucket-size"
        launch.written.pop("bucket_params", None)
