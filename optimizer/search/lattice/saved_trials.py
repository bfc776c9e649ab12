"""Trials of Optuna in a database, where its dashboard shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from optimizer.job.job import Job

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

STUDY = "mfu-optimizer"


def keep(job: Job, trials: Sequence[Any], url: str) -> None:
    """Add trials of a job to its study in a database."""
    import optuna

    name = f"{STUDY}-{job.model.name}-{job.gpus}"
    with open_storage(url) as storage:
        optuna.create_study(storage=storage, study_name=name, load_if_exists=True).add_trials(trials)


@contextmanager
def open_storage(url: str) -> Iterator[RDBStorage]:
    """An Optuna storage whose connections end with the block, which Optuna leaves to the collection of garbage.

    A file gets one for each transaction: what is no database leaves none behind either. A database in memory ends with
    its connection and keeps it.
    """
    import optuna
    from sqlalchemy import make_url
    from sqlalchemy.pool import NullPool

    place = make_url(url)
    a_file = place.get_backend_name() == "sqlite" and place.database not in (None, "", ":memory:")
    storage = optuna.storages.RDBStorage(url, {"poolclass": NullPool} if a_file else None)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()
