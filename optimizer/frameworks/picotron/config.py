"""picotron's JSON.

Source of the keys: huggingface/picotron, template/base_config.json and create_config.py; of what no key says, train.py
and picotron/data_parallel: gradients of 4 bytes, an optimizer in bf16 without master weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.launch import Values, key_tables, rest, take, take_steps, tied
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.plan import Plan

DEGREES: Mapping[str, str] = key_tables("picotron")["plan"]
SHAPE: Mapping[str, str] = key_tables("picotron")["shape"]
ALWAYS: Mapping[str, Any] = key_tables("picotron")["always"]  # what no key says
NAME, LENGTH, ENGINE, FLASH = "model.name", "training.seq_length", "distributed.pp_engine", "model.use_flash_attention"
STEPS, TOKENS = "training.total_train_steps", "training.max_tokens"


def recognised(values: Values) -> bool:
    """Whether a JSON is picotron's."""
    return "distributed.tp_size" in values and LENGTH in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    take(launch, values, {**DEGREES, **SHAPE, "seq_len": LENGTH})
    settings = launch.settings
    settings |= {**ALWAYS, "max_seq_len": settings.get("seq_len", 1)}
    if FLASH in values:
        launch.say("attention", "flash" if values[FLASH] else "unfused", FLASH)
    if values.get(ENGINE) == "afab":
        launch.unsearched.append(f"{ENGINE} afab is priced as 1f1b, which holds fewer activations")
    _model(launch, str(values.get(NAME) or ""))
    if isinstance(values.get(TOKENS), int):
        launch.say("tokens", values[TOKENS], TOKENS)
    else:
        take_steps(launch, values, STEPS)
    rest(launch, values, (NAME, ENGINE, FLASH, STEPS, TOKENS))


def _model(launch: Launch, name: str) -> None:
    """Note the model that a name on the Hugging Face hub means."""
    if preset := named(name):
        launch.say("model", preset, NAME)
    else:
        launch.unknown_model(NAME, name)


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    return tied(DEGREES, before, after)
