"""The texts of a purchase: each is used, and fields are written as they say."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import optimizer.purchase
from optimizer.base.content import content
from optimizer.purchase.ranges import Range
from optimizer.purchase.wording import filled, texts

CODE = "".join(path.read_text() for path in Path(optimizer.purchase.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("kind", ["sentences", "notes", "tiles", "pairs", "tables"])
def test_every_text_is_used(kind: str) -> None:
    asked = {"at_most_", "what_"}  # whose names end as the limit or the input does
    unused = [
        name
        for name in texts(kind)
        if f'"{name}"' not in CODE and not any(name.startswith(start) and f'f"{start}' in CODE for start in asked)
    ]
    assert not unused


def test_every_name_that_is_asked_for_is_there() -> None:
    for call, kind in (("say", "sentences"), ("note", "notes"), ("table", "tables")):
        assert set(re.findall(rf'(?<![\w.]){call}\(\s*"(\w+)"', CODE)) <= set(texts(kind))


def test_every_table_of_keys_is_used() -> None:
    assert not [name for name in content("optimizer.purchase", "keys.toml") if f'"{name}"' not in CODE]


def test_fields_are_written_as_they_say() -> None:
    assert filled("{time:between days}", time=Range(low=86400.0, mid=172800.0, high=259200.0)) == (
        "2.0 days (1.0 days to 3.0 days)"
    )
    assert filled("{count:,} node{count:plural} pay{count:singular}", count=1) == "1 node pays"
    assert filled("{rate:/0.125e9 .0f} Gb/s", rate=50e9) == "400 Gb/s"
    shown = SimpleNamespace(design=SimpleNamespace(label=lambda: "64 GB200 NVL72, fp8"))
    assert filled("{shown:name}", shown=shown) == "64 × GB200 NVL72, fp8"
