"""MaxText's YAML, by itself or under Primus.

Source of the keys and defaults: AI-Hypercomputer/maxtext, src/MaxText/configs/base.yml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.frameworks.config.launch import ConfigKey, Values, key_tables, note_keys, rest, take, whole
from optimizer.frameworks.launch import LARGEST_COUNT, Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.plan import Plan

AXES: Mapping[str, Sequence[str]] = key_tables("maxtext")["axes"]
COUNTS: Mapping[str, str] = key_tables("maxtext")["counts"]
BATCH, STEPS, REMAT, NAME = "per_device_batch_size", "gradient_accumulation_steps", "remat_policy", "model_name"
QUANTISED, PRIMUS = "quantization", "modules.pre_trainer.model"
POLICIES: Mapping[str, str] = {
    "full": "full",
    **dict.fromkeys(("minimal_with_context", "minimal_flash", "none"), "none"),
}
KEYS = (
    ConfigKey("recompute", (REMAT,), lambda policy: POLICIES.get(str(policy), "selective"), "full"),
    ConfigKey("dtype", (), str, "bf16"),
    ConfigKey("dtype", (QUANTISED,), lambda text: "fp8" if "fp8" in str(text) else None),
    ConfigKey("model", (NAME, PRIMUS), lambda text: named(str(text).removesuffix(".yaml")) or None),
)


def recognised(values: Values) -> bool:
    """Whether a YAML is MaxText's."""
    return any(path.rpartition(".")[2] in (BATCH, "max_target_length", "base_emb_dim") for path in values)


def read(launch: Launch, values: Values) -> None:
    """Note what it says; paths of a config inside another are known by their last key."""
    ends = {path.rpartition(".")[2]: path for path in values}
    take(launch, values, {name: ends[key] for name, key in COUNTS.items() if key in ends})
    settings = launch.settings
    if settings.get("experts") == 1:
        settings.pop("experts")
    axes = [path for key, path in ends.items() if key.endswith("_parallelism")]
    odd = [path for path in values if path.endswith("_parallelism") and not isinstance(values[path], int)]
    launch.problems += [f"{path} must be a whole number, but got {values[path]!r}" for path in odd]
    size = values.get(ends.get(BATCH, ""), 12)
    if not odd and (isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < LARGEST_COUNT):
        launch.problems.append(f"{ends[BATCH]} must be a number above 0, but got {size!r}")
    if launch.problems:
        return
    ranks = _axes(launch, values, ends)
    # A device's share of the batch: with several devices to a replica each sequence is shared by them.
    launch.say("micro_batch", max(1, round(size * ranks)), ends.get(BATCH, ""))
    steps = (whole(launch, values, ends[STEPS]) if STEPS in ends else None) or 1
    launch.say("num_microbatches", int(steps), ends.get(STEPS, "") or BATCH)
    note_keys(launch, values, KEYS, ends)
    if "model" not in settings and "hidden" in settings:
        settings |= {
            "gated_mlp": True,
            "activation": "swiglu",
            "norm": "rms",
            "position": "rope",
            "tied_embeddings": False,
        }
    known = [ends[key] for key in (BATCH, STEPS, REMAT, NAME) if key in ends]
    rest(launch, values, (*known, *axes, *COUNTS.values(), PRIMUS))


def _axes(launch: Launch, values: Values, ends: Mapping[str, str]) -> int:
    """Note the degrees that the axes of the mesh stand for; the devices of a replica."""
    settings, fsdp_key = launch.settings, ends.get("ici_fsdp_parallelism", "")
    split = [f"{part}_{axis}_parallelism" for axes in AXES.values() for axis in axes for part in ("ici", "dcn")]
    launch.unpriced += [f"{ends[key]} -1" for key in split if values.get(ends.get(key, "")) == -1]
    for name, axes in AXES.items():
        degree = max(_degree(values, ends, axis) for axis in axes)
        launch.say(name, degree, ends.get(f"ici_{axes[0]}_parallelism", "") if degree > 1 else "")
    settings["sequence_parallel"] = settings["tp"] > 1
    fsdp, data = (_degree(values, ends, axis, open_ends=True) for axis in ("fsdp", "data"))
    launch.say("zero_stage", 0 if fsdp == 1 and data != 1 else 3, fsdp_key)
    if fsdp > 1 and data > 1:
        launch.say("shard", fsdp * settings["cp"], fsdp_key)
    ranks = int(settings["tp"] * settings["pp"] * settings["cp"])
    if "gpus" not in settings and fsdp > 0 and data > 0 and fsdp * data * ranks > 1:
        launch.say("gpus", fsdp * data * ranks * settings["ep"], fsdp_key)
    return ranks


def _degree(values: Values, ends: Mapping[str, str], axis: str, open_ends: bool = False) -> int:
    """Devices along an axis, inside of and between slices; -1 where one of them takes all that are left."""
    parts = [values.get(ends.get(f"{part}_{axis}_parallelism", ""), 1) for part in ("ici", "dcn")]
    if any(part == -1 for part in parts):
        return -1 if open_ends else 1
    return max(1, int(parts[0])) * max(1, int(parts[1]))


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    ends = {path.rpartition(".")[2]: path for path in values}
    base = ends.get("max_target_length", "").rpartition(".")[0]

    def path(key: str) -> str:
        return ends.get(key) or (f"{base}.{key}" if base else key)

    wanted: dict[str, Any] = {}
    for name, (axis, *_) in AXES.items():
        if getattr(before, name) != getattr(after, name):
            wanted |= {path(f"ici_{axis}_parallelism"): getattr(after, name)}
            if path(f"dcn_{axis}_parallelism") in values:
                wanted[path(f"dcn_{axis}_parallelism")] = 1
    ranks = after.tp * after.pp * after.cp
    if after.micro_batch != before.micro_batch or ranks != before.tp * before.pp * before.cp:
        size = after.micro_batch / ranks
        wanted[path(BATCH)] = int(size) if size == int(size) else size
    if after.num_microbatches != before.num_microbatches:
        wanted[path(STEPS)] = after.num_microbatches
    fsdp, data = (_degree(values, ends, axis, open_ends=True) for axis in ("fsdp", "data"))
    if after.zero_stage != before.zero_stage or (after.dp != before.dp and fsdp > 0 and data > 0):
        groups = after.dp // after.ep
        sharing = 1 if after.zero_stage == 0 else after.shard or groups
        for axis, degree in (("fsdp", sharing), ("data", groups // sharing)):
            wanted[path(f"ici_{axis}_parallelism")] = degree
            if path(f"dcn_{axis}_parallelism") in values:
                wanted[path(f"dcn_{axis}_parallelism")] = 1
    if after.recompute != before.recompute:
        policy = {"full": "full", "none": "minimal_with_context"}.get(after.recompute, "save_qkv_proj")
        wanted[path(REMAT)] = policy
    return wanted
