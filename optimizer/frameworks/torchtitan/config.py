"""torchtitan's TOML, and its Python configs in the same keys.

Source of the keys and defaults: pytorch/torchtitan, torchtitan/config/job_config.py, since 2026 configs.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from optimizer.catalog import preset_model
from optimizer.frameworks.config.file import PYTHON, ConfigFile
from optimizer.frameworks.config.launch import (
    ConfigKey,
    ConfigLaunch,
    Values,
    key_tables,
    keyed_launch,
    named_values,
    note_keys,
    rest,
    take,
    take_steps,
    tied,
    whole,
)
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.machines import device_in
from optimizer.frameworks.shape import named
from optimizer.frameworks.torchtitan.models import MODELS, OLD
from optimizer.frameworks.torchtitan.python import CHUNKS
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.stack import FP8_RECIPES, MXFP8

PARALLEL, PIPES = "parallelism.", "experimental."
# Older configs have the degrees in [training] and [experimental].
SECTIONS = ("parallelism.", "training.", "experimental.")
TABLES = key_tables("torchtitan")
DEGREES: Mapping[str, str] = TABLES["plan"]
REPLICATE, SHARD = "data_parallel_replicate_degree", "data_parallel_shard_degree"
DATA = "training.data_parallel_degree"  # of both, until 2024-10
RESHARD, SCHEDULE, SLICE = (
    "fsdp_reshard_after_forward",
    "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size",
)
OLD_PIPELINE = "experimental.pipeline_parallel_degree"
SLICES = "experimental.pipeline_parallel_microbatches"  # until 2025-03 their number, as many as stages by default
LOCAL = ("training.local_batch_size", "training.batch_size")  # the second until 2025-06
GLOBAL, LENGTH, STEPS = "training.global_batch_size", "training.seq_len", "training.steps"
# Since the summer of 2026 batches are counted in tokens, and a pipeline's micro-batches by their number.
LOCAL_TOKENS, STEP_TOKENS = "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step"
LONGEST, PIPED = "training.max_context_length", "parallelism.num_pp_microbatches"
LEAST_TOKENS = 16_384
ASSETS = "hf_assets_path"
SEQUENCE = "parallelism.enable_sequence_parallel"
NARROW = re.compile("float8|mx", re.IGNORECASE)
NARROWING = ("quantize.", "float8.", "mx.")  # what these say counts where a converter is named
NAME, FLAVOR, MODE = "model.name", "model.flavor", "activation_checkpoint.mode"
OPTION, BY_OPERATION = "activation_checkpoint.selective_ac_option", "op"  # else every so many layers, 2 by default
ASYNC = ("parallelism.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")
COMPILE = ("compile.enable", "training.compile")  # the second until 2025-07
COMPILED_PARTS = "compile.components"
# Values with a price; with a memory_budget the compiler chooses what is recomputed, and weights or gradients of other
# formats, or an optimizer that is not fused, are not priced.
KNOWN: Mapping[str, Sequence[str]] = TABLES["values"]
# Of 8-bit operands: torchao's scales, one for each operand unless told, and those of MX.
# Source: pytorch/torchtitan v0.2.2, torchtitan/config/job_config.py, Float8Linear and MXLinear.
EIGHT_BITS: Mapping[str, Sequence[str]] = {
    "float8": ("quantize.linear.float8.", "float8."),
    "mx": ("quantize.linear.mx.", "mx."),
}
LINEAR, GROUPED = "quantize.linear.float8", "quantize.grouped_mm.float8"
WIDE, NARROW_EXPERTS = f"{LINEAR}.filter_fqns", f"{GROUPED}.fqns"  # parts of names of layers
# Releases that count in tokens have one for each row: torchtitan/components/quantization/float8.py of 2026-04.
BY_ROW, WIDE_GRADIENTS = "rowwise", "rowwise_with_gw_hp"
RECIPE, WOVEN = "recipe_name", "interleaved1f1b"
LOCAL_BATCH, SEQUENCES = 8, 2048  # where no key says it; torchtitan/config/job_config.py, Training
NARROWED = ("float8.enable_float8_linear", "training.enable_float8_linear", "training.enable_fp8_linear")  # in 2024
PARTS, CONVERTERS = "parallelism.module_fqns_per_model_part", "model.converters"
KEYS = (
    ConfigKey("loss_chunks", (CHUNKS,), lambda parts: parts if isinstance(parts, int) and parts > 0 else None),
    ConfigKey(
        "recompute", (MODE,), lambda mode: mode if mode in ("none", "selective", "full") else "selective", "selective"
    ),
    ConfigKey("tp_overlap", ASYNC, bool, False),
    *(ConfigKey("tp_overlap", (path,), lambda on: True if on else None) for path in reversed(ASYNC)),
    ConfigKey("compiled", COMPILE, bool, False),
    ConfigKey("dtype", (), str, "bf16"),
    ConfigKey("dtype", (CONVERTERS,), lambda names: "fp8" if any(map(NARROW.search, _names(names))) else None),
    ConfigKey("dtype", NARROWED, lambda on: "fp8" if on else None),
    ConfigKey("grad_bytes", ("training.mixed_precision_reduce",), lambda name: 2 if name == "bfloat16" else None),
    # Weights in bf16 have gradients and moments in it, and no other copy.
    ConfigKey("optimizer_bytes", ("training.dtype",), lambda name: 4 if name == "bfloat16" else None),
    ConfigKey("grad_bytes", ("training.dtype",), lambda name: 2 if name == "bfloat16" else None),
)
# Of releases in Python, since 0.3 with classes for checkpoints of activations: these capture graphs unless told not to.
UNGRAPHED, CLASSES = "training.disable_cuda_graphs", re.compile(r"\b(?:Full|Selective)AC\b|disable_cuda_graphs")
UNPIPED, FLEXIBLE = ("qwen3", "gpt_oss"), ("deepseek_v3",)
OWN = ("job", "parallelism", "experimental", "activation_checkpoint", "metrics", "float8", "comm")
COUNTED = re.compile(r"\b(\d+)\s+(?:([A-Z]\d+)\s+)?GPUs?\b")


def recognised(values: Values) -> bool:
    """Whether a TOML is torchtitan's: by keys that no other program has, or by names of its sections beside them.

    >>> recognised({"training.batch_size": 8, "model.n_layers": 28}), recognised({"training.seq_len": 8, "job.x": 1})
    (False, True)
    """
    if any(path in values for path in (FLAVOR, LOCAL[0], LOCAL_TOKENS, LONGEST)):
        return True
    own = any(path.partition(".")[0] in OWN or path in (NAME, CONVERTERS) for path in values)
    return own and any(path in values for path in (LOCAL[1], LENGTH))


def odd(converter: str) -> bool:
    """Whether a converter of the model does something else than narrow all its products to 8 bits.

    >>> [odd(name) for name in ("float8", "quantize.linear.mx", "quantize.grouped_mm.float8", "nvfp4")]
    [False, False, True, True]
    """
    return not NARROW.search(converter) or any(mark in converter.lower() for mark in ("fp4", "grouped"))


def _names(value: Any) -> list[str]:
    """Names in a list, or in a text that commas part."""
    return [str(name) for name in value] if isinstance(value, list) else str(value or "").split(",")


def _whole_layers(values: Values) -> str:
    """How many layers there are to one that is recomputed whole where recomputation is selective, "" by operation.

    Source: pytorch/torchtitan v0.2.2, torchtitan/config/job_config.py (selective_ac_option).

    >>> _whole_layers({}), _whole_layers({OPTION: "op"}), _whole_layers({OPTION: 4})
    ('2', '', '4')
    """
    option = str(values.get(OPTION, 2))
    return "" if option == BY_OPERATION or by_tokens(values) else option


def by_tokens(values: Values) -> bool:
    """Whether a config counts batches in tokens.

    >>> by_tokens({"training.max_context_length": 8192}), by_tokens({"training.seq_len": 8192})
    (True, False)
    """
    return any(path in values for path in (LOCAL_TOKENS, STEP_TOKENS, LONGEST, PIPED))


def find(values: Values, key: str) -> str:
    """The path of a degree: in its section, or in the one of older configs."""
    there = next((section + key for section in SECTIONS if section + key in values), "")
    return there or (PIPES if key.startswith("pipeline") and before_sections(values) else PARALLEL) + key


def before_sections(values: Values) -> bool:
    """Whether a config is of a release before 2025-02, which has no section of parallelism.

    >>> [before_sections({f"{section}.tensor_parallel_degree": 8}) for section in ("training", "parallelism")]
    [True, False]
    """
    return any(path.startswith(SECTIONS[1:]) and "_parallel_" in path for path in values)


def read_configs(configs: tuple[ConfigFile, ...], gpus: int | None, model: str) -> ConfigLaunch:
    """The launch in its configs, of which a comment may count the GPUs."""
    python = any(config.kind == PYTHON for config in configs)
    own = partial(read, text=configs[0].text, python=python)
    return keyed_launch("torchtitan", own, partial(write, python=python), configs, gpus, model)


def read(launch: Launch, values: Values, text: str = "", python: bool = False) -> None:
    """Note what it says; GPUs from the degrees, or from a comment that counts them."""
    take(launch, values, {name: find(values, key) for name, key in DEGREES.items()})
    take(launch, values, {"seq_len": LONGEST if by_tokens(values) else LENGTH})
    settings = launch.settings
    settings["etp"] = settings.get("etp") or 1
    dp = _replicas(launch, values, text)
    split = settings.get("tp", 1) > 1 and values.get(SEQUENCE) is not False
    launch.say("sequence_parallel", split, SEQUENCE if SEQUENCE in values else "")
    (_token_batch if by_tokens(values) else _batch)(launch, values, dp)
    note_keys(launch, values, KEYS)
    parts = values.get(COMPILED_PARTS)
    if isinstance(parts, list) and not {"model", "loss"} <= {*map(str, parts)}:
        launch.fixed += ("compiled",)
        if settings["compiled"]:
            launch.say("compiled", "model" in parts, COMPILED_PARTS)
            settings["compiled_loss"] = "loss" in parts
    if not by_tokens(values):
        settings["software"] = "torchtitan-2024" if LOCAL[1] in values else "torchtitan-2025"
    converters = _names(values.get(CONVERTERS))
    both = (LINEAR in converters) * (GROUPED,)
    launch.unpriced += [f"{CONVERTERS} {name}" for name in converters if name and odd(name) and name not in both]
    named_values(launch, values, {find(values, key) if key == RESHARD else key: words for key, words in KNOWN.items()})
    if settings["dtype"] == "fp8":
        _scales(launch, values, text)
    if not python and settings["recompute"] == "selective" and (each := _whole_layers(values)):
        notes = launch.unpriced if OPTION in values else launch.assumed
        notes.append(f"{OPTION} {each}{'' if OPTION in values else ' by default'}: priced as {BY_OPERATION}")
    _model(launch, values, python)
    read_for = _narrowed(launch, values) if LINEAR in converters else []
    if settings.get("pp", 1) > 1:
        _schedule(launch, values)
    take_steps(launch, values, STEPS)
    known = [find(values, key) for key in (*DEGREES.values(), REPLICATE, SHARD, RESHARD, SCHEDULE, SLICE)]
    known += [SLICES, DATA, *read_for]
    known += [path for path in values if path.startswith(NARROWING) and settings["dtype"] != "fp8"]
    newer = (PARALLEL,) * before_sections(values) + (GLOBAL,) * (LOCAL[1] in values)
    newer += (f"{PARALLEL}expert_",) * (COMPILE[1] in values)
    launch.lacks = lambda key: f"{key} is newer than this torchtitan may be" if key.startswith(newer) else ""
    gpus = int(settings.get("gpus") or 0)
    if python and not by_tokens(values) and not CLASSES.search(text):
        newer += (UNGRAPHED,)
    model = preset_model(settings["model"]) if "model" in settings else None
    kv_heads = model.kv_heads if model and not model.mla else 0
    if not clash(values, gpus, kv_heads, python or by_tokens(values)):
        launch.clashes = lambda now: clash(now, gpus, kv_heads, python or by_tokens(values))
    tokens = (LOCAL_TOKENS, STEP_TOKENS, PIPED, PARTS)
    rest(
        launch,
        values,
        (*known, *LOCAL, *tokens, GLOBAL, NAME, FLAVOR, MODE, OPTION, *ASYNC, *NARROWED, CONVERTERS, ASSETS),
    )


def _scales(launch: Launch, values: Values, text: str) -> None:
    """Note how operands of 8 bits get their scales; a recipe without a price is named."""
    kind = "mx" if any("mx" in name.lower() for name in _names(values.get(CONVERTERS))) else "float8"
    path = next((at for at in (f"{place}{RECIPE}" for place in EIGHT_BITS[kind]) if values.get(at)), "")
    recipe = str(values.get(path, MXFP8 if kind == "mx" else BY_ROW if by_tokens(values) else ""))
    if by_tokens(values) and WIDE_GRADIENTS in text:  # among the arguments of a converter
        recipe = WIDE_GRADIENTS
    name = recipe.partition("_")[0]
    if name not in FP8_RECIPES or "_gw_" in recipe or "emulated" in recipe:
        launch.unpriced.append(f"{path or RECIPE} {recipe}")
    elif name:
        launch.say("fp8_recipe", name, path)


def _narrowed(launch: Launch, values: Values) -> list[str]:
    """Name what has other formats than is priced, which is a layer in 8 bits, its experts too, under a head in bf16.

    Returns the keys that say no more than that.

    Source: pytorch/torchtitan v0.2.2, torchtitan/components/quantization/float8.py: experts whose names no key has, and
    layers and the head which none leaves out.
    """
    wide, narrow = (values.get(path) or [] for path in (WIDE, NARROW_EXPERTS))
    model = preset_model(launch.settings["model"]) if "model" in launch.settings else None
    if not {"output", "lm_head"} & {*wide}:
        launch.unpriced.append(f"the output head in 8 bits, which {WIDE} does not leave out")
    if model and model.experts and not (GROUPED in _names(values.get(CONVERTERS)) and narrow):
        launch.unpriced.append(f"experts in bf16: no {GROUPED} with its fqns narrows them")
    usual = {"output", "lm_head", "router.gate"}
    return [WIDE] * ({*wide} <= usual) + [NARROW_EXPERTS] * (narrow == ["experts"])


def clash(values: Values, gpus: int, kv_heads: int = 0, python: bool = False) -> str:
    """Why a release refuses values on so many GPUs, one with TOML or one in Python; "" where it takes them.

    Source: pytorch/torchtitan v0.2.2, torchtitan/models (pipelining_fn of qwen3, attn_type of deepseek_v3, "DDP has not
    supported > 1D parallelism" in parallelize.py), torchtitan/distributed/parallel_dims.py (the mesh of fsdp), v0.3.0
    ("must divide n_kv_heads"); PyTorch, torch/distributed/pipelining/schedules.py, Schedule1F1B.

    >>> clash({"model.name": "qwen3", "parallelism.pipeline_parallel_degree": 2}, 8)
    'qwen3 has no pipeline in releases with TOML'
    >>> clash({"parallelism.data_parallel_replicate_degree": 4, "parallelism.tensor_parallel_degree": 2}, 8)
    'whole weights have replicas beside no other parallelism'
    """

    def degree(key: str) -> int:
        value = values.get(find(values, key))
        return value if isinstance(value, int) and value > 0 else 1

    tp, pp, cp, ep = (degree(DEGREES[name]) for name in ("tp", "pp", "cp", "ep"))
    copies, shards = degree(REPLICATE), values.get(DATA, values.get(find(values, SHARD), -1))
    sharing = (shards if isinstance(shards, int) and shards > 0 else max(1, gpus // (tp * pp * cp * copies))) * cp
    name, local = str(values.get(NAME, "")), next((values[path] for path in LOCAL if type(values.get(path)) is int), 1)
    slices = values.get(PIPED) or values.get(SLICES)
    if not slices:
        slices = pp if before_sections(values) else max(1, local // degree(SLICE))
    toml = {
        f"{name} has no pipeline in releases with TOML": pp > 1 and name in UNPIPED,
        f"{name} has no context parallelism with its kernels of attention": cp > 1 and name in FLEXIBLE,
        "whole weights have replicas beside no other parallelism": copies > 1 and sharing == 1 and tp * pp > 1,
        "experts are spread over ranks that share weights": ep > 1 and sharing == 1,
    }
    both = {
        f"a pipeline of {pp} stages takes no {slices} micro-batches": slices < pp,
        f"{kv_heads} key-value heads are not split {tp} ways": kv_heads % tp > 0,
    }
    return next((why for why, holds in (both if python else toml | both).items() if holds), "")


def _replicas(launch: Launch, values: Values, text: str) -> int:
    """Note the GPUs and how states are sharded over them; the replicas that they make."""
    settings = launch.settings
    replicas = whole(launch, values, find(values, REPLICATE)) or 1
    path = DATA if DATA in values else find(values, SHARD)
    shards = -1 if values.get(path, -1) == -1 else whole(launch, values, path) or -1
    ranks = int(settings.get("tp", 1) * settings.get("pp", 1) * settings.get("cp", 1))
    comments = "\n".join(line for line in text.splitlines() if line.lstrip().startswith("#"))
    match = COUNTED.search(comments)
    if "gpus" not in settings and shards > 0:
        launch.say("dp", shards * replicas, find(values, SHARD))
    elif "gpus" not in settings and match:
        settings["gpus"] = launch.gpus = int(match[1])
        launch.assumed.append(f"{match[1]} GPUs, as a comment says (--gpus)")
    if match and (device := device_in(match[2] or "")):
        launch.say("device", device, "a comment")
    dp = max(1, int(settings.get("gpus") or settings.get("dp", 0) * ranks) // ranks)
    if shards > 0 and dp != shards * replicas:
        gpus = shards * replicas * ranks
        launch.problems.append(f"{find(values, SHARD)} and the degrees beside it are of {gpus:,} GPUs (--gpus {gpus})")
    if shards == 1 and settings.get("cp", 1) == 1 and find(values, RESHARD) not in values:
        launch.say("zero_stage", 0, find(values, SHARD))
        return dp
    policy = str(values.get(find(values, RESHARD), "default"))
    path = find(values, RESHARD if policy != "default" else SHARD)
    launch.say("zero_stage", _stage(policy, settings.get("pp", 1) > 1), path if path in values else "")
    if replicas > 1:
        launch.say("shard", max(1, dp * settings.get("cp", 1) // replicas), find(values, REPLICATE))
    return dp


def _model(launch: Launch, values: Values, python: bool) -> None:
    """The preset that family and flavor, or the folder of a tokenizer, mean; a flavor that releases with TOML do not
    have is a fork's own.
    """
    name, flavor = str(values.get(NAME, "")), str(values.get(FLAVOR, ""))
    families = TABLES["families"].get(name, (name,))
    models = [TABLES["sizes"].get(f"{name} {flavor}", ""), *(named(f"{family}-{flavor}") for family in families)]
    models += [
        named(str(values.get(ASSETS, ""))),
        named(families[0]) if flavor in ("", TABLES["whole"].get(name)) else "",
    ]
    model = next(filter(None, models), "")
    if model and launch.settings.get("ep", 1) == 1 and preset_model(model).experts:
        # Experts that are not spread over ranks are split as all weights are.
        launch.settings["etp"] = launch.settings.get("tp", 1)
    if model:
        launch.say("model", model, FLAVOR if FLAVOR in values else ASSETS)
        if not python and flavor and model in MODELS and OLD not in MODELS[model].releases:
            launch.unpriced.append(f"{FLAVOR} {flavor} as a fork has it: priced as {model}")
    elif name or flavor:
        launch.unknown_model(NAME, f"{name} {flavor}")


def _schedule(launch: Launch, values: Values) -> None:
    """Note the virtual stages of a pipeline, by their list or by its schedule."""
    schedule = str(values.get(find(values, SCHEDULE), "1F1B")).lower()
    if not _parts(launch, values) and "interleaved" in schedule:
        launch.say("vpp", 2, find(values, SCHEDULE))
        if schedule != WOVEN:
            launch.unsearched.append(f"{find(values, SCHEDULE)} {schedule} is priced as {WOVEN}")
    elif schedule not in ("1f1b", WOVEN):
        launch.unsearched.append(f"{find(values, SCHEDULE)} {schedule} is priced as 1f1b")


def _parts(launch: Launch, values: Values) -> bool:
    """Note the layers of every virtual stage where they are listed."""
    listed, pp = values.get(PARTS), launch.settings.get("pp", 1)
    if not isinstance(listed, list) or not listed or len(listed) % pp or not all(isinstance(p, list) for p in listed):
        return False
    counts = [sum(str(name).startswith("layers.") for name in part) for part in listed]
    launch.say("vpp", len(counts) // pp, PARTS)
    if len(set(counts)) > 1:
        launch.say("layers_per_stage", tuple(counts), PARTS)
    return True


def _stage(policy: str, piped: bool) -> int:
    """The ZeRO stage of a policy of resharding, with a pipeline or without.

    With a pipeline, weights stay gathered over the micro-batches of a step by default, and gradients are
    scattered after the last: what elsewhere is called ZeRO-1.

    >>> _stage("default", False), _stage("default", True), _stage("never", False)
    (3, 1, 2)
    """
    keeps = policy == "never" or (piped and policy != "always")
    return 3 if not keeps else 1 if piped else 2


def _batch(launch: Launch, values: Values, dp: int) -> None:
    """A rank's batch is one micro-batch, or with a pipeline as many as its slices; more are accumulated."""
    settings, path = launch.settings, next((path for path in LOCAL if path in values), "")
    local, pp = (whole(launch, values, path) if path else None) or LOCAL_BATCH, settings.get("pp", 1)
    if not path:
        launch.assumed.append(f"{LOCAL[0]} {local}, torchtitan's default")
    if "seq_len" not in settings:
        settings["seq_len"] = SEQUENCES
        launch.assumed.append(f"{LENGTH} {SEQUENCES:,}, torchtitan's default (--seq-len)")
    slices, size_path = whole(launch, values, SLICES) if SLICES in values else None, find(values, SLICE)
    if pp > 1 and size_path not in values and (slices or OLD_PIPELINE in values):
        size, size_path = max(1, local // (slices or pp)), SLICES if slices else OLD_PIPELINE
    else:
        size = (whole(launch, values, size_path) or 1) if pp > 1 else local
    launch.say("micro_batch", size, size_path if pp > 1 and local != size else path)
    batch = -1 if values.get(GLOBAL, -1) == -1 else whole(launch, values, GLOBAL) or -1
    launch.say("global_batch", batch if batch > 0 else local * dp, GLOBAL if batch > 0 else path)


def _token_batch(launch: Launch, values: Values, dp: int) -> None:
    """Batches in tokens: of a micro-batch on a rank, and of a step where it is given."""
    settings = launch.settings
    length = settings.get("seq_len") or 2048
    settings.setdefault("seq_len", length)
    local = (whole(launch, values, LOCAL_TOKENS) if LOCAL_TOKENS in values else None) or LEAST_TOKENS
    micro = max(1, local // length)
    if local % length:
        launch.unsearched.append(f"{LOCAL_TOKENS}: {local:,} tokens are priced as {micro} whole sequences")
    path = LOCAL_TOKENS if LOCAL_TOKENS in values else ""
    launch.say("micro_batch", micro, path)
    count = (whole(launch, values, PIPED) if PIPED in values and settings.get("pp", 1) > 1 else None) or 1
    total = values.get(STEP_TOKENS, -1)
    total = -1 if total == -1 else whole(launch, values, STEP_TOKENS) or -1
    batch = total // length if total > 0 else micro * count * dp
    launch.say("global_batch", max(1, batch), STEP_TOKENS if total > 0 else path)


def write(
    values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any], python: bool = False
) -> Mapping[str, Any]:
    """Keys of another plan; those of Python captured in CUDA graphs, which hold no pipeline and no dispatcher."""
    keys = {name: find(values, key) for name, key in DEGREES.items()}
    if keys["etp"] not in values:  # as other weights without expert parallelism, else 1; releases in Python have none
        del keys["etp"]
    wanted = tied(keys, before, after)
    apart = max(after.pp, after.ep) > 1 == max(before.pp, before.ep)
    if python and apart and values.get(UNGRAPHED) is not True:
        wanted[UNGRAPHED] = True
    tokens = by_tokens(values)
    local = LOCAL_TOKENS if tokens else next((path for path in LOCAL if path in values), LOCAL[0])
    shards, replicas = find(values, SHARD), find(values, REPLICATE)
    group = after.shard or after.dp * after.cp
    if tokens:
        wanted[local] = after.micro_batch * job.seq_len
        wanted[PIPED] = after.num_microbatches if after.pp > 1 else 1
    elif after.pp > 1:
        wanted[local] = after.micro_batch * after.num_microbatches
        old = before_sections(values)
        wanted[SLICES if old else find(values, SLICE)] = after.num_microbatches if old else after.micro_batch
    else:
        wanted[local] = after.micro_batch
    wanted[STEP_TOKENS if tokens else GLOBAL] = job.global_batch * (job.seq_len if tokens else 1)
    if after.zero_stage == 0:
        wanted |= {shards: 1, replicas: after.dp * after.cp}
    elif values.get(shards, -1) > 0 or after.shard != before.shard or before.zero_stage == 0:
        wanted |= {shards: group // after.cp, replicas: after.dp * after.cp // group}
    if after.zero_stage and after.zero_stage != _stage(str(values.get(find(values, RESHARD), "default")), after.pp > 1):
        wanted[find(values, RESHARD)] = "always" if after.zero_stage == 3 else "never"
    if after.tp > 1 and values.get(SEQUENCE) is False and after.sequence_parallel:
        wanted[SEQUENCE] = True
    if before.recompute != after.recompute:
        wanted[MODE] = after.recompute
        if after.recompute == "selective" and not python and _whole_layers(values):
            wanted[OPTION] = BY_OPERATION
    if "compiled" in turned:
        wanted[next((path for path in COMPILE if path in values), COMPILE[0])] = turned["compiled"]
    schedule = find(values, SCHEDULE)
    woven = before.vpp > 1 or (before.pp == 1 and "interleaved" in str(values.get(schedule, "")).lower())
    if after.pp > 1 and woven != (after.vpp > 1):
        wanted[schedule] = "Interleaved1F1B" if after.vpp > 1 else "1F1B"
    defaults = {replicas: 1, PIPED: 1, SLICES: after.pp, GLOBAL: wanted[local] * after.dp}
    defaults[STEP_TOKENS] = wanted[local] * after.dp * wanted.get(PIPED, 1)
    return {path: value for path, value in wanted.items() if path in values or defaults.get(path) != value}
