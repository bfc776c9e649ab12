"""What a visitor gave: how much is taken, and what each file is."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.frameworks.files import LARGEST
from optimizer.page.improve.files import LOOKED_AT, MOST_FILES, given, is_log, looks, packable


def test_as_much_is_taken_as_a_launch_may_have() -> None:
    whole = b"a" * LARGEST
    assert given(whole) == [("pasted.sh", whole)]
    with pytest.raises(InputError, match="MB were pasted: at most"):
        given(whole + b"a")
    several = [(f"{number}.sh", b"x") for number in range(MOST_FILES)]
    assert given(packable(several).encode()) == several
    with pytest.raises(InputError, match=f"{MOST_FILES + 1} files are more than the {MOST_FILES}"):
        given(packable([*several, ("y.sh", b"x")]).encode())
    assert given(packable([("a.sh", b"x"), ("a.sh", b"y")]).encode()) == [("a.sh", b"x"), ("1-a.sh", b"y")]


@pytest.mark.parametrize(
    ("name", "text", "log"),
    [
        ("x.log", b"{}", True),
        ("x.out", b"{}", True),
        ("x.err", b"", True),
        ("x.txt", b"step 1 loss 2.0", True),
        ("x", b"step 1 loss 2.0", True),
        ("x.txt", b"torchrun train.py", False),
        ("x.sh", b"step 1 loss 2.0", False),
    ],
)
def test_a_log_is_told_by_its_name_or_else_by_how_it_begins(name: str, text: bytes, log: bool) -> None:
    assert is_log(name, text) is log


def test_a_file_is_told_by_its_first_kilobyte() -> None:
    assert LOOKED_AT == 1024
    assert [looks(b"#" * before + b"\nmodel:\n") for before in (1016, 1024)] == [".yaml", ".sh"]
