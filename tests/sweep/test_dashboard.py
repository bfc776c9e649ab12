"""A batch as an Optuna study in the same database as the store."""

from __future__ import annotations

from contextlib import nullcontext

import optuna
import pytest

from optimizer.base.errors import InputError
from optimizer.search.lattice.saved_trials import open_storage
from optimizer.sweep import dashboard
from optimizer.sweep.connection import url_of
from optimizer.sweep.dashboard import publish
from optimizer.sweep.store import Store
from tests.sweep.fakes import tasks
from tests.sweep.test_results import results

pytestmark = pytest.mark.filterwarnings("ignore")


def test_one_trial_per_job_in_the_database_of_the_store(place: str) -> None:
    store = Store(place)
    store.register(tasks(2))
    for _ in range(2):
        assert publish(place, "families", results()) == 4
    with open_storage(url_of(place).render_as_string(hide_password=False)) as storage:
        study = optuna.load_study(study_name="families", storage=storage)
        assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]
        assert study.best_value == max(found["estimate"]["mfu"] for found in results()[:2])
        assert study.trials[1].params == {"gpus": 16}
        assert study.trials[1].user_attrs["tp"] == 8
        assert len(store.rows()) == 2
        optuna.create_study(study_name="mine", storage=storage)
        with pytest.raises(InputError, match="another program has a study named 'mine'"):
            publish(place, "mine", results())
    store.close()


def test_the_password_reaches_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(dashboard, "open_storage", lambda url: nullcontext(opened.append(url)))
    url = "postgresql+psycopg://me:secret@127.0.0.1/batches"
    assert [dashboard.usable(url)] == opened == [url]
