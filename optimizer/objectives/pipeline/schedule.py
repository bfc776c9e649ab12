"""The order in which every pipeline stage runs its passes: 1F1B, interleaved 1F1B and zero-bubble ZB-H1, ZB-H2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from optimizer.errors import InputError
from optimizer.plan import SCHEDULES

FORWARD, BACKWARD, WEIGHT = "F", "B", "W"


class Pass(NamedTuple):
    """One pass of one micro-batch through one chunk (virtual stage) of a stage.

    `kind` is "F" forward, "B" backward, or "W" where the weights' gradient is computed apart from the inputs'.
    """

    kind: str
    chunk: int
    microbatch: int


Order = tuple[tuple[Pass, ...], ...]


def schedule_order(schedule: str, pp: int, vpp: int, microbatches: int) -> Order:
    """The passes of every stage in the order in which it runs them.

    Raises InputError for an unknown schedule, and for chunks or micro-batches that it cannot run.

    >>> ["".join(p.kind for p in stage) for stage in schedule_order("1f1b", 2, 1, 3)]
    ['FFBFBB', 'FBFBFB']
    """
    if schedule not in SCHEDULES:
        raise InputError(f"schedule must be one of {', '.join(SCHEDULES)}, but got {schedule!r}")
    for name, value in (("pp", pp), ("vpp", vpp), ("num_microbatches", microbatches)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, but got {value}")
    if schedule == "interleaved":
        return interleaved(pp, vpp, microbatches)
    if vpp > 1:
        raise InputError(f"schedule {schedule} has one chunk per stage, but got vpp = {vpp}; use interleaved")
    orders = {"1f1b": one_f_one_b, "zero-bubble": zero_bubble_h1, "zero-bubble-2p": zero_bubble_h2}
    return orders[schedule](pp, microbatches)


def one_f_one_b(pp: int, microbatches: int) -> Order:
    """Stage s runs min(m, pp - s - 1) forwards ahead, then alternates one forward with one backward.

    Source: Narayanan et al., arXiv 2104.04473, figure 4 (PipeDream-Flush).
    """
    forwards = [Pass(FORWARD, 0, i) for i in range(microbatches)]
    backwards = [Pass(BACKWARD, 0, i) for i in range(microbatches)]
    return tuple(tuple(_alternate(forwards, backwards, pp - stage - 1)) for stage in range(pp))


def interleaved(pp: int, vpp: int, microbatches: int) -> Order:
    """Groups of pp micro-batches visit chunk after chunk; 2 (pp - s - 1) + (vpp - 1) pp forwards run ahead.

    Backward passes visit the chunks in reverse. Raises InputError unless pp divides the micro-batches.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; Megatron-LM, megatron/core/pipeline_parallel/schedules.py.

    >>> [p.chunk for p in interleaved(2, 2, 2)[1] if p.kind == "F"]
    [0, 0, 1, 1]
    """
    if microbatches % pp:
        raise InputError(
            f"the interleaved schedule needs micro-batches in rounds of pp = {pp}, but got {microbatches}; "
            f"the nearest that work are {max(pp, microbatches // pp * pp)} and {(microbatches // pp + 1) * pp}"
        )
    turns = [(chunk, first + i) for first in range(0, microbatches, pp) for chunk in range(vpp) for i in range(pp)]
    forwards = [Pass(FORWARD, chunk, i) for chunk, i in turns]
    backwards = [Pass(BACKWARD, vpp - 1 - chunk, i) for chunk, i in turns]
    ahead = (vpp - 1) * pp if vpp > 1 else 0
    step = 2 if vpp > 1 else 1
    return tuple(tuple(_alternate(forwards, backwards, ahead + step * (pp - s - 1))) for s in range(pp))


def zero_bubble_h1(pp: int, microbatches: int) -> Order:
    """1F1B with the weights' gradients apart: stage s computes those of a micro-batch s backward passes later.

    Every stage holds activations of at most pp micro-batches, as the first stage of 1F1B does.

    Source: Qi et al., arXiv 2401.10241, section 2.1 (ZB-H1).

    >>> ["".join(p.kind for p in stage) for stage in zero_bubble_h1(2, 3)]
    ['FFBWFBWBW', 'FBFBWFBWW']
    """
    plain = one_f_one_b(pp, microbatches)
    return tuple(tuple(_with_weights(order, stage, microbatches)) for stage, order in enumerate(plain))


def zero_bubble_h2(pp: int, microbatches: int) -> Order:
    """Twice as many forwards run ahead as in 1F1B, and weights' gradients wait twice as long as in ZB-H1.

    Every stage holds activations of at most 2 pp - 1 micro-batches and idles (pp - 1) (F + B - 2 W) between its first
    and its last pass. The stages end one after the other: the gain needs an optimizer step that does not wait for all.

    Source: Qi et al., arXiv 2401.10241, sections 2.2 and 4 (ZB-H2; the automatic ZB-2p has the same memory).

    >>> ["".join(p.kind for p in stage) for stage in zero_bubble_h2(2, 3)]
    ['FFFBWBWBW', 'FBFBFBWWW']
    """
    forwards = [Pass(FORWARD, 0, i) for i in range(microbatches)]
    backwards = [Pass(BACKWARD, 0, i) for i in range(microbatches)]
    return tuple(
        tuple(_with_weights(_alternate(forwards, backwards, 2 * (pp - s - 1)), 2 * s, microbatches)) for s in range(pp)
    )


def _alternate(forwards: list[Pass], backwards: list[Pass], ahead: int) -> Iterator[Pass]:
    ahead = min(ahead, len(forwards))
    yield from forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - ahead :]


def _with_weights(order: Iterable[Pass], delay: int, microbatches: int) -> Iterator[Pass]:
    for step in order:
        yield step
        if step.kind == BACKWARD and step.microbatch >= delay:
            yield Pass(WEIGHT, 0, step.microbatch - delay)
    for index in range(max(0, microbatches - delay), microbatches):
        yield Pass(WEIGHT, 0, index)
