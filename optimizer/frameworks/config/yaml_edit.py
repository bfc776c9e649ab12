"""One value of a YAML or JSON text changed by the marks of ruamel's nodes: every other line stays byte for byte."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError
from optimizer.catalog.readers.yaml_nodes import yaml_nodes, yaml_of

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node

Entry = tuple[Any, Any]  # a key's node and its value's
COLON = re.compile(r"\s*:")
BEFORE_VALUE = re.compile(r"\s*:\s*(?:&\S+\s+|(\*[^\s,\[\]{}]+))?")  # what stands before a value, or an alias for it
BEHIND = re.compile(r"(?:\n[ \t]*(?:#[^\n]*)?)+$")  # comments and blank lines behind a block
WORD = re.compile(r"[A-Za-z_][\w./-]*$")
NULL = object()  # no value, written out: what takes a config over its own defaults takes a key that is gone for those
STEP = 2  # blanks by which a section is indented where the file has none


def yaml_changed(text: str, path: str, value: Any, strict: bool = False) -> str:
    r"""The text with one value set: where it stands, else in a line of its own at the end of its section.

    Args:
        text: YAML, or JSON.
        path: the keys to the value, joined with dots.
        value: what it shall be; None takes the key out.
        strict: the text is JSON and stays so.

    Raises:
        InputError: the text has no place for it, as where a part of the path is no section.

    >>> print(yaml_changed("model:\n  tp: 2  # of 8\n  pp: 'no'\n", "model.tp", 4), end="")
    model:
      tp: 4  # of 8
      pp: 'no'
    >>> print(yaml_changed("optimizer:\n  adam:\n    lr: 1\n", "optimizer.zero_stage", 1), end="")
    optimizer:
      adam:
        lr: 1
      zero_stage: 1
    >>> yaml_changed('{"a": {"b": 1}}', "a.c", "x", strict=True)
    '{"a": {"c": "x", "b": 1}}'
    """
    # Tabs in JSON are as many blanks, so that places stay.
    roots = yaml_nodes(text.replace("\t", " ") if strict else text, "the text")
    innermost = max((_innermost(root, path) for root in roots if _is_mapping(root)), key=_depth, default=None)
    if innermost is None:
        return text if value is None else f"{text}{_entry(path, value, strict)}\n"
    mapping, rest = innermost
    for at, (key, item) in reversed(list(enumerate(mapping.value))):
        if key.value == rest:
            return _without(text, mapping, at) if value is None else _with(text, (key, item), value, strict)
        if rest.startswith(f"{key.value}.") and value is not None:
            if item.value not in ("", "~", "null"):
                raise InputError(f"{key.value} on line {key.start_mark.line + 1} is no section to write {rest} in")
            end, colon = _end(text, (key, item)), BEFORE_VALUE.match(text, key.end_mark.index)
            place = colon.end() if colon and colon.end() <= end else end
            return f"{text[:place].rstrip(' ')} {{{_entry(rest[len(key.value) + 1 :], value, strict)}}}{text[end:]}"
    return text if value is None else _longer(text, mapping, rest, value, strict)


def scalar(value: Any, before: str = "", strict: bool = True) -> str:
    """A value as YAML and JSON both write it, or as plainly as YAML and the text that stood there have it.

    >>> scalar(True), scalar(8), scalar("full"), scalar("full", "none", False), scalar(True, "False", False)
    ('true', '8', '"full"', 'full', 'True')
    >>> scalar("full", "'none'", False), scalar("true", "none", False)
    ("'full'", "'true'")
    >>> scalar(NULL)
    'null'
    """
    if value is NULL:
        return "null"
    if not strict and isinstance(value, bool) and before[:1].isupper():
        return str(value)
    if not strict and isinstance(value, str) and before[:1] != '"' and WORD.match(value):
        return f"'{value}'" if before[:1] == "'" or yaml_of(value, value) != value else value
    return json.dumps(value)


def _is_mapping(node: Any) -> bool:
    return bool(node.id == "mapping")


def _is_alias(key: Node, item: Node) -> bool:
    return bool(item.start_mark.index < key.end_mark.index)


def _innermost(mapping: Any, path: str) -> tuple[Any, str]:
    """The innermost mapping on a path that stands at its own key, and the rest of the path; of a key the last."""
    for key, item in reversed(mapping.value):
        if path.startswith(f"{key.value}.") and _is_mapping(item) and not _is_alias(key, item):
            return _innermost(item, path[len(key.value) + 1 :])
    return mapping, path


def _depth(innermost: tuple[Any, str]) -> tuple[int, bool]:
    mapping, rest = innermost
    return -len(rest), any(key.value == rest for key, _ in mapping.value)


def _end(text: str, entry: Entry) -> int:
    """The character after an entry's value; an alias stands for a value elsewhere, an empty one ends with its colon."""
    key, item = entry
    place, end = int(key.end_mark.index), int(item.end_mark.index)
    if _is_alias(key, item) and (alias := BEFORE_VALUE.match(text, place)):
        return alias.end()
    if end <= item.start_mark.index and (colon := COLON.match(text, place)):
        return colon.end()
    if item.id == "scalar" or item.flow_style:
        return end - (text[end - 1 : end] == "\n")
    return place + len(BEHIND.sub("", text[place:end]))


def _with(text: str, entry: Entry, value: Any, strict: bool) -> str:
    """The text with another value of a key; its anchor stays."""
    (key, item), end = entry, _end(text, entry)
    place = BEFORE_VALUE.match(text, key.end_mark.index)
    start = (place.start(1) if place[1] else place.end()) if place else item.start_mark.index
    if start > end or "\n" in text[key.end_mark.index : start]:  # nothing, or a block on lines of its own
        colon = COLON.match(text, key.end_mark.index)
        return f"{text[: colon.end() if colon else end]} {scalar(value, '', strict)}{text[end:]}"
    return text[:start] + scalar(value, text[start:end], strict) + text[end:]


def _without(text: str, mapping: MappingNode, at: int) -> str:
    """The text without a key: its lines, or in braces up to the next key or from the last."""
    entries = mapping.value
    start, end = entries[at][0].start_mark.index, _end(text, entries[at])
    if len(entries) == 1:
        return f"{text[:start]}{'' if mapping.flow_style else '{}'}{text[end:]}"
    if mapping.flow_style and at + 1 < len(entries):
        return text[:start] + text[entries[at + 1][0].start_mark.index :]
    if mapping.flow_style:
        return text[: _end(text, entries[at - 1])] + text[end:]
    return text[: start - len(_blank(text, entries[at][0]))] + text[end:].partition("\n")[2]


def _longer(text: str, mapping: MappingNode, rest: str, value: Any, strict: bool) -> str:
    """The text with a new key: in braces before the first one, else on lines behind the last that holds no section."""
    entries = mapping.value
    if mapping.flow_style:
        start, new = mapping.start_mark.index + 1, _entry(rest, value, strict)
        if not entries:
            return f"{text[:start]}{new}{text[start:]}"
        start = entries[0][0].start_mark.index
        line = text[text.rfind("\n", 0, start) + 1 : start]
        return f"{text[:start]}{new},{' ' if line.strip() else chr(10) + line}{text[start:]}"
    simple = [entry for entry in entries if entry[1].id == "scalar"]
    key, item = (simple or entries)[-1]
    blank, end = _blank(text, key), _end(text, (key, item))
    comment, _, tail = text[end:].partition("\n")
    *sections, name = rest.split(".")
    step = item.start_mark.column - mapping.start_mark.column if _is_mapping(item) and not item.flow_style else STEP
    lines = [f"{blank}{' ' * step * depth}{section}:" for depth, section in enumerate(sections)]
    lines.append(f"{blank}{' ' * step * len(sections)}{_entry(name, value, strict)}")
    return "\n".join([text[:end] + comment, *lines, tail])


def _entry(rest: str, value: Any, strict: bool) -> str:
    """A key with its value, its sections in braces."""
    name, _, inner = rest.partition(".")
    innermost = f"{{{_entry(inner, value, strict)}}}" if inner else scalar(value, "", strict)
    return f"{json.dumps(name) if strict else name}: {innermost}"


def _blank(text: str, key: Node) -> str:
    """What stands before a key on its line; raises InputError where that is more than blanks."""
    start = key.start_mark.index
    blank = text[text.rfind("\n", 0, start) + 1 : start]
    if blank.strip():
        raise InputError(f"{key.value} on line {key.start_mark.line + 1} does not stand on a line of its own")
    return blank
