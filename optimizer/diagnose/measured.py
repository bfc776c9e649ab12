"""What logs say of a run, in one value: its step time, memory, failures, and what to mind about them.

Files of ranks of one run are put together, the others are runs of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from math import isfinite
from pathlib import Path
from statistics import median

from optimizer.base.errors import InvalidFile
from optimizer.base.units import count_in, seconds
from optimizer.diagnose.attempts import Record, Stream, largest, together
from optimizer.diagnose.failures import OK, OOM
from optimizer.diagnose.log import LoggedRun, read_log
from optimizer.diagnose.steady import CLOCK, LEAST, RATE, SLOW_SHARE, Steady, Timed, steady_part, timed_steps
from optimizer.frameworks.every import LOGS
from optimizer.frameworks.log_line import LogFormat

APART = 30.0  # s by which ranks print a step one after the other at most, clocks of nodes included
ALIKE = 5e-3  # relative difference of the printed times of a step between ranks
REPEATED, SEVERAL = 1e-3, 3  # the same of what ranks print one after the other, and steps that tell it
SHIFTED = 20  # runs by which one stands further down in the file of one rank than in that of another
SAME_TIME = 0.05  # the same of files whose steps were printed at the same time


def merged(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """The runs, those that ranks of one run logged in different files as one: they stand alike far down in each."""
    distinct: list[LoggedRun] = []
    numbers = defaultdict[tuple[str, ...], Iterator[int]](count)  # of the runs of each file
    standing: dict[int, list[int]] = {}  # places of distinct runs by how many stand before each in its file
    for run in runs:
        number = next(numbers[run.files])
        near = (standing.get(other, ()) for other in range(number - SHIFTED, number + SHIFTED + 1))
        place = next((at for at in sorted(chain.from_iterable(near)) if same_run(distinct[at], run)), None)
        if place is None:
            standing.setdefault(number, []).append(len(distinct))
            distinct.append(run)
        else:
            distinct[place] = _joined(distinct[place], run)
    return distinct


def same_run(one: LoggedRun, other: LoggedRun) -> bool:
    """Whether two files tell of the same run: the same steps at the same time, or with the same loss and duration."""
    if one.program is not other.program or not one.records or not other.records:
        return False
    mine, its = one.by_step, other.by_step
    shared = [(mine[step], its[step]) for step in mine.keys() & its.keys()]
    if 2 * len(shared) < min(len(mine), len(its)):
        return False
    clocks = [abs(a.time - b.time) for a, b in shared if a.time is not None and b.time is not None]
    if set(one.files) & set(other.files):  # bars alone, one rank after the other, as a launcher keeps their output
        return (
            one.bare
            and other.bare
            and 2 * len(clocks) < len(shared)
            and len(shared) >= SEVERAL
            and _like(shared, REPEATED)
        )
    if clocks:
        return median(clocks) <= APART and _like(shared, SAME_TIME)
    return all(a.reading.loss == b.reading.loss for a, b in shared) and _like(shared, ALIKE)


def _like(shared: Sequence[tuple[Record, Record]], within: float) -> bool:
    """Whether every step took as long in both: runs differ from step to step, ranks of one wait for each other."""
    pairs = [
        (a.reading.seconds or a.reading.tokens_rate, b.reading.seconds or b.reading.tokens_rate) for a, b in shared
    ]
    ratios = [abs(a / b - 1) for a, b in pairs if a and b]
    return bool(ratios) and median(ratios) <= within


def _joined(one: LoggedRun, other: LoggedRun) -> LoggedRun:
    return replace(
        one,
        files=tuple(dict.fromkeys((*one.files, *other.files))),
        stream=together([one.stream, other.stream]),
        failure=one.failure or other.failure,
        ranks=one.ranks + other.ranks,
        remarks=tuple(dict.fromkeys((*one.remarks, *other.remarks))),
    )


MANY = 3  # other levels that are shown one by one
ENOUGH = 10  # steady steps below which a median says little
STALLED = 0.03  # share of the time in stalls above which the median alone misleads
ROUNDED = 5e-4  # half the last digit of a summary's rate [1/s]
LOOSE = 0.03  # spread between steps beyond that of published runs


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run as its log has it.

    status: "ok", "oom" or "crashed"; `memory` [B] is `memory_kind` "reserved" or "allocated", the most of any rank;
    tokens_rate, flops_rate: median tokens and operations of one GPU per second as printed [1/s, FLOP/s]; nans, skipped:
    steps with a loss that is no number, and steps without an update; restarts: how often the run went back to a
    checkpoint. `facts` are settings that the log or the user names, by column of a table of runs.
    """

    files: tuple[str, ...]
    program: str
    status: str
    steady: Steady | None
    basis: str = ""
    memory: float | None = None
    memory_kind: str = ""
    tokens_rate: float | None = None
    flops_rate: float | None = None
    nans: int = 0
    skipped: int = 0
    restarts: int = 0
    ranks: int = 1
    first: int = 0
    last: int = 0
    loss: float | None = None
    failure: str = ""
    facts: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @property
    def step_time(self) -> float | None:
        """Median of the steady part [s]."""
        return self.steady.seconds if self.steady else None


def logged_runs(paths: Sequence[Path], formats: Sequence[LogFormat] = LOGS) -> list[LoggedRun]:
    """The runs in these files, ranks of one run put together; `formats` are those that their lines may have.

    Raises InvalidFile for the first file that tells of no run.
    """
    if not paths:
        raise InvalidFile("optimize read", ["needs a log"])
    return merged([run for path in paths for run in read_log(path, formats)])


def read_runs_of(paths: Sequence[Path], facts: Mapping[str, str]) -> list[Measured]:
    """The same as they were measured; `facts` are what the user says of all of them."""
    return [measured(run, facts) for run in logged_runs(paths)]


def measured(run: LoggedRun, facts: Mapping[str, str]) -> Measured:
    """What one run says, with its rates made seconds by its own settings or those given."""
    known = {**facts, **run.stream.facts}
    steps = timed_steps(run, known)
    steady = None if _first_alone(run, steps) else steady_part(steps)
    readings = [record.reading for record in run.records]
    rates = sorted(rate for reading in readings[1:] or readings if (rate := reading.tokens_rate) is not None)
    flops = [rate for reading in readings[1:] or readings if (rate := reading.flops_rate)]
    losses = [reading.loss for reading in readings if reading.loss is not None]
    stream = run.stream
    return Measured(
        files=run.files,
        program=run.program.name if run.program else "",
        status=run.failure.kind if run.failure else OK,
        steady=steady,
        basis=steps[0].basis if steps else "",
        memory=largest(stream.reserved, stream.allocated),
        memory_kind=_kind_of_memory(stream),
        tokens_rate=rates[len(rates) // 2] if rates else None,
        flops_rate=median(flops) if flops else None,
        nans=sum(max(1, record.reading.nans) for record in run.broken),
        skipped=sum(reading.skipped for reading in readings),
        restarts=max(0, len(stream.attempts) - 1),
        ranks=run.ranks,
        first=min(run.by_step, default=0),
        last=max(run.by_step, default=0),
        loss=losses[-1] if losses and isfinite(losses[-1]) else None,
        failure=f"line {run.failure.line}: {run.failure.text}" if run.failure else "",
        facts=known,
        warnings=tuple(_warnings(run, steps, steady, facts)),
    )


def _first_alone(run: LoggedRun, steps: Sequence[Timed]) -> bool:
    """Whether a run tells the time of its first step and no other: that is warm-up, not its pace."""
    alone = any(record.reading.alone for record in run.records)
    return len(steps) == 1 and steps[0].step <= 1 and steps[0].steps == 1 and not alone


def _kind_of_memory(stream: Stream) -> str:
    """Which memory counts: what was reserved, unless more was allocated after it was told."""
    if stream.reserved is not None and stream.reserved >= (stream.allocated or 0.0):
        return "reserved"
    return "allocated" if stream.allocated is not None else ""


def _warnings(run: LoggedRun, steps: Sequence[Timed], steady: Steady | None, facts: Mapping[str, str]) -> Iterator[str]:
    """What to mind about the numbers, in sentences."""
    yield from run.remarks
    if run.failure:
        yield f"{'out of memory' if run.failure.kind == OOM else 'the run failed'}: line {run.failure.line}"
    if steady is None:
        if _first_alone(run, steps):
            yield "the time of the first step alone, which is warm-up: give a log of more steps"
        elif run.records:
            yield (
                "rates alone, and no times of lines: --set global_batch=, --set seq_len= and --set gpus=, or --plan, "
                "turn them into seconds"
            )
        return
    if run.records[0].reading.alone:
        as_printed = abs(1e3 / steady.seconds - round(1e3 / steady.seconds)) < 1e-6
        off = ROUNDED * steady.seconds if as_printed else 0.0
        digits = f"; its rate has three decimals: exact to {off:.0%}" if off > LEAST else ""
        yield f"the mean of the whole run, with its first steps, evaluations and saves{digits}"
    elif run.program and run.program.remark:
        yield run.program.remark
        if not run.stream.lossy and any(record.reading.bar for record in run.records):
            yield "no loss was printed beside the bar: it may be one of an evaluation, or of texts that a model writes"
    yield from _tokens(run, steady, {**facts, **run.stream.facts})
    if steps[0].basis == CLOCK:
        yield "step times are differences of the times of lines: checkpoints and evaluations are in them"
    if steps[0].basis == RATE and not {"global_batch", "seq_len"} & run.stream.facts.keys():
        yield "rates became seconds with the batch of --plan or --set: if the log is of another, they are wrong"
    for name, given in facts.items():
        printed = run.stream.facts.get(name, given)
        if printed.replace(".0", "") != given.replace(".0", ""):
            yield f"the log has {name} {printed}, not {given}: another run than the one it is held to?"
    yield from _of_steady(steady)
    if run.broken:
        first = run.broken[0].step
        lines = f"{len(run.broken)} lines have" if len(run.broken) > 1 else "1 line has"
        yield f"{lines} a loss or gradient that is no number, from step {first:,} on"
    if run.failure is None and len(run.stream.attempts) > 1:
        count = len(run.stream.attempts) - 1
        yield f"{count} restart{'s' * (count > 1)}; the first steps after each are left out"


def _tokens(run: LoggedRun, steady: Steady, facts: Mapping[str, str]) -> Iterator[str]:
    """That the tokens which a log prints are not those of its batch and its steps, where it prints both."""
    rates = [rate for record in run.records if (rate := record.reading.tokens_rate) and record.reading.seconds]
    batch, length, gpus = (count_in(facts.get(name, "")) for name in ("global_batch", "seq_len", "gpus"))
    if not (rates and batch and length and gpus):
        return
    printed, ours = median(rates), batch * length / gpus / steady.seconds
    if abs(printed / ours - 1) > LOOSE:
        yield (
            f"the log prints {printed:,.0f} tokens/s per GPU; {batch:,} x {length:,} tokens on {gpus:,} GPUs in "
            f"{seconds(steady.seconds)} are {ours:,.0f}: padding is not counted, or the batch is another one"
        )


def _of_steady(steady: Steady) -> Iterator[str]:
    if steady.steps_used < ENOUGH:
        yield f"only {steady.steps_used} steady step{'s' * (steady.steps_used != 1)}: the median says little"
    if steady.spread > LOOSE:
        yield f"steps vary by {steady.spread:.1%}, more than the 0.3-3 % of published runs"
    if steady.stalled > STALLED:
        yield (
            f"stalls take {steady.stalled:.1%} of the time: the mean step is "
            f"{seconds(steady.mean)}, the median {seconds(steady.seconds)}"
        )
    if steady.early:
        yield (
            f"steps {steady.early.first:,} to {steady.early.last:,}, left out as warm-up, took "
            f"{seconds(steady.early.seconds)}: if that was the pace of the run, the steady part is another one"
        )
    if steady.paces:
        fast, slow, share = steady.paces
        yield (
            f"two paces: {share:.0%} of the steady steps take {seconds(fast)}, the others {seconds(slow)}; "
            f"{seconds(steady.seconds)} is the median of all"
        )
    others = [level for level in steady.levels if abs(level.seconds / steady.seconds - 1) > SLOW_SHARE]
    if len(others) > MANY:
        paces = [level.seconds for level in steady.levels]
        yield f"the pace wanders: {len(paces)} parts of {seconds(min(paces))} to {seconds(max(paces))} per step"
        return
    for level in others:
        ratio = level.seconds / steady.seconds - 1
        yield (
            f"steps {level.first:,} to {level.last:,} took {seconds(level.seconds)}, "
            f"{abs(ratio):.1%} {'more' if ratio > 0 else 'less'} than the steady part"
        )
