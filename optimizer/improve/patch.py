"""An edit as a patch of the launch files, read back before it is handed out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from optimizer.base.errors import InputError, OptimizerError
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import LACKING, FlagChange, Launch, Source
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.improve.state import SOFTWARE, Edit

# Reads the files again, with what the user said besides.
Reader = Callable[[Sequence[File]], LaunchAsRead]
ROUNDED = 0.01  # share by which a bucket that was counted in whole parameters may differ
SHOWN = 3  # keys named in an error
UNSAID = ("layers_per_stage", "recompute_first", "mtp_ahead")


def changes_of(source: Source, question: LaunchAsRead, edit: Edit) -> tuple[FlagChange, ...]:
    """What to write otherwise in the launch files for an edit."""
    software = {change.name: change.after for change in edit.changes if change.name in (*SOFTWARE, "bucket")}
    return source.changes(edit.after.job, question.plan, edit.after.plan, software)


def patched(
    source: Source, question: LaunchAsRead, edit: Edit, files: Sequence[File], reader: Reader
) -> Mapping[str, bytes]:
    """The files with an edit made: the first way to write it that reads back as the edit, and changes nothing else.

    Args:
        source: the files as they were read.
        question: what they ask.
        edit: what shall run instead.
        files: the files.
        reader: reads files as these were.

    Raises:
        InputError: there is no such way; it says why the last one is none.
    """
    changes = changes_of(source, question, edit)
    if why := source.lacking(changes):
        raise InputError(f"no patch: {why}")
    reason = "the files take these settings from where they cannot be changed; make them by hand"
    for texts in source.edited(changes):
        written = [replace(file, data=texts.get(file.name, file.data)) for file in files]
        try:
            reread = reader(written)
        except OptimizerError:
            continue
        reason = lost(question.launch, reread.launch, changes) or _otherwise(reread, edit)
        more = [text for text in reread.launch.unpriced if text not in question.launch.unpriced]
        reason = reason or (f"the files would contradict each other: {more[0]}" if more else "")
        if not reason:
            return {file.name: file.data for file in written}
    if any(note.endswith(LACKING) for note in question.launch.assumed):
        reason = f"the files do not say how many GPUs run them; give --gpus {question.launch.gpus}"
    raise InputError(f"no patch: {reason}")


def lost(before: Launch, after: Launch, changes: Sequence[FlagChange]) -> str:
    """What an edit changes that it was not to change, in words; "" for nothing.

    Args:
        before: the launch as it was read.
        after: the launch after the edit.
        changes: the keys and flags to change. A section above one of them may come or go with it.
    """
    edited = [change.flag for change in changes]
    others = [
        key
        for name, leaves in before.leaves.items()
        for key in {**leaves, **after.leaves.get(name, {})}
        if repr(leaves.get(key)) != repr(after.leaves.get(name, {}).get(key))
        and not any(f"{key}.".startswith(f"{own}.") or own.startswith(f"{key}.") for own in edited)
    ]
    return f"it would change {', '.join(others[:SHOWN])} too; make it by hand" if others else ""


def _otherwise(reread: LaunchAsRead, edit: Edit) -> str:
    """What files that were read again run otherwise than an edit, but for single layers; "" for nothing."""
    ours, theirs = {**reread.settings, **vars(reread.plan)}, {**edit.after.settings, **vars(edit.after.plan)}
    for each in (ours, theirs):
        each["shard"] = each["shard"] or each["dp"] * each["cp"]  # none is over all of them
    useless = ("gather_overlap",) if edit.after.plan.zero_stage == 0 else ()  # no weights are gathered
    names = [name for name in vars(reread.plan) if name not in UNSAID]
    names += [name for name in SOFTWARE if name in reread.settings and name not in useless]
    for name in names:
        if ours[name] != theirs.get(name, 0.0):
            return f"the files would run {name} {ours[name]}, not {theirs.get(name, 0.0)}; make it by hand"
    bucket, wanted = reread.knobs.bucket, edit.after.knobs.bucket
    return (
        ""
        if abs(bucket / wanted - 1) < ROUNDED
        else f"the files would run a bucket of {bucket:.3g} B, not {wanted:.3g}"
    )


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
