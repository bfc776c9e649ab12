"""Every number of a preset with its unit, scope, source, date and grade; and the list of presets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

from optimizer.base.content import content
from optimizer.base.errors import UnknownName
from optimizer.base.files import shown
from optimizer.catalog import KINDS, load_model, load_stack, names_of
from optimizer.catalog.hardware import CLUSTERS, DEVICES, LINKS
from optimizer.catalog.places import existing, file_of, own_file, own_files, spelled
from optimizer.catalog.rows import rows
from optimizer.catalog.software import families, releases
from optimizer.job.model import Model, Provenance
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.job.switches import switches
from optimizer.reports.report import Report, Table, Text, columns, section

GRADES = "Grades: A primary source, B secondary naming its primary, C derived or unconfirmed (marked with !)."
HINT = "`optimize presets show NAME` prints each number with its unit, scope, source and date."


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number (or word) of a preset and where it comes from."""

    quantity: str
    value: str
    unit: str = ""
    scope: str = ""
    source: str = ""
    date: str = ""
    grade: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A preset of some kind with all its numbers."""

    kind: str
    name: str
    numbers: tuple[Number, ...]


def preset_names() -> dict[str, list[str]]:
    """Names of all presets by kind, as `optimize presets --json` prints them."""
    return {f"{kind}s": list(names_of(kind)) for kind in KINDS}


def own_places() -> dict[str, dict[str, str]]:
    """The files of the user's own presets by kind and name, kinds without any left out."""
    places_of = {f"{kind}s": {name: shown(path) for name, path in own_files(kind).items()} for kind in KINDS}
    return {kind: places for kind, places in places_of.items() if places}


def find_preset(name: str) -> Preset:
    """The preset of this name or alias, or a file that describes one; a device comes before the cluster that its name
    also stands for.

    Raises UnknownName with the nearest names of every kind, InvalidFile with what is wrong in a file.
    """
    if path := file_of(name):
        return _of_file(existing("preset", path))
    for kind, (_, load) in KINDS.items():
        if path := own_file(kind, name):
            load(name)  # what is wrong with the file is said as everywhere
            return Preset(kind=kind, name=path.stem, numbers=tuple(_own_numbers(path)))
        try:
            preset = load(name).name
        except UnknownName:
            continue
        return Preset(kind=kind, name=preset, numbers=tuple(_numbers(kind, preset)))
    raise UnknownName("preset", name, [known for names in preset_names().values() for known in names])


def _of_file(path: Path) -> Preset:
    """What a file describes, by its keys: a model as it is read, with its parameters, anything else key by key."""
    from optimizer.catalog.readers.text import kind_in, readable, toml_of

    text = "" if path.is_dir() else readable(path, "give a file of a model, cluster, device or stack")
    kind = (kind_in(toml_of(text, path)) if text and path.suffix != ".json" else "") or "model"
    preset = KINDS[kind][1](str(spelled(path)))
    numbers = _model_numbers(preset) if isinstance(preset, Model) else _own_numbers(path)
    return Preset(kind=kind, name=preset.name, numbers=tuple(numbers))


def _numbers(kind: str, name: str) -> Iterable[Number]:
    if kind == "model":
        return _model_numbers(load_model(name))
    if kind == "stack":
        return _stack_numbers(load_stack(name))
    return _row_numbers({"device": DEVICES, "link": LINKS, "cluster": CLUSTERS}[kind], name)


def _own_numbers(path: Path) -> Iterator[Number]:
    """What a file of the user's own says, key by key."""
    import json
    import tomllib

    text = path.read_text(encoding="utf-8")
    document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    yield from (Number(quantity=key, value=value, source=shown(path)) for key, value in _flat(document))


def _flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of a file with their dotted keys.

    >>> list(_flat({"tiers": [{"size": 8}], "name": "mine"}))
    [('tiers.0.size', '8'), ('name', 'mine')]
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            yield from _flat(item, f"{prefix}.{place}")
    else:
        yield prefix, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _row_numbers(file: str, name: str) -> Iterator[Number]:
    # A later row replaces an earlier one, as an own row does an inherited one.
    for row in {row.quantity: row for row in rows(file, name)}.values():
        yield Number(
            quantity=row.quantity,
            value=row.text,
            unit="" if row.is_text else row.unit,
            scope=row.scope,
            note=row.provenance.note.removeprefix(row.scope).lstrip("; "),
            **_from(row.provenance),
        )


def _model_numbers(model: Model) -> Iterator[Number]:
    counted = content("optimizer.reports", "words.toml")["units"]
    units = {quantity: unit for unit, quantities in counted.items() for quantity in quantities}
    for quantity, value in _settings(model):
        unit = units.get(quantity.split(".")[-1], "")
        yield Number(quantity=quantity, value=_text(value), unit=unit, **_from(model.provenance))
    computed = {"params": model.params, "active_params": model.active_params if model.experts else None}
    for quantity, count in computed.items():
        if count is not None:
            yield Number(
                quantity=quantity, value=_text(count), unit="parameters", source="computed from the shapes above"
            )


def _settings(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Fields of a dataclass that differ from their defaults, those of its parts with a dotted name."""
    if not is_dataclass(value):
        return
    for field in fields(value):
        item = getattr(value, field.name)
        if item == field.default or field.name in ("name", "provenance"):
            continue
        if is_dataclass(item):
            yield from _settings(item, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, item


def _release_numbers(name: str) -> Iterator[Number]:
    """The family of a stack, its releases, and what this one has switched on."""
    release = releases().get(name)
    if release is None:
        return
    family = families()[release.family]
    yield Number(quantity="software", value=family.title, source="presets/software.toml")
    listed = ", ".join(f"{family.name}@{known}" for known in family.releases)
    yield Number(quantity="releases", value=listed, source="presets/software.toml")
    yield Number(quantity="fitted as", value=release.rates, source=f"presets/stacks/{release.rates}.toml")
    for switch, state in release.on.items():
        source = f"presets/software.toml, {release.family} {release.name}"
        yield Number(quantity=f"switch {switch}", value=state, scope=switches()[switch].meaning, source=source)


def _stack_numbers(stack: Stack) -> Iterator[Number]:
    yield from _release_numbers(stack.name)
    for name, parameter in PARAMETERS.items():
        value, origin = f"{stack[name]:.4g}", _from(stack.provenance)
        if name not in stack.parameters:
            known = stack.fixed.get(name)
            why = f"fixed: {known.why}" if known else "default of optimizer/job/stack.py, not fitted"
            origin = {"source": why, "grade": "B" if known else "C"}
        yield Number(quantity=name, value=value, unit=parameter.unit, scope=parameter.meaning, **origin)
    for name, feature in _settings(stack.features):
        yield Number(quantity=f"features.{name}", value=_text(feature), **_from(stack.provenance))


def _from(origin: Provenance) -> dict[str, str]:
    return {"source": origin.source, "date": origin.date, "grade": origin.grade}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def names_report(names: Mapping[str, Sequence[str]], own: Mapping[str, Mapping[str, str]] | None = None) -> Report:
    """Every kind and its names, wrapped, and the files of the user's own by kind and name."""
    shipped = {kind: KINDS[kind.removesuffix("s")][0]() for kind in own or {}}
    lines = {
        f"your own {kind}": [
            f"{name}  {path}{'  (before the shipped one)' if name in shipped[kind] else ''}"
            for name, path in places.items()
        ]
        for kind, places in (own or {}).items()
    }
    known = [section(f"{kind} ({len(known)})", "  ".join(known)) for kind, known in names.items()]
    mine = [section(heading, Text("\n".join(files), block=True)) for heading, files in lines.items()]
    return Report(title="Presets", subject=(HINT,), sections=(*known, *mine))


def preset_report(preset: Preset) -> Report:
    """One preset: value, unit and grade of each number; scope, source and date on the line below."""
    rows = []
    for number in preset.numbers:
        mark = f"{number.grade}{' !' if number.grade == 'C' else ''}"
        rows.append((number.quantity, mark, f"{number.value} {unit_text(number.unit)}".strip()))
        rows.append(("", "", origin(number)))
    table = Table(columns(" |  | ~"), rows)
    return Report(title=f"{preset.kind} {preset.name}", subject=(GRADES,), sections=(section("", table),))


def unit_text(unit: str) -> str:
    """A unit as people read it: nothing for a pure number.

    >>> unit_text("TB/s"), unit_text("1")
    ('TB/s', '')
    """
    return "" if unit == "1" else unit


def origin(number: Number) -> str:
    """Scope, source, date and note of a number in one line.

    >>> origin(Number(quantity="memory", value="80", scope="per GPU", source="datasheet", date="2023"))
    'per GPU; datasheet; 2023'
    """
    return "; ".join(part for part in (number.scope, number.source, number.date, number.note) if part)
