"""From a study to its jobs: every combination once, keyed by content."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from optimizer.commands.study.batch import make_job
from optimizer.job.fields import FIELDS
from optimizer.job.job import Limits
from optimizer.job.model import Provenance
from optimizer.sweep.expansion import Combination, _asked_in_vain, tasks_of
from optimizer.sweep.study import AXES, Effort
from optimizer.sweep.study_file import read_study
from optimizer.sweep.task import Task, content, key_of
from optimizer.sweep.work import cost_model_version
from tests.sweep.fakes import job


def expand(folder: Path, text: str, version: str = "v1") -> tuple[Task, ...]:
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return tasks_of(read_study(folder / "study.toml"), make_job, version)


STUDY = """
models = ["llama3-8b", "gpt3"]
clusters = ["dgx-h100", "dgx-a100-80"]
gpus = [64, 128, 256]
seq_lens = [2048, 4096]
global_batches = 512
"""


def test_the_jobs_are_the_product_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = expand(tmp_path, STUDY)
    assert len(found) == 2 * 2 * 3 * 2 == len({task.key for task in found})
    asked = [tuple(task.asked[key] for key in ("model", "cluster", "gpus", "seq_len")) for task in found]
    assert asked[:3] == [
        ("llama3-8b", "dgx-h100", 64, 2048),
        ("llama3-8b", "dgx-h100", 64, 4096),
        ("llama3-8b", "dgx-h100", 128, 2048),
    ]


def test_exclusions_leave_out_what_matches_all_their_keys(tmp_path: Path) -> None:
    found = expand(
        tmp_path,
        STUDY + '[[exclude]]\nmodels = "gpt*"\ngpus = "< 256"\n[[exclude]]\nclusters = "dgx-a*"\nseq_lens = 4096',
    )
    assert len(found) == 24 - 8 - 4
    assert not any(task.asked["model"] == "gpt3" and task.asked["gpus"] < 256 for task in found)


def test_a_job_of_two_scenarios_is_planned_once_under_both_names(tmp_path: Path) -> None:
    found = expand(tmp_path, STUDY.replace("[64, 128, 256]", "64") + "[scenarios.a]\n[scenarios.b]\nseq_lens = 4096")
    assert [task.scenario for task in found] == ["a", "a, b"] * 4


def test_objectives_are_an_axis(tmp_path: Path) -> None:
    tasks = expand(tmp_path, STUDY.replace("[64, 128, 256]", "64") + 'minimize = ["time", "cost"]\n')
    assert len(tasks) == 2 * 2 * 2 * 2 == len({task.key for task in tasks})
    assert [task.job and task.job.minimize for task in tasks[:4]] == ["time", "cost", "time", "cost"]
    assert [task.asked.get("minimize") for task in tasks[:2]] == [None, "cost"]


def test_a_batch_in_tokens_gives_the_sequences(tmp_path: Path) -> None:
    found = expand(tmp_path, STUDY.replace("global_batches = 512", "tokens_per_batch = 4194304"))
    assert {(task.asked["seq_len"], task.asked["global_batch"]) for task in found} == {(2048, 2048), (4096, 1024)}


def test_defaults_are_those_of_optimize(tmp_path: Path) -> None:
    (task,) = expand(tmp_path, 'models = "gpt3"\ngpus = 64')
    assert (task.asked["cluster"], task.asked["stack"], task.asked["dtype"]) == ("dgx-h100", "megatron-core", "bf16")
    assert (task.asked["seq_len"], task.asked["global_batch"]) == (2048, 1536)


def test_what_cannot_be_a_job_stays_in_the_list_with_its_reason(tmp_path: Path) -> None:
    found = expand(tmp_path, 'models = "gpt3"\ndevices = ["a100-80", "h100"]\ngpus = 64\ndtypes = "fp8"')
    assert [task.job is None for task in found] == [True, False]
    assert "a100-80 has no fp8 matrix units" in found[0].problem
    assert found[0].asked["device"] == "a100-80"


def test_what_was_asked_in_vain_is_in_the_words_of_a_job() -> None:
    words = ("train", "base", "optimizer", "loss", "lengths", "packing")
    unsaid = dict.fromkeys((*(field.name for field in AXES), "device"))
    counts = {"gpus": 8, "seq_len": 4096, "global_batch": 64}
    given = {"stack": "s", "dtype": "fp8", "minimize": "cost", **{name: f"a {name}" for name in words}}
    for said, cluster, device in ((given, "dgx-a100-80", "a100-80"), ({}, None, "h100")):
        typed = unsaid | counts | said | {"model": "gpt3", "cluster": cluster, "fix": ()}
        asked = _asked_in_vain(Combination(options=typed))
        assert asked.pop("limits").keys() == {item.name for item in fields(Limits)}
        usual = dict.fromkeys(("stack", "dtype", *words), "") | {"minimize": None, "family": "gpt3"}
        places = {"model": "gpt3", "cluster": cluster or "dgx-h100", "device": device}
        assert asked == usual | counts | places | said


def test_pins_become_fixed_values_and_ranges(tmp_path: Path) -> None:
    (task,) = expand(tmp_path, 'models = "gpt3"\ngpus = 64\nfix = "tp=8,pp=2..4"')
    assert task.job is not None
    assert (task.job.limits.fixed, task.job.limits.ranges) == ({"tp": 8}, {"pp": (2, 4)})


def test_lists_of_values_become_choices(tmp_path: Path) -> None:
    for written in ('"tp=2,4,pp=8"', '{tp = "2,4", pp = 8}'):
        (task,) = expand(tmp_path, f'models = "gpt3"\ngpus = 64\nfix = {written}')
        assert task.job is not None
        assert (task.job.limits.fixed, task.job.limits.choices) == ({"pp": 8}, {"tp": (2, 4)})


def test_what_cannot_be_a_job_says_under_which_limits(tmp_path: Path) -> None:
    (task,) = expand(tmp_path, 'models = "gpt3"\ngpus = 9999999\nmax_vpp = 3\nfix = "tp=2,4,pp=2..8,cp=1"')
    assert task.job is None
    limits = task.asked["limits"]
    assert limits.keys() == {item.name for item in fields(Limits)}
    assert (limits["max_vpp"], limits["fixed"], limits["ranges"], limits["choices"]) == (
        3,
        {"cp": 1},
        {"pp": [2, 8]},
        {"tp": [2, 4]},
    )


def test_the_key_is_that_of_the_content_and_nothing_else() -> None:
    same = replace(job(), model=replace(job().model, provenance=Provenance(note="reworded"), title="Other"))
    key = key_of(job(), Effort(), "v1")
    assert key_of(same, Effort(), "v1") == key
    others = [
        key_of(replace(job(), gpus=128), Effort(), "v1"),
        key_of(replace(job(), model=replace(job().model, layers=33)), Effort(), "v1"),
        key_of(replace(job(), stack=replace(job().stack, parameters={"launch": 9e-6})), Effort(), "v1"),
        key_of(job().with_limits(bubble=0.2), Effort(), "v1"),
        key_of(job(), Effort(seed=1), "v1"),
        key_of(job(), Effort(), "v2"),
    ]
    assert len({key, *others}) == 7


def test_content_has_no_words_about_the_numbers() -> None:
    assert "provenance" not in str(content(job()))


def test_the_version_is_a_fingerprint() -> None:
    assert cost_model_version() == cost_model_version()
    assert set(cost_model_version()) <= set("0123456789abcdef")


def test_every_axis_is_one_and_fixed_variables_vary_fastest() -> None:
    assert all(field.axis for field in AXES)
    assert len({field.name for field in AXES}) == len(AXES)
    assert AXES[-1] is FIELDS["fix"]
