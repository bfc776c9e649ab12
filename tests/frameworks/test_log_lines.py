"""What every form of a line of each program's log says, whole: nothing more and nothing less."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from optimizer.base.units import GiB, MiB
from optimizer.frameworks.deepspeed.log import known_steps
from optimizer.frameworks.every import LOGS
from optimizer.frameworks.huggingface.log import of_training
from optimizer.frameworks.litgpt.log import steps_of
from optimizer.frameworks.log_line import LogLine
from optimizer.frameworks.mlperf.log import in_steps
from optimizer.frameworks.nanogpt.log import of_the_gpu

FORMATS = {log.name: log for log in LOGS}
BAR = " 10%|█         | 100/1000 [03:51<34:39,  2.31s/it]"
BATCH = "with local batch size 2, "
TIMER = "RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.6, MemAllocated=4.32GB, MaxMemAllocated=38.5GB"
LINES: Mapping[str, list[tuple[str, LogLine | None]]] = {
    "DeepSpeed": [
        (f"micro_step=9/global_step=10, {TIMER}", LogLine(step=10, sequences_rate=25.6, allocated=38.5 * GiB)),
        (f"0/20, {TIMER}", LogLine(step=20, sequences_rate=25.6, allocated=38.5 * GiB)),
        (
            "MA 1.5 GB         Max_MA 2.5 GB         CA 3.5 GB         Max_CA 9 GB",
            LogLine(allocated=2.5 * GiB, reserved=9.0 * GiB),
        ),
        ("MA 1.5 GB  Max_MA 2.5 GB  CA 9.5 GB  Max_CA 9 GB", LogLine(allocated=2.5 * GiB, reserved=9.5 * GiB)),
        ("  train_batch_size ............. 64", LogLine(facts={"global_batch": "64"})),
        ("  train_batch_size ............. 0", None),
        ("  train_batch_size ............. 1", LogLine(facts={"global_batch": "1"})),
        ("  overlap_comm ................. True", LogLine(facts={"overlap_comm": "true"})),
        ("  steps_per_print .............. 10", None),
    ],
    "a plain loop": [
        ("iter_dt 250.00ms; iter 20: train loss 2.5", LogLine(step=20, seconds=0.25, loss=2.5)),
        ("[train] iter 20: loss 2.5 250 ms/iter", LogLine(step=20, seconds=0.25, loss=2.5)),
        ("step   3/ 90  loss=-0.5  dt=1.5s", LogLine(step=3, last_step=90, seconds=1.5, loss=-0.5)),
        ("step:3 - train/loss:0.5 - train/lr:1e-5 - train/time(s):1.5", LogLine(step=3, seconds=1.5, loss=0.5)),
        ('{"step": 3, "step_time_ms": 1500.0, "loss": 0.5}', LogLine(step=3, seconds=1.5, loss=0.5)),
        ("Iteration 1,200 | loss: 0.5 | step time: 1.5 sec", LogLine(step=1200, seconds=1.5, loss=0.5)),
        ("Step=30, Loss=0.5, Rate=128.5 samples/sec", LogLine(step=30, sequences_rate=128.5, loss=0.5)),
        ("| epoch 002: 3 / 90 loss=0.5, ups=4, num_updates=30, wall=9", LogLine(step=30, seconds=0.25, loss=0.5)),
        ("step 3 loss 0.5 dt 1.5", None),  # of no unit
        ("step 3 loss 0.5 dt 0.0s", None),
        ("step 3 loss 0.5 12.5 tok/s", None),
        ("step 3 dt 1.5s", None),
        ("loss 0.5 dt 1.5s", None),
        ("step 3 val_loss 0.5 dt 1.5s", None),
        ("Epoch [2/9], Step [30/90], Loss: 0.5, step time: 1.5s", None),  # steps of an epoch
    ],
    "DeepSpeed's steps": [
        (
            "steps: 26 loss: 10.75 iter time (s): 26.5 samples/sec: 0.602",
            LogLine(step=26, seconds=26.5, sequences_rate=0.602, loss=10.75),
        ),
        ("[Rank 0] step=40, skipped=2, lr=[5e-05]", LogLine(step=40)),
        ("[Rank 0] SamplesPerSec=25.0, MemAllocated=4.32GB, MaxMemAllocated=38.5GB", LogLine(allocated=38.5 * GiB)),
    ],
    "Hugging Face Trainer": [
        (BAR, LogLine(step=100, last_step=1000, bar=(100, 1000), seconds=2.31, averaged=True, elapsed=231.0)),
        (
            f"Training:{BAR}",
            LogLine(step=100, last_step=1000, bar=(100, 1000), seconds=2.31, averaged=True, elapsed=231.0),
        ),
        (
            f"Iteration: {BAR}",
            LogLine(step=100, last_step=1000, bar=(100, 1000), seconds=2.31, averaged=True, elapsed=231.0),
        ),
        (f"Eval:{BAR}", None),
        ("0%|    | 0/10 [00:00<?, ?it/s]", LogLine(step=0, last_step=10, bar=(0, 10), averaged=True, elapsed=0.0)),
        ("{'train_runtime': 2310.0, 'train_steps_per_second': 0.5}", LogLine(seconds=2.0, alone=True, elapsed=2310.0)),
        ("train_runtime = 0:38:30", LogLine(alone=True, elapsed=2310.0)),
        ("{'train_steps_per_second': 0.0}", LogLine(alone=True)),
        ("{'step': 9, 'loss': 1.5, 'train_steps_per_second': 4.0}", LogLine(loss=1.5)),
        ("{'loss': '1.5', 'train_runtime': '110.7', 'train_tokens_per_second': '2583'}", LogLine(loss=1.5)),
        ("  Continuing training from global step 488", LogLine(step=488, alone=True)),
        ("{'train_steps_per_second': '4.0'}", LogLine(seconds=0.25, alone=True)),
        ('  "global_step": 900,', LogLine(last_step=900)),
        ("INFO  Total optimization steps = 1,200", LogLine(last_step=1200)),
        ("{'loss': 0.5, 'grad_norm': 1.25, 'epoch': 0.1}", LogLine(loss=0.5, grad_norm=1.25)),
        ("{'eval': 0.5}", None),
        ("{'loss': 'x'}", None),
        (
            "{'loss': 0.5, 'memory(GiB)': 69.5, 'train_speed(iter/s)': 0.5, 'global_step/max_steps': '12/94'}",
            LogLine(step=12, last_step=94, loss=0.5, elapsed=24.0, reserved=69.5 * GiB),
        ),
        (
            "{'loss': 0.5, 'train_speed(s/it)': 4.0, 'global_step/max_steps': '12/94'}",
            LogLine(step=12, last_step=94, loss=0.5, elapsed=48.0),
        ),
        (
            '{"current_steps": 10, "total_steps": 90, "loss": 0.5, "elapsed_time": "2 days, 1:02:03"}',
            LogLine(step=10, last_step=90, loss=0.5, elapsed=2 * 86400.0 + 3723.0),
        ),
        (
            '{"current_steps": 10, "total_steps": 90, "loss": 0.5, "vram_reserved": 7}',
            LogLine(step=10, last_step=90, loss=0.5, reserved=7.0 * GiB),
        ),
        ('{"current_steps": 10, "loss": 0.5}', LogLine(loss=0.5)),
    ],
    "litgpt": [
        (
            "Epoch 1 | iter 512 step 64 | loss train: 2.5, val: n/a | iter time: 125.00 ms (step)",
            LogLine(step=64, micro_batch=512, seconds=0.125, loss=2.5),
        ),
        ("iter 77 step 39: loss 10.5, iter time: 214.00ms", LogLine(micro_batch=77, seconds=0.214, loss=10.5)),
        ("iter 77 step 39: loss 10.5, iter time: 2.5s", LogLine(micro_batch=77, seconds=2.5, loss=10.5)),
    ],
    "llm-foundry": [
        ("[batch=20/100]:", LogLine(step=20, last_step=100, averaged=True)),
        ("[epoch=1][batch=5/10]:", LogLine(step=5, averaged=True)),
        ("[epoch=3/4][batch=5/10]:", LogLine(step=25, averaged=True)),
        ("\t Train throughput/batches_per_sec: 0.5", LogLine(seconds=2.0)),
        ("\t Train throughput/batches_per_sec: 0.0", None),
        ("\t Train throughput/device/tokens_per_sec: 1,250.5", LogLine(tokens_rate=1250.5)),
        ("\t Train memory/peak_reserved_mem: 36.5", LogLine(reserved=36.5e9)),
        ("\t Train memory/reserved_mem: 36.5", LogLine(reserved=36.5e9)),
        ("\t Train memory/peak_allocated_mem: 36.5", LogLine(allocated=36.5e9)),
        ("\t Train memory/peak_active_mem: 36.5", LogLine(allocated=36.5e9)),
        ("\t Train loss/train/total: 2.5", LogLine(loss=2.5)),
        ("\t Train loss/train/total: -", None),
        ("\t Train lr/group0: 0.1", None),
    ],
    "MaxText": [
        (
            "completed step: 5, seconds: 3.5, TFLOP/s/device: 140.25, Tokens/s/device: 4742.5, weights: 9, loss: 10.5",
            LogLine(step=5, seconds=3.5, flops_rate=140.25e12, tokens_rate=4742.5, loss=10.5),
        ),
        ("completed step: 5, seconds: 3.5, TFLOP/s: 140.25,", LogLine(step=5, seconds=3.5, flops_rate=140.25e12)),
        ("Config param global_batch_size_to_train_on: 64", LogLine(facts={"global_batch": "64"})),
        ("Config param max_target_length: 8192", LogLine(facts={"seq_len": "8192"})),
        ("Config param steps: 10", None),
    ],
    "Megatron-LM": [
        (
            " iteration 20/ infinity | elapsed time per iteration (s): 2.5 | actual seqlen: 512 |",
            LogLine(step=20, seconds=2.5, averaged=True, facts={"seq_len": "512"}),
        ),
        (" iteration 20/ 30 | lm loss: 2.5 |", None),
        (" iteration 20/ 30 | elapsed time per iteration (ms): 2500.0", None),  # cut short
        (
            "[Rank 0] memory (MB) | allocated: 1.0 | max allocated: 2.5 | reserved: 3 | max reserved: 4.5",
            LogLine(allocated=2.5 * MiB, reserved=4.5 * MiB),
        ),
        ("memory (MB) | allocated: 1.0 | max allocated: 2.5 |", LogLine(allocated=2.5 * MiB)),
        ("  world_size ...................................... 64", LogLine(facts={"gpus": "64"})),
        ("  padded_vocab_size ............................... 50304", LogLine(facts={"vocab": "50304"})),
        ("  num_workers ..................................... 2", LogLine(facts={"num_workers": "2"})),
        ("  seed ............................................ 2", None),
    ],
    "Megatron-Bridge": [
        ("Step Time : 5.5s GPU utilization: 414.8MODEL_TFLOP/s/GPU", LogLine(seconds=5.5, averaged=True, alone=True)),
        (
            " iteration 20/ 30 | elapsed time per iteration (ms): 2500.0 |",
            LogLine(step=20, last_step=30, seconds=2.5, averaged=True),
        ),
    ],
    "MLPerf": [
        (
            ':::MLLOG {"time_ms": 9500, "key": "train_loss", "value": 2.5, "metadata": {"samples_count": 64}}',
            LogLine(step=64, elapsed=9.5, loss=2.5),
        ),
        (
            ':::MLLOG {"time_ms": 9500, "key": "tracked_stats", "value": {"reduced_train_loss": 2.5}, "step": 64}',
            LogLine(step=64, elapsed=9.5, loss=2.5),
        ),
        (':::MLLOG {"time_ms": 9500, "key": "tracked_stats", "value": {"throughput": 2.5}, "step": 64}', None),
        (
            ':::MLLOG {"time_ms": 9500, "key": "tracked_stats", "value": {"throughput": 2.5}, '
            '"metadata": {"step": 64}}',
            LogLine(step=64, elapsed=9.5, sequences_rate=2.5),
        ),
        (
            ':::MLLOG {"time_ms": 9500, "key": "tracked_stats", "value": {"throughput": 25.5}, '
            '"metadata": {"file": "x.py", "epoch_num": 768}}',
            LogLine(step=768, elapsed=9.5, sequences_rate=25.5),
        ),
        (
            ':::MLLOG {"key": "tracked_stats", "value": {"train_step_timing in s": 9.5}, "step": 4194304}',
            LogLine(step=4194304, seconds=9.5),
        ),
        (':::MLLOG {"time_ms": 9500, "key": "train_loss", "value": 2.5, "metadata": {"reward": 1, "step": 4}}', None),
        (':::MLLOG {"time_ms": 9500, "key": "train_loss", "value": 2.5}', None),
        (':::MLLOG {"key": "train_loss", "value": 2.5, "metadata": {"samples_count": 64}}', None),
        (':::MLLOG {"key": "max_sequence_length", "value": 8192}', LogLine(facts={"seq_len": "8192"})),
    ],
    "nanoGPT": [
        (
            "iter 1631: loss 4.5, time 562.00ms, mfu 50.00%",
            LogLine(step=1631, seconds=0.562, loss=4.5, flops_rate=156e12),
        ),
        ("iter 1631: loss 4.5, time 562.00ms", LogLine(step=1631, seconds=0.562, loss=4.5)),
        (
            "step 00010/21400 (0.05%) | loss: 9.5 | lrm: 1.00 | dt: 512.50ms | tok/sec: 1,023,000 | bf16_mfu: 50.00",
            LogLine(step=10, last_step=21400, seconds=0.5125, loss=9.5, flops_rate=494.5e12),
        ),
        (
            "step   19/19560 | loss 7.5 (+nanz)| norm 3.1 (+nanz)| lr 1.6e-05 | 512.25 ms | 29.2% bf16 MFU",
            LogLine(step=19, last_step=19560, seconds=0.51225, loss=7.5),
        ),
        (
            "step:19/5100 train_loss:6.5 train_time:1315ms step_avg:146.14ms",
            LogLine(step=19, last_step=5100, loss=6.5, elapsed=1.315),
        ),
        ("step:19/5100 train_time:1315ms", LogLine(step=19, last_step=5100, elapsed=1.315)),
        (
            "step:250/5100 val_loss:4.25 train_time:210.5s step_avg:842.00ms",
            LogLine(step=250, last_step=5100, elapsed=210.5, alone=True),
        ),
        ("GPU: NVIDIA H100 | Peak FLOPS (BF16): 9.89e+14", LogLine(facts={"peak": "9.89e+14"})),
    ],
    "nanotron": [
        (
            "iteration: 5 / 20 | time_per_iteration_ms: 1.25K | lm_loss: 2.5 | "
            "model_tflops_per_gpu: 400 | grad_norm: 0.5",
            LogLine(step=5, last_step=20, seconds=1.25, flops_rate=400e12, loss=2.5, grad_norm=0.5),
        ),
        ("iteration: 5 / 20 | elapsed_time_per_iteration_ms: 980 |", LogLine(step=5, last_step=20, seconds=0.98)),
        (
            "Memory usage: 1.0MiB. Peak allocated 2.5MiB. Peak reserved: 3.5MiB",
            LogLine(allocated=2.5 * MiB, reserved=3.5 * MiB),
        ),
    ],
    "NeMo": [
        (
            "Training epoch 0, iteration 10/999 | global_batch_size: 512 | global_step: 29 | "
            "reduced_train_loss: 11.5 | train_step_timing in s: 46.5 |",
            LogLine(step=29, last_step=999, seconds=46.5, loss=11.5, facts={"global_batch": "512"}),
        ),
        (
            "Epoch 0: 1%| | 795/77225 [9:07:58<878:01:48, 41.36s/it, reduced_train_loss=3.5, global_step=794.0, x=1]",
            LogLine(step=794, last_step=77225, seconds=41.36, averaged=True, loss=3.5),
        ),
        ("Epoch 0: 1%| | 795/77225 [9:07:58<878:01:48, 41.36s/it, reduced_train_loss=3.5]", None),
        (
            "Epoch 1: : 7it [00:31, 4.36s/it, reduced_train_loss=0.5, global_step=7.000, train_step_timing in s=3.5]",
            LogLine(step=7, seconds=3.5, loss=0.5),
        ),
        ("iteration 10/999 | train_step_timing in s: 46.5 |", LogLine(step=10, last_step=999, seconds=46.5)),
        ("train_step_timing in s: 46.5 |", None),
    ],
    "NeMo AutoModel": [
        (
            "step 5 | epoch 0 | loss 2.5 | grad_norm 9.5 | lr 1.00e-04 | mem 57.5 GiB | tps 800.0(100.0/gpu)",
            LogLine(step=5, loss=2.5, grad_norm=9.5, allocated=57.5 * GiB),
        ),
        (
            '{"step": 4, "loss": 3.5, "grad_norm": 0.5, "mem": 58.5, "tps": 2048.0, "num_tokens_per_step": 4096}',
            LogLine(step=4, loss=3.5, grad_norm=0.5, seconds=2.0, allocated=58.5 * GiB),
        ),
        ('{"step": 4, "tps": 2048.0, "num_tokens_per_step": 4096}', LogLine(step=4, seconds=2.0)),
        ('{"step": 4, "tps": 0.0, "num_tokens_per_step": 4096}', None),
        ('{"tps": 2048.0, "num_tokens_per_step": 4096}', None),
    ],
    "OLMo": [
        ("INFO\t[step=5/100,epoch=0]", LogLine(step=5, last_step=100)),
        ("INFO\t[step=5/???,epoch=0]", LogLine(step=5)),
        ("    train/CrossEntropyLoss=2.5", LogLine(loss=2.5)),
        ("    optim/total_grad_norm=0.5", LogLine(grad_norm=0.5)),
        ("    System/Peak GPU Memory (MB)=111,478", LogLine(allocated=111478e6)),
        ("    gpu_memory/GPU active mem (GiB)=2.5", LogLine(allocated=2.5 * GiB)),
        ("    throughput/device/tokens_per_second=2.5", None),
    ],
    "Primus": [
        (
            " iteration 11/ 500 | elapsed time per iteration (ms): 1891.5/1888.6 | hip mem "
            "usage/free/total/usage_ratio: 64.00GB/224.04GB/287.98GB/22.20% | "
            "rocm max mem usage/usage_ratio: 80.00GiB/30% |",
            LogLine(step=11, last_step=500, seconds=1.8915, averaged=True, reserved=80.0 * GiB),
        ),
        (
            " iteration 11/ 500 | elapsed time per iteration (ms): 1891.5/1888.6 |",
            LogLine(step=11, last_step=500, seconds=1.8915, averaged=True),
        ),
        (" iteration 11/ 500 | elapsed time per iteration (ms): 1891.5 |", None),
    ],
    "torchtitan": [
        (
            "step: 10  loss:  7.5  grad_norm:  1.5  memory: 30.50GiB(38.55%)  tps: 7,130  tflops: 413.5",
            LogLine(
                step=10,
                tokens_rate=7130.0,
                flops_rate=413.5e12,
                averaged=True,
                loss=7.5,
                grad_norm=1.5,
                reserved=30.5 * GiB,
            ),
        ),
        ("validate step: 10  loss:  7.5  memory: 30.50GiB(38.55%)  tps: 7,130", None),
        (
            f"Training starts at step 1, {BATCH}global batch size 64, sequence length 8192,",
            LogLine(facts={"global_batch": "64", "seq_len": "8192"}),
        ),
        (f"Training starts at step 1, {BATCH}global batch size 64", LogLine(facts={"global_batch": "64"})),
        ("Building 2-D device mesh with ['pp', 'tp'], [4, 8]", LogLine(facts={"gpus": "32"})),
    ],
    "torchtune": [
        (
            "1|25|Loss: 1.5:   3%|3         | 26/808 [00:50<26:06,  2.00s/it]",
            LogLine(step=25, bar=(26, 808), seconds=2.0, averaged=True, elapsed=50.0, loss=1.5),
        ),
        (
            "Step 25 | loss:1.5 lr:2e-05 tokens_per_second_per_gpu:810.5 peak_memory_reserved:38.5 "
            "peak_memory_alloc:30.5 grad_norm:0.5",
            LogLine(step=25, loss=1.5, grad_norm=0.5, tokens_rate=810.5, reserved=38.5 * GiB, allocated=30.5 * GiB),
        ),
        ("Step 25 | loss:1.5 tokens_per_second_per_gpu:810.5", LogLine(step=25, loss=1.5, tokens_rate=810.5)),
    ],
    "verl": [
        (
            "step:3 - actor/grad_norm:np.float64(0.5) - actor/pg_loss:0.25 - perf/max_memory_reserved_gb:70.5 - "
            "timing_s/gen:90.0 - timing_s/update_actor:80.5",
            LogLine(step=3, seconds=80.5, loss=0.25, grad_norm=0.5, reserved=70.5 * GiB),
        ),
        ("step:3 - timing_s/update_actor:80.5", LogLine(step=3, seconds=80.5)),
        ("step:3 - timing_s/gen:90.0", None),
        ("timing_s/update_actor:80.5", None),
    ],
}


@pytest.mark.parametrize(("program", "text", "said"), [(name, *row) for name, rows in LINES.items() for row in rows])
def test_a_line(program: str, text: str, said: LogLine | None) -> None:
    log = FORMATS[program]
    assert log.read(text) == said
    if said is not None:  # else the line is never shown to it
        assert any(mark in text if isinstance(mark, str) else mark.search(text) for mark in log.marks)


def test_every_program_has_lines() -> None:
    assert set(LINES) == set(FORMATS)


def test_steps_of_deepspeed_are_three_or_none() -> None:
    two, three = ([LogLine(step=step) for step in range(count)] for count in (2, 3))
    assert (known_steps(two), known_steps(three)) == ([None, None], three)


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        # Each micro-batch is printed: their sum.
        ([(None, 1, 1.0), (1, 2, 3.0), (None, 3, 1.0), (2, 4, 1.0)], [4.0, 2.0]),
        # Only the last of each step is: as many times its own as there are.
        ([(1, 4, 0.5), (2, 8, 0.25)], [2.0, 1.0]),
        # Of every second step: a step has half of the micro-batches between.
        ([(2, 8, 0.5), (4, 16, 0.25)], [2.0, 1.0]),
        # Counted anew.
        ([(2, 8, 0.5), (1, 4, 0.25)], [2.0, 0.25]),
        ([(1, 0, 0.5)], [0.5]),
    ],
)
def test_a_step_of_litgpt_is_its_micro_batches(
    parts: list[tuple[int | None, int, float]], seconds: list[float]
) -> None:
    readings = [LogLine(step=step, micro_batch=place, seconds=each) for step, place, each in parts]
    assert [line.seconds for line in steps_of(readings) if line] == seconds


def test_sequences_of_mlperf_become_steps() -> None:
    lines = [LogLine(facts={"global_batch": "4"}), LogLine(step=7, elapsed=2.5), LogLine(step=12, elapsed=4.0)]
    assert in_steps(lines) == [lines[0], LogLine(step=1, elapsed=0.0), LogLine(step=3, elapsed=1.5)]
    assert in_steps(lines[1:]) == [None, None]


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        (((0, 0.0, 2.0), (10, 4.5, 2.0)), True),  # 0.9 times what the rate says
        (((0, 0.0, 2.0), (10, 4.4, 2.0)), False),
        (((10, 5.0, 2.0), (20, 20.0, 2.0)), True),  # 3 times
        (((10, 5.0, 2.0), (20, 20.1, 2.0)), False),
        (((0, 0.0, 2.0), (10, 15.0, 2.0)), True),
        (((0, 0.0, 2.0), (2, 0.0, 2.0)), False),
        (((1, 0.0, 2.0), (2, 9.0, 2.0)), False),
        (((0, 0.0, 2.0), (0, 9.0, 2.0), (4, 11.0, 2.0)), True),  # none between two of the same
        (((8, 0.0, 2.0), (4, 9.0, 2.0)), True),  # begun anew
    ],
)
def test_rates_of_mlperf_are_of_sequences_where_the_clock_says_so(
    rows: tuple[tuple[int, float, float], ...], kept: bool
) -> None:
    sizes = LogLine(facts={"global_batch": "2"})
    lines = [LogLine(step=step, elapsed=at, sequences_rate=rate) for step, at, rate in rows]
    settled = [line for line in in_steps([sizes, *lines]) if line and line.step is not None]
    assert [(line.step, line.sequences_rate) for line in settled] == [
        (step // 2, rate if kept else None) for step, _, rate in rows
    ]
    losses = [LogLine(step=step, elapsed=at, loss=0.5) for step, at, _ in rows]
    mixed = in_steps([sizes, *(line for pair in zip(lines, losses, strict=True) for line in pair)])
    assert [line.loss for line in mixed if line and line.step is not None] == [0.5] * len(rows)
    assert not any(line.sequences_rate for line in mixed if line)


def test_steps_of_mlperf_that_count_tokens_are_their_shares() -> None:
    loss = LogLine(step=7, elapsed=1.0, loss=0.5)
    lines = [LogLine(step=step, seconds=1.5) for step in (0, 3, 4)]
    assert in_steps([LogLine(facts={"seq_len": "8"}), *lines, loss]) == [LogLine(facts={"seq_len": "8"}), *lines, None]
    assert [line and line.step for line in in_steps([lines[0], *(x._replace(step=8) for x in lines)])] == [0, 1, 1, 1]


def test_rates_of_nanochat_are_shares_of_the_gpu_that_it_names() -> None:
    def rates(peak: str) -> list[float | None]:
        lines = [LogLine(facts={"peak": peak}), LogLine(step=1, flops_rate=989e12 / 2), LogLine(step=2)]
        return [line.flops_rate for line in of_the_gpu(lines) if line]

    assert rates("1.00e+14") == [0.5e14, None]
    assert rates("9.89e+14") == [989e12 / 2, None]
    assert rates("inf") == [None, None]


@pytest.mark.parametrize(
    ("seconds", "left"), [((2.0, 2.0199), 1), ((2.0, 2.03), 2), ((2.0, 1.9801), 1), ((2.0, None), 1), ((None, 2.0), 1)]
)
def test_a_run_of_the_trainer_has_one_summary(seconds: tuple[float | None, float | None], left: int) -> None:
    readings = [LogLine(seconds=each, alone=True) for each in seconds]
    assert len([line for line in of_training(readings) if line]) == left


def test_evaluations_tell_the_time_where_no_step_does() -> None:
    step, evaluation = LogLine(step=2, elapsed=2.0), LogLine(step=1, elapsed=1.0, alone=True)
    assert of_the_gpu([evaluation]) == [evaluation._replace(alone=False)]
    assert of_the_gpu([evaluation, step]) == [None, step]


def test_a_step_that_is_printed_twice_takes_what_it_says() -> None:
    lines = [LogLine(step=1, micro_batch=place, seconds=0.5) for place in (4, 5)]
    assert [line.seconds for line in steps_of(lines) if line] == [2.0, 0.5]


def test_times_of_lines_count_as_far_as_they_tell_each_step() -> None:
    for last, pace in ((100, 2.25), (101, 2.0)):
        steps = range(last - 2, last + 1)
        bars = [LogLine(bar=(step, 900), step=step, seconds=3.0, elapsed=2.0 * step) for step in steps]
        paces = [LogLine(step=step, loss=1.0, elapsed=2.25 * step + 0.125) for step in steps]
        settled = of_training([*bars, *paces])
        assert [line is None for line in settled[:3]] == [pace == 2.25] * 3


@pytest.mark.parametrize(("begun", "seconds"), [(0, 2.0), (50, 4.0), (100, None), (120, None)])
def test_the_rate_of_a_run_that_went_on_counts_the_steps_before(begun: int, seconds: float | None) -> None:
    lines = [LogLine(last_step=100), LogLine(step=begun, alone=True), LogLine(alone=True, elapsed=200.0, seconds=2.0)]
    assert [line.seconds for line in of_training(lines) if line and line.alone] == ([seconds] if seconds else [])
    again = of_training([*lines, LogLine(last_step=90), LogLine(alone=True, elapsed=270.0, seconds=3.0)])
    assert again[-1] == LogLine(alone=True, summary=True, seconds=3.0)
