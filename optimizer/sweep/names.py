"""Names of presets in a study file: globs, aliases, and files beside the study."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, nearest

NAMED = ("models", "clusters", "devices", "stacks")


def expanded(kind: str, names: Iterable[str], folder: Path, where: str, problems: list[str]) -> tuple[str, ...]:
    """Preset names that the patterns stand for; a path is taken from the folder of the study."""
    names_meant: dict[str, None] = {}
    for name in names:
        try:
            names_meant.update(dict.fromkeys(meant(kind, name, folder)))
        except InputError as error:
            problems.append(f"{where}{kind}: {error}")
    return tuple(names_meant)


def meant(kind: str, name: str, folder: Path) -> Sequence[str]:
    """What one name or glob stands for; raises InputError when it stands for nothing."""
    from optimizer import catalog
    from optimizer.catalog.places import file_of, spelled

    load = catalog.KINDS[kind.removesuffix("s")][1]
    known = catalog.names_of(kind.removesuffix("s"))
    if path := file_of(name, folder):
        if not os.path.exists(path):
            raise InputError(f"no such file {str(path)!r}; paths start at the folder of the study")
        load(spelled(path))
        return [spelled(path)]
    if any(character in name for character in "*?["):
        matching = [preset for preset in known if fnmatchcase(preset, name.lower())]
        if not matching:
            close = nearest(name.strip("*?"), known)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise InputError(f"no preset matches {name!r}{hint}")
        return matching
    return [str(load(name).name)]


def unknown_names(raw: Mapping[str, Any], folder: Path) -> list[str]:
    """Names without a preset in a file that has other problems too, so that all are reported at once."""
    problems: list[str] = []
    for kind in NAMED:
        value = raw.get(kind, [])
        names = [name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str) and name]
        expanded(kind, names, folder, "", problems)
    return problems
