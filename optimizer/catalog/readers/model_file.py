"""A model described by the user, a TOML file whose keys are the fields of Model; and what no architecture can be."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.tables import Natural, one_of, part, table_of
from optimizer.catalog.readers.text import read_described
from optimizer.job.model import (
    FEED_FORWARDS,
    GATES,
    LOCAL,
    MIXERS,
    RECURRENT,
    WITH_EXPERTS,
    Experts,
    Indexer,
    LatentAttention,
    Model,
    Provenance,
    SlidingWindow,
    Tower,
)
from optimizer.job.recurrence import KINDS, Recurrence

MOST_LAYERS = 100_000  # hundreds of times the deepest; the search takes memory and time by the layer
KEYS = table_of(
    Model,
    window=part(SlidingWindow) | None,
    experts=part(Experts) | None,
    mla=part(LatentAttention, q_rank=Natural) | None,  # 0: queries are projected directly
    indexer=part(Indexer) | None,
    tower=part(Tower) | None,
    recurrence=part(Recurrence, kind=(one_of(tuple(KINDS)), ...)) | None,
    attention_gate=one_of(GATES),
    provenance=part(Provenance),
)


def read_model_file(path: str | Path) -> Model:
    """The Model in a TOML file: its fields at the top, its parts, such as [experts] and [mla], as tables.

    Without a `name` the file's own is taken. Raises InvalidFile with every problem found.
    """
    path, problems = Path(path), list[str]()
    table = validated(KEYS, {"name": path.stem} | read_described(path, "model"), problems)
    model = Model(**dict(table)) if table else None
    if model is None or problems or (problems := impossible(model)):
        raise InvalidFile(path, problems)
    return model


def model_text(model: Model) -> str:
    """A model as such a file: what differs from the usual, its parts as tables.

    >>> from optimizer.catalog import load_model
    >>> model_text(load_model("gpt3")).splitlines()[0]
    'name = "gpt3"'
    """
    tables = {part.name: getattr(model, part.name) for part in fields(model) if is_dataclass(getattr(model, part.name))}
    parts = [_lines(model)] + [f"[{name}]\n{_lines(part)}" for name, part in tables.items() if _lines(part)]
    return "\n".join(parts)


def _lines(record: Any) -> str:
    """The values of a record that are its own, a line each."""
    own = {each.name: getattr(record, each.name) for each in fields(record)}
    plain = [name for name, value in own.items() if value is not None and not is_dataclass(value)]
    usual = {each.name: each.default for each in fields(record)}
    return "".join(f"{name} = {json.dumps(own[name])}\n" for name in plain if own[name] != usual[name])


def impossible(model: Model) -> list[str]:
    """Sentences with the offending values, one for each rule that the model breaks; empty for a possible one.

    >>> from dataclasses import replace
    >>> from optimizer.catalog import load_model
    >>> impossible(replace(load_model("llama3-8b"), kv_heads=5))
    ['kv_heads = 5 does not divide heads = 32']
    """
    if model.layers > MOST_LAYERS:
        return [f"layers = {model.layers} is more than {MOST_LAYERS}, the most that can be planned"]
    if problems := _impossible_layers(model):
        return problems
    if model.heads % model.kv_heads:
        problems.append(f"kv_heads = {model.kv_heads} does not divide heads = {model.heads}")
    if model.window is not None and model.window.size < 1:
        problems.append(f"window.size = {model.window.size} is no window; leave [window] out for full attention")
    experts = model.experts
    if experts is not None:
        if experts.top_k > experts.count:
            problems.append(f"experts.top_k = {experts.top_k} exceeds experts.count = {experts.count}")
        if experts.every < 1:
            problems.append(f"experts.every = {experts.every}; 1 means that every layer has experts")
        elif model.moe_layers == 0:
            problems.append(
                f"experts.first_dense_layers = {experts.first_dense_layers} and every = {experts.every} "
                f"leave no MoE layer among {model.layers}; leave [experts] out"
            )
    return problems


def _impossible_layers(model: Model) -> list[str]:
    """What is wrong with the letters of a model's layers."""
    problems = []
    for name, letters in (("mixers", MIXERS), ("feed_forwards", FEED_FORWARDS)):
        if unknown := sorted(set(getattr(model, name)) - set(letters)):
            problems.append(
                f"{name} = {getattr(model, name)!r} has {unknown[0]!r}, which is none of {', '.join(letters)}"
            )
        if len(getattr(model, name)) > model.layers:
            problems.append(f"{name} has {len(getattr(model, name))} letters for {model.layers} layers")
    for name, letter, part_name in (
        ("mixers", RECURRENT, "recurrence"),
        ("mixers", LOCAL, "window"),
        ("feed_forwards", WITH_EXPERTS, "experts"),
    ):
        if letter in getattr(model, name) and getattr(model, part_name) is None:
            problems.append(f"{name} = {getattr(model, name)!r} has {letter!r}, but there is no [{part_name}]")
    if model.recurrence and model.recurrence.kind in KINDS and model.recurrence.heads % model.recurrence.groups:
        problems.append(
            f"recurrence.groups = {model.recurrence.groups} does not divide its heads = {model.recurrence.heads}"
        )
    return problems
