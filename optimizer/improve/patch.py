"""An edit as a patch of the launch files, read back before it is handed out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from optimizer.base.errors import InputError, OptimizerError
from optimizer.frameworks.launch import LACKING
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.frameworks.read import File
from optimizer.frameworks.source import FlagChange, Source
from optimizer.improve.edit import SOFTWARE, Edit

# Reads the files again, with what the user said besides.
Again = Callable[[Sequence[File]], LaunchAsRead]
ROUNDED = 0.01  # share by which a bucket that was counted in whole parameters may differ
UNSAID = ("layers_per_stage", "recompute_first", "mtp_ahead")


def changes_of(source: Source, question: LaunchAsRead, edit: Edit) -> tuple[FlagChange, ...]:
    """What to write otherwise in the launch files for an edit."""
    software = {change.name: change.after for change in edit.changes if change.name in (*SOFTWARE, "bucket")}
    return source.changes(edit.after.job, question.plan, edit.after.plan, software)


def patched(
    source: Source, question: LaunchAsRead, edit: Edit, files: Sequence[File], again: Again
) -> Mapping[str, bytes]:
    """The files with an edit made: the first way to write it that reads back as the edit's plan.

    Raises InputError where there is none: the script takes its flags from where they cannot be changed.
    """
    for texts in source.edited(changes_of(source, question, edit)):
        written = [replace(file, data=texts.get(file.name, file.data)) for file in files]
        try:
            found = again(written)
        except OptimizerError:
            continue
        if _same(found, edit):
            return {file.name: file.data for file in written}
    told = next((said for said in question.launch.assumed if said.endswith(LACKING)), "")
    if told:
        gpus = told.split()[0].replace(",", "")
        raise InputError(f"no patch: the files do not say how many GPUs run them; give --gpus {gpus}")
    raise InputError("no patch: the files take these settings from where they cannot be changed; make them by hand")


def _same(found: LaunchAsRead, edit: Edit) -> bool:
    """Whether files that were read again run the plan of an edit, but for where it lays single layers."""
    ours, theirs = vars(found.plan), vars(edit.after.plan)
    plan = all(ours[name] == theirs[name] for name in ours if name not in UNSAID)
    settings = edit.after.settings
    names = [name for name in SOFTWARE if name in found.settings and not (name == "gather_overlap" and unsharded(edit))]
    bucket = edit.after.knobs.bucket
    changed = any(change.name == "bucket" for change in edit.changes)
    same_bucket = not changed or abs(found.knobs.bucket / bucket - 1) < ROUNDED
    return plan and same_bucket and all(found.settings[name] == settings.get(name, 0.0) for name in names)


def unsharded(edit: Edit) -> bool:
    """Whether no weights are gathered, so that nothing can be overlapped."""
    return edit.after.plan.zero_stage == 0


def unified(files: Sequence[File], texts: Mapping[str, bytes]) -> str:
    """The patch of all files, as `patch -p0` takes it."""
    parts: list[str] = []
    for file in files:
        before, after = (data.decode("utf-8", "surrogateescape") for data in (file.data, texts[file.name]))
        name = shown(file.name)
        lines = difflib.unified_diff(_lines(before), _lines(after), name, name)
        parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Lines as patch counts them: ended by a newline and nothing else."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + [rest] * bool(rest)


def shown(name: str) -> str:
    """A path that patch does not refuse: below the folder that we are in, else the file's own name."""
    path = os.path.relpath(name)
    return Path(name).name if path.startswith("..") else path
