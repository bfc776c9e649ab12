"""`optimizer.plan` in Python: the same names, defaults and answer as the command."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

import optimizer
from optimizer.base.errors import InputError
from optimizer.cli import cli
from optimizer.commands import options
from optimizer.job import fields
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.time_terms import TIME_TERMS

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "plan.py"
SMALL: dict[str, Any] = {"model": "llama3.2-1b", "gpus": 8, "trials": 0}
# What Python may give where a text is typed, by kind of field; whole numbers that people write with k are texts too.
PYTHON_TYPES = {
    fields.NAME: "str",
    fields.GPUS: "int | str",
    fields.WHOLE: "int",
    **dict.fromkeys((fields.SHARE, fields.SIZE, fields.TIME, fields.FLEX), "Number"),
    fields.FORMATS: "str | Sequence[str]",
    **dict.fromkeys((fields.PINS, fields.SETTINGS), "str | Sequence[str] | Mapping[str, Value]"),
    fields.CHOICE: "str",
}
NAMED_TYPES = {
    **dict.fromkeys(("model", "cluster", "stack", "runs"), "str | Path"),
    **dict.fromkeys(("seq_len", "global_batch"), "int | str"),
    "routing": "Number",
}
WORDS = "--model llama3.2-1b --gpus 8 --trials 0"
CLUSTER = """\
name = "mine"
device = "h100"
[[tiers]]
name = "node"
link = "nvlink4"
"""


pytestmark = pytest.mark.usefixtures("planned_once")


@pytest.fixture(scope="module")
def answer() -> optimizer.Answer:
    return optimizer.plan(**SMALL)


@pytest.fixture(scope="module")
def infeasible() -> optimizer.Answer:
    return optimizer.plan(model="gpt3", gpus=8)


def command(words: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [*words.split(), "--json"])
    assert done.exit_code in (0, 3), done.stderr
    return json.loads(done.stdout) | {"search_s": 0}


def as_json(answer: optimizer.Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(answer.to_dict()))
    return found | {"search_s": 0}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (WORDS, SMALL),
        ("--model gpt3 --gpus 8", {"model": "gpt3", "gpus": 8}),
        (f"{WORDS} --cluster ./mine.toml", {**SMALL, "cluster": Path("mine.toml")}),
        (f"{WORDS} --device a100-80 --stack nemo-2022", {**SMALL, "device": "a100-80", "stack": "nemo-2022"}),
        (f"{WORDS} --set layers=4 --set rail.latency=9us", {**SMALL, "set": {"layers": 4, "rail.latency": "9us"}}),
        (
            f"{WORDS} --fix tp=1,2 --fix pp=1..2 --fix sequence_parallel=off",
            {**SMALL, "fix": {"tp": [1, 2], "pp": "1..2", "sequence_parallel": False}},
        ),
        (f"{WORDS} --fix tp=2 --fix pp=1", {**SMALL, "fix": ["tp=2", "pp=1"]}),
        (f"{WORDS} --oom-risk 2% --hbm-limit 75GB", {**SMALL, "oom_risk": 0.02, "hbm_limit": 75e9}),
        (f"{WORDS} --minimize energy --top 2", {**SMALL, "minimize": "energy", "top": 2}),
        (f"{WORDS} --prefer fast --try-cost 1h --top 2", {**SMALL, "prefer": "fast", "try_cost": 3600, "top": 2}),
        (f"{WORDS} --dtype bf16,fp8 --within 3%", {**SMALL, "dtype": ["bf16", "fp8"], "within": 0.03}),
        (
            "--model llama3.2-1b --gpus at-most:12 --trials 0 --flex batch=5%",
            {**SMALL, "gpus": "at-most:12", "flex": 0.05},
        ),
        (f"{WORDS} --routing 1.3 --max-tp 2 --seq-len 4k", {**SMALL, "routing": 1.3, "max_tp": 2, "seq_len": "4k"}),
    ],
)
def test_the_answer_is_that_of_the_command(
    words: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(CLUSTER)
    assert as_json(optimizer.plan(**given)) == command(words)


def test_a_whole_job_gives_the_same_plan(answer: optimizer.Answer) -> None:
    again = optimizer.plan(answer.job, trials=0)
    assert (again.plan, again.knobs, again.estimate) == (answer.plan, answer.knobs, answer.estimate)
    assert again.assumptions is None
    assert "assumptions" not in again.to_dict()


def test_the_names_are_those_of_the_options() -> None:
    asked = fields.of_groups(fields.JOB, fields.ANSWER, fields.SEARCH)
    params = click.command(options.given(options.ANSWER)(lambda: None)).params
    assert [option.opts[0] for option in params] == [field.option for field in asked]
    own = inspect.signature(optimizer.plan).parameters
    assert list(own)[1:] == [field.name for field in asked]
    for field in asked:
        wanted = NAMED_TYPES.get(field.name) or PYTHON_TYPES[field.kind]
        assert own[field.name].annotation == f"{wanted} | None", field.name
        assert own[field.name].default is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "gpt3"}, "needs gpus"),
        ({"model": "gpt9", "gpus": 8}, "unknown model 'gpt9'"),
        ({"model": "gpt3", "gpus": 0}, "--gpus"),
        ({"model": "gpt3", "gpus": 8, "hbm_limit": "75"}, "write 75GB"),
        ({"model": "gpt3", "gpus": 8, "prefer": "best"}, "--prefer"),
        ({"model": "gpt3", "gpus": 8, "fix": {"tp": "x"}}, "tp"),
        ({"model": "gpt3", "gpus": 10**5000}, "thousands of digits"),
        ({"model": "gpt3", "gpus": 8, "oom_risk": float("nan")}, "not a share"),
        ({"model": "gpt3", "gpus": 8, "hbm_limit": float("inf")}, "--hbm-limit"),
        ({"model": "--help", "gpus": 8}, "unknown model"),
        ({"job": "gpt3"}, "plan() takes a Job, or options by their names"),
        ({"model": "gpt3", "gpus": 8, "runs": 10**400}, "File name too long"),
        ({"model": "gpt3", "gpus": 8, "study": "\udcff.db"}, "a file or a URL is expected"),
    ],
)
def test_what_cannot_be_used_is_one_message(given: dict[str, Any], message: str) -> None:
    with pytest.raises(optimizer.InputError, match=re.escape(message)):
        optimizer.plan(**given)


def test_a_job_and_options_of_a_job_exclude_each_other(answer: optimizer.Answer) -> None:
    with pytest.raises(optimizer.InputError, match="a Job holds gpus already"):
        optimizer.plan(answer.job, gpus=8)


def test_repr_is_three_short_lines(answer: optimizer.Answer, infeasible: optimizer.Answer) -> None:
    for shown, words in ((answer, "MFU"), (infeasible, "gpu-product, memory")):
        lines = repr(shown).splitlines()
        assert len(lines) <= 3
        assert max(map(len, lines)) <= 100
        assert words in repr(shown)


def test_a_notebook_draws_where_time_and_memory_go(answer: optimizer.Answer, infeasible: optimizer.Answer) -> None:
    html = answer._repr_html_()
    pictures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html)]
    assert len(pictures) == 2
    time, memory = (
        sum(
            float(box.get("width", 0))
            for box in picture.iter()
            if box.tag.endswith("rect") and box.get("height") == "26"
        )
        for picture in pictures
    )
    assert time == pytest.approx(2 * 720, abs=2)  # the frame and the segments
    assert 720 < memory < 2 * 720
    assert "matrix products" in html
    assert not re.search(r"(?:src|href|url)\s*[=(]|<script", html)
    assert "gpu-product" in infeasible._repr_html_()
    assert "<svg" not in infeasible._repr_html_()


def test_a_frame_has_intervals_and_times(answer: optimizer.Answer, infeasible: optimizer.Answer) -> None:
    frame = answer.to_frame()
    assert len(frame) == 1 + len(answer.alternatives)
    assert (frame["step_time_low_s"] < frame["step_time_s"]).all()
    assert (frame["step_time_s"] < frame["step_time_high_s"]).all()
    assert frame[[f"{name}_s" for name in TIME_TERMS]].sum(axis=1).to_numpy() == pytest.approx(frame["step_time_s"])
    memory = frame[[f"{name}_bytes" for name in MEMORY_TERMS]].sum(axis=1)
    assert memory.to_numpy() == pytest.approx(frame["peak_reserved_bytes"])
    assert frame["tp"].iloc[0] == answer.plan.tp  # type: ignore[union-attr]
    nothing = infeasible.to_frame()
    assert len(nothing) == 0
    assert list(nothing.columns) == list(frame.columns)


def test_the_package_offers_its_public_names_alone() -> None:
    assert sorted(dir(optimizer)) == sorted([*optimizer.__all__, "__version__"])
    assert list(optimizer.__all__) == sorted(optimizer.__all__)


def test_the_example_of_a_consumer_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(EXAMPLE.read_text(encoding="utf-8"), str(EXAMPLE), "exec"), {"__name__": "__main__"})
    assert "llama3-8b on 16 GPUs: optimal, TP" in capsys.readouterr().out


def test_values_of_a_notebook_that_mean_nothing_are_refused_in_a_few_words() -> None:
    for name, value in [
        *((name, {}) for name in ("model", "gpus", "dtype")),
        *((name, value) for name in ("fix", "set") for value in (float("nan"), 3, True, object(), 1 + 2j, ...)),
        *((name, "a" * 10**6) for name in ("model", "cluster", "stack", "minimize", "fix")),
        ("study", "\0"),
        ("gpus", 10**400),
        ("seq_len", [None]),
    ]:
        with pytest.raises(InputError) as refused:
            optimizer.plan(**{**SMALL, name: value})
        assert len(str(refused.value)) < 1000, name
