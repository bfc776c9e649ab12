"""Act VII: what each stage of ZeRO leaves of a GPU's memory, by the paper's bytes and by the cost model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from optimizer.base.content import Values
from optimizer.job.plan import Plan
from optimizer.page.learn.act import Shown
from optimizer.page.learn.priced import SMALL, PricedDesign, estimated, job_of
from optimizer.reports.plan_charts import memory_chart
from optimizer.studies.textbook import SHARDED, zero_bytes

MICROBATCHES = 8  # of one sequence, of each replica
STAGES = range(4)


@lru_cache(maxsize=256)
def sharded(model: str, gpus: int, stage: int) -> PricedDesign:
    """Data parallelism alone at a stage of ZeRO, micro-batches of one sequence.

    >>> [sharded("gpt3-6.7b", 64, stage).fits for stage in STAGES]
    [False, True, True, True]
    """
    from optimizer.catalog import load_model

    job = replace(job_of(SMALL), model=load_model(model), gpus=gpus, global_batch=gpus * MICROBATCHES)
    plan = Plan(dp=gpus, num_microbatches=MICROBATCHES, zero_stage=stage)
    return estimated(job, plan)


@cache
def facts() -> Values:
    """Bytes per parameter at each stage on 64 GPUs, and those of 6.7 billion parameters [B]."""
    sums = [sum(zero_bytes(stage, 64)) for stage in STAGES]
    return {"bytes": sums, "gpu": [6.7e9 * each for each in sums], "priced": [sharded("gpt3-6.7b", 64, 1)]}


def shown(chosen: Values) -> Shown:
    """The reader's stage: its bytes, the memory of the cost model, and all stages in a table."""
    model, gpus, stage = chosen["model"], chosen["gpus"], chosen["stage"]
    built = sharded(model, gpus, stage)
    params, parts = built.job.model.params, zero_bytes(stage, gpus)
    values = {
        **{"gpus": gpus, "stage": stage, "params": params, "bytes": parts, "design": built},
        "held": [params * each for each in parts],
        "sum": params * sum(parts),
        "over": [f" / {gpus:,}" if stage >= first else "" for first in SHARDED],
        "fits": built.fits,
    }
    return Shown(
        values=values,
        charts={
            "act7-memory": lambda: replace(
                memory_chart(built.job, built.plan, built.priced), title=f"Memory of a GPU, ZeRO {stage}"
            )
        },
        tables={"stages": lambda: stage_rows(model, gpus)},
    )


def stage_rows(model: str, gpus: int) -> tuple[str, tuple[str, ...], list[list[str]]]:
    """Caption, columns and rows of every stage."""
    rows = []
    for stage in STAGES:
        built = sharded(model, gpus, stage)
        parts = [built.job.model.params * each / 1e9 for each in zero_bytes(stage, gpus)]
        rows.append(
            [
                f"ZeRO {stage}",
                *(f"{each:,.1f} GB" for each in (*parts, sum(parts))),
                f"{built.priced.reserved / 1e9:,.1f} GB",
                "yes" if built.fits else "no",
                f"{built.priced.step_time:.2f} s",
            ]
        )
    columns = ("stage", "weights", "gradients", "states", "sum by the paper", "cost model", "fits", "step")
    return f"Every stage on {gpus:,} GPUs, {MICROBATCHES} sequences each a step", columns, rows
