"""A model described by the user: a TOML file whose keys are the fields of Model."""

from __future__ import annotations

from pathlib import Path

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.model_checks import impossible
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.tables import Natural, part, table_of
from optimizer.catalog.readers.text import read_described
from optimizer.job.model import Experts, LatentAttention, Model, Provenance, SlidingWindow

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
