"""Whether the default plans as well as anybody has run: `python -m maintain.measured_against_best RUNS.csv...`.

A job is what rows share that differ in plan and software alone: model, GPUs, machine, sequence, batch and number
formats, those of gradients and states among them. The fastest measured step of each is held to the default's answer
(the best expectation), to the fastest plan of the default stack (`--prefer fast`), and to three bounds of the seconds
of a step: of any plan of the default stack in the model, of any run by what the model may err by, and of any plan of
the software of that run with its switches. Runs that fine-tune on packed samples of which no source says how long they
are have samples of SAMPLE tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import click
import numpy as np

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.calibration.groups import gathered
from optimizer.calibration.runs import Run, rate_alone, read_runs
from optimizer.catalog import load_stack
from optimizer.catalog.stacks import default_stack
from optimizer.job.fields import EXPECTED, FAST
from optimizer.job.job import Job
from optimizer.job.lengths import ON
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Stack
from optimizer.job.switches import switches
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.check.plan_rules import possible, rule_findings
from optimizer.search.plan.planner import plan

SLOWER = (0.05, 0.15)  # by which a planned step should not be the slower one [1]
BELOW = 0.03  # by which a measured step should not lie below a bound [1]
# What the stack of a row says of its data, and of number formats beside that of its products.
OF_THE_JOB = ("balanced_experts", "routing", "grad_bytes", "optimizer_bytes", "fp8_recipe", "narrow_products")
# Of a packed sample where a run fine-tunes and does not say how long its samples are [tokens]: assumed. They are short,
# as a paragraph and a question: with twice as many tokens steps take 1 to 2 % longer, with 4,096 of them 10 to 15 %.
SAMPLE = 256
FINE_TUNED = re.compile(r"task (finetune )?sft\b", re.IGNORECASE)
COLUMNS = (
    "run | model | GPUs | tokens | batch | format | measured [s] | default | fastest | bound | of any run"
    " | of its software | as run | as read | plan | why"
)


@dataclass(frozen=True, kw_only=True)
class BestAgainstMeasured:
    """One job: its fastest run, and the default's answers.

    Attributes:
        run: the fastest measured one.
        runs: how many were measured.
        job: the job in the default stack, as it was answered.
        default: step of the plan of the best expectation, infinite where none fits [s].
        fastest: step of the fastest plan, infinite where none fits [s].
        bound: what no plan of the default stack beats in the model, 0 where none is known [s].
        run_bound: what no run is expected to beat, the model's error within its interval; 0 where none is known [s].
        its_bound: what no plan of the run's own software beats, that of the run among them though it may break a limit
            on memory or micro-batches; 0 where none is known [s].
        plan: that of the best expectation, None where none fits.
        as_run: step of the plan that was run, in the default stack [s].
        as_read: step of the plan that was run, in the stack that prices the row [s].
        reserved: memory of the plan that was run, in the default stack [B].
    """

    run: Run
    runs: int
    job: Job
    default: float
    fastest: float
    bound: float
    run_bound: float
    its_bound: float
    plan: Plan | None
    as_run: float
    as_read: float
    reserved: float

    @property
    def measured(self) -> float:
        """The fastest measured step [s]."""
        return self.run.step_time or np.inf

    def slower(self, step: float) -> float:
        """A planned over the best measured step, minus one [1]."""
        return step / self.measured - 1.0

    def below(self, bound: float) -> float:
        """Share by which the measured step lies below a bound [1]."""
        return 1.0 - self.measured / bound if bound else 0.0

    @cached_property
    def why(self) -> str:
        """Where the default's loss comes from, each part with its share of the measured step; no more than it loses.

        model: the run's own software is priced slow; software: the default stack is slower with that plan, and the
        switches that differ; no plan of the default: the rules that the plan breaks there, or its memory; cautious: the
        fastest plan has moving parts.
        """
        ran, lost = self.run.plan, self.slower(self.default)
        if ran is None or self.run.job is None or lost <= 0:
            return ""
        cautious = self.default - self.fastest if np.isfinite(self.default) else 0.0
        beyond = self.default - self.as_run if self._broken else 0.0
        parts = {
            "model": self.slower(self.as_read),
            f"software ({', '.join(self._differing) or 'rates'})": (self.as_run - self.as_read) / self.measured,
            f"no plan of the default ({', '.join(self._broken)})": beyond / self.measured,
            "cautious": cautious / self.measured,
        }
        return ", ".join(f"{name} {share:+.0%}" for name, share in parts.items() if share >= 0.01)

    @property
    def _differing(self) -> list[str]:
        """Switches that the run's software and the default stack have in different states."""
        theirs = self.run.job.stack if self.run.job else self.job.stack
        states = [(switch, switch.state(theirs), switch.state(self.job.stack)) for switch in switches().values()]
        return [
            f"{switch.name} {state or 'its own'}"
            for switch, state, ours in states
            if state != ours
            and switch.possible(self.job.stack, self.job.cluster.device, self.job.dtype, self.job.model)
        ]

    @cached_property
    def _broken(self) -> list[str]:
        """Rules of the default's job that the plan that was run breaks."""
        if self.run.plan is None:
            return []
        names = [
            each.name for each in rule_findings(self.job, self.run.plan) if not each.holds and each.name != "memory"
        ]
        full = self.reserved > safe_memory(self.job)
        return [*names, *(f"memory {self.reserved / safe_memory(self.job):.2f} of what is safe",) * full]


def measured_jobs(runs: Iterable[Run]) -> list[list[Run]]:
    """Clean runs by job, the fastest of each first; a run that names no micro-batch has a step all the same.

    A rate without a batch is of no job that one could plan.
    """
    priced = [run for run in runs if run.job and run.step_time and not rate_alone(run.row)]
    clean = [with_samples(run) for run in priced if not (run.row.get("quality") or run.doubt)]
    by_job = gathered(clean, lambda run: _identity(run.job) if run.job else None)
    return [sorted(members, key=lambda run: run.step_time or np.inf) for members in by_job.values()]


def with_samples(run: Run) -> Run:
    """The run, its samples told where it fine-tunes on packed ones and says nothing of their lengths.

    >>> from optimizer.calibration.runs import read_run
    >>> row = {"model": "Llama 3 8B", "gpu": "H100", "gpus": "8", "seq_len": "4096", "micro_batch": "1", "dp": "8",
    ...     "global_batch": "32", "step_time_s": "1", "stack": "nemo-2024"}
    >>> [with_samples(read_run({**row, "notes": notes}, 2)).job.lengths for notes in ("task pretrain", "task SFT")]
    ['', '256']
    """
    if run.job is None or run.job.lengths or not FINE_TUNED.search(run.row.get("notes", "")):
        return run
    return replace(run, job=replace(run.job, lengths=str(SAMPLE), packing=ON))


def _identity(job: Job) -> tuple[object, ...]:
    """What makes two jobs one, whatever a row calls its model and whether it trains MTP layers."""
    model = replace(job.model, name="", mtp_layers=0)
    return model, job.cluster, job.gpus, job.seq_len, job.lengths, job.global_batch, job.dtype


def compared(runs: Sequence[Run], stack: str = "") -> BestAgainstMeasured:
    """The answers to the job of these runs, the fastest first, by a stack or the default one of the device."""
    run = runs[0]
    job, ran = run.job, run.plan
    if job is None or ran is None:
        raise InputError(f"run {run.id} cannot be priced: {run.refused}")
    ours = replace(job, stack=_for_its_job(load_stack(stack or default_stack(job.cluster.device)), job.stack))
    expected, fast = (_answered(replace(ours, prefer=prefer)) for prefer in (EXPECTED, FAST))
    (as_run, reserved), (as_read, _) = _priced(ours, ran), _priced(job, ran)
    return BestAgainstMeasured(
        run=run,
        runs=len(runs),
        job=expected.job,
        default=_step(expected),
        fastest=_step(fast),
        bound=_bound(fast),
        run_bound=fast.run_bound or 0.0,
        its_bound=min(_bound(_answered(replace(job, prefer=FAST))), as_read),
        plan=expected.plan,
        as_run=as_run,
        as_read=as_read,
        reserved=reserved,
    )


def _step(answer: Answer) -> float:
    """Step of an answer's plan, infinite where it has none [s]."""
    return answer.estimate.step_time if answer.estimate else np.inf


def _bound(answer: Answer) -> float:
    """What the certificate of an answer proves of every plan, 0 where it has none [s]."""
    return answer.certificate.lower_bound if answer.certificate and answer.estimate else 0.0


def _answered(job: Job) -> Answer:
    """The answer, without a ceiling on the bubble where that is what leaves no plan: people run such jobs too."""
    for ceiling in (job.limits.bubble, 1.0):
        limits = replace(job.limits, bubble=ceiling)
        answer = plan(replace(job, limits=limits), top=0, priced_risk=False, explained=False, read_twice=False)
        if answer.plan:
            break
    return answer


def _for_its_job(stack: Stack, read: Stack) -> Stack:
    """The stack with what the row says of the routing of its tokens and of the formats of gradients and states."""
    same = {name: getattr(read.features, name) for name in OF_THE_JOB}
    return replace(stack, features=replace(stack.features, **same))


def _priced(job: Job, ran: Plan) -> tuple[float, float]:
    """Step [s] and memory [B] of a plan, its layers evenly split where they cannot lie as they did."""
    costs = price(job, Plans.of([possible(job, ran)]))
    return float(costs.step_time[0]), float(costs.reserved[0])


def report(rows: Sequence[BestAgainstMeasured], worst: int) -> Iterator[str]:
    """Shares of slow answers and of beaten bounds, and the jobs of which the default loses most, in Markdown."""
    count = len(rows)
    yield f"{count} jobs of {sum(row.runs for row in rows)} runs"
    for name in ("default", "fastest"):
        for share in SLOWER:
            slow = sum(row.slower(getattr(row, name)) > share for row in rows)
            yield f"{name} more than {share:.0%} slower than the best measured: {slow}, {slow / max(count, 1):.1%}"
    bounds = {"bound": "the default stack", "run_bound": "any run", "its_bound": "its own software"}
    for bound, of in bounds.items():
        below = sum(row.below(getattr(row, bound)) > BELOW for row in rows)
        yield f"measured more than {BELOW:.0%} below the bound of {of}: {below}, {below / max(count, 1):.1%}"
    yield from ("", f"| {COLUMNS} |", "|---" * len(COLUMNS.split("|")) + "|")
    for row in sorted(rows, key=lambda row: -row.slower(row.default))[:worst]:
        yield _line(row)


def _line(row: BestAgainstMeasured) -> str:
    job, ran = row.run.job, row.run.plan
    if job is None or ran is None:
        return ""
    steps = (row.default, row.fastest, row.bound, row.run_bound, row.its_bound, row.as_run, row.as_read)
    cells = (
        f"{row.run.id} {row.run.stack_name}",
        job.model.name,
        f"{job.gpus} {job.cluster.device.name}",
        *(job.seq_len, job.global_batch, job.dtype),
        f"{row.measured:.3f}",
        *(f"{step / row.measured - 1:+.1%}" for step in steps),
        f"{row.plan.summary() if row.plan else 'none'}; ran {ran.summary()}",
        row.why,
    )
    return f"| {' | '.join(map(str, cells))} |"


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--stack", default="", help="plan with this stack instead of the device's default")
@click.option("--worst", default=30, help="jobs that are listed")
@click.option("--only", default="", help="runs whose id begins so")
def main(files: tuple[Path, ...], stack: str, worst: int, only: str) -> None:
    """Print how the default's best plans compare with the best measured runs of the same jobs."""
    runs = [run for file in files for run in read_runs(file) if run.id.startswith(only)]
    click.echo("\n".join(report([compared(members, stack) for members in measured_jobs(runs)], worst)))


if __name__ == "__main__":
    main()
