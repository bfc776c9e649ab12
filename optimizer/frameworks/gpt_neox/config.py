"""GPT-NeoX's YAML: Megatron's shapes and degrees with DeepSpeed's keys, each with dashes or underscores.

Source of the keys and defaults: EleutherAI/gpt-neox, megatron/neox_arguments/neox_args.py and deepspeed_args.py;
megatron/model/transformer.py (ParallelMLP) for the width of a gated MLP; Stability-AI/StableLM, configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.base.units import is_count
from optimizer.frameworks.config.launch import (
    ConfigKey,
    Values,
    key_tables,
    named_values,
    note_dtype,
    note_keys,
    rest,
    take,
    take_steps,
    tied,
    whole,
    written_keys,
)
from optimizer.frameworks.config.method import optimizer_named
from optimizer.frameworks.deepspeed.config import SUMMED, WIRE
from optimizer.frameworks.deepspeed.sharding import MOST_BUCKET
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron.flags import BF16_OPTIMIZER
from optimizer.job.job import Job
from optimizer.job.plan import Plan

DEGREES: Mapping[str, str] = key_tables("gpt_neox")["plan"]
COUNTS: Mapping[str, str] = key_tables("gpt_neox")["counts"]
KERNELS: Mapping[str, str] = key_tables("gpt_neox")["attention"]
STAGES, RECOMPUTE, ATTENTION = "pipe_parallel_size", "checkpoint_activations", "attention_config"
WIDTH, LLAMA, TOKENIZER = "intermediate_size", "mlp_type", "tokenizer_type"
LLAMA_MULTIPLE = 256  # of LLaMAParallelMLP
MULTIPLE, PARTITIONED = "mlp_multiple_of", "partition_activations"
BUCKET = "zero_optimization.reduce_bucket_size"
# Vocabularies, padded: of GPT-2's tokenizer, the default, and of GPT-NeoX-20B's.
VOCABULARIES: Mapping[str, int] = {"GPT2BPETokenizer": 50304, "HFTokenizer": 50432}
OTHERS = ("mamba", "rwkv", "gmlp", "amlp")  # layers without attention
GATED = ("swiglu", "geglu", "reglu", "bilinear", "glu")
# Activations that cost the same, an element; others are named.
PLAIN = ("gelu", "relu", "softsign", "swish", "mish", "silu")
NORMS: Mapping[str, str] = {
    **dict.fromkeys(("rmsnorm", "te_rmsnorm"), "rms"),
    **dict.fromkeys(("layernorm", "te_layernorm", "non_parametric_layernorm"), "layer"),
}
POSITIONS: Mapping[str, str] = {"rotary": "rope", "alibi": "alibi", "learned": "learned", "none": "none"}
OPEN_COUNTS = ("num_nodes", "num_gpus")  # -1 leaves them to the hosts
KEYS = (
    ConfigKey("recompute", (RECOMPUTE,), lambda on: "full" if on else "none", False, lambda mode: mode == "full"),
    ConfigKey("sequence_parallel", ("sequence_parallel",), bool, False, bool),
    ConfigKey(
        "norm", ("norm",), lambda name: NORMS.get(str(name), "rms" if "rms" in str(name) else "layer"), "layernorm"
    ),
    ConfigKey("position", ("pos_emb",), lambda name: POSITIONS.get(str(name), "none"), "learned"),
    ConfigKey("tied_embeddings", ("no_weight_tying",), lambda untied: not untied, False),
    ConfigKey("gated_mlp", ("activation",), lambda name: name in GATED, "gelu"),
    ConfigKey("qk_norm", ("use_qk_layernorm", "qk_norm"), bool),
    ConfigKey("mlp_bias", ("use_bias_in_mlp",), bool, True),
    ConfigKey("attention_bias", ("use_bias_in_attn_linear",), bool, True),
    ConfigKey("bucket", (BUCKET,), lambda size: 2.0 * size if isinstance(size, int | float) else None, MOST_BUCKET),
    ConfigKey("grad_bytes", (SUMMED,), lambda name: 4 if name == "fp32" else 2),
    ConfigKey("grad_bytes", ("fp32_allreduce",), lambda wide: 4 if wide else None),
    ConfigKey("grad_bytes", (WIRE,), lambda name: 4 if name == "fp32" else None),
    ConfigKey("parallel_block", ("gpt_j_residual",), bool, False),
    ConfigKey("optimizer", ("optimizer.type",), optimizer_named),
    ConfigKey("dtype", ("bf16.enabled",), lambda on: "bf16" if on else None),
    ConfigKey("dtype", ("fp16.enabled",), lambda on: "fp16" if on else None),
    ConfigKey("dtype", ("fp16.type",), lambda name: "bf16" if name == "bfloat16" else None),  # as before 2023
)


def _plain(values: Values) -> dict[str, Any]:
    return {path.replace("-", "_"): value for path, value in values.items()}


def recognised(values: Values) -> bool:
    """Whether a YAML is GPT-NeoX's."""
    plain = _plain(values)
    return STAGES in plain or DEGREES["tp"] in plain


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    plain = _plain(values)
    settings = launch.settings
    opened = {name: path for name, path in COUNTS.items() if path in OPEN_COUNTS and plain.get(path) == -1}
    taken = {name: path for name, path in {**DEGREES, **COUNTS}.items() if name not in {*opened, *settings}}
    take(launch, plain, taken)
    stages = str(plain.get(STAGES, 1))
    launch.say("pp", max(1, int(stages)) if is_count(stages) else 1, STAGES)
    note_keys(launch, plain, KEYS)
    note_dtype(launch, plain, "precision")
    if "dtype" not in settings and "precision" not in plain:
        launch.unpriced.append("fp32, as GPT-NeoX has it where no key names a number format")
    named_values(launch, plain, {"norm": (*NORMS, "rms_norm"), "pos_emb": POSITIONS, "activation": (*GATED, *PLAIN)})
    settings.setdefault("zero_stage", 0)
    if settings["zero_stage"] == 0 and settings.get("dtype") == "bf16":
        settings["zero_stage"] = 1
        launch.assumed.append(f"no ZeRO with bf16 shards as ZeRO-1: {BF16_OPTIMIZER}")
    if "global_batch" not in settings and "micro_batch" in settings:
        settings.setdefault("num_microbatches", 1)
        launch.written.setdefault("num_microbatches", DEGREES["num_microbatches"])
    _mlp(launch, plain)
    name = plain.get(TOKENIZER, min(VOCABULARIES))
    if "vocab" not in settings and name in VOCABULARIES and (name == min(VOCABULARIES) or _own_tokenizer(plain)):
        launch.say("vocab", VOCABULARIES[name], TOKENIZER)
    _attention(launch, plain)
    if plain.get(PARTITIONED) is True and settings.get("tp", 1) > 1 and settings["recompute"] == "full":
        launch.unpriced.append(PARTITIONED)
    take_steps(launch, plain, "train_iters")
    known = (
        STAGES,
        ATTENTION,
        WIDTH,
        LLAMA,
        TOKENIZER,
        MULTIPLE,
        "precision",
        "fp16.fp16",
        *DEGREES.values(),
        *COUNTS.values(),
    )
    rest(launch, plain, known)
    spelt = {path.replace("-", "_"): path for path in values}
    launch.written = {name: spelt.get(path, path) for name, path in launch.written.items()}
    launch.ignored = [spelt.get(path, path) for path in launch.ignored]


def _mlp(launch: Launch, values: Values) -> None:
    """The width of the MLP: the file's, else four times that of the model; a gated one has a third of it."""
    settings = launch.settings
    width = values.get(WIDTH) or 4 * settings.get("hidden", 0)
    if not isinstance(width, int):
        launch.problems.append(f"{WIDTH} must be a whole number, but got {width!r}")
        return
    kind = values.get(LLAMA)
    if kind == "llama":  # as before 2024
        settings["gated_mlp"] = True
        width = values.get(WIDTH) or -(-(2 * width // 3) // LLAMA_MULTIPLE) * LLAMA_MULTIPLE
    elif kind == "gated":  # of the fork that StableLM was trained with
        multiple = whole(launch, values, MULTIPLE) or 1
        settings["gated_mlp"], width = True, -(-2 * width // (3 * multiple)) * multiple
    elif kind not in (None, "regular"):
        launch.unpriced.append(f"{LLAMA} {kind}")
    elif settings["gated_mlp"]:
        multiple = whole(launch, values, MULTIPLE) or 1
        width = -(-(width // 3) // multiple) * multiple
        launch.assumed.append(f"a gated MLP is {width:,} wide, a third of {WIDTH}, as since 2024")
    settings["activation"] = "swiglu" if settings["gated_mlp"] else "gelu"
    if width:
        launch.say("ffn_hidden", width, WIDTH if WIDTH in values else "")


def _own_tokenizer(values: Values) -> bool:
    """Whether the tokenizer's file is that of GPT-NeoX-20B, or none is named."""
    return "20B" in str(values.get("vocab_file", "20B"))


def _attention(launch: Launch, values: Values) -> None:
    """The kernels of attention; layers without any are a model of another kind."""
    kinds = {
        str(name)
        for group in values.get(ATTENTION) or []
        if isinstance(group, list) and group
        for name in (group[0] if isinstance(group[0], list) else [group[0]])
    }
    if others := sorted(kinds.intersection(OTHERS)):
        launch.problems.append(f"{ATTENTION} has {', '.join(others)}: only layers with attention are priced")
    elif foreign := sorted(kinds.difference(KERNELS)):
        launch.unpriced.append(f"{ATTENTION} {', '.join(foreign)}")
    elif len({KERNELS[kind] for kind in kinds}) > 1:
        launch.say("attention", KERNELS["flash"], ATTENTION)
        launch.unpriced.append(f"{ATTENTION} {', '.join(sorted(kinds))}: priced as flash in every layer")
    elif kinds:
        launch.say("attention", KERNELS[min(kinds)], ATTENTION)
    else:
        launch.settings["attention"] = KERNELS["global"]


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan, as the file spells them."""
    wanted = tied(DEGREES, before, after) | written_keys(KEYS, before, after)
    if before.pp != after.pp:
        wanted[STAGES] = after.pp
    spelt = {path.replace("-", "_"): path for path in values}
    return {spelt.get(path, path): value for path, value in wanted.items()}
