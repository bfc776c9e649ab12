"""Models, clusters, runs and several files of a visitor's own: one launch, carried in the address, never a path."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError, OptimizerError
from optimizer.commands.own_runs import with_own_runs
from optimizer.page.improve.question import LaunchQuestion
from optimizer.page.improve.view import improve_view
from optimizer.page.plan.own_files import FILE, LARGEST, kind_of, packed, unpacked
from optimizer.page.plan.question import PlanQuestion, asked
from optimizer.page.plan.views.answer import answer_view

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
CLUSTER = """name = "mine"
device = "h100"
gpus_per_node = 8
[[tiers]]
name = "node"
link = "nvlink4"
size = 8
[[tiers]]
name = "network"
bandwidth_one_way = "200 Gb/s"
"""
RUNS = """model,gpu,gpus,tp,pp,micro_batch,global_batch,seq_len,recompute,dtype,step_time_s
llama3-8b,H100,64,1,1,1,256,8192,none,bf16,5.2
"""
ZERO = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}
ACCELERATE = "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 16\nmixed_precision: bf16\n"


def body(*files: tuple[str, str]) -> bytes:
    return json.dumps({"pasted": files}).encode()


def question(found: dict[str, str]) -> PlanQuestion:
    """What it asks on the Plan tab."""
    return asked(parse_qsl(found["plan"]))


@given(st.text(max_size=2000))
def test_a_text_is_the_same_behind_the_address(text: str) -> None:
    assert unpacked("model", packed(text)) == text


@pytest.mark.parametrize("damaged", ["!!", "AAAA", packed("x" * 50)[:-4], packed("x" * (LARGEST + 1))])
def test_a_damaged_or_huge_file_in_an_address_is_one_message(damaged: str) -> None:
    with pytest.raises(InputError, match=r"model file (in the address is damaged|has more than)"):
        asked([("model", FILE), ("model_file", damaged)])


def test_a_name_without_its_file_is_told() -> None:
    with pytest.raises(InputError, match="cluster=file needs the file"):
        asked([("cluster", FILE)])


def test_a_model_and_a_cluster_become_the_question_and_its_link() -> None:
    found = improve_view(
        LaunchQuestion(plan="gpus=64"), body(("config.json", json.dumps(MODEL)), ("my cluster.toml", CLUSTER))
    )
    asks = question(found)
    job, _ = asks.job()
    assert (job.model.layers, job.model.hidden, job.cluster.name, job.gpus) == (24, 2048, "mine", 64)
    assert asks.flags() == "optimize --model ./model.json --gpus 64 --cluster ./cluster.toml --trials 0"
    assert asked(parse_qsl(asks.address())) == asks
    assert len(asks.address()) < 1000


def test_several_files_are_one_launch() -> None:
    launch = (("ds.json", json.dumps(ZERO)), ("accelerate.yaml", ACCELERATE))
    asks = question(improve_view(LaunchQuestion(), body(*launch, ("config.json", json.dumps(MODEL)))))
    assert (asks.model, asks.gpus, asks.global_batch) == (FILE, 16, 64)
    assert "zero_stage=2" in asks.mine[0]
    chosen = question(improve_view(LaunchQuestion(model="llama3-8b"), body(*launch)))
    assert (chosen.model, chosen.gpus) == ("llama3-8b", 16)
    with pytest.raises(InputError, match=r"the model is not told: give --model .*the fields Model"):
        improve_view(LaunchQuestion(), body(*launch))


def test_a_description_that_cannot_be_used_says_why_and_names_no_folder() -> None:
    for text, why in (
        (CLUSTER.replace("h100", "/etc/passwd"), "passwd"),
        (CLUSTER.replace("8", "-8"), "above|least|-8"),
    ):
        with pytest.raises(InputError, match=why) as told:
            improve_view(LaunchQuestion(), body(("cluster.toml", text)))
        assert "/tmp" not in str(told.value)
    assert kind_of(json.dumps(ZERO)) == ""


def test_files_are_bounded() -> None:
    with pytest.raises(InputError, match="9 files are more than"):
        improve_view(LaunchQuestion(), body(*[("a.sh", "x")] * 9))
    with pytest.raises(InputError, match="were pasted: at most"):
        improve_view(LaunchQuestion(), body(*[("a.sh", "x" * 1_000_000)] * 3))
    with pytest.raises(InputError, match="16,000 bytes"):
        improve_view(LaunchQuestion(), body(("cluster.toml", CLUSTER + "# " + "x" * LARGEST)))


def test_runs_of_my_own_are_known_to_the_plan_and_leave_no_path(tmp_path: Path) -> None:
    before = improve_view(LaunchQuestion(plan="model=llama3-8b&gpus=64"), RUNS.encode())
    asks = question(before)
    assert "--gpus 64 --runs ./runs.csv" in asks.flags()
    job, _ = asks.job()
    assert (job.own_runs.files, job.own_runs.runs) == ("runs.csv", 1)
    path = tmp_path / "runs.csv"
    path.write_text(RUNS)
    assert job.own_runs.sha256 == with_own_runs(replace(job, own_runs=None), str(path)).own_runs.sha256
    shown = answer_view(asks)["answer"]
    assert '<p id="own-runs">Your 1 run: ' in shown
    assert "own-runs" not in answer_view(asked([("model", "llama3-8b"), ("gpus", "64")]))["answer"]
    without = [(name, value) for name, value in parse_qsl(before["plan"]) if name != "runs"]
    assert asked(without).address() == "model=llama3-8b&gpus=64"


@pytest.mark.parametrize(
    ("text", "told"), [("step_time_s,x\n1,2\n", "column gpus is missing"), (RUNS.partition("\n")[0], "none of 0 rows")]
)
def test_a_table_that_says_nothing_of_runs_is_told(text: str, told: str) -> None:
    with pytest.raises(OptimizerError, match=told):
        asked([("runs", FILE), ("runs_file", packed(text))]).job()


UNTIMED = "\n".join(f"step={step}, skipped=0, lr=[5e-05], mom=[[0.9, 0.999]]" for step in range(20))
NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": ["import torch"]}], "nbformat": 4})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.bin", "PK\0\0torchrun", "a binary file"),
        ("a.png", "\ufffdPNG" + "\ufffd" * 40, "a binary file"),
        ("page.html", "\n<!DOCTYPE html>\n<html><body>torchrun</body>", "a web page"),
        ("", "<html>\ntorchrun train.py", "a web page"),
        ("train.ipynb", NOTEBOOK, "a notebook"),
        ("a.sh", "a=(\n" * 2001, r"a\.sh: 1 problem\n.*2,000 arrays"),
        ("runs.csv", "model,gpu,gpus,step_time_s\n", "no row"),
    ],
)
def test_what_is_no_launch_is_told_by_its_kind(name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as told:
        improve_view(LaunchQuestion(), body((name, text)))
    assert "/tmp" not in str(told.value)


def test_an_empty_file_beside_another_is_told() -> None:
    with pytest.raises(InputError, match=r"run\.log: nothing is in it"):
        improve_view(LaunchQuestion(), body(("run.sh", "torchrun train.py"), ("run.log", " \n")))


def test_a_log_without_times_asks_no_question_of_another_model() -> None:
    assert improve_view(LaunchQuestion(), body(("run.log", UNTIMED)))["plan"] == ""
    assert "llama3-8b" in improve_view(LaunchQuestion(model="llama3-8b"), body(("run.log", UNTIMED)))["plan"]
