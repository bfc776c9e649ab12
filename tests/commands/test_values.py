import re
from pathlib import Path

import pytest

from optimizer.commands.values import merged, storage_url
from optimizer.constraints.pin_text import SHORT_NAMES, pinned
from optimizer.errors import InputError
from optimizer.job import PLACING
from optimizer.plan import FIELDS


def test_short_names_stand_for_variables_of_a_plan() -> None:
    assert set(SHORT_NAMES.values()) <= {*FIELDS, *PLACING}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("TP", "8", ("tp", 8)),
        ("zero", "0", ("zero_stage", 0)),
        ("mbs", "1..4", ("micro_batch", (1, 4))),
        ("sequence-parallel", "yes", ("sequence_parallel", True)),
        ("schedule", "interleaved", ("schedule", "interleaved")),
        ("schedule", "1f1b,zero-bubble", ("schedule", frozenset({"1f1b", "zero-bubble"}))),
        ("recompute", "none, selective", ("recompute", frozenset({"none", "selective"}))),
        ("recompute", "moe_act+layernorm", ("recompute", "layernorm+moe_act")),
        ("recompute", "core_attn,moe+moe_act", ("recompute", frozenset({"selective", "moe"}))),
        ("tp", "2,4", ("tp", frozenset({2, 4}))),
        ("tp", "4,4", ("tp", 4)),
        ("sp", "on,off", ("sequence_parallel", frozenset({True, False}))),
        ("layout", "even", ("layout", "even")),
        ("layers", "19, 20,21,20", ("layers_per_stage", "19,20,21,20")),
        ("recompute-layers", "7,4,1,0", ("recompute_layers", "7,4,1,0")),
    ],
)
def test_what_people_write(name: str, text: str, expected: tuple[str, object]) -> None:
    assert pinned(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("recompute", "none..selective", "recompute has no ranges; write its values as recompute=none,selective"),
        ("recompute", "none,some", "must be one of none, selective, full, but got 'some'"),
        (
            "schedule",
            "1f1b,zero",
            "1f1b, interleaved, zero-bubble, zero-bubble-2p, dualpipe, but got 'zero'",
        ),
        ("tp", "2,4..8", "tp takes a range or a list, not both; write its values as tp=2,4,8"),
        ("tp", "2,x", "tp must be an integer >= 1, but got 'x'"),
        ("tp", "2,", "tp must be an integer >= 1, but got ''"),
        ("layout", "odd", "layout must be even, which switches the search over layouts off, but got 'odd'"),
        ("layers", "4..8", "cannot fix layers_per_stage=4..8: expected the layers of each stage"),
        ("zero", "1,4", "zero_stage must be an integer from 0 to 3, but got '4'"),
    ],
)
def test_a_list_of_other_words_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pinned(name, text)


def test_a_list_beside_a_value_is_a_contradiction() -> None:
    assert merged((("tp", frozenset({8, 2})),)) == {"fixed": {}, "ranges": {}, "choices": {"tp": (2, 8)}}
    with pytest.raises(InputError, match=r"--fix tp=2,8 contradicts --fix tp=8"):
        merged((("tp", frozenset({8, 2})), ("tp", 8)))


def test_the_same_pin_twice_is_no_contradiction_but_a_range_beside_a_value_is() -> None:
    assert merged((("tp", 8), ("tp", 8))) == {"fixed": {"tp": 8}, "ranges": {}, "choices": {}}
    with pytest.raises(InputError, match=r"--fix tp=8 contradicts --fix tp=1..4"):
        merged((("tp", 8), ("tp", (1, 4))))


def test_a_study_file_becomes_a_database_in_an_existing_folder(tmp_path: Path) -> None:
    assert storage_url(str(tmp_path / "study.db")) == f"sqlite:///{tmp_path.resolve() / 'study.db'}"
    with pytest.raises(InputError, match="does not exist"):
        storage_url(str(tmp_path / "nowhere" / "study.db"))
