"""The benchmark for planners: its scorer by hand, its files by their schemas, its figures as the README has them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bench.planners import baselines, figures, jobs, ours, schemas
from bench.planners.score import HERE, Unreadable, kendall, main, read_predictions, regret, score, spearman
from optimizer.calibration.runs import read_runs
from optimizer.catalog.files import presets_folder

JOBS = json.loads((HERE / "jobs.json").read_text(encoding="utf-8"))


def job(name: str, group: str = "a", gpus: int = 8) -> dict[str, Any]:
    return {"id": name, "group": group, "gpus": gpus, "seq_len": 100, "global_batch": 8}


def ran(seconds: float) -> dict[str, Any]:
    return {"step_time_s": seconds, "out_of_memory": False}


def said(seconds: float | None, fits: bool | None = None) -> dict[str, Any]:
    return {"step_time_s": seconds, "fits": fits}


def test_errors_by_hand() -> None:
    """Ratios 1.1, 0.8 and 1.0: errors of 10, 20 and 0 %; their median ratio is 1."""
    names = [job(name, group=name) for name in "abcd"]
    truth = {"a": ran(10), "b": ran(10), "c": ran(5), "d": ran(1)}
    found = score(names, truth, {"a": said(11), "b": said(8), "c": said(5)})
    assert (found.answered, found.of) == (3, 4)
    assert found.mape == pytest.approx(0.1)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0)
    assert (found.groups, found.kendall, found.regret_first) == (0, None, None)


def test_a_constant_factor_earns_nothing_and_costs_nothing_in_the_scaled_error() -> None:
    names = [job(name, group=name) for name in "abc"]
    truth = {"a": ran(1), "b": ran(2), "c": ran(4)}
    found = score(names, truth, {"a": said(2), "b": said(4), "c": said(8)})
    assert found.bias == pytest.approx(1.0)
    assert found.scaled == pytest.approx(0.0)


def test_ranking_and_regret_by_hand() -> None:
    """Throughputs a 100, b 80, c 50 in 8, 10 and 16 s; the planner thinks that b is faster than a."""
    names = [job(name) for name in "abc"]
    truth = {"a": ran(8), "b": ran(10), "c": ran(16)}
    found = score(names, truth, {"a": said(9), "b": said(8), "c": said(20)})
    assert found.groups == 1
    assert found.kendall == pytest.approx(1 / 3)
    assert found.spearman == pytest.approx(0.5)
    assert found.regret_first == pytest.approx(0.2)
    assert found.regret_two == pytest.approx(0.0)


def test_runs_on_other_numbers_of_gpus_are_ranked_by_throughput_per_gpu() -> None:
    """8 GPUs in 10 s do as much a GPU as 16 in 5 s; these take 6 s and are slower."""
    names = [job("few", gpus=8), job("many", gpus=16)]
    truth = {"few": ran(10), "many": ran(6)}
    assert score(names, truth, {"few": said(10), "many": said(6)}).kendall == 1.0
    assert score(names, truth, {"few": said(10), "many": said(4)}).regret_first == pytest.approx(1 / 6)


def test_verdicts_by_hand() -> None:
    """One of two that ran out of memory is caught, one of three that ran is said not to fit, one is not answered."""
    names = [job(name) for name in "abcdef"]
    out = {"step_time_s": None, "out_of_memory": True}
    truth = {"a": out, "b": out, "c": ran(1), "d": ran(1), "e": ran(1), "f": ran(1)}
    answers = dict(zip("abcdef", (False, True, True, True, False, None), strict=True))
    found = score(names, truth, {name: said(None, fits) for name, fits in answers.items()})
    assert found.oom_caught == 0.5
    assert found.oom_false == pytest.approx(1 / 3)
    assert found.mape is None


def test_verdicts_alone_answer_only_what_went_out_of_memory() -> None:
    names = [job("ran"), job("out")]
    truth = {"ran": ran(1), "out": {"step_time_s": None, "out_of_memory": True}}
    assert score(names, truth, {"ran": said(None, True), "out": said(None, True)}).answered == 1
    assert score(names, truth, {"ran": said(None), "out": said(2.0)}).answered == 0


def test_what_is_alike_is_no_ranking() -> None:
    assert kendall([(1, 1), (1, 2), (1, 3)]) == 0.0
    assert spearman([(1, 1), (1, 2), (1, 3)]) == 0.0
    assert regret([(1, 50), (1, 100)], 1) == 0.5, "of predictions alike the worst"


@pytest.mark.parametrize("name", schemas.SCHEMAS)
def test_the_schemas_are_those_of_the_code(name: str) -> None:
    assert (HERE / f"{name}.schema.json").read_text(encoding="utf-8") == schemas.text(name)
    Draft202012Validator.check_schema(schemas.schema(name))


def test_the_files_follow_the_schemas() -> None:
    Draft202012Validator(schemas.schema("jobs")).validate(JOBS)
    check = Draft202012Validator(schemas.schema("predictions"))
    example = (HERE / "README.md").read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    for document in (json.loads(example), ours.predictions(), *map(baselines.predictions, baselines.BASELINES)):
        check.validate(document)


@pytest.mark.parametrize(
    ("key", "value"), [("gpus", 0), ("gpus", "8"), ("dtype", None), ("measured", 1.0), ("plan", {"tp": 1})]
)
def test_a_job_that_is_none_is_refused_by_the_schema(key: str, value: object) -> None:
    document = copy.deepcopy(JOBS)
    document["jobs"][0][key] = value
    assert not Draft202012Validator(schemas.schema("jobs")).is_valid(document)


def test_the_jobs_are_the_published_runs_and_tell_nothing_that_was_measured() -> None:
    runs = read_runs(presets_folder() / "published.csv")
    asked, measured = jobs.documents(runs)
    assert (HERE / "jobs.json").read_text(encoding="utf-8") == jobs.text_of(asked)
    assert (HERE / "measured.json").read_text(encoding="utf-8") == jobs.text_of(measured)
    assert [each["id"] for each in asked["jobs"]] == list(measured["runs"])
    assert all(each["source"] for each in asked["jobs"])
    assert "step_time" not in json.dumps(asked)


def test_the_readme_has_the_figures() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")
    assert figures.rewritten(text) == text, "python -m bench.planners.figures"


def test_the_baselines_are_worse() -> None:
    own, *others = (found for _, found in figures.figures())
    assert own.answered == own.of
    for other in others:
        assert other.median > 2 * own.median
        assert other.kendall < own.kendall
        assert other.regret_first > own.regret_first


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"id": "none"}, r"predictions\[0\]: id must be that of a job"),
        ({"id": "a", "step_time_s": 0}, "step_time_s must be a positive number or null, but got 0"),
        ({"id": "a", "step_time_s": True}, "but got True"),
        ({"id": "a", "step_time_s": float("nan")}, "but got nan"),
        ({"id": "a", "fits": "yes"}, "fits must be true, false or null, but got 'yes'"),
        (7, "id must be that of a job"),
    ],
)
def test_predictions_that_are_none_are_refused(tmp_path: Path, entry: object, message: str) -> None:
    path = tmp_path / "said.json"
    path.write_text(json.dumps({"format": 1, "planner": "mine", "predictions": [entry]}))
    with pytest.raises(Unreadable, match=message):
        read_predictions(path, [job("a")])


def test_a_job_that_is_answered_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "said.json"
    path.write_text(json.dumps({"format": 1, "planner": "mine", "predictions": [{"id": "a"}, {"id": "a"}]}))
    with pytest.raises(Unreadable, match="a is answered twice"):
        read_predictions(path, [job("a")])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "said.json"
    path.write_text(json.dumps(baselines.predictions("constant")))
    assert main([str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["planner"], found["of"]) == (baselines.TITLES["constant"], len(JOBS["jobs"]))
    assert main([str(path)]) == 0
    assert "regret_first" in capsys.readouterr().out
    path.write_text('{"format": 2}')
    assert main([str(path)]) == 2
    assert 'must be an object with "format": 1' in capsys.readouterr().err


def test_runs_of_ones_own_are_jobs_too(tmp_path: Path) -> None:
    lines = (presets_folder() / "published.csv").read_text(encoding="utf-8").splitlines()[:4]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    jobs.written(tmp_path, read_runs(tmp_path / "mine.csv"))
    assert len(json.loads((tmp_path / "jobs.json").read_text())["jobs"]) == 3
    assert len(json.loads((tmp_path / "measured.json").read_text())["runs"]) == 3
