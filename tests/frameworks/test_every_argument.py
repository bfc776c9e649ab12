"""Arguments of programs, one by one from their parsers: what changes a step is read or named, the rest is free."""

from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches

FLAGS = """# Megatron-LM core_v0.19.0
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu \\
    --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
    --tensor-model-parallel-size 2 --vocab-size 32000 """
EXPERTS = "--num-experts 16 --expert-model-parallel-size 4 --moe-router-topk 2 --moe-token-dispatcher-type alltoall"
DEEPSPEED = " --deepspeed --deepspeed_config ds.json --zero-stage 1"
NEOX = launches.GPT_NEOX.strip()[:-1]
FOUNDRY = launches.LLM_FOUNDRY.partition("model:")
NANOTRON = launches.NANOTRON.replace(
    "    tie_word_embeddings", "    moe_config: {num_experts: 8, top_k: 2, %s}\n    tie_word_embeddings"
)
FILES = {
    "neox.yml": NEOX + "%s}\n",
    "max.yml": f"{launches.MAXTEXT}%s\n",
    "titan.toml": launches.TORCHTITAN + "%s\n",
    "nemo.yaml": launches.NEMO.replace("model:\n", "model:\n  %s\n"),
    "bridge.yaml": launches.BRIDGE + "%s\n",
    "primus.yaml": launches.PRIMUS + "      %s\n",
    "foundry.yaml": launches.LLM_FOUNDRY + "%s\n",
    "nano.yaml": NANOTRON,
    "picotron.json": launches.PICOTRON.replace('"distributed":', '%s"distributed":'),
}


def launch_of(text: str, name: str = "run.sh", gpus: int | None = None) -> Launch:
    return read_launch([File(name, text.encode())], gpus).launch


def with_key(name: str, key: str) -> Launch:
    gpus = None if name in ("max.yml", "nano.yaml", "picotron.json") else 8 if name == "neox.yml" else 64
    return launch_of(FILES[name].replace("%s", key), name, gpus)


@pytest.mark.parametrize(
    "flag",
    [
        *("--deterministic-mode", "--disable-jit-fuser", "--dataloader-inter-document-masking", "--sft"),
        *("--fp32-residual-connection", "--fp8-output-proj", "--no-fp8-wgrad", "--fp4-param-gather"),
        *("--megatron-fsdp-main-grads-dtype fp16", "--outer-dp-sharding-strategy optim", "--moe-extended-tp"),
        *("--heterogeneous-layers-config-path a.json", "--hybrid-override-pattern M*-", "--te-precision-config-file a"),
        *("--kitchen-config-file a.yaml", "--use-tp-pp-dp-mapping", "--standalone-embedding-stage", "--yaml-cfg a.yml"),
        *("--cpu-offloading-num-layers 4", "--mlp-chunks-for-training 2", "--use-mp-args-from-checkpoint-args"),
        *("--DDP-impl FSDP", "--memory-centric-tiled-linear", "--remote-device cpu", "--kd", "--perform-rl-step"),
    ],
)
def test_a_flag_that_changes_a_step_is_named(flag: str) -> None:
    assert launch_of(FLAGS + flag).unpriced == [flag]


@pytest.mark.parametrize(
    "flag",
    [
        *("--no-pad-vocab-size", "--flight-recorder-trace-buffer-size 4000", "--mup-base-hidden-size 256", "--use-mup"),
        *("--moe-router-padding-for-quantization", "--inference-moe-disable-fused-quant-kernels", "--DDP-impl torch"),
        *("--zero-reduce-bucket-size 5", "--contigious-checkpointing", "--outer-dp-sharding-strategy no_shard"),
        *("--mlp-chunks-for-training 1", "--pipeline-model-parallel-comm-backend nccl", "--remote-device none"),
    ],
)
def test_a_flag_that_costs_nothing_is_not_named(flag: str) -> None:
    assert launch_of(FLAGS + flag).unpriced == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--transformer-impl local", {"attention": "fused_softmax"}),
        ("--transformer-impl local --use-flash-attn", {"attention": "flash"}),
        ("--use-flash-attn-v1", {"attention": "flash"}),
        ("--qk-l2-norm", {"qk_norm": True}),
        ("--group-query-attention", {"kv_heads": 1}),
        ("--group-query-attention --num-query-groups 8", {"kv_heads": 8}),
        ("--position-embedding-type yarn", {"position": "rope"}),
        ("--position-embedding-type absolute", {"position": "learned"}),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", {"zero_stage": 2}),
        (
            f"{EXPERTS} --moe-grouped-gemm --cuda-graph-impl local --cuda-graph-modules attn",
            {"graphed": ("attention",), "cuda_graphs": False},
        ),
        (f"--num-experts 16 --moe-expert-parallel-size 2 {DEEPSPEED}", {"etp": 1, "ep": 2}),
        (f"--num-experts 16 --enable-expert-tensor-parallelism {DEEPSPEED}", {"etp": 2, "ep": 1}),
    ],
)
def test_a_flag_that_has_a_price_is_read(flags: str, said: dict[str, Any]) -> None:
    launch = launch_of(FLAGS + flags)
    assert ({name: launch.settings[name] for name in said}, launch.unpriced) == (said, [])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (EXPERTS, "experts one by one"),
        ("--use-megatron-fsdp --use-distributed-optimizer", "--use-megatron-fsdp without a strategy"),
        (f"--checkpoint-activations --partition-activations {DEEPSPEED}", "--partition-activations"),
    ],
)
def test_what_no_flag_says_is_named_where_it_is_not_what_is_priced(flags: str, named: str) -> None:
    assert [text for text in launch_of(FLAGS + flags).unpriced if text.startswith(named)]


def test_another_exchange_of_contexts_is_said() -> None:
    assert "--cp-comm-type a2a is priced as p2p" in launch_of(f"{FLAGS}--cp-comm-type a2a").unsearched
    assert not launch_of(f"{FLAGS}--cp-comm-type p2p").unsearched


NAMED = [
    ("neox.yml", '"soft_prompt_tuning": {"enabled": true}', "soft_prompt_tuning.enabled"),
    ("neox.yml", '"te_mha": true', "te_mha"),
    ("neox.yml", '"te_fp8_wgrad": false', "te_fp8_wgrad false"),
    *(("max.yml", f"ici_{axis}_parallelism: 2", f"ici_{axis}_parallelism 2") for axis in ("fsdp_transpose", "diloco")),
    ("max.yml", "ici_tensor_sequence_parallelism: -1", "ici_tensor_sequence_parallelism -1"),
    ("max.yml", "custom_mesh_and_rule: ep-as-cp", "custom_mesh_and_rule ep-as-cp"),
    ("max.yml", "logits_dot_in_fp32: true", "logits_dot_in_fp32"),
    ("max.yml", "use_dpo: true", "use_dpo"),
    ("titan.toml", "[debug]\ndeterministic = true", "debug.deterministic"),
    ("titan.toml", "[fault_tolerance]\nenable = true", "fault_tolerance.enable"),
    ("nemo.yaml", "fsdp: true", "model.fsdp"),
    ("nemo.yaml", "distribute_saved_activations: true", "model.distribute_saved_activations"),
    ("nemo.yaml", "transformer_block_type: normformer", "model.transformer_block_type normformer"),
    ("nemo.yaml", "deterministic_mode: true", "model.deterministic_mode"),
    ("nemo.yaml", "num_moe_experts: 8", "experts one by one, as Megatron-LM has them without --moe-grouped-gemm"),
    ("bridge.yaml", "dataset: {reset_attention_mask: true}", "dataset.reset_attention_mask"),
    ("bridge.yaml", "optimizer: {fp8_wgrad: false}", "optimizer.fp8_wgrad false"),
    (
        "bridge.yaml",
        "mixed_precision: bf16_with_fp8_current_scaling_mixed",
        "mixed_precision bf16_with_fp8_current_scaling_mixed: its first and last layers are in bf16",
    ),
    (
        "bridge.yaml",
        "mixed_precision: {fp8: hybrid, fp8_recipe: delayed, fp8_param_gather: false}",
        "mixed_precision.fp8_param_gather false: priced as the mixed precisions have it",
    ),
    ("primus.yaml", "patch_primus_pipeline: true", "modules.pre_trainer.overrides.patch_primus_pipeline"),
    ("foundry.yaml", "tp_config: {strategy: ffn}", "tp_config.strategy ffn"),
    ("foundry.yaml", "compile_config: {mode: default}", "compile_config.mode default"),
    ("foundry.yaml", "deterministic_mode: true", "deterministic_mode"),
]


@pytest.mark.parametrize(("name", "key", "named"), NAMED)
def test_a_key_that_changes_a_step_is_named(name: str, key: str, named: str) -> None:
    assert named in with_key(name, key).unpriced


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("neox.yml", '"moe_num_experts": 1, "moe_expert_parallel_size": 1'),
        ("neox.yml", '"recompute": true, "rank": 0, "contiguous_checkpointing": true, "s3_chunk_size": 5'),
        ("max.yml", "ici_fsdp_transpose_parallelism: 1\nmhc_expansion_rate: 1\ncontext_sharding: context"),
        ("nemo.yaml", "cpu_offloading: false\n  cpu_offloading_num_layers: 31\n  reset_lr_steps: true"),
        ("bridge.yaml", "mixed_precision: bf16_with_fp8_delayed_scaling_mixed"),
        ("nemo.yaml", "num_moe_experts: 8\n  moe_grouped_gemm: true"),
        ("nemo.yaml", "offload_modules: [core_attn]\n  moe_mlp_glu_interleave_size: 32"),
        ("bridge.yaml", "mixed_precision: {fp8: hybrid, fp8_param_gather: true, fp8_param: true}"),
        ("bridge.yaml", "mixed_precision: {fp8: null, fp8_param_gather: false, first_last_layers_bf16: false}"),
        ("titan.toml", "[comm]\ntrace_buf_size = 0\n[checkpoint]\ninitial_load_in_hf_quantized = true"),
        ("foundry.yaml", "only_hf_checkpoint: true\ntrain_subset_num_batches: 5\nmax_split_size_mb: 512"),
        ("nano.yaml", "layers: [-1], enable_shared_expert: false, shared_expert_intermediate_size: 5632"),
        ("picotron.json", '"environment": {"TOKENIZERS_PARALLELISM": "true"}, '),
    ],
)
def test_a_key_that_costs_nothing_is_not_named(name: str, key: str) -> None:
    assert with_key(name, key).unpriced == []


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("neox.yml", '"communication_data_type": "fp32"', {"grad_bytes": 4}),
        ("neox.yml", '"fp16": {"enabled": true, "type": "bfloat16"}', {"dtype": "bf16"}),
        ("nemo.yaml", "use_flash_attention: false\n  mcore_gpt: false", {"attention": "unfused"}),
        ("nemo.yaml", "use_flash_attention: false\n  mcore_gpt: true", {"fused_accumulation": False}),
        ("nemo.yaml", "gradient_accumulation_fusion: true\n  fp4: e2m1", {"dtype": "fp4"}),
        ("bridge.yaml", "optimizer: {optimizer_cpu_offload: true}", {"offload": 0.0}),
        ("bridge.yaml", "optimizer: {optimizer_cpu_offload: true, optimizer_offload_fraction: 0.5}", {"offload": 0.5}),
        ("bridge.yaml", "mixed_precision: {fp4: e2m1}", {"dtype": "fp4"}),
        ("nano.yaml", "enable_shared_expert: true, shared_expert_intermediate_size: 5632", {"shared_ffn": 5632}),
    ],
)
def test_a_key_that_has_a_price_is_read(name: str, key: str, said: dict[str, Any]) -> None:
    launch = with_key(name, key)
    assert ({name: launch.settings.get(name) for name in said}, launch.unpriced) == (said, [])


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("attn_type: multiquery_attention", {"kv_heads": 1}),
        ("qk_ln: true", {"qk_norm": True}),
    ],
)
def test_attention_of_llm_foundry_by_key(key: str, said: dict[str, Any]) -> None:
    text = launches.LLM_FOUNDRY.replace("attn_impl: flash", f"attn_impl: flash\n    {key}")
    settings = launch_of(text, "mpt.yaml", 64).settings
    assert {name: settings[name] for name in said} == said


@pytest.mark.parametrize(
    ("more", "attention"),
    [("", "unfused"), ("  use_flash_attention_2: true\n", "flash"), ("  attn_implementation: sdpa\n", "flash")],
)
def test_models_of_transformers_have_eager_attention_in_llm_foundry_unless_told(more: str, attention: str) -> None:
    text = launches.LLM_FOUNDRY
    hub = f"model:\n  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Llama-2-7b-hf\n{more}"
    text = text[: text.index("model:")] + hub + text[text.index("global_train") :]
    assert launch_of(text, "hf.yaml", 64).settings["attention"] == attention


def test_what_no_key_says_is_the_programs_own() -> None:
    titan = launches.TORCHTITAN.replace("local_batch_size = 2\n", "")
    assert launch_of(titan, "a.toml").settings["micro_batch"] == 8
    titan = launches.TORCHTITAN.replace("seq_len = 8192\n", "")
    assert launch_of(titan, "a.toml").settings["seq_len"] == 2048
    neox = launches.GPT_NEOX.replace('"fp16": {"enabled": true},', "")
    assert [text for text in launch_of(neox, "neox.yml", 8).unpriced if text.startswith("fp32")]
    sharding = launches.LLM_FOUNDRY.replace("FULL_SHARD", "OTHER_SHARD")
    assert launch_of(sharding, "mpt.yaml", 64).unpriced == ["fsdp_config.sharding_strategy OTHER_SHARD"]
    mixed = launches.LLM_FOUNDRY.replace("  mixed_precision: PURE\n", "")
    assert [text for text in launch_of(mixed, "mpt.yaml", 64).unpriced if "DEFAULT" in text]
    assert launch_of(launches.NEMO, "nemo.yaml").settings["fused_accumulation"] is False
    assert "fused_accumulation" not in launch_of(launches.LAUNCHER_COMMAND).settings  # of a config that is not here
    nano = launches.NANOTRON.replace("    tie_word_embeddings: false\n", "")
    assert launch_of(nano, "nano.yaml").settings["tied_embeddings"] is False


def test_a_local_batch_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidFile, match="whole number"):
        launch_of(launches.TORCHTITAN.replace("local_batch_size = 2", 'local_batch_size = "two"'), "a.toml")


def test_converters_that_do_something_else_are_named() -> None:
    text = launches.TORCHTITAN.replace('mode = "full"', 'mode = "memory_budget"')
    assert launch_of(text, "a.toml").unpriced == ["activation_checkpoint.mode memory_budget"]
    own, other = (launches.TORCHTITAN.replace("float8", name) for name in ("float8", "quantize.grouped_mm.mx"))
    named = [launch_of(text, "a.toml").unpriced for text in (own, other)]
    assert named == [[], ["model.converters quantize.grouped_mm.mx"]]


def test_experts_of_a_model_of_its_own_have_their_width_in_maxtext() -> None:
    text = launches.MAXTEXT.replace("model_name: llama3-8b\n", "")
    shape = "base_emb_dim: 4096\nbase_num_decoder_layers: 32\nbase_mlp_dim: 14336\nbase_num_query_heads: 32\n"
    own = launch_of(f"{text}{shape}".replace("base_mlp_dim: 14336\n", ""), "max.yml").settings
    assert (own["ffn_hidden"], own["kv_heads"], own["head_dim"]) == (7168, 16, 128)  # of base.yml
    text += f"{shape}base_num_kv_heads: 8\nnum_experts: 8\nnum_experts_per_tok: 2\nbase_moe_mlp_dim: "
    assert launch_of(f"{text}2048\n", "max.yml").settings["expert_ffn"] == 2048
    assert "expert_ffn" not in launch_of(f"{text}-1\n", "max.yml").settings


@pytest.mark.parametrize(
    ("config", "fixed", "named"),
    [
        ('"zero_optimization": {"stage": 1}', {"zero_stage"}, ""),
        ('"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}', {"zero_stage", "micro_batch"}, ""),
        (
            '"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4',
            {"zero_stage", "micro_batch", "num_microbatches"},
            "gradient_accumulation_steps 4 in ds.json against 16",
        ),
        (
            '"zero_optimization": {"stage": 1}, "fp16": {"enabled": true}',
            {"zero_stage"},
            "fp16.enabled fp16 in ds.json",
        ),
        ('"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": "auto"', {"zero_stage"}, ""),
    ],
)
def test_a_deepspeed_config_beside_its_script_is_read(config: str, fixed: set[str], named: str, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(f"{{{config}}}")
    (tmp_path / "run.sh").write_text(FLAGS + DEEPSPEED)
    launch = read_launch(read_files([str(tmp_path / "run.sh")])).launch
    assert "ds.json, which run.sh names, was read" in launch.assumed
    assert fixed <= {*launch.fixed}
    assert [text.startswith(named) for text in launch.unpriced] == [True] * bool(named)


def test_a_deepspeed_config_says_what_no_flag_does(tmp_path: Path) -> None:
    stage = (
        '"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}'
    )
    (tmp_path / "ds.json").write_text(f'{{{stage}, "data_types": {{"grad_accum_dtype": "fp32"}}}}')
    (tmp_path / "run.sh").write_text(FLAGS + DEEPSPEED.replace(" --zero-stage 1", ""))
    settings = read_launch(read_files([str(tmp_path / "run.sh")])).launch.settings
    said = {"zero_stage": 3, "offload": 1.0, "hosted_weights": True, "grad_bytes": 4}
    assert {name: settings.get(name) for name in said} == said
