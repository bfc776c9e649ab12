"""Two hundred inputs, and every input that was once a bug; `python -m tests.fuzz.run 20000` tries more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.readers.test_damage import DATA
from tests.frameworks.launches import DEEPSPEED, TORCHTITAN
from tests.fuzz.doors import DOORS, Door
from tests.fuzz.run import tried, trouble
from tests.thorough import cases

INPUTS = cases(2000, sample=120)
BY_NAME = {door.name: door for door in DOORS}
LONG = "9" * 5000
MPT = "name: mpt_causal_lm\n  d_model: 4096\n  n_heads: 32\n  n_layers: 32\n  vocab_size: 50368\n"
# Each of these once left its door as something else than an answer or one message.
FOUND = (
    ("yaml", f"variables:\n  max_seq_len: 1e400\nmodel:\n  {MPT}  max_seq_len: ${{variables.max_seq_len}}\n"),
    ("yaml", f"general:\n  seed: 0\nmodel:\n  ddp_bucket_cap_mb: {'1' + '0' * 400}\n"),
    ("torchtitan.toml", TORCHTITAN.replace("context_parallel_degree = 1", "context_parallel_degree = nan")),
    ("torchtitan.toml", TORCHTITAN.replace("context_parallel_degree = 1", "context_parallel_degree = inf")),
    ("deepspeed.json", DEEPSPEED.replace('"stage": 3', '"stage": -1e400')),
    ("bash", "A=x\n" + "A=$A$A$A$A\n" * 40 + "torchrun pretrain_gpt.py --num-layers $A\n"),
    ("bash", "python3 -m MaxText.train configs/base.yml model_name=llama3-8b dcn_data_parallelism=1__0\n"),
    (
        "log",
        "Training epoch 0, iteration 0/999 | global_batch_size: 1e400 | global_step: 0 | train_step_timing in s: 1.0\n",
    ),
    ("log", "Training epoch 0, iteration 0/9 | global_step: 1" + "0" * 400 + " | train_step_timing in s: 1.0\n"),
    ("bash", f"OUT=${LONG}\ntorchrun pretrain_gpt.py --num-layers 4 --hidden-size x --seq-length 8\n"),
    ("bash", f"#!/bin/bash\n#SBATCH --nodes={LONG}\ntorchrun pretrain_gpt.py --num-layers 4\n"),
    ("verl", f"python3 -m verl.trainer.main_ppo --config-path=c --config-name={LONG}\n"),
    ("nccl.txt", "all_reduce_perf\n# size count type time busbw #wrong\n1" + "0" * 400 + " 1 float 1.0 1.0 0\n# Avg\n"),
    ("nccl.json", '{"version": 2, "config": {"nthreads": 1e400, "ngpus": 1}, "results": [{"size": 1e400}]}'),
    ("cluster.toml", 'name = "x"\ntiers = []\ndevice = {name = "chip", like = "", memory = "64 GB"}\n'),
    ("options", ["--model", "llama3-8b", "--gpus", LONG]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--fix", LONG]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--fix", f"tp={LONG}"]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--seed", "-1"]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--seed", LONG]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--time-limit", "nan"]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--routing", "nan"]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--set", "layers=" + "[" * 5000]),
    ("options", ["--model", "a\0b", "--gpus", "8"]),
    ("options", ["--model", "x\ud800", "--gpus", "8"]),
    ("options", ["--model", "/dev/zero", "--gpus", "8"]),
    ("options", ["--model", "", "--gpus", "8"]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--export", "x" * 300]),
    ("trial", ["trial", "--model", "llama3-8b", "--gpus", "8", "--out", LONG]),
    ("prices", ["prices", "--prices", "\0"]),
    ("prices", ["prices", "--prices", "/dev/zero"]),
    ("presets", ["presets", "show", "gpt3", "x" * 5000]),
    ("scaling", ["scaling", "--model", "llama3-8b", "--gpus", f"8,{LONG}"]),
    ("scaling", ["scaling", "--model", "llama3-8b", "--gpus", "8,²"]),
    ("batch show", ["batch", "show", "--store", "://"]),
    ("batch show", ["batch", "show", "--store", ""]),
    ("batch show", ["batch", "show", "1" + "0" * 400]),
    ("batch show", ["batch", "show", "--store", "a\0b"]),
    ("answer", '{"schema_version": 1, "status": "optimal", "plan": ' + "[" * 5000 + "}"),
    ("model.toml", "x = " + "[" * 5000),
    ("deepspeed.json", "[" * 200 + "]" * 200),
    *(
        (name, text)
        for name in ("model.toml", "torchtitan.toml", "pasted")
        for text in (
            f"{'a.' * 60_000}a = 1\n",
            f"layers = 4\nx = {{ {'a . ' * 60_000}a = 1}}\n",
            f"[{'b.' * 60_000}b]\n",
        )
    ),
    ("/plan", ("plan", [("optimizer", "muon")])),
    ("/plan", ("plan", [("train", '"')])),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--train", "lora:²"]),
    ("options", ["--model", "llama3-8b", "--gpus", "8", "--train", f"lora:{LONG}"]),
    ("quotes.csv", "device,term,value,unit,date\nh100,on_demand,2,USD/h,2026-02-31\n"),
    ("quotes.csv", f"device,term,value,unit,sold\nh100,on_demand,2,USD/h,{LONG}\n"),
    ("quotes.csv", "x" * 140_000),
    ("topo", (DATA / "topo_h100.txt").read_text().replace("NV18", f"NV{LONG}")),
    *(("bash", 60_000 // len(part) * part) for part in ("1|", "a |\n", "<", "(DP=", "a=(\n", "<<E\n")),
)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_no_input_is_met_with_anything_but_an_answer_or_one_message(door: Door) -> None:
    inputs = -(-INPUTS // len(DOORS) // door.cost)
    count, found = tried(door, inputs, 0)
    assert count > inputs // 2
    assert not found, "\n".join(found.values())


@pytest.mark.parametrize(("door", "value"), FOUND)
def test_what_was_found_stays_mended(door: str, value: object) -> None:
    assert not trouble(BY_NAME[door], value)


def test_trouble_would_be_seen() -> None:
    from tests.fuzz.doors import read

    def wrong(_: Path) -> object:
        raise ZeroDivisionError("x")

    door = BY_NAME["topo"]
    seen = trouble(Door(name="wrong", inputs=door.inputs, enter=read(wrong, "x")), "x")
    assert seen.startswith("ZeroDivisionError")
    nan = trouble(Door(name="nan", inputs=door.inputs, enter=read(lambda _: [float("nan")], "x")), "x")
    assert "NaN" in nan
