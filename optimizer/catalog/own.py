"""Presets of the user's own: files of models, clusters and stacks that are known by the names of the files.

They lie in the folders of $OPTIMIZE_PRESETS, then in the `presets` folder beside the user's defaults, each with the
folders `models`, `clusters` and `stacks`. An own preset comes before a shipped one of its name, and is said to.
"""

from __future__ import annotations

import os
from pathlib import Path

from optimizer.base.errors import InputError
from optimizer.base.files import config_folder
from optimizer.base.names import refusal

VARIABLE = "OPTIMIZE_PRESETS"
ENDINGS = {"model": (".toml", ".json"), "cluster": (".toml",), "stack": (".toml",)}


def folders() -> tuple[Path, ...]:
    """The folders of own presets, the first one first; raises InputError for one that is asked for and not there."""
    named = [Path(text).expanduser() for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    if missing := [str(path) for path in named if not path.is_dir()]:
        raise InputError(f"{VARIABLE} names no folder: {', '.join(missing)}; make it, or leave it out")
    usual = config_folder() / "presets"
    return (*named, usual) if os.path.isdir(usual) else tuple(named)


def own_files(kind: str) -> dict[str, Path]:
    """The own presets of a kind by name; of two with one name the one of the first folder."""
    files: dict[str, Path] = {}
    for folder in folders():
        own = folder / f"{kind}s"
        for path in sorted(own.iterdir()) if kind in ENDINGS and own.is_dir() else ():
            if path.suffix not in ENDINGS[kind] or not path.is_file():
                continue
            if refusal(path.stem):
                raise InputError(f"{path.parent}: {path.stem!r} is no name of a {kind}: {refusal(path.stem)}")
            files.setdefault(path.stem, path)
    return files


def own_file(kind: str, name: str) -> Path | None:
    """The file of the own preset of this name, None where there is none; case, blanks, "-" and "_" do not matter."""
    known = {spelling(stem): path for stem, path in own_files(kind).items()}
    return known.get(spelling(name)) if known else None


def spelling(name: str) -> str:
    """What stays of a name when spellings are compared.

    >>> spelling("GPT-3 175B")
    'gpt3175b'
    """
    return name.lower().translate({ord(character): None for character in "-_ "})
