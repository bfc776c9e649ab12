"""What a user wants unasked: `defaults.toml` in the folder of own files, one key an option, named in the answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from optimizer.base.errors import InputError, InvalidFile, nearest
from optimizer.base.files import config_folder, shown
from optimizer.job.fields import FIELDS, FLEX, SEVERAL, SIZE, Field

FILE = "defaults.toml"
ALLOWED = tuple(field.name for field in FIELDS.values() if field.usual)
WITHOUT = ("check",)  # what is checked says itself what it was made with
_USED, _READ = f"{__name__}.used", f"{__name__}.read"


class Usual(click.Option):
    """The option of a field, which the user's defaults may fill where it is not typed."""

    def __init__(self, *arguments: Any, field: Field, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.field = field

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """What was typed, else the user's default, else the program's."""
        value, source = super().consume_value(ctx, opts)
        key = self.field.name
        if source is not ParameterSource.DEFAULT or ctx.resilient_parsing or ctx.info_name in WITHOUT:
            return value, source
        path = config_folder() / FILE
        defaults = ctx.meta[_READ] if _READ in ctx.meta else ctx.meta.setdefault(_READ, read_defaults(path))
        if key not in defaults or ctx.get_parameter_source(self.field.instead) is ParameterSource.COMMANDLINE:
            return value, source
        texts = list(option_texts(key, defaults[key]))
        mine = texts if self.multiple else texts[0]
        try:
            self.type_cast_value(ctx, mine)
        except click.BadParameter as error:
            raise InputError(f"{shown(path)}: {key}: {error.message}") from None
        words = " ".join(f"{self.opts[0]} {text}" for text in texts)
        ctx.meta.setdefault(_USED, {}).setdefault(ctx.command_path, []).append(f"{words}, of your {shown(path)}")
        return mine, ParameterSource.DEFAULT_MAP


def in_effect() -> tuple[str, ...]:
    """The user's defaults that the running command took, as they would be typed, and their file."""
    ctx = click.get_current_context(silent=True)
    return tuple(ctx.meta.get(_USED, {}).get(ctx.command_path, ())) if ctx else ()


def read_defaults(path: Path) -> dict[str, Any]:
    """The defaults in a file by option, nothing where there is none; raises InvalidFile with every problem."""
    if not os.path.exists(path):  # nor where it lies out of reach
        return {}
    from optimizer.catalog.readers.text import read_toml

    document = read_toml(path, "give one key for each option")
    defaults = {key.replace("-", "_"): value for key, value in document.items()}
    problems = [_unknown(key) for key in defaults if key not in ALLOWED]
    problems += [
        f"{key}: expected a number, a text, or a list of them, got {value!r}"
        for key, value in defaults.items()
        if key in ALLOWED and not _is_plain(key, value)
    ]
    if problems:
        raise InvalidFile(shown(path), problems)
    return defaults


def option_texts(name: str, value: Any) -> Iterator[str]:
    """A value of Python or TOML as one would type it, or several for an option that is repeated.

    >>> list(option_texts("fix", {"tp": [1, 2]})), list(option_texts("hbm_limit", 75e9))
    (['tp=1,2'], ['75000000000.0 B'])
    """
    kind = FIELDS[name].kind
    if kind in SEVERAL and isinstance(value, Mapping):
        yield from (f"{key}={_word(item)}" for key, item in value.items())
    elif kind in SEVERAL and not isinstance(value, str):
        try:
            several = list(value)
        except TypeError:
            words = f"{FIELDS[name].option} {value!r}: give name=value, a list of such texts, or a mapping"
            raise InputError(words) from None
        yield from map(str, several)
    elif kind == SIZE and not isinstance(value, str):
        yield f"{value!r} B"
    elif kind == FLEX and not (isinstance(value, str) and "=" in value):
        yield f"batch={value}"
    else:
        yield _word(value)


def _word(value: Any) -> str:
    """One value, or a list of them, as text."""
    if isinstance(value, Path):
        from optimizer.catalog.places import spelled

        return spelled(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_word, value))
    try:
        return str(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        raise InputError("a number of thousands of digits counts nothing") from None


def _is_plain(key: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return FIELDS[key].kind in SEVERAL and all(isinstance(item, str | int | float) for item in value.values())
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str | int | float) for item in value)
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _unknown(key: str) -> str:
    close = nearest(key, ALLOWED)
    hint = f"; nearest: {' or '.join(close)}" if close else ""
    return f"{key}: no option that has a default of yours{hint}; these have one: {', '.join(ALLOWED)}"
