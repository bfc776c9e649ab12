"""The number format as one more dimension: a lattice for each, one answer and one certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from optimizer.answer.answer import Answer, Certificate, Format
from optimizer.base.errors import InputError
from optimizer.job.job import DTYPES, Job
from optimizer.search.plan.alternatives import value_of
from optimizer.search.plan.certificate import MOST

ANY = "any"
SEARCHED = ("bf16", "fp8")  # what "any" stands for, as far as the device has units for it


def formats_of(text: str, job: Job) -> tuple[str, ...]:
    """The number formats that a person listed, or those that the device has units for.

    Raises InputError for a format that does not exist.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if names == (ANY,):
        return tuple(name for name in SEARCHED if name in job.cluster.device.peak_flops)
    if wrong := [name for name in names if name not in DTYPES]:
        raise InputError(f"unknown dtype {', '.join(wrong)}; write {', '.join(DTYPES)}, several or {ANY}")
    return names


def best_format(job: Job, formats: Sequence[str], plan: Callable[[Job], Answer]) -> Answer:
    """The answer of the format with the best plan, the others as named alternatives, under one certificate.

    A format changes the model's numerics, so that a person may prefer a slower one. Raises InputError when the device
    has no units for one of them.
    """
    answers = [plan(replace(job, dtype=name)) for name in formats]
    best = min(answers, key=_value)
    if len(answers) == 1:
        return best
    others = [format_of(answer, _value(answer), _value(best)) for answer in answers if answer is not best]
    parts = {answer.job.dtype: answer.certificate for answer in answers if answer.certificate}
    certificate = joint(best.job.dtype, parts) if len(parts) == len(answers) else None
    return replace(
        best,
        status=joint_status(best.status, certificate),
        formats=tuple(others),
        certificate=certificate,
    )


def joint_status(status: str, certificate: Certificate | None) -> str:
    """The status over all formats, of which the best one has this status."""
    return "feasible" if status == "optimal" and not (certificate and certificate.proven) else status


def format_of(answer: Answer, value: float, best: float) -> Format:
    """An answer of `value` beside that of the best format [unit of the objective]; no slower where one has no plan."""
    return Format(
        dtype=answer.job.dtype,
        status=answer.status,
        plan=answer.plan,
        knobs=answer.knobs,
        estimate=answer.estimate,
        slower=value / best - 1 if answer.estimate and best < inf else 0.0,
    )


def _value(answer: Answer) -> float:
    """What an answer's plan is minimised by, infinite without one [unit of the objective]."""
    if answer.plan is None or answer.estimate is None:
        return inf
    return value_of(answer.job, answer.plan, answer.knobs, answer.estimate)


def joint(best: str, parts: Mapping[str, Certificate]) -> Certificate:
    """What holds over all formats, `best` that of the best plan: the lowest of the bounds, and all the plans."""
    every = tuple(parts.values())
    planned = [part for part in every if part.best < inf]
    return replace(
        parts[best],
        proven=all(part.proven for part in every),
        lower_bound=min((part.lower_bound for part in planned), default=parts[best].lower_bound),
        knob_bound=min((part.knob_bound for part in planned), default=0.0),
        space=sum(part.space for part in every),
        fitting=sum(part.fitting for part in every),
        candidates=sum(part.candidates for part in every),
        band=sum(part.band for part in every),
        solved=sum(part.solved for part in every),
        method=" ".join(f"{dtype}: {part.method}" for dtype, part in parts.items()),
        left_out=tuple(dict.fromkeys(line for part in every for line in part.left_out))[:MOST],
        by_format=parts,
    )
