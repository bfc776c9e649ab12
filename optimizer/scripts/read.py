"""Launch files of any framework, told by what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from optimizer.errors import InputError, InvalidFile
from optimizer.scripts.bash_launch import bash_launch
from optimizer.scripts.source import Source

LARGEST = 2_000_000  # bytes of a launch file: more is a log or data


@dataclass(frozen=True)
class File:
    """One file as it was found."""

    name: str
    data: bytes

    @property
    def text(self) -> str:
        """Its text."""
        from optimizer.readers.text import decoded

        return decoded(self.data)


def read_files(paths: Sequence[str]) -> list[File]:
    """The files; raises InvalidFile for what is no text, empty, or too large to be a launch."""
    return [_file(path) for path in paths]


def _file(path: str) -> File:
    try:
        size = Path(path).stat().st_size
        if size > LARGEST:
            raise InvalidFile(path, [f"{size / 1e6:.1f} MB is no launch file: at most {LARGEST / 1e6:.0f} MB are read"])
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}; give a launch script or a config"]) from error
    found = File(path, data)
    try:
        text = found.text
    except UnicodeDecodeError as error:
        raise InvalidFile(path, [f"byte {error.start}: no UTF-8 text; give a launch script or a config"]) from None
    if "\0" in text:
        raise InvalidFile(path, ["a binary file; give a launch script or a config"])
    if not text.strip():
        raise InvalidFile(path, ["the file is empty; give a launch script or a config"])
    return found


def read_launch(files: Sequence[File], gpus: int | None = None) -> Source:
    """The launch in one or several files, which then are one launch.

    Raises InvalidFile for what cannot be read, InputError where the files do not belong together.
    """
    kinds = {file.name: kind_of(file) for file in files}
    scripts = [file for file in files if kinds[file.name] == "bash"]
    if len(scripts) > 1:
        raise InputError(f"{', '.join(file.name for file in scripts)} are several launches: give one script at a time")
    if scripts:
        return bash_launch(scripts[0].name, scripts[0].data, gpus)
    raise InvalidFile(files[0].name, ["no launch that is known"])


def kind_of(file: File) -> str:
    """The format of a file: by its name's end, else by how it starts."""
    end = Path(file.name).suffix.lower()
    return KINDS.get(end, "bash")


KINDS: Mapping[str, str] = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
