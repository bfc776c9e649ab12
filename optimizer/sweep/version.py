"""The version of the cost model: results of another one are kept, and never taken for results of this one."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

# Everything that an answer depends on besides the job itself, which is in the key of its result: the code that planning
# runs, the presets that it reads on the way, and the libraries that search.
PARTS = ("answer", "base", "catalog", "constraints", "job", "objectives", "search")
DATA = ("intervals.toml", "kernels.csv", "nccl.csv")
LIBRARIES = ("ortools", "optuna")


@cache
def cost_model_version() -> str:
    """Fingerprint of the code, data and libraries behind every answer, the same on every machine that has them.

    >>> len(cost_model_version())
    12
    """
    digest = sha256()
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    for name in LIBRARIES:
        digest.update(f"{name} {'.'.join(version(name).split('.')[:2])}".encode() + b"\0")
    return digest.hexdigest()[:12]


def sources() -> list[Path]:
    """The files of code and data."""
    from optimizer.catalog.files import presets_folder

    package = Path(__file__).resolve().parents[1]
    code = [path for part in PARTS for path in sorted((package / part).rglob("*.py")) or [package / part]]
    return code + [path for name in DATA if (path := presets_folder() / name).exists()]
