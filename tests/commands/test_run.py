"""Hours and dollars of a whole run, beside its plan."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

pytestmark = pytest.mark.usefixtures("planned_once")
QLORA = ["--model", "llama3.1-8b", "--gpus", "1", "--device", "rtx-4090", "--train", "qlora", "--seq-len", "2048"]


def said(*words: str, code: int = 0) -> str:
    """What a command prints."""
    result = CliRunner().invoke(cli, [*QLORA, *words])
    assert result.exit_code == code, result.output
    return result.output


def test_a_run_is_charged_by_its_steps() -> None:
    answer = json.loads(said("--tokens", "50M", "--json"))
    run, job = answer["run"], answer["job"]
    training = 50e6 / (job["seq_len"] * job["global_batch"]) * answer["estimate"]["step_time_s"]
    assert run["tokens"] == 50e6
    assert training <= run["wall_s"] < 1.05 * training  # failures and checkpoints
    assert run["cost_usd"] == pytest.approx(0.74 * run["wall_s"] / 3600)  # one card, though its host has eight


def test_samples_are_documents_seen_so_often() -> None:
    once, thrice = (json.loads(said("--samples", "50k", *more, "--json")) for more in ((), ("--epochs", "3")))
    assert once["run"]["tokens"] == 50_000 * 2048
    assert thrice["run"]["tokens"] == 3 * once["run"]["tokens"]
    short = json.loads(said("--samples", "50k", "--lengths", "512", "--json"))
    assert short["run"]["tokens"] == 50_000 * 512


def test_the_short_answer_has_what_people_set_and_pay() -> None:
    lines = said("--samples", "50k", "--epochs", "3", "--lengths", "p50:400,p95:1500").splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    assert {"step", "rate", "peak", "run", "rent"} <= set(names)
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100


def test_a_run_said_twice_or_by_half_is_refused() -> None:
    assert "a run is --tokens" in said("--epochs", "3", code=2)
    assert "a run is --tokens" in said("--tokens", "1M", "--samples", "50k", code=2)


def test_sequences_and_batch_of_fine_tuning_are_told() -> None:
    told = " ".join(CliRunner().invoke(cli, [*QLORA[:-2], "--explain"]).output.split())
    assert "sequences of 2,048 tokens, what LLaMA-Factory and Unsloth take unasked (--seq-len)" in told
    assert "global batch of 16 sequences, 16 for each GPU" in told


def test_documents_that_are_longer_than_a_sequence_are_told() -> None:
    told = " ".join(said("--lengths", "p50:400,p95:4000", "--explain").split())
    assert "of documents that are longer than a sequence are cut (--lengths)" in told
    idle = " ".join(said("--packing", "on", "--explain").split())
    assert "nothing of --packing on: documents are as long as a sequence (--lengths)" in idle


def test_what_fits_with_a_switch_alone_is_planned_with_it() -> None:
    """LoRA of 8B on a card of 24 GB, at a length whose logits alone take half of it."""
    words = ["--model", "llama3.1-8b", "--gpus", "1", "--device", "rtx-4090", "--train", "lora", "--seq-len", "8192"]
    found = CliRunner().invoke(cli, [*words, "--json"])
    answer = json.loads(found.stdout)
    assert found.exit_code == 0
    assert any("liger=on, without which no plan fits" in line for line in answer["assumptions"])
    assert CliRunner().invoke(cli, [*words, "--fix", "liger=off"]).exit_code == 3


def test_a_switch_with_which_steps_are_faster_is_told() -> None:
    """Less what somebody set, and by what it gains."""
    faster = [
        (words, json.loads(said(*words, "--json"))) for words in ((), ("--fix", "liger=on"), ("--fix", "liger=off"))
    ]
    told = [[flag for flag in answer["flags"] if "liger=on" in flag] for _, answer in faster]
    times = [answer["estimate"]["step_time_s"] for _, answer in faster]
    assert [len(flags) for flags in told] == [1, 0, 0]
    assert f"{times[0] / times[1] - 1:.0%} more tokens a second" in told[0][0]


def test_a_sample_of_a_comparing_loss_is_a_pair() -> None:
    pairs = json.loads(said("--samples", "10k", "--loss", "dpo", "--json"))
    assert pairs["job"]["loss"] == "dpo"
    assert pairs["run"]["tokens"] == 10_000 * 2 * 2048
    assert pairs["plan"]["micro_batch"] % 2 == 0
    assert "must be one of sft, dpo" in said("--loss", "dppo", code=2)
