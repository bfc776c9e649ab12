"""Who claims jobs: one running `optimize batch`, distinct from every other one, alive or dead."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A running batch. `started` tells its process from a later one with the same number."""

    name: str
    host: str
    process: int
    started: str


def myself() -> Owner:
    """The owner that this process is from now on."""
    process = os.getpid()
    return Owner(name=f"{process}-{uuid4().hex}", host=place(), process=process, started=started(process))


def place() -> str:
    """This machine, on Linux with its boot and process namespace: where process numbers mean something."""
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass
    return " ".join(parts)


def started(process: int) -> str:
    """When a process started, in the system's own words, or "" when the system does not say."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name in brackets may hold blanks; the start is the 20th field after it.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def is_dead(owner: Owner) -> bool:
    """Whether the owner is certainly gone. False also means: on another machine, nobody here can tell."""
    if owner.host != place() or not owner.started:
        return False
    return started(owner.process) != owner.started
