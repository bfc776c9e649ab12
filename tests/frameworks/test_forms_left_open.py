"""Forms in which a launch leaves to a site, a checkpoint or a default what it trains, each in the fewest lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.patch import patched
from optimizer.improve.state import current_state, edit_to, state_of
from tests.frameworks import launches
from tests.frameworks.test_fresh_forms import NEOX, TUNE
from tests.frameworks.test_launches import question

GRID = """#!/bin/bash
#$ -l {resource}
#$ -l h_rt=7:00:00:00
if [[ "$SGE_RESOURCE_TYPE" == "rt_F" ]]; then
  GPUS=4
else
  GPUS=8
fi
mpirun -np $((NHOSTS * GPUS)) --npernode $GPUS python pretrain_gpt.py --num-layers 80 --hidden-size 8192 \\
  --ffn-hidden-size 28672 --num-attention-heads 64 --swiglu --normalization RMSNorm --use-rotary-position-embeddings \\
  --untie-embeddings-and-output-weights --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \\
  --global-batch-size 1024 --bf16 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 {more}
"""
CHECKPOINT = "--use-checkpoint-args --load /ckpt/{name}/tp4-pp4"
UNPACKED = "sequences without packing are full and one document each"
TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[compile]
enable = true
"""
SWIFT = "NPROC_PER_NODE=8 megatron sft --load {load} --micro_batch_size 1 --global_batch_size 8 --max_length 8192"


def read(name: str, text: str, gpus: int | None = None) -> Launch:
    return read_launch([File(name, text.encode())], gpus).launch


@pytest.mark.parametrize(
    ("resource", "asked"),
    [
        ("rt_AF=8", {"gpus": 64, "nodes": 8, "gpus_per_node": 8, "device": "a100-40"}),
        ("rt_F=16", {"gpus": 64, "nodes": 16, "gpus_per_node": 4, "device": "v100-16"}),
    ],
)
def test_grid_engine_counts_the_nodes_of_a_resource(resource: str, asked: dict[str, Any]) -> None:
    settings = read("run.sh", GRID.format(resource=resource, more="")).settings
    assert {name: settings[name] for name in asked} == asked


@pytest.mark.parametrize(
    ("name", "model", "unpriced"),
    [("Llama-2-70b-hf", "llama2-70b", 0), ("Llama-2-7b-hf", None, 1), ("mine", None, 1)],
)
def test_a_checkpoint_says_the_model_where_its_arguments_count(name: str, model: str | None, unpriced: int) -> None:
    launch = read("run.sh", GRID.format(resource="rt_AF=8", more=CHECKPOINT.format(name=name)))
    assert (launch.settings.get("model"), len(launch.unpriced)) == (model, unpriced)


@pytest.mark.parametrize(("method", "count", "named"), [("uniform", 4, 1), ("uniform", 1, 0), ("block", 4, 0)])
def test_layers_that_are_recomputed_together_are_named(method: str, count: int, named: int) -> None:
    words = f"--recompute-granularity full --recompute-method {method} --recompute-num-layers {count}"
    assert len(read("run.sh", GRID.format(resource="rt_AF=8", more=words)).unsearched) == named


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tune.yaml", TUNE),
        ("axolotl.yaml", "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\nsequence_len: 4096\nbf16: true\n"),
        ("sft.yaml", f"{launches.TRAINER}stage: sft\nfinetuning_type: full\n"),
        ("run.sh", SWIFT.format(load="Qwen3-8B-mcore")),
    ],
)
def test_programs_that_do_not_pack_unasked_say_that_lengths_are_not_told(name: str, text: str) -> None:
    assert any(sentence.startswith(UNPACKED) for sentence in question({name: text}, gpus=8).launch.assumed)


def test_texts_are_packed_by_llama_factory() -> None:
    assert read("pt.yaml", f"{launches.TRAINER}stage: pt\nfinetuning_type: full\n", 8).settings["packing"] is True


@pytest.mark.parametrize("load", ["Converted/Qwen3-30B-A3B-Instruct-2507-mcore", "/m/Qwen2___5-7B-Instruct/"])
def test_ms_swift_loads_what_it_trains(load: str) -> None:
    assert read("run.sh", SWIFT.format(load=load)).settings["model"] in ("qwen3-30b-a3b", "qwen2.5-7b")


def test_arguments_of_ms_swift_2_are_refused_by_name() -> None:
    with pytest.raises(InvalidFile, match="ms-swift 2"):
        read("run.sh", "swift sft --model_type qwen2-7b --model_id_or_path x --sft_type full --batch_size 4\n")


def test_formats_cost_nothing_without_a_converter_and_a_comment_names_the_machine() -> None:
    text = f"# a preset for 64 A100 GPUs\n{TITAN}[quantize.linear.float8]\nfilter_fqns = ['output']\n"
    launch = read("train.toml", text)
    assert (launch.settings["gpus"], launch.settings["device"], launch.unpriced) == (64, "a100-80", [])


LINEAR, GROUPED = "[quantize.linear.float8]\nfilter_fqns", "[quantize.grouped_mm.float8]\nfqns"


@pytest.mark.parametrize(
    ("model", "tables", "unpriced"),
    [
        ("llama3", f"{LINEAR} = ['output']\n", []),
        ("llama3", f"{LINEAR} = ['wq', 'output']\n", ["quantize.linear.float8.filter_fqns ['wq', 'output']"]),
        ("llama3", "", ["the output head in 8 bits"]),
        ("qwen3", f"{LINEAR} = ['output', 'router.gate']\n{GROUPED} = ['experts']\n", []),
        ("qwen3", f"{LINEAR} = ['output']\n", ["experts in bf16"]),
    ],
)
def test_what_torchtitan_narrows_beside_what_is_priced_is_named(model: str, tables: str, unpriced: list[str]) -> None:
    grouped = ", 'quantize.grouped_mm.float8'" * (GROUPED in tables)
    text = "[training]\nlocal_batch_size = 1\nseq_len = 8192\n[model]\n"
    text += f"name = '{model}'\nflavor = '{'8B' if model == 'llama3' else '30B-A3B'}'\n"
    text += f"converters = ['quantize.linear.float8'{grouped}]\n[compile]\nenable = true\n{tables}"
    launch = read("train.toml", text, 8)
    assert len(launch.unpriced) == len(unpriced)
    assert all(name.startswith(start) for name, start in zip(launch.unpriced, unpriced, strict=True))


@pytest.mark.parametrize(
    ("parts", "layers", "loss"),
    [("['loss']", False, True), ("['model']", True, False), ("['model', 'loss']", True, True)],
)
def test_parts_of_torchtitan_are_compiled_alone(parts: str, layers: bool, loss: bool) -> None:
    found = question({"train.toml": f"{TITAN}components = {parts}\n"}, gpus=8)
    features = found.job.software.features
    assert (features.fused_norm, features.compiled_loss) == (layers, loss)


def test_one_expert_is_none() -> None:
    text = "model_name: default\nper_device_batch_size: 1\nmax_target_length: 2048\nbase_emb_dim: 4096\n"
    text += "base_num_decoder_layers: 32\nbase_num_query_heads: 32\nnum_experts: 1\nshared_experts: 1\n"
    launch = read("base.yml", text + "kv_lora_rank: 512\nkv_quant_dtype: int8\n", 8)
    assert ("experts" in launch.understood(), launch.unpriced) == (False, [])


def test_gradients_of_gpt_neox_are_reduced_in_fp32() -> None:
    launch = read("neox.yml", NEOX % '"fp32_allreduce": true', 8)
    assert launch.settings["grad_bytes"] == 4


def test_a_program_that_is_not_known_is_taken_to_train_all_weights() -> None:
    launch = read("args.yaml", launches.TRAINER, 8)
    assert any("all weights are trained" in sentence for sentence in launch.assumed)


@pytest.mark.parametrize(("more", "stage"), [("", 1), ("optimizer:\n  use_distributed_optimizer: false\n", 0)])
def test_bridge_shards_where_either_of_two_keys_says_so(more: str, stage: int) -> None:
    text = launches.BRIDGE.replace("use_distributed_optimizer: true", "use_distributed_optimizer: false") + more
    assert question({"bridge.yaml": text}, gpus=64).plan.zero_stage == stage


def test_bridge_shards_no_more_where_both_keys_are_off_and_lists_stay_lists() -> None:
    source = read_launch([File("bridge.yaml", launches.BRIDGE.encode())], 64)
    found = launch_as_read(source.launch, Controls(gpus=64), "bridge.yaml")
    other = replace(found.plan, zero_stage=0, recompute="moe_act+mlp")
    text = next(source.edited(source.changes(found.job, found.plan, other, {})))["bridge.yaml"].decode()
    assert text.count("use_distributed_optimizer: false") == 2
    assert 'recompute_modules: ["' in text
    fsdp = source.changes(found.job, found.plan, replace(found.plan, pp=1, vpp=1, dp=8, zero_stage=3), {})
    assert ("checkpoint.ckpt_format", "fsdp_dtensor") in [(each.flag, each.after) for each in fsdp]


TRAINER = """torchrun --nproc_per_node 8 train.py --model_name_or_path {model} --bf16 True --max_seq_length 4096 \\
    --per_device_train_batch_size {batch} --hidden_size 4096 --num_layers 32 --num_attention_heads 32 {more}
"""


def test_a_trainers_command_that_shapes_its_model_is_no_megatron() -> None:
    launch = read("run.sh", TRAINER.format(model="Qwen/Qwen3-8B", batch=2, more=""))
    assert (launch.program, launch.settings["micro_batch"]) == ("DeepSpeed", 2)


def test_a_trainers_batch_that_nobody_gave_is_asked_for() -> None:
    with pytest.raises(InvalidFile, match=r"--per_device_train_batch_size \$2: which is argument 2"):
        read("run.sh", TRAINER.format(model="Qwen/Qwen3-8B", batch="$2", more=""))


def test_adapters_of_pefts_own_example_are_read() -> None:
    more = "--use_peft_lora True --lora_r 8 --lora_target_modules all-linear --use_4bit_quantization True"
    launch = read(
        "run.sh", TRAINER.format(model="meta-llama/Llama-2-70b-hf", batch=2, more=f"{more} --use_nested_quant True")
    )
    assert (launch.settings["train"], launch.settings["base"]) == ("qlora:8", "nf4")
    assert not [text for text in launch.unpriced if "quant" in text or "lora" in text]


@pytest.mark.parametrize(
    ("start", "gpus"),
    [("deepspeed", 4), ("deepspeed --num_gpus 2", 2), ("llamafactory-cli train", 4), ("deepspeed --hostfile h", None)],
)
def test_a_process_starts_on_each_gpu_that_is_seen(start: str, gpus: int | None) -> None:
    text = f"export CUDA_VISIBLE_DEVICES=0,1,2,3\n{start} sft.py {TRAINER.partition('train.py ')[2]}"
    settings = read("run.sh", text.format(model="Qwen/Qwen3-8B", batch=2, more="")).settings
    assert settings.get("gpus") == gpus


def test_adapters_of_nemo_count_nothing_without_a_scheme() -> None:
    text = launches.NEMO.replace(
        "model:\n", "model:\n  peft:\n    peft_scheme: none\n    lora_tuning:\n      adapter_dim: 32\n"
    )
    assert not [text for text in read("nemo.yaml", text, 64).unpriced if "adapter" in text]


ONE = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"


@pytest.mark.parametrize(
    ("line", "device", "refused"),
    [("", "h100", True), (ONE, "h100", False), ("#SBATCH --constraint=b200\n", "b200", False)],
)
def test_megatron_splits_tensors_with_one_connection_alone(line: str, device: str, refused: bool) -> None:
    text = f"#!/bin/bash\n{line}" + GRID.partition("mpirun")[2].join(("mpirun", "")).format(more="")
    text = text.replace("$((NHOSTS * GPUS)) --npernode $GPUS", "64").replace(
        "tensor-model-parallel-size 4", "tensor-model-parallel-size 1"
    )
    source = read_launch([File("run.sh", text.encode())], 64)
    found = launch_as_read(source.launch, Controls(device=device), "run.sh")
    changes = source.changes(found.job, found.plan, replace(found.plan, tp=2, dp=found.plan.dp // 2), {})
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in source.lacking(changes)) == refused


@pytest.mark.parametrize(("line", "refused"), [("", True), (ONE, False)])
def test_megatron_splits_tensors_without_its_fsdp_with_one_connection_alone(line: str, refused: bool) -> None:
    sharded = (
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor "
        "--use-distributed-optimizer --use-nccl-ub --fsdp-manual-registration"
    )
    text = f"#!/bin/bash\n{line}" + GRID.partition("mpirun")[2].join(("mpirun", "")).format(more=sharded)
    source = read_launch([File("run.sh", text.replace("$((NHOSTS * GPUS)) --npernode $GPUS", "64").encode())], 64)
    found = launch_as_read(source.launch, Controls(device="h100"), "run.sh")
    changes = source.changes(found.job, found.plan, replace(found.plan, zero_stage=1), {})
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in source.lacking(changes)) == refused
    assert {"--use-megatron-fsdp", "--fsdp-manual-registration"} <= {each.flag for each in changes if not each.after}


def test_a_first_split_of_tensors_leaves_sequences_whole_where_nothing_asks_otherwise() -> None:
    text = GRID.format(resource="rt_AF=8", more="--sequence-parallel").replace(
        "model-parallel-size 4", "model-parallel-size 1"
    )
    source = read_launch([File("run.sh", text.encode())], 64)
    found = launch_as_read(source.launch, Controls(), "run.sh")
    split = replace(found.plan, tp=2, dp=found.plan.dp // 2)
    for after, gone in ((split, True), (replace(split, sequence_parallel=True), False)):
        changes = source.changes(found.job, found.plan, after, {})
        assert any(each.flag == "--sequence-parallel" and each.after is None for each in changes) is gone


def test_values_are_written_each_where_nothing_else_hangs_on_it() -> None:
    text = """TP=4
MICRO=16
cat <<EOF > ds.json
{"train_batch_size": 256, "train_micro_batch_size_per_gpu": $MICRO, "zero_optimization": {"stage": 1}}
EOF
deepspeed --num_gpus 8 pretrain_gpt.py --tensor-model-parallel-size $TP --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size $MICRO --bf16 \\
  --global-batch-size 256 --load /ckpt/tp$TP --deepspeed --deepspeed_config ds.json --zero-stage 1
"""
    file = File("run.sh", text.encode())
    source = read_launch([file])

    def again(files: Sequence[File]) -> LaunchAsRead:
        return launch_as_read(read_launch(files).launch, Controls(), "run.sh")

    found = again([file])
    after = replace(found.plan, tp=2, dp=4, micro_batch=8, num_microbatches=8)
    edit = edit_to(current_state(found), state_of(found, after, {}))
    made = patched(source, found, edit, [file], again)["run.sh"].decode()
    assert "MICRO=8\n" in made
    assert "TP=4\n" in made
    assert "--tensor-model-parallel-size 2" in made


def test_what_a_checkpoint_says_alone_is_asked_for_and_taken() -> None:
    sizes = "--seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 --tensor-model-parallel-size 2"
    text = f"torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-checkpoint-args --load ckpt/{{name}} {sizes}"
    with pytest.raises(InvalidFile, match="--num-layers is missing: the checkpoint has it; give --model"):
        read("run.sh", text.format(name="mine"))
    assert question({"run.sh": text.format(name="llama2-7b")}).job.model.name == "llama2-7b"
    asked = question({"run.sh": text.format(name="mine")}, model="mistral-7b")
    assert (asked.job.model.name, asked.plan.tp, asked.launch.unpriced) == ("mistral-7b", 2, [])
