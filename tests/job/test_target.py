"""A plan for another launcher than the stack's own, or for any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InputError
from optimizer.catalog import load_model, load_stack, stack_names
from optimizer.catalog.targets import aimed, fixed_for, launchers
from optimizer.cli import cli
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import Features, Stack
from optimizer.job.target import target_of, unbuilt
from optimizer.search.check.plan_rules import rule_findings
from optimizer.search.plan.planner import plan
from tests.looped import looped
from tests.search.jobs import small_job

SMALL = ("--model", "gpt3-125m", "--gpus", "8")


@pytest.mark.parametrize(("written", "meant"), [('"off"', False), ("0", False), ("true", True)])
def test_the_one_value_of_a_variable_is_a_word_or_a_number(
    written: str, meant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'only = {{ tp = 1, recompute = 0, dispatcher = "alltoall", sequence_parallel = {written} }}\n'
    with with_targets(text, tmp_path, monkeypatch):
        only = launchers()["mine"].only
        assert only == {"tp": 1, "recompute": "none", "dispatcher": "alltoall", "sequence_parallel": meant}
        assert type(only["sequence_parallel"]) is bool
        with pytest.raises(InputError, match="cannot run recompute=full: it has recompute=none alone"):
            fixed_for("mine", {"recompute": "full"})


@pytest.mark.parametrize("text", ['only = { recompute = "some" }', "only = { recompute = 10000 }", "only = { no = 1 }"])
def test_a_value_that_no_variable_has_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_targets(text, tmp_path, monkeypatch), pytest.raises(InputError, match=r"targets.toml: mine.only"):
        launchers()


@contextmanager
def with_targets(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A target of one's own beside none."""
    (folder / "launchers").mkdir()
    table = 'schedules = ["1f1b"]\nzero_stages = [1]\nrecompute_by = "all layers"\ndispatchers = ["alltoall"]\n'
    (folder / "launchers" / "targets.toml").write_text(f"[mine]\n{table}{text}\n")
    monkeypatch.setattr("optimizer.catalog.targets.presets_folder", lambda: folder)
    launchers.cache_clear()
    try:
        yield
    finally:
        launchers.cache_clear()


@looped(stack=stack_names(), target=tuple(launchers()))
def test_a_target_leaves_what_it_can_express_of_a_stack(stack: str, target: str) -> None:
    own, can = load_stack(stack), launchers()[target]
    try:
        found = aimed(own, target)
    except InputError:
        assert not set(own.features.zero_stages) & set(can.zero_stages)
        return
    assert set(found.features.schedules) <= set(can.schedules) & set(own.features.schedules)
    assert set(found.features.zero_stages) <= set(can.zero_stages) & set(own.features.zero_stages)
    assert set(found.features.settable) <= set(can.settable) & set(own.features.settable)
    assert set(found.dispatchers) <= set(can.dispatchers) & set(own.dispatchers)
    assert found.features.recompute_by in (can.recompute_by, "all layers")
    assert (target_of(found), target_of(own)) == (target, "")
    assert load_stack(f"{stack}@{target}") == found


def test_what_a_launcher_cannot_set_is_not_searched() -> None:
    """Without the host a model of 8 billion parameters needs several GPUs; knobs are at their defaults."""
    job = replace(small_job(1, model=load_model("llama3-8b"), hbm=70e9, oom_risk=0.5), stack=Stack(name="mine"))
    bare = replace(job, stack=Stack(name="mine", features=Features(settable=())))
    assert (plan(job).status, plan(bare).status) == ("optimal", "infeasible")
    roomy = plan(replace(bare, gpus=4))
    assert roomy.knobs == Knobs()
    assert roomy.plan
    assert all(finding.holds for finding in rule_findings(bare, roomy.plan, Knobs()) if finding.name == "knobs")
    moved = rule_findings(bare, roomy.plan, Knobs(offload=0.5))
    assert [finding.name for finding in moved if not finding.holds and finding.name == "knobs"] == ["knobs"]


def test_any_asks_for_no_software_and_says_what_would_have_to_be_built() -> None:
    stack = aimed(Stack(name="mine", features=Features(recompute_by="all layers", schedules=("1f1b",))), "any")
    assert stack.features.recompute_by == "stage"
    assert unbuilt(stack, Plan(pp=2, recompute="full", recompute_layers=(1, 0))) == (
        "would have to be built: recomputation of another number of layers on each stage",
    )
    assert unbuilt(stack, Plan(pp=2, vpp=2, schedule="interleaved")) == (
        "would have to be built: the schedule interleaved",
    )
    assert unbuilt(stack, Plan(pp=2, layers_per_stage=(2, 1))) == ()
    even = replace(stack, features=Features(uneven_stages=False))
    assert unbuilt(aimed(even, "any"), Plan(pp=2, layers_per_stage=(2, 1))) != ()


def test_the_command_keeps_to_its_target(tmp_path: Path) -> None:
    folder = tmp_path / "launch"
    found = CliRunner().invoke(cli, [*SMALL, "--target", "megatron-lm", "--json", "--export", str(folder)])
    assert found.exit_code == 0
    assert json.loads(found.stdout)["job"]["stack"] == "megatron-core@megatron-lm"
    names = {
        "megatron.args",
        "megatron-nccl.json",
        "megatron.sbatch",
        "megatron-pytorchjob.yaml",
        "megatron-skypilot.yaml",
    }
    assert {path.name for path in folder.iterdir()} == names


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "megatron"), "did you mean megatron-lm?"),
        (("--target", "torchtitan", "--device", "tpu-v5e"), "does not run on tpu-v5e (Google)"),
    ],
)
def test_a_target_that_cannot_be_is_one_message(options: tuple[str, ...], words: str) -> None:
    found = CliRunner().invoke(cli, [*SMALL, *options])
    assert found.exit_code == 2
    assert words in found.stderr


def test_pipelines_of_torchtitan_reduce_gradients_once_whatever_prices_them() -> None:
    assert aimed(load_stack("megatron-core"), "torchtitan").features.reduces_once
    assert not aimed(load_stack("megatron-core"), "megatron-lm").features.reduces_once
