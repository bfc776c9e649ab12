"""All launch files of an answer in one folder, written whole or not at all."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.base.files import take_place
from optimizer.frameworks.deepspeed.export import (
    accelerate_deepspeed,
    accelerate_fsdp,
    deepspeed_json,
    trainer_deepspeed,
    trainer_fsdp,
)
from optimizer.frameworks.megatron.export import COMMUNICATORS, communicators, megatron_arguments, unexpressed_plan
from optimizer.frameworks.megatron.kubernetes import pytorchjob
from optimizer.frameworks.megatron.sbatch import sbatch_script
from optimizer.frameworks.megatron_bridge.export import BRIDGE_RELEASES, bridge_overrides
from optimizer.frameworks.torchtitan.export import torchtitan_toml
from optimizer.frameworks.torchtitan.export_python import MODULES, torchtitan_main, torchtitan_python
from optimizer.frameworks.torchtitan.models import MAIN, NEW
from optimizer.job.target import LAUNCHERS, target_of

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer


def _arguments(answer: Answer) -> str:
    return shlex.join(megatron_arguments(answer)) + "\n"


def _communicators(answer: Answer) -> str:
    if answer.plan is not None and (missing := unexpressed_plan(answer.job, answer.plan, answer.knobs)):
        raise InputError(f"Megatron cannot run this plan: it lacks {'; '.join(missing)}")
    return communicators(answer.job, answer.knobs)


BRIDGE = {f"megatron-bridge-{release}.overrides": release for release in BRIDGE_RELEASES}
EXPORTS: Mapping[str, Callable[[Answer], str]] = {
    "megatron.args": _arguments,
    COMMUNICATORS: _communicators,
    "megatron.sbatch": sbatch_script,
    "megatron-pytorchjob.yaml": pytorchjob,
    **{name: partial(bridge_overrides, release=release) for name, release in BRIDGE.items()},
    "torchtitan.toml": torchtitan_toml,
    f"{MODULES[NEW]}.py": torchtitan_python,
    f"{MODULES[MAIN]}.py": torchtitan_main,
}
# Files of software that shards data-parallel replicas alone, for an answer that is for it.
REPLICATED: Mapping[str, Callable[[Answer], str]] = {
    "deepspeed.json": deepspeed_json,
    "accelerate-deepspeed.yaml": accelerate_deepspeed,
    "trainer-deepspeed.json": trainer_deepspeed,
    "accelerate-fsdp.yaml": accelerate_fsdp,
    "trainer-fsdp.json": trainer_fsdp,
}
FILES = (*EXPORTS, *REPLICATED)
FILES_OF: Mapping[str, tuple[str, ...]] = {
    "megatron-lm": ("megatron.args", COMMUNICATORS, "megatron.sbatch", "megatron-pytorchjob.yaml"),
    "megatron-bridge": (*BRIDGE, COMMUNICATORS),
    "deepspeed": ("deepspeed.json", "accelerate-deepspeed.yaml", "trainer-deepspeed.json"),
    "accelerate": ("accelerate-fsdp.yaml", "trainer-fsdp.json"),
    "torchtitan": ("torchtitan.toml", *(f"{name}.py" for name in MODULES.values())),
}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Name and content of every launch file, and of those that cannot be the reason; a file without content is none."""

    texts: Mapping[str, str]
    refused: Mapping[str, str]


def exported(answer: Answer) -> Exported:
    """Every launch file of an answer, or those of its target; one that cannot be had does not keep the others.

    Raises InputError when the answer holds no plan.
    """
    if answer.plan is None:
        raise InputError(f"there is no plan to export: the answer is {answer.status}")
    texts, refused = {}, {}
    target = target_of(answer.job.stack)
    for name, export in {**EXPORTS, **(REPLICATED if target in LAUNCHERS else {})}.items():
        if target in LAUNCHERS and name not in FILES_OF[target]:
            continue
        try:
            texts[name] = export(answer)
        except InputError as error:
            refused[name] = str(error)
    launches = [name for name in ("megatron.args", *BRIDGE) if name in refused]
    if launches and not any(name in texts for name in ("megatron.args", *BRIDGE)):
        refused[COMMUNICATORS] = refused[launches[0]]  # what nothing launches is no file
        texts.pop(COMMUNICATORS, None)
    return Exported(texts={name: text for name, text in texts.items() if text}, refused=refused)


def write_exports(answer: Answer, folder: Path, *, force: bool = False) -> tuple[list[Path], Mapping[str, str]]:
    """Write every launch file into the folder, which is made if need be; the paths written, and why others were not.

    Raises InputError when a file exists already (unless `force`), the folder cannot be written or no file can be.
    """
    found = exported(answer)
    if not found.texts:
        raise InputError("; ".join(dict.fromkeys(found.refused.values())))
    return write_texts(found.texts, folder, force=force), found.refused


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
