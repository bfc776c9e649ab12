"""Models, clusters and tables of runs of a visitor's own: their text travels in the address.

It lies on disk only while it is read, and nothing is kept on the server, so that a link restores the page and two
visitors cannot see each other's files.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optimizer.base.errors import InputError, InvalidFile, OptimizerError
from optimizer.catalog.readers.text import json_of, toml_of
from optimizer.catalog.sealed import sealed, sealed_folder

FILE = "file"  # as the name of a model, a cluster or runs: the one in the address
LARGEST = 16_000  # bytes of such a file
MOST_PACKED = 12_000  # characters of it in an address
RUNS = "runs"
KINDS = ("model", "cluster", RUNS)
MEASURED = {"step_time_s", "mem_gb"}  # columns, of which a table of runs has one
# By which a description is told from a launch's config.
KEYS = {
    "cluster": {"tiers", "gpus_per_node"},
    "model": {"hidden_size", "n_embd", "num_hidden_layers", "layers", "architectures", "model_type"},
}


def packed(text: str) -> str:
    """A text as it stands in an address.

    >>> unpacked("model", packed("layers = 4"))
    'layers = 4'
    """
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(kind: str, text: str, most: int = LARGEST) -> str:
    """The text of an address. Raises InputError for what is none, or more than so many bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        reader = zlib.decompressobj()
        data = reader.decompress(raw, most + 1)
        if len(data) > most:
            raise InputError(f"the {kind} file has more than {most:,} bytes; leave out what does not describe it")
        if not reader.eof:
            raise ValueError("cut off")
        return data.decode()
    except (binascii.Error, zlib.error, ValueError):
        raise InputError(f"the {kind} file in the address is damaged; give the file again") from None


@contextmanager
def on_disk(texts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The files of these kinds while they are read: their places. They can name no other file of this machine."""
    with tempfile.TemporaryDirectory(prefix="own-", dir=sealed_folder()) as folder, sealed(Path(folder)):
        places: dict[str, Any] = {}
        for kind, text in texts.items():
            place = Path(folder) / name_of(kind, text)
            place.write_text(text, encoding="utf-8")
            places[kind] = str(place)
        try:
            yield places
        except PermissionError as error:
            raise InputError(f"a file given here may not name others: {error}") from None
        except OptimizerError as error:
            raise InputError(str(error).replace(folder + "/", "")) from None


def name_of(kind: str, text: str) -> str:
    """What such a file is called.

    >>> name_of("model", '{"hidden_size": 4096}'), name_of("cluster", "name = 'mine'"), name_of("runs", "gpu,gpus")
    ('model.json', 'cluster.toml', 'runs.csv')
    """
    if kind == RUNS:
        return f"{RUNS}.csv"
    return f"{kind}.json" if text.lstrip().startswith("{") else f"{kind}.toml"


def kind_of(text: str) -> str:
    r"""Whether a text describes a model, a cluster or measured runs, by its keys or columns; "" where it is none.

    Raises InputError for a description that cannot be used.

    >>> kind_of('{"zero_optimization": {"stage": 2}}'), kind_of("torchrun train.py")
    ('', '')
    >>> kind_of("model,gpu,gpus,step_time_s\nllama3-8b,h100,8,2.5")
    'runs'
    """
    if MEASURED & {cell.strip(' "') for cell in text.partition("\n")[0].rstrip().split(",")}:
        from optimizer.calibration.runs import rows_in

        name = name_of(RUNS, text)
        if not rows_in(unpacked(RUNS, packed(text)).encode(), name):
            raise InvalidFile(name, ["it has columns and no row; give a measured run at least"])
        return RUNS
    keys = _keys(text)
    kind = next((kind for kind, own in KEYS.items() if keys & own), "")
    if kind:
        from optimizer.catalog import load_cluster, load_model

        unpacked(kind, packed(text))  # that it is not too large for an address
        with on_disk({kind: text}) as places:
            (load_cluster if kind == "cluster" else load_model)(places[kind])
    return kind


def _keys(text: str) -> set[str]:
    """The first keys of a JSON or TOML text; none of another."""
    try:
        values = (json_of if text.lstrip().startswith("{") else toml_of)(text, "")
    except InputError:
        return set()
    return set(values) if isinstance(values, dict) else set()
