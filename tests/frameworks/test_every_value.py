"""Values of keys that are read, one by one from the programs' sources: each has its price, or it is named."""

import json
from typing import Any

import pytest
import yaml

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.read import read_launch
from tests.frameworks import launches
from tests.frameworks.test_every_argument import EXPERTS, FLAGS, launch_of

GRAPHS = "--cuda-graph-impl transformer_engine --cuda-graph-scope"
FREQUENCY = f"{EXPERTS} --moe-grouped-gemm --moe-layer-freq"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--attention-backend AttnBackend.unfused", {"attention": "unfused"}),
        ("--attention-backend 2", {"attention": "flash"}),
        ("--attention-backend local", {"attention": "fused_softmax"}),
        ("--transformer-impl local --no-masked-softmax-fusion", {"attention": "unfused"}),
        ("--position-embedding-type none", {"position": "none"}),
        ("--normalization rmsnorm", {"norm": "rms"}),
        (f"{GRAPHS} attn,mlp", {"cuda_graphs": True, "graphed": ()}),
        (f"{GRAPHS} full", {"cuda_graphs": True, "graphed": ()}),
        (f'{FREQUENCY} "([0]*1+[1]*1)*16"', {"every": 2, "first_dense": 0}),
        (f'{FREQUENCY} "([1]+[0]*3)*8"', {"every": 4, "first_dense": 0}),
        (f'{FREQUENCY} "([0]*3+[1]*29)"', {"every": 1, "first_dense": 3}),
        (f"{FREQUENCY} 0 1 1 1", {"every": 1, "first_dense": 1}),
    ],
)
def test_a_value_of_a_flag_has_its_price(flags: str, said: dict[str, Any]) -> None:
    launch = launch_of(FLAGS + flags)
    assert ({name: launch.settings[name] for name in said}, launch.unpriced) == (said, [])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        *((text, text) for text in ("--attention-backend weird", "--normalization L2Norm", "--fp8-format e5m2")),
        ("--position-embedding-type relative", "--position-embedding-type relative"),
        ("--fp8-format hybrid --fp8-recipe custom", "--fp8-recipe custom"),
        ("--fp4-format e2m1 --fp4-recipe custom", "--fp4-recipe custom"),
        ("--recompute-granularity full --recompute-method whole", "--recompute-method whole"),
        (f"{GRAPHS} mlp", "--cuda-graph-scope mlp"),
        (f"{EXPERTS} --moe-grouped-gemm --moe-token-dispatcher-type other", "--moe-token-dispatcher-type other"),
        (
            f'{FREQUENCY} "([1]*3+[0])*8"',
            "--moe-layer-freq ([1]*3+[0])*8: of layers that do not alternate evenly",
        ),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl linear", "--cross-entropy-fusion-impl linear"),
        (
            f"{EXPERTS} --moe-grouped-gemm --moe-router-load-balancing-type sinkhorn",
            "--moe-router-load-balancing-type sinkhorn",
        ),
    ],
)
def test_a_value_of_a_flag_without_a_price_is_named(flags: str, named: str) -> None:
    assert launch_of(FLAGS + flags).unpriced == [named]


@pytest.mark.parametrize(
    ("release", "flags", "attention"),
    [
        ("core_v0.5.0", "", "fused_softmax"),
        ("core_v0.5.0", "--no-masked-softmax-fusion", "unfused"),
        ("core_v0.5.0", "--use-flash-attn", "flash"),
        ("core_v0.5.0", "--use-mcore-models", None),
        ("core_v0.5.0", "--transformer-impl transformer_engine", None),
        ("core_v0.6.0", "", None),
    ],
)
def test_layers_of_old_releases_have_no_flash_attention_unless_told(
    release: str, flags: str, attention: str | None
) -> None:
    launch = launch_of((FLAGS + flags).replace("core_v0.19.0", release))
    assert launch.settings.get("attention") == attention
    assert any("layers of its own" in text for text in launch.assumed) == (attention in ("fused_softmax", "unfused"))


def with_value(name: str, path: str, value: str) -> Launch:
    """A launch of a program with one value more, or another one, under a path of its config."""
    text, file, gpus = PROGRAMS[name]
    if name == "torchtitan":
        section, _, key = path.rpartition(".")
        lines = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
        heads = [place for place, line in enumerate(lines) if line == f"[{section}]"]
        lines[heads[0] + 1 if heads else len(lines) :] = [
            *([] if heads else [f"[{section}]"]),
            f"{key} = {value}",
            *(lines[heads[0] + 1 :] if heads else []),
        ]
        return launch_of("\n".join(lines), file, gpus)
    values = yaml.safe_load(text)
    place = values
    *sections, key = path.split(".")
    for section in sections:
        place = place.setdefault(section, {})
    place[key] = yaml.safe_load(value)
    return launch_of(json.dumps(values), file, gpus)


PROGRAMS = {
    "MaxText": (launches.MAXTEXT, "max.yml", None),
    "own": (launches.MAXTEXT.replace("model_name: llama3-8b\n", "base_emb_dim: 2048\n"), "max.yml", None),
    "torchtitan": (launches.TORCHTITAN, "titan.toml", 64),
    "GPT-NeoX": (launches.GPT_NEOX, "neox.yml", 8),
    "llm-foundry": (launches.LLM_FOUNDRY, "mpt.yaml", 64),
    "nanotron": (launches.NANOTRON, "nano.yaml", None),
    "NeMo": (launches.NEMO, "nemo.yaml", None),
    "Megatron-Bridge": (launches.BRIDGE, "bridge.yaml", 64),
    "picotron": (launches.PICOTRON, "picotron.json", None),
}


@pytest.mark.parametrize(
    ("program", "path", "value", "said"),
    [
        ("MaxText", "dtype", "float16", {"dtype": "fp16"}),
        ("MaxText", "quantization", "te_fp8_currentscaling", {"dtype": "fp8", "fp8_recipe": "tensorwise"}),
        ("MaxText", "quantization", "te_mxfp8", {"dtype": "fp8", "fp8_recipe": "mxfp8"}),
        ("MaxText", "quantization", "nanoo_fp8", {"dtype": "fp8", "fp8_recipe": "delayed"}),
        ("MaxText", "use_qk_norm", "true", {"qk_norm": True}),
        ("MaxText", "attention_bias", "true", {"attention_bias": True}),
        ("own", "mlp_activations", "[gelu, linear]", {"gated_mlp": True}),
        ("own", "mlp_activations", "[relu]", {"gated_mlp": False}),
        ("torchtitan", "float8.recipe_name", '"rowwise"', {"fp8_recipe": "rowwise"}),
        ("torchtitan", "model.converters", '["quantize.linear.mx"]', {"dtype": "fp8", "fp8_recipe": "mxfp8"}),
        ("torchtitan", "model.converters", '["float8"]', {"dtype": "fp8", "fp8_recipe": None}),
        ("torchtitan", "parallelism.expert_parallel_comm_backend", '"standard"', {}),
        ("torchtitan", "parallelism.context_parallel_rotate_method", '"allgather"', {}),
        ("GPT-NeoX", "norm", "te_rmsnorm", {"norm": "rms"}),
        ("GPT-NeoX", "norm", "te_layernorm", {"norm": "layer"}),
        ("GPT-NeoX", "pos_emb", "none", {"position": "none"}),
        ("GPT-NeoX", "activation", "mish", {"gated_mlp": False}),
        ("llm-foundry", "fsdp_config.sharding_strategy", "_HYBRID_SHARD_ZERO2", {"zero_stage": 2, "shard": 8}),
        ("llm-foundry", "fsdp_config.mixed_precision", "{param_dtype: bf16, reduce_dtype: bf16}", {}),
        ("llm-foundry", "model.norm_type", "low_precision_rmsnorm", {"norm": "rms"}),
        ("llm-foundry", "model.norm_type", "layernorm", {"norm": "layer"}),
        ("llm-foundry", "model.learned_pos_emb", "false", {"position": "none"}),
        ("llm-foundry", "model.ffn_config.ffn_type", "mptgeglu", {"gated_mlp": True}),
        ("nanotron", "model.model_config.attention_bias", "true", {"attention_bias": True}),
        ("nanotron", "model.model_config.hidden_act", "gelu", {"gated_mlp": True}),
    ],
)
def test_a_value_of_a_key_has_its_price(program: str, path: str, value: str, said: dict[str, Any]) -> None:
    launch = with_value(program, path, value)
    assert ({name: launch.settings.get(name) for name in said}, launch.unpriced) == (said, [])


@pytest.mark.parametrize(
    ("program", "path", "value"),
    [
        ("own", "mlp_activations", "[squared_relu]"),
        ("torchtitan", "activation_checkpoint.mode", '"Full"'),
        ("torchtitan", "parallelism.fsdp_reshard_after_forward", "false"),
        ("torchtitan", "training.dtype", '"float16"'),
        ("torchtitan", "training.mixed_precision_reduce", '"float16"'),
        *(("torchtitan", "optimizer.implementation", f'"{name}"') for name in ("foreach", "for-loop")),
        ("torchtitan", "float8.recipe_name", '"rowwise_with_gw_hp"'),
        ("torchtitan", "float8.enable_fsdp_float8_all_gather", "true"),
        *(("GPT-NeoX", "pos_emb", name) for name in ("sinusoidal", "rpe")),
        ("GPT-NeoX", "norm", "scalenorm"),
        ("GPT-NeoX", "activation", "squared_relu"),
        ("GPT-NeoX", "zero_optimization.offload_optimizer.device", "cpu"),
        ("GPT-NeoX", "amp.enabled", "true"),
        ("llm-foundry", "model.norm_type", "batchnorm"),
        ("llm-foundry", "model.ffn_config.ffn_type", "mb_dmoe"),
        ("llm-foundry", "model.attn_config.attn_impl", "xformers"),
        ("llm-foundry", "model.attn_config.attn_type", "other"),
        ("llm-foundry", "model.loss_fn", "torch_crossentropy"),
        ("llm-foundry", "fsdp_config.mixed_precision", "null"),
        ("llm-foundry", "fsdp_config.activation_checkpointing_target.mptblock", "first-5"),
        ("nanotron", "parallelism.tp_mode", "other"),
        ("nanotron", "optimizer.optimizer_factory.torch_adam_is_fused", "false"),
        ("nanotron", "model.model_config._fused_rms_norm", "false"),
        ("picotron", "model.use_fused_adam", "false"),
    ],
)
def test_a_value_of_a_key_without_a_price_is_named(program: str, path: str, value: str) -> None:
    bare = value.strip("[]\"'")
    assert with_value(program, path, value).unpriced == [f"{path} {bare}".removesuffix(" true")]


def test_layers_of_two_kinds_of_attention_and_wide_sums_are_named() -> None:
    mixed = with_value("GPT-NeoX", "attention_config", '[[["flash", "global"], 16]]')
    assert mixed.unpriced == ["attention_config flash, global: priced as flash in every layer"]
    wide = with_value("llm-foundry", "fsdp_config.mixed_precision", "{param_dtype: bf16, reduce_dtype: fp32}")
    assert wide.unpriced == ["fsdp_config.mixed_precision.reduce_dtype fp32"]
    narrow = with_value("llm-foundry", "fsdp_config.mixed_precision", "{param_dtype: bf16}")
    assert narrow.unpriced == ["fsdp_config.mixed_precision without reduce_dtype"]


def test_a_pipeline_of_nanotron_runs_all_forward_passes_first_unless_told() -> None:
    launch = with_value("nanotron", "parallelism.pp_engine", "null")
    assert "parallelism.pp_engine afab by default is priced as 1f1b" in launch.unsearched


@pytest.mark.parametrize("size", ["0.5", "1.5"])
def test_a_batch_of_no_whole_sequences_is_refused_in_maxtext(size: str) -> None:
    with pytest.raises(InvalidFile, match="sequences: expected a whole number"):
        with_value("MaxText", "per_device_batch_size", size)


ENUM = "{_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [%s]}"


@pytest.mark.parametrize(
    ("program", "path", "value", "said"),
    [
        ("Megatron-Bridge", "model.attention_backend", ENUM % 3, {"attention": "unfused"}),
        ("Megatron-Bridge", "model.attention_backend", ENUM % 1, {"attention": "flash"}),
        ("Megatron-Bridge", "model.attention_backend", ENUM % 5, {"attention": None}),
        ("Megatron-Bridge", "model.transformer_impl", "local", {"attention": "fused_softmax"}),
        ("NeMo", "model.optim.name", "lion", {"optimizer": "lion", "zero_stage": 0}),
        ("NeMo", "model.optim.name", "distributed_fused_adam", {"optimizer": None, "zero_stage": 1}),
        ("NeMo", "model.normalization", "layernorm1p", {"norm": "layer"}),
        ("NeMo", "trainer.precision", "16-mixed", {"dtype": "fp16"}),
    ],
)
def test_a_value_of_a_config_of_megatron_has_its_price(
    program: str, path: str, value: str, said: dict[str, Any]
) -> None:
    launch = with_value(program, path, value)
    assert ({name: launch.settings.get(name) for name in said}, launch.unpriced) == (said, OWN[program])


@pytest.mark.parametrize(
    ("program", "path", "value"),
    [
        ("Megatron-Bridge", "mixed_precision", "other_mixed"),
        ("Megatron-Bridge", "model.normalization", "L2Norm"),
        ("NeMo", "trainer.precision", "64"),
        ("NeMo", "model.optim.name", "novograd"),
        ("NeMo", "model.position_embedding_type", "kerple"),
        ("NeMo", "model.activations_checkpoint_method", "balanced"),
    ],
)
def test_a_value_of_a_config_of_megatron_without_a_price_is_named(program: str, path: str, value: str) -> None:
    assert f"{path} {value}" in with_value(program, path, value).unpriced


OWN: dict[str, list[str]] = {"Megatron-Bridge": [], "NeMo": []}


TUNED = {"bf16": True, "gradient_checkpointing": True, "gradient_accumulation_steps": 4}
LLAMA = "meta-llama/Llama-3.1-8B"
TUNING: dict[str, dict[str, Any]] = {
    "LLaMA-Factory": {
        **{"model_name_or_path": LLAMA, "stage": "sft", "do_train": True, "finetuning_type": "lora", "bf16": True},
        **{"lora_target": "all", "lora_rank": 8, "cutoff_len": 2048, "per_device_train_batch_size": 1},
        **{"gradient_accumulation_steps": 4, "template": "llama3"},
    },
    "Axolotl": {
        **{
            "flash_attention": True,
            "base_model": LLAMA,
            "sequence_len": 4096,
            "micro_batch_size": 2,
            "optimizer": "adamw_torch_fused",
        },
        **TUNED,
    },
    "TRL": {
        **{"model_name_or_path": LLAMA, "per_device_train_batch_size": 2, "max_length": 2048, "use_peft": True},
        "dtype": "bfloat16",
        **{"lora_r": 16, "lora_target_modules": "all-linear", **TUNED},
    },
    "ms-swift": {
        **{"model": LLAMA, "train_type": "lora", "torch_dtype": "bfloat16", "per_device_train_batch_size": 1},
        **{"gradient_accumulation_steps": 16, "max_length": 2048, "lora_rank": 8, "target_modules": "all-linear"},
    },
    "DeepSpeed": {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
    },
    "Accelerate": {
        **{"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8},
        "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"},
    },
    "litgpt": {
        **{"checkpoint_dir": LLAMA, "precision": "bf16-true", "devices": 4, "lora_r": 16, "optimizer": "AdamW"},
        "train": {"micro_batch_size": 1, "global_batch_size": 32, "max_seq_length": 2048},
    },
    "torchtune": {
        "model": {"_component_": "torchtune.models.llama3_1.lora_llama3_1_8b", "apply_lora_to_mlp": True},
        "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "max_seq_len": 4096},
        "optimizer": {"_component_": "torch.optim.AdamW"},
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        **{"batch_size": 2, "dtype": "bf16", "enable_activation_checkpointing": True},
    },
}
PROGRAMS |= {name: (json.dumps(values), "tune.yaml", 8) for name, values in TUNING.items() if name != "DeepSpeed"}
PROGRAMS["DeepSpeed"] = (json.dumps(TUNING["DeepSpeed"]), "ds.json", 8)


@pytest.mark.parametrize(
    ("program", "path", "value", "said"),
    [
        ("LLaMA-Factory", "quantization_bit", "'4'", {"train": "qlora:8", "base": "nf4"}),
        ("LLaMA-Factory", "quantization_bit", "8", {"base": "int8"}),
        ("LLaMA-Factory", "quantization_bit", "null", {"base": None}),
        ("LLaMA-Factory", "finetuning_type", "full", {"train": None}),
        ("ms-swift", "train_type", "full", {"train": None}),
        ("TRL", "use_peft", "false", {"train": None}),
        ("TRL", "lora_task_type", "CAUSAL_LM", {"train": "lora:16"}),
        *(("TRL", "loss_type", name, {"loss": "dpo"}) for name in ("discopop", "sigmoid_norm", "aot_pair")),
        ("Axolotl", "sdp_attention", "true", {}),
        ("Accelerate", "fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD_ZERO2", {"zero_stage": 2}),
        ("Accelerate", "fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", {}),
        ("Accelerate", "fsdp_config.fsdp_backward_prefetch", "BACKWARD_PRE", {}),
        ("torchtune", "model.lora_attn_modules", "[]", {"train": "lora:8:gate+up+down"}),
        ("torchtune", "ac_mode", "full", {"recompute": "full"}),
    ],
)
def test_a_value_of_a_program_that_tunes_has_its_price(
    program: str, path: str, value: str, said: dict[str, Any]
) -> None:
    launch = with_value(program, path, value)
    assert ({name: launch.settings.get(name) for name in said}, launch.unpriced) == (said, [])


@pytest.mark.parametrize(
    ("program", "path", "value"),
    [
        *(("LLaMA-Factory", "quantization_bit", bits) for bits in ("1", "2", "3", "5", "6")),
        ("ms-swift", "quant_bits", "float8"),
        ("ms-swift", "target_regex", "x"),
        ("Axolotl", "gradient_checkpointing", "offload_disk"),
        ("Accelerate", "fsdp_config.fsdp_auto_wrap_policy", "NO_WRAP"),
        ("Accelerate", "fsdp_config.fsdp_backward_prefetch", "NO_PREFETCH"),
        ("Accelerate", "dynamo_config.dynamo_backend", "INDUCTOR"),
        ("DeepSpeed", "zero_optimization.zenflow.topk_ratio", "0.1"),
        ("DeepSpeed", "compile.deepcompile", "true"),
        ("DeepSpeed", "torch_autocast.enabled", "true"),
        ("DeepSpeed", "bf16.bf16_master_weights_and_grads", "true"),
        ("litgpt", "optimizer", "bitsandbytes.optim.PagedAdamW"),
        ("litgpt", "train.tie_embeddings", "true"),
        ("torchtune", "optimizer._component_", "torchao.prototype.low_bit_optim.AdamW4bit"),
        ("torchtune", "optimizer._component_", "torch.optim.Adagrad"),
        ("torchtune", "enable_fp8_training", "true"),
        ("torchtune", "compile.loss", "true"),
    ],
)
def test_a_value_of_a_program_that_tunes_without_a_price_is_named(program: str, path: str, value: str) -> None:
    assert with_value(program, path, value).unpriced == [f"{path} {value}".removesuffix(" true")]


def test_an_optimizer_of_a_class_that_litgpt_may_have_is_named() -> None:
    launch = with_value("litgpt", "optimizer", "{class_path: galore_torch.GaLoreAdamW8bit}")
    assert launch.unpriced == ["optimizer.class_path galore_torch.GaLoreAdamW8bit"]


@pytest.mark.parametrize(("scopes", "graphed"), [((2,), ("attention",)), ((5, 6), ("router", "shared_experts"))])
def test_scopes_of_graphs_are_read_by_their_numbers_too(scopes: tuple[int, ...], graphed: tuple[str, ...]) -> None:
    members = [{"_target_": "megatron.core.transformer.enums.CudaGraphScope", "_args_": [scope]} for scope in scopes]
    values = yaml.safe_load(launches.BRIDGE)
    values["model"] |= {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": members}
    launch = launch_of(json.dumps(values), "bridge.yaml", 64)
    assert (launch.settings["graphed"], launch.unpriced) == (graphed, [])


VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=1024 \\
    data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.n_gpus_per_node=8 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 %s
"""


def actor(more: str) -> Launch:
    return read_launch([File("grpo.sh", (VERL % more).encode(), section="actor")]).launch


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("actor_rollout_ref.actor.strategy", "torchtitan"),
        ("actor_rollout_ref.actor.fsdp_config.dtype", "float16"),
        ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", "fp32"),
    ],
)
def test_a_value_of_an_actor_of_verl_without_a_price_is_named(path: str, value: str) -> None:
    assert actor(f"{path}={value}").unpriced == [f"{path} {value}"]
    assert actor("actor_rollout_ref.actor.fsdp_config.dtype=bfloat16").unpriced == []


def test_a_schedule_that_weaves_in_another_way_is_said() -> None:
    piped = {
        "pipeline_parallel_degree = 1": "pipeline_parallel_degree = 2",
        "local_batch_size = 2": "local_batch_size = 8",
    }
    text = launches.TORCHTITAN
    for before, after in piped.items():
        text = text.replace(before, after)
    text = text.replace("[parallelism]", '[parallelism]\npipeline_parallel_schedule = "InterleavedZeroBubble"')
    launch = launch_of(text, "titan.toml", 64)
    told = "parallelism.pipeline_parallel_schedule interleavedzerobubble is priced as interleaved1f1b"
    assert (launch.settings["vpp"], told in launch.unsearched) == (2, True)


@pytest.mark.parametrize(("modules", "missing"), [("core_attn attn_proj", ""), ("core_attn", "attn_proj")])
def test_activations_that_stay_are_named_where_all_are_priced_on_the_host(modules: str, missing: str) -> None:
    launch = launch_of(f"{FLAGS}--fine-grained-activation-offloading --offload-modules {modules}")
    question = launch_as_read(launch, Controls(), "run.sh")
    named = f"--offload-modules without {missing}, which are priced on the host too"
    assert question.launch.unpriced == [named] * bool(missing)


def test_layers_of_experts_that_no_stride_divides_are_named() -> None:
    assert launch_of(f"{FLAGS}{FREQUENCY} 3").unpriced == ["--moe-layer-freq 3 of 32 layers"]
    assert launch_of(f"{FLAGS}{FREQUENCY} 4").unpriced == []


TITAN = """def llama3_8b() -> Trainer.Config:
    converters = [Float8LinearConverter.Config(%s)]
    return Trainer.Config(
        model_spec=model_registry("8B", converters=converters),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=8192, max_context_length=8192),
    )
"""


@pytest.mark.parametrize(
    ("arguments", "recipe", "unpriced"),
    [("", "rowwise", []), ('recipe_name="rowwise_with_gw_hp"', None, ["recipe_name rowwise_with_gw_hp"])],
)
def test_newer_releases_of_torchtitan_scale_operands_by_row(
    arguments: str, recipe: str | None, unpriced: list[str]
) -> None:
    launch = launch_of(TITAN % arguments, "config_registry.py", 8)
    assert (launch.settings["dtype"], launch.settings.get("fp8_recipe"), launch.unpriced) == ("fp8", recipe, unpriced)


@pytest.mark.parametrize(
    ("loss", "chunks"),
    [
        ("CrossEntropyLoss.Config()", None),
        ("ChunkedCELoss.Config()", 8),
        ("ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(), num_chunks=4)", 4),
    ],
)
def test_a_loss_of_torchtitan_has_the_logits_of_some_tokens_in_turn(loss: str, chunks: int | None) -> None:
    text = (TITAN % "").replace("model_spec=", f"loss={loss}, model_spec=")
    launch = launch_of(text, "config_registry.py", 8)
    assert (launch.settings.get("loss_chunks"), launch.unpriced) == (chunks, [])


def test_a_model_without_a_gate_has_gelu_where_no_flag_says_another() -> None:
    flags = FLAGS.replace("--swiglu", "").replace("--num-layers 32", "--num-layers 32 --use-rotary-position-embeddings")
    assert launch_as_read(launch_of(flags), Controls(), "run.sh").job.model.activation == "gelu"
    squared = launch_as_read(launch_of(f"{flags}--squared-relu"), Controls(), "run.sh")
    assert squared.job.model.activation == "relu2"


def test_a_zero_stage_that_is_none_is_refused() -> None:
    launch = launch_of(f"{FLAGS}--deepspeed --deepspeed_config ds.json --zero-stage 4")
    with pytest.raises(InvalidFile, match="ZeRO stage must be from 0 to 3, but is 4"):
        launch_as_read(launch, Controls(), "run.sh")


@pytest.mark.parametrize(("word", "attention"), [("unfused", "unfused"), ("flash", "flash"), ("auto", None)])
def test_members_of_an_enum_are_read_in_recipes_of_nemo(word: str, attention: str | None) -> None:
    text = f"""from nemo.collections import llm
from megatron.core.transformer.enums import AttnBackend
recipe = llm.llama3_8b.pretrain_recipe(num_nodes=2, num_gpus_per_node=8)
recipe.model.config.attention_backend = AttnBackend.{word}
"""
    launch = launch_of(text, "train.py")
    assert (launch.settings.get("attention"), launch.unpriced) == (attention, [])
