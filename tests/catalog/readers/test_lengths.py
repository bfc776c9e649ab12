"""Files of documents' lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.lengths import lengths_text
from optimizer.job.lengths import longest


def test_a_file_is_read_with_or_without_a_heading(tmp_path: Path) -> None:
    lines = [str(size) for size in range(10, 500)]
    (tmp_path / "plain.txt").write_text("\n".join(lines))
    (tmp_path / "headed.csv").write_text("\n".join(["length", *lines, ""]))
    plain, headed = (lengths_text(str(tmp_path / name)) for name in ("plain.txt", "headed.csv"))
    assert plain == headed
    assert longest(plain) == 499


@pytest.mark.parametrize(
    ("text", "said"),
    [("10\nmany\n", "line 2: 'many'"), ("", "holds no length"), ("length\n", "holds no length"), ("3\n0\n", "'0'")],
)
def test_what_is_no_length_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=said):
        lengths_text(str(path))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        lengths_text("./nowhere.txt")
