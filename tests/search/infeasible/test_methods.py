"""Lighter ways of training: which are tried of a job, with which software, batch, sequences and switches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.search.infeasible.methods import by_way, lighter_jobs, shorter_jobs, switched_jobs

JOB = Job(
    model=load_model("llama3.1-8b"),
    cluster=load_cluster("rtx-4090"),
    stack=load_stack("megatron-core"),
    gpus=2,
    seq_len=2048,
    global_batch=32,
)
ADAPTERS = replace(JOB, train="lora", stack=load_stack("hf-2026"))


def test_every_lighter_way_comes_with_the_software_and_the_batch_it_takes() -> None:
    """Nothing accumulates where weights are updated in the backward pass: 2 GPUs take 2 sequences each at once."""
    ways = [[(options, job.stack.name, job.global_batch) for options, job in way] for way in lighter_jobs(JOB)]
    assert ways == [
        [],
        *(
            [(f"{option}{switch}", "hf-2026", 32) for switch in ("", " --fix liger=on")]
            for option in ("--optimizer adamw-8bit", "--optimizer paged-adamw-8bit")
        ),
        [("--optimizer paged-adamw-8bit:in-backward --global-batch 4", "torchtune-2024", 4)],
        *(
            [(f"{option}{switch}", "hf-2026", 32) for switch in ("", " --fix liger=on")]
            for option in ("--train lora", "--train qlora")
        ),
    ]
    small = replace(JOB, global_batch=2)
    assert [options for way in lighter_jobs(small) for options, job in way if job.stack.name == "torchtune-2024"] == [
        "--optimizer paged-adamw-8bit:in-backward"
    ]


def test_lighter_ways_are_those_of_one_node() -> None:
    node = JOB.cluster.gpus_per_node
    whole, more = replace(JOB, gpus=node), replace(JOB, cluster=load_cluster("dgx-h100"), gpus=9)
    assert len(list(lighter_jobs(whole))) == 6
    assert not list(lighter_jobs(more))


def test_a_way_keeps_software_that_somebody_chose_and_weights_that_it_can_read() -> None:
    chosen = replace(JOB, stack=load_stack("nemo-2024"))
    assert by_way(chosen, "lora", "").stack == chosen.stack
    assert by_way(ADAPTERS, "lora", "").stack == ADAPTERS.stack
    based = replace(ADAPTERS, base="int8")
    assert by_way(based, "lora", "lion").base == "int8"
    assert by_way(based, "qlora", "").base == ""


@pytest.mark.parametrize(
    ("seq_len", "shorter"),
    [(512, []), (513, [512]), (1024, [512]), (1025, [1024, 512]), (4096, [2048, 1024, 512]), (8191, [4096, 2048])],
)
def test_sequences_are_cut_to_powers_of_two_down_to_512(seq_len: int, shorter: list[int]) -> None:
    jobs = list(shorter_jobs(replace(ADAPTERS, seq_len=seq_len)))
    lengths = list(dict.fromkeys(job.seq_len for _, job in jobs))
    assert lengths[: len(shorter)] == shorter
    assert lengths[-1:] in ([512], [])
    assert [options for options, _ in jobs] == [
        f"--seq-len {length}{switch}" for length in lengths for switch in ("", " --fix liger=on")
    ]
    assert not list(shorter_jobs(replace(JOB, seq_len=seq_len)))


def test_a_switch_is_tried_in_its_other_states_unless_it_was_set() -> None:
    ((option, on),) = switched_jobs(ADAPTERS, "--train lora ")
    assert option == "--train lora --fix liger=on"
    assert on.stack.features.loss_chunks != ADAPTERS.stack.features.loss_chunks
    assert [option for option, _ in switched_jobs(on)] == ["--fix liger=off"]
    assert not list(switched_jobs(replace(ADAPTERS, settings=("stack.loss_chunks=1",))))
    assert list(switched_jobs(replace(ADAPTERS, settings=("stack.gemm_efficiency=0.5",))))
