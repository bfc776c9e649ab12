"""Keys of a command that are changed one after the other: each finds its place although others have moved it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from optimizer.frameworks.bash.config import CommandKeys
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.files import File
from optimizer.frameworks.read import read_launch

ENGINE = File("ds.json", b'{"zero_optimization": {"stage": 2}}')
SIZE, SWITCH, STEPS = "per_device_train_batch_size", "gradient_checkpointing", "max_steps"


def command(text: str) -> CommandKeys:
    files = [File("run.sh", text.encode()), *([ENGINE] if "ds.json" in text else [])]
    source = read_launch(files, 8)
    assert isinstance(source, ConfigLaunch)
    (keys,) = (config for config in source.configs if isinstance(config, CommandKeys))
    return keys


HEAD = "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen3-8B"
SWIFT = "swift sft --model Qwen/Qwen3-8B --tuner_type lora"


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (
            f"{HEAD} --bf16 --{SWITCH} --{SIZE} 2 --deepspeed ds.json\n",
            {SWITCH: False, SIZE: 16},
            f"{HEAD} --bf16 --{SIZE} 16 --deepspeed ds.json\n",
        ),
        (
            f"{HEAD} --bf16 True --{SWITCH} True --{SIZE}=2 --deepspeed ds.json\n",
            {SWITCH: False, SIZE: 16, STEPS: 5},
            f"{HEAD} --bf16 True --{SWITCH} false --{SIZE}=16 --deepspeed ds.json --{STEPS} 5\n",
        ),
        (
            f"{HEAD} --{SIZE} 2 --deepspeed ds.json # --{SIZE} 4\n",
            {SIZE: None, STEPS: 5},
            f"{HEAD} --{SIZE} 2 --deepspeed ds.json --{STEPS} 5 # --{SIZE} 4\n",
        ),
        # ms-swift's switches may be on by themselves, so that they are told to be off.
        (
            f"{SWIFT} --{SWITCH} --{SIZE} 2\n",
            {SWITCH: False, SIZE: 16},
            f"{SWIFT} --{SWITCH} false --{SIZE} 16\n",
        ),
        (f"{SWIFT} --{SIZE} 2 --{SWITCH}\n", {SWITCH: False, SIZE: 16}, f"{SWIFT} --{SIZE} 16 --{SWITCH} false\n"),
    ],
)
def test_keys_are_changed_in_any_order(before: str, changes: dict[str, Any], after: str) -> None:
    for order in permutations(changes):
        keys: Any = command(before)
        for key in order:
            keys = keys.changed(key, changes[key])
        assert keys.text == after


def test_a_switch_that_was_turned_off_is_turned_on_again() -> None:
    keys = command(f"{SWIFT} --{SWITCH} --{SIZE} 2\n")
    off = keys.changed(SWITCH, False)
    assert off.changed(SWITCH, True).text == f"{SWIFT} --{SWITCH} true --{SIZE} 2\n"
    assert off.changed(SIZE, 4).text == f"{SWIFT} --{SWITCH} false --{SIZE} 4\n"
