"""Small words of configs and logs: resolvers, names, keys that are taken out, and lines of MLPerf."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.config.file import RESOLVERS, ConfigFile, _interpolated
from optimizer.frameworks.config.toml_edit import toml_changed
from optimizer.frameworks.litgpt.log import steps_of
from optimizer.frameworks.log_line import LogLine
from optimizer.frameworks.machines import batch_options
from optimizer.frameworks.megatron.kubernetes import dns_name
from optimizer.frameworks.mlperf.log import in_steps, read
from optimizer.frameworks.shape import _with_own, filled
from optimizer.frameworks.torchtitan.config import clash
from optimizer.frameworks.torchtune.export import FILES
from optimizer.frameworks.tuning.program import adapters
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.price import price

TOML = "top = 1\n\n[a]\nx = 2\ny = 3\n\n[a.b]\nz = 4\n"


@pytest.mark.parametrize(
    ("name", "one", "other", "value"),
    [
        ("multiply", 6, 4, 24),
        ("divide", 7, 2, 3),
        ("divide_floor", 7, 2, 3),
        ("divide_ceil", 7, 2, 4),
        ("divide_ceil", 8, 2, 4),
        ("add", 6, 4, 10),
        ("subtract", 6, 4, 2),
    ],
)
def test_resolvers_calculate_as_they_are_called(name: str, one: int, other: int, value: int) -> None:
    assert RESOLVERS[name](one, other) == value


@pytest.mark.parametrize(
    ("name", "said"), [("a" * 40, "a" * 40), ("a" * 41, "a" * 40), ("-A.b-", "a-b"), ("__", "model")]
)
def test_names_of_kubernetes_have_forty_characters(name: str, said: str) -> None:
    assert dns_name(name) == said


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("a.x", 5, {"top": 1, "a": {"x": 5, "y": 3, "b": {"z": 4}}}),
        ("a.x", None, {"top": 1, "a": {"y": 3, "b": {"z": 4}}}),
        ("a.b.z", None, {"top": 1, "a": {"x": 2, "y": 3, "b": {}}}),
        ("a.new", True, {"top": 1, "a": {"x": 2, "y": 3, "new": True, "b": {"z": 4}}}),
        ("c.d", "e", {"top": 1, "a": {"x": 2, "y": 3, "b": {"z": 4}}, "c": {"d": "e"}}),
        ("c.d", None, {"top": 1, "a": {"x": 2, "y": 3, "b": {"z": 4}}}),
        ("a.none", None, {"top": 1, "a": {"x": 2, "y": 3, "b": {"z": 4}}}),
        ("top", 2, {"top": 2, "a": {"x": 2, "y": 3, "b": {"z": 4}}}),
    ],
)
def test_a_key_of_toml_comes_changes_or_goes_alone(path: str, value: Any, expected: dict[str, Any]) -> None:
    assert tomllib.loads(toml_changed(TOML, path, value)) == expected


def test_what_is_no_table_takes_no_key() -> None:
    with pytest.raises(InputError, match=r"a\.x is no table to write deep in"):
        toml_changed(TOML, "a.x.deep", 1)


@pytest.mark.parametrize(
    ("key", "value", "read_as"),
    [
        ("train_loss", "2.5", (64, 9.5, 2.5)),
        ("tracked_stats", '{"reduced_train_loss": 2.5}', (64, 9.5, 2.5)),
        ("tracked_stats", '{"throughput": 2.5}', None),
        ("eval_accuracy", '{"reduced_train_loss": 2.5}', None),
        ("tracked_stats", '{"reduced_train_loss": 2.5, "reward": 1}', None),
    ],
)
def test_losses_of_mlperf_are_those_of_training(key: str, value: str, read_as: tuple[int, float, float] | None) -> None:
    line = f':::MLLOG {{"time_ms": 9500, "key": "{key}", "value": {value}, "metadata": {{"samples_count": 64}}}}'
    found = read(line)
    assert (found and (found.step, found.elapsed)) == (read_as and read_as[:2])


def test_steps_of_mlperf_are_sequences_over_the_batch() -> None:
    lines = [LogLine(facts={"global_batch": "32"}), LogLine(step=64, elapsed=9.5), LogLine(step=128, elapsed=19.5)]
    found = in_steps(lines)
    assert [(line.step, line.elapsed) for line in found[1:] if line] == [(2, 0.0), (4, 10.0)]
    assert in_steps(lines[1:]) == [None, None]


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ({"hidden": 1024}, 4096),
        ({"hidden": 1024, "gated_mlp": True}, 2688),  # two thirds of 4,096 in whole multiples of 64
        ({"hidden": 4096, "gated_mlp": True}, 10_880),
        ({"hidden": 1024, "gated_mlp": True, "ffn_hidden": 3000}, 3000),
    ],
)
def test_a_width_that_is_left_out_keeps_the_operations_of_an_mlp(settings: dict[str, Any], width: int) -> None:
    values = filled({"layers": 2, "heads": 16, **settings})
    assert (values["ffn_hidden"], values["kv_heads"]) == (width, 16)
    assert values["head_dim"] == settings["hidden"] // 16


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("#SBATCH -N 4\n", {"nodes": "4"}),
        ("#SBATCH --nodes=12 --gres=gpu:a100:8\n", {"nodes": "12", "gpus_per_node": "8"}),
        ("#PBS -l select=32:ncpus=8:ngpus=4\n", {"nodes": "32", "gpus_per_node": "4"}),
    ],
)
def test_what_a_batch_script_asks_for_is_known_with_its_place(text: str, asked: dict[str, str]) -> None:
    found = batch_options(text.encode())
    assert {name: str(found[name][0]) for name in asked} == asked
    for name, number in asked.items():
        ((start, end),) = found[name][2].sites
        assert text[start:end] == number


@pytest.mark.parametrize(
    ("dp", "said"), [(1, "tune run full"), (2, "tune run --nproc_per_node 2 full"), (8, "node 8 ")]
)
def test_torchtune_starts_a_process_for_each_of_several_gpus(dp: int, said: str) -> None:
    job = Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=aimed(load_stack("torchtune"), "torchtune"),
        gpus=dp,
        seq_len=2048,
        global_batch=8,
        train="full",
        optimizer="adamw",
    )
    plan = Plan(dp=dp, num_microbatches=8 // dp, zero_stage=3 if dp > 1 else 0)
    costs = price(job.with_limits(hbm=1e15), Plans.of([plan]))
    estimate = costs.estimate(0, job.tokens, job.gpus, 1e15)
    answer = Answer(status="optimal", job=job.with_limits(hbm=1e15), plan=plan, estimate=estimate)
    assert said in FILES.files["torchtune.sh"](answer)


def test_a_preset_has_what_the_launch_says_otherwise() -> None:
    dense, mixture = load_model("llama3-8b"), load_model("mixtral-8x7b")
    same = {"vocab": dense.vocab, "norm": dense.norm, "max_seq_len": dense.max_seq_len}
    assert _with_own(dense, same) is dense
    changed = _with_own(dense, {**same, "vocab": 1000, "mtp_layers": 1, "max_seq_len": 2 * dense.max_seq_len})
    assert changed == replace(dense, vocab=1000, mtp_layers=1, max_seq_len=2 * dense.max_seq_len)
    assert _with_own(dense, {"max_seq_len": 16}) is dense
    assert mixture.experts is not None
    routed = _with_own(mixture, {"router_bias": True}).experts
    assert routed == replace(mixture.experts, router_bias=True)
    assert _with_own(dense, {"router_bias": True}) is dense


def test_steps_of_litgpt_that_are_printed_seldom_take_as_many_micro_batches_as_each_has() -> None:
    lines = [LogLine(step=step, micro_batch=8 * step, seconds=0.25) for step in (2, 4, 8)]
    assert [found.seconds for found in steps_of(lines) if found] == [2.0, 2.0, 2.0]
    odd = [LogLine(step=2, micro_batch=16, seconds=0.25), LogLine(step=2, micro_batch=16, seconds=0.5)]
    assert [found.seconds for found in steps_of(odd) if found] == [2.0, 0.5]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        *(("multiply:3,2", 6), ("multiply:3,2,2", 12), ("multiply:true,2", None), ("multiply:a,2", None)),
        *(("multiply:3", None), ("divide:3,0", None), ("oc.env:A,5", "5"), ("oc.env:A", ""), ("unknown", None)),
        *(("b", 7), (".b", 8), ("x.b", 7)),
    ],
)
def test_what_a_reference_stands_for(body: str, value: object) -> None:
    assert _interpolated(body, {"b": 7, "a.b": 8}, "a.c", {}, 0) == value


def test_a_text_that_is_not_of_its_format_is_no_whole_file() -> None:
    assert [ConfigFile("a.toml", text, "toml").whole for text in (TOML, "top = ")] == [True, False]


def test_adapters_are_scaled_by_twice_their_rank(gpt3_job: Job) -> None:
    assert adapters(replace(gpt3_job, train="lora:16"), "r", target_modules="all-linear") == {
        "r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "target_modules": "all-linear",
    }
    assert adapters(gpt3_job, "r", target_modules="all-linear") == {}


def test_a_sharding_degree_that_is_no_number_of_ranks_is_what_others_leave() -> None:
    degrees = {"data_parallel_replicate_degree": 4, "tensor_parallel_degree": 2}
    for shard, clashes in ((0, True), (-1, True), (1, True), (2, False)):
        values = {
            f"parallelism.{key}": value for key, value in (degrees | {"data_parallel_shard_degree": shard}).items()
        }
        assert bool(clash(values, 8)) is clashes
