"""The jobs: each run of presets/published.csv as a planner is told of it, and apart from it what was measured.

    python -m bench.planners.jobs [--runs FILE.csv]

writes jobs.json and measured.json beside this file, or beside FILE.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.planners.score import FORMAT, HERE
from optimizer.calibration.rows.notes import clean_columns
from optimizer.calibration.rows.recipe import switched_off
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog.files import presets_folder

ALIKE = ("source", "model", "gpu", "seq_len", "dtype")  # runs that share these are ranked against each other
COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
SWITCHES = ("gated_mlp", "tied_embeddings")
PLAN = ("tp", "cp", "ep", "pp", "vpp", "dp", "micro_batch", "num_microbatches")
FURTHER = ("sequence_parallel", "zero_stage", "shard", "recompute", "schedule")


def documents(runs: Sequence[Run]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The jobs and what was measured, in the order of the file; a row that is doubted or lacks a plan is left out."""
    kept = [run for run in runs if run.job and run.plan and not run.doubted and (run.step_time or run.out_of_memory)]
    jobs = [job_of(run) for run in kept]
    measured = {run.id: {"step_time_s": run.step_time, "out_of_memory": bool(run.out_of_memory)} for run in kept}
    return {"format": FORMAT, "jobs": jobs}, {"format": FORMAT, "runs": measured}


def job_of(run: Run) -> dict[str, Any]:
    """One job in SI units, without anything that was measured."""
    job, plan = run.job, run.plan
    if job is None or plan is None:
        raise ValueError(f"{run.id} has no plan")
    model, device = job.model, job.cluster.device
    shape = {name: getattr(model, name) for name in (*COUNTS, *SWITCHES)}
    latent = asdict(model.mla) if model.mla else None
    experts = asdict(model.experts) if model.experts else None
    counts = {"parameters": model.params, "active_parameters": model.active_params}
    return {
        "id": run.id,
        "source": f"{run.row.get('source', '')}, {run.row.get('table', '')}".rstrip(", "),
        "group": " | ".join(run.row.get(name, "") for name in ALIKE),
        "model": {"name": model.name, **shape, **counts, "latent_attention": latent, "experts": experts},
        "device": {
            "name": device.name,
            "peak_flops": job.peak_flops,
            "memory_bytes": device.memory,
            "memory_bandwidth": device.memory_bandwidth,
        },
        "cluster": {
            "network": run.row.get("inter_link", ""),
            "gpus_per_node": job.cluster.gpus_per_node,
            "tiers": [
                {"gpus": tier.size, "bandwidth_one_way": tier.bandwidth, "latency_s": tier.link.latency}
                for tier in job.cluster.tiers
            ],
        },
        "software": {
            "framework": run.row.get("framework", ""),
            "attention": run.row.get("attention_kernel", ""),
            "switched_off": list(switched_off(clean_columns(run.row, []))),
        },
        "gpus": job.gpus,
        "seq_len": job.seq_len,
        "global_batch": job.global_batch,
        "dtype": job.dtype,
        "plan": {name: getattr(plan, name) for name in (*PLAN, *FURTHER)},
    }


def written(folder: Path, runs: Sequence[Run]) -> None:
    """Write both files."""
    for name, document in zip(("jobs.json", "measured.json"), documents(runs), strict=True):
        (folder / name).write_text(text_of(document), encoding="utf-8")


def text_of(document: dict[str, Any]) -> str:
    """A document as it lies in a file: one line for each job, so that a difference can be read."""
    (key, content), *_ = [(name, value) for name, value in document.items() if name != "format"]
    if isinstance(content, list):
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in content)
        return f'{{"format": {FORMAT}, "{key}": [\n{lines}\n]}}\n'
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in content.items())
    return f'{{"format": {FORMAT}, "{key}": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the jobs of the benchmark.")
    parser.add_argument("--runs", type=Path, help="measured runs of your own, a CSV like presets/published.csv")
    given = parser.parse_args().runs
    written(given.parent if given else HERE, read_runs(given or presets_folder() / "published.csv"))
