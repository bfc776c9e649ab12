"""By what a Megatron's parser is known, and which changes ask anything of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.frameworks.launch import FlagChange
from optimizer.frameworks.megatron.parser import ABOVE, PARSERS, parser_of, sources_near

IMAGE = "nvcr.io/nvidia/nemo"


@pytest.mark.parametrize(
    ("text", "known_by"),
    [
        ("", "no flag"),
        # What an image has was in main two months before.
        (f"{IMAGE}:24.07", f"{IMAGE}:24.07, which is of 2024-05"),
        (f"{IMAGE}:25.02", f"{IMAGE}:25.02, which is of 2024-12"),
        (f"{IMAGE}:25.01", f"{IMAGE}:25.01, which is of 2024-11"),
        (f"{IMAGE}:25.03", f"{IMAGE}:25.03, which is of 2025-01"),
        ("git checkout core_v0.9.0", "core_v0.9, which is of 2024-09"),
        ("pip install megatron_core==0.9", "core_v0.9, which is of 2024-09"),
        (f"core_r0.9 {IMAGE}:24.07", "core_v0.9, which is of 2024-09"),  # the newest counts
        ("core_v77.1", "no flag"),
    ],
)
def test_what_a_script_names_dates_its_parser(text: str, known_by: str) -> None:
    assert parser_of(["--own"], "Megatron-LM", text).known_by == known_by


@pytest.mark.parametrize(
    ("before", "after", "lacks"),
    [(None, "1", ("--never-heard-of",)), ("1", "2", ()), ("1", None, ()), (None, None, ())],
)
def test_only_new_flags_ask_for_a_parser_that_has_them(
    before: str | None, after: str | None, lacks: tuple[str, ...]
) -> None:
    parser = parser_of(["--micro-batch-size"], "Megatron-LM", "")
    assert parser.lacks([FlagChange(flag="--never-heard-of", before=before, after=after)]) == lacks


def test_a_checkout_is_found_four_folders_up(tmp_path: Path) -> None:
    source = tmp_path / PARSERS[0]
    source.parent.mkdir(parents=True)
    source.write_text("add_argument('--x')")
    near, far = (tmp_path.joinpath(*"abcdef"[:depth], "run.sh") for depth in (ABOVE - 1, ABOVE))
    assert "--x" in sources_near(str(near))
    assert sources_near(str(far)) == ""
    assert "--x" in sources_near(str(far), str(tmp_path))


def test_fields_are_flags_where_the_parser_makes_them_so() -> None:
    field = "class Config:\n    own_field: int = 1\n"
    for factory, has in (("", False), ("ArgumentGroupFactory(Config)\n", True)):
        flags = parser_of([], "Megatron-LM", "", f"{factory}{field}").flags
        assert ("--own-field" in flags) is has
