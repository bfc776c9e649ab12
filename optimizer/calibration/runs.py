"""Measured training runs as jobs and plans: one CSV row each, or the reason why it cannot be priced."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from math import log10
from pathlib import Path
from typing import Any

from optimizer.calibration.row_corrections import corrected
from optimizer.calibration.row_network import measured_bus_bandwidth, network_bandwidth, nvlink_share
from optimizer.calibration.row_numbers import number_problems
from optimizer.calibration.row_recipe import (
    number_format,
    rebuilt_layers,
    recomputation,
    schedule,
    sharding,
    under_recipe,
    usual_vpp,
)
from optimizer.errors import InputError, InvalidFile, UnknownName
from optimizer.hardware import Cluster
from optimizer.job import Job
from optimizer.model import Model
from optimizer.plan import Plan
from optimizer.presets import load_cluster, load_model, load_stack, model_spellings, stack_names
from optimizer.presets.hardware import with_network
from optimizer.presets.stacks import DEFAULT_STACK
from optimizer.readers.text import read_text
from optimizer.stack import Stack

Row = Mapping[str, str]
NEEDED = ("gpu", "gpus")
BUS_STEPS = 10
GATED = ("llama", "qwen", "mistral", "mixtral", "deepseek", "gemma", "gptoss", "internlm", "glm", "phi")
# what the columns of a row cannot describe: experts, state-space layers
UNDESCRIBED = re.compile(
    r"moe|mixtral|deepseek|dbrx|gptoss|grok|kimi|llama4|a\d+b|\dx\d+b|mamba|jamba|nemotronh|qwen3next"
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row: what was measured and, unless `refused`, the job and plan to compare it with.

    `step_time` [s] and `memory` [B] are None where the source gives none; `group` names rows that differ only in the
    plan; `assumed` lists what the row did not say.
    """

    id: str
    row: Row
    stack_name: str
    refused: str = ""
    job: Job | None = None
    plan: Plan | None = None
    step_time: float | None = None
    memory: float | None = None
    memory_kind: str = ""
    out_of_memory: bool | None = None
    group: str = ""
    assumed: tuple[str, ...] = ()


def read_runs(path: Path, stack: Stack | None = None) -> list[Run]:
    """Every row of a CSV of measured runs, in its order; `stack` overrides the one each row names.

    Raises InvalidFile when the file cannot be read as CSV or lacks a column that nothing can replace.
    """
    try:
        reader = csv.DictReader(StringIO(read_text(path)))
        rows = [dict(row) for row in reader]
        columns = set(reader.fieldnames or ())
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}"]) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(path, [f"is not a CSV file: {error}"]) from None
    missing = [name for name in NEEDED if name not in columns]
    if missing or not ({"model", "layers"} & columns):
        need = [*missing, *([] if {"model", "layers"} & columns else ["model (or layers, hidden, heads, ...)"])]
        raise InvalidFile(path, [f"column {name} is missing" for name in need])
    return [read_run(row, index, stack) for index, row in enumerate(rows, start=2)]


def read_run(row: Row, line: int, stack: Stack | None = None) -> Run:
    """One row as a Run; a row that cannot be priced carries the reason instead of a job."""
    row = {key: (value or "").strip() for key, value in row.items() if key is not None}
    identity = row.get("id") or f"line {line}"
    assumed: list[str] = []
    recipe = corrected(row, assumed)
    name = stack.name if stack else stack_for(recipe, assumed)
    if problems := number_problems(row):
        return Run(id=identity, row=row, stack_name=name, refused="; ".join(problems))
    measured = Run(id=identity, row=row, stack_name=name, **_measured(row))
    try:
        job, plan = _job(recipe, stack or load_stack(name), assumed)
    except InputError as error:
        return replace(measured, refused=str(error))
    return replace(measured, job=job, plan=plan, group=_group(row), assumed=tuple(assumed))


def stack_for(row: Row, assumed: list[str]) -> str:
    """The stack preset that a row names, or the default with a remark."""
    name = row.get("stack", "")
    if name in stack_names():
        return name
    assumed.append(f"stack {DEFAULT_STACK} for {name or 'blank'}")
    return DEFAULT_STACK


def _job(row: Row, stack: Stack, assumed: list[str]) -> tuple[Job, Plan]:
    model, cluster = read_model(row, assumed), read_cluster(row, assumed)
    if re.search(r"bert|t5|vit|diffusion", row.get("model", "").lower()):
        raise InputError(f"model {row['model']!r} is not a decoder-only transformer")
    if "single layer" in row.get("model", "").lower():
        raise InputError(f"{row['model']!r} is one layer without embedding and head, not a training step")
    if re.search(r"\b(lora|peft)\b", (row.get("notes", "") + row.get("table", "")).lower()):
        raise InputError("the run trains adapters (LoRA), not all weights")
    gpus, seq_len = _integer(row, "gpus"), _integer(row, "seq_len", min(model.max_seq_len, 4096), assumed)
    stack = under_recipe(row, stack)
    dtype = number_format(row, cluster, stack, assumed)
    tp, cp, pp = (_integer(row, name, 1) for name in ("tp", "cp", "pp"))
    vpp = _integer(row, "vpp") if row.get("vpp") else usual_vpp(stack, model.layers, pp, assumed)
    ep = _integer(row, "ep", 1)
    if gpus % (tp * cp * pp):
        raise InputError(f"tp x cp x pp = {tp} x {cp} x {pp} does not divide {gpus} GPUs")
    dp = gpus // (tp * cp * pp)
    micro_batch, global_batch = _batch(row, dp, assumed)
    zero, shard = sharding(row, stack, cluster)
    sequence_parallel = _flag(row, "seq_parallel", stack.features.sequence_parallel) and tp > 1
    plan = Plan(
        tp=tp,
        cp=cp,
        ep=ep,
        pp=pp,
        vpp=vpp,
        dp=dp,
        micro_batch=micro_batch,
        num_microbatches=max(1, round(global_batch / (dp * micro_batch))),
        sequence_parallel=sequence_parallel,
        zero_stage=zero,
        shard=shard,
        recompute=recomputation(row, assumed),
        recompute_layers=rebuilt_layers(row, pp),
        schedule=schedule(row, vpp),
    )
    job = Job(
        model=model,
        cluster=cluster,
        stack=stack,
        gpus=gpus,
        seq_len=seq_len,
        global_batch=plan.dp * plan.micro_batch * plan.num_microbatches,
        dtype=dtype,
    )
    return job, plan


def read_model(row: Row, assumed: list[str]) -> Model:
    """The preset that a row's model names, with the row's own dimensions where it gives them."""
    preset = _preset_model(row.get("model", ""))
    dimensions = {key: _number(row, column) for key, column in _DIMENSIONS.items() if row.get(column)}
    if preset is not None:
        changed: dict[str, Any] = {
            key: int(value) for key, value in dimensions.items() if int(value) != getattr(preset, key)
        }
        if "heads" in changed or "hidden" in changed:
            changed.setdefault(
                "head_dim", (changed.get("hidden") or preset.hidden) // (changed.get("heads") or preset.heads)
            )
        if "heads" in changed and "kv_heads" not in dimensions and preset.kv_heads == preset.heads:
            changed["kv_heads"] = changed["heads"]
        if preset.position == "learned" and row.get("seq_len"):
            changed["max_seq_len"] = _integer(row, "seq_len")
        return replace(preset, **changed) if changed else preset
    missing = [_DIMENSIONS[key] for key in ("layers", "hidden", "heads") if key not in dimensions]
    if missing:
        raise InputError(f"model {row.get('model')!r} is no preset and the row has no {', '.join(missing)}")
    return _described_model(row, {key: int(value) for key, value in dimensions.items()}, assumed)


_DIMENSIONS = {
    "layers": "layers",
    "hidden": "hidden",
    "ffn_hidden": "ffn_hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "vocab": "vocab",
}


def _described_model(row: Row, dims: dict[str, int], assumed: list[str]) -> Model:
    if UNDESCRIBED.search(_plain(row.get("model", ""))):
        raise InputError(
            f"model {row['model']!r} is no preset and has layers that the columns of a row cannot describe"
        )
    hidden, heads = dims["hidden"], dims["heads"]
    gated = any(word in _plain(row.get("model", "")) for word in GATED)
    if "vocab" not in dims:
        assumed.append("vocabulary 51200")
    learned = "position" in row.get("notes", "") or not gated
    return Model(
        name=row.get("model") or "unnamed",
        layers=dims["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=dims.get("kv_heads", heads),
        head_dim=hidden // heads,
        ffn_hidden=dims.get("ffn_hidden", 4 * hidden),
        vocab=dims.get("vocab", 51200),
        max_seq_len=_integer(row, "seq_len", 2048),
        gated_mlp=gated,
        norm="rms" if gated else "layer",
        position="learned" if learned and not gated else "rope",
        attention_bias=not gated,
        attention_out_bias=not gated,
        mlp_bias=not gated,
        tied_embeddings=not gated or "tied embeddings true" in row.get("notes", "").lower(),
    )


@cache
def _model_index() -> Mapping[str, str]:
    """Presets by plain spelling, with its decimal points; without them where only one preset is meant.

    "llama31405b" is llama3.1-405b, but "gpt1.3b" must never become a model of 13 billion.
    """
    spellings = model_spellings()
    exact = {_plain(spelling.rpartition("/")[2]): name for spelling, name in spellings.items()}
    exact |= {_plain(spelling): name for spelling, name in spellings.items()}
    pointless: dict[str, set[str]] = {}
    for spelling, name in exact.items():
        pointless.setdefault(spelling.replace(".", ""), set()).add(name)
    return {spelling: min(names) for spelling, names in pointless.items() if len(names) == 1} | exact


@cache
def _preset_model(name: str) -> Model | None:
    if not name:
        return None
    try:
        return load_model(name)
    except UnknownName:
        pass
    except InputError:
        raise InputError(f"model {name!r} cannot be read") from None
    known = _model_index().get(_plain(re.sub(r"\(.*?\)", "", name)))
    return load_model(known) if known else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def read_cluster(row: Row, assumed: list[str]) -> Cluster:
    """The cluster preset of a row's GPU, with its node size and network where the row gives them."""
    per_node = _integer(row, "gpus_per_node", 0) if row.get("gpus_per_node") else 0
    cluster = _cluster(_device_name(row, assumed), per_node, row.get("intra_link", ""), row.get("inter_link", ""))
    measured = measured_bus_bandwidth(row.get("notes", ""), row.get("sharding", "").lower()[:1] not in ("", "0"))
    if not measured or _integer(row, "gpus") <= cluster.scale_up_size:
        return cluster
    return _with_bus_bandwidth(cluster, measured)


def _with_bus_bandwidth(cluster: Cluster, measured: float) -> Cluster:
    """The cluster with NICs through which a ring over whole nodes reaches this bus bandwidth [B/s], at most its own.

    In BUS_STEPS steps a decade, as exact as such a benchmark is, so that like runs are priced together.
    """
    link = cluster.tiers[1].link
    nic = measured / cluster.scale_up_size / link.efficiency
    steps = round(BUS_STEPS * log10(link.bandwidth / nic))
    return with_network(cluster, nic_bandwidth=link.bandwidth * 10 ** (-steps / BUS_STEPS)) if steps > 0 else cluster


@cache
def _cluster(device: str, per_node: int, links: str, network: str) -> Cluster:
    cluster = load_cluster(device)
    inner, *outer = cluster.tiers
    share = nvlink_share(device, links)
    cluster = replace(cluster, tiers=(replace(inner, link=inner.link.scaled(share * inner.link.bandwidth)), *outer))
    resized = bool(per_node) and per_node != cluster.gpus_per_node
    if resized and cluster.scale_up_size == cluster.gpus_per_node:
        cluster = replace(with_network(cluster, scale_up_size=per_node), gpus_per_node=per_node)
    bandwidth = network_bandwidth(network, cluster.gpus_per_node)
    return with_network(cluster, nic_bandwidth=bandwidth) if bandwidth else cluster


def _device_name(row: Row, assumed: list[str]) -> str:
    text = row["gpu"].lower()
    match = re.search(
        r"(gb300|gb200|b300|b200|h200|h800|h100|h20|a800|a100|v100|mi\d+x|l40s|tpu ?v\d\w*|gaudi ?\d)", text
    )
    if match is None:
        raise InputError(f"gpu {row['gpu']!r} is not a known device")
    name = match[1].replace(" ", "")
    memory = row.get("gpu_mem_gb", "")
    if name == "a100" and memory.startswith("40"):
        return "a100-40"
    if name == "v100":
        return "v100-32" if memory.startswith("32") else "v100-16"
    if name in ("a100", "a800", "h100", "h800") and "pcie" in text:
        return f"{name}-pcie" if name == "h100" else f"{name}-80-pcie"
    if name.startswith("tpuv"):
        return "tpu-" + name[3:]
    return name


def _batch(row: Row, dp: int, assumed: list[str]) -> tuple[int, int]:
    if not row.get("micro_batch"):
        raise InputError("the row has no micro_batch")
    micro_batch = _integer(row, "micro_batch")
    if not row.get("global_batch"):
        raise InputError("the row has no global_batch")
    return micro_batch, _integer(row, "global_batch")


def _measured(row: Row) -> dict[str, Any]:
    status = row.get("status", "ok") or "ok"
    step = float(row["step_time_s"]) if row.get("step_time_s") else None
    memory = float(row["mem_gb"]) * 1e9 if row.get("mem_gb") else None
    oom = True if status == "oom" else (False if status == "ok" and step else None)
    return {"step_time": step, "memory": memory, "memory_kind": row.get("mem_kind", ""), "out_of_memory": oom}


def _group(row: Row) -> str:
    """Rows that differ only in the plan share this key."""
    keys = ("source", "table", "stack", "model", "layers", "hidden", "seq_len", "gpu", "gpus", "global_batch", "dtype")
    return "|".join(row.get(key, "") for key in keys)


def _number(row: Row, key: str) -> float:
    try:
        return float(row[key])
    except ValueError:
        raise InputError(f"{key} must be a number, but got {row[key]!r}") from None


def _integer(row: Row, key: str, default: int | None = None, assumed: list[str] | None = None) -> int:
    if not row.get(key):
        if default is None:
            raise InputError(f"the row has no {key}")
        if assumed is not None:
            assumed.append(f"{key} {default}")
        return default
    value = _number(row, key)
    if value < 1 or value != int(value):
        raise InputError(f"{key} must be a whole number of at least 1, but got {row[key]!r}")
    return int(value)


def _flag(row: Row, key: str, default: bool) -> bool:
    text = row.get(key, "").lower()
    if not text:
        return default
    return text.startswith(("true", "on", "1", "yes"))
