"""A batch as an Optuna study, one trial per job, for optuna-dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError
from optimizer.search.lattice.saved_trials import open_storage
from optimizer.sweep.connection import explained, url_of
from optimizer.sweep.results import ASKED, KNOBS, LIMITS, PLAN, flat

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

AUTHOR = "optimize batch"
VARIED = (*(name for name in ASKED if name != "family"), "scenario", *LIMITS)
SHOWN = (
    *(*PLAN, *KNOBS, "key", "family", "status"),
    *("step_time_s", "tokens_per_s_per_gpu", "usd_per_mtoken", "train_days", "reason"),
)


def publish(place: str, name: str, wholes: Sequence[Mapping[str, Any]]) -> int:
    """Write the results as the study `name`, in place of what an earlier batch wrote under it; number of trials.

    The value of a trial is its MFU; jobs without a plan are failed trials. Raises InputError when the name is taken by
    a study that no batch made.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with _opened(place) as storage:
        for known in optuna.study.get_all_study_summaries(storage, include_best_trial=False):
            if known.study_name == name and known.user_attrs.get("made_by") != AUTHOR:
                raise InputError(f"--study {place}: another program has a study named {name!r} there; rename this one")
            if known.study_name == name:
                optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        study.set_user_attr("made_by", AUTHOR)
        study.set_metric_names(["MFU"])
        study.add_trials(_trials([flat(whole) for whole in wholes]))
    return len(wholes)


def usable(place: str) -> str:
    """The URL of a storage of Optuna given as a file or a URL, once it could be opened.

    Raises InputError where it cannot be.
    """
    with _opened(place):
        return _url(place)


@contextmanager
def _opened(place: str) -> Iterator[RDBStorage]:
    """A storage; errors come in our words."""
    with explained(place, "--study"), open_storage(_url(place)) as storage:
        yield storage


def _url(place: str) -> str:
    return url_of(place).render_as_string(hide_password=False)


def _trials(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    varied: dict[str, BaseDistribution] = {}
    for name in VARIED:
        values = list(dict.fromkeys(row[name] for row in rows))
        if len(values) > 1:
            varied[name] = CategoricalDistribution(values)
    return [
        create_trial(
            state=TrialState.FAIL if row["mfu"] is None else TrialState.COMPLETE,
            value=row["mfu"],
            params={name: row[name] for name in varied},
            distributions=varied,
            user_attrs={name: row[name] for name in SHOWN if row[name] is not None},
        )
        for row in rows
    ]
