"""What programs take where nothing says otherwise, and other spellings of what they are told."""

from collections.abc import Mapping
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.deepspeed.defaults import KERNELS
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.frameworks.unpriced import costs
from tests.frameworks.test_launches import question

MODEL = "meta-llama/Llama-2-7b-hf"
ARGUMENTS = f"train.py --model_name_or_path {MODEL} --max_seq_length 2048 --gradient_accumulation_steps 2 --bf16"
HYPHENS = "--per-device-train-batch-size=4 --activation-checkpointing"
ENGINE = """{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto",
  "data_types": {"grad_accum_dtype": "fp32"}}"""
BATCH = f"{ARGUMENTS} --per_device_train_batch_size 2"
LAUNCH = "accelerate launch --num_processes 8"
TRL = f"{LAUNCH} -m trl.scripts.sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name d"
ALPACA = "torchrun --nproc_per_node 4 finetune.py --base_model huggyllama/llama-7b --data_path d"
SWIFT = "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --dataset d"
AXOLOTL = "base_model: Qwen/Qwen2.5-7B\ndatasets: [{path: d}]\nbf16: auto\n"
SFT = "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 1\nmax_length: 2048\n"
FACTORY = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ntemplate: qwen\ndataset: d\ndo_train: true\n"
FLASH = "base_model: Qwen/Qwen2.5-7B\nflash_attention: true\n"
UNCAST = "embeddings, norms and the residual stream in fp32, as Axolotl has them without flash attention"
MASKED = "%s_packing without flash attention: a mask over whole sequences"
CONFIG = "compute_environment: LOCAL_MACHINE\nnum_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n"
UNSLOTH = """from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
model, _ = FastLanguageModel.from_pretrained("unsloth/Meta-Llama-3.1-8B", max_seq_length=4096)
model = FastLanguageModel.get_peft_model(model, r=16, max_seq_length=2048)
SFTTrainer(model=model, args=%s())
"""


def said(files: Mapping[str, str], gpus: int | None = None) -> dict[str, Any]:
    """What is priced of files, by name."""
    asked = question(files, gpus=gpus)
    plan, job = asked.plan, asked.job
    return {
        **{"mb": plan.micro_batch, "acc": plan.num_microbatches, "zero": plan.zero_stage, "shard": plan.shard},
        **{"rec": plan.recompute, "cp": plan.cp, "seq": job.seq_len, "train": job.train, "base": job.base},
        **{"opt": job.optimizer, "dtype": job.dtype, "pack": job.packing, "offload": asked.knobs.offload},
        **{"attention": job.stack.features.attention, "states": _states(asked), "bucket": asked.knobs.bucket},
        "wide": job.wide_rest,
    }


def _states(asked: LaunchAsRead) -> tuple[int, int, int]:
    features = asked.job.stack.features
    return features.param_bytes, features.grad_bytes, features.optimizer_bytes


@pytest.mark.parametrize(
    ("files", "gpus", "priced"),
    [
        # huggingface/trl v1.16.0, trl/trainer/base_config.py, sft_config.py and model_config.py
        ({"a.sh": TRL}, None, {"mb": 8, "rec": "full", "seq": 1024, "dtype": "bf16", "states": (2, 4, 12)}),
        ({"a.sh": f"{TRL} --dtype bfloat16"}, None, {"states": (2, 2, 4)}),
        ({"a.sh": f"{TRL} --max_length 4096 --gradient_checkpointing false"}, None, {"seq": 4096, "rec": "none"}),
        # huggingface/peft v0.21.2, src/peft/tuners/tuners_utils.py, and transformers' GptOssExperts
        *(
            (
                {
                    "a.sh": f"{TRL} --use_peft --lora_r 8 --lora_target_modules {words}".replace(
                        model, "openai/gpt-oss-20b"
                    )
                },
                None,
                {"train": f"lora:8:{train}"},
            )
            for model, words, train in (
                ("Qwen/Qwen2.5-0.5B", "all-linear", "q+k+v+o"),
                ("Qwen/Qwen2.5-0.5B", "q_proj v_proj up_proj", "q_proj+v_proj"),
            )
        ),
        (
            {"a.yaml": f"{SFT}packing: true\n"},
            8,
            {"rec": "full"},
        ),
        ({"a.sh": f"{LAUNCH} {BATCH} --max_length 4096"}, None, {"rec": "none"}),
        # tloen/alpaca-lora, finetune.py
        (
            {"a.sh": ALPACA},
            None,
            {"train": "qlora:8:q_proj+v_proj", "base": "int8", "mb": 4, "acc": 8, "seq": 256, "dtype": "fp16"},
        ),
        # huggingface/peft v0.3.0, src/peft/utils/other.py, prepare_model_for_int8_training
        ({"a.sh": ALPACA}, None, {"rec": "full"}),
        (
            {"a.sh": f"{ALPACA} --batch_size 64 --micro_batch_size 8 --lora_target_modules '[q_proj,k_proj]'"},
            None,
            {"mb": 8, "acc": 2, "train": "qlora:8:q_proj+k_proj"},
        ),
        # modelscope/ms-swift v4.6.0, swift/trainers/arguments.py and swift/megatron/arguments/megatron_args.py
        ({"a.sh": SWIFT}, None, {"mb": 1, "acc": 4, "rec": "full", "train": "lora:8"}),
        ({"a.sh": f"{SWIFT} --per_device_train_batch_size 8"}, None, {"mb": 8, "acc": 1}),
        ({"a.sh": f"{SWIFT} --quant_bits 4 --quant_method bnb"}, None, {"base": "nf4", "wide": False}),
        # its swift/arguments/base_args/quant_args.py, get_quantization_config
        ({"a.sh": f"{SWIFT} --quant_bits 4"}, None, {"train": "lora:8", "base": ""}),
        (
            {"a.sh": f"{SWIFT} --use_megatron_fsdp true".replace("swift", "megatron")},
            None,
            {"mb": 1, "acc": 4, "zero": 3},
        ),
        ({"a.sh": SWIFT.replace("sft", "pt")}, None, {"train": "lora:8"}),
        ({"a.sh": f"{SWIFT} --deepspeed zero2 --tuner_type full"}, None, {"zero": 2, "bucket": 4e8}),
        # axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/utils/schemas
        (
            {"a.yaml": f"{AXOLOTL.replace('bf16: auto', '')}fsdp_config: {{offload_params: false}}\n"},
            8,
            {"zero": 3, "states": (0, 4, 12), "dtype": "bf16"},
        ),
        ({"a.yaml": AXOLOTL}, 8, {"mb": 1, "seq": 512}),
        ({"a.yaml": f"{AXOLOTL}sequence_len: 2048\nsequence_parallel_degree: 2\n"}, 8, {"seq": 2048, "cp": 2}),
        (
            {"a.yaml": f"{AXOLOTL}adapter: qlora\nload_in_4bit: true\nlora_r: 8\npeft_use_dora: true\n"},
            8,
            {"train": "dora:8", "base": "nf4", "wide": False},
        ),
        # hiyouga/LLaMA-Factory v0.9.5, src/llamafactory/hparams
        ({"a.yaml": FACTORY}, 8, {"train": "lora:8", "mb": 8, "seq": 2048, "rec": "full"}),
        ({"a.yaml": f"{FACTORY}quantization_bit: 4\n"}, 8, {"base": "nf4", "wide": False}),
        # huggingface/accelerate v1.15.0, src/accelerate/utils/dataclasses.py
        (
            {"a.sh": f"accelerate launch --config_file c.yaml {BATCH}", "c.yaml": f"{CONFIG}distributed_type: FSDP\n"},
            None,
            {"zero": 3, "shard": 0},
        ),
        (
            {
                "a.sh": f"accelerate launch --config_file c.yaml {BATCH}",
                "c.yaml": f"{CONFIG}distributed_type: DEEPSPEED\n",
            },
            None,
            {"zero": 2},
        ),
        (
            {
                "a.sh": f"accelerate launch --config_file c.yaml {BATCH}",
                "c.yaml": f"{CONFIG}distributed_type: FSDP\nfsdp_config: {{fsdp_sharding_strategy: HYBRID_SHARD}}\n",
            },
            None,
            {"zero": 3, "shard": 8},
        ),
        (
            {"a.sh": f"{LAUNCH} --use_fsdp --fsdp_activation_checkpointing true {BATCH}"},
            None,
            {"zero": 3, "rec": "full"},
        ),
        (
            {"a.sh": f"{LAUNCH} --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu {BATCH}"},
            None,
            {"zero": 3, "offload": 1.0},
        ),
        (
            {"a.sh": f"{LAUNCH} --mixed_precision fp16 {BATCH.removesuffix(' --bf16')}".replace(" --bf16", "")},
            None,
            {"dtype": "fp16"},
        ),
        # huggingface/transformers, training_args.py
        (
            {"a.sh": f"torchrun --nnodes 2 --nproc_per_node 8 {BATCH} --fsdp 'hybrid_shard_zero2 auto_wrap'"},
            None,
            {"zero": 2, "shard": 8},
        ),
        (
            {
                "a.sh": f"torchrun --nproc_per_node 8 {BATCH}".replace("_", "-").replace(
                    "nproc-per-node", "nproc_per_node"
                )
            },
            None,
            {"mb": 2, "acc": 2, "seq": 2048},
        ),
        (
            {"a.sh": f"torchrun --nproc_per_node 8 {ARGUMENTS} {HYPHENS}"},
            None,
            {"mb": 4, "rec": "full"},
        ),
        ({"a.sh": f"torchrun --nproc_per_node 8 {ARGUMENTS} --per_gpu_train_batch_size 4"}, None, {"mb": 4}),
        ({"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --max_length 2048 --adafactor"}, None, {"opt": "adafactor"}),
        (
            {
                "a.sh": f"deepspeed --num_gpus 8 {ARGUMENTS} --deepspeed ds.json",
                "ds.json": ENGINE,
            },
            None,
            {"mb": 8, "zero": 2, "states": (2, 4, 12)},
        ),
        # deepspeedai/DeepSpeedExamples, applications/DeepSpeed-Chat/training/step1_supervised_finetuning/main.py
        (
            {"a.sh": f"deepspeed --num_gpus 8 main.py --model_name_or_path {MODEL} --data_split 2,4,4 --zero_stage 2"},
            None,
            {"mb": 16, "acc": 1, "seq": 512, "dtype": "fp16", "zero": 2},
        ),
        # haotian-liu/LLaVA, llava/train/train.py
        (
            {"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --lora_enable True --bits 4"},
            None,
            {"train": "qlora:64", "base": "nf4"},
        ),
        # huggingface/optimum-habana, examples/language-modeling/run_lora_clm.py
        (
            {"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --use_habana --dataset_concatenation"},
            None,
            {"attention": "fused_softmax", "pack": "on", "train": "full"},
        ),
        (
            {"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --use_habana".replace("train.py", "run_lora_clm.py")},
            None,
            {"train": "lora:8:q+v"},
        ),
        (
            {"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --use_habana --attn_implementation gaudi_fused_sdpa"},
            None,
            {"attention": "flash"},
        ),
        # unslothai/unsloth 2026.10.9, unsloth/models/rl.py and llama.py
        ({"a.py": UNSLOTH % "SFTConfig"}, 1, {"mb": 4, "acc": 2, "opt": "adamw-8bit", "seq": 4096}),
        ({"a.py": UNSLOTH % "TrainingArguments"}, 1, {"mb": 8, "acc": 1, "opt": "adamw-fused"}),
    ],
)
def test_what_is_not_said_is_the_programs_own(
    files: Mapping[str, str], gpus: int | None, priced: dict[str, Any]
) -> None:
    found = said(files, gpus)
    assert {name: found[name] for name in priced} == priced


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("--mixed_precision no", "mixed_precision"),
        ("--dynamo_backend inductor --mixed_precision bf16", "dynamo_backend inductor"),
    ],
)
def test_options_of_a_launcher_are_named(text: str, named: str) -> None:
    run = f"{LAUNCH} {text} {BATCH}".replace(" --bf16", "")
    assert any(each.startswith(named) for each in question({"a.sh": run}).launch.unpriced)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("dtype: float32\nuse_peft: true\n", "dtype float32: what is frozen has 32 bits"),
        ("bf16: false\n", "bf16 false, and no format of 16 bits: priced as bf16"),
        ("torch_dtype: bfloat16\n", ""),
        ("bf16: true\naccelerator_config: '{\"split_batches\": true}'\n", 'accelerator_config {"split_batches": true}'),
        (f"{FLASH}bf16: true\ntorch_compile: auto\n", "torch_compile auto"),
        ("bf16: true\nprecompute_ref_log_probs: true\nbeta: 0.1\n", "precompute_ref_log_probs"),
    ],
)
def test_formats_and_passes_that_are_not_priced_are_named(more: str, named: str) -> None:
    assert question({"a.yaml": SFT + more}, gpus=8).launch.unpriced == [named] * bool(named)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("adapter: qlora\nload_in_4bit: true\n", ()),
        ("adapter: lora\n", ()),
        ("adapter: lora\nlora_target_modules: [q_proj, v_proj]\n", ()),
        ("adapter: lora\nlora_target_modules: [q_proj, k_proj, v_proj]\n", KERNELS),
        ("adapter: lora\npeft_use_dora: true\n", KERNELS),
        ("adapter: lora\nlora_mlp_kernel: true\n", ("lora_mlp_kernel",)),
        ("adapter: lora\nbase_model: Qwen/Qwen3-30B-A3B\n", KERNELS),
        ("adapter: lora\nload_in_8bit: true\n", ()),
        ("adapter: lora\nlora_qkv_kernel: false\n", ()),
        ("adapter: lora\nrl: dpo\n", ()),
        ("adapter: lora\ntrust_remote_code: true\n", ()),
        ("flash_attention: true\n", ()),
        ("attn_implementation: flash_attention_3\n", ()),
        ("adapter: lora\nlora_o_kernel: false\nsample_packing: true\n", (MASKED % "sample",)),
        ("adapter: lora\nlora_o_kernel: false\nsample_packing: true\nflash_attention: true\n", ()),
        ("", (UNCAST,)),
        ("attn_implementation: sdpa\n", (UNCAST,)),
    ],
)
def test_what_axolotl_switches_on_is_named(more: str, named: tuple[str, ...]) -> None:
    assert question({"a.yaml": AXOLOTL + more}, gpus=8).launch.unpriced == [*named]


@pytest.mark.parametrize(
    ("more", "fused"),
    [
        ("adapter: qlora\nload_in_4bit: true\n", True),
        ("adapter: lora\nlora_mlp_kernel: true\nlora_qkv_kernel: true\nlora_o_kernel: true\n", True),
        ("adapter: lora\nlora_mlp_kernel: true\nlora_qkv_kernel: true\n", False),
        ("adapter: lora\nload_in_8bit: true\n", False),
        ("adapter: lora\nlora_target_modules: [q_proj, v_proj]\n", False),
        ("adapter: lora\nbase_model: Qwen/Qwen3-30B-A3B\n", False),
        ("flash_attention: true\n", False),
    ],
)
def test_kernels_of_adapters_are_priced_where_axolotl_patches_all_of_a_layer(more: str, fused: bool) -> None:
    """Adapters, whose inputs nobody casts then, and an MLP that keeps two of four activations."""
    job = question(
        {"a.yaml": AXOLOTL.replace("base_model: Qwen/Qwen2.5-7B\n" * ("base_model" in more), "") + more}, gpus=8
    ).job
    assert job.fused_adapters is fused


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("neat_packing: true\n", [MASKED % "neat"]),
        ("neat_packing: true\nflash_attn: fa2\n", []),
        ("packing: true\n", []),
        ("", []),
        ("finetuning_type: full\nbf16: true\n", []),
        ("finetuning_type: full\npure_bf16: true\n", []),
        (
            "finetuning_type: full\n",
            ["no format of 16 bits: LLaMA-Factory computes in fp32 what it holds so, priced as bf16"],
        ),
    ],
)
def test_what_llama_factory_decides_is_named(more: str, named: list[str]) -> None:
    assert question({"a.yaml": FACTORY + more}, gpus=8).launch.unpriced == named


def test_the_engine_of_deepspeed_chat_overlaps() -> None:
    run = f"deepspeed --num_gpus 8 main.py --model_name_or_path {MODEL} --data_split 2,4,4 --zero_stage"
    launch = question({"a.sh": f"{run} 2"}).launch
    assert (launch.settings["reduce_overlap"], launch.settings["bucket"]) == (True, 1e9)
    assert {"reduce_overlap", "bucket"} <= set(launch.fixed)


@pytest.mark.parametrize(
    "files",
    [
        {"a.yaml": "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ntemplate: qwen\nexport_dir: out\n"},  # merges
        {"a.sh": "swift sft --model_type qwen-7b --dataset d --max_length 2048\n"},  # of a release before 3
        {"a.sh": "python -m pip install trl==1.16 peft==0.21\n"},
        {"a.sh": "python export.py --pretrained-model-name m --tensor-model-parallel-size 2 --export-dir out\n"},
    ],
)
def test_what_trains_nothing_is_no_launch(files: Mapping[str, str]) -> None:
    with pytest.raises(InvalidFile, match=r"no command that is known to train|no launch that is known|ms-swift 2"):
        question(files, gpus=8, model="qwen2.5-7b")


def test_a_length_alone_is_of_no_program_that_is_known() -> None:
    run = f"deepspeed --num_gpus 8 finetune.py --model-path {MODEL} --batch-size 4 --max-length 512 --deepspeed ds.json"
    launch = question({"a.sh": run, "ds.json": ENGINE}, model="llama2-7b").launch
    assert launch.settings["software"] == "transformers"  # which alone fills in what its engine's file leaves open
    assert "batch_size 4" in launch.unpriced


def test_accelerates_section_for_megatron_is_refused() -> None:
    text = f"{CONFIG}distributed_type: MEGATRON_LM\nmegatron_lm_config: {{megatron_lm_tp_degree: 2}}\n"
    with pytest.raises(InvalidFile, match="Accelerate on Megatron-LM: its section"):
        question({"a.sh": f"accelerate launch --config_file c.yaml {BATCH}", "c.yaml": text})
    with pytest.raises(InvalidFile, match="Accelerate on Megatron-LM: its section"):
        question({"a.sh": f"{LAUNCH} --use_megatron_lm {BATCH}"})


def test_documents_of_nemo_have_a_length_of_their_own() -> None:
    run = "python train_gpt_sft.py trainer.num_nodes=1 trainer.devices=8 trainer.precision=bf16"
    run += " model.encoder_seq_length=4096 model.data.train_ds.micro_batch_size=1"
    run += " model.data.train_ds.global_batch_size=128"
    own = f"{run} model.data.train_ds.max_seq_length=2048"
    assert question({"a.sh": run}, model="llama3-8b").job.seq_len == 4096
    assert question({"a.sh": own}, model="llama3-8b").job.seq_len == 2048
    aligner = question({"a.sh": f"{run.split(' model.')[0]} model.x=1 trainer.sft.max_steps=9"}, model="llama3-8b")
    assert (aligner.job.seq_len, aligner.job.global_batch, aligner.plan.zero_stage) == (2048, 128, 1)
    assert aligner.launch.unpriced == ["megatron_amp_O2 false, as NeMo 1 has it unless told"]
    packed = question(
        {"a.sh": f"{own} model.data.train_ds.packed_sequence=True model.data.train_ds.packed_sequence_size=8192"},
        model="llama3-8b",
    )
    assert (packed.job.seq_len, packed.job.packing) == (8192, "on")


@pytest.mark.parametrize(
    ("name", "value", "costly"),
    [
        *(
            (name, "true", True)
            for name in ("torch_compile_mode", "deepcompile", "chunked_cross_entropy", "full_determinism")
        ),
        *(
            (name, "true", True)
            for name in ("shift_attn", "use_mca", "gptq", "load_in_fp8", "unsloth_tiled_mlp", "float32")
        ),
        *(
            (name, "true", True)
            for name in ("bf16.bf16_master_weights_and_grads", "compile.deepcompile", "amp.enabled")
        ),
        *(
            (name, "true", True)
            for name in ("model.tiled_mlp.enabled", "liger_rms_norm", "use_kernels", "use_fused_kernels")
        ),
        *(
            (name, "4", True)
            for name in ("target_regex", "torch_empty_cache_steps", "label_smoothing_factor", "fp4_format")
        ),
        *((name, "false", True) for name in ("zero_optimization.reduce_scatter", "bnb_4bit_use_double_quant")),
        ("fsdp_config.fsdp_auto_wrap_policy", "NO_WRAP", True),
        ("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", False),
        ("fsdp_config.fsdp_backward_prefetch", "BACKWARD_POST", True),
        ("fsdp_config.fsdp_backward_prefetch", "BACKWARD_PRE", False),
        ("optimizer.fused", "false", True),
        ("ddp_backend", "gloo", True),
        ("ddp_backend", "nccl", False),
        ("plugins", "['axolotl.integrations.liger.LigerPlugin']", False),
        *(
            (name, "4", False)
            for name in ("loraplus_lr_ratio", "lora_alpha_pattern", "gc_steps", "export_size", "max_shard_size")
        ),
        *((name, "true", False) for name in ("merge_lora", "lora_on_cpu", "create_new_adapter", "resize_vocab")),
        *(
            (name, "true", False)
            for name in ("zero_optimization.elastic_checkpoint", "activation_checkpointing.number_checkpoints")
        ),
        *((name, "out/1", True) for name in ("adapter.restore_path", "data.lora.columns", "lora.columns")),
        *((name, "out/1", False) for name in ("adapter.save", "restore_path", "data.columns")),
    ],
)
def test_what_costs_is_known_by_name(name: str, value: str, costly: bool) -> None:
    assert costs("DeepSpeed", name, value) == costly


@pytest.mark.parametrize(
    ("name", "zero", "offload"),
    [
        ("ds_z3_config.json", 3, 0.0),
        ("zero2.json", 2, 0.0),
        ("ds_zero_stage3_offload.json", 3, 1.0),
        ("ds_zero2_no_offload.json", 2, 0.0),
        ("stage3_no_offloading_accelerate.conf", 3, 0.0),
        ("d.json", 0, 0.0),
    ],
)
def test_a_config_that_is_not_here_tells_its_stage_by_its_name(name: str, zero: int, offload: float) -> None:
    asked = question({"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --deepspeed configs/{name}"})
    assert (asked.plan.zero_stage, asked.knobs.offload) == (zero, offload)
    assert any(f"by the name of configs/{name} alone" in each for each in asked.launch.assumed) == bool(zero)
    assert f"configs/{name}, which was not read" in asked.launch.unpriced


def test_data_in_json_are_no_configs() -> None:
    asked = question({"a.sh": f"torchrun --nproc_per_node 8 {BATCH} --train_path t.json --valid_path v.json"})
    assert not asked.launch.unpriced


def test_constants_within_a_function_of_unsloth_are_read() -> None:
    head, body = UNSLOTH.split("\n", 1)
    inside = "".join(f"    {line}\n" for line in body.splitlines() if line)
    text = f"{head}\ndef main():\n    LONG = 1024\n{inside}".replace("4096", "LONG") % "SFTConfig"
    assert question({"a.py": text}, gpus=1).job.seq_len == 1024


def test_python_on_the_trainer_is_refused_as_that() -> None:
    with pytest.raises(InvalidFile, match="a program on the Trainer, whose Python is not read"):
        question({"a.py": "from trl import SFTTrainer\nSFTTrainer(model='m').train()\n"}, gpus=8)


@pytest.mark.parametrize(
    ("starter", "alone"),
    [
        ("python train.py", True),
        ("python3 -u train.py", True),
        ("python -m own.train", True),
        ("torchrun --nproc_per_node 8 train.py", False),
        ("srun --ntasks=8 python train.py", False),
        ("python -m torch.distributed.run --nproc_per_node 8 train.py", False),
    ],
)
def test_one_process_on_several_gpus_is_named(starter: str, alone: bool) -> None:
    asked = question({"a.sh": BATCH.replace("train.py", starter)}, gpus=8)
    assert any("DataParallel" in each for each in asked.launch.unpriced) == alone


def test_a_task_type_of_trl_costs_nothing() -> None:
    launch = question({"a.yaml": SFT + "bf16: true\ntask_type: sft\ndtype: bfloat16\n"}, gpus=8).launch
    assert not any(each.startswith("task_type") for each in launch.unpriced)


def test_weights_of_4_bits_that_fsdp_leaves_whole_are_named() -> None:
    text = "model_name_or_path: Qwen/Qwen2.5-7B\nfsdp: full_shard\nload_in_4bit: true\nuse_peft: true\nlora_r: 8\n"
    text += "per_device_train_batch_size: 1\nmax_length: 2048\ndtype: bfloat16\n"
    whole = ["weights of 4 bits that FSDP does not shard: bnb_4bit_quant_storage is no format of floats"]
    assert question({"a.yaml": text}, gpus=8).launch.unpriced == whole
    assert not question({"a.yaml": f"{text}bnb_4bit_quant_storage: bfloat16\n"}, gpus=8).launch.unpriced


@pytest.mark.parametrize(
    ("program", "more", "named"),
    [
        ("train_lora.py", "", ["train_lora.py, which trains adapters by its name: priced as whole training"]),
        ("train.py", "--lora_alpha 16", ["lora_alpha, which is of adapters"]),
        ("train.py", "--lora_alpha 16 --use_lora False", []),
        ("train.py", "--gradient_check True", ["gradient_check true, which may be short for gradient_checkpointing"]),
        ("train.py", "", []),
        ("train.py", "--cutoff_len 9000", ["max_seq_length 2048 against cutoff_len 9000"]),
    ],
)
def test_what_an_unknown_program_may_mean_is_named(program: str, more: str, named: list[str]) -> None:
    run = f"{LAUNCH} {BATCH} {more}".replace("train.py", program)
    assert question({"a.sh": run}).launch.unpriced == named


@pytest.mark.parametrize(
    ("more", "train", "base", "drops"),
    [
        ("qlora.py --source_max_len 1024", "qlora:64", "nf4", False),
        ("qlora.py --source_max_len 1024 --bits 8 --lora_r 8", "qlora:8", "int8", False),
        ("finetune.py --source_max_len 1024 --micro_train_batch_size 1", "full", "", False),
        ("train.py --use_peft_lora True", "lora:64:q_proj+k_proj+v_proj+o_proj+down_proj+up_proj+gate_proj", "", True),
        ("run_lora_clm.py --use_habana --lora_rank 8 --lora_target_modules q_proj", "lora:8:q_proj", "", True),
        (
            "train_lora.py --lora_r 8 --lora_target_modules q_proj --lora_enable True --lora_dropout 0 --q_lora True",
            "qlora:8:q_proj",
            "nf4",
            False,
        ),
    ],
)
def test_adapters_that_programs_have_by_themselves(more: str, train: str, base: str, drops: bool) -> None:
    run = f"{LAUNCH} {BATCH}".replace("train.py", more)
    job = question({"a.sh": run}).job
    assert (job.train, job.base, job.stack.features.adapter_dropout) == (train, base, drops)


SUBMITTED = "python submit.py --num_nodes 8 --gpus 8 -- "


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (f"{SUBMITTED}{LAUNCH} {BATCH}", ["--num_nodes 8, ahead of --: only its program says what starts on each"]),
        (f"{SUBMITTED.replace(' 8 ', ' 1 ', 1)}{LAUNCH} {BATCH}", []),
        (
            f"{LAUNCH} {BATCH}".replace("train.py", "-m tools.train_unsloth"),
            ["tools.train_unsloth, which trains adapters by its name: priced as whole training"],
        ),
        (
            f"{LAUNCH} {BATCH}".replace("train.py", "run_reward_models.py").replace("model_name_or_path", "base_model"),
            ["run_reward_models.py, which learns from preferences by its name: priced as supervised"],
        ),
        (f"{LAUNCH} {BATCH} --spectrum_config_path snr", ["spectrum_config_path snr"]),
        (
            f"{LAUNCH} train.py --model_name {MODEL} --max_length 512 --train_batch_size 2 --mixed_precision bf16",
            ["train_batch_size 2, of one GPU or of all: only its program says"],
        ),
        (
            f"{LAUNCH} {BATCH} --context_length 8".replace("--max_seq_length 2048 ", ""),
            ["context_length, which may be the length"],
        ),
    ],
)
def test_what_stands_around_an_unknown_program_is_named(run: str, named: list[str]) -> None:
    assert question({"a.sh": run}).launch.unpriced == named


def test_the_shell_inside_of_a_container_says_how_many_processes_start() -> None:
    run = f'docker exec box bash -lc "CUDA_VISIBLE_DEVICES=0,1,2,3 \\\n{SWIFT} --max_length 64"'
    assert question({"a.sh": run}).job.gpus == 4


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("recipe: fp8-hybrid\n", ["recipe fp8-hybrid"]),
        ("recipe: bf16\n", []),
        (
            "model_name_or_path: microsoft/phi-4\nuse_peft: true\nlora_target_modules: [q_proj, o_proj]\n",
            ["lora_target_modules q_proj: this model has them as one matrix"],
        ),
        ("model_name_or_path: microsoft/phi-4\nuse_peft: true\nlora_target_modules: [qkv_proj, o_proj]\n", []),
        ("use_peft: true\nlora_target_modules: [q_proj, o_proj]\n", []),
    ],
)
def test_narrow_formats_and_matrices_that_a_model_has_as_one_are_named(more: str, named: list[str]) -> None:
    text = (
        SFT.replace("model_name_or_path: Qwen/Qwen2.5-7B\n" * ("model_name" in more), "")
        + "bf16: true\ndtype: bfloat16\n"
    )
    assert question({"a.yaml": text + more}, gpus=8).launch.unpriced == named


def test_a_file_of_training_arguments_is_a_config() -> None:
    """Firefly's, whose option has a word of data in its name."""
    files = {"a.sh": "deepspeed --num_gpus=8 train.py --train_args_file args/q.json", "q.json": ARGS}
    assert (question(files).plan.micro_batch, question(files).job.gpus) == (3, 8)


ARGS = '{"model_name_or_path": "Qwen/Qwen2.5-7B", "per_device_train_batch_size": 3, "max_seq_length": 64}'
