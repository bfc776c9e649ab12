"""`optimize read --watch`: a line on a running log whenever it tells more, held to its plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.base.errors import InvalidFile
from optimizer.base.units import seconds
from optimizer.objectives.step.interval import LEVEL

if TYPE_CHECKING:
    from optimizer.diagnose.diagnosis import Diagnosis
    from optimizer.diagnose.measured import Measured
    from optimizer.diagnose.reference import Reference

POLL = 2.0  # between two looks at the files [s]
QUIET = 20  # steps for which a log that stays as it is makes one ask whether the run hangs


@dataclass(frozen=True, kw_only=True)
class NextEdit:
    """The first step of `optimize improve` for the launch of a run."""

    words: str  # what it changes
    gain: float  # tokens per second over today's, minus one [1]
    stop: float  # time of the cluster that stopping and starting again takes [s]
    steps: float = 0.0  # of the whole run; 0 where the launch does not say

    def sentence(self, step: int, step_time: float) -> str:
        """Whether it pays to stop after a step and start again with it, at the measured time of a step [s].

        With the gain g, n steps that remain take n t g / (1 + g) less.

        >>> edit = NextEdit(words="micro batch 1 → 2", gain=0.25, stop=1800.0, steps=1000)
        >>> edit.sentence(100, 10.0), edit.sentence(950, 10.0)
        ('micro batch 1 → 2 pays: 900 steps remain, 1,800 s saved for 1,800 s', \
'micro batch 1 → 2 no longer pays: 50 steps remain, 100 s saved for 1,800 s')
        """
        saved = step_time * self.gain / (1.0 + self.gain)  # of a step [s]
        if not self.steps:
            return f"{self.words} pays where more than {self.stop / saved:,.0f} steps remain"
        left = max(0.0, self.steps - step)
        verdict = "pays" if left * saved >= self.stop else "no longer pays"
        return (
            f"{self.words} {verdict}: {left:,.0f} steps remain, {seconds(left * saved)} saved for {seconds(self.stop)}"
        )


def next_edit(scripts: Sequence[str], expected: Reference | None) -> NextEdit | None:
    """The first edit that is sure to fit, or the first of all where what runs does not; None without a launch or one.

    Raises InputError as `optimize improve` does for a launch that cannot be read.
    """
    if expected is None or not scripts:
        return None
    from optimizer.catalog import cluster_names
    from optimizer.frameworks.files import read_files
    from optimizer.frameworks.launch_as_read import Controls, launch_as_read
    from optimizer.frameworks.read import read_launch
    from optimizer.improve.report import changes_text
    from optimizer.improve.writable import improve_files

    job = expected.job
    source = read_launch(read_files(scripts), job.gpus, job.model.name)
    cluster = job.cluster.name if job.cluster.name in cluster_names() else ""
    controls = Controls(
        model=job.model.name, gpus=job.gpus, seq_len=job.seq_len, global_batch=job.global_batch, cluster=cluster
    )
    question = launch_as_read(source.launch, controls, ", ".join(scripts))
    improvement = improve_files(question, source)
    usable = [edit for edit in improvement.edits if edit.sure or not improvement.current.fits]
    if not usable or usable[0].gain <= 0.0:
        return None
    tokens = question.settings.get("tokens") or 0
    return NextEdit(
        words=changes_text(usable[0]), gain=usable[0].gain, stop=job.try_cost, steps=tokens / question.job.tokens
    )


def watched_line(run: Measured, diagnosis: Diagnosis | None, edit: NextEdit | None) -> str:
    """The run as far as it got: measured against expected, the likeliest cause, whether the next edit still pays."""
    if run.steady is None:
        return f"step {run.last:,}: no steady step yet" + (f"; {run.failure}" if run.failure else "")
    step = run.steady.seconds
    parts = [f"step {run.last:,}: {seconds(step)} ± {run.steady.spread:.1%}"]
    if diagnosis:
        from optimizer.diagnose.diagnosis import BELOW
        from optimizer.diagnose.report import verdict

        around = diagnosis.interval
        parts[0] += (
            f", {seconds(diagnosis.predicted)} expected ({seconds(around.low)} to {seconds(around.high)} at "
            f"{LEVEL:.0%}): {diagnosis.gap:+.1%}"
        )
        if diagnosis.unlike:
            parts.append(verdict(diagnosis))
        elif diagnosis.verdict == BELOW and diagnosis.explanations:
            first = diagnosis.explanations[0]
            parts.append(f"likeliest cause, {first.share:.0%}: {first.says}")
        elif diagnosis.verdict != BELOW:
            parts.append("within the interval" if diagnosis.measured >= around.low else "faster than the interval")
    if edit:
        parts.append(edit.sentence(run.last, step))
    if run.failure:
        parts.append(run.failure)
    return "; ".join(parts)


def grown(logs: Sequence[Path], sleep: Callable[[float], None] = time.sleep) -> Iterator[float]:
    """Every time that the files have grown, 0; while they stay as they are, for how long they have [s].

    A file that is not there yet is waited for. It ends with Ctrl-C alone.
    """

    def sizes() -> tuple[int, ...]:
        return tuple(log.stat().st_size if log.exists() else -1 for log in logs)

    before, still = sizes(), 0.0
    while True:
        if max(before) > 0:
            yield still
        sleep(POLL)
        now = sizes()
        before, still = now, still + POLL if now == before else 0.0


def watch(
    logs: Sequence[Path],
    look: Callable[[], tuple[Measured, Diagnosis | None]],
    edit: NextEdit | None,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Say a line whenever the logs tell of another step, until their run has failed, is over, or Ctrl-C.

    Args:
        logs: files of one run.
        look: reads them.
        edit: the next step of improve.
        say: where lines go.
        sleep: waits so long [s].
    """
    shown, asked, step = "", False, 0.0
    try:
        for still in grown(logs, sleep):
            if still:
                if step and not asked and still > QUIET * step:
                    say(f"nothing new for {seconds(still)}, {still / step:,.0f} steps: does it hang?")
                    asked = True
                continue
            try:
                run, diagnosis = look()
            except InvalidFile:  # no step yet
                continue
            line, step, asked = watched_line(run, diagnosis, edit), run.step_time or 0.0, False
            if line != shown:
                say(line)
            shown = line
            if run.failure or (edit and edit.steps and run.last >= edit.steps):
                return
    except KeyboardInterrupt:
        return
