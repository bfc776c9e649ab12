#!/bin/bash
#SBATCH --job-name=llama3-8b
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
#SBATCH --constraint=h100
# Megatron-LM core_v0.19.0

TP=${TP:-2}
MICRO_BATCH=1
GLOBAL_BATCH=256
SEQ=4096

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length $SEQ
    --max-position-embeddings $SEQ
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --vocab-size 128256
)
TRAINING_ARGS="
    --micro-batch-size $MICRO_BATCH
    --global-batch-size $GLOBAL_BATCH
    --train-samples 50000000
    --lr 3e-4
    --bf16
    --tensor-model-parallel-size $TP
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
"

srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    $TRAINING_ARGS \
    --data-path "$DATA" --save "$OUT"
