"""Rows whose own times contradict what their columns say of the recipe, and what the times leave possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.calibration.row_release import GRAPHS


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Columns to read otherwise in the rows of one table, and why: `why` is said with every row that it changes.

    `where` are cells that a row must have for it, in lower case. A note is added to those of the row. `steps`: what the
    row calls one step is so many, each of that share of its global batch and of its time.
    """

    source: str
    table: str
    columns: Mapping[str, str]
    why: str
    where: Mapping[str, str] = field(default_factory=dict)
    steps: int = 1


CORRECTIONS = (
    # Per layer, hidden 2,048 takes 3.8 ms more than hidden 1,024 (4 sequences of 1,024 tokens, TP 1): four passes of
    # matrix products would run at 358 TFLOP/s on A100, beyond its peak of 312; three run at 269. What does not grow
    # with the width, 3.1 ms, is 36 passes over the scores: separate kernels for scale, mask, softmax and dropout. Its
    # collectives wait 0.2 ms per doubling of their ranks, those of the same software on many nodes next to nothing.
    Correction(
        source="vtrain",
        table="ground truth single",
        columns={"stack": "megatron-deepspeed-unfused-2022", "recompute": "none", "attention_kernel": "native"},
        why="no fused kernels, no recomputation: with it the matrix products would run beyond the peak",
    ),
    # GPT 3.6B at TP 1 leaves 19 ms per layer, 16 passes over the scores in three passes over the layer: one kernel for
    # scale, mask and softmax; separate ones take 36. Without recomputation its scores alone would fill 160 GB.
    Correction(
        source="vtrain",
        table="ground truth multi",
        columns={"attention_kernel": "fused softmax"},
        why="fused softmax: separate kernels would take longer than the run",
    ),
    # LLaMA 13B with FlashAttention-2: from micro-batch 1 to 8, PP 2 takes 29 s longer and no pipeline none, while one
    # drained pipeline of two stages takes 4.4 s more: its pipelines drain several times. Eight says the sheet of 64
    # GPUs, where plans with a pipeline then err as those without, and that of 32 GPUs agrees: the errors of both fall
    # to a third.
    *(
        Correction(
            source="hagemann",
            table=table,
            columns={},
            why="2,048 sequences are eight steps of 256: its pipelines drain eight times",
            where={"attention_kernel": kernel},
            steps=8,
        )
        for table in ("13b_bfloat16_64_gpus_all_runs", "13b_bfloat16_32_gpus_sequence_parallelism")
        for kernel in ("flash2", "flash2+fused_rmsnorm")
    ),
    # scripts/train/benchmarking/sweep.sh of mosaicml/llm-foundry @a7d6a4475 ran on the image of PyTorch 1.13.1, that of
    # @b2a43a147 on 2.1.0; the tables with mixed precision PURE are from before it.
    *(
        Correction(
            source="mosaicml/llm-foundry",
            table="",
            columns={"notes": "torch 1.13"},
            why="PyTorch 1.13, as in the launch script of its table",
            where={"table": table},
        )
        for table in ("a100 80gb", "a100 40gb with 1600 gbps node-node interconnect (roce)")
    ),
    # The launch scripts recompute whole layers wherever the exchange does not overlap, and switch CUDA graphs off,
    # which the tables leave out: awslabs/awsome-distributed-ai @95b939c, 3.test_cases/megatron/megatron-bridge:
    # kimi-k2/conf/kimi_k2_sft.py and dsv3/bench_dsv3_pretrain.py.
    *(
        Correction(
            source="awslabs/",
            table=table,
            columns={"recompute": "full", "notes": "eager mixtures"},
            why="full recomputation without overlap and no CUDA graphs, as its launch script has it",
            where={"ep_overlap": "off"},
        )
        for table in ("/kimi-k2/", "/dsv3/")
    ),
    # benchmarks/maxtext_trillium_model_configs.py of AI-Hypercomputer/maxtext @tpu-recipes-v0.1.4, which the recipes
    # name: Gemma 3 recomputes all, Llama 3.1 70B on 32 chips holds weights and moments in half precision.
    Correction(
        source="tpu-recipes",
        table="",
        columns={"recompute": "full"},
        why="all recomputed but the layers' inputs, as in the configuration that the recipe names",
        where={"model": "gemma3 12b", "recompute": "custom"},
    ),
    Correction(
        source="tpu-recipes",
        table="",
        columns={"notes": "weight_dtype=bfloat16"},
        why="weights and moments in half precision, as in the configuration that the recipe names",
        where={"model": "llama 3.1 70b", "gpus": "32"},
    ),
    # What its rows on v5p leave out, as benchmarks/maxtext_v5p_model_configs.py of AI-Hypercomputer/maxtext @3eb77db3c
    # and the launch scripts of AI-Hypercomputer/tpu-recipes @6c627893 have it: DeepSeek-V3 has 6 sequences of 8,192
    # tokens a chip; Maverick's custom policy keeps queries, keys and values on the host.
    *(
        Correction(
            source="tpu-recipes",
            table="",
            columns=columns,
            why="micro-batch and recomputation as in the configuration that the recipe names",
            where={"gpu": "tpu v5p", **where},
        )
        for where, columns in (
            (
                {"model": "deepseek-v3", "gpus": "512", "global_batch": "6144"},
                {"seq_len": "8192", "global_batch": "3072", "micro_batch": "6", "recompute": "full"},
            ),
            ({"model": "llama 4 scout"}, {"micro_batch": "8", "recompute": "full"}),
            ({"model": "llama 4 maverick", "tp": "4"}, {"micro_batch": "16", "recompute": "custom"}),
            ({"model": "mixtral 8x7b"}, {"micro_batch": "36", "recompute": "full", "notes": "weight_dtype=bfloat16"}),
        )
    ),
    # Its scripts for domains of 72 GPUs replay attention and router: yanring/Megatron-MoE-ModelZoo @e865051 and
    # @798dfb5, best_practice/qwen3/run_gb200_235b.sh and run_gb300_235b.sh.
    *(
        Correction(
            source="megatron-moe-modelzoo",
            table="",
            columns={"notes": GRAPHS},
            why="graphs of attention and router, as in the launch scripts of this source",
            where={"gpu": gpu, "dtype": "mxfp8"},
        )
        for gpu in ("gb200", "gb300")
    ),
    # Of full RL runs benchmarks/baselines prints 8.17 s a step on H100 and 7.40 s on H200, but the throughput of 42.9
    # and 44.1 s: 35 to 39 s more whatever the length (82.2 for 42.9 s at 65,536), between steps, where such a run hands
    # all of its weights on. Of runs that hand on adapters (LoRA) or nothing both agree: PrimeIntellect-ai/prime-rl
    # @559b447.
    Correction(
        source="primeintellect-ai/prime-rl",
        table="",
        columns={"step_time_s": "8.1739", "tokens_per_s_per_gpu": ""},
        why="the step as its benchmark times it: its throughput counts weights that are handed on between steps",
        where={"model": "qwen3-30b-a3b", "gpu": "h100", "step_time_s": "42.8844"},
    ),
    # hip_total - hip_free of torch.cuda.mem_get_info in units of 2^30 B, of the 287.98 that an MI355X has: all that is
    # used of the device. AMD-AGI/Primus @fd1eeab, primus/backends/megatron/patches/training_log/
    # print_rank_last_patches.py; pytorch/pytorch issue 175431.
    Correction(
        source="amd-agi/primus",
        table="deepseekv2lite_tks_memory",
        columns={"mem_kind": "used of the device, GiB"},
        why="memory is all that is used of the device in GiB, as this software prints it",
    ),
    Correction(
        source="",
        table="training experiments",
        columns={"mem_kind": "used of the device, GiB"},
        why="memory is all that is used of the device in GiB, as this software prints it",
        where={"stack": "primus-2025"},
    ),
    Correction(
        source="awslabs/",
        table="",
        columns={"notes": "eager mixtures"},
        why="no CUDA graphs, as in the launch scripts of this source",
    ),
)


def corrected(row: Mapping[str, str], assumed: list[str]) -> Mapping[str, str]:
    """The row as its times allow it to be read; what changes is added to `assumed`.

    >>> said: list[str] = []
    >>> row = {"source": "vTrain: data", "table": "MICRO24 ground truth single", "recompute": "full"}
    >>> corrected(row, said)["recompute"], said
    ('none', ['no fused kernels, no recomputation: with it the matrix products would run beyond the peak'])
    """
    source, table = row.get("source", "").lower(), (row.get("table") or row.get("source_ref", "")).lower()
    for correction in CORRECTIONS:
        here = all(row.get(column, "").lower() == cell for column, cell in correction.where.items())
        if here and correction.source in source and correction.table in table:
            assumed.append(correction.why)
            notes = "; ".join(filter(None, (row.get("notes", ""), correction.columns.get("notes", ""))))
            found = {**row, **correction.columns} | ({"notes": notes} if notes else {})
            return found if correction.steps == 1 else _one_step(found, correction.steps)
    return row


def _one_step(row: Mapping[str, str], steps: int) -> dict[str, str]:
    """One of the steps that a row calls one.

    >>> _one_step({"global_batch": "2048.0", "step_time_s": "44.0"}, 8)
    {'global_batch': '256.0', 'step_time_s': '5.5'}
    """
    cells = {name: row.get(name, "") for name in ("global_batch", "step_time_s")}
    return {**row, **{name: str(float(cell) / steps) for name, cell in cells.items() if cell}}
