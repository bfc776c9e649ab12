"""What a visitor gave: its files by name, and what each of them is, told by its first kilobyte."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from optimizer.base.errors import InputError
from optimizer.frameworks.files import LARGEST

MOST_FILES, LONGEST_NAME = 8, 80
LOOKED_AT = 1024  # characters of a file by which its kind is told
HEAD = re.compile(rb"^==> (.+) <==[ \t]*\r?\n", re.MULTILINE)
LOG_ENDINGS = (".log", ".out", ".err")
# How a text without a name ends that looks so; the first that fits.
LOOKS = {
    ".sh": r"\A#!.*sh\b|^\s*(?:srun|torchrun|export|deepspeed|accelerate)\s|^#SBATCH\b|\\$",
    ".csv": r"\A[^\n]*\b(?:step_time_s|mem_gb)\b",
    ".json": r"\A\s*\{",
    ".log": r"^\W*(?:\d{4}-\d\d-\d\d[ T]|\d\d:\d\d:\d\d)|\b(?:iteration|step)\b.*\b(?:loss|elapsed|tokens|tflops)\b",
    ".py": r"^(?:import|from|def|class|@)\b",
    ".toml": r"^\[[\w.\"-]+\]\s*$|^[\w.]+ = ",
    ".yaml": r"^[\w.-]+:(?:\s|$)",
}
Named = tuple[str, bytes]


def given(body: bytes) -> list[Named]:
    r"""What was sent, by name: {"pasted": [[name, text], ...]}, or a text of no name.

    In a text of no name, a line ==> name <== begins a file, as `head` and `tail` print several. A file without a name
    gets one that says what it looks like. Raises InputError for nothing, and for too much.

    >>> given(b'{"pasted": [["../run.sh", "torchrun"]]}'), given(b"torchrun train.py")
    ([('run.sh', b'torchrun')], [('pasted.sh', b'torchrun train.py')])
    >>> given(b"==> a.sh <==\ntorchrun\n==> b.json <==\n{}")
    [('a.sh', b'torchrun\n'), ('b.json', b'{}')]
    """
    try:
        sent = json.loads(body)["pasted"]
        files = [(_harmless(str(name)), str(text).encode("utf-8", "replace")) for name, text in sent]
    except (ValueError, TypeError, KeyError, RecursionError):
        files = [("", body)]
    if len(files) == 1 and not files[0][0]:
        first, *more = HEAD.split(files[0][1])
        named = (_harmless(name.decode("utf-8", "replace")) for name in more[::2])
        files = [("", first), *zip(named, more[1::2], strict=True)]
    size = sum(len(data) for _, data in files)
    if size > LARGEST:
        raise InputError(f"{size / 1e6:.1f} MB were pasted: at most {LARGEST / 1e6:.0f} MB are read")
    if len(files) > MOST_FILES:
        raise InputError(f"{len(files)} files are more than the {MOST_FILES} that one launch may have")
    if empty := [name for name, data in files if name and not data.strip()]:
        raise InputError(f"{', '.join(empty)}: nothing is in it; give what it should hold, or leave it out")
    files = [(name or f"pasted{looks(data)}", data) for name, data in files if data.strip()]
    if not files:
        raise InputError("nothing was pasted; put a launch script, a config or a log into the box")
    names = [name for name, _ in files]
    return [(name if names.index(name) == at else f"{at}-{name}", data) for at, (name, data) in enumerate(files)]


def _harmless(name: str) -> str:
    """A name that means nothing but itself: no folder, plain characters."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("\\", "/").rpartition("/")[2])[-LONGEST_NAME:].lstrip(".")


def looks(data: bytes) -> str:
    r"""How a file that begins so ends; a script where nothing else is told.

    >>> looks(b'{"a": 1}'), looks(b"model:\n  layers: 2"), looks(b"step 1 loss 2.0"), looks(b"cat /etc/passwd")
    ('.json', '.yaml', '.log', '.sh')
    """
    head = data[:LOOKED_AT].decode("utf-8", "replace")
    return next((ending for ending, look in LOOKS.items() if re.search(look, head, re.MULTILINE)), ".sh")


def is_log(name: str, data: bytes) -> bool:
    """Whether it is what a program printed: by its name, else by how it begins."""
    return Path(name).suffix in LOG_ENDINGS or (Path(name).suffix in ("", ".txt") and looks(data) == ".log")


def packable(files: Sequence[Named]) -> str:
    """Files as one text, which `given` reads."""
    return json.dumps({"pasted": [(name, data.decode("utf-8", "replace")) for name, data in files]})
