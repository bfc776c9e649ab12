"""Rows whose times contradict their columns are read as the times allow, and say so."""

from pathlib import Path

from optimizer.calibration.row_corrections import CORRECTIONS, corrected
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import stack_names

COLUMNS = (
    "source,table,stack,model,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,micro_batch,global_batch,"
    "recompute,attention_kernel\n"
)


def read(folder: Path, table: str) -> Run:
    path = folder / "runs.csv"
    shape = "GPT,24,2048,16,51200,1024,A100,2,2,4,32,full,native"
    path.write_text(f"{COLUMNS}vTrain: data,{table},megatron-deepspeed-2022,{shape}\n", encoding="utf-8")
    (run,) = read_runs(path)
    assert run.refused == ""
    return run


def test_one_node_runs_recompute_nothing_and_fuse_nothing(tmp_path: Path) -> None:
    run = read(tmp_path, "MICRO24 ground truth single")
    assert run.plan is not None
    assert run.job is not None
    assert (run.plan.recompute, run.job.stack.features.attention) == ("none", "unfused")
    assert run.stack_name == "megatron-deepspeed-unfused-2022"
    assert run.row["recompute"] == "full"
    assert any("beyond the peak" in said for said in run.assumed)


def test_runs_on_many_nodes_have_a_fused_softmax(tmp_path: Path) -> None:
    run = read(tmp_path, "MICRO24 ground truth multi")
    assert run.plan is not None
    assert run.job is not None
    assert (run.plan.recompute, run.job.stack.features.attention) == ("full", "fused_softmax")
    assert run.stack_name == "megatron-deepspeed-2022"


def test_other_rows_stay_as_they_are() -> None:
    said: list[str] = []
    row = {"source": "somebody", "table": "ground truth single", "recompute": "full"}
    assert corrected(row, said) is row
    assert said == []


def test_corrections_name_stacks_that_exist() -> None:
    assert {c.columns["stack"] for c in CORRECTIONS if "stack" in c.columns} <= set(stack_names())


def test_a_step_without_the_weights_that_are_handed_on_after_it() -> None:
    said: list[str] = []
    row = {"source": "github:PrimeIntellect-ai/prime-rl@559b447", "model": "Qwen3-30B-A3B", "gpu": "H100"}
    found = corrected(row | {"step_time_s": "42.8844", "tokens_per_s_per_gpu": "764.1"}, said)
    assert (found["step_time_s"], found["tokens_per_s_per_gpu"]) == ("8.1739", "")
    assert any("handed on" in text for text in said)
    adapters = row | {"step_time_s": "7.9198"}
    assert corrected(adapters, said) is adapters


def test_rows_on_v5p_take_the_batch_and_the_recomputation_of_their_recipe(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "source,stack,model,seq_len,gpu,gpus,tp,global_batch,step_time_s\n"
        "github:AI-Hypercomputer/tpu-recipes@c8cfe2f,maxtext,DeepSeek-V3,4096,TPU v5p,512,1,6144,90.668\n"
        "github:AI-Hypercomputer/tpu-recipes@c8cfe2f,maxtext,DeepSeek-V3,4096,TPU v5p,256,1,6144,90.668\n",
        encoding="utf-8",
    )
    told, other = read_runs(path)
    assert told.plan is not None
    assert told.job is not None
    assert (told.plan.micro_batch, told.plan.recompute, told.job.seq_len) == (6, "full", 8192)
    assert (told.doubted, other.doubted) == ("", "it names no micro_batch")
    assert told.job.tokens == 6144 * 4096


def test_a_note_is_added_to_those_of_the_row() -> None:
    row = {"source": "Megatron-MoE-ModelZoo", "gpu": "GB200", "dtype": "mxfp8", "notes": "offload expert_fc1"}
    assert corrected(row, [])["notes"].startswith("offload expert_fc1; cuda_graph_impl=")


def test_memory_used_of_the_device_is_read_in_its_unit(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "source,source_ref,stack,model,seq_len,gpu,gpus,ep,micro_batch,global_batch,step_time_s,mem_gb\n"
        "github:AMD-AGI/Primus@fd1eeab,DeepSeekV2Lite_tks_memory_mi355.png,primus-2025,deepseek-v2-lite,4096,MI355X,8,8,"
        "1,768,36.6,80.8\n",
        encoding="utf-8",
    )
    (run,) = read_runs(path)
    assert run.memory == 80.8 * 2**30
    assert run.memory_kind.startswith("used of the device")


def test_a_step_that_is_eight_has_the_batch_and_the_time_of_one() -> None:
    row = {"source": "Hagemann 2023", "table": "llama_13B_bfloat16_64_GPUs_all_runs", "global_batch": "2048.0"}
    said: list[str] = []
    found = corrected(row | {"attention_kernel": "flash2", "step_time_s": "72.8"}, said)
    assert (found["global_batch"], found["step_time_s"]) == ("256.0", "9.1")
    assert any("drain eight times" in text for text in said)
    older = row | {"attention_kernel": "flash1(1.0.8)", "step_time_s": "44.7"}
    assert corrected(older, said) is older


def test_older_tables_of_a_source_ran_on_an_older_release() -> None:
    row = {"source": "mosaicml/llm-foundry:README.md", "table": "A100 80GB"}
    assert corrected(row, [])["notes"] == "torch 1.13"
    newer = row | {"table": "A100 80GB with 1600 Gbps node-node interconnect (RoCE)"}
    assert corrected(newer, []) is newer
