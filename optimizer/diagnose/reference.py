"""The plan that a run is held to: of a saved answer, or of the launch script and configs that started it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.answer.saved import SavedAnswer
from optimizer.base.errors import InputError
from optimizer.base.units import count_in
from optimizer.calibration.rows.device import device_name
from optimizer.diagnose.measured import Measured
from optimizer.frameworks.files import read_files
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan

SIZES = ("global_batch", "seq_len", "gpus")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A job, the plan and knobs that run it, and what was assumed of them or ignored in the files that say so."""

    job: Job
    plan: Plan
    knobs: Knobs
    assumed: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, str]:
        """Columns of a table of runs that turn rates into seconds."""
        return {name: str(getattr(self.job, name)) for name in SIZES}

    def unlike(self, run: Measured) -> tuple[str, ...]:
        """What the log says of the size of its run and the job does not: then the run is another one."""
        printed = {name: count_in(run.facts.get(name, "")) for name in SIZES}
        return tuple(
            f"{name} {count:,} in the log, {getattr(self.job, name):,} in the plan"
            for name, count in printed.items()
            if count and count != getattr(self.job, name)
        )


def answer_reference(saved: SavedAnswer, name: str) -> Reference:
    """The plan of an answer; raises InputError for one without."""
    if saved.plan is None:
        raise InputError(f"{name}: the answer has no plan that a run could be held to")
    return Reference(job=saved.job, plan=saved.plan, knobs=saved.knobs)


def script_reference(
    paths: Sequence[str], stated: Mapping[str, str], runs: Sequence[Measured], cluster: str = ""
) -> Reference:
    """The plan of launch files, read as optimize improve does.

    `stated` are columns of a table of runs that the user gave: model, gpu, gpus, stack, seq_len and global_batch count
    before what the files say. What neither has is taken from the logs where all of them say the same. Raises InputError
    or InvalidFile for what is missing or contradicts itself.
    """
    files = read_files(paths)
    gpus = _number(stated.get("gpus"))
    launch = read_launch(files, gpus, stated.get("model", "")).launch
    known = dict(stated)
    for name in SIZES:
        if name not in known and name not in launch.written and not (name == "gpus" and "nodes" in launch.written):
            printed = {run.facts[name] for run in runs if name in run.facts}
            if len(printed) == 1:
                known[name] = printed.pop()
                launch.assumed.append(f"{name} {known[name]}, as the log says (--set)")
    if gpus is None and "gpus" in known:
        assumed = launch.assumed
        launch = read_launch(files, _number(known["gpus"]), stated.get("model", "")).launch
        launch.assumed[:0] = assumed
    controls = Controls(
        model=stated.get("model", ""),
        device="" if cluster or "gpu" not in stated else device_name(stated["gpu"], stated.get("gpu_mem_gb", "")),
        cluster=cluster,
        stack=stated.get("stack", ""),
        gpus=_number(known.get("gpus")),
        seq_len=_number(known.get("seq_len")),
        global_batch=_number(known.get("global_batch")),
    )
    question = launch_as_read(launch, controls, ", ".join(paths))
    return Reference(
        job=question.job,
        plan=question.plan,
        knobs=question.knobs,
        assumed=tuple(dict.fromkeys((*launch.assumed, *launch.unsearched))),
        unpriced=tuple(launch.unpriced),
        ignored=tuple(launch.ignored),
    )


def _number(text: str | None) -> int | None:
    return count_in(text) or None if text else None
