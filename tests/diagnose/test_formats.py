"""Every program's log is known by itself and read to its steady step time, however it is dressed up."""

import gzip
import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from optimizer.base.errors import InvalidFile
from optimizer.cli import cli
from optimizer.diagnose.measured import read_runs_of
from optimizer.diagnose.report import logs_json
from optimizer.frameworks.every import LOGS
from tests.diagnose import written
from tests.diagnose.written import runs_of

PACE = 2.0
FORMATS = {log.name: log for log in LOGS}
DAMAGE = ("plain", "crlf", "utf-16", "gzip", "notebook", "coloured", "emptied", "srun", "cut", "noise")


def times(count: int = 60, pace: float = PACE, seed: int = 0) -> list[float]:
    """Steps around a pace, the first ones slow as compilation makes them."""
    drawn = pace * np.exp(0.004 * np.random.default_rng(seed).standard_normal(count))
    drawn[:3] *= [9.0, 2.5, 1.3]
    return [float(value) for value in drawn]


def read(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["read", *map(str, arguments)])


def first(*arguments: object) -> dict[str, Any]:
    done = read(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("program", written.PROGRAMS)
def test_every_program_is_found_and_its_pace_is_read(program: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(written.text(written.PROGRAMS[program](times())), encoding="utf-8")
    found = first(log)
    assert found["program"] == program
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)
    assert 0 <= float(str(found["spread"])) < 0.02
    assert 50 <= int(str(found["steps_used"])) <= 57
    assert found["status"] == "ok"
    lines = map(FORMATS[program].read, log.read_text(encoding="utf-8").splitlines())
    if any(line and (line.reserved or line.allocated) for line in lines):
        assert found["memory_bytes"] == pytest.approx(45e9, rel=0.05)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("program", written.PROGRAMS)
def test_a_log_in_any_dress_reads_the_same(program: str, damage: str, tmp_path: Path) -> None:
    lines = written.PROGRAMS[program](times())
    plain = written.text(lines)
    data = plain.encode()
    if damage == "crlf":
        data = plain.replace("\r", "").replace("\n", "\r\n").encode()
    elif damage == "utf-16":
        data = plain.encode("utf-16")
    elif damage == "gzip":
        data = gzip.compress(data)
    elif damage == "notebook":
        shown = {"output_type": "stream", "text": [f"\x1b[1m{line}" for line in plain.splitlines(keepends=True)]}
        cells = [{"source": "!train"}, {"outputs": [shown, {"data": {"text/plain": "0"}}]}]
        data = json.dumps({"cells": cells, "nbformat": 4}).encode()
    elif damage == "coloured":
        data = written.text([f"\x1b[1;32m{line}\x1b[0m" for line in lines]).encode()
    elif damage == "emptied":
        data = bytes(4000) + data
    elif damage == "srun":
        data = written.text([f"3: {line}" for line in lines]).encode()
    elif damage == "cut":
        data = data[: -len(lines[-1]) // 2]
    elif damage == "noise":
        data = b"\xff\xfe garbage \x00\n"[2:] + data.replace(b"\n", b"\nWARNING: iteration is not a step 5/7\n")
    log = tmp_path / "train.log"
    log.write_bytes(data)
    found = first(log)
    assert found["program"] == program
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)


@pytest.mark.parametrize("program", written.PROGRAMS)
@pytest.mark.parametrize("share", [0.35, 0.5, 0.73, 0.9])
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(program: str, share: float, tmp_path: Path) -> None:
    data = written.text(written.PROGRAMS[program](times())).encode()
    for extra in range(0, 40, 7):
        log = tmp_path / "train.log"
        log.write_bytes(data[: int(share * len(data)) + extra])
        assert first(log)["step_time_s"] == pytest.approx(PACE, rel=0.01)


def test_a_cut_gzip_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    log = tmp_path / "train.log.gz"
    data = gzip.compress(written.text(written.megatron(times(400))).encode())
    log.write_bytes(data[: len(data) // 2])
    found = first(log)
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)
    assert any("cut short" in str(warning) for warning in found["warnings"])


def test_several_steps_a_line_count_as_so_many(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(written.text(written.megatron(times(300), every=10)))
    found = first(log)
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.003)
    assert found["steps_used"] == 290


def test_a_printed_rate_of_operations_is_never_read(tmp_path: Path) -> None:
    """The logs above all print 999.9 TFLOP/s; another number changes nothing."""
    log = tmp_path / "train.log"
    log.write_text(written.text(written.megatron(times())))
    before = first(log)["step_time_s"]
    log.write_text(written.text(written.megatron(times())).replace("999.9", "1.0"))
    assert first(log)["step_time_s"] == before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 tells of a training step"),
        (b"epoch 1 loss 2.0\nepoch 2 loss 1.9\n", "tells of a training step"),
        (bytes(range(256)) * 40, "is no text"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"iteration 5/ 10 | learning rate: 1.0 |\n", "tells of a training step"),
        ((b" iteration 1/ 10 | elapsed time per iteration (ms): 12"), "tells of a training step"),
    ],
)
def test_what_is_no_log_is_refused_with_one_message(content: bytes, says: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(content)
    done = read(log)
    assert done.exit_code == 2
    assert done.stderr.count("problem") == 1
    assert says in done.stderr
    assert str(log) in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = read(tmp_path / "nothing.log")
    assert done.exit_code == 2
    assert "nothing.log" in done.stderr
    assert "No such file" in done.stderr


def test_rates_without_sizes_are_told_and_become_seconds_with_them(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = [line.split(" - INFO - ")[1] for line in written.torchtitan(times(), told=False)]
    log.write_text(written.text(lines))
    found = first(log)
    assert found["step_time_s"] is None
    assert found["tokens_per_s_per_gpu"] == pytest.approx(8192 / PACE, rel=0.01)
    assert any("--set" in str(warning) for warning in found["warnings"])
    sizes = ["--set", "global_batch=64", "--set", "seq_len=8192", "--set", "gpus=64"]
    assert first(log, *sizes)["step_time_s"] == pytest.approx(PACE, rel=0.006)


def test_the_times_of_lines_serve_where_sizes_are_unknown(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(written.text(written.torchtitan(times(), told=False)))
    found = first(log)
    assert found["basis"] == "clock"
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)


def test_the_hugging_face_summary_serves_alone_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("{'train_runtime': 2310.0, 'train_steps_per_second': 0.5, 'train_loss': 2.0}\n")
    found = first(log)
    assert found["step_time_s"] == pytest.approx(2.0)
    assert any("only 1 steady step:" in str(warning) for warning in found["warnings"])
    assert any("the mean of the whole run" in str(warning) for warning in found["warnings"])
    assert not any("three decimals" in str(warning) for warning in found["warnings"])
    log.write_text("{'train_runtime': 23100.0, 'train_steps_per_second': 0.012, 'train_loss': 2.0}\n")
    assert any("three decimals: exact to 4%" in str(warning) for warning in first(log)["warnings"])
    log.write_text(f"{log.read_text()}{{'loss': 2.0}}\n" * 3)  # as a notebook shows it again
    assert first(log)["steps_used"] == 1


def notebook(*cells: tuple[str, ...]) -> str:
    """A notebook whose cells show tables of the Trainer, or print what begins with no tag."""
    outputs = [
        [{"data": {"text/html": shown}} if shown.startswith("<") else {"text": shown} for shown in cell]
        for cell in cells
    ]
    return json.dumps({"cells": [{"outputs": shown} for shown in outputs], "nbformat": 4})


def test_tables_of_a_notebook_tell_the_mean_of_each_training(tmp_path: Path) -> None:
    """That of an evaluation names no epoch; one that is shown again, and one beside a summary, count once."""
    log = tmp_path / "train.ipynb"
    ended, going = "<div>\n [300/300 10:00, Epoch 3/3]", "<div> [100/400 05:00 < 15:00, 0.33 it/s, Epoch 0.25/1]"
    again, evaluation = "<div> [150/300 04:00 < 04:00, 0.6 it/s, Epoch 1/3]", "<div> [ 20/227 04:52 < 13:11, 0.21 it/s]"
    log.write_text(notebook((again, ended), (going, evaluation)))
    found = runs_of(read(log, "--json").stdout)
    assert [run["step_time_s"] for run in found] == [2.0, 3.0]
    log.write_text(notebook((ended, "{'train_runtime': 606.0, 'train_steps_per_second': 0.5}")))
    assert [run["step_time_s"] for run in runs_of(read(log, "--json").stdout)] == [2.0]
    log.write_text(notebook((evaluation,)))
    assert read(log).exit_code == 2


def test_summaries_of_several_trainings_are_runs(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(
            f"{{'train_runtime': {1000.0 * seconds}, 'train_steps_per_second': {1 / seconds}}}\n" for seconds in (2, 4)
        )
    )
    assert [run["step_time_s"] for run in runs_of(read(log, "--json").stdout)] == [2.0, 4.0]


def test_rates_of_mlperf_leave_evaluations_out(tmp_path: Path) -> None:
    line = ':::MLLOG {{"time_ms": {0}, "key": "{1}", "value": {2}, "metadata": {{"step": {3}}}}}\n'
    log = tmp_path / "train.log"
    lines = [line.format(0, "global_batch_size", 8, 0)]
    lines += [line.format(120_000 * part, "tracked_stats", '{"throughput": 4.0}', 384 * part) for part in range(1, 15)]
    log.write_text("".join(lines))
    assert first(log)["step_time_s"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "text", ["{'loss': 2.5, 'epoch': 1.0}\n", '{\n  "global_step": 400,\n  "log_history": []\n}\n']
)
def test_steps_without_times_are_refused_as_such(text: str, tmp_path: Path) -> None:
    log = tmp_path / "trainer_state.json"
    log.write_text(text)
    refused = read(log)
    assert refused.exit_code == 2
    assert "tells of steps as Hugging Face Trainer does, but not how long any took" in " ".join(refused.output.split())


def test_memory_that_was_reserved_before_training_does_not_hide_what_is_allocated(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    step = (
        "[2026-01-02 10:00:{0:02d},000] [timer.py:264:stop] epoch=0/micro_step={0}/global_step={0}, "
        "RunningAvgSamplesPerSec=9.0, CurrSamplesPerSec=9.0, MemAllocated=4.0GB, MaxMemAllocated=40.0GB\n"
    )
    built = "MA 4.0 GB         Max_MA 4.0 GB         CA {0} GB         Max_CA {0} GB\n"
    for reserved, kind in ((4, "allocated"), (44, "reserved")):
        log.write_text(built.format(reserved) + "".join(step.format(at) for at in range(1, 13)))
        found = first(log)
        assert found["memory_kind"] == kind
        assert found["memory_bytes"] == pytest.approx(max(reserved, 40) * 2**30)


def test_the_end_of_a_bar_alone_is_no_training(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("Running inference\n100%|##########| 2210/2210 [00:04<00:00, 449.23it/s]\n")
    refused = read(log)
    assert refused.exit_code == 2
    assert "tells of a training step" in refused.output
    log.write_text(f"{log.read_text()}{{'loss': 2.5, 'epoch': 1.0}}\n")
    assert first(log)["last_step"] == 2210


@pytest.mark.parametrize("row", [" 75%|###  | 3/4 [00:04<00:01,  1.55s/it]", "100%|#####| 7/7 [00:00<00:00, 21.9it/s]"])
def test_pieces_of_bars_are_no_training(row: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"0: {row}\n{row}\n")
    assert read(log).exit_code == 2


def test_a_bar_faster_than_any_model_is_no_training(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(f" {at}%|#  | {at * 50}/5180 [00:{at // 4:02d}<00:09, 3502.10it/s]\n" for at in range(1, 99))
    )
    assert read(log).exit_code == 2


def test_a_bar_without_losses_is_said_to_be_one(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    rows = [f" {step}%|#  | {step}/100 [00:{step:02d}<01:00,  1.00s/it]\n" for step in range(1, 40)]
    log.write_text("".join(rows))
    assert any("no loss was printed beside the bar" in str(warning) for warning in first(log)["warnings"])
    log.write_text("".join(f"{row}0: {{'loss': 2.5, 'epoch': 1.0}}\n" for row in rows))  # of a rank with a label
    assert not any("no loss" in str(warning) for warning in first(log)["warnings"])
    log.write_text("{'loss': 2.5, 'epoch': 1.0}\n".join(rows))
    assert not any("no loss" in str(warning) for warning in first(log)["warnings"])


# Lines as public logs and documents show them.
REAL = {
    "MaxText": [
        "# completed step: {step}, seconds: {seconds:.3f}, TFLOP/s: 72.958, loss: 9.352",
        "completed step: {step}, seconds:  {seconds:.3f}, TFLOP/s/device: 56.062, main_model_loss: 11.550",
        "I0317 10:00:13.22 1253 metric_logger.py:181] completed step: {step}, seconds: {seconds:.3f}, "
        "TFLOP/s/device: 3.239, Tokens/s/device: 129.087, total_weights: 30193, loss: 12.938",
    ],
    "torchtitan": [
        "[rank0]:[titan] 2026-01-29 10:15:{clock:06.3f} - root - INFO - step:   {step}  loss: 11.8432  "
        "memory: 45.23GiB(47.65%)  tps: 512",
        "[rank0]:2026-01-29 10:15:{clock:06.3f} - root - INFO - step: {step}/644 = 99.3789%  loss:  6.2116  "
        "memory: 87.04GiB(93.48%)  tps: 52,142  mfu: 3.09%",
    ],
    "nanotron": [
        "12/21 01:39:51 [INFO|DP=0|TP=0|lrdn0007]: iteration: {step} / 1500000 | consumed_tokens: 480B | "
        "time_per_iteration_ms: {ms:.3g} | tokens_per_sec: 182K | tokens_per_sec_per_gpu: 699 | lm_loss: 2.04 | "
        "lr: 0.0001 | model_tflops_per_gpu: 15.4 | eta: 131 days, 1:45:39",
        "08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]: iteration: {step} / 15 | consumed_tokens: 512 | "
        "elapsed_time_per_iteration_ms: {ms:.3g} | tokens_per_sec: 109 | lm_loss: 5.32 | grad_norm: 2.96",
    ],
    "NeMo": [
        "[2025-10-17T11:33:02+08:00] Training epoch 0, iteration {step}/999 | lr: 0.0001754 | global_batch_size: 32 | "
        "global_step: {step} | reduced_train_loss: 3.06 | train_step_timing in s: {seconds:.3f} | "
        "tokens_per_sec_per_gpu: 6.706e+03 | consumed_samples: 16928 | val_loss: 3.624",
        "Epoch 0: : 100%|██████████| {step}/100 [10:48<00:00, reduced_train_loss=0.0172, global_step={step}.00, "
        "consumed_samples=25600.0, train_step_timing in s={seconds:.3f}]",
    ],
    "Megatron-LM": [
        " iteration {step:8d}/  317892 | consumed samples:       152832 | consumed tokens:    625999872 | "
        "elapsed time per iteration (ms): {ms:.1f} | learning rate: 2.407E-04 | global batch size:   768 | "
        "lm loss: 5.905366E+00 | loss scale: 8192.0 | actual seqlen:  4096 | number of skipped iterations:   0 |",
        " iteration {step:8d}/infinity | consumed samples:          800 | elapsed time per iteration (ms): {ms:.1f} | "
        "learning rate: 1.3E-04 | global batch size:     4 |",
    ],
    "DeepSpeed": [
        "[2022-08-29 06:58:{clock:06.3f}] [INFO] [timer.py:198:stop] 0/{step}, RunningAvgSamplesPerSec=232.7340, "
        "CurrSamplesPerSec=227.48090316379353, MemAllocated=0.36GB, MaxMemAllocated=15.06GB",
    ],
    "llm-foundry": [
        "[epoch=1][batch={step}/100]:\n         Train time/batch: 4\n"
        "         Train throughput/batches_per_sec: {rate:.4f}",
    ],
}


@pytest.mark.parametrize(("program", "line"), [(name, line) for name, lines in REAL.items() for line in lines])
def test_lines_of_public_logs_are_read(program: str, line: str, tmp_path: Path) -> None:
    pace = 0.5
    rows = [
        line.format(step=step, seconds=pace, ms=pace * 1e3, rate=1 / pace, clock=pace * step) for step in range(1, 40)
    ]
    log = tmp_path / "train.log"
    log.write_text(written.text(rows), encoding="utf-8")
    found = first(log)
    assert found["program"] == program
    assert found["step_time_s"] == pytest.approx(pace, rel=0.003)
    assert found["last_step"] == 39


def test_steps_that_were_only_dispatched_are_warm_up(tmp_path: Path) -> None:
    """The first steps of MaxText: compiled, queued without being run, and paid for in the next one."""
    log = tmp_path / "train.log"
    log.write_text(written.text(written.maxtext([19.0, 0.32, 1.9, *[1.01] * 12])))
    found = first(log)
    assert found["step_time_s"] == pytest.approx(1.01)
    assert found["steps_used"] == 12


@pytest.mark.parametrize("program", written.PROGRAMS)
def test_a_damaged_log_is_read_or_refused_but_never_breaks(program: str, tmp_path: Path) -> None:
    draw = random.Random(program)
    whole = written.text(written.PROGRAMS[program](times(12)))
    for _ in range(40):
        letters = list(whole)
        for _ in range(draw.choice([1, 5, 40, 200])):
            place = draw.randrange(len(letters))
            match draw.randrange(3):
                case 0:
                    letters[place] = draw.choice("0123456789.-eE|: \n\x1b[]{}naif/,\0é")
                case 1:
                    del letters[place : place + draw.randrange(1, 30)]
                case _:
                    letters[place:place] = letters[max(0, place - draw.randrange(200)) : place]
        log = tmp_path / "train.log"
        log.write_text("".join(letters), encoding="utf-8")
        try:
            runs = read_runs_of([log], {})
        except InvalidFile:
            continue
        json.loads(logs_json(runs, [None] * len(runs)))
        assert all(run.step_time is None or run.step_time > 0 for run in runs)


MORE: list[tuple[str, str, Callable[[int, float], str]]] = [
    (
        "NeMo 1",
        "NeMo",
        lambda step, clock: (
            f"Epoch 0:   1%|          | {step}/77225 [0:10:00<18:01:48,  2.00s/it, loss=3.1, v_num=, "
            f"reduced_train_loss=3.090, global_step={step - 1:.1f}, consumed_samples=1.63e+6]"
        ),
    ),
    (
        "NeMo 1 with times",
        "NeMo",
        lambda step, clock: (
            f"Epoch 0: :   3%|3         | {step}/301500 [1:42:42<55:37:46, v_num=0-56, reduced_train_loss=7.0, "
            f"global_step={step:.2e}, consumed_samples=6.3e+5, train_step_timing in s=2.000, val_loss=7.040]"
        ),
    ),
    (
        "nanochat",
        "nanoGPT",
        lambda step, clock: (
            f"step {step:05d}/21400 (0.05%) | loss: 9.123456 | lrm: 1.00 | dt: 2000.00ms | tok/sec: 262,144 | "
            "bf16_mfu: 47.50 | epoch: 1 | total time: 0.50m | eta: 5.0m"
        ),
    ),
    (
        "build-nanogpt",
        "nanoGPT",
        lambda step, clock: (
            f"step {step:4d} | loss: 9.123456 | lr 6.0000e-05 | norm: 27.0145 | dt: 2000.00ms | tok/sec: 143130.26"
        ),
    ),
    (
        "build-nanogpt with commas",
        "nanoGPT",
        lambda step, clock: f"step {step}, loss: 1.87, norm: 2.34, lr: 3.3e-04, time: 2000.00 ms, tokens/sec: 32355.9",
    ),
    (
        "build-nanogpt without colons",
        "nanoGPT",
        lambda step, clock: f"Step {step} | loss: 10.9 | lr:8.4e-07 | norm 15.3 | dt 2000.00ms | 1563963.40 tokens/sec",
    ),
    (
        "nanoGPT of rich",
        "nanoGPT",
        lambda step, clock: (
            f"iter \x1b[1;36m{step}\x1b[0m: loss \x1b[1m3.4\x1b[0m, time \x1b[1m2000.0\x1b[0m ms, mfu 7%"
        ),
    ),
    (
        "Kithara",
        "Hugging Face Trainer",
        lambda step, clock: (
            f"{{'step': {step}, 'loss': 1.5, 'step_time': 2.0, 'epoch': 1, 'train_steps_per_second': 0.5}}"
        ),
    ),
    (
        "nanoGPT of bits per character",
        "nanoGPT",
        lambda step, clock: f"iter {step}: loss 3.4259 BPC, time {2000.0 + 5000.0 * (step == 1):.2f}ms, mfu 7.05%",
    ),
    (
        "llm.c",
        "nanoGPT",
        lambda step, clock: (
            f"step {step:4d}/19560 | loss 10.956968 (+nanz)| norm 15.2986 (+nanz)| lr 1.71e-06 | "
            f"{2000.0 + 5000.0 * (step == 1):.2f} ms | 29.6% bf16 MFU | 115032 tok/s"
        ),
    ),
    (
        "modded-nanogpt",
        "nanoGPT",
        lambda step, clock: f"step:{step}/5100 train_loss:6.4148 train_time:{2000 * step}ms step_avg:146.14ms",
    ),
    (
        "litgpt, every micro-batch",
        "litgpt",
        lambda step, clock: "\n".join(
            f"Epoch 1 | iter {4 * step + part - 3} step {step - (part < 3)} | loss train: 1.9, val: n/a | "
            f"iter time: {800 if part == 3 else 400:.2f} ms{' (step)' * (part == 3)}"
            for part in range(4)
        ),
    ),
    (
        "ms-swift",
        "Hugging Face Trainer",
        lambda step, clock: (
            f"{{'loss': 0.485, 'grad_norm': 25.8, 'learning_rate': 1e-06, 'memory(GiB)': 69.19, "
            f"'train_speed(iter/s)': {step / clock:.6f}, 'epoch': 0.26, 'global_step/max_steps': '{step}/940', "
            "'percentage': '11.70%', 'elapsed_time': '16m 51s', 'remaining_time': '2h 7m 13s'}"
        ),
    ),
    (
        "ms-swift on Megatron",
        "Hugging Face Trainer",
        lambda step, clock: (
            f"{{'loss': '0.485', 'grad_norm': '25.8', 'global_step/max_steps': '{step}/940', "
            f"'elapsed_time': '16m 51s', 'memory(GiB)': '69.19', 'train_speed(s/it)': '{clock / step:.6f}'}}"
        ),
    ),
    (
        "LLaMA-Factory",
        "Hugging Face Trainer",
        lambda step, clock: (
            f'{{"current_steps": {10 * step}, "total_steps": 900, "loss": 0.5, "lr": 1e-05, "epoch": 0.1, '
            f'"percentage": 1.1, "elapsed_time": "{timedelta(seconds=int(10 * clock))}", "remaining_time": "0:30:00"}}'
        ),
    ),
]


@pytest.mark.parametrize(("name", "program", "line"), MORE, ids=[name for name, *_ in MORE])
def test_other_lines_of_a_program(name: str, program: str, line: Callable[[int, float], str], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    rows = [line(step, 7.0 + PACE * step) for step in range(1, 40)]  # the first step takes seven seconds more
    log.write_text(written.text(rows), encoding="utf-8")
    found = first(log)
    assert found["program"] == program
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.003)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"it (?P<step>\d+) \| .*?(?P<ms>[\d.]+) ms", "[gpu 0] it {step} | loss 2.0 | 2000.0 ms"),
        (r"batch took (?P<seconds>[\d.]+)s", "batch took 2.0s"),
        (r"step (?P<step>\d+): (?P<samples>[\d,]+) img/s", "step {step}: 32 img/s"),
    ],
)
def test_lines_of_any_loop_are_read_by_a_pattern(pattern: str, line: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(written.text([line.format(step=step) for step in range(40)]))
    found = first(log, "--pattern", pattern, "--set", "global_batch=64")
    assert found["step_time_s"] == pytest.approx(PACE)
    assert read(log).exit_code == 2


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("(", "is no regular expression"), (r"x (?P<time>\d)", "has a group 'time'"), (r"x \d", "names no time")],
)
def test_a_pattern_that_says_nothing_is_refused(pattern: str, says: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("x 1\n")
    done = read(log, "--pattern", pattern)
    assert (done.exit_code, says in done.stderr) == (2, True)


@pytest.mark.parametrize(("gpus", "agrees"), [(64, True), (32, False)])
def test_printed_tokens_are_held_to_the_batch_and_the_step(gpus: int, agrees: bool, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(written.text(written.maxtext(times())))
    warnings = first(log, "--set", f"gpus={gpus}")["warnings"]
    assert any("the log prints 4,0" in str(warning) for warning in warnings) != agrees
