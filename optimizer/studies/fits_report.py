"""What fits: methods by length of context, with micro-batch, memory, tokens a second and the smallest card."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from optimizer.base.content import content
from optimizer.reports.listed import record
from optimizer.reports.report import Record, Report, Table, Value, columns, section
from optimizer.studies.fits import MOST_LENGTH, Fit, FitsStudy, method_words

CELLS = columns("method | context [1] | memory [B] | fits [%] | tokens/s [1] | smallest card")
PLANS = columns("method | context [1] | plan ~")
NONE = "does not fit"


def fits_report(study: FitsStudy, assumed: Sequence[str] = ()) -> Report:
    """The longest context of each method, those by length up to the first that does not fit, and the fastest plans."""
    job, shown = study.job, _shown(study.fits)
    within = [fit for fit in shown if fit.fits]
    return Report(
        title=f"{job.model.title or job.model.name} on {job.gpus:,} × {job.cluster.device.name}: what fits",
        subject=(
            f"{job.dtype}, {job.global_batch:,} sequences per step, {job.cluster.name}, {job.stack.name}",
            "data parallelism with every sharding, micro-batch and recomputation; `optimize` searches the rest",
        ),
        conclusion=tuple(_longest(study)),
        sections=(
            section(
                "Methods by context",
                Table(CELLS, [_row(fit) for fit in shown], [place for place, fit in enumerate(shown) if fit.fits]),
            ),
            section(
                "Fastest plans", Table(PLANS, [(_method(fit), fit.job.seq_len, _plan_words(fit)) for fit in within])
            ),
        ),
        assumed=tuple(assumed),
    )


def fits_record(study: FitsStudy, fit: Fit) -> Record:
    """One method at one length, SI units."""
    longest = study.longest[fit.job.train, fit.job.optimizer]
    return record(content("optimizer.studies", "tables.toml")["records"]["fits"], fit=fit, longest=longest)


def _longest(study: FitsStudy) -> list[str]:
    """A sentence for every method: the longest context that fits."""
    lines = []
    for method, tokens in study.longest.items():
        reach = f"up to {tokens:,} tokens" if tokens < MOST_LENGTH else f"{tokens:,} tokens and more"
        lines.append(f"{method_words(*method)}: {reach if tokens else NONE}")
    return lines


def _shown(fits: Sequence[Fit]) -> list[Fit]:
    """Each method at every length up to the first at which it does not fit: at longer ones it does not either."""
    beyond = [_method(before) == _method(fit) and not before.fits for before, fit in pairwise(fits)]
    return [fit for fit, skipped in zip(fits, [False, *beyond], strict=True) if not skipped]


def _method(fit: Fit) -> str:
    return method_words(fit.job.train, fit.job.optimizer)


def _row(fit: Fit) -> Sequence[Value]:
    rate = fit.tokens_per_second if fit.fits else None
    return (_method(fit), fit.job.seq_len, fit.reserved, fit.chance, rate, fit.card or "none")


def _plan_words(fit: Fit) -> str:
    sharded = f", ZeRO-{fit.plan.zero_stage}" if fit.job.gpus > 1 else ""
    recomputed = "" if fit.plan.recompute == "none" else f", {fit.plan.recompute} recompute"
    recomputed += ", inputs on host" if fit.plan.activation_offload else ""
    switched = f", {fit.switched}" if fit.switched else ""
    return f"micro-batch {fit.plan.micro_batch}{sharded}{recomputed}{switched}"
