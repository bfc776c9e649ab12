"""A model described by the user: a TOML file whose keys are the fields of Model."""

from __future__ import annotations

from pathlib import Path

from optimizer.errors import InvalidFile
from optimizer.model import Experts, LatentAttention, Model, Provenance, SlidingWindow
from optimizer.readers.model_checks import impossible
from optimizer.readers.problems import validated
from optimizer.readers.tables import Natural, part, table_of
from optimizer.readers.text import read_described

KEYS = table_of(
    Model,
    window=part(SlidingWindow) | None,
    experts=part(Experts) | None,
    mla=part(LatentAttention, q_rank=Natural) | None,  # 0: queries are projected directly
    provenance=part(Provenance),
)


def read_model_file(path: str | Path) -> Model:
    """The Model in a TOML file: its fields at the top, [experts], [mla], [window] and [provenance] as tables.

    Without a `name` the file's own is taken. Raises InvalidFile with every problem found.
    """
    path, problems = Path(path), list[str]()
    table = validated(KEYS, {"name": path.stem} | read_described(path, "model"), problems)
    model = Model(**dict(table)) if table else None
    if model is None or problems or (problems := impossible(model)):
        raise InvalidFile(path, problems)
    return model
