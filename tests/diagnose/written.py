"""Logs as the training programs write them, made from their line formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

START = datetime(2026, 1, 2, 10, 0, 0)
Times = Sequence[float]


def clock(times: Times, number: int) -> datetime:
    return START + timedelta(seconds=sum(times[: number + 1]))


def loss(number: int) -> float:
    return 11.0 - 0.01 * number


def human(value: float) -> str:
    for letter, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def megatron(
    times: Times, *, first: int = 1, last: int = 1000, batch: int = 64, every: int = 1, gpus: int = 64
) -> list[str]:
    lines = [
        "  tensor_model_parallel_size ...................... 1",
        f"  world_size ...................................... {gpus}",
        "  overlap_grad_reduce ............................. True",
    ]
    for place in range(every - 1, len(times), every):
        mean = sum(times[place - every + 1 : place + 1]) / every
        stamp = clock(times, place).strftime("%Y-%m-%d %H:%M:%S.%f")
        lines.append(
            f" [{stamp}] iteration {first + place:8d}/{last:8d} | consumed samples: {64 * place:12d} | "
            f"elapsed time per iteration (ms): {mean * 1e3:.1f} | throughput per GPU (TFLOP/s/GPU): 999.9 | "
            f"learning rate: 3.000000E-04 | global batch size: {batch:5d} | lm loss: {loss(place):.6E} | "
            f"loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if place < 2 * every:
            lines.append(
                f"[Rank 0] (after {first + place} iterations) memory (MB) | allocated: 30000.00 | "
                "max allocated: 40000.00 | reserved: 44000.00 | max reserved: 45000.00"
            )
    return lines


def bridge(times: Times) -> list[str]:
    lines = []
    for row in megatron(times):
        if "elapsed time" in row:
            lines.append("Step Time : 9.99s GPU utilization: 414.8MODEL_TFLOP/s/GPU")
        lines.append(row)
    return lines


def primus(times: Times) -> list[str]:
    lines = []
    for place, seconds in enumerate(times):
        stamp = clock(times, place).strftime("%Y%m%d %H:%M:%S")
        lines.append(
            f"[{stamp}][rank-7/8][INFO ] [--------trainer.py:2560] :  iteration {place + 1:8d}/    5000 | "
            f"consumed samples: {8 * place:12d} | elapsed time per iteration (ms): {seconds * 1e3:.1f}/{9999.9:.1f} | "
            "hip mem usage/free/total/usage_ratio: 41.91GB/214.07GB/255.98GB/16.37% | "
            f"throughput per GPU (TFLOP/s/GPU): 567.6/568.0 | tokens per GPU (tokens/s/GPU): 9801.4/9807.3 | "
            f"learning rate: 9.98E-06 | global batch size:   64 | lm loss: {loss(place):.6E} | loss scale: 1.0 | "
            "grad norm: 0.061 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    return lines


def nemo(times: Times, *, batch: int = 64) -> list[str]:
    return [
        f"Training epoch 0, iteration {place}/999 | lr: 1e-06 | global_batch_size: {batch} | global_step: {place} | "
        f"reduced_train_loss: {loss(place):.4f} | train_step_timing in s: {seconds:.4f}"
        + (f" | consumed_samples: {batch * place}" if place else "")
        for place, seconds in enumerate(times)
    ]


def automodel(times: Times) -> list[str]:
    return [
        f'{{"step": {place}, "epoch": 0, "timestamp": "2026-01-02T10:00:00.803Z", "loss": {loss(place):.4f}, '
        f'"grad_norm": 1.5, "lr": 0.0001, "mem": 41.9, "tps": {524288 / seconds}, "num_tokens_per_step": 524288}}'
        for place, seconds in enumerate(times)
    ]


def torchtitan(times: Times, *, tokens: float = 8192.0, told: bool = True) -> list[str]:
    lines = []
    if told:
        lines.append("[titan] 2026-01-02 09:59:59,000 - root - INFO - Building 1-D device mesh with ['dp_shard'], [64]")
        lines.append(
            "[titan] 2026-01-02 09:59:59,100 - root - INFO - Training starts at step 1, with local batch size 1, "
            "global batch size 64, sequence length 8192, total steps 1000 (warmup 200)"
        )
    for place, seconds in enumerate(times):
        stamp = clock(times, place).strftime("%Y-%m-%d %H:%M:%S,") + f"{clock(times, place).microsecond // 1000:03d}"
        lines.append(
            f"[titan] {stamp} - root - INFO - \x1b[31mstep: {place + 1:2}  \x1b[32mloss: {loss(place):8.5f}  "
            f"\x1b[38;2;180;60;0mgrad_norm: {1.5:7.4f}  \x1b[36mmemory: {41.91:5.2f}GiB({52.4:.2f}%)  "
            f"\x1b[34mtps: {round(tokens / seconds):,}  \x1b[36mtflops: {999.9:,.2f}  \x1b[35mmfu: 41.25%\x1b[39m"
        )
    return lines


def deepspeed(times: Times) -> list[str]:
    lines = ["[2026-01-02 09:59:59,000] [INFO] [config.py:1003:print]   train_batch_size ............. 64"]
    for place, seconds in enumerate(times):
        stamp = clock(times, place).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        lines += [
            f"[{stamp}] [INFO] [logging.py:96:log_dist] [Rank 0] step={place + 1}, skipped=0, lr=[5e-05]",
            f"[{stamp}] [INFO] [timer.py:260:stop] epoch=0/micro_step={place + 1}/global_step={place + 1}, "
            f"RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec={64 / seconds}, MemAllocated=4.32GB, "
            "MaxMemAllocated=41.91GB",
        ]
    return lines


def nanotron(times: Times) -> list[str]:
    lines = []
    for place, seconds in enumerate(times):
        stamp = clock(times, place).strftime("%m/%d/%Y %H:%M:%S")
        lines += [
            f"{stamp} [INFO|DP=0|PP=0|TP=0|node-1]: iteration: {place + 1} / 1000 | consumed_tokens: 10.5M | "
            f"time_per_iteration_ms: {human(seconds * 1e3)} | tokens_per_sec: 1.7M | tokens_per_sec_per_gpu: 26.6K | "
            f"global_batch_size: 524K | lm_loss: {human(loss(place))} | lr: 0.0003 | model_tflops_per_gpu: 999 | "
            "eta: 0:10:00",
            f"{stamp} [INFO|DP=0|PP=0|TP=0|node-1]:  Memory usage: 1000.00MiB. Peak allocated 40000.00MiB. "
            "Peak reserved: 42916.00MiB",
        ]
    return lines


def composer(times: Times) -> list[str]:
    lines = []
    for place, seconds in enumerate(times):
        lines += [
            f"[batch={place + 1}/1000]:",
            f"\t Train time/batch: {place}",
            f"\t Train loss/train/total: {loss(place):.4f}",
            f"\t Train throughput/batches_per_sec: {1 / seconds:.6f}",
            "\t Train throughput/device/mfu: 0.9990",
            "\t Train memory/peak_reserved_mem: 45.0000",
        ]
    return lines


def huggingface(times: Times) -> list[str]:
    lines = ["Loading checkpoint shards: 100%|██████████| 4/4 [00:10<00:00,  2.50s/it]"]
    for place, seconds in enumerate(times):
        elapsed = int(sum(times[: place + 1]))
        lines.append(
            f"\r{(place + 1) // 10:3d}%|█         | {place + 1}/1000 [{elapsed // 60:02d}:{elapsed % 60:02d}<34:39, "
            f" {seconds:.2f}s/it]"
        )
        lines.append(f"{{'loss': {loss(place):.4f}, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.01}}")
    lines.append(
        "{'train_runtime': 2310.0, 'train_samples_per_second': 6.9, 'train_steps_per_second': 0.1, 'train_loss': 2.0}"
    )
    return lines


def maxtext(times: Times) -> list[str]:
    lines = ["Config param global_batch_size_to_train_on: 64", "Config param max_target_length: 8192"]
    lines += [
        f"completed step: {place}, seconds: {seconds:.3f}, TFLOP/s/device: 999.999, "
        f"Tokens/s/device: {8192 / seconds:.3f}, total_weights: 524288, loss: {loss(place):.3f}"
        for place, seconds in enumerate(times)
    ]
    return lines


def torchtune(times: Times) -> list[str]:
    lines = []
    for place, seconds in enumerate(times):
        bar = f"1|{place + 1}|Loss: {loss(place)}:   1%|1         | {place + 1}/1000 [00:50<26:06,  {seconds:.2f}s/it]"
        lines += [
            bar,
            f"Step {place + 1} | loss:{loss(place)} lr:2e-05 tokens_per_second_per_gpu:{4000 / seconds} "
            "peak_memory_active:41.0 peak_memory_alloc:40.5 peak_memory_reserved:41.91 ",
        ]
    return lines


def litgpt(times: Times) -> list[str]:
    return [
        f"Epoch 1 | iter {8 * (place + 1)} step {place + 1} | loss train: {loss(place):.3f}, val: n/a | "
        f"iter time: {seconds / 8 * 1e3:.2f} ms (step) remaining time: 0:10:00"
        for place, seconds in enumerate(times)
    ]


def nanogpt(times: Times) -> list[str]:
    return [
        f"iter {place}: loss {loss(place):.4f}, time {seconds * 1e3:.2f}ms, mfu 99.90%"
        for place, seconds in enumerate(times)
    ]


def verl(times: Times) -> list[str]:
    return [
        f"(TaskRunner pid=917) step:{place + 1} - actor/pg_loss:{loss(place)} - actor/grad_norm:np.float64(0.5) - "
        f"perf/max_memory_reserved_gb:41.91 - timing_s/gen:99.9 - timing_s/update_actor:{seconds} - timing_s/step:999.9"
        for place, seconds in enumerate(times)
    ]


def engine(times: Times) -> list[str]:
    lines = []
    for place in range(len(times)):
        stamp = clock(times, place).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        lines += [
            f"[{stamp}] [INFO] [logging.py:69:log_dist] [Rank 0] step={place + 1}, skipped=2, lr=[5e-05], mom=[[0.9]]",
            f"[{stamp}] [INFO] [timer.py:189:stop] 0/{4 * place + 4}, SamplesPerSec=83.4, MemAllocated=0.26GB, "
            "MaxMemAllocated=41.91GB",
        ]
    return lines


def olmo(times: Times) -> list[str]:
    lines = []
    for place in range(len(times)):
        stamp = clock(times, place).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3].replace(",", ".")
        lines += [
            f"{stamp}\tnode-1:0\tolmo.train:979\tINFO\t[step={place + 1}/1000,epoch=0]",
            f"    train/CrossEntropyLoss={loss(place):.3f}",
            "    throughput/device/tokens_per_second=999,999",
            "    System/Peak GPU Memory (MB)=45,000",
        ]
    return lines


def mlperf(times: Times) -> list[str]:
    def event(key: str, value: float, milliseconds: float, **stated: int) -> str:
        fields = {"namespace": "", "time_ms": round(milliseconds), "event_type": "POINT_IN_TIME", "key": key}
        return f":::MLLOG {json.dumps(fields | {'value': value, 'metadata': stated})}"

    lines, now = [event("global_batch_size", 32, 0.0)], 1.7e12
    for place, seconds in enumerate(times):
        now += seconds * 1e3
        lines.append(event("train_loss", loss(place), now, samples_count=32 * (place + 1)))
    return lines


def plain_loop(times: Times) -> list[str]:
    return [
        f"[train] iter {step}: loss {loss(step):.4f} lr 3.0e-04 {1e3 * seconds:.0f} ms/iter"
        for step, seconds in enumerate(times, 1)
    ]


PROGRAMS: dict[str, Callable[[Times], list[str]]] = {
    "Megatron-LM": megatron,
    "Megatron-Bridge": bridge,
    "Primus": primus,
    "NeMo": nemo,
    "NeMo AutoModel": automodel,
    "torchtitan": torchtitan,
    "DeepSpeed": deepspeed,
    "nanotron": nanotron,
    "llm-foundry": composer,
    "Hugging Face Trainer": huggingface,
    "MaxText": maxtext,
    "torchtune": torchtune,
    "litgpt": litgpt,
    "nanoGPT": nanogpt,
    "verl": verl,
    "DeepSpeed's steps": engine,
    "OLMo": olmo,
    "MLPerf": mlperf,
    "a plain loop": plain_loop,
}


def text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def runs_of(output: str) -> list[dict[str, Any]]:
    return list(json.loads(output)["runs"])
