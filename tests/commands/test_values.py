import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.settings import Asked, with_settings
from optimizer.cli import cli
from optimizer.commands import options, values
from optimizer.commands.pins import merged
from optimizer.commands.values import COUNT, SECONDS, SIZE, TOKENS, TextType, formats, storage_url
from optimizer.constraints.pin_text import KNOBS, SHORT_NAMES, pinned
from optimizer.job import fields
from optimizer.job.job import PLACING
from optimizer.job.plan import FIELDS


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("15T", 15e12),
        ("300B", 300e9),
        ("1e13", 1e13),
        ("1.5M", 1.5e6),
        ("15_000_000", 15e6),
        ("1,500", 1500),
        ("8 G", 8e9),
    ],
)
def test_tokens_as_people_write_them(text: str, value: float) -> None:
    assert TOKENS.convert(text, None, None) == value


@pytest.mark.parametrize(("text", "value"), [("8k", 8192), ("128K", 131072), ("1e3", 1000), ("2Ki", 2048), ("64", 64)])
def test_counts_as_people_write_them(text: str, value: int) -> None:
    assert COUNT.convert(text, None, None) == value


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("2.5", 2.5), ("10s", 10), ("500 ms", 0.5), ("2min", 120)])
def test_times_carry_a_unit_or_are_seconds(text: str, value: float) -> None:
    assert SECONDS.convert(text, None, None) == value
    for wrong in ("10x", "10 GB", "soon", "0s", "-5s", "nan"):
        with pytest.raises(click.BadParameter, match=r"write seconds, or a time such as 10s or 2min|range"):
            SECONDS.convert(wrong, None, None)


@pytest.mark.parametrize("text", ["0", "-8", "1.5", "many", "8kb", "", "1e40", "k"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a whole number from 1"):
        COUNT.convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "-1", "much", "15 trillion", "1e30", "2,5T"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        TOKENS.convert(text, None, None)


def test_several_pins_in_one_word_are_those_of_several_options() -> None:
    def pins(*arguments: str) -> object:
        return json.loads(CliRunner().invoke(cli, [*job, *arguments]).stdout)["plan"]

    job = ["--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--trials", "0", "--json"]
    one = pins("--fix", "tp=1,pp=1,vpp=1")
    assert one == pins("--fix", "tp=1", "--fix", "pp=1", "--fix", "vpp=1")
    result = CliRunner().invoke(cli, [*job, "--fix", "tp=1,tp=2"])
    assert result.exit_code == 2
    assert "contradicts" in result.output


def test_sizes_as_people_write_them_make_the_same_job() -> None:
    def job(*arguments: str) -> object:
        found = CliRunner().invoke(cli, ["--model", "llama3-8b", "--trials", "0", "--json", *arguments])
        return json.loads(found.stdout)["job"]

    assert job("--gpus", "64", "--seq-len", "8k", "--global-batch", "1k") == job(
        "--gpus", "64", "--seq-len", "8192", "--global-batch", "1024"
    )


@pytest.mark.parametrize(
    ("kind", "typed", "read"),
    [
        (formats(several=False), " BF16", "bf16"),
        (formats(several=True), "FP8, bf16", "fp8,bf16"),
        (formats(several=True), "Any", "any"),
    ],
)
def test_a_number_format_is_read_however_it_is_written(kind: TextType[str], typed: str, read: str) -> None:
    assert kind.convert(typed, None, None) == read


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        (formats(several=False), "int8", "'int8' cannot be planned; write bf16, fp16, fp8 or fp4"),
        (formats(several=True), " , ", "' , ' cannot be planned; write bf16, fp16"),
        (formats(several=False), ",", "',' cannot be planned; write bf16, fp16"),
        (formats(several=False), "fp32", "write bf16, fp16, fp8 or fp4"),
        (formats(several=False), "bf16,fp8", "write bf16, fp16, fp8 or fp4"),
        (formats(several=False), "any", "write bf16, fp16, fp8 or fp4"),
        (formats(several=True), "bf16,any", "fp4, several of them or any"),
        (SIZE, "75 B", "less than a megabyte; write 75GB"),
    ],
)
def test_what_cannot_be_planned_is_refused(kind: click.ParamType[Any], typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(typed, None, None)


def test_a_knob_is_no_variable_and_says_how_it_is_left_out() -> None:
    with pytest.raises(InputError, match="offload is a knob"):
        pinned("offload", "0")
    for name, advice in KNOBS.items():
        setting = advice.split("'")[1]
        found = with_settings(
            Asked(model=load_model("llama3-8b"), cluster=load_cluster("h100"), stack=load_stack("megatron-core")),
            [setting],
        )
        assert name not in found.stack.features.settable
        assert len(found.stack.features.settable) == len(KNOBS) - 1


@pytest.mark.parametrize("option", ["--max-tp", "--max-micro-batch", "--hbm-limit"])
def test_zero_is_no_limit_where_that_is_what_holds(option: str) -> None:
    field = next(field for field in fields.FIELDS.values() if field.option == option)
    command = click.command(options.option(field.name)(lambda **given: given))
    assert command.main([option, "0"], standalone_mode=False) == {field.name: field.default}
    assert field.problem(0) == ""


def test_what_is_not_typed_is_the_default_but_of_limits() -> None:
    command = click.command(options.given(options.ANSWER)(lambda **given: given))
    found = {name: value for name, value in command.main([], standalone_mode=False).items() if value not in (None, "")}
    assert found == {
        **{"packing": "off", "fix": (), "settings": (), "top": 5, "trials": 8, "seed": 0},
        **{"prefer": "expected", "try_cost": 1800.0, "minimize": "time"},
    }


def test_zero_is_refused_where_it_means_nothing() -> None:
    for name in ("max_vpp", "min_cp_tokens"):
        command = click.command(options.option(name)(lambda **given: given))
        with pytest.raises(click.BadParameter, match="0 is not a whole number from 1"):
            command.main([fields.FIELDS[name].option, "0"], standalone_mode=False)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.share, "0.1", 0.1),
        (values.share, "100%", 1.0),
        (values.share, "1", 1.0),
        (values.size, "1 MB", 1e6),
        (values.size, "75GiB", 75 * 2**30),
        (values.size_or_none, " 0 ", 0.0),
        (values.size_or_none, "2MB", 2e6),
        (values.flex, "batch=50%", 0.5),
        (values.flex, " batch =0.01", 0.01),
        (values.counts, "8:64,3", (8, 16, 32, 64, 3)),
        (values.counts, "8:63", (8, 16, 32)),
        (values.counts, "4..4", (4,)),
        (values.counts, "1..200", tuple(range(1, 201))),
        (values.money, "$ 999,999.5B USD", 999_999.5e9),
        (values.money, "2.5k", 2500.0),
        (values.money, "0.5", 0.5),
        (values.money, "3m", 3e6),
        (values.money, "3G", 3e9),
        (values.whole_number(-8, 8).read, "-8", -8),
        (values.whole_number(-8, 8).read, "+8", 8),
        (values.whole_number(-8, 8).read, " 0 ", 0),
        (values.real_number(1e18).read, "1e18", 1e18),
        (values.quantity("s", "90d").read, "2h", 7200.0),
        (values.quantity("s", "90d").read, "0.5 s", 0.5),
        (values.gpus_or_fewer, "AT-MOST:1000", (1000, True)),
        (values.gpus_or_fewer, "1000", (1000, False)),
        (values.shell_variable, "NNODES=", ("NNODES", "")),
        (values.shell_variable, "A=b=c", ("A", "b=c")),
        (values.named, " h100 = 2 ", ("h100", "2")),
        (values.shortened, "x" * 40, "x" * 40),
        (values.shortened, "x" * 41, "x" * 37 + "..."),
    ],
)
def test_what_is_written_is_read(read: Any, text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (values.share, "0", r"is not in \(0, 1\]$"),
        (values.share, "-0.1", r"is not in \(0, 1\]$"),
        (values.share, "1.5", "did you mean 1.5%"),
        (values.share, "100", "did you mean 100%"),
        (values.share, "101", r"is not in \(0, 1\]$"),
        (values.share, "much", "is not a share"),
        (values.size, "80", "has no unit; write 80GB or 80GiB"),
        (values.size, "0 GB", "is not a positive size"),
        (values.size, "999 kB", "less than a megabyte"),
        (values.size, "1 B", "less than a megabyte"),
        (values.storage_url, "a\0.db", "a file or a URL is expected"),
        (values.storage_url, "a\udcff.db", "a file or a URL is expected"),
        (values.flex, "batch=51%", "how far the batch may move"),
        (values.flex, "batch=0%", "how far the batch may move"),
        (values.flex, "gpus=5%", "how far the batch may move"),
        (values.flex, "batch=x", "how far the batch may move"),
        (values.counts, "1..201", "201 numbers are more than the 200"),
        (values.counts, "4..3", "is no list of whole numbers"),
        (values.counts, "8,x", "is no list of whole numbers"),
        (values.money, "0", "is no amount of money"),
        (values.money, "1,000,000B", "is no amount of money"),
        (values.money, "2,10", "is no amount of money"),
        (values.whole_number(-8, 8).read, "-9", "-9 is not a whole number from -8 to 8"),
        (values.whole_number(-8, 8).read, "9", "9 is not a whole number from -8 to 8"),
        (values.real_number(1e18).read, "1.1e18", "is not in the range"),
        (values.real_number(1e18).read, "0", "is not in the range"),
        (values.real_number(1e400).read, "inf", "is not in the range"),
        (values.quantity("s", "90d").read, "0d", "must be positive"),
        (values.quantity("s", "90d").read, "90", "must be positive and carry its unit"),
        (values.shell_variable, "NNODES", "is not of the form"),
        (values.shell_variable, "1A=b", "is not of the form"),
        (values.shell_variable, "Ä=b", "is not of the form"),
        (values.named, "=b", "is not of the form"),
        (values.named, "a= ", "is not of the form"),
        (values.named, "a", "is not of the form"),
    ],
)
def test_what_means_nothing_is_refused(read: Any, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read(text)
