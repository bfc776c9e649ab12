"""Launch scripts and configs with the constructs that public ones have, written for these tests."""

from collections.abc import Sequence
from typing import Any

from optimizer.frameworks.launch_as_read import plan_of
from optimizer.frameworks.megatron.script import bash_launch
from optimizer.job.plan import Plan


def read_arguments(arguments: str | Sequence[str], gpus: int | None = None) -> tuple[Plan, dict[str, Any]]:
    """The plan that arguments of Megatron-LM launch, and all that they say; raises InvalidFile for what is wrong."""
    text = arguments if isinstance(arguments, str) else " ".join(f"'{argument}'" for argument in arguments)
    launch = bash_launch("arguments", text.strip().encode(), gpus).launch
    settings, problems = dict(launch.settings), list[str]()
    plan = plan_of(launch, settings, settings["gpus"], None, problems)
    assert not problems
    return plan, settings | {"ignored": launch.ignored}


ARRAYS = """#!/bin/bash
# Megatron-LM core_v0.19.0
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-32}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
OUT=$1
TP=8

LAUNCH=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --node_rank ${RANK:-0}
)
MODEL=(
    --num-layers 80
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --swiglu
    --normalization RMSNorm   # as in the paper
    --position-embedding-type rope
    --untie-embeddings-and-output-weights
    --disable-bias-linear
)
TRAIN=(
    --micro-batch-size 1
    --global-batch-size 512
    --train-samples 1000000
    --lr 3.0e-4
    --bf16
)
PARALLEL=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 5
    --sequence-parallel
    --use-distributed-optimizer
)
if [ -n "$EXTRA" ]; then
    TRAIN+=(--profile)
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py \\
    ${MODEL[@]} \\
    ${TRAIN[@]} \\
    ${PARALLEL[@]} \\
    --save $OUT
"""

SLURM = """#!/bin/bash
#SBATCH --job-name=big
#SBATCH --constraint=a100          # the fast ones
#SBATCH --nodes=48
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8

set -x -e
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
NNODES=$SLURM_NNODES
TP_SIZE=4
PP_SIZE=12
MICRO=2  # was 1
BATCH=2_048
ZERO=1
CONF="./ds.$SLURM_JOB_ID.json"
cat <<EOT > $CONF
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "zero_optimization": {"stage": $ZERO}
}
EOT
OPT=" \\
    --lr 6e-5 \\
    --clip-grad 1.0 \\
    "
ARGS=" \\
    --num-layers 70 \\
    --hidden-size 14336 \\
    --num-attention-heads 112 \\
    --seq-length 2048 \\
    --max-position-embeddings 2048 \\
    --micro-batch-size $MICRO \\
    --global-batch-size $BATCH \\
    --rampup-batch-size 192 16 9_765_625 \\
    --position-embedding-type alibi \\
    --embed-layernorm \\
    --pp-partition-method 'type:transformer|embedding' \\
    --checkpoint-activations \\
    --pad-vocab-size-to 250880 \\
    --bf16 \\
    $OPT \\
    "
DS=" --deepspeed --deepspeed_config ${CONF} --zero-stage ${ZERO} "
export LAUNCHER="python -u -m torch.distributed.run \\
    --nproc_per_node 8 \\
    --nnodes $NNODES \\
    "
export CMD=" \\
    `pwd`/pretrain_gpt.py \\
    --tensor-model-parallel-size $TP_SIZE \\
    --pipeline-model-parallel-size $PP_SIZE \\
    $ARGS \\
    $DS \\
    "
echo $CMD
srun --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" 2>&1 | tee log.txt
"""

MIXTURE = """#!/bin/bash
# Megatron-LM core_v0.19.0
#SBATCH -N 4
#SBATCH --gpus-per-node=h100:8
torchrun --nnodes $SLURM_NNODES --nproc-per-node=8 pretrain_gpt.py \\
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \\
  --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear \\
  --tokenizer-type Llama2Tokenizer --seq-length 4096 --max-position-embeddings 32768 \\
  --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall \\
  --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 8 \\
  --expert-tensor-parallel-size 1 --pipeline-model-parallel-size 2 \\
  --micro-batch-size 1 --global-batch-size=256 --bf16 --use-distributed-optimizer \\
  --overlap-grad-reduce --overlap-param-gather --recompute-activations --ddp-bucket-size 50000000
"""

TORCHTITAN = """# for 64 H100 GPUs
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]

[training]
local_batch_size = 2
seq_len = 8192
steps = 1000

[optimizer]
lr = 1.5e-4

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8  # inside of a node
pipeline_parallel_degree = 1
context_parallel_degree = 1

[activation_checkpoint]
mode = "full"
"""

DEEPSPEED = """{
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "reduce_bucket_size": 200000000,
    "offload_optimizer": {"device": "cpu"}
  },
  "bf16": {"enabled": "auto"},
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "wall_clock_breakdown": false
}
"""
ACCELERATE = """distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 2
num_processes: 16
main_process_port: 29500
"""
TRAINER = """model_name_or_path: meta-llama/Meta-Llama-3-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 16
gradient_checkpointing: true
max_seq_length: 4096
learning_rate: 1.0e-5
"""

NANOTRON = """general:
  seed: 1
model:
  ddp_bucket_cap_mb: 120
  dtype: bfloat16
  model_config:
    hidden_size: 4096
    intermediate_size: 14336
    num_attention_heads: 32
    num_hidden_layers: 32
    num_key_value_heads: 8
    vocab_size: 128256
    max_position_embeddings: 8192
    tie_word_embeddings: false
optimizer:
  accumulate_grad_in_fp32: true
  zero_stage: 1
parallelism:
  dp: 8
  pp: 2
  pp_engine: 1f1b
  tp: 2
  tp_mode: REDUCE_SCATTER
  tp_linear_async_communication: true
  recompute_layer: true
tokens:
  batch_accumulation_per_replica: 8
  micro_batch_size: 2
  sequence_length: 4096
  train_steps: 100
"""

GPT_NEOX = """{
  "pipe-parallel-size": 1,  # of 8 GPUs
  "model_parallel_size": 2,
  "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 2048,
  "max_position_embeddings": 2048, "pos_emb": "rotary", "no_weight_tying": true,
  "zero_optimization": {"stage": 1, "reduce_bucket_size": 500000000},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
  "checkpoint-activations": true,
  "fp16": {"enabled": true},
}
"""

LLM_FOUNDRY = """variables:
  max_seq_len: 2048
max_seq_len: ${variables.max_seq_len}
model:
  name: mpt_causal_lm
  d_model: 4096
  n_heads: 32
  n_layers: 32
  expansion_ratio: 4
  max_seq_len: ${variables.max_seq_len}
  vocab_size: 50368
  attn_config:
    attn_impl: flash
global_train_batch_size: 1024
device_train_microbatch_size: 8
max_duration: 1000ba
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""

NEMO = """trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
model:
  micro_batch_size: 1
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 4096
  max_position_embeddings: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  activation: fast-swiglu
  normalization: rmsnorm
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  bias: false
  sequence_parallel: true
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  optim:
    name: distributed_fused_adam
    lr: 3e-4
    overlap_grad_sync: true
  megatron_amp_O2: true
"""

NEMO_RECIPE = """import nemo_run as run
from nemo.collections import llm
from nemo.collections.llm.recipes.precision.mixed_precision import bf16_with_fp8_mixed


def configured(nodes: int = 1, gpus_per_node: int = 8):
    recipe = llm.llama3_8b.pretrain_recipe(name="first", num_nodes=nodes, num_gpus_per_node=gpus_per_node)
    recipe.trainer.strategy.context_parallel_size = 1
    recipe.data.micro_batch_size = 2
    return recipe


def start():
    recipe = configured(nodes=2)
    run.run(recipe, executor=run.LocalExecutor(ntasks_per_node=recipe.trainer.devices, launcher="torchrun"))


if __name__ == "__main__":
    start()
"""
FLAGSCALE = """experiment:
  task: {type: train, backend: megatron}
  runner: {nnodes: 4, nproc_per_node: 8}
system:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  sequence_parallel: true
  use_distributed_optimizer: true
  precision:
    bf16: true
    accumulate_allreduce_grads_in_fp32: true
  checkpoint: {save_interval: 100, ckpt_format: torch}
  recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  group_query_attention: true
  num_query_groups: 8
  seq_length: 8192
  max_position_embeddings: 8192
  use_rotary_position_embeddings: true
  swiglu: true
  normalization: RMSNorm
  disable_bias_linear: true
  untie_embeddings_and_output_weights: true
  micro_batch_size: 1
  global_batch_size: 256
  optimizer: {lr_scheduler: {lr: 1.5e-4}}
data:
  tokenizer: {tokenizer_type: Llama3TokenizerFS, vocab_size: 128256}
"""

BRIDGE = """model:
  recipe: llama3_70b
  tensor_model_parallel_size: 8
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
  sequence_parallel: true
  seq_length: 8192
train:
  micro_batch_size: 1
  global_batch_size: 128
ddp:
  overlap_grad_reduce: false
  use_distributed_optimizer: true
"""

BRIDGE_LORA = """model:
  recipe: qwen3_8b
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 1
  context_parallel_size: 1
  sequence_parallel: true
  seq_length: 2048
train:
  micro_batch_size: 1
  global_batch_size: 32
ddp:
  use_distributed_optimizer: true
  overlap_grad_reduce: false
dataset:
  enable_offline_packing: true
peft:
  _target_: megatron.bridge.peft.lora.LoRA
  dim: 8
  alpha: 16
  dropout: 0.0
  dropout_position: pre
  target_modules: [linear_qkv, linear_proj]
"""

PRIMUS = """exp_name: ${EXP:mine}
modules:
  pre_trainer:
    framework: megatron
    model: llama3.1_8B.yaml
    overrides:
      micro_batch_size: ${MBS:2}
      global_batch_size: 128
      seq_length: 8192
      tensor_model_parallel_size: 1
      pipeline_model_parallel_size: 2
      overlap_grad_reduce: true
      overlap_param_gather: true
      gradient_accumulation_fusion: false
      recompute_granularity: full # full, selective
      recompute_method: block
      recompute_num_layers: 4
      mock_data: true
"""

MAXTEXT = """base_config: base.yml
model_name: llama3-8b
hardware: gpu
per_device_batch_size: 2
max_target_length: 8192
ici_fsdp_parallelism: 8
dcn_data_parallelism: 4
ici_tensor_parallelism: 1
remat_policy: full
steps: 30
"""

REGISTRY = """from torchtitan.trainer import Trainer

from . import model_registry

SEQUENCE = 8192


def llama3_8b() -> Trainer.Config:
    spec = model_registry("8B")
    return Trainer.Config(
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=spec,
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 8192,
            max_context_length=SEQUENCE,
            steps=100,
        ),
        activation_checkpoint=FullAC.Config(),
    )


def llama3_8b_split() -> Trainer.Config:
    config = llama3_8b()
    config.parallelism = ParallelismConfig(tensor_parallel_degree=4, enable_sequence_parallel=False)
    config.parallelism.context_parallel_degree = 2
    config.training.num_tokens_per_train_step = 64 * 8192
    config.activation_checkpoint = None
    config.compile = CompileConfig(enable=True, enable_async_tensor_parallel=True)
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config()])
    return config
"""

# As the configs of early 2026 have it.
REGISTRY_BEFORE = """
def llama3_70b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("70B"),
        training=TrainingConfig(local_batch_size=8, seq_len=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=8, enable_async_tensor_parallel=True),
        activation_checkpoint=ActivationCheckpointConfig(mode="selective"),
        model_converters=ModelConvertersContainer.Config(converters=[Float8LinearConverter.Config()]),
    )
"""

TITAN_COMMAND = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --constraint=h100
TP=8
CONFIG=${CONFIG:-llama3_8b_split}
export NCCL_DEBUG=WARN
srun torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train --module llama3 --config $CONFIG \\
    --parallelism.tensor_parallel_degree $TP \\
    --training.num_tokens_per_microbatch_per_dp_rank=8192
"""

TOML_COMMAND = """torchrun --nproc_per_node=8 train.py --job.config_file ./configs/llama3.toml \\
    --parallelism.tensor_parallel_degree 2 --training.local_batch_size 4
"""

HYDRA_COMMAND = """#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
python pretrain.py --config-path . ++model.tensor_model_parallel_size=2 \\
    model.micro_batch_size=2 +model.global_batch_size=128
"""

MAXTEXT_COMMAND = """python3 -m MaxText.train configs/base.yml run_name=mine model_name=llama3-8b \\
    per_device_batch_size=2 ici_fsdp_parallelism=8 dcn_data_parallelism=4 max_target_length=8192 remat_policy=full
"""

ENVIRONMENT = """TP=4
NODES=2
shape() {
    MODEL_ARGS="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --vocab-size 32000"
}
"""

SOURCING = """# Megatron-LM core_v0.19.0
source "$(dirname "$0")/cluster.env"
MBS=2
shape
torchrun --nnodes $NODES --nproc_per_node 8 pretrain_gpt.py $MODEL_ARGS --tensor-model-parallel-size $TP \\
    --micro-batch-size $MBS --global-batch-size 64 --bf16
"""

DOCUMENT = """#!/bin/bash
# Megatron-LM core_v0.19.0
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
#SBATCH --constraint=h100
export TP=2
SHAPE="--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --swiglu --bf16 \\
    --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256"
cat <<EOF > ds.json
{"train_micro_batch_size_per_gpu": $TP, "zero_optimization": {"stage": 1}}
EOF
cat <<EOF > run.sh
#!/bin/bash
torchrun --nnodes \\$SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py \\\\
    --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 256 $SHAPE
EOF
srun --container-image=x bash run.sh
"""
STARTED = "srun --container-image=x bash run.sh"
QUOTED_DOCUMENT = DOCUMENT.replace("<<EOF > run.sh", "<<'EOF' > run.sh").replace("\\$S", "$S").replace("\\\\\n", "\\\n")
SUBMITTED_DOCUMENT = DOCUMENT.replace("cat <<EOF > run.sh", "sbatch <<EOF").replace(STARTED, "")
PRINTED_DOCUMENT = DOCUMENT.replace("cat <<EOF > run.sh", "cmd=$(cat <<EOF").replace(STARTED, ')\nsrun bash -c "$cmd"')
READ_DOCUMENT = """#SBATCH -N 4 --gpus-per-node=8 --ntasks-per-node=8
TP=4
read -r -d '' cmd <<EOF || true
echo "starting" \\
&& python -u megatron_gpt_pretraining.py --config-path=conf --config-name=megatron_gpt_config \\
   trainer.precision=bf16 trainer.num_nodes=${SLURM_JOB_NUM_NODES} trainer.devices=8 ++model.micro_batch_size=1 \\
   ++model.global_batch_size=256 ++model.tensor_model_parallel_size=$TP ++model.sequence_parallel=True
EOF
srun --container-image=x bash -c "${cmd}"
"""
LAUNCHER_COMMAND = """python3 launcher_scripts/main.py training=gpt3/175b stages=[training] \\
    training.trainer.num_nodes=16 training.model.global_batch_size=256 training.model.micro_batch_size=1 \\
    +training.model.tensor_model_parallel_size=8 training.model.pipeline_model_parallel_size=8
"""
PICOTRON = """{
    "distributed": {"tp_size": 2, "cp_size": 1, "pp_size": 1, "dp_size": 4, "pp_engine": "1f1b", "use_cpu": false},
    "model": {"name": "meta-llama/Llama-2-7b-hf", "dtype": "bfloat16", "use_flash_attention": true},
    "training": {
        "total_train_steps": 200,
        "seq_length": 4096,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "max_tokens": null
    }
}
"""

# A launch of each framework, and scripts of Megatron-LM: its files by name, and the GPUs where these do not say.
TORCHTUNE = """model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /models/tokenizer.model
  max_seq_len: 4096
dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: true}
batch_size: 2
gradient_accumulation_steps: 4
optimizer: {_component_: torch.optim.AdamW, lr: 2.0e-5, fused: true}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
enable_activation_checkpointing: true
dtype: bf16
"""
LITGPT = """model_name: Llama-3-8B
precision: bf16-true
devices: 8
num_nodes: 2
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 4.0e-4}}
train:
  global_batch_size: 128
  micro_batch_size: 2
  max_seq_length: 4096
  max_tokens: 1000000000
"""
SWIFT = """NPROC_PER_NODE=8 swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --lora_rank 8 --target_modules all-linear \\
    --torch_dtype bfloat16 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 2048 \\
    --deepspeed zero2 --output_dir out
"""
SWIFT_MEGATRON = """export NPROC_PER_NODE=8
megatron sft \\
    --model Qwen/Qwen2.5-7B-Instruct --tensor_model_parallel_size 2 --sequence_parallel true \\
    --micro_batch_size 1 --global_batch_size 64 --max_length 4096 --recompute_granularity full \\
    --recompute_method uniform --recompute_num_layers 1
"""
MEGATRON_YAML = """\
language_model:
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  num_query_groups: 8
  ffn_hidden_size: 14336
  activation_func: swiglu
  normalization: RMSNorm
  recompute_granularity: null

model_parallel:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  sequence_parallel: true
  bf16: true

use_distributed_optimizer: true
overlap_grad_reduce: true
overlap_param_gather: true
seq_length: 4096
micro_batch_size: 1
global_batch_size: 256
vocab_size: 128256
world_size: 64
"""

SAMPLES: dict[str, tuple[dict[str, str], int | None]] = {
    "Megatron-LM": ({"gpt_config.yaml": MEGATRON_YAML}, 64),
    "arrays": ({"train.sh": ARRAYS}, None),
    "slurm": ({"train.slurm": SLURM}, None),
    "mixture": ({"train.sh": MIXTURE}, None),
    "torchtitan": ({"llama3.toml": TORCHTITAN}, None),
    "DeepSpeed": ({"ds.json": DEEPSPEED, "acc.yaml": ACCELERATE, "args.yaml": TRAINER}, None),
    "nanotron": ({"nanotron.yaml": NANOTRON}, None),
    "GPT-NeoX": ({"6-7B.yml": GPT_NEOX}, 64),
    "picotron": ({"picotron.json": PICOTRON}, None),
    "llm-foundry": ({"mpt.yaml": LLM_FOUNDRY}, 64),
    "NeMo": ({"nemo.yaml": NEMO}, None),
    "NeMo 2": ({"pretrain.py": NEMO_RECIPE}, None),
    "FlagScale": ({"train.yaml": FLAGSCALE}, None),
    "Megatron-Bridge": ({"bridge.yaml": BRIDGE}, 64),
    "Megatron-Bridge with adapters": ({"run_config.yaml": BRIDGE_LORA}, 8),
    "Primus": ({"primus.yaml": PRIMUS}, 8),
    "MaxText": ({"maxtext.yml": MAXTEXT}, None),
    "torchtune": ({"full.yaml": TORCHTUNE}, 8),
    "litgpt": ({"pretrain.yaml": LITGPT}, None),
    "ms-swift": ({"megatron.sh": SWIFT_MEGATRON}, None),
    "ms-swift with DeepSpeed": ({"swift.sh": SWIFT}, None),
}
