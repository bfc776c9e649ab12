"""What flags of Megatron-LM mean, one by one, beside those of a small job: its settings and what is noted, whole."""

from __future__ import annotations

import re
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron.script import bash_launch

STARTER = "torchrun --nnodes 2 --nproc_per_node 8"
SIZES = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
BATCH = "--micro-batch-size 2 --global-batch-size 64"
# The program's own where no flag says otherwise, on 16 GPUs.
USUAL: dict[str, Any] = {
    **{"layers": 8, "hidden": 1024, "heads": 16, "max_seq_len": 2048, "seq_len": 2048},
    **{"norm": "layer", "position": "learned", "tied_embeddings": True, "activation": "gelu"},
    **{"mlp_bias": True, "attention_bias": True, "attention_out_bias": True},
    **{"nodes": 2, "gpus_per_node": 8, "gpus": 16, "micro_batch": 2, "num_microbatches": 2, "global_batch": 64},
    **{"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "etp": 1, "dp": 16, "zero_stage": 0, "shard": 0},
    **{"recompute": "none", "recompute_first": 0, "activation_offload": 0, "sequence_parallel": False},
    **{"overlap_exchange": False, "schedule": "1f1b", "layers_per_stage": (8,), "mtp_ahead": 0, "dtype": "bf16"},
    "bucket": 160e6,  # 40 million gradients of 4 bytes
}
WITHOUT_OVERLAP = dict.fromkeys(("reduce_overlap", "gather_overlap", "tp_overlap", "fused_experts"), False)


def launched(flags: str, starter: str = STARTER, gpus: int | None = None) -> Launch:
    flags = SHORTENED.sub(lambda match: SHORT[match[0]], flags)
    return bash_launch("train.sh", f"{starter} pretrain_gpt.py {SIZES} {flags}".encode(), gpus).launch


def notes(launch: Launch) -> list[str]:
    return [*launch.problems, *launch.unpriced, *launch.unsearched, *launch.assumed]


# Flags that come often, shortened.
SHORT = {
    "TP": "--tensor-model-parallel-size",
    "PP": "--pipeline-model-parallel-size",
    "EP": "--expert-model-parallel-size",
    "MOE": "--num-experts 8 --moe-router-topk 2",
    "DISPATCHER": "--moe-token-dispatcher-type",
    "BACKEND": "--moe-flex-dispatcher-backend",
    "LAYOUT": "--pipeline-model-parallel-layout",
    "RECOMPUTE": "--recompute-granularity",
}
SHORTENED = re.compile("|".join(rf"\b{name}\b" for name in SHORT))


ROWS: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "TP 3",
        {"gpus": 3, "tp": 3, "dp": 1, "num_microbatches": 32},
        ["3 GPUs: the 16 of the launch cannot hold its plan (--gpus)"],
    ),
    ("TP 2 --sequence-parallel", {"tp": 2, "dp": 8, "num_microbatches": 4, "sequence_parallel": True}, []),
    ("--sequence-parallel", {}, []),
    (
        "TP 32",
        {"gpus": 32, "tp": 32, "dp": 1, "num_microbatches": 32},
        ["32 GPUs: the 16 of the launch cannot hold its plan (--gpus)"],
    ),
    ("PP 4", {"pp": 4, "dp": 4, "num_microbatches": 8, "layers_per_stage": (2, 2, 2, 2)}, []),
    (
        "PP 4 --num-layers-per-virtual-pipeline-stage 1",
        {
            "pp": 4,
            "vpp": 2,
            "dp": 4,
            "num_microbatches": 8,
            "schedule": "interleaved",
            "layers_per_stage": (2, 2, 2, 2),
        },
        [],
    ),
    (
        "PP 4 --num-virtual-stages-per-pipeline-rank 2",
        {
            "pp": 4,
            "vpp": 2,
            "dp": 4,
            "num_microbatches": 8,
            "schedule": "interleaved",
            "layers_per_stage": (2, 2, 2, 2),
        },
        [],
    ),
    (
        "PP 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1",
        {"pp": 4, "dp": 4, "num_microbatches": 8, "layers_per_stage": (1, 3, 3, 1)},
        [],
    ),
    (
        "PP 4 --decoder-first-pipeline-num-layers 2",
        {"pp": 4, "dp": 4, "num_microbatches": 8, "layers_per_stage": (2, 2, 2, 2)},
        [],
    ),
    (
        "PP 2 --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 5",
        {"pp": 2, "dp": 8, "num_microbatches": 4, "layers_per_stage": (3, 5)},
        [],
    ),
    ("PP 2 --num-layer-list 3,5", {"pp": 2, "dp": 8, "num_microbatches": 4, "layers_per_stage": (3, 5)}, []),
    (
        "PP 3 --account-for-embedding-in-pipeline-split",
        {"gpus": 3, "pp": 3, "dp": 1, "num_microbatches": 32, "layers_per_stage": (3, 3, 3)},
        ["3 GPUs: the 16 of the launch cannot hold its plan (--gpus)"],
    ),
    ("--use-distributed-optimizer", {"zero_stage": 1}, []),
    ("--use-distributed-optimizer --num-distributed-optimizer-instances 4", {"zero_stage": 1, "shard": 4}, []),
    (
        "--use-megatron-fsdp",
        {},
        ["--use-megatron-fsdp without a strategy, which shards nothing until core 0.17 and all since 0.18"],
    ),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"zero_stage": 2}, []),
    ("--use-torch-fsdp2", {"reduce_overlap": True, "gather_overlap": True, "zero_stage": 3}, []),
    ("--recompute-activations", {"recompute": "selective"}, []),
    (
        "RECOMPUTE full --recompute-method block --recompute-num-layers 3",
        {"recompute": "full", "recompute_first": 3},
        [],
    ),
    ("RECOMPUTE full --recompute-method uniform --recompute-num-layers 1", {"recompute": "full"}, []),
    (
        "RECOMPUTE full --recompute-method uniform --recompute-num-layers 2",
        {"recompute": "full"},
        ["--recompute-num-layers 2 is priced as 1: each layer is recomputed by itself"],
    ),
    ("RECOMPUTE full --recompute-method uniform --recompute-num-layers 0", {}, []),
    ("RECOMPUTE selective --recompute-modules mlp", {"recompute": "mlp"}, []),
    (
        "RECOMPUTE selective --recompute-modules layernorm --fp8-format hybrid --fp8-recipe tensorwise",
        {"fp8_recipe": "tensorwise", "recompute": "layernorm", "dtype": "fp8"},
        [],
    ),
    ("--checkpoint-activations", {"recompute": "full"}, []),
    ("--activations-checkpoint-method uniform --activations-checkpoint-num-layers 2", {"recompute": "full"}, []),
    ("--fp8-format hybrid", {"dtype": "fp8"}, []),
    ("--fp4-format e2m1", {"dtype": "fp4"}, []),
    ("--fp8-e4m3", {"dtype": "fp8"}, []),
    ("--optimizer-cpu-offload --optimizer-offload-fraction 0.5", {"offload": 0.5}, []),
    ("--optimizer-cpu-offload", {"offload": 1.0}, []),
    ("--train-iters 10", {"tokens": 1310720}, []),
    ("--train-samples 100", {"tokens": 204800}, []),
    ("--train-tokens 1000", {"tokens": 1000}, []),
    ("--ddp-bucket-size 1000", {"bucket": 4000.0}, []),
    ("--enable-zero-bubble", {"schedule": "zero-bubble"}, ["--enable-zero-bubble: the schedule of a fork"]),
    (
        "--num-experts 8",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall"},
        ["two experts for each token, as Megatron-LM has it without --moe-router-topk"],
    ),
    ("--num-experts 1", {}, []),
    (
        "--num-experts 2",
        {"experts": 2, "top_k": 2, "dispatcher": "alltoall"},
        ["two experts for each token, as Megatron-LM has it without --moe-router-topk"],
    ),
    ("--num-experts 8 --moe-router-topk 3", {"experts": 8, "top_k": 3, "dispatcher": "alltoall"}, []),
    (
        "--num-experts 8 --moe-layer-freq 2",
        {"experts": 8, "every": 2, "first_dense": 0, "top_k": 2, "dispatcher": "alltoall"},
        ["two experts for each token, as Megatron-LM has it without --moe-router-topk"],
    ),
    ("MOE --expert-interval 2", {"experts": 8, "top_k": 2, "every": 2, "dispatcher": "alltoall"}, []),
    (
        "MOE EP 32",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "gpus": 32, "ep": 32, "dp": 32, "num_microbatches": 1},
        [
            "alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type",
            "32 GPUs: the 16 of the launch cannot hold its plan (--gpus)",
        ],
    ),
    (
        "MOE EP 8",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 8},
        ["alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"],
    ),
    ("MOE EP 8 DISPATCHER alltoall", {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 8}, []),
    (
        "MOE EP 8 DISPATCHER allgather",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "ep": 8},
        ["--moe-token-dispatcher-type allgather, which is priced as alltoall"],
    ),
    ("MOE EP 8 DISPATCHER flex", {"experts": 8, "top_k": 2, "dispatcher": "deepep", "ep": 8}, []),
    ("MOE EP 8 DISPATCHER flex BACKEND hybridep", {"experts": 8, "top_k": 2, "dispatcher": "hybridep", "ep": 8}, []),
    (
        "--num-experts 8 DISPATCHER flex",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall"},
        ["two experts for each token, as Megatron-LM has it without --moe-router-topk"],
    ),
    (
        "MOE TP 2 EP 4",
        {
            "experts": 8,
            "top_k": 2,
            "dispatcher": "alltoall",
            "tp": 2,
            "ep": 4,
            "etp": 2,
            "dp": 8,
            "num_microbatches": 4,
        },
        ["alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"],
    ),
    (
        "MOE TP 2 EP 4 --expert-tensor-parallel-size 1",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall", "tp": 2, "ep": 4, "dp": 8, "num_microbatches": 4},
        ["alltoall, not the allgather of Megatron-LM without --moe-token-dispatcher-type"],
    ),
    (
        "--zero-stage 0 --deepspeed",
        {"zero_stage": 1},
        ["--zero-stage 0 with bf16 shards as ZeRO-1: DeepSpeed's bf16 optimizer shards its states by itself"],
    ),
    (
        "--deepspeed --num-experts 2 --moe-expert-parallel-size 2",
        {"experts": 2, "every": 2, "top_k": 1, "dispatcher": "alltoall", "ep": 2},
        [],
    ),
    ("--use-checkpoint-args", {}, []),
    (
        "--use-checkpoint-args --load /own/checkpoint",
        {},
        ["--use-checkpoint-args: the checkpoint may have another shape than the flags"],
    ),
    ("--zero-stage 2 --deepspeed", {"zero_stage": 2}, []),
    (
        "--deepspeed --ds-sequence-parallel-size 2",
        {"cp": 2, "dp": 8, "num_microbatches": 4},
        ["--ds-sequence-parallel-size: the parallelism of sequences is priced as context parallelism"],
    ),
    (
        "--deepspeed --num-experts 8 --moe-expert-parallel-size 4",
        {"experts": 8, "every": 2, "top_k": 1, "dispatcher": "alltoall", "ep": 4},
        [],
    ),
    (
        "--deepspeed PP 3",
        {"gpus": 3, "pp": 3, "dp": 1, "num_microbatches": 32, "layers_per_stage": (3, 3, 3)},
        ["3 GPUs: the 16 of the launch cannot hold its plan (--gpus)"],
    ),
    ("--swiglu", {"gated_mlp": True, "activation": "swiglu"}, []),
    ("--swiglu --multiple-of 256", {"gated_mlp": True, "activation": "swiglu", "ffn_hidden": 2816}, []),
    (
        "--swiglu --multiple-of 256 --hidden-dim-multiplier 1.3",
        {"gated_mlp": True, "activation": "swiglu", "ffn_hidden": 3584},
        [],
    ),
    ("--group-query-attention --num-query-groups 4", {"kv_heads": 4}, []),
    ("--num-query-groups 4", {}, []),
    (
        "--attention-head-type multiquery",
        {"kv_heads": 1, "attention": "fused_softmax"},
        ["layers of its own without flash attention, Megatron-LM's default then: --attention-head-type"],
    ),
    ("--normalization RMSNorm", {"norm": "rms"}, []),
    ("--position-embedding-type rope", {"position": "rope"}, []),
    ("--position-embedding-type relative", {"position": "none"}, ["--position-embedding-type relative"]),
    ("--disable-bias-linear", {"mlp_bias": False, "attention_bias": False, "attention_out_bias": False}, []),
    ("--untie-embeddings-and-output-weights", {"tied_embeddings": False}, []),
    ("--vocab-size 32000", {"vocab": 32000}, []),
    ("--tokenizer-type GPT2BPETokenizer", {"vocab": 50257}, []),
    (
        "--tokenizer-type GPT2BPETokenizer --vocab-file own.json",
        {"vocab": 50257},
        ["vocabulary of 50,257 tokens: own.json may have another (--model)"],
    ),
    ("--tokenizer-type Llama2Tokenizer --tokenizer-model /x/llama/tok.model", {"vocab": 32000}, []),
    (
        "--tokenizer-type Llama2Tokenizer --tokenizer-model /x/llama-100k.model",
        {"vocab": 32000},
        ["vocabulary of 32,000 tokens: /x/llama-100k.model may have another (--model)"],
    ),
    (
        "--tokenizer-type Llama2Tokenizer --tokenizer-model /x/own.model",
        {"vocab": 32000},
        ["vocabulary of 32,000 tokens: /x/own.model may have another (--model)"],
    ),
    ("--vocab-file gpt2-vocab.json", {"vocab": 50257}, []),
    ("--window-size 127,0", {"window": 128}, []),
    ("--window-size 127,0 --window-attn-skip-freq 4", {"window": 128, "window_every": 4}, []),
    ("--attention-backend unfused", {"attention": "unfused"}, []),
    ("--attention-backend fused", {"attention": "flash"}, []),
    ("--cuda-graph-impl local", {"cuda_graphs": True, "graphed": ()}, []),
    ("--cuda-graph-impl none", {"cuda_graphs": False, "graphed": ()}, []),
    (
        "--cuda-graph-impl transformer_engine --cuda-graph-scope attn",
        {"cuda_graphs": False, "graphed": ("attention",)},
        [],
    ),
    (
        "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router",
        {"cuda_graphs": False, "graphed": ("attention", "router", "shared_experts")},
        [],
    ),
    ("--main-grads-dtype bf16", {"grad_bytes": 2, "bucket": 80000000.0}, []),
    ("--use-precision-aware-optimizer --exp-avg-dtype bf16", {"optimizer_bytes": 10}, []),
    (
        "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8 --main-params-dtype fp16",
        {"optimizer_bytes": 4},
        [],
    ),
    ("--use-precision-aware-optimizer", {}, []),
    ("--exp-avg-dtype bf16", {}, []),
    ("--accumulate-allreduce-grads-in-fp32", {}, []),
    ("--overlap-grad-reduce --overlap-param-gather", {"reduce_overlap": True, "gather_overlap": True}, []),
    (
        "--seq-length 2048 --micro-batch-size 4",
        {"micro_batch": 4, "num_microbatches": 1},
        ["the last --micro-batch-size counts, 4; 2 comes before"],
    ),
    ("--optimizer sgd", {"optimizer": "sgd"}, []),
    ("PP 2 LAYOUT 'Et*3|t*5L'", {"pp": 2, "dp": 8, "num_microbatches": 4, "layers_per_stage": (3, 5)}, []),
    (
        "PP 2 LAYOUT 'Et*2|t*2|t*2|t*2L'",
        {"pp": 2, "vpp": 2, "dp": 8, "num_microbatches": 4, "schedule": "interleaved", "layers_per_stage": (4, 4)},
        [],
    ),
    (
        "PP 2 LAYOUT 'Ett|tt|t|tttL'",
        {
            "pp": 2,
            "vpp": 2,
            "dp": 8,
            "num_microbatches": 4,
            "schedule": "interleaved",
            "layers_per_stage": (2, 2, 1, 3),
        },
        [],
    ),
    (
        "PP 2 LAYOUT 'Ettt|tt|t|ttL'",
        {
            "pp": 2,
            "vpp": 2,
            "dp": 8,
            "num_microbatches": 4,
            "schedule": "interleaved",
            "layers_per_stage": (3, 2, 1, 2),
        },
        [],
    ),
    ("PP 2 LAYOUT 'Et*4|t*4mL'", {"pp": 2, "dp": 8, "num_microbatches": 4, "layers_per_stage": (4, 4)}, []),
    (
        "PP 2 LAYOUT 'Et*3|t*3|t*2m|L'",
        {
            "pp": 2,
            "vpp": 2,
            "dp": 8,
            "num_microbatches": 4,
            "schedule": "interleaved",
            "layers_per_stage": (3, 3, 2, 0),
            "mtp_ahead": 1,
        },
        [],
    ),
    (
        "MOE --moe-layer-freq '([0]*3+[1]*5)'",
        {"experts": 8, "top_k": 2, "first_dense": 3, "every": 1, "dispatcher": "alltoall"},
        [],
    ),
    (
        "MOE --moe-layer-freq '([0,1]*4)'",
        {"experts": 8, "top_k": 2, "first_dense": 0, "every": 2, "dispatcher": "alltoall"},
        [],
    ),
    (
        "MOE --moe-layer-freq '([0]*8)'",
        {"experts": 8, "top_k": 2, "dispatcher": "alltoall"},
        ["--moe-layer-freq ([0]*8): every layer is taken to be MoE"],
    ),
    (
        "MOE --moe-layer-freq '[0,0,0,0,1,0,1,0]'",
        {"experts": 8, "top_k": 2, "first_dense": 3, "every": 2, "dispatcher": "alltoall"},
        [],
    ),
    (
        "MOE --moe-layer-freq 2 --first-k-dense-replace 1",
        {"experts": 8, "top_k": 2, "first_dense": 1, "every": 2, "dispatcher": "alltoall"},
        ["--moe-layer-freq 2 behind --first-k-dense-replace"],
    ),
    (
        "MOE --moe-layer-freq 1 --first-k-dense-replace 1",
        {"experts": 8, "top_k": 2, "first_dense": 1, "every": 1, "dispatcher": "alltoall"},
        [],
    ),
    (
        "MOE --n-shared-experts 2 --moe-ffn-hidden-size 512",
        {"experts": 8, "top_k": 2, "expert_ffn": 512, "shared_ffn": 1024, "dispatcher": "alltoall"},
        [],
    ),
    (
        "MOE --moe-router-score-function sigmoid",
        {"experts": 8, "top_k": 2, "router": "sigmoid", "dispatcher": "alltoall"},
        [],
    ),
    ("MOE --moe-router-score-function softmax", {"experts": 8, "top_k": 2, "dispatcher": "alltoall"}, []),
    ("--fine-grained-activation-offloading --activation-offload-fraction 0.5", {"activation_offload": 50}, []),
    ("--fine-grained-activation-offloading", {"activation_offload": 100}, []),
    ("--use-fused-sdpa-with-recompute 1", {"attention": "flash"}, []),
    ("--window-size '(127,0)' --window-attn-skip-freq 1 0 1 0", {"window": 128, "window_every": 2}, []),
    ("--overlap-moe-expert-parallel-comm", {"overlap_exchange": True}, []),
    ("--nccl-communicator-config-path x.json", {"communicators": "x.json"}, []),
    (
        "--num-layers 8 --num-layers 16",
        {"layers": 16, "layers_per_stage": (16,)},
        ["the last --num-layers counts, 16; 8 comes before"],
    ),
]

WRONG: list[tuple[str, list[str]]] = [
    ("PP 3", ["--num-layers 8 is not a multiple of --pipeline-model-parallel-size 3"]),
    (
        "PP 4 --num-layers-per-virtual-pipeline-stage 3",
        ["--num-layers-per-virtual-pipeline-stage 3 does not divide the 2 layers of a stage"],
    ),
    (
        "PP 4 --num-layers-per-virtual-pipeline-stage 1 --num-virtual-stages-per-pipeline-rank 2",
        ["--num-layers-per-virtual-pipeline-stage contradicts --num-virtual-stages-per-pipeline-rank"],
    ),
    ("PP 4 --decoder-first-pipeline-num-layers 1", ["8 layers cannot be split over 4 stages with 1 on the first"]),
    (
        "PP 2 --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 4",
        ["8 layers cannot be split over 2 stages with 3 on the first and 4 on the last"],
    ),
    (
        "PP 1 --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 5",
        ["8 layers cannot be split over 1 stages with 3 on the first and 5 on the last"],
    ),
    ("PP 2 --num-layer-list 3,4", ["--num-layer-list 3,4 is no split of 8 layers over 2 stages"]),
    (
        "--use-distributed-optimizer --num-distributed-optimizer-instances 3",
        ["--num-distributed-optimizer-instances 3 does not divide 16 replicas"],
    ),
    (
        "--use-megatron-fsdp --data-parallel-sharding-strategy x",
        [
            "--data-parallel-sharding-strategy must be one of no_shard, optim, optim_grads, "
            "optim_grads_params, but got 'x'"
        ],
    ),
    (
        "RECOMPUTE selective --recompute-modules x",
        [
            "--recompute-modules must be of core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, "
            "shared_experts, but got x"
        ],
    ),
    (
        "RECOMPUTE selective --recompute-modules layernorm --fp8-format hybrid",
        ["--recompute-modules layernorm needs another --fp8-recipe than delayed"],
    ),
    ("RECOMPUTE x", ["--recompute-granularity must be selective or full, but got 'x'"]),
    (
        "--recompute-activations RECOMPUTE full",
        ["--recompute-activations (selective) contradicts --recompute-granularity full"],
    ),
    ("--fp16", ["--bf16 contradicts --fp16"]),
    (
        "--optimizer-cpu-offload --optimizer-offload-fraction 1.5",
        ["--optimizer-offload-fraction must be a number from 0 to 1, but got '1.5'"],
    ),
    (
        "--optimizer-cpu-offload --optimizer-offload-fraction x",
        ["--optimizer-offload-fraction must be a share from 0 to 1, but got 'x'"],
    ),
    ("MOE EP 8 DISPATCHER flex BACKEND x", ["--moe-flex-dispatcher-backend must be deepep or hybridep, but got 'x'"]),
    ("--swiglu --multiple-of 256 --hidden-dim-multiplier x", ["--hidden-dim-multiplier x: no number"]),
    ("--micro-batch-size 3", ["--global-batch-size 64 is not a multiple of dp x --micro-batch-size = 16 x 3"]),
    ("--global-batch-size 100", ["--global-batch-size 100 is not a multiple of dp x --micro-batch-size = 16 x 2"]),
    ("--hidden-size x", ["--hidden-size x: no whole number"]),
    (
        "PP 2 LAYOUT 'Et*3|t*4L'",
        ["--pipeline-model-parallel-layout has 7 layers on 2 virtual stages; expected 8 layers on a multiple of 2"],
    ),
    (
        "PP 2 LAYOUT 'Et*4|t*2|t*2L'",
        ["--pipeline-model-parallel-layout has 8 layers on 3 virtual stages; expected 8 layers on a multiple of 2"],
    ),
    (
        "--tensor-model-parallel-sizes 2",
        ["unknown argument --tensor-model-parallel-sizes; did you mean --tensor-model-parallel-size?"],
    ),
    (
        "--fine-grained-activation-offloading --activation-offload-fraction 1.5",
        ["--activation-offload-fraction must be a number from 0 to 1, but got '1.5'"],
    ),
    (
        "--fine-grained-activation-offloading --activation-offload-fraction -0.5",
        ["--activation-offload-fraction must be a number from 0 to 1, but got '-0.5'"],
    ),
    (
        "--fine-grained-activation-offloading --activation-offload-fraction x",
        ["--activation-offload-fraction must be a number from 0 to 1, but got 'x'"],
    ),
    (
        "--micro-batch-size 0",
        ["--micro-batch-size must be a whole number of at least 1, but got '0'", "--micro-batch-size is missing"],
    ),
    (
        "--micro-batch-size x",
        ["--micro-batch-size must be a whole number of at least 1, but got 'x'", "--micro-batch-size is missing"],
    ),
]


@pytest.mark.parametrize(("flags", "said", "noted"), ROWS)
def test_a_flag(flags: str, said: dict[str, Any], noted: list[str]) -> None:
    launch = launched(f"{BATCH} --bf16 --moe-grouped-gemm {flags}")
    off = {} if "--deepspeed" in flags else WITHOUT_OVERLAP
    assert launch.settings == USUAL | off | said
    assert notes(launch) == noted


@pytest.mark.parametrize(("flags", "problems"), WRONG)
def test_what_flags_cannot_mean_is_refused(flags: str, problems: list[str]) -> None:
    with pytest.raises(InvalidFile) as error:
        launched(f"{BATCH} --bf16 {flags}")
    assert [*error.value.problems] == problems


ALONE = "one node: the launch names no other number (--gpus)"


@pytest.mark.parametrize(
    ("starter", "gpus", "flags", "plan", "noted"),
    [
        (STARTER, 8, "", (8, 1, 8), []),
        ("torchrun --nproc_per_node 8", None, "", (8, 1, 8), [ALONE]),
        ("python", None, "", (1, 1, 1), [ALONE, "one GPU: nothing starts more processes (--gpus)"]),
        ("srun", None, "", (8, 1, 8), [ALONE, "8 GPUs on a node (--gpus)"]),
        ("torchrun --nnodes $N --nproc_per_node 8", None, "", (8, 1, 8), ["one node: --nnodes hangs on N (--gpus)"]),
        (
            "torchrun --nproc_per_node 8",
            None,
            "--tensor-model-parallel-size 16",
            (16, 16, 1),
            [ALONE, "16 GPUs: the 8 of the launch cannot hold its plan (--gpus)"],
        ),
    ],
)
def test_gpus_are_those_that_are_started(
    starter: str, gpus: int | None, flags: str, plan: tuple[int, int, int], noted: list[str]
) -> None:
    launch = launched(f"{BATCH} --bf16 {flags}", starter, gpus)
    assert tuple(launch.settings[name] for name in ("gpus", "tp", "dp")) == plan
    assert (notes(launch), "alone" in launch.settings, "gpus_given" in launch.settings) == (noted, False, False)


def test_gpus_that_are_given_must_hold_the_plan() -> None:
    with pytest.raises(InvalidFile, match="tp x cp x pp = 16 x 1 x 1 does not divide 8 GPUs"):
        launched(f"{BATCH} --bf16 --tensor-model-parallel-size 16", gpus=8)
    with pytest.raises(InvalidFile, match="it is taken to run on 8 GPUs, for it does not say on how many: give --gpus"):
        launched("--micro-batch-size 3 --global-batch-size 64 --bf16", "torchrun --nproc_per_node 8")


def test_what_a_launch_leaves_out_is_megatrons_own() -> None:
    half = launched(f"{BATCH} --fp16").settings
    assert (half["dtype"], half["grad_bytes"], half["bucket"]) == ("fp16", 2, 80e6)
    wide = launched(f"{BATCH} --fp16 --accumulate-allreduce-grads-in-fp32").settings
    assert ("grad_bytes" in wide, wide["bucket"]) == (False, 160e6)
    unnamed = launched(BATCH)
    assert unnamed.unpriced == ["fp32, as Megatron-LM has it where no flag names a number format"]
    assert unnamed.assumed == ["bf16: the launch names no number format (Megatron's own default is fp32)"]
    one = launched("--micro-batch-size 2 --bf16 --tensor-model-parallel-size 4 --context-parallel-size 2")
    assert (one.settings["dp"], one.settings["global_batch"], one.settings["num_microbatches"]) == (2, 4, 1)
    assert one.assumed == ["global batch of 4, one micro-batch of each replica, as Megatron does"]


def test_buckets_grow_with_the_replicas() -> None:
    few, many = (
        launched(f"--micro-batch-size 1 --bf16 --context-parallel-size {cp}", gpus=gpus)
        for cp, gpus in ((2, 80), (2, 160))
    )
    assert (few.settings["bucket"], many.settings["bucket"]) == (320e6, 640e6)
    assert launched(f"{BATCH} --bf16 --ddp-bucket-size 1000").settings["bucket"] == 4000.0
