"""Programs that are known and whose launches are not read: each is refused by its name, before anything is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import cache
from itertools import pairwise
from typing import Any

from optimizer.base.content import content

REFUSED: Mapping[str, Mapping[str, Any]] = content("optimizer.frameworks", "programs.toml")


def refused(keys: Iterable[str], words: Iterable[str] = ()) -> str:
    """Why files with these keys, or a command of these words, are no launch that is read; "" where they may be one.

    >>> refused(["actor_rollout_ref.actor.ppo_mini_batch_size", "trainer.nnodes"]).partition(";")[0]
    'verl: reinforcement learning is not priced'
    >>> refused([], ["python3", "-m", "verl.trainer.main_ppo"]) == refused(["actor_rollout_ref.model.path"])
    True
    >>> refused([], ["megatron", "rlhf", "--model"])[:8]
    'ms-swift'
    >>> refused(["model.num_layers"], ["torchrun", "pretrain_gpt.py"])
    ''
    """
    paths = [key.lstrip("-").replace("-", "_") for key in keys]
    single = list(words)
    texts = [*single, *map(" ".join, pairwise(single))]  # a program and what it is to do
    for name, program in REFUSED.items():
        needed = program.get("also", ())  # of which one must be there too
        recognised = _any(paths, program["keys"]) or _any(texts, program["entries"])
        if recognised and (not needed or _any(paths, needed)) and not _any(paths, program.get("unless", ())):
            return f"{name}: {program['why']}"
    return ""


def _any(texts: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(map(_matching(tuple(patterns)), texts))


@cache
def _matching(patterns: tuple[str, ...]) -> Callable[[str], object]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)").match
