"""What the controls of the Plan tab offer, reckoned by hand for jobs of known sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.page.plan.controls import form_values, locks, steps
from optimizer.page.plan.question import asked


def powers(first: int, last: int) -> list[int]:
    """From one power of two to another."""
    return [2**power for power in range(first, last + 1)]


def choices(model: str, gpus: int) -> dict[str, list[int]]:
    job, _ = asked([("model", model), ("gpus", str(gpus))]).job()
    degrees = ("tp", "cp", "ep", "etp", "pp", "vpp", "dp", "micro_batch")
    return {lock.name: [int(text) for text in lock.choices] for lock in locks(job, None, {}) if lock.name in degrees}


def test_a_lock_offers_divisors_and_powers_of_two() -> None:
    """GPT-3: 96 layers, 2,048 tokens and 2,048 at least for a rank; Mixtral: 8 experts, 32 layers, 8,192 tokens."""
    dense, mixture = choices("gpt3", 64), choices("mixtral-8x7b", 48)
    assert dense["pp"] == sorted({*(n for n in range(1, 97) if 96 % n == 0), *powers(0, 6)})
    assert mixture["dp"] == sorted({*(n for n in range(1, 49) if 48 % n == 0), *powers(0, 5)})
    assert (dense["tp"], dense["dp"], mixture["pp"]) == (powers(0, 3), powers(0, 6), powers(0, 5))
    assert (dense["cp"], mixture["cp"]) == ([1], powers(0, 2))
    assert (mixture["ep"], mixture["etp"]) == (powers(0, 3), powers(0, 3))
    assert dense["vpp"] == dense["micro_batch"] == powers(0, 4)


def test_many_choices_are_powers_of_two_alone() -> None:
    """55,440 has 120 divisors and 12 more powers of two below it; 3,072 has 22, and 64 choices are few enough."""
    assert choices("gpt3", 55440)["dp"] == powers(0, 15)
    assert len(choices("gpt3", 3072)["dp"]) == 22 + 1  # 2,048 does not divide it
    divisors = [n for n in range(1, 10081) if 10080 % n == 0]
    assert choices("gpt3", 10080)["dp"] == powers(0, 13)
    assert len({*divisors, *powers(0, 13)}) > 64


def test_a_lock_offers_what_the_software_can() -> None:
    job, _ = asked([("model", "gpt3"), ("gpus", "64")]).job()
    features = replace(job.stack.features, zero_stages=(0, 3), piped_zero_stages=(1,), schedules=("1f1b", "dualpipe"))
    found = {
        lock.name: lock.choices for lock in locks(replace(job, stack=replace(job.stack, features=features)), None, {})
    }
    assert (found["sequence_parallel"], found["zero_stage"]) == (("true", "false"), ("0", "1", "3"))
    assert (found["schedule"], found["recompute"]) == (("1f1b", "dualpipe"), job.stack.features.recompute)


def test_sliders_stop_at_powers_of_two_and_where_they_stand() -> None:
    job, _ = asked([("model", "gpt3"), ("gpus", "48")]).job()
    assert steps(job)["gpus"] == sorted({*powers(0, 17), 48})
    small = replace(job, cluster=replace(job.cluster, max_gpus=64))
    assert steps(small)["gpus"] == sorted({*powers(0, 6), 48})
    assert steps(job)["seq_len"] == powers(9, 20)
    assert steps(replace(job, seq_len=300))["seq_len"] == [300, *powers(9, 20)]


@pytest.mark.parametrize(
    ("batch", "stops"), [(1, powers(0, 4)), (6, [3, 6, 12, 24, 48, 96]), (96, [6, 12, 24, 48, 96, 192, 384, 768, 1536])]
)
def test_batches_are_doubled_and_halved_four_times_while_they_are_whole(batch: int, stops: list[int]) -> None:
    job, _ = asked([("model", "gpt3"), ("gpus", "64"), ("global_batch", str(batch))]).job()
    assert steps(job)["global_batch"] == stops


def test_the_form_shows_what_is_in_force_and_keeps_ranges_in_the_text() -> None:
    question = asked([("gpus", "64"), ("fix", "tp=8,pp=2..8,vpp=1,2"), ("global_batch", "96"), ("tokens", "1.5e12")])
    form = form_values(question, None, None)
    assert form["inforce"] == {"gpus": 64, "global_batch": 96, "seq_len": ""}
    assert form["stops"] == {"gpus": [], "global_batch": [], "seq_len": []}
    assert (form["locked"], form["fix"], form["tokens"]) == ([("tp", "8")], "pp=2..8,vpp=1,2", "1500e9")
    found = form_values(question, {"gpus": 64, "seq_len": 2048}, {"gpus": (32, 64)})
    assert found["inforce"] == {"gpus": 64, "global_batch": 96, "seq_len": 2048}
    assert found["stops"] == {"gpus": [32, 64], "global_batch": [], "seq_len": []}
