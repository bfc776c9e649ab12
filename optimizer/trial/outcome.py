"""What came of each trial: its step time, or how it failed; what is believed of all candidates afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.files import read_bytes
from optimizer.base.units import is_count
from optimizer.catalog.readers.text import read_text
from optimizer.diagnose.failures import CRASHED, OK, OOM
from optimizer.diagnose.measured import Measured, read_runs_of
from optimizer.diagnose.row import contradictions
from optimizer.trial.belief import Belief
from optimizer.trial.candidates import Candidates
from optimizer.trial.folder import Trials
from optimizer.trial.launch import EXIT_CODE, LOG

WAITING, UNFINISHED = "waiting", "unfinished"
FEWEST = 5  # steady steps that a trial without an end needs to count
STOPPED = 124  # exit code of a trial that took too long
LONGEST = 160


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One trial."""

    name: str
    index: int  # of the candidate
    status: str  # "ok", "oom", "crashed", "unfinished" or "waiting"
    seconds: float | None = None  # median of its steady steps [s]
    spread: float = 0.0
    steps: int = 0
    memory: float | None = None  # what its fullest rank reserved / what is usable [1], None where the log does not say
    memory_bytes: float | None = None
    exit_code: int | None = None
    words: tuple[str, ...] = ()  # why it failed, or what to mind

    @property
    def done(self) -> bool:
        """Whether it has a result."""
        return self.status in (OK, OOM, CRASHED)


def outcomes(trials: Trials) -> list[Outcome]:
    """The outcome of every trial in order.

    Raises InvalidFile for a log without steps of a trial that ended well, InputError for a log of another run.
    """
    return [_outcome(trials, place, index) for place, index in enumerate(trials.chosen)]


def believed(candidates: Candidates, seen: Iterable[Outcome]) -> Belief:
    """What is believed of the candidates after these outcomes."""
    belief = candidates.belief()
    for outcome in seen:
        if outcome.status == OK and outcome.seconds is not None:
            belief = belief.trained(outcome.index, outcome.seconds, outcome.memory)
        elif outcome.status == OOM:
            belief = belief.out_of_memory(outcome.index)
        elif outcome.status == CRASHED:
            belief = belief.crashed(outcome.index)
    return belief


def _outcome(trials: Trials, place: int, index: int) -> Outcome:
    folder = trials.trial(place)
    name, log, code = folder.name, folder / LOG, _exit_code(folder / EXIT_CODE)
    if not log.exists():
        if code is None:
            return Outcome(name=name, index=index, status=WAITING)
        raise InputError(
            f"{folder} has the exit code {code} but no {LOG}; put it there, or remove {EXIT_CODE} to run it"
        )
    try:
        runs = read_runs_of([log], {})
    except InvalidFile as error:
        if code == 0:
            problem = f"the trial ended well; remove {folder / EXIT_CODE} to run it again"
            raise InvalidFile(log, [*error.problems, problem]) from None
        return _without_steps(name, index, code, log)
    run = next((run for run in reversed(runs) if run.steady), runs[-1])
    if contradicted := contradictions(run.facts, trials.job, trials.candidates.plans[index]):
        raise InputError(
            f"{log} is of another run than its trial: it has {contradicted}; put the right log there, or remove it"
        )
    return _measured(trials, name, index, code, run)


def _measured(trials: Trials, name: str, index: int, code: int | None, run: Measured) -> Outcome:
    """The outcome of a trial whose log was read."""
    steps = run.steady.steps_used if run.steady else 0
    enough = steps >= FEWEST or (code == 0 and steps > 0)
    words = [run.failure] if run.failure else []
    status = run.status
    if status == CRASHED and enough:
        status = OK
    elif status == OK and not enough:
        status = UNFINISHED if code is None else CRASHED
        words += [_ending(code)] if code is not None else []
    elif status == OK and code is None:
        words.append(f"its runner has no exit code yet: {steps} steady steps")
    elif status == OK and code:
        words.append(_ending(code))
    return Outcome(
        name=name,
        index=index,
        status=status,
        seconds=run.step_time if status == OK else None,
        spread=run.steady.spread if run.steady else 0.0,
        steps=steps,
        memory=reserved_share(trials.candidates, index, run) if status == OK else None,
        memory_bytes=run.memory,
        exit_code=code,
        words=tuple(words) if status != OK else (*words, *run.warnings),
    )


def reserved_share(candidates: Candidates, index: int, run: Measured) -> float | None:
    """What the log says was reserved / usable, by the model's ratio where it says only what was allocated [1]."""
    if run.memory is None:
        return None
    costs, usable = candidates.costs, candidates.job.usable_memory
    ratio = 1.0 if run.memory_kind == "reserved" else float(costs.reserved[index] / costs.allocated[index])
    return run.memory * ratio / usable


def _without_steps(name: str, index: int, code: int | None, log: Path) -> Outcome:
    """A trial whose log tells of no step and no known failure."""
    if code is None:
        return Outcome(name=name, index=index, status=UNFINISHED, words=("no step yet",))
    try:
        last = [line.strip() for line in read_text(log).splitlines() if line.strip()][-1:]
    except (OSError, UnicodeDecodeError):
        last = []
    words = (_ending(code), *(line[:LONGEST] for line in last))
    return Outcome(name=name, index=index, status=CRASHED, exit_code=code, words=words)


def _ending(code: int | None) -> str:
    why = "stopped, since it took too long" if code == STOPPED else f"exit code {code}"
    return f"{why}; remove its {EXIT_CODE} to run it again"


def _exit_code(path: Path) -> int | None:
    """The exit code that the runner wrote, None before the trial ended."""
    if not path.exists():
        return None
    try:
        text = read_bytes(path, LONGEST).decode("utf-8", "replace").strip()
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}"]) from None
    if not is_count(text):
        raise InvalidFile(path, [f"must hold an exit code, but got {text[:40]!r}; remove it to run the trial again"])
    return int(text)
