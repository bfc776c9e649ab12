"""A run as a row of a table of measured runs, which `optimize validate` and `optimize calibrate` read."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.files import read_bytes, replace_file
from optimizer.base.names import csv_cell
from optimizer.base.units import GB
from optimizer.calibration.runs import read_run
from optimizer.catalog.readers.text import decoded
from optimizer.diagnose.failures import OOM
from optimizer.diagnose.measured import Measured
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.recomputation import MODES, modules_of

COLUMNS = (
    *("id", "source", "table", "stack", "model", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab"),
    *("seq_len", "gpu", "gpu_mem_gb", "gpus", "gpus_per_node", "inter_link"),
    *("tp", "cp", "ep", "etp", "pp", "vpp", "dp", "sharding", "seq_parallel", "micro_batch", "global_batch"),
    *("recompute", "dispatcher", "ep_overlap", "dtype", "framework", "step_time_s", "step_time_basis"),
    *("mem_gb", "mem_kind", "status", "quality", "notes"),
)
NEEDED = ("model", "gpu", "gpus", "micro_batch", "global_batch")
IN_BOTH = ("gpus", "tp", "cp", "ep", "pp", "micro_batch", "global_batch", "seq_len", "layers", "hidden")
Row = Mapping[str, str]


def row_of(run: Measured, job: Job | None = None, plan: Plan | None = None) -> dict[str, str]:
    """The columns of one run: from the plan that it ran, what its log prints, and what was measured.

    Raises InputError when a column is missing that nothing can replace, or the row cannot be priced.
    """
    known = {name: value for name, value in run.facts.items() if name in COLUMNS}
    planned = _of_plan(job, plan) if job and plan else {}
    if job and plan and (differing := contradictions(known, job, plan)):
        raise InputError(
            f"{run.files[0]}: the log is not of this plan: it has {differing}; give the plan that ran, or none"
        )
    described, measured = {**known, **planned}, _measured(run)
    row = {"framework": run.program, **described, **measured}
    row["notes"] = "; ".join(filter(None, (described.get("notes", ""), measured.get("notes", ""))))
    if missing := [name for name in NEEDED if not row.get(name)]:
        raise InputError(
            f"{run.files[0]}: a row of runs needs {', '.join(missing)}; give --plan, or "
            + " ".join(f"--set {name}=..." for name in missing)
        )
    if not row.get("step_time_s") and row["status"] != OOM:
        raise InputError(f"{run.files[0]}: its log tells no step time, so that there is nothing to append")
    if refused := read_run(row, 0).refused:
        raise InputError(f"{run.files[0]}: the row could not be priced: {refused}; correct it with --set")
    return row


def contradictions(facts: Row, job: Job, plan: Plan) -> str:
    """What a log prints of its settings that is not so in a plan, in words; "" where nothing is."""
    planned = _of_plan(job, plan)
    differ = [name for name in IN_BOTH if name in facts and facts[name] != planned.get(name, facts[name])]
    return ", ".join(f"{name} {facts[name]}, not {planned[name]}" for name in differ)


def _measured(run: Measured) -> dict[str, str]:
    """What the log tells."""
    row = {"id": Path(run.files[0]).name, "source": "own log", "status": run.status, "table": ""}
    if run.steady:
        row["step_time_s"] = f"{run.steady.seconds:.6g}"
        row["step_time_basis"] = f"median of steps {run.steady.first} to {run.steady.last}"
        row["notes"] = f"spread {run.steady.spread:.2%}"
        row["status"] = "ok"  # what failed after steady steps was measured all the same
    if run.memory is not None:
        row["mem_gb"], row["mem_kind"] = f"{run.memory / GB:.4g}", f"max {run.memory_kind}"
    return row


def _of_plan(job: Job, plan: Plan) -> dict[str, str]:
    """The columns of a job and its plan, as optimizer.calibration reads them."""
    model, cluster = job.model, job.cluster
    device = cluster.device.name.replace("tpu-", "tpu ")
    memory = {"a100-40": "40", "a100-80": "80", "v100-16": "16", "v100-32": "32"}.get(device.removesuffix("-pcie"), "")
    row = {
        "stack": job.stack.name,
        "model": model.name,
        "layers": str(model.layers),
        "hidden": str(model.hidden),
        "ffn_hidden": str(model.ffn_hidden),
        "heads": str(model.heads),
        "kv_heads": str(model.kv_heads),
        "vocab": str(model.vocab),
        "seq_len": str(job.seq_len),
        "gpu": device,
        "gpu_mem_gb": memory,
        "gpus": str(job.gpus),
        "gpus_per_node": str(cluster.gpus_per_node),
        "tp": str(plan.tp),
        "cp": str(plan.cp),
        "ep": str(plan.ep),
        "etp": str(plan.etp),
        "pp": str(plan.pp),
        "vpp": str(plan.vpp),
        "dp": str(plan.dp),
        "sharding": f"{plan.zero_stage}" + (f" within {plan.shard}" if plan.shard else ""),
        "seq_parallel": str(plan.sequence_parallel),
        "micro_batch": str(plan.micro_batch),
        "global_batch": str(plan.dp * plan.micro_batch * plan.num_microbatches),
        "recompute": plan.recompute if plan.recompute in MODES else "selective",
        "dtype": job.dtype,
    }
    if plan.ep > 1:
        row["dispatcher"] = plan.dispatcher
        if job.stack.features.offers_overlap:
            row["ep_overlap"] = "on" if plan.overlap_exchange else "off"
    if job.gpus > cluster.scale_up_size:
        row["inter_link"] = f"{cluster.tiers[1].link.bandwidth * 8e-9:.6g} Gb/s per GPU"
    notes = []
    if plan.recompute not in MODES:
        notes.append(f"recompute_modules=[{', '.join(modules_of(plan.recompute))}]")
    elif plan.recompute_first:
        notes.append(f"recompute_num_layers={plan.recompute_first}")
    if len(set(plan.layers_per_stage)) > 1:
        notes.append(f"layers per stage {' '.join(map(str, plan.layers_per_stage))}")
    row["notes"] = "; ".join(notes)
    return row


def append_rows(path: Path, rows: Sequence[Row]) -> None:
    """Add rows to a table of runs, under its own columns and those that it lacks; a file that is not there is begun.

    What is in the file stays as it is unless columns must be added; it is replaced in one step, so that no interruption
    leaves half of it. Raises InvalidFile when the file is no such table, or cannot be written.
    """
    try:
        data = read_bytes(path) if path.exists() else b""
        before = decoded(data)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(path, [f"cannot be read: {error}"]) from None
    old, columns = _table(path, before)
    used = [name for name in COLUMNS if any(row.get(name) for row in rows)]
    new = [name for name in used if name not in columns]
    target = StringIO()
    end = "\r\n" if b"\r\n" in data else "\n"
    writer = csv.DictWriter(target, [*columns, *new], restval="", lineterminator=end)
    if new:
        writer.writeheader()
        writer.writerows(old)
    elif not before.endswith("\n"):
        target.write(end)
    taken = {row.get("id", "") for row in old}
    for row in rows:
        identity = _free(row.get("id", "run"), taken)
        taken.add(identity)
        writer.writerow({name: csv_cell({**row, "id": identity}.get(name, "")) for name in writer.fieldnames})
    replace_file(path, (b"" if new else data) + target.getvalue().encode("utf-8"))


def _table(path: Path, text: str) -> tuple[list[dict[str, str]], list[str]]:
    """The rows and columns of a table of runs, nothing of an empty text."""
    if not text.strip():
        return [], []
    try:
        reader = csv.DictReader(StringIO(text), strict=True)
        columns = list(reader.fieldnames or ())
        rows = list(reader)
    except csv.Error as error:
        raise InvalidFile(path, [f"is not a CSV file: {error}"]) from None
    problems = [f"column {name} is missing" for name in ("gpu", "gpus", "step_time_s") if name not in columns]
    problems += [
        f"line {number}: {len(columns)} columns are named, but the row has others"
        for number, row in enumerate(rows, start=2)
        if None in row or None in row.values()
    ][:3]
    if len(set(columns)) < len(columns):
        problems.append("two columns have the same name")
    if problems:
        raise InvalidFile(path, [*problems, "nothing was written; give a table of runs, or a new file"])
    return rows, columns


def _free(name: str, taken: set[str]) -> str:
    """A name that no row has yet.

    >>> _free("run", {"run", "run-2"})
    'run-3'
    """
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
