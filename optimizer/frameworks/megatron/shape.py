"""The model that flags of Megatron-LM and Megatron-DeepSpeed describe."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.base.units import is_count
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron.flag_names import MEGATRON_DEEPSPEED, SHAPE_COUNTS, SHAPE_SWITCHES, whole_number

POSITIONS: Mapping[str, str] = {"rope": "rope", "learned_absolute": "learned", "rotary": "rope", "alibi": "alibi"}
TOKENIZERS: Mapping[str, int] = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}


def read_shape(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note layers, widths, switches of the architecture, and which layers are mixtures."""
    for name, key in SHAPE_COUNTS.items():
        if name in last and (number := whole_number(launch, last[name])) is not None:
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
            number = whole_number(launch, last[name])
            launch.say("kv_heads", number or 1, last[name].written)
    if "--attention-head-type" in last and last["--attention-head-type"].value == "multiquery":
        launch.say("kv_heads", 1, "--attention-head-type")
    if "--pad-vocab-size-to" in last and "vocab" not in said:
        launch.say("vocab", whole_number(launch, last["--pad-vocab-size-to"]) or 50257, "--pad-vocab-size-to")
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
        launch.say("every", whole_number(launch, last["--expert-interval"]) if "--expert-interval" in last else 2)
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
