"""Measured training runs as jobs and plans: one CSV row each, or the reason why it cannot be priced."""

from __future__ import annotations

import csv
import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.files import MB, read_bytes
from optimizer.base.units import GB, GiB
from optimizer.calibration.rows.cluster import read_cluster
from optimizer.calibration.rows.device import device_name
from optimizer.calibration.rows.model import read_model
from optimizer.calibration.rows.notes import clean_columns
from optimizer.calibration.rows.numbers import flag, integer, number, number_problems
from optimizer.calibration.rows.recipe import (
    ANY,
    dispatcher,
    in_one_micro_batch,
    in_usual_layout,
    in_usual_micro_batches,
    number_format,
    printed_layout,
    recomputation,
    schedule,
    sharding,
    under_recipe,
    usual_vpp,
    with_usual_layers,
    with_usual_policy,
    with_what_fits,
)
from optimizer.calibration.rows.training import sequence, step_seconds, training
from optimizer.catalog import preset_device, preset_stack, stack_names
from optimizer.catalog.readers.text import decoded
from optimizer.catalog.software import release_by_year, releases
from optimizer.catalog.stacks import DEFAULT_STACK, default_stack
from optimizer.job.job import Job, Limits
from optimizer.job.method import ADAPTERS
from optimizer.job.model import Model
from optimizer.job.plan import Plan
from optimizer.job.stack import Stack
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.belief.places import family
from optimizer.objectives.layer.cost import share_on_host
from optimizer.objectives.pipeline.stages import filled_stages
from optimizer.objectives.step.flops import CONVENTIONS, useful_flops

Row = Mapping[str, str]
NEEDED = ("gpu", "gpus")
ZERO_3 = 3  # the stage that shards weights
MICRO_BATCHES = 16  # of a stage of a pipeline, in a row that names no batch: a bubble of 6 %
MOE_STACK = "megatron-core-2025"
UNNAMED = ("", "custom")  # policies of recomputation that say nothing of what is kept
# rows of one table that agree in these differ only in the plan
GROUPED_BY = ("source", "stack", "model", "layers", "hidden", "seq_len", "gpu", "gpus", "global_batch", "dtype")
MOST = 24 * MB  # of a table of runs: pricing its rows, some hundred thousand, takes about 2 GB of memory


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row: what was measured and, unless `refused`, the job and plan to compare it with."""

    id: str  # of the row, else its line
    row: Row  # its cells
    stack_name: str  # the preset that prices it
    refused: str = ""  # why it cannot be priced
    job: Job | None = None  # what was trained
    plan: Plan | None = None  # how
    step_time: float | None = None  # as measured [s]; None where the source gives none
    memory: float | None = None  # as measured [B]; None where the source gives none
    memory_kind: str = ""  # what that counts
    out_of_memory: bool | None = None  # whether it ran out of memory; None where nothing says so
    doubt: str = ""  # why its source makes it no clean measurement
    group: str = ""  # names rows that differ only in the plan
    assumed: tuple[str, ...] = ()  # what the row did not say

    @property
    def doubted(self) -> str:
        """Why the row is no clean measurement of its plan, "" where it is: nothing is fitted to it nor judged by it."""
        if quality := self.row.get("quality", ""):
            return f"its source calls it {quality}"
        if self.doubt:
            return self.doubt
        if self.plan is None:
            return ""
        unnamed = "micro_batch" * (not self.row.get("micro_batch"))
        unnamed = unnamed or "global_batch" * (self.plan.pp > 1 and not self.row.get("global_batch"))
        return f"it names no {unnamed}" if unnamed else ""


def read_runs(path: str | Path, stack: Stack | None = None) -> list[Run]:
    """Every row of a CSV of measured runs, in its order.

    Args:
        path: of the table.
        stack: overrides the one that each row names.

    Raises:
        InvalidFile: the file cannot be read as CSV or lacks a column that nothing can replace.
    """
    return [read_run(row, index, stack) for index, row in enumerate(rows_of(path), start=2)]


def rows_of(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV of measured runs without blanks around their cells. Raises InvalidFile as read_runs does."""
    return rows_in(table_bytes(path), path)


def table_bytes(path: str | Path) -> bytes:
    """What a table of runs holds; raises InvalidFile for what cannot be read."""
    try:
        return read_bytes(path, MOST)
    except OSError as error:
        advice = "; give fewer of its rows at a time" if error.errno == errno.EFBIG else ""
        raise InvalidFile(path, [f"cannot be read: {error.strerror}{advice}"]) from None


def rows_in(data: bytes, path: str | Path) -> list[dict[str, str]]:
    """The rows of a table that was read, whose path messages name; raises InvalidFile as read_runs does."""
    try:
        reader = csv.DictReader(StringIO(decoded(data)))
        rows = [dict(row) for row in reader]
        columns = set(reader.fieldnames or ())
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(path, [f"is not a CSV file: {error}"]) from None
    missing = [name for name in NEEDED if name not in columns]
    if missing or not ({"model", "layers"} & columns):
        need = [*missing, *([] if {"model", "layers"} & columns else ["model (or layers, hidden, heads, ...)"])]
        raise InvalidFile(path, [f"column {name} is missing" for name in need])
    return [{key: (value or "").strip() for key, value in row.items() if key is not None} for row in rows]


def read_run(row: Row, line: int, stack: Stack | None = None) -> Run:
    """One row as a Run; a row that cannot be priced carries the reason instead of a job."""
    row = dict(row)
    identity = row.get("id") or f"line {line}"
    assumed: list[str] = []
    recipe = _one_step(clean_columns(row, assumed))
    row |= {name: recipe.get(name, "") for name in ("micro_batch", "quality")}
    name = stack.name if stack else stack_for(recipe, assumed)
    if problems := number_problems(row):
        return Run(id=identity, row=row, stack_name=name, refused="; ".join(problems))
    measured = Run(id=identity, row=row, stack_name=name, **_measured(recipe))
    try:
        job, plan = _job(recipe, stack or _taken_for(recipe, preset_stack(name)), assumed)
    except InputError as error:
        return replace(measured, refused=str(error))
    if measured.step_time is None and row.get("status", "ok") in ("", "ok"):
        rate = row.get("tokens_per_s_per_gpu", "") if rate_alone(row) else ""
        seconds = step_seconds(row, job.global_batch, job.tokens, job.gpus)
        seconds = job.tokens / (float(rate) * job.gpus) if rate else seconds or _seconds_of_mfu(recipe, job)
        if seconds:
            measured = replace(measured, step_time=seconds, out_of_memory=False)
            assumed.append("step time from throughput")
    group = "|".join([row.get("table") or row.get("source_ref", ""), *(row.get(key, "") for key in GROUPED_BY)])
    return replace(measured, job=job, plan=plan, group=group, assumed=tuple(assumed))


def _seconds_of_mfu(row: Row, job: Job) -> float:
    """The step time that a row's MFU implies, counted as the row says, 0 where it does not [s].

    Source: Chowdhery et al., arXiv 2204.02311, appendix B.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=8192, global_batch=128)
    >>> [round(_seconds_of_mfu(row, job), 1) for row in ({"mfu_pct": "50", "mfu_counts": "6n"}, {"mfu_pct": "50"})]
    [11.9, 0.0]
    """
    counts = row.get("mfu_counts", "")
    if counts not in CONVENTIONS or not row.get("mfu_pct"):
        return 0.0
    return useful_flops(job, counts) / (number(row, "mfu_pct") / 100.0 * job.gpus * job.peak_flops)


def nothing_to_fit(runs: Sequence[Run]) -> str:
    """Why none of some rows is a clean measurement."""
    reasons = list(dict.fromkeys(run.refused for run in runs if run.refused))[:3]
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"none of {len(runs)} rows has a step time, a blank quality and all that pricing needs{why}"


def stack_for(row: Row, assumed: list[str]) -> str:
    """The stack preset that a row names, else that of the same software, else its vendor's usual one, with a remark.

    >>> assumed: list[str] = []
    >>> stack_for({"stack": "maxtext-2025", "gpu": "TPU v6e"}, assumed), stack_for({"gpu": "H100"}, assumed), assumed
    ('maxtext', 'megatron-core', ['stack maxtext for maxtext-2025', 'stack megatron-core for blank'])
    """
    name = row.get("stack", "")
    if name in stack_names():
        return name
    same = [known for known in stack_names() if family(known) == family(name)]
    if release := release_by_year(name, near=not same):
        assumed.append(f"stack {release.rates} for {name}")
        return release.spelled
    known = family(name) if family(name) in same else max(same, default="") or _usual_stack(row)
    assumed.append(f"stack {known} for {name or 'blank'}")
    return known


def known_name(name: str) -> bool:
    """Whether a stack of this name is a preset or a release of one."""
    return name in stack_names() or name in releases()


def _taken_for(row: Row, stack: Stack) -> Stack:
    """The stack that prices a row; what its runs say of its errors holds for no other software that it is taken for."""
    named = row.get("stack", "")
    if not named or family(named) == family(stack.name):
        return stack
    return replace(stack, name=named, devices=(), ranges={}, known=())


def _usual_stack(row: Row) -> str:
    """The stack of a row that names none that is known: its device's usual one, for a MoE model that of MOE_STACK.

    Models of many experts that anybody trains are of 2025 or later, when Megatron's host waited for the all-to-all.
    """
    try:
        device = preset_device(device_name(row.get("gpu", ""), row.get("gpu_mem_gb", "")))
    except InputError:
        return DEFAULT_STACK
    usual = default_stack(device, row.get("method", "").startswith(ADAPTERS))
    return MOE_STACK if usual == DEFAULT_STACK and not row.get("stack") and row.get("experts") else usual


def _job(row: Row, stack: Stack, assumed: list[str]) -> tuple[Job, Plan]:
    model, cluster = read_model(row, assumed), read_cluster(row)
    if re.search(r"bert|t5|vit|diffusion", row.get("model", "").lower()):
        raise InputError(f"model {row['model']!r} is not a decoder-only transformer")
    if "single layer" in row.get("model", "").lower():
        raise InputError(f"{row['model']!r} is one layer without embedding and head, not a training step")
    trains = training(row, assumed)
    if trains.get("lengths") and row.get("seq_len"):
        row = {**row, "seq_len": f"{sequence(row, trains)}"}
    gpus, seq_len = chips(row, assumed), integer(row, "seq_len", min(model.max_seq_len, 4096), assumed)
    stack = under_recipe(row, stack)
    dtype = number_format(row, cluster, stack, assumed)
    if leaves_out_experts(row, model, stack):
        raise InputError("the row has no ep, which decides how long a MoE model takes")
    cp, ep, pp = (integer(row, name, 1) for name in ("cp", "ep", "pp"))
    if row.get("tp") == ANY:
        shards = gpus * integer(row, "micro_batch", 1) * integer(row, "grad_accum", 1)
        tp = max(1, round(shards / integer(row, "global_batch")))
    else:
        tp = integer(row, "tp", 1)
    vpp = integer(row, "vpp") if row.get("vpp") else usual_vpp(stack, model.layers, pp, assumed)
    if gpus % (tp * cp * pp):
        raise InputError(f"tp x cp x pp = {tp} x {cp} x {pp} does not divide {gpus} GPUs")
    dp = gpus // (tp * cp * pp)
    if layout := printed_layout(row, model.layers, pp * vpp):
        model = model if layout[1] else replace(model, mtp_layers=0)
    filled = filled_stages(model, pp) if stack.features.filled_stages and pp > 1 else ()
    micro_batch = integer(row, "micro_batch", 1)
    usual = dp * micro_batch * usual_micro_batches(row, pp) if rate_alone(row) else None
    if row.get("grad_accum") or (row.get("method") and row.get("mem_gb") and not row.get("step_time_s")):
        usual = usual or dp * micro_batch * integer(row, "grad_accum", 1)
    global_batch = integer(row, "global_batch", usual, assumed)
    zero, shard = sharding(row, stack, cluster, piped=pp > 1)
    plan = Plan(
        tp=tp,
        cp=cp,
        ep=ep,
        pp=pp,
        etp=integer(row, "etp", 1) if model.experts else 1,
        vpp=vpp,
        dp=dp,
        micro_batch=micro_batch,
        num_microbatches=max(1, round(global_batch / (dp * micro_batch))),
        sequence_parallel=flag(row, "seq_parallel", stack.features.sequence_parallel) and tp > 1,
        zero_stage=zero,
        shard=shard,
        recompute=recomputation(row, assumed),
        layers_per_stage=layout[0] if layout else filled,
        recompute_first=integer(row, "recompute_first", 0) if row.get("recompute") == "full" else 0,
        schedule=schedule(row, vpp),
        dispatcher=dispatcher(row, stack) if model.experts and ep > 1 else DISPATCHERS[0],
        overlap_exchange=bool(model.experts and ep > 1 and row.get("ep_overlap", "").lower() == "on"),
    )
    job = Job(
        model=model,
        cluster=cluster,
        stack=stack,
        gpus=gpus,
        seq_len=seq_len,
        global_batch=plan.dp * plan.micro_batch * plan.num_microbatches,
        dtype=dtype,
        limits=Limits(hbm=number(row, "hbm_gib") * GiB) if row.get("hbm_gib") else Limits(),
        **trains,
    )
    if row.get("offload") == "activations":
        plan = replace(plan, activation_offload=100)
    elif row.get("offload"):
        raise InputError(f"what lies on the host ({row['offload']}) is no state that rows can name")
    if modules := re.findall(r"\w+", row.get("offload_modules", "")):
        plan = replace(plan, activation_offload=share_on_host(job, plan, modules))
    if row.get("tp") == ANY:
        plan = in_usual_layout(job, plan, assumed)
    if row.get("recompute") == ANY:
        plan = with_usual_layers(job, plan, assumed)
    if not row.get("micro_batch"):
        several = stack.features.accumulates or pp > 1 or rate_alone(row)
        plan = in_usual_micro_batches(job, plan, assumed) if several else in_one_micro_batch(plan, assumed)
    if row.get("recompute", "") in UNNAMED and stack.features.selective_on_host and plan.recompute == "selective":
        plan = with_usual_policy(job, plan, assumed)
    if not row.get("recompute") and row.get("status", "ok") in ("", "ok") and not known_name(stack.name):
        plan = with_what_fits(job, plan, assumed)
    return job, plan


def leaves_out_experts(row: Row, model: Model, stack: Stack) -> bool:
    """Whether a row of a MoE model on several devices leaves its expert parallelism out.

    Software that shards weights (ZeRO-3) may have none; where others do without, tables say 1.

    >>> from optimizer.catalog import load_model, load_stack
    >>> stacks = load_stack("megatron-core"), load_stack("torchtitan-2024")
    >>> [leaves_out_experts({"gpus": "256"}, load_model("deepseek-v3"), stack) for stack in stacks]
    [True, False]
    """
    whole = model.experts is None or stack.features.default_zero == ZERO_3
    return not (whole or row.get("ep") or integer(row, "gpus") == 1)


def rate_alone(row: Row) -> bool:
    """Whether a row names no global batch but its tokens per second, which depend little on it.

    >>> rate_alone({"micro_batch": "8", "tokens_per_s_per_gpu": "49381", "pp": "4"}), rate_alone({"step_time_s": "2"})
    (True, False)
    """
    return not row.get("global_batch") and bool(row.get("tokens_per_s_per_gpu")) and not row.get("step_time_s")


def usual_micro_batches(row: Row, pp: int) -> int:
    """Micro-batches of a step of a row that names no batch: one; of a pipeline so many that its bubble is small.

    So many samples too, where it names no micro-batch either: `in_usual_micro_batches` deals them.

    >>> usual_micro_batches({"micro_batch": "8"}, 1), usual_micro_batches({"micro_batch": "2"}, 4)
    (1, 64)
    """
    return 1 if pp == 1 and row.get("micro_batch") else MICRO_BATCHES * pp


def chips(row: Row, assumed: list[str]) -> int:
    """Devices of a row: one is one chip; a table that counts the two cores of each says so with the slice's name.

    >>> assumed: list[str] = []
    >>> chips({"gpu": "TPU v5p-1024", "gpus": "1024"}, assumed), assumed
    (512, ['512 chips of two cores each'])
    """
    count = integer(row, "gpus")
    cores = re.search(r"v(?:2|3|4|5p)-(\d+)\b", row["gpu"].lower())
    if cores and int(cores[1]) == count and count % 2 == 0:
        assumed.append(f"{count // 2} chips of two cores each")
        return count // 2
    return count


def _measured(row: Row) -> dict[str, Any]:
    status = row.get("status", "ok") or "ok"
    step = float(row["step_time_s"]) if row.get("step_time_s") else None
    unit = GiB if "GiB" in (row.get("mem_gb_unit", ""), row.get("mem_unit", "")[:3]) else GB
    several = integer(row, "gpus") if "sum over the gpus" in row.get("mem_kind", "").lower() else 1
    memory = float(row["mem_gb"]) * unit / several if row.get("mem_gb") else None
    oom = True if status == "oom" else (False if status == "ok" and step else None)
    known = {"step_time": step, "memory": memory, "out_of_memory": oom}
    return known | {"memory_kind": row.get("mem_kind", ""), "doubt": row.get("doubt", "")}


def _one_step(row: Row) -> Row:
    """One of the `steps` that a row calls one.

    >>> one = _one_step({"steps": "8", "global_batch": "2048.0", "step_time_s": "44.0"})
    >>> one["global_batch"], one["step_time_s"]
    ('256.0', '5.5')
    """
    if not row.get("steps"):
        return row
    cells = {name: row[name] for name in ("global_batch", "step_time_s") if row.get(name)}
    return {**row, **{name: str(number(row, name) / integer(row, "steps")) for name in cells}}
