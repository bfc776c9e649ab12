"""Act VIII: what adapters save beside training every weight, on one H100, by the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

from optimizer.base.content import Values
from optimizer.job.job import Job
from optimizer.job.method import FULL, LORA, QLORA
from optimizer.job.plan import Plan, Plans
from optimizer.page.learn.act import Shown
from optimizer.page.learn.priced import PricedDesign, estimated
from optimizer.reports.plan_charts import memory_chart

BATCH = 16  # sequences of a step, one after another
WAYS = (FULL, LORA, QLORA)
PARTS = ("weights", "gradients", "optimizer", "activations")
FIRST = ("llama3-8b", 2048, False)  # model, tokens and recomputation of the question


@lru_cache(maxsize=256)
def tuned(way: str, model: str, seq_len: int, recomputed: bool) -> PricedDesign:
    """A method of `--train` on one H100, micro-batches of one sequence.

    >>> [tuned(way, *FIRST).fits for way in WAYS]
    [False, True, True]
    """
    from optimizer.catalog import load_cluster, load_model, load_stack
    from optimizer.search.infeasible.methods import by_way

    job = Job(
        model=load_model(model),
        cluster=load_cluster("h100"),
        stack=load_stack("megatron-core"),
        gpus=1,
        seq_len=seq_len,
        global_batch=BATCH,
    )
    plan = Plan(num_microbatches=BATCH, recompute="full" if recomputed else "none")
    return estimated(by_way(job, way, ""), plan)


def trained(job: Job) -> float:
    """Weights that are trained [1].

    >>> round(trained(tuned("lora", *FIRST).job) / 1e6)
    42
    """
    from optimizer.objectives.layer.parameters import whole_model
    from optimizer.objectives.layer.trained import local_elements

    whole = whole_model(job.model, local_elements(job, Plans.of([Plan()])))
    return float((whole.trained_shared + whole.trained_experts).sum())


@cache
def facts() -> Values:
    """Full training and LoRA of the question's model."""
    whole, adapted = tuned(FULL, *FIRST), tuned(LORA, *FIRST)
    return {
        **{"whole": whole, "adapted": adapted, "trained": trained(adapted.job), "params": whole.job.model.params},
        "fewer": whole.job.model.params / trained(adapted.job),
        "less": whole.priced.reserved / adapted.priced.reserved,
    }


def shown(chosen: Values) -> Shown:
    """The reader's method, and all of them in a table."""
    others = (chosen["model"], chosen["length"], chosen["recomputed"])
    built = tuned(chosen["way"], *others)
    memory = built.priced.memory
    values = {
        **{"design": built, "fits": built.fits, "trained": trained(built.job)},
        "share": trained(built.job) / built.job.model.params,
        "held": sum(memory.get(name, 0.0) for name in PARTS[:3]),
        "passing": sum(memory.values()) - sum(memory.get(name, 0.0) for name in PARTS[:3]),
    }
    return Shown(
        values=values,
        charts={
            "act8-memory": lambda: replace(
                memory_chart(built.job, built.plan, built.priced), title=f"Memory, --train {chosen['way']}"
            )
        },
        tables={"ways": lambda: way_rows(*others)},
    )


def way_rows(model: str, seq_len: int, recomputed: bool) -> tuple[str, tuple[str, ...], Sequence[Sequence[str]]]:
    """Caption, columns and rows of every method."""
    every = [(way, tuned(way, model, seq_len, recomputed)) for way in WAYS]
    rows = [
        [
            f"--train {way}",
            built.job.stack.name,
            f"{trained(built.job) / 1e6:,.0f} million",
            *(f"{built.priced.memory.get(name, 0.0) / 1e9:,.1f} GB" for name in PARTS),
            f"{built.priced.reserved / 1e9:,.1f} GB",
            "yes" if built.fits else "no",
            f"{built.job.tokens / built.priced.step_time:,.0f}",
        ]
        for way, built in every
    ]
    columns = ("method", "software", "trained", *PARTS, "whole", "fits", "tokens/s")
    return f"{every[0][1].job.model.title or model} on one H100, {seq_len:,} tokens a sequence", columns, rows
