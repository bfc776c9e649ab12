"""The launchers that a plan can be for, and what they call their arguments, by release: presets/launchers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from optimizer.base.errors import InputError, nearest
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.job.stack import Stack
from optimizer.job.target import ANY, Launcher, lifted, narrowed, target_of
from optimizer.job.variables import VARIABLES

MEGATRON_LM = ("core_v0.16.1", "core_v0.19.0", "main (d98e8a64d)")  # releases whose arguments are listed, oldest first
# Families of stacks that are programs of their own: those with launch files, which are the target of the same name, ...
WRITTEN = ("maxtext", "nanotron", "primus")
OWN_STACKS = ("nemo",)  # targets whose files are written besides others', for stacks of that name alone
# ... and those that have none here.
UNWRITTEN: Mapping[str, str] = {
    "nemo-automodel": "NeMo AutoModel",
    "megatron-deepspeed": "Megatron-DeepSpeed",
    "fms-fsdp": "FMS",
    "internevo": "InternEvo",
    "oneflow": "OneFlow",
}


@cache
def argument_names(launcher: str, release: str) -> frozenset[str]:
    """Every argument of a launcher's release, keys of a configuration joined with dots, from the commit named there.

    >>> "--recompute-num-layers" in argument_names("megatron-lm", "core_v0.19.0")
    True
    >>> "dataset.sequence_length" in argument_names("megatron-bridge", "0.3.1")
    True
    >>> "training.seq_len" in argument_names("torchtitan", "v0.3.0")
    True
    """
    rows = csv_rows(presets_folder() / "launchers" / f"{launcher}.csv")
    return frozenset(row["name"] for _, row in rows if row[release] == "true")


@cache
def launchers() -> Mapping[str, Launcher]:
    """What each launcher can express, by the name of its target.

    >>> launchers()["deepspeed"].zero_stages, launchers()["megatron-bridge"].stack
    ((1, 2, 3), 'megatron-bridge')
    """
    tables = tomllib.loads((presets_folder() / "launchers" / "targets.toml").read_text("utf-8"))

    def facts(like: str = "", **own: Any) -> dict[str, Any]:
        values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items()}
        return {**facts(**tables[like]), **values} if like else values

    return {
        name: Launcher(**facts(**own) | {"only": _only(name, facts(**own).get("only", {}))})
        for name, own in tables.items()
    }


def _only(target: str, values: Mapping[str, int | str | bool]) -> dict[str, int | str | bool]:
    """The variables with one value, words and numbers alike; raises InputError for what is no value of theirs."""
    try:
        return {name: VARIABLES[name].pinned(value) for name, value in values.items()}
    except (KeyError, ValueError, IndexError) as error:
        raise InputError(f"targets.toml: {target}.only holds what no variable of a plan can be: {error}") from None


def aimed(stack: Stack, target: str) -> Stack:
    """The stack with the features that the target can express, under a name that says so; for `any` with all.

    Args:
        stack: the software that prices plans.
        target: the name of a launcher, or `any`.

    Returns:
        The stack, named "STACK@TARGET".

    Raises:
        InputError: the target is unknown, or has nothing of the stack.

    >>> aimed(Stack(name="mine"), "megatron-lm").features.recompute_by
    'virtual stage'
    """
    if target == ANY:
        return lifted(stack)
    if target not in launchers():
        names = (*launchers(), ANY)
        near = nearest(target, names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"unknown target {target!r}: expected one of {', '.join(names)}{hint}")
    return narrowed(stack, target, launchers()[target])


def of_target(stack: Stack) -> Mapping[str, int | str | bool]:
    """The variables of which a stack's target has one value.

    >>> from optimizer.catalog import load_stack
    >>> of_target(load_stack("trl@trl"))["tp"], of_target(load_stack("megatron-core"))
    (1, {})
    """
    target = target_of(stack)
    return launchers()[target].only if target in launchers() else {}


def own_target(stack: Stack) -> str:
    """The target of a stack: the one that it is aimed at, else the program that it is of; "" where that may be several.

    >>> from optimizer.catalog import load_stack
    >>> own_target(load_stack("maxtext-gpu-2024")), own_target(load_stack("megatron-core"))
    ('maxtext', '')
    """
    target = target_of(stack)
    return target or next((family for family in WRITTEN if stack.name.startswith(family)), "")


def without_files(stack: Stack) -> str:
    """The program of a stack without a target of which no launch files are written, "" where some are.

    >>> from optimizer.catalog import load_stack
    >>> without_files(load_stack("oneflow")), without_files(load_stack("megatron-core"))
    ('OneFlow', '')
    >>> without_files(aimed(load_stack("oneflow"), "megatron-lm"))
    ''
    """
    if target_of(stack) in launchers():
        return ""
    return next((title for family, title in UNWRITTEN.items() if stack.name.startswith(family)), "")


def fixed_for(target: str, fixed: Mapping[str, int | str | bool]) -> dict[str, int | str | bool]:
    """The variables that a job fixes, with those of which its target has one value.

    Args:
        target: the name of a launcher, `any`, or "".
        fixed: values by variable that the user fixes.

    Raises:
        InputError: the user fixes what the target has otherwise.

    >>> fixed_for("deepspeed", {"micro_batch": 2})["tp"], fixed_for("any", {})
    (1, {})
    """
    only = launchers()[target].only if target in launchers() else {}
    wrong = {name: fixed[name] for name, value in only.items() if name in fixed and fixed[name] != value}
    if wrong:
        asked = ", ".join(f"{name}={value}" for name, value in wrong.items())
        has = ", ".join(f"{name}={only[name]}" for name in wrong)
        raise InputError(f"--target {target} cannot run {asked}: it has {has} alone")
    return {**fixed, **only}
