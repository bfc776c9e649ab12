"""Scripts with one mistake each that people make: the text, its cluster, and the setting that is wrong."""

LLAMA = (
    "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 128256"
)
MODELS = {
    "8b": f"--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 {LLAMA}",
    "70b": f"--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 {LLAMA}",
    "30b-a3b": (  # half of its layers
        "--num-layers 24 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --group-query-attention "
        "--num-query-groups 4 --kv-channels 128 --swiglu --normalization RMSNorm --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --disable-bias-linear --qk-layernorm --vocab-size 151936 "
        "--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-token-dispatcher-type alltoall"
    ),
}
OVERLAP = "--overlap-grad-reduce --overlap-param-gather"
ZERO = "--use-distributed-optimizer --sequence-parallel"
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
FSDP = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"


def script(model: str, nodes: int, seq_len: int, batch: int, plan: str, extra: str = f"{ZERO} {OVERLAP}") -> str:
    return f"""#!/bin/bash
# Megatron-LM core_v0.19.0
#SBATCH --nodes={nodes}
#SBATCH --gpus-per-node=8
ARGS="{MODELS[model]} --seq-length {seq_len} --max-position-embeddings {seq_len} --global-batch-size {batch} \\
  {plan} {extra} --bf16"
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py $ARGS
"""


TP, PP, CP, EP = (f"--{name}-parallel-size" for name in ("tensor-model", "pipeline-model", "context", "expert-model"))
ONE = "--micro-batch-size 1"
MISTAKES = {
    "TP across nodes": (script("70b", 32, 8192, 256, f"{ONE} {TP} 16 {PP} 2"), "dgx-h100", "tp"),
    "TP across nodes, one stage": (script("8b", 4, 8192, 128, f"{ONE} {TP} 16"), "dgx-a100-80", "tp"),
    # 60 micro-batches are no multiple of 16 stages, so that virtual stages are no way out.
    "PP with few micro-batches": (script("70b", 32, 8192, 120, f"{ONE} {TP} 8 {PP} 16"), "dgx-h100", "pp"),
    "TP for a model that needs none": (script("8b", 8, 8192, 256, f"{ONE} {TP} 8"), "dgx-h100", "tp"),
    "full recomputation without need": (
        script("8b", 8, 4096, 256, f"{ONE} {TP} 2", f"{ZERO} {OVERLAP} {FULL}"),
        "dgx-h100",
        "recompute",
    ),
    "no overlap": (script("8b", 16, 4096, 256, f"{ONE} {TP} 2", ZERO), "dgx-a100-80", "reduce_overlap"),
    "micro-batch 1 with room for 4": (script("8b", 1, 1024, 512, f"{ONE} {TP} 1"), "dgx-h200", "micro_batch"),
    "ZeRO-3 over a slow network": (
        script("8b", 16, 4096, 128, f"{ONE} {TP} 1", f"--use-distributed-optimizer {OVERLAP} {FSDP}"),
        "p4de",
        "zero_stage",
    ),
    "EP across nodes with small batches": (script("30b-a3b", 8, 4096, 128, f"{ONE} {TP} 1 {EP} 64"), "dgx-h100", "ep"),
    "CP for short sequences": (script("8b", 4, 2048, 128, f"--micro-batch-size 4 {TP} 1 {CP} 16"), "dgx-h100", "cp"),
    "states on every GPU": (
        script("8b", 4, 4096, 128, f"{ONE} {TP} 1", "--overlap-grad-reduce"),
        "dgx-h100",
        "zero_stage",
    ),
    "optimizer on the host": (
        script("8b", 4, 8192, 128, f"{ONE} {TP} 2", f"{ZERO} {OVERLAP} --optimizer-cpu-offload"),
        "dgx-h100",
        "offload",
    ),
}
# Memory of a GPU on which all that each of these is held against is sure to fit, where a real one leaves it unsure [B].
ROOM = {"no overlap": 110e9, "CP for short sequences": 110e9, "states on every GPU": 120e9}
