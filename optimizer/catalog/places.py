"""Whether a text means a preset or a file: the one rule of every option, study and reader.

A text with a slash, with "~" or "." in front, or that ends in .toml or .json is the path of a file; any other is the
name of a preset, also where a file of that name lies in the folder, which `clash` says.

Presets of the user's own are files of models, clusters and stacks that are known by the names of the files. They lie in
the folders of $OPTIMIZE_PRESETS, then in the `presets` folder beside the user's defaults, each with the folders
`models`, `clusters` and `stacks`. An own preset comes before a shipped one of its name, and the answer says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from optimizer.base.errors import InputError
from optimizer.base.files import config_folder
from optimizer.base.names import refusal

ENDINGS = (".toml", ".json")
VARIABLE = "OPTIMIZE_PRESETS"
OWN_ENDINGS = {"model": (".toml", ".json"), "cluster": (".toml",), "stack": (".toml",)}
BETWEEN, PARTS = re.compile(r"(?<=\d)[-_ ]+(?=\d)"), re.compile(r"[_ ]|(?<!\d)-|-(?!\d)")  # of a name's words


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
    if name in presets and os.path.exists(path):
        return f"{kind} {name} of the file {spelled(path)}, not the preset of that name (--{kind})"
    return ""


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
        for path in sorted(own.iterdir()) if kind in OWN_ENDINGS and own.is_dir() else ():
            if path.suffix not in OWN_ENDINGS[kind] or not path.is_file():
                continue
            if refusal(path.stem):
                raise InputError(f"{path.parent}: {path.stem!r} is no name of a {kind}: {refusal(path.stem)}")
            files.setdefault(path.stem, path)
    return files


def own_file(kind: str, name: str) -> Path | None:
    """The file of the own preset of this name, None where there is none; case, blanks, "-" and "_" do not matter."""
    known = {spelling(stem): path for stem, path in own_files(kind).items()}
    return known.get(spelling(name)) if known else None


@lru_cache(maxsize=2**12)
def spelling(name: str) -> str:
    """What stays of a name when spellings are compared: what parts its words goes, but between digits.

    >>> spelling("GPT-3 175B"), spelling("Llama-3.1_8B"), spelling("llama3-3B"), spelling("LLaMA 33B")
    ('gpt3-175b', 'llama3.1-8b', 'llama3-3b', 'llama33b')
    """
    return PARTS.sub("", BETWEEN.sub("-", name.lower()))
