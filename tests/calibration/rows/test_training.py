"""What rows say of fine-tuning: methods, bases, optimizers, lengths, throughput, memory of several cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.calibration.groups import method
from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.validation import validate
from optimizer.calibration.validation_report import validation_report
from optimizer.catalog import load_stack
from optimizer.reports.render.screen import screen_text

HEAD = "id,stack,model,gpu,gpus,seq_len,micro_batch,grad_accum,recompute,method,"
ROW = "a,hf-2026,llama3.1-8b,L40S,1,2048,1,8,full,lora,"


def read(tmp_path: Path, columns: str, *cells: str, row: str = ROW) -> list[Run]:
    path = tmp_path / "runs.csv"
    path.write_text(HEAD + columns + "\n" + "".join(f"{row}{each}\n" for each in cells), encoding="utf-8")
    return read_runs(path)


def test_a_row_says_what_is_trained_and_how_the_rest_is_stored(tmp_path: Path) -> None:
    (run,) = read(tmp_path, "adapter_rank,adapter_targets,base_precision,step_time_s", "8,q_proj v_proj,bnb.nf4-dq,3.0")
    assert run.job is not None
    assert run.plan is not None
    assert (run.job.method.rank, run.job.method.targets, run.job.method.base) == (8, ("q", "v"), "nf4")
    assert (run.plan.num_microbatches, run.job.global_batch, method(run)) == (8, 8, "lora")


def test_other_methods_and_objectives_are_refused_by_name(tmp_path: Path) -> None:
    rows = [read(tmp_path, "step_time_s", "3.0", row=ROW.replace("lora", name))[0] for name in ("vera", "full dpo")]
    assert rows[0].refused.startswith("method 'vera' is none of full, lora")
    assert rows[1].refused == "the objective dpo has passes or models that no job has"


def test_a_rate_is_a_step_time(tmp_path: Path) -> None:
    columns = "samples_per_s,tokens_per_s,tokens_per_s_scope"
    runs = read(tmp_path, columns, "4,,", ",4096,all GPUs", ",4096,per GPU", ",4096,not stated")
    assert [run.step_time for run in runs] == [2.0, 4.0, 4.0, None]


def test_memory_is_in_its_unit_and_of_one_card(tmp_path: Path) -> None:
    columns = "mem_gb,mem_unit,mem_kind,step_time_s"
    cells = "10,GiB,max reserved,1", "10,GB,sum over the GPUs,1"
    runs = read(tmp_path, columns, *cells, row=ROW.replace("L40S,1", "L40S,2"))
    assert [run.memory for run in runs] == [10 * 2**30, 5e9]


def test_padded_samples_take_the_longest_and_packed_ones_a_sequence(tmp_path: Path) -> None:
    padded, packed = read(
        tmp_path, "seq_kind,document_tokens,step_time_s", 'variable,"p0:9,p100:900",1', "packed,300,1"
    )
    assert padded.job is not None
    assert packed.job is not None
    assert (padded.job.seq_len, padded.job.packing) == (900, "off")
    assert (packed.job.seq_len, packed.job.packing) == (2048, "on")


def test_weights_on_the_host_are_refused(tmp_path: Path) -> None:
    (run,) = read(tmp_path, "offload,step_time_s", "weights cpu,1")
    assert "weights cpu" in run.refused


def test_ranks_of_a_sequence_are_dealt_as_they_are_fastest(tmp_path: Path) -> None:
    """8 micro-batches of 8 GPUs for 8 samples: eight ranks have one sample between them."""
    row = "a,mlperf-lora-2024,llama2-70b,H100,8,8192,1,8,none,lora,"
    (run,) = read(tmp_path, "global_batch,step_time_s,notes", "8,4.0,tp*cp*pp = grad_accum*gpus", row=row)
    assert run.plan is not None
    assert run.plan.tp * run.plan.cp == 8
    assert run.plan.dp == 1


def test_the_report_has_time_and_memory_by_method(tmp_path: Path) -> None:
    rows = [f"{ROW}3.0,20,max reserved", f"{ROW.replace('lora', 'full').replace('a,', 'b,', 1)}4.0,60,max reserved"]
    path = tmp_path / "runs.csv"
    path.write_text(HEAD + "step_time_s,mem_gb,mem_kind\n" + "\n".join(rows) + "\n", encoding="utf-8")
    validation = validate(read_runs(path))
    by_method = {score.name: score for score in validation.by("method")}
    assert set(by_method) == {"full", "lora"}
    assert all(score.memory and score.memory.runs == 1 for score in by_method.values())
    text = screen_text(validation_report(validation, "runs.csv"))
    assert "By method" in text


@pytest.mark.parametrize("stack", ["transformers", "torchtune", "unsloth", "litgpt", "ms-swift", "llama-factory"])
def test_software_is_named_by_its_family(stack: str) -> None:
    assert load_stack(stack).runs > 0
