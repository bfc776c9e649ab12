"""Whether a text means a preset or a file: the one rule of every option, study and reader.

A text with a slash, with "~" or "." in front, or that ends in .toml or .json is the path of a file; any other is the
name of a preset, also where a file of that name lies in the folder, which `clash` says.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from pathlib import Path

from optimizer.base.errors import InputError

ENDINGS = (".toml", ".json")


def file_of(name: str | Path, folder: str | Path = "") -> Path | None:
    """The file that a text means, from a folder on; None for the name of a preset.

    >>> file_of("gpt3"), file_of("gpt3.json", "studies").as_posix(), file_of("./gpt3").as_posix()
    (None, 'studies/gpt3.json', 'gpt3')
    """
    if isinstance(name, Path):
        return Path(folder) / name.expanduser()
    if "/" in name or "\\" in name or name.startswith(("~", ".")) or name.lower().endswith(ENDINGS):
        return Path(folder) / os.path.expanduser(name)
    return None


def existing(kind: str, path: Path) -> Path:
    """The file, if it is there; raises InputError for a path to nothing."""
    if os.path.exists(path):  # unlike Path.exists, false for a name that is too long for a file
        return path
    raise InputError(
        f"no {kind} file {str(path)!r}: it cannot be read; give a preset, or the path of a file that is there"
    )


def spelled(path: Path) -> str:
    """A path that is never taken for the name of a preset again.

    >>> spelled(Path("gpt3")), spelled(Path("a/gpt3.json"))
    ('./gpt3', 'a/gpt3.json')
    """
    text = str(path)
    return text if os.path.dirname(text) else os.path.join(".", text)


def clash(kind: str, typed: str, name: str, presets: Iterable[str]) -> str:
    """What to say where a preset and a file have the same name, "" where nothing is to be said.

    typed: what was asked for; name: what that is called.
    """
    path = file_of(typed)
    if path is None:
        names = [typed, *(typed + end for end in ENDINGS)] if typed else []
        configs = {name: os.path.join(name, "config.json") for name in names}  # of folders that describe a model
        likely_file = next((name for name in names if os.path.isfile(name) or os.path.isfile(configs[name])), "")
        return f"the preset {name}, not the file {likely_file} (--{kind} ./{likely_file})" if likely_file else ""
    if name in presets:
        return f"{kind} {name} of the file {spelled(path)}, not the preset of that name (--{kind})"
    return ""
