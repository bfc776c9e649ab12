"""The tables of keys of users' files, from the pydantic models that read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from maintain.docs.meanings import meaning
from optimizer.answer.keys import AnswerKeys, Keys
from optimizer.answer.keys import tables as tables_of
from optimizer.answer.schema import written
from optimizer.catalog.readers import model_file, stack_file
from optimizer.catalog.readers.hardware_schema import EXAMPLES, ClusterTable, DeviceTable, GemmTable, TierTable
from optimizer.catalog.readers.huggingface import architectures
from optimizer.job.stack import PARAMETERS
from optimizer.sweep.study_file import ExclusionTable, StudyTable, condition, counts, pin_set, share, size

NAMED_BY_FILE = ("Model", "Stack", "StudyTable")
PAGE = "file-formats.md"
# What functions of a study file read, beside whole numbers and names.
WRITTEN: dict[Callable[..., object], str] = {
    share: 'a share, 0.1 or "10%", or a list',
    size: 'a size, such as "75 GB", or a list',
    pin_set: '"tp=8,pp=4", or a list',
    condition: "a number, a comparison, or a list",
}
READ: Mapping[Any, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def tables(hint: Any) -> Iterator[type[BaseModel]]:
    """The tables that a type holds."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for inner in get_args(hint):
        yield from tables(inner)


def table(kind: type[BaseModel], key: str) -> type[BaseModel]:
    """The table that a key holds."""
    return next(tables(kind.model_fields[key].annotation))


MODEL, STACK = model_file.KEYS, stack_file.KEYS
SHOWN: Mapping[str, type[BaseModel]] = {
    "model": MODEL,
    **{
        f"model.{key}": table(MODEL, key)
        for key in ("experts", "mla", "window", "tower", "indexer", "recurrence", "provenance")
    },
    "cluster": ClusterTable,
    "tiers": TierTable,
    "device": DeviceTable,
    "gemm": GemmTable,
    "stack": STACK,
    "features": table(STACK, "features"),
    "parameters": table(STACK, "parameters"),
    "study": StudyTable,
    "exclude": ExclusionTable,
}
# Each table of keys by the first key that holds one.
_ANSWER = [(name, keys) for name, (_, hint) in AnswerKeys.table().items() for keys in tables_of(hint)]
ANSWER: Mapping[str, type[Keys]] = {
    "answer": AnswerKeys,
    **{
        f"answer.{name}": keys
        for place, (name, keys) in enumerate(_ANSWER)
        if keys not in dict(_ANSWER[:place]).values()
    },
}


def sections() -> list[str]:
    """Every table of the page, between the lines that mark it."""
    return [
        marked("architectures", architecture_lines()),
        *(section(name, kind) for name, kind in SHOWN.items()),
        *(answer_section(name, keys) for name, keys in ANSWER.items()),
    ]


def architecture_lines() -> list[str]:
    """A table of the architectures of config.json that are known, and what mixes tokens and follows in their layers."""
    lines = ["| architecture | class | recurrence | besides what its keys say |", "|---|---|---|---|"]
    for name, known in architectures().items():
        facts = known.facts
        plain = (key for key, value in facts.items() if value is True)
        other = (
            f"{key} = {facts[key]}" for key in ("norm", "norms_per_layer", "position", "activation") if key in facts
        )
        off = (f"no {key}" for key, value in facts.items() if value is False)
        words_of = ", ".join(sorted((*plain, *off, *other))).replace("_", " ")
        lines.append(f"| `{name}` | {facts['class']} | {facts.get('recurrence', '')} | {words_of} |")
    return lines


def answer_section(name: str, keys: type[Keys]) -> str:
    """One table of keys of an answer."""
    columns = written(keys).model_fields.items()
    lines = ["| key | what it is |", "|---|---|", *(f"| `{key}` | {field.description} |" for key, field in columns)]
    return marked(name, lines)


def section(name: str, kind: type[BaseModel]) -> str:
    """One table of keys."""
    lines = ["| key | what it is | value | default |", "|---|---|---|---|"]
    for key, field in kind.model_fields.items():
        cells = (f"`{key}`", meaning(kind.__name__, key), words(field), default(kind, key))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return marked(name, lines)


def marked(name: str, lines: list[str]) -> str:
    """A table between the lines of the page that mark it."""
    return "\n".join([f"<!-- keys of {name}: start -->", "", *lines, "", f"<!-- keys of {name}: end -->"])


def words(hint: Any) -> str:
    """What the values of a key are: the words of its type, else its dimension with an example, else its type.

    >>> words(TierTable.model_fields["latency"]), words(TierTable.model_fields["size"])
    ('a quantity [s], such as "2 us"', 'a whole number above 0')
    """
    metadata = hint.metadata if isinstance(hint, FieldInfo) else getattr(hint, "__metadata__", ())
    inner = hint.annotation if isinstance(hint, FieldInfo) else hint
    words_given = next((word for word in metadata if isinstance(word, str)), "")
    if dimension := next((phrase for phrase in map(dimension_of, metadata) if phrase), ""):
        return f'{words_given or f"a quantity [{dimension}]"}, such as "{EXAMPLES[dimension]}"'
    if read := next((phrase for phrase in map(_as_written, metadata) if phrase), ""):
        return read
    if words_given or inner in READ:
        return words_given.replace("one of ,", 'one of "",') or READ[inner]
    if get_origin(inner) is dict:
        return f"a table: for each name {words(get_args(inner)[1])}"
    if any(tables(inner)):
        return "a table" if "tuple" not in str(inner) else "tables"
    phrase = next((phrase for part in get_args(inner) if (phrase := words(part))), "")
    return phrase + ", a range or a list" * any(_reads(each, counts) for each in metadata)


def _reads(validator: object, function: Callable[..., object]) -> bool:
    reader = validator.func if isinstance(validator, BeforeValidator) else None
    return (reader.args[0] if isinstance(reader, partial) and reader.args else reader) is function


def _as_written(validator: object) -> str:
    """What is written where a function reads it first, "" where the type says it."""
    return next((phrase for function, phrase in WRITTEN.items() if _reads(validator, function)), "")


def dimension_of(validator: object) -> str:
    """The dimension of the quantity that a validator reads, "" for any other."""
    reader = validator.func if isinstance(validator, BeforeValidator) else None
    return str(reader.keywords.get("dimension", "")) if isinstance(reader, partial) else ""


def default(kind: type[BaseModel], key: str) -> str:
    """What holds where a key is left out; a parameter of a stack has its default elsewhere."""
    field = kind.model_fields[key]
    if key == "name" and kind.__name__ in NAMED_BY_FILE:
        return "the file's name"
    if field.is_required():
        return "**needed**"
    value = PARAMETERS[key].default if kind.__name__ == "Parameters" else field.get_default(call_default_factory=True)
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    plain = value is None or isinstance(value, str | int | float | tuple)
    return f"`{json.dumps(value)}`" if plain and value not in (None, "", ()) else ""
