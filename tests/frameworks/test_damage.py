"""Damaged launch files are read or refused with one message: nothing else leaves the reading."""

import re
from itertools import chain

import pytest

from optimizer.base.errors import InputError
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches

FILES = {
    "arrays.sh": launches.ARRAYS,
    "slurm.sh": launches.SLURM,
    "document.sh": launches.DOCUMENT,
    "read.sh": launches.READ_DOCUMENT,
    "picotron.json": launches.PICOTRON,
    "mixture.sh": launches.MIXTURE,
    "titan.toml": launches.TORCHTITAN,
    "ds.json": launches.DEEPSPEED,
    "accelerate.yaml": launches.ACCELERATE,
    "nanotron.yaml": launches.NANOTRON,
    "mpt.yaml": launches.LLM_FOUNDRY,
    "nemo.yaml": launches.NEMO,
    "bridge.yaml": launches.BRIDGE,
    "primus.yaml": launches.PRIMUS,
    "neox.yml": launches.GPT_NEOX,
    "maxtext.yml": launches.MAXTEXT,
    "maxtext.sh": launches.MAXTEXT_COMMAND,
    "config_registry.py": launches.REGISTRY_BEFORE,
}
ODD = ("0", "-1", "x", "1.5", "null", "99999999999999999999", "${X}", '"')


def damaged(text: str) -> list[str]:
    """The text cut off, and each of its first numbers in turn replaced by something odd."""
    cuts = [text[: len(text) * part // 9] for part in range(1, 9)]
    numbers = list(re.finditer(r"(?<![\w.])\d+\b", text))[:24]
    swaps = ((match, ODD[place % len(ODD)]) for place, match in enumerate(chain(numbers, numbers[3:])))
    return cuts + [text[: match.start()] + odd + text[match.end() :] for match, odd in swaps]


@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_in_words(name: str) -> None:
    messages = []
    for text in damaged(FILES[name]):
        controls = Controls(
            gpus=64 if name in ("mpt.yaml", "bridge.yaml", "primus.yaml", "config_registry.py") else None
        )
        try:
            source = read_launch([File(name, text.encode())], controls.gpus)
            launch_as_read(source.launch, controls, name)
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert all(name in message for message in messages)
