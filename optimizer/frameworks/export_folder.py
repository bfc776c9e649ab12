"""All launch files of an answer in one folder, written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.base.content import in_words
from optimizer.base.errors import InputError
from optimizer.base.files import take_place
from optimizer.catalog.readers.text import readable
from optimizer.catalog.targets import OWN_STACKS, WRITTEN, launchers, own_target, without_files
from optimizer.frameworks.bash.like import alike
from optimizer.frameworks.every import TARGETS
from optimizer.frameworks.framework import ExportFiles
from optimizer.job.target import target_of
from optimizer.objectives.expected import risk_to_accept

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer

BATCH = in_words([name for name, own in TARGETS.items() if any(file.endswith(".sbatch") for file in own.files)], "or")
FILES = tuple(dict.fromkeys(name for target in TARGETS.values() for name in target.files))


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Name and content of every launch file, and of those that cannot be the reason; a file without content is none."""

    texts: Mapping[str, str]
    refused: Mapping[str, str]


def exported(answer: Answer) -> Exported:
    """Every launch file of an answer, or those of its target; one that cannot be had does not keep the others.

    Raises InputError when the answer holds no plan, or one that is too likely to run out of memory, unasked.
    """
    if answer.plan is None or answer.estimate is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    if risk := risk_to_accept(answer.job, answer.estimate.reserved):
        raise InputError(
            f"no launch files: the plan fits with {100 - risk}% only; accept that risk with --oom-risk {risk}%, or "
            "plan for more GPUs or fewer tokens"
        )
    target = own_target(answer.job.stack)
    others = {*WRITTEN, *(name for name in OWN_STACKS if not answer.job.stack.name.startswith(name))}
    usual = [name for name, files in TARGETS.items() if files.tunes == answer.job.tunes and name not in others]
    if own := without_files(answer.job.stack):
        vendor = answer.job.cluster.device.vendor
        able = ", ".join(name for name in usual if vendor in launchers()[name].vendors)
        raise InputError(
            f"--stack {answer.job.stack.name}: no launch files of {own} are written, and those of "
            f"another program would not run what was priced; "
            + (f"--target plans for one that has some: {able}" if able else f"no target runs on {vendor}")
        )
    texts: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in (target,) if target in TARGETS else usual:
        written, lacking = _for_target(TARGETS[name], answer)
        texts |= written
        refused |= lacking
    return Exported(
        texts={name: text for name, text in texts.items() if text},
        refused={name: why for name, why in refused.items() if name not in texts},
    )


def _for_target(files: ExportFiles, answer: Answer) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of a target's files, and why there are no others: what nothing launches is none."""
    texts, refused = {}, {}
    if why := files.refusal(answer.job):
        return {}, dict.fromkeys(files.files, why)
    for name, export in files.files.items():
        try:
            texts[name] = export(answer)
        except InputError as error:
            refused[name] = str(error)
    launching = [name for name in files.files if name not in files.companions]
    if not any(name in texts for name in launching):
        refused |= dict.fromkeys(files.companions, refused[launching[0]])
        texts.clear()
    return texts, refused


def write_exports(
    answer: Answer, folder: Path, *, force: bool = False, like: str = ""
) -> tuple[list[Path], Mapping[str, str]]:
    """Write every launch file into the folder, which is made if need be; the paths written, and why others were not.

    Args:
        answer: whose plan they launch.
        folder: where they go.
        force: whether files there may be overwritten.
        like: a batch script whose account, partition, time, modules and container ours take over; "" for none.

    Raises:
        InputError: a file exists already, the folder cannot be written, no file can be, or `like` is no batch script.
    """
    exports = exported(answer)
    if not exports.texts:
        own = own_target(answer.job.stack)
        hint = [f"--target {own} plans what it can"] * (own in WRITTEN and not target_of(answer.job.stack))
        raise InputError("; ".join([*dict.fromkeys(exports.refused.values()), *hint]))
    texts = dict(exports.texts)
    if like:
        own, refused = readable(like, "give a batch script of Slurm"), dict(exports.refused)
        liked = {name: alike(text, own, Path(like).name) for name, text in texts.items()}
        if liked == texts:
            refused["--like"] = f"none of these files is a batch script of Slurm: --target {BATCH} writes one"
        return write_texts(liked, folder, force=force), refused
    return write_texts(texts, folder, force=force), exports.refused


def write_texts(texts: Mapping[str, str], folder: Path, *, force: bool = False) -> list[Path]:
    """Write files into a folder, which is made if need be: all of them, or none.

    They are written into a folder beside it, which then takes its place in one step. Where the folder holds other files
    too, they are moved into it one by one. Raises InputError for a file that is in the way (unless `force`) and for
    what cannot be written.
    """
    if not force:
        check_free(folder, texts)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name[:80]}.", dir=folder.parent) as scratch:
            whole = Path(scratch) / "new"
            whole.mkdir()
            for name, text in texts.items():
                (whole / name).write_text(text, encoding="utf-8")
            if not take_place(whole, folder, FILES):
                folder.mkdir(exist_ok=True)
                for name in texts:
                    (whole / name).replace(folder / name)
            return [folder / name for name in texts]
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}") from error


def check_free(folder: Path, names: Iterable[str] = FILES) -> None:
    """Raise InputError when the folder already holds one of these files."""
    existing = [name for name in names if (folder / name).exists()]
    if existing:
        raise InputError(
            f"{folder} already holds {', '.join(existing)}; add --force to overwrite, or name another folder"
        )
