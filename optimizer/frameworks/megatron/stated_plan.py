"""The plan that the flags of a Megatron program state: every value checked, and what contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.base.units import is_count
from optimizer.frameworks.megatron.flag_names import COUNTS, LISTS, SWITCHES, TEXTS
from optimizer.job.plan import balanced, virtual_stages
from optimizer.job.recomputation import MODULES, RESCALED, named

MOST_LAYERS = 10_000
REQUIRED = ("micro_batch", "global_batch", "seq_len", "layers")


@dataclass(kw_only=True)
class StatedPlan:
    """Values of the flags that make a plan, by name in flag_names.

    Attributes:
        numbers: of COUNTS.
        texts: of TEXTS.
        lists: of LISTS.
        switches: those of SWITCHES that are set.
        problems: sentences.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def take(self, flag: str, values: Sequence[str]) -> None:
        """Note the values of a flag."""
        value = values[0] if values else ""
        if flag in SWITCHES:
            self.switches.add(SWITCHES[flag])
        elif flag in TEXTS:
            self.texts[TEXTS[flag]] = value
        elif flag in LISTS:
            self.lists[LISTS[flag]] = tuple(values)
        elif not is_count(number := value.replace("_", "")) or int(number) < 1:
            self.problems.append(f"{flag} must be a whole number of at least 1, but got {number!r}")
        elif self.numbers.setdefault(COUNTS[flag], int(number)) != int(number):
            self.problems.append(f"{flag} is given twice, as {self.numbers[COUNTS[flag]]} and as {number}")


def plan_settings(stated: StatedPlan, gpus: int) -> dict[str, Any]:
    """The plan on so many GPUs, as settings of a launch; what is missing or contradicts itself goes to the problems."""
    numbers, problems = stated.numbers, stated.problems
    flags = {value: flag for flag, value in COUNTS.items()}
    problems += [f"{flags[key]} is missing" for key in REQUIRED if key not in numbers]
    if problems:
        return {}
    tp, cp, pp, instances = (numbers.get(name, 1) for name in ("tp", "cp", "pp", "instances"))
    batch, micro_batch, layers = numbers["global_batch"], numbers["micro_batch"], numbers["layers"]
    if gpus % (tp * cp * pp):
        problems.append(f"tp x cp x pp = {tp} x {cp} x {pp} does not divide {gpus} GPUs")
    dp = max(1, gpus // (tp * cp * pp))
    if batch % (dp * micro_batch):
        problems.append(
            f"--global-batch-size {batch} is not a multiple of dp x --micro-batch-size = {dp} x {micro_batch}"
        )
    if dp * cp % instances:
        problems.append(f"--num-distributed-optimizer-instances {instances} does not divide {dp * cp} replicas")
    per_stage, vpp = _pipeline(stated, layers, pp)
    mode = _recompute(stated)
    # Under the method block each virtual stage recomputes so many layers, its first ones; else all.
    first = numbers.get("recompute_num_layers", 0) if stated.texts.get("recompute_method") == "block" else 0
    stages = expanded(stated.texts.get("layout", "")).split("|")
    share = 0.0
    if "offloads" in stated.switches:
        share = _fraction(stated, "offload_fraction", "--activation-offload-fraction")
    if "offloads_optimizer" in stated.switches:
        _fraction(stated, "optimizer_offload", "--optimizer-offload-fraction")
    if {"bf16", "fp16"} <= stated.switches:
        problems.append("--bf16 contradicts --fp16")
    return {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "vpp": vpp,
        "ep": numbers.get("ep", 1),
        # Megatron-Core's default is the tensor-parallel size itself.
        "etp": numbers.get("etp", tp) if "experts" in numbers else 1,
        "dp": dp,
        "micro_batch": micro_batch,
        "num_microbatches": max(1, batch // (dp * micro_batch)),
        "global_batch": batch,
        "seq_len": numbers["seq_len"],
        "sequence_parallel": "sequence_parallel" in stated.switches and tp > 1,
        "zero_stage": _zero_stage(stated),
        "shard": dp * cp // instances if instances > 1 else 0,
        "recompute": mode,
        "recompute_first": first if mode == "full" else 0,
        "activation_offload": round(100 * share),
        "overlap_exchange": "overlap_exchange" in stated.switches,
        "schedule": "interleaved" if vpp > 1 else "1f1b",
        # More stages than any model has layers are refused by other rules.
        "layers_per_stage": per_stage or (balanced(layers, pp) if pp <= min(layers, MOST_LAYERS) else ()),
        # By how many virtual stages MTP layers lie before the head.
        "mtp_ahead": next((len(stages) - 1 - place for place, stage in enumerate(stages) if "m" in stage), 0),
        "dtype": "fp8" if "fp8" in stated.texts else "fp16" if "fp16" in stated.switches else "bf16",
    }


def _fraction(stated: StatedPlan, key: str, flag: str) -> float:
    """A number from 0 to 1, 1 where it is not given: all that may go to the host."""
    text = stated.texts.get(key, "1")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        stated.problems.append(f"{flag} must be a number from 0 to 1, but got {text!r}")
        return 0.0
    return share


def _pipeline(stated: StatedPlan, layers: int, pp: int) -> tuple[tuple[int, ...], int]:
    """Layers per stage (empty when even) and the virtual stages per stage."""
    numbers, problems = stated.numbers, stated.problems
    per_virtual_stage, vpp = numbers.get("layers_per_virtual_stage"), numbers.get("vpp", 1)
    if "layout" in stated.texts:
        return _layout(stated, layers, pp)
    if "layer_list" in stated.texts:
        return _listed(stated, layers, pp), vpp
    if "first" in numbers or "last" in numbers:
        return _ends(stated, layers, pp), vpp
    if layers % pp:
        problems.append(f"--num-layers {layers} is not a multiple of --pipeline-model-parallel-size {pp}")
    elif per_virtual_stage is not None and "vpp" in numbers:
        problems.append("--num-layers-per-virtual-pipeline-stage contradicts --num-virtual-stages-per-pipeline-rank")
    elif per_virtual_stage is not None and (layers // pp) % per_virtual_stage:
        problems.append(
            f"--num-layers-per-virtual-pipeline-stage {per_virtual_stage} does not divide the {layers // pp} layers of "
            "a stage"
        )
    elif per_virtual_stage is not None:
        vpp = layers // pp // per_virtual_stage
    return (), vpp


def _listed(stated: StatedPlan, layers: int, pp: int) -> tuple[int, ...]:
    text = stated.texts["layer_list"]
    counts = tuple(int(count) for count in text.split(",") if is_count(count))
    if (len(counts), sum(counts)) != (pp, layers):
        stated.problems.append(f"--num-layer-list {text} is no split of {layers} layers over {pp} stages")
        return ()
    return counts


def _ends(stated: StatedPlan, layers: int, pp: int) -> tuple[int, ...]:
    ends = {name: stated.numbers[name] for name in ("first", "last") if name in stated.numbers}
    middle, rest = pp - len(ends), layers - sum(ends.values())
    if middle < 0 or rest < 0 or (rest if middle == 0 else rest % middle):
        stated.problems.append(
            f"{layers} layers cannot be split over {pp} stages with "
            + " and ".join(f"{count} on the {name}" for name, count in ends.items())
        )
        return ()
    inner = (rest // middle,) * middle if middle else ()
    return (*((ends["first"],) if "first" in ends else ()), *inner, *((ends["last"],) if "last" in ends else ()))


def _layout(stated: StatedPlan, layers: int, pp: int) -> tuple[tuple[int, ...], int]:
    stages = expanded(stated.texts["layout"]).split("|")
    counts = [stage.count("t") for stage in stages]
    if sum(counts) != layers or len(counts) % pp:
        stated.problems.append(
            f"--pipeline-model-parallel-layout has {sum(counts)} layers on {len(counts)} virtual stages; "
            f"expected {layers} layers on a multiple of {pp}"
        )
        return (), 1
    vpp = len(counts) // pp
    per_stage = tuple(sum(counts[stage::pp]) for stage in range(pp))
    if len(set(counts)) == 1:
        return (), vpp
    return (per_stage if virtual_stages(per_stage, layers, pp, vpp) == tuple(counts) else tuple(counts)), vpp


def expanded(layout: str) -> str:
    """Write out the repetitions of a layout.

    >>> expanded("Et|(tt|)*2t*3L")
    'Et|tt|tt|tttL'
    """
    text = layout.replace(" ", "").replace(",", "").replace("\\", "")
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    return re.sub(r"(\w)\*(\d+)", lambda match: match[1] * int(match[2]), text).rstrip("|")


def _zero_stage(stated: StatedPlan) -> int:
    stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    if "torch_fsdp" in stated.switches:  # PyTorch gathers weights again in the backward pass, unless told
        return 2 if "keeps_weights" in stated.switches else 3
    if "fsdp" in stated.switches:
        # The strategy's default in Megatron-LM is no_shard.
        strategy = stated.texts.get("sharding", "no_shard")
        if strategy not in stages:
            stated.problems.append(
                f"--data-parallel-sharding-strategy must be one of {', '.join(stages)}, but got {strategy!r}"
            )
        return stages.get(strategy, 0)
    return 1 if "distributed_optimizer" in stated.switches else 0


def _recompute(stated: StatedPlan) -> str:
    """The mode; selective recomputation recomputes the attention core unless modules are named."""
    selective = "recompute_activations" in stated.switches
    granularity = stated.texts.get("granularity", "selective" if selective else "none")
    if granularity not in ("none", "selective", "full"):
        stated.problems.append(f"--recompute-granularity must be selective or full, but got {granularity!r}")
    if selective and granularity == "full":
        stated.problems.append("--recompute-activations (selective) contradicts --recompute-granularity full")
    modules = stated.lists.get("recompute_modules", ())
    if granularity != "selective" or not modules:
        return granularity
    unknown = [name for name in modules if name not in MODULES]
    if unknown:
        stated.problems.append(f"--recompute-modules must be of {', '.join(MODULES)}, but got {', '.join(unknown)}")
    if "fp8" in stated.texts and stated.texts.get("fp8_recipe", "delayed") == "delayed":
        rescaled = [name for name in modules if name in RESCALED]
        stated.problems += [f"--recompute-modules {name} needs another --fp8-recipe than delayed" for name in rescaled]
    return named(modules) or granularity
