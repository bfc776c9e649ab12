"""Hugging Face config.json, as published beside a model's weights: the architecture in it, as a Model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.base.errors import InvalidFile, nearest
from optimizer.base.names import refusal
from optimizer.catalog.readers.huggingface_dense import CLASSIC, GATED, Family
from optimizer.catalog.readers.huggingface_moe import MOE
from optimizer.catalog.readers.model_file import impossible
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.text import read_json, shown
from optimizer.job.model import Model, Provenance

FAMILIES: Mapping[str, Family] = dict(sorted((GATED | CLASSIC | MOE).items()))
_BY_ARCHITECTURE = {family.architecture: name for name, family in FAMILIES.items()}


def read_config(path: str | Path) -> Model:
    """The Model in a config.json, or in the folder that holds one.

    Only the families in FAMILIES are read; another is refused by name, never guessed. Raises InvalidFile with every
    problem of the file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    data, problems = read_json(path), list[str]()
    model_type = _model_type(path, data)
    family = FAMILIES[model_type]
    config = validated(family.keys, _part(path, data, family), problems, family.nested)
    if config is None:
        raise InvalidFile(path, problems)
    provenance = Provenance(source=str(path))
    model = Model(name=_name(path, data), family=model_type, provenance=provenance, **config.fields())
    if problems := impossible(model):
        raise InvalidFile(path, problems)
    return model


def _model_type(path: Path, data: Mapping[str, Any]) -> str:
    """The family's name, by `model_type` or else by `architectures`; raises InvalidFile for an unknown one."""
    given = data.get("model_type")
    if given is None:
        classes = data.get("architectures")
        listed = classes if isinstance(classes, list) else []
        known = [_BY_ARCHITECTURE[name] for name in listed if isinstance(name, str) and name in _BY_ARCHITECTURE]
        if known:
            return known[0]
        given = listed[0] if listed else None
    if isinstance(given, str) and given in FAMILIES:
        return given
    supported = f"supported: {', '.join(FAMILIES)}"
    if given is None:
        raise InvalidFile(path, [f"neither model_type nor architectures; expected a text in model_type; {supported}"])
    near = nearest(str(given), FAMILIES, 1)
    hint = f" (nearest: {near[0]})" if near else ""
    advice = "describe the model in a TOML file instead"
    raise InvalidFile(path, [f"model_type {given!r} is not supported{hint}; {supported}; {advice}"])


def _part(path: Path, data: Mapping[str, Any], family: Family) -> Mapping[str, Any]:
    """The text part of a multimodal model's file, the whole file of another."""
    if not family.nested:
        return data
    part = data.get(family.nested)
    if not isinstance(part, dict):
        raise InvalidFile(path, [f"{family.nested}: expected an object with the text model, but got {shown(part)}"])
    return part


def _name(path: Path, data: Mapping[str, Any]) -> str:
    """The name in the file, else that of its folder, or of the file itself when it is not config.json.

    Raises InvalidFile for a text that is no name: it would go into scripts and reports.
    """
    given = data.get("_name_or_path")
    if isinstance(given, str) and given:
        key, name = "_name_or_path", given
    else:
        key, name = "the file's name", path.resolve().parent.name if path.name == "config.json" else path.stem
    if problem := refusal(name):
        raise InvalidFile(path, [f"{key}: {problem}, got {shown(name)}"])
    return name
