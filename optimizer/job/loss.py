"""What a fine-tuned model is trained towards: sequences that belong together, and passes without gradients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from optimizer.base.content import content
from optimizer.base.errors import InputError

SFT, REWARD, DISTILLATION = "sft", "reward", "distillation"
MOST_TEACHER = 1e13  # parameters
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bmt])?$")
_PREFIX: Mapping[str, float] = {"m": 1e6, "b": 1e9, "t": 1e12}


@dataclass(frozen=True, kw_only=True)
class LogitBytes:
    """What a loss that needs the logits of all tokens at once moves and keeps of each logit [B]."""

    forward: float  # moved after a pass with gradients, its metrics included
    alone: float  # moved after a pass without gradients
    backward: float  # moved before the backward pass of the head
    resident: float  # at the peak


@dataclass(frozen=True, kw_only=True)
class TrainingLoss:
    """A loss, as losses.toml has it."""

    name: str
    together: int = 1  # sequences of a sample, which lie in one micro-batch
    least: int = 1  # sequences that a micro-batch has at least
    forward: int = 0  # passes of the model without gradients for each sequence besides
    reference: int = 0  # the same of a model that stays as it was
    scored: bool = False  # a head of one output stands in place of the vocabulary
    teacher: float = 0.0  # parameters of the reference, where it is another model; else 0
    logits: LogitBytes | None = None  # of each logit, where no cross-entropy is all that they are for


def loss_of(text: str) -> TrainingLoss:
    """The loss that `--loss` says, supervised fine-tuning where it says nothing.

    Raises InputError for one that there is not, and for a teacher without a size.

    >>> loss_of("dpo").together, loss_of("distillation:70B").teacher, loss_of("").name
    (2, 70000000000.0, 'sft')
    """
    name, colon, size = text.strip().lower().partition(":")
    if text and name not in losses():
        raise InputError(f"the loss must be one of {', '.join(losses())}, but got {text!r}")
    chosen = losses()[name or SFT]
    if name != DISTILLATION:
        if colon:
            raise InputError(f"--loss {text}: nothing follows {name}; a size is that of a teacher, distillation:70B")
        return chosen
    match = _SIZE.match(size.strip())
    teacher = float(match[1]) * _PREFIX.get(match[2] or "", 1.0) if match else 0.0
    if not 1.0 <= teacher <= MOST_TEACHER:
        raise InputError(f"--loss {text}: give the parameters of the teacher, as in distillation:70B")
    return replace(chosen, teacher=teacher)


@cache
def losses() -> Mapping[str, TrainingLoss]:
    """The losses by name."""
    tables: Mapping[str, Mapping[str, Any]] = content("optimizer.job", "losses.toml")
    return {name: TrainingLoss(name=name, **_read(table)) for name, table in tables.items()}


def _read(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: LogitBytes(**value) if key == "logits" else value for key, value in table.items()}
