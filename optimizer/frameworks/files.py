"""The files of a launch: those given, of a known kind and no page, notebook or data, and those that they name.

What a file names is read only where it lies in its folder, or in a root that the user gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os.path import isfile  # where Path.is_file raises, of names too long for a file, there is none
from pathlib import Path

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.files import lies_in, read_bytes
from optimizer.frameworks.bash.script import Find
from optimizer.frameworks.config.file import OVERRIDE, OVERRIDES, PYTHON, ConfigFile
from optimizer.frameworks.manifest import Pod, pod_in

BASH = "bash"
KINDS: Mapping[str, str] = {
    ".py": PYTHON,
    ".json": "json",
    ".config": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
CONF = ".conf"  # of JSON too: open-instruct's configs of DeepSpeed
PART = re.compile(r"(.*\.py):(\w+)$")
LARGEST = 2_000_000  # bytes of a launch file: more is a log or data
UNDECODED = 0.05  # share of characters that are no text from which a file is none
WEB_PAGE = re.compile(r"\s*(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
NOTEBOOK = re.compile(r'\s*\{(?=.*"cells"\s*:)(?=.*"(?:nbformat|cell_type)"\s*:)', re.DOTALL)


@dataclass(frozen=True)
class File:
    """One file as it was found.

    Attributes:
        name: its path.
        data: what is in it.
        part: the function of a Python file that the user names after a colon.
        outside: variables and arguments that a script is started with, by name or place.
        root: a folder whose files it may name besides those of its own, "" for none.
        section: the part of a launch of reinforcement learning that is asked for, "" for a whole training.
    """

    name: str
    data: bytes
    part: str = ""
    outside: Mapping[str, str] = field(default_factory=dict)
    root: str = ""
    section: str = ""

    @property
    def text(self) -> str:
        """Its text."""
        from optimizer.catalog.readers.text import decoded

        return decoded(self.data)

    @cached_property
    def pod(self) -> Pod | None:
        """What it starts as a manifest of Kubernetes, None where it is none."""
        return pod_in(self.text) if KINDS.get(Path(self.name).suffix.lower()) == "yaml" else None


def read_files(
    paths: Sequence[str],
    arguments: Sequence[str] = (),
    variables: Mapping[str, str] = {},
    root: str = "",
    section: str = "",
) -> list[File]:
    """The files, started with these arguments and variables of the environment; `root` and `section` as in File.

    Raises InvalidFile for what is no text, empty, or too large to be a launch, InputError for a root that is no folder.
    """
    if root and not Path(root).is_dir():
        raise InputError(f"--root {root} is no folder; name one that holds the files that the script names")
    outside = {**variables, **{str(place): value for place, value in enumerate(arguments, 1)}}
    return [replace(read_file(path), outside=outside, root=root, section=section) for path in paths]


def read_file(path: str) -> File:
    """The file of this path, after which a colon may name a function of Python.

    Raises InvalidFile as read_files does.
    """
    if match := PART.match(path):
        path, part = match[1], match[2]
    else:
        part = ""
    try:
        data = read_bytes(path, LARGEST)
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}; give a launch script or a config"]) from error
    return launch_file(File(path, data, part))


def launch_file(file: File) -> File:
    """A file that may be a launch's; raises InvalidFile for one that is empty or no text, a web page or a notebook."""
    advice = "give a launch script or a config"
    try:
        text = file.text
    except UnicodeDecodeError as error:
        raise InvalidFile(file.name, [f"byte {error.start}: no UTF-8 text; {advice}"]) from None
    if "\0" in text or text.count("\ufffd") > UNDECODED * len(text):
        raise InvalidFile(file.name, [f"a binary file; {advice}"])
    if not text.strip():
        raise InvalidFile(file.name, [f"the file is empty; {advice}"])
    if WEB_PAGE.match(text):
        raise InvalidFile(file.name, [f"a web page, as a browser saves it; {advice} as its page has it under Raw"])
    if NOTEBOOK.match(text):
        cells = "what a cell starts after ! or %%bash, or the config that it writes"
        raise InvalidFile(file.name, [f"a notebook, of which no cell is read; give {cells}, as a file of its own"])
    return file


def kind_of(file: File) -> str:
    """The format of a file, by the end of its name, or lines of overrides alone; what has none of these is a script."""
    lines = [line for line in file.text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if Path(file.name).suffix.lower() not in (*KINDS, ".sh") and lines and all(map(OVERRIDE.match, lines)):
        dotted = sum("." in line.partition("=")[0] for line in lines)
        return OVERRIDES if dotted else BASH
    suffix = Path(file.name).suffix.lower()
    kind = "json" if suffix == CONF and file.text.lstrip().startswith("{") else KINDS.get(suffix, BASH)
    return BASH if kind == "yaml" and file.pod else kind


def advice_for(script: File | ConfigFile, paths: Sequence[str], given: Sequence[str] = ()) -> str:
    """What to do about configs that a script, or one that it trains by, names and that do not lie where it says."""
    names = " ".join(dict.fromkeys([*given, *(Path(path).name for path in paths)]))
    advice = f"give it too: optimize improve {script.name} {names}; or --root FOLDER, where its path begins"
    return f"it trains by {', '.join(paths)}, not found here; {advice}"


def out_of_reach(script: File, paths: Sequence[str]) -> list[str]:
    """A sentence for each file that a script names and that is there, but in no folder that it may read."""
    there = [
        path for path in dict.fromkeys(paths) if lying_near(script, path) is None and any(named_files(script, path))
    ]
    advice = f"lies outside of the folder of {Path(script.name).name}: --root FOLDER reads it"
    return [f"nothing of {path}, which {advice}" for path in there]


def not_here(script: File, paths: Sequence[str]) -> list[str]:
    """A sentence for the files that a script sources or starts and that are not here."""
    names = dict.fromkeys(Path(path).name for path in paths if not any(named_files(script, path)))
    advice = "not found here: give what it lies in by --root FOLDER, or each file after the script"
    return [f"it runs {', '.join(names)}, {advice}"] if names else []


def lying_near(script: File, path: str) -> Path | None:
    """A file that a file names and may read: it lies in its folder, or in its root; None without one."""
    homes: list[str | Path] = [Path(script.name).parent, *filter(None, [script.root])]
    return next((place for place in named_files(script, path) if lies_in(place, homes)), None)


def named_files(script: File, path: str) -> Iterator[Path]:
    """The files that a script can mean by a path: from its folder, beside it, or from its root, wherever that was."""
    folder, parts = Path(script.name).parent, Path(path.lstrip("/")).parts
    name = Path(path).name
    rooted = [Path(home, *parts[start:]) for home in (folder, script.root) if home for start in range(len(parts))]
    places = [*([] if path.startswith(("/", "$")) else [folder / path]), folder / name, *rooted]
    own = Path(script.name).resolve()
    yield from (place for place in places if name and isfile(place) and place.resolve() != own)


def sources(script: File, scripts: Sequence[File]) -> Find:
    """Finds what a script sources: among the files given, else lying beside it."""

    def find(path: str) -> bytes | None:
        name = Path(path).name
        given = next((each for each in scripts if each is not script and Path(each.name).name == name), None)
        if given is not None:
            return given.data
        place = lying_near(script, path)
        if place is None:
            return None
        try:
            return read_bytes(place, LARGEST)
        except OSError:
            return None

    return find
