from pathlib import Path

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.calibration.rows.cluster import network_bandwidth
from optimizer.calibration.rows.device import device_name
from optimizer.calibration.rows.numbers import number_problems
from optimizer.calibration.runs import read_runs
from optimizer.calibration.validation import validate
from optimizer.calibration.validation_report import refusals
from optimizer.catalog import load_device

SHORT = "model,gpu,gpus,micro_batch,global_batch,step_time_s\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_csv_is_enough(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, SHORT + "llama3-8b,H100-SXM,64,1,256,5.1\n"))
    assert run.job is not None
    assert run.plan is not None
    assert (run.job.model.name, run.job.cluster.device.name, run.job.gpus) == ("llama3-8b", "h100", 64)
    assert (run.plan.dp, run.plan.num_microbatches, run.job.global_batch) == (64, 4, 256)
    assert run.step_time == 5.1
    assert "stack megatron-core for blank" in run.assumed


def test_the_stack_of_a_row_is_used_and_an_unknown_one_is_said(tmp_path: Path) -> None:
    text = "stack," + SHORT + "nemo-2024,llama3-8b,H100,8,1,64,1\n" + "homemade,llama3-8b,H100,8,1,64,1\n"
    known, unknown = read_runs(written(tmp_path, text))
    assert known.stack_name == "nemo-2024"
    assert unknown.stack_name == "megatron-core"
    assert "stack megatron-core for homemade" in unknown.assumed


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile) as raised:
        read_runs(written(tmp_path, "name,step_time_s\na,1\n"))
    assert "column gpu is missing" in str(raised.value)
    assert "column gpus is missing" in str(raised.value)
    assert "column model" in str(raised.value)


def test_an_empty_file_a_folder_and_bytes_are_no_csv(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(256)))
    for path in (written(tmp_path, ""), tmp_path, tmp_path / "absent.csv", binary):
        with pytest.raises(InvalidFile):
            read_runs(path)


def test_every_wrong_number_of_a_row_is_named(tmp_path: Path) -> None:
    text = "tp," + SHORT + "2.5,llama3-8b,H100,eight,1,-4,nan\n"
    (run,) = read_runs(written(tmp_path, text))
    assert run.job is None
    for part in (
        "gpus must be a whole number of at least 1, but got 'eight'",
        "tp must be a whole number of at least 1, but got '2.5'",
        "global_batch must be a whole number of at least 1, but got '-4'",
        "step_time_s must be a positive number, but got 'nan'",
    ):
        assert part in run.refused


def test_blank_cells_are_no_wrong_numbers() -> None:
    assert number_problems({"tp": "", "gpus": "8.0", "step_time_s": "1e-3"}) == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("unheard-of,H100,8,1,64,1", "no preset"),
        ("llama3-8b,abacus,8,1,64,1", "not a known device"),
        ("llama3-8b,H100,8,1,,1", "no global_batch"),
        ("bert-large,H100,8,1,64,1", ""),
    ],
)
def test_a_row_that_cannot_be_priced_says_why_and_the_others_stay(tmp_path: Path, row: str, reason: str) -> None:
    runs = read_runs(written(tmp_path, f"{SHORT}{row}\nllama3-8b,H100,8,1,64,1\n"))
    assert runs[0].job is None
    assert reason in runs[0].refused
    assert runs[0].refused
    assert runs[1].job is not None


def test_degrees_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, "tp,pp," + SHORT + "3,1,llama3-8b,H100,8,1,64,1\n"))
    assert "does not divide 8 GPUs" in run.refused


@pytest.mark.parametrize(
    ("cells", "ranks", "micro_batches"),
    [("2,4,64", 4, 4), (",4,32", 4, 4), ("2,,16", 4, 1), (",,8", 4, 1), (",,32", 1, 1), (",,96", 1, 3)],
)
def test_ranks_that_share_a_sequence_in_any_way_are_those_that_the_batch_leaves(
    tmp_path: Path, cells: str, ranks: int, micro_batches: int
) -> None:
    """32 GPUs / (global batch / (micro-batch x micro-batches)), at least one."""
    text = "notes,model,gpu,gpus,step_time_s,recompute,micro_batch,grad_accum,global_batch\n"
    (run,) = read_runs(written(tmp_path, text + f"tp*cp*pp = grad_accum*gpus,llama3-8b,H100-SXM,32,5,full,{cells}\n"))
    assert run.plan is not None
    assert run.job is not None
    assert (run.plan.tp * run.plan.cp, run.plan.dp * ranks) == (ranks, 32)
    assert run.plan.num_microbatches * run.plan.micro_batch == micro_batches * int(cells.partition(",")[0] or 1)
    assert run.job.global_batch == int(cells.rpartition(",")[2])
    assert f"tp {run.plan.tp}, cp {run.plan.cp}" in run.assumed


def test_every_cell_of_a_row_is_of_its_job_or_its_plan(tmp_path: Path) -> None:
    """64 GPUs / (TP 2 x PP 4) = 8 replicas, of 2 x 12 samples; 32 GPUs / (TP 2 x CP 2) = 8 of 1 x 2."""
    cells = {
        **{"model": "mixtral-8x7b", "gpu": "H100-SXM", "gpus": "64", "seq_len": "2048", "hbm_gib": "60", "tp": "2"},
        **{"pp": "4", "vpp": "2", "ep": "4", "etp": "2", "micro_batch": "2", "global_batch": "192", "step_time_s": "9"},
        **{
            "recompute": "full",
            "recompute_first": "3",
            "seq_parallel": "on",
            "ep_overlap": "on",
            "stack": "megatron-core",
        },
    }
    other = cells | {"model": "llama3-8b", "gpus": "32", "cp": "2", "pp": "1", "vpp": "1", "hbm_gib": "", "seq_len": ""}
    other |= {"micro_batch": "1", "global_batch": "16", "recompute": "selective", "seq_parallel": "off"}
    rows = [",".join({"cp": "", **row}.values()) for row in (cells, {"cp": other.pop("cp"), **other})]
    run, dense = read_runs(written(tmp_path, "\n".join([",".join(["cp", *cells]), *rows]) + "\n"))
    assert run.job is not None
    assert run.plan is not None
    assert dense.job is not None
    assert dense.plan is not None
    job, plan = run.job, run.plan
    assert (job.gpus, job.seq_len, job.global_batch, job.limits.hbm) == (64, 2048, 192, 60 * 2**30)
    assert (plan.tp, plan.cp, plan.pp, plan.vpp, plan.dp, plan.ep, plan.etp) == (2, 1, 4, 2, 8, 4, 2)
    assert (plan.micro_batch, plan.num_microbatches, plan.schedule) == (2, 12, "interleaved")
    assert (plan.recompute, plan.recompute_first, plan.sequence_parallel, plan.overlap_exchange) == (
        "full",
        3,
        True,
        True,
    )
    job, plan = dense.job, dense.plan
    assert (job.gpus, job.seq_len, job.global_batch, job.limits.hbm) == (32, 4096, 16, 0.0)
    assert (plan.tp, plan.cp, plan.pp, plan.vpp, plan.dp, plan.ep, plan.etp) == (2, 2, 1, 1, 8, 4, 1)
    assert (plan.micro_batch, plan.num_microbatches, plan.schedule) == (1, 2, "1f1b")
    assert (plan.recompute, plan.recompute_first, plan.sequence_parallel, plan.overlap_exchange) == (
        *("selective", 0, False, False),
    )


def test_out_of_memory_rows_need_no_time(tmp_path: Path) -> None:
    text = "status," + SHORT + "oom,llama3-8b,H100,8,8,64,\nok,llama3-8b,H100,8,1,64,2\nerror,llama3-8b,H100,8,1,64,\n"
    failed, fitted, unknown = read_runs(written(tmp_path, text))
    assert (failed.out_of_memory, fitted.out_of_memory, unknown.out_of_memory) == (True, False, None)
    assert failed.step_time is None


def test_rows_with_too_many_cells_are_read(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, SHORT + "llama3-8b,H100,8,1,64,1,more,and more\n"))
    assert run.job is not None


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("", 0.0),
        ("InfiniBand 8x400 Gbit/s per node", 50.0),
        ("8x400Gb/s", 50.0),
        ("8 × 400G RoCE", 50.0),
        ("ConnectX-7 400G x8", 50.0),
        ("32x 100Gb/s EFA per node", 50.0),
        ("3.2 Tb/s EFA per node", 50.0),
        ("InfiniBand 8x50 GB/s", 50.0),
        ("2x 200Gb/s per GPU", 50.0),
        ("1600 Gbps RoCE", 25.0),
        ("4x EDR per node", 6.25),
        ("400 Gb/s per GPU", 50.0),
        ("Omni-Path node", 1.5625),
    ],
)
def test_network_bandwidth(text: str, gigabytes: float) -> None:
    assert network_bandwidth(text, 8) / 1e9 == pytest.approx(gigabytes)


@pytest.mark.parametrize(
    ("printed", "memory", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "", "h100"),
        ("H100-SXM5-80GB", "", "h100"),
        ("H100 PCIe", "", "h100-pcie"),
        ("NVIDIA GB200 NVL72", "", "gb200"),
        ("Tesla V100-SXM2-32GB", "", "v100-32"),
        ("NVIDIA A100-SXM4-40GB", "", "a100-40"),
        ("A100", "40", "a100-40"),
        ("NVIDIA GeForce RTX 4090", "", "rtx-4090"),
        ("AMD Instinct MI355X OAM", "", "mi355x"),
        ("TPU v6e (Trillium)", "", "tpu-v6e"),
        ("TPU v5 lite", "", "tpu-v5e"),
        ("Ironwood", "", "tpu-v7"),
        ("TPU7x", "", "tpu-v7"),
        ("Trainium2", "", "trainium2"),
    ],
)
def test_devices_as_vendors_write_them(printed: str, memory: str, name: str) -> None:
    assert load_device(device_name(printed, memory)).name == name


def test_an_unknown_device_is_told_with_what_comes_near() -> None:
    with pytest.raises(InputError, match="'RTX 4080' is not a known device; did you mean rtx4090"):
        device_name("RTX 4080")


def test_cores_that_a_slice_is_named_after_are_two_to_a_chip(tmp_path: Path) -> None:
    text = SHORT + "llama3-8b,TPU v5p-128,128,1,64,1\nllama3-8b,TPU v5p-128,64,1,64,1\nllama3-8b,TPU v6e-64,64,1,64,1\n"
    cores, chips, one = read_runs(written(tmp_path, text))
    assert [run.job.gpus for run in (cores, chips, one) if run.job] == [64, 64, 64]
    assert "64 chips of two cores each" in cores.assumed
    assert [run.stack_name for run in (cores, chips, one)] == ["maxtext"] * 3


def test_a_stack_of_another_year_is_the_same_software(tmp_path: Path) -> None:
    text = "stack," + SHORT + "megatron-core-2023,llama3-8b,H100,8,1,64,1\nnanotron-2025,llama3-8b,H100,8,1,64,1\n"
    assert [run.stack_name for run in read_runs(written(tmp_path, text))] == ["megatron-core", "nanotron"]


def test_a_stack_named_by_software_and_year_is_that_release(tmp_path: Path) -> None:
    names = ("trl-2026", "axolotl-2026", "torchtitan-2025", "torchtitan-2026", "llama-factory-2024")
    text = "stack," + SHORT + "".join(f"{name},llama3-8b,H100,8,1,64,1\n" for name in names)
    runs = read_runs(written(tmp_path, text))
    assert [run.stack_name for run in runs] == ["trl", "axolotl", "torchtitan-2025", "torchtitan", "llama-factory-2023"]
    assert [run.job.stack.features.loss_chunks for run in runs if run.job] == [4096, 1, 1, 8, 1]


@pytest.mark.parametrize("recompute", ["", "custom"])
def test_a_policy_that_says_nothing_is_the_faster_one(tmp_path: Path, recompute: str) -> None:
    """What a mixture keeps on the host of 32 GB/s moves longer than computing it again."""
    text = "stack,recompute,ep," + SHORT + f"maxtext-2025,{recompute},1,deepseek-v3,TPU v7,128,16,2048,27\n"
    (run,) = read_runs(written(tmp_path, text))
    assert run.plan is not None
    assert run.plan.recompute == "full"


@pytest.mark.parametrize("model", ["CodeLlama 13B", "OpenLlama 3B"])
def test_a_dense_model_that_ends_in_a_is_no_mixture(tmp_path: Path, model: str) -> None:
    header = "model,gpu,gpus,micro_batch,global_batch,step_time_s,layers,hidden,heads\n"
    (run,) = read_runs(written(tmp_path, header + f"{model},H100,8,1,64,1,26,3200,32\n"))
    assert run.job is not None
    assert (run.job.model.experts, run.job.model.gated_mlp) == (None, True)


def test_pretraining_for_mlperf_is_no_lora(tmp_path: Path) -> None:
    text = "stack,table," + SHORT + "mlperf-nemo-v5.1,llama31_8b,llama3-8b,B200,8,2,16,1\n"
    text += "mlperf-nemo-v5.1,llama2_70b_lora,llama3-8b,B200,8,2,16,1\n"
    text += "mlperf-amd-nemo-v5.1,llama31_8b,llama3-8b,MI355X,8,2,16,1\n"
    stacks = [run.stack_name for run in read_runs(written(tmp_path, text))]
    assert stacks == ["mlperf-tuned", "mlperf-lora-2025", "primus-2025"]


def test_modules_and_expert_tensor_ranks_are_read(tmp_path: Path) -> None:
    text = "tp,ep,etp,recompute," + SHORT + '2,4,2,"selective:norm,act",mixtral-8x7b,H100,16,1,64,1\n'
    (run,) = read_runs(written(tmp_path, text))
    assert run.plan is not None
    assert (run.plan.ep, run.plan.etp, run.plan.recompute) == (4, 2, "layernorm+moe_act")


def test_equal_reasons_are_counted_together(tmp_path: Path) -> None:
    text = SHORT + "".join(f"{name},H100,8,1,64,1\n" for name in ("unheard-of", "unknown-7b", "llama3-8b"))
    lines = refusals(validate(read_runs(written(tmp_path, text))))
    assert lines == ["2 × model … is no preset and the row has no layers, hidden, heads: 'unheard-of', 'unknown-7b'"]


def test_an_exchange_that_a_row_says_overlaps_is_a_matter_of_its_plan(tmp_path: Path) -> None:
    """Whatever the stack hides by itself: a row that names it has what its plan has, and no more."""
    path = tmp_path / "runs.csv"
    head = "model,gpu,gpus,ep,pp,vpp,micro_batch,global_batch,step_time_s,ep_overlap,stack\n"
    rows = ("on,megatron-bridge-2025", "off,megatron-bridge-2025", ",megatron-bridge-2025")
    path.write_text(head + "".join(f"qwen3-30b-a3b,H100,64,16,2,2,1,64,5,{row}\n" for row in rows), encoding="utf-8")
    found = [(run.plan, run.job) for run in read_runs(path)]
    assert [plan and plan.overlap_exchange for plan, _ in found] == [True, False, False]
    assert [job and job.stack.features.overlap_exchange for _, job in found] == [False, False, True]


def test_a_step_of_one_micro_batch_is_as_long_as_its_tokens_take(tmp_path: Path) -> None:
    """8 ranks x 4 sequences x 4,096 tokens at 1,024 tokens/s and rank: 16 s."""
    columns = "model,gpu,gpus,tp,pp,seq_len,micro_batch,global_batch,step_time_s,tokens_per_s_per_gpu\n"
    rows = "llama3-8b,H100,16,2,1,4096,4,,,512\n" + "llama3-8b,H100,16,1,2,4096,4,,,512\n"
    alone, piped = read_runs(written(tmp_path, columns + rows))
    assert alone.job is not None
    assert (alone.job.global_batch, alone.step_time) == (32, pytest.approx(16.0))
    assert {"global_batch 32", "step time from throughput"} <= set(alone.assumed)
    # A pipeline has several micro-batches, how many the row does not say: 32 on 8 ranks are assumed, and not judged by.
    assert piped.job is not None
    assert (piped.job.global_batch, piped.step_time) == (8 * 4 * 32, pytest.approx(8 * 4 * 32 * 4096 / 512 / 16))
    assert piped.doubted == "it names no global_batch"


def test_a_mixture_of_unknown_expert_parallelism_is_refused(tmp_path: Path) -> None:
    columns = "model,gpu,gpus,tp,ep,pp,micro_batch,global_batch,step_time_s\n"
    rows = "deepseek-v3,H100,1024,2,,8,1,8192,20\n" + "deepseek-v3,H100,1024,2,64,8,1,8192,20\n"
    blank, named = read_runs(written(tmp_path, columns + rows))
    assert blank.refused == "the row has no ep, which decides how long a MoE model takes"
    assert named.job is not None


def test_two_micro_batches_are_none(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, SHORT + "llama3-8b,H100,64,2 or 3,256,5.1\n"))
    assert run.job is not None
    assert run.doubted == "it names no micro_batch"


def test_a_step_of_unknown_tokens_is_not_judged_by(tmp_path: Path) -> None:
    columns = SHORT.strip() + ",notes\n"
    (run,) = read_runs(written(tmp_path, columns + "llama3-8b,H100,64,1,256,5.1,packed so tokens per step unknown\n"))
    assert run.doubted == "its source does not say how many tokens a step has"


def test_what_a_stack_is_taken_for_has_not_its_intervals(tmp_path: Path) -> None:
    text = (
        "stack,recompute,"
        + SHORT
        + "\n".join(f"{name},none,llama3-8b,H100,8,1,64,1" for name in ("nemo-2025", "homemade", ""))
        + "\n"
    )
    later, unknown, unsaid = validate(read_runs(written(tmp_path, text))).rows
    for row, words in ((later, ()), (unknown, ("stack homemade is not fitted to measured runs",)), (unsaid, ())):
        assert row.interval is not None
        assert tuple(reason for reason in row.interval.reasons if "is not fitted" in reason) == words
    assert unknown.step_time == unsaid.step_time


def test_fsdp_keeps_weights_whole_under_a_pipeline(tmp_path: Path) -> None:
    columns = "id,stack,model,seq_len,gpu,gpus,tp,pp,sharding,micro_batch,global_batch,step_time_s\n"
    rows = "a,torchtitan-2024,llama3.1-405b,8192,H100,512,8,8,3 (FSDP2),1,256,41\n"
    rows += "b,torchtitan-2024,llama3-8b,8192,H100,8,1,1,3 (FSDP2),1,8,2\n"
    piped, alone = read_runs(written(tmp_path, columns + rows))
    assert piped.plan is not None
    assert alone.plan is not None
    assert (piped.plan.zero_stage, alone.plan.zero_stage) == (1, 3)


def test_fsdp2_in_the_notes_shards_weights(tmp_path: Path) -> None:
    text = SHORT.rstrip() + ",notes\n" + "llama3-8b,H100,8,1,64,1,FSDP2 over 8\nllama3-8b,H100,8,1,64,1,\n"
    sharded, usual = read_runs(written(tmp_path, text))
    assert sharded.plan is not None
    assert usual.plan is not None
    assert (sharded.plan.zero_stage, usual.plan.zero_stage) == (3, 1)


def test_a_step_of_maxtext_is_one_micro_batch_under_the_faster_policy(tmp_path: Path) -> None:
    """16 sequences a chip; queries, keys and values of DeepSeek-V3, kept on the host, would take longer to move."""
    columns = "model,gpu,gpus,seq_len,global_batch,step_time_s,dtype,stack,recompute\n"
    rows = "deepseek-v3,TPU7x,256,4096,4096,20,bf16,maxtext,\n" + "mixtral-8x22b,TPU7x,64,4096,1024,20,bf16,maxtext,\n"
    sparse, named = read_runs(written(tmp_path, columns + rows))
    assert sparse.plan is not None
    assert named.plan is not None
    assert [(run.plan.micro_batch, run.plan.num_microbatches) for run in (sparse, named) if run.plan] == [(16, 1)] * 2
    assert (sparse.plan.recompute, named.plan.recompute) == ("full", "selective")
    assert "full recomputation, the faster policy" in sparse.assumed
    assert sparse.doubted == "it names no micro_batch"


def test_what_ran_has_fitted_where_the_software_is_unknown(tmp_path: Path) -> None:
    """70B over 256 chips of 32 GB: two sequences a chip, of 80 layers without recomputation, are far more than that."""
    columns = "model,gpu,gpus,seq_len,micro_batch,global_batch,step_time_s,stack,recompute,status,sharding\n"
    row = "llama3-70b,TPU v6e,256,4096,2,512,9.5,{},{},{},FSDP\n"
    cases = [("torchprime-2025", "", "ok"), ("torchprime-2025", "none", "ok"), ("torchprime-2025", "", "oom")]
    runs = read_runs(written(tmp_path, columns + "".join(row.format(*case) for case in cases)))
    assert [run.plan.recompute for run in runs if run.plan] == ["full", "none", "none"]
    assert "full recomputation, without which it does not fit" in runs[0].assumed


def test_torchtitan_has_cudnn_on_blackwell_but_for_flex_attention(tmp_path: Path) -> None:
    text = "stack," + SHORT
    text += "torchtitan-2026,llama3-8b,B200,8,1,8,1\ntorchtitan-2026,llama3-8b,H100,8,1,8,1\n"
    text += "torchtitan-2024,llama3-8b,B200,8,1,8,1\n"
    text += "torchtitan-2026,llama4-scout,B200,8,1,8,1\n"
    kernels = [run.job.stack.features.attention for run in read_runs(written(tmp_path, text)) if run.job]
    assert kernels == ["flash3", "flash", "flash", "flash"]


@pytest.mark.parametrize(
    ("ep", "said", "overlapped", "dispatcher"),
    [(8, "on", True, "deepep"), (8, "ON", True, "deepep"), (8, "", False, "deepep"), (1, "on", False, "alltoall")],
)
def test_experts_of_one_rank_exchange_nothing(
    ep: int, said: str, overlapped: bool, dispatcher: str, tmp_path: Path
) -> None:
    columns = "stack,ep,ep_overlap,dispatcher," + SHORT
    text = columns + f"megatron-bridge-2025,{ep},{said},deepep,mixtral-8x7b,H100,64,1,256,5.1\n"
    (run,) = read_runs(written(tmp_path, text))
    assert run.plan is not None
    assert (run.plan.overlap_exchange, run.plan.dispatcher) == (overlapped, dispatcher)


def test_offloaded_activations_are_all_there_and_no_other_state_is(tmp_path: Path) -> None:
    columns = "offload," + SHORT
    kept, unknown = read_runs(
        written(tmp_path, columns + "activations,gpt3,H100,64,1,256,5.1\noptimizer,gpt3,H100,64,1,256,5.1\n")
    )
    assert kept.plan is not None
    assert kept.plan.activation_offload == 100
    assert "is no state that rows can name" in unknown.refused
