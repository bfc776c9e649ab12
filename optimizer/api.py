"""`optimizer.plan`: the command in Python, with its names, its defaults and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job

LONGEST = 10_000  # characters of a value
Number = int | float | str
Value = str | int | float | bool | Sequence[str | int | float | bool]


def plan(
    job: Job | None = None,
    *,
    model: str | Path | None = None,
    gpus: int | str | None = None,
    cluster: str | Path | None = None,
    device: str | None = None,
    stack: str | Path | None = None,
    target: str | None = None,
    seq_len: int | str | None = None,
    global_batch: int | str | None = None,
    dtype: str | Sequence[str] | None = None,
    train: str | None = None,
    base: str | None = None,
    optimizer: str | None = None,
    loss: str | None = None,
    lengths: str | None = None,
    packing: str | None = None,
    runs: str | Path | None = None,
    bubble_ceiling: Number | None = None,
    hbm_limit: Number | None = None,
    oom_risk: Number | None = None,
    max_tp: int | None = None,
    max_micro_batch: int | None = None,
    max_vpp: int | None = None,
    min_cp_tokens: int | None = None,
    vocab_padding: Number | None = None,
    fix: str | Sequence[str] | Mapping[str, Value] | None = None,
    routing: Number | None = None,
    set: str | Sequence[str] | Mapping[str, Value] | None = None,
    flex: Number | None = None,
    top: int | None = None,
    within: Number | None = None,
    trials: int | None = None,
    time_limit: Number | None = None,
    seed: int | None = None,
    study: str | None = None,
    prefer: str | None = None,
    try_cost: Number | None = None,
    minimize: str | None = None,
) -> Answer:
    """The proven best plan for a model on a number of GPUs, as `optimize` with the options of the same names.

    `plan(model="gpt3", gpus=1024)` is `optimize --model gpt3 --gpus 1024`, the user's own presets and defaults
    included. Values are as on the command line: names of presets, paths of files, "75GB", "10%", fix=["tp=8",
    "pp=2..8"]. Python's own do too: shares and sizes [B] as numbers, pins and fields as {"tp": 8} and {"layers": 4}.
    None leaves an option to its default; what was assumed then is in `Answer.assumptions`. A whole `Job` goes instead
    of the options that make one, beside top, within, trials, time_limit, seed and study.

    Raises InputError for what cannot be used. Without any plan the answer says why, in `Answer.conflict`.
    """
    given = {name: value for name, value in locals().items() if name != "job" and value is not None}
    if job is not None:
        from optimizer.job.job import Job as Whole

        if not isinstance(job, Whole):
            raise InputError('plan() takes a Job, or options by their names, as in plan(model="gpt3", gpus=1024)')
        return _of_job(job, given)
    if missing := [name for name in ("model", "gpus") if name not in given]:
        raise InputError(f'plan() needs {" and ".join(missing)}, as in plan(model="gpt3", gpus=1024), or a Job')
    from optimizer.commands.plan.answering import answered

    with _read(given) as context:
        return answered(context.params)


def _of_job(job: Job, given: Mapping[str, Any]) -> Answer:
    """The answer to a whole Job."""
    from optimizer.commands.plan.answering import EVERY_STRUCTURE
    from optimizer.commands.values import storage_url
    from optimizer.job.fields import SEARCH, of_groups
    from optimizer.search.plan.planner import plan as search

    names = [field.name for field in of_groups(SEARCH)]
    if others := [name for name in given if name not in names]:
        raise InputError(f"a Job holds {', '.join(others)} already; beside it go {', '.join(names)}")
    read = {name: value for name, value in _read(given).params.items() if name in given}
    if "within" in read:
        read["top"] = EVERY_STRUCTURE
    if "study" in read:
        read["study"] = storage_url(read["study"])
    return search(job, **read)


def _read(given: Mapping[str, Any]) -> click.Context:
    """All options of planning, read as the command reads them; raises InputError for a value that it refuses."""
    from optimizer.commands import options
    from optimizer.commands.defaults import option_texts
    from optimizer.job.fields import FIELDS

    words = [
        word
        for name, value in given.items()
        for text in option_texts(name, value)
        for word in (FIELDS[name].option, text)
    ]
    for option, text in zip(words[::2], words[1::2], strict=True):
        if len(text) > LONGEST:
            raise InputError(f"{option}: a text of {len(text):,} characters is no value of it")
    try:
        return click.command(options.given(options.ANSWER)(lambda: None)).make_context("plan", words)
    except click.ClickException as error:
        raise InputError(error.format_message()) from None
