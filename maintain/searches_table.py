"""The table of searches in docs/search.md: `python -m maintain.searches_table` rewrites it, its times too."""

from __future__ import annotations

from dataclasses import dataclass

from maintain.docs.marked import replaced
from maintain.docs.site import DOCS
from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.frameworks.megatron.layout import stage_layers
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.recomputation import modules_of
from optimizer.reports.plan_words import chance
from optimizer.reports.terms import runs
from optimizer.search.plan.planner import plan

PAGE = "search.md"
START, END = "<!-- searches: start -->", "<!-- searches: end -->"
COLUMNS = (
    *("job", "plans", "band", "laid out", "even split", "best", "gain", "layers per stage", "recomputed"),
    *("fits", "cost"),
)
TIMES = ("sweep", "layouts", "proof", "alternatives", "safety")


@dataclass(frozen=True, kw_only=True)
class Search:
    """One job of the table, by the names of its presets."""

    model: str
    cluster: str
    gpus: int
    seq_len: int
    global_batch: int

    def job(self) -> Job:
        """The job, with the default software and limits."""
        return Job(
            model=load_model(self.model),
            cluster=load_cluster(self.cluster),
            stack=load_stack("megatron-core"),
            gpus=self.gpus,
            seq_len=self.seq_len,
            global_batch=self.global_batch,
        )


SEARCHES = (
    Search(model="gpt3", cluster="dgx-a100-80", gpus=1024, seq_len=2048, global_batch=1536),
    Search(model="gpt3", cluster="dgx-h100", gpus=1024, seq_len=2048, global_batch=1536),
    Search(model="llama3-70b", cluster="dgx-a100-40", gpus=256, seq_len=8192, global_batch=512),
    Search(model="llama3.1-405b", cluster="dgx-h100", gpus=16384, seq_len=8192, global_batch=2048),
    Search(model="llama3.1-405b", cluster="dgx-h100", gpus=16384, seq_len=131072, global_batch=128),
    Search(model="mixtral-8x22b", cluster="dgx-h100", gpus=128, seq_len=8192, global_batch=512),
    Search(model="qwen3-235b-a22b", cluster="dgx-h100", gpus=256, seq_len=8192, global_batch=512),
    Search(model="deepseek-v3", cluster="dgx-h800", gpus=2048, seq_len=4096, global_batch=15360),
)


def searches_section(top: int = 5) -> str:
    """Every search without trials of Optuna, with so many runners-up, of which only the time is shown, as Markdown
    between the markers.
    """
    rows = [row(search, plan(search.job(), top=top, trials=0)) for search in SEARCHES]
    names = (*COLUMNS, *(f"{name} [ms]" for name in TIMES))
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n".join([START, "", *lines, "", END])


def row(search: Search, answer: Answer) -> list[str]:
    """One row of the table; the cells of TIMES come last.

    Raises InputError when the job has no plan.
    """
    best, certificate = answer.plan, answer.certificate
    if best is None or certificate is None or not certificate.proven:
        raise InputError(f"{search.model} on {search.gpus:,} GPUs has no proven plan")
    model, gain = answer.job.model, certificate.layout_gain
    device = answer.job.cluster.device.name
    return [
        f"{model.title or model.name}, {search.gpus:,} {device}, {search.seq_len:,} tokens",
        f"{certificate.space:,}",
        f"{certificate.band:,}",
        f"{certificate.solved:,}",
        f"{certificate.even:.4g} s" if gain is not None else "none fits",
        f"{certificate.best:.4g} s",
        f"{max(0.0, gain):.1%}" if gain is not None else "",
        runs(stage_layers(best, model.layers)),
        recomputed(best),
        chance(answer.job, answer.estimate) if answer.estimate else "",
        f"{answer.safety.cost:.1%}" if answer.safety else "",
        *(f"{1000 * answer.search_s[name]:.0f}" for name in TIMES),
    ]


def recomputed(plan: Plan) -> str:
    """The layers that each stage or every virtual stage recomputes, or the modules that all layers do."""
    if plan.recompute == "full" and not plan.recompute_layers:
        return f"{plan.recompute_first} a virtual stage" if plan.recompute_first else "all"
    return runs(plan.recompute_layers) if any(plan.recompute_layers) else " + ".join(modules_of(plan.recompute))


if __name__ == "__main__":
    page = DOCS / PAGE
    page.write_text(replaced(page.read_text(encoding="utf-8"), searches_section()), encoding="utf-8")
