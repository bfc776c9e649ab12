"""Read a plan back from the arguments of a Megatron-LM run: what do you run today?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from optimizer.base.errors import InvalidFile, nearest
from optimizer.base.units import LARGEST, is_count
from optimizer.catalog.readers.text import read_json, readable
from optimizer.catalog.targets import MEGATRON_LM, argument_names
from optimizer.frameworks.megatron.flag_names import COUNTS, LISTS, SWITCHES, TEXTS
from optimizer.job.plan import Knobs, Plan, balanced, virtual_stages
from optimizer.job.recomputation import MODULES, RESCALED, named
from optimizer.job.variables import DISPATCHERS

JOB_SETTINGS = ("global_batch", "seq_len", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab")
MOST_LAYERS = 10_000
REQUIRED = ("micro_batch", "global_batch", "seq_len", "layers")


class _Found:
    """Values by name, the arguments that mean nothing to a plan, and what is wrong."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.lists: dict[str, tuple[str, ...]] = {}
        self.switches: set[str] = set()
        self.ignored: list[str] = []
        self.problems: list[str] = []


def read_megatron_arguments(source: str | Path, gpus: int | None = None) -> tuple[Plan, dict[str, object]]:
    """The plan of a Megatron-LM command line, and its job: sizes, batch, dtype, GPUs, knobs, and the arguments ignored.

    Where the arguments name a file of communicators that lies beside theirs, `blocks` are those that data parallelism
    may have on the multiprocessors.
    `source` is a file (a Path, or text without blanks that names one) or the arguments themselves; shell line
    continuations and a torchrun prefix may stay. `gpus` is needed when neither --nnodes nor --world-size is there.
    Raises InvalidFile with every unknown, missing or contradictory argument by name.
    """
    name, text = _text(source)
    found = _scan(text)
    numbers = found.numbers
    if gpus is not None:
        numbers["gpus"] = gpus
    elif "gpus" not in numbers and "nodes" in numbers:
        numbers["gpus"] = numbers["nodes"] * numbers.get("gpus_per_node", 1)
    flags = {value: flag for flag, value in COUNTS.items()}
    found.problems += [f"{flags[key]} is missing" for key in REQUIRED if key not in numbers]
    if "gpus" not in numbers:
        found.problems.append("the number of GPUs is unknown: neither --nnodes nor --world-size is given")
    if not found.problems:
        plan, job = _plan(found)
    if found.problems:
        raise InvalidFile(name, found.problems)
    if blocks := _blocks(Path(name).parent, found.texts.get("communicators", "")):
        job["blocks"] = blocks
    return plan, job


def _blocks(folder: Path, name: str) -> int:
    """Thread blocks of the data-parallel communicators in a file that NCCL's options are read from; 0 if not told."""
    try:
        return blocks_in(read_json(folder / name)) if name else 0
    except InvalidFile:
        return 0


def blocks_in(groups: Mapping[str, Any]) -> int:
    """Thread blocks of the data-parallel communicators among NCCL's options by group; 0 if not told.

    >>> blocks_in({"dp_cp": {"max_ctas": 16}}), blocks_in({"dp_cp": {}})
    (16, 0)
    """
    data = groups.get("dp_cp")
    told = data.get("max_ctas") if isinstance(data, dict) else 0
    return told if isinstance(told, int) and 0 <= told <= LARGEST else 0


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, Path) or not any(mark in source for mark in (" ", "\n", "--")):
        return str(source), readable(source, "give a launch script or a file of arguments")
    return "Megatron arguments", source


def _scan(text: str) -> _Found:
    found = _Found()
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        found.problems.append(f"cannot be split into arguments: {error}")
        return found
    known = (*COUNTS, *TEXTS, *LISTS, *SWITCHES)
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, equals, joined = word.partition("=")
        flag = flag.replace("_", "-")
        following = words[position + 1] if position + 1 < len(words) else "--"
        value = joined if equals else following
        if flag in SWITCHES:
            found.switches.add(SWITCHES[flag])
        elif flag in COUNTS:
            _count(found, flag, value)
        elif flag in TEXTS:
            found.texts[TEXTS[flag]] = value
        elif flag in LISTS:
            rest = takewhile(lambda word: not word.startswith("--"), words[position + 1 :])
            found.lists[LISTS[flag]] = tuple([joined] if equals else rest)
        elif not any(flag in argument_names("megatron-lm", release) for release in MEGATRON_LM) and (
            misspelt := _misspelt(flag, known)
        ):
            found.problems.append(f"unknown argument {flag}; did you mean {misspelt}?")
        else:
            found.ignored.append(flag)
    return found


def _misspelt(flag: str, known: tuple[str, ...]) -> str:
    """The known argument that differs from this one by a letter or two, if any."""
    for candidate in nearest(flag, known, count=1):
        short = min(len(flag), len(candidate))
        common = sum(a == b for a, b in zip(flag, candidate, strict=False))
        common += sum(a == b for a, b in zip(flag[::-1], candidate[::-1], strict=False))
        if abs(len(flag) - len(candidate)) <= 1 and common >= short - 1 and short > 8:
            return candidate
    return ""


def _count(found: _Found, flag: str, value: str) -> None:
    key = COUNTS[flag]
    if not is_count(value) or int(value) < 1:
        found.problems.append(f"{flag} must be a whole number of at least 1, but got {value!r}")
    elif found.numbers.get(key, int(value)) != int(value):
        found.problems.append(f"{flag} is given twice, as {found.numbers[key]} and as {value}")
    else:
        found.numbers[key] = int(value)


def _plan(found: _Found) -> tuple[Plan, dict[str, object]]:
    numbers, problems = found.numbers, found.problems
    tp, cp, pp = (numbers.get(name, 1) for name in ("tp", "cp", "pp"))
    gpus, batch, micro_batch = numbers["gpus"], numbers["global_batch"], numbers["micro_batch"]
    if gpus % (tp * cp * pp):
        problems.append(f"tp x cp x pp = {tp} x {cp} x {pp} does not divide {gpus} GPUs")
    dp = max(1, gpus // (tp * cp * pp))
    if batch % (dp * micro_batch):
        problems.append(
            f"--global-batch-size {batch} is not a multiple of dp x --micro-batch-size = {dp} x {micro_batch}"
        )
    replicas = dp * cp
    instances = numbers.get("instances", 1)
    if replicas % instances:
        problems.append(f"--num-distributed-optimizer-instances {instances} does not divide {replicas} replicas")
    layers = numbers["layers"]
    per_stage, vpp = _pipeline(found, layers, pp)
    mode = _recompute(found)
    # Under the method block each virtual stage recomputes so many layers, its first ones; else all.
    first = numbers.get("recompute_num_layers", 0) if found.texts.get("recompute_method") == "block" else 0
    plan = Plan(
        tp=tp,
        cp=cp,
        ep=numbers.get("ep", 1),
        # Megatron-Core's default is the tensor-parallel size itself.
        etp=numbers.get("etp", tp) if "experts" in numbers else 1,
        pp=pp,
        vpp=vpp,
        dp=dp,
        micro_batch=micro_batch,
        num_microbatches=max(1, batch // (dp * micro_batch)),
        sequence_parallel="sequence_parallel" in found.switches and tp > 1,
        zero_stage=_zero_stage(found),
        shard=replicas // instances if instances > 1 else 0,
        recompute=mode,
        activation_offload=_offload(found),
        schedule="interleaved" if vpp > 1 else "1f1b",
        dispatcher=_dispatcher(found),
        overlap_exchange="overlap_exchange" in found.switches,
        # More stages than any model has layers are refused by other rules.
        layers_per_stage=per_stage or (balanced(layers, pp) if pp <= min(layers, MOST_LAYERS) else ()),
        recompute_first=first if mode == "full" else 0,
        mtp_ahead=_ahead(found.texts.get("layout", "")),
    )
    job: dict[str, object] = {name: numbers[name] for name in JOB_SETTINGS if name in numbers}
    job |= {"gpus": gpus, "dtype": _dtype(found), "knobs": _knobs(found), "ignored": tuple(found.ignored)}
    return plan, job


def _knobs(found: _Found) -> Knobs:
    """The gradient bucket [B] and the optimizer's share on the host, the defaults where nothing is said."""
    narrow = "bf16_gradients" in found.switches or {"fp16", "fp32_gradients"} & found.switches == {"fp16"}
    width = 2 if narrow else 4
    bucket = found.numbers.get("bucket")
    knobs = Knobs() if bucket is None else Knobs(bucket=float(width * bucket))
    if "offloads_optimizer" not in found.switches:
        return knobs
    # Megatron-LM keeps all of it there unless a fraction is given.
    return replace(knobs, offload=_fraction(found, "optimizer_offload", "--optimizer-offload-fraction"))


def _fraction(found: _Found, key: str, flag: str) -> float:
    """A number from 0 to 1, 1 where it is not given."""
    text = found.texts.get(key, "1")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        found.problems.append(f"{flag} must be a number from 0 to 1, but got {text!r}")
        return 0.0
    return share


def _dispatcher(found: _Found) -> str:
    """How routed tokens travel; Megatron-Core's flex dispatcher takes DeepEP unless told otherwise."""
    if found.texts.get("dispatcher") != "flex" or found.numbers.get("ep", 1) == 1:
        return DISPATCHERS[0]
    backend = found.texts.get("flex_backend", "deepep")
    if backend not in DISPATCHERS[1:]:
        found.problems.append(
            f"--moe-flex-dispatcher-backend must be {' or '.join(DISPATCHERS[1:])}, but got {backend!r}"
        )
    return backend


def _pipeline(found: _Found, layers: int, pp: int) -> tuple[tuple[int, ...], int]:
    """Layers per stage (empty when even) and the virtual stages per stage."""
    numbers, problems = found.numbers, found.problems
    per_virtual_stage, vpp = numbers.get("layers_per_virtual_stage"), numbers.get("vpp", 1)
    if "layout" in found.texts:
        return _layout(found, layers, pp)
    if "first" in numbers or "last" in numbers:
        return _ends(found, layers, pp), vpp
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


def _ends(found: _Found, layers: int, pp: int) -> tuple[int, ...]:
    ends = {name: found.numbers[name] for name in ("first", "last") if name in found.numbers}
    middle, rest = pp - len(ends), layers - sum(ends.values())
    if middle < 0 or rest < 0 or (rest if middle == 0 else rest % middle):
        found.problems.append(
            f"{layers} layers cannot be split over {pp} stages with "
            + " and ".join(f"{count} on the {name}" for name, count in ends.items())
        )
        return ()
    inner = (rest // middle,) * middle if middle else ()
    return (*((ends["first"],) if "first" in ends else ()), *inner, *((ends["last"],) if "last" in ends else ()))


def _layout(found: _Found, layers: int, pp: int) -> tuple[tuple[int, ...], int]:
    stages = expanded(found.texts["layout"]).split("|")
    counts = [stage.count("t") for stage in stages]
    if sum(counts) != layers or len(counts) % pp:
        found.problems.append(
            f"--pipeline-model-parallel-layout has {sum(counts)} layers on {len(counts)} virtual stages; "
            f"expected {layers} layers on a multiple of {pp}"
        )
        return (), 1
    vpp = len(counts) // pp
    per_stage = tuple(sum(counts[stage::pp]) for stage in range(pp))
    if len(set(counts)) == 1:
        return (), vpp
    return (per_stage if virtual_stages(per_stage, layers, pp, vpp) == tuple(counts) else tuple(counts)), vpp


def _ahead(layout: str) -> int:
    """By how many virtual stages MTP layers lie before the head."""
    stages = expanded(layout).split("|")
    return next((len(stages) - 1 - place for place, stage in enumerate(stages) if "m" in stage), 0)


def expanded(layout: str) -> str:
    """Write out the repetitions of a layout.

    >>> expanded("Et|(tt|)*2t*3L")
    'Et|tt|tt|tttL'
    """
    text = layout.replace(" ", "").replace(",", "").replace("\\", "")
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    return re.sub(r"(\w)\*(\d+)", lambda match: match[1] * int(match[2]), text).rstrip("|")


def _zero_stage(found: _Found) -> int:
    stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    if "fsdp" in found.switches:
        # The strategy's default in Megatron-LM is no_shard.
        strategy = found.texts.get("sharding", "no_shard")
        if strategy not in stages:
            found.problems.append(
                f"--data-parallel-sharding-strategy must be one of {', '.join(stages)}, but got {strategy!r}"
            )
        return stages.get(strategy, 0)
    return 1 if "distributed_optimizer" in found.switches else 0


def _recompute(found: _Found) -> str:
    """The mode; selective recomputation recomputes the attention core unless modules are named."""
    selective = "recompute_activations" in found.switches
    granularity = found.texts.get("granularity", "selective" if selective else "none")
    if granularity not in ("none", "selective", "full"):
        found.problems.append(f"--recompute-granularity must be selective or full, but got {granularity!r}")
    if selective and granularity == "full":
        found.problems.append("--recompute-activations (selective) contradicts --recompute-granularity full")
    modules = found.lists.get("recompute_modules", ())
    if granularity != "selective" or not modules:
        return granularity
    unknown = [name for name in modules if name not in MODULES]
    if unknown:
        found.problems.append(f"--recompute-modules must be of {', '.join(MODULES)}, but got {', '.join(unknown)}")
    if "fp8" in found.texts and found.texts.get("fp8_recipe", "delayed") == "delayed":
        rescaled = [name for name in modules if name in RESCALED]
        found.problems += [f"--recompute-modules {name} needs another --fp8-recipe than delayed" for name in rescaled]
    return named(modules) or granularity


def _offload(found: _Found) -> int:
    """Share of the activations on the host [%]: all that may go there unless a fraction is given."""
    if "offloads" not in found.switches:
        return 0
    return round(100 * _fraction(found, "offload_fraction", "--activation-offload-fraction"))


def _dtype(found: _Found) -> str:
    if {"bf16", "fp16"} <= found.switches:
        found.problems.append("--bf16 contradicts --fp16")
    if "fp8" in found.texts:
        return "fp8"
    return "fp16" if "fp16" in found.switches else "bf16"
