"""The names of flags of Megatron-LM and Megatron-DeepSpeed by what they say (flags.toml), and how one is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optimizer.base.content import content
from optimizer.base.units import is_count
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.machines import LAUNCHER

GRAD_BYTES = 4  # in which Megatron sums gradients that no flag has narrower
Meaning = Callable[[Launch, Flag], Any]  # the setting that a flag states, None for none
TABLES: Mapping[str, Any] = content("optimizer.frameworks.megatron", "flags.toml")
COUNTS: Mapping[str, str] = TABLES["counts"]
TEXTS: Mapping[str, str] = TABLES["texts"]
LISTS: Mapping[str, str] = TABLES["lists"]
SWITCHES: Mapping[str, str] = TABLES["switches"]
NAMED: Mapping[str, str] = {**COUNTS, **TEXTS, **LISTS, **SWITCHES}
PLAN_FLAGS: Mapping[str, Sequence[str]] = TABLES["plan"]
SHAPE = ("layers", "hidden", "ffn_hidden", "heads", "head_dim", "vocab", "experts", "top_k")
SHAPE_COUNTS: Mapping[str, str] = {
    **{flag: name for flag, name in COUNTS.items() if name in SHAPE},
    **TABLES["shape_counts"],
}
SHAPE_SWITCHES: Mapping[str, tuple[str, Any]] = TABLES["shape_switches"]
SOFTWARE_SWITCHES: Mapping[str, tuple[str, Any]] = TABLES["software_switches"]
UNSEARCHED: Mapping[str, str] = TABLES["unsearched"]
KNOWN = {*NAMED, *SHAPE_COUNTS, *SHAPE_SWITCHES, *SOFTWARE_SWITCHES, *TABLES["quiet"], *LAUNCHER, *UNSEARCHED}
MEGATRON, MEGATRON_DEEPSPEED = "Megatron-LM", "Megatron-DeepSpeed"
ULYSSES = "--ds-sequence-parallel-size"
FSDP, FORMER_FSDP = "--use-megatron-fsdp", "--use-custom-fsdp"  # the second until core 0.13
FP32_GRADIENTS = "--accumulate-allreduce-grads-in-fp32"  # which bf16 has by itself, and fp16 has not
EXPERT_DEGREES = ("--expert-model-parallel-size", "--moe-expert-parallel-size")
# Embedding and head count as layers when the stages are cut.
COUNTED_ENDS = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
LENGTHS = ("--train-tokens", "--train-samples", "--train-iters")


def note_flags(launch: Launch, last: Mapping[str, Flag], table: Sequence[tuple[str, str, Meaning]]) -> None:
    """Note the settings that a table of flag, setting and meaning finds; of one that comes twice the last counts."""
    for name, key, means in table:
        if name in last and (setting := means(launch, last[name])) is not None:
            launch.say(key, setting, last[name].written)


def whole_number(launch: Launch, flag: Flag) -> int | None:
    """The whole number of a flag; None, and a problem of the launch, where it is none."""
    text = flag.value.replace("_", "")
    if is_count(text):
        return int(text)
    launch.problems.append(f"{flag.written} {flag.value}: {left_open(flag) or 'no whole number'}")
    return None


def left_open(flag: Flag) -> str:
    """What a value hangs on that nobody gave, and how to give it; "" where it is known."""
    if not flag.unknown:
        return ""
    if flag.unknown.isdigit():
        return f"which is argument {flag.unknown} of the script (--args)"
    how = f"--env {flag.unknown}=..., or --args" if flag.unknown.isidentifier() else "--env, --args"
    return f"which hangs on {flag.unknown}, that the script does not set ({how})"
