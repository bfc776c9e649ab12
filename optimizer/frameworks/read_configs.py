"""Launches by configs: their files, what these name, and the format that their keys belong to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from optimizer.base.errors import InvalidFile
from optimizer.base.units import is_count
from optimizer.frameworks.config.file import NEMO, PYTHON, UNSLOTH, ConfigFile
from optimizer.frameworks.config.launch import checked
from optimizer.frameworks.config.precedence import contradictions, kind, merged, ordered
from optimizer.frameworks.config.python import config_functions
from optimizer.frameworks.every import CONFIGS, FOLLOWED
from optimizer.frameworks.files import CONF, KINDS, File, advice_for, kind_of, lying_near, read_file
from optimizer.frameworks.launch import Source
from optimizer.frameworks.machines import device_in
from optimizer.frameworks.nemo.recipe import is_program
from optimizer.frameworks.programs import refused
from optimizer.frameworks.unsloth.script import is_script

IMPORTED = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)
TRAINED_WITH = {"trl", "transformers", "peft"}  # modules of programs on the Trainer
ASSIGNED = re.compile(r"^(\w+) *=", re.MULTILINE)  # settings of a file whose whole text is a config


def followed_configs(
    files: Sequence[File], configs: Sequence[ConfigFile], script: File | None = None
) -> tuple[ConfigFile, ...]:
    """Configs that configs name, beside them or their script; raises InvalidFile for one that is nowhere."""
    followed: list[ConfigFile] = []
    for config in configs:
        named = [str(config.values[key]) for key in FOLLOWED if isinstance(config.values.get(key), str)]
        for path in (path for path in named if Path(path).suffix in (*KINDS, CONF)):
            if any(kind(other) == "engine" for other in configs if other is not config):
                continue
            near = next(file for file in files if file.name == config.name)
            place = lying_near(near, path) or (lying_near(script, path) if script else None)
            if place is None:
                given = [config.name] if script else []
                raise InvalidFile(config.name, [advice_for(script or config, [path], given)])
            followed.append(config_of(read_file(str(place))))
    return tuple(followed)


def config_of(file: File) -> ConfigFile:
    """A file as a config; of a Python file the function that its name tells, or its only one."""
    kind = kind_of(file)
    if kind != PYTHON:
        return ConfigFile(file.name, file.text, kind, data=file.data)
    if is_program(file.text):
        return ConfigFile(file.name, file.text, NEMO, data=file.data)
    imported = refused((), IMPORTED.findall(file.text))
    try:
        functions = [] if imported else config_functions(file.text)
    except (SyntaxError, RecursionError, ValueError) as error:
        raise InvalidFile(file.name, [f"not Python: {' '.join(str(error).split())}"]) from None
    if file.part and file.part not in functions and not imported:
        raise InvalidFile(file.name, [f"no function {file.part} makes a config: {', '.join(functions) or 'none does'}"])
    if not functions and is_script(file.text):
        return ConfigFile(file.name, file.text, UNSLOTH, data=file.data)
    if not functions and (why := imported or refused(ASSIGNED.findall(file.text))):
        raise InvalidFile(file.name, [why])
    if not functions and TRAINED_WITH.intersection(IMPORTED.findall(file.text)):
        why = "a program on the Trainer, whose Python is not read: give the command that starts it with its arguments"
        raise InvalidFile(file.name, [f"{why}, or a YAML of `trl sft --config`"])
    if not functions:
        raise InvalidFile(
            file.name,
            [
                "a program, whose Python is not read: give the script that starts it; a config of torchtitan has a "
                "`def name() -> Trainer.Config`"
            ],
        )
    chosen = file.part or (functions[0] if len(functions) == 1 else "")
    return ConfigFile(file.name, file.text, kind, chosen, file.data)


def config_launch(configs: tuple[ConfigFile, ...], gpus: int | None, model: str = "", section: str = "") -> Source:
    """The launch that configs say, or one section of it, by the format that their keys belong to."""
    for config in configs:
        if config.kind == PYTHON and not config.function:
            names = ", ".join(config_functions(config.text))
            raise InvalidFile(config.name, [f"several configs: give {config.name}:NAME, NAME being one of {names}"])
    names = ", ".join(config.name for config in configs)
    if clashes := contradictions(configs):
        raise InvalidFile(names, clashes)
    configs, values = ordered(configs), merged(configs)
    asked = next((config.content.get("compute") for config in configs if config.root), None) or {}
    asked = asked if isinstance(asked, dict) else {}
    counted = asked.get("gpus") if gpus is None and is_count(str(asked.get("gpus"))) else None
    if not section and (why := refused(values)):
        raise InvalidFile(names, [why])
    for each in CONFIGS:
        if each.recognised(values):
            source = each.read(configs, int(counted) if counted else gpus, model)
            checked(names, source.launch)
            if counted:
                source.launch.written["gpus"] = "compute.gpus"
            if device := device_in(str(asked.get("gpu_type", ""))):
                source.launch.say("device", device, "compute.gpu_type")
            return source
    known = ", ".join(name for each in CONFIGS for name in each.files)
    raise InvalidFile(names, [f"no launch that is known: expected a Megatron script or one of {known}"])
