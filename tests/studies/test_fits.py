"""What fits: each method as it is priced, the longest context at its border, the smallest card that does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.hardware import load_device
from optimizer.cli import cli
from optimizer.job.job import Job
from optimizer.job.method import WAYS
from optimizer.reports.report import Table
from optimizer.studies.fits import STEP, best_fit, fits, longest_context, smallest_card
from optimizer.studies.fits_report import fits_report

JOB = Job(
    model=load_model("llama3.1-8b"),
    cluster=load_cluster("rtx-4090"),
    stack=load_stack("megatron-core"),
    gpus=1,
    seq_len=2048,
    global_batch=16,
)
QLORA = replace(JOB, train="qlora")

# All weights and adapters, of optimizers that accumulate alike.
ALIKE = [way for way in WAYS if "backward" not in way[1]][:4]


def test_less_that_is_trained_takes_less_memory() -> None:
    reserved = [best_fit(replace(JOB, train=train, optimizer=optimizer)).reserved for train, optimizer in ALIKE]
    assert reserved == sorted(reserved, reverse=True)
    assert best_fit(QLORA).fits
    assert not best_fit(JOB).fits


def test_the_fastest_that_fits_is_slower_under_a_limit() -> None:
    free, tight = best_fit(QLORA), best_fit(QLORA.with_limits(hbm=18e9))
    assert tight.fits
    assert tight.reserved < free.reserved
    assert tight.tokens_per_second <= free.tokens_per_second


def test_the_longest_context_is_the_last_that_fits() -> None:
    longest = longest_context(QLORA)
    assert longest % STEP == 0
    assert best_fit(replace(QLORA, seq_len=longest)).fits
    assert not best_fit(replace(QLORA, seq_len=longest + STEP)).fits
    assert longest_context(JOB) == 0


def test_the_smallest_card_fits_and_no_smaller_one_does() -> None:
    name = smallest_card(JOB)
    memory = load_device(name).memory
    assert best_fit(_on(name)).fits
    smaller = [other for other in ("h100", "a100-80", "l40s") if load_device(other).memory < memory]
    assert smaller
    assert not any(best_fit(_on(other)).fits for other in smaller)
    assert smallest_card(replace(QLORA, gpus=8, seq_len=2**20)) == ""


def _on(device: str) -> Job:
    return replace(JOB, cluster=replace(JOB.cluster, device=load_device(device)))


def test_pins_are_obeyed_and_those_that_leave_nothing_are_refused() -> None:
    pinned = JOB.with_limits(fixed={"micro_batch": 2, "recompute": "full"})
    assert best_fit(replace(pinned, train="qlora")).plan.micro_batch == 2
    with pytest.raises(InputError, match="no plan of data parallelism alone"):
        best_fit(JOB.with_limits(fixed={"tp": 2}))
    with pytest.raises(InputError, match="15 sequences do not divide over 2 GPUs"):
        fits(replace(JOB, gpus=2, global_batch=15))


def test_the_command_names_every_method_and_one_that_is_asked() -> None:
    words = ["fits", "--model", "llama3.2-1b", "--device", "rtx-4090", "--context", "2048"]
    everything = CliRunner().invoke(cli, words)
    assert everything.exit_code == 0
    assert everything.output.count("2,048 ") >= len(WAYS)
    one = CliRunner().invoke(cli, [*words, "--train", "lora:8", "--csv"])
    assert [line.split(",")[0] for line in one.output.splitlines()] == ["train", "lora:8"]


def test_a_method_is_told_up_to_the_first_length_at_which_it_does_not_fit() -> None:
    report = fits_report(fits(JOB, lengths=(2048, 65_536, 131_072), methods=(("full", ""), ("qlora", ""))))
    contexts, plans = (part for each in report.sections for part in each.blocks if isinstance(part, Table))
    assert [row[:2] for row in contexts.rows] == [("full", 2048), ("qlora", 2048), ("qlora", 65_536)]
    assert [row[:2] for row in plans.rows] == [("qlora", 2048)]


def test_a_switch_is_taken_where_nothing_fits_without_it() -> None:
    lora = replace(JOB, train="lora", stack=load_stack("hf-2026"))
    as_it_is, switched = (best_fit(replace(lora, seq_len=length)) for length in (512, 8192))
    assert (as_it_is.fits, as_it_is.switched) == (True, "")
    assert (switched.fits, switched.switched) == (True, "--fix liger=on")
    pinned = replace(lora, seq_len=8192, settings=("stack.loss_chunks=1",))
    assert not best_fit(pinned).fits
    assert longest_context(pinned) < 8192 <= longest_context(lora)


def test_inputs_of_recomputed_layers_go_to_the_host_where_the_software_can() -> None:
    long = replace(QLORA, seq_len=16_384, stack=load_stack("hf-2026"))
    assert best_fit(long).plan.activation_offload == 100
    own = long.stack.features
    kept = replace(long, stack=replace(long.stack, features=replace(own, hosted_checkpoints=False)))
    assert best_fit(kept).reserved > best_fit(long).reserved
