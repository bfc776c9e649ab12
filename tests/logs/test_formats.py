"""Every program's log is known by itself and read to its steady step time, however it is dressed up."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from optimizer.cli import cli
from tests.logs import written

PACE = 2.0
DAMAGE = ("plain", "crlf", "utf-16", "gzip", "coloured", "srun", "cut", "noise")


def times(count: int = 60, pace: float = PACE, seed: int = 0) -> list[float]:
    """Steps around a pace, the first ones slow as compilation makes them."""
    drawn = pace * np.exp(0.004 * np.random.default_rng(seed).standard_normal(count))
    drawn[:3] *= [9.0, 2.5, 1.3]
    return [float(value) for value in drawn]


def read(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["read", *map(str, arguments)])


def first(*arguments: object) -> dict[str, object]:
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
    if program not in ("NeMo 2", "Hugging Face Trainer", "MaxText"):
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
    elif damage == "coloured":
        data = written.text([f"\x1b[1;32m{line}\x1b[0m" for line in lines]).encode()
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
    for extra in range(40):
        log = tmp_path / "train.log"
        log.write_bytes(data[: int(share * len(data)) + extra])
        assert first(log)["step_time_s"] == pytest.approx(PACE, rel=0.01)


def test_a_cut_gzip_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    log = tmp_path / "train.log.gz"
    data = gzip.compress(written.text(written.megatron(times(400))).encode())
    log.write_bytes(data[: len(data) // 2])
    found = first(log)
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)
    assert any("cut short" in str(warning) for warning in found["warnings"])  # type: ignore[attr-defined]


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
    assert any("--set" in str(warning) for warning in found["warnings"])  # type: ignore[attr-defined]
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
    assert any("steady steps" in str(warning) for warning in found["warnings"])  # type: ignore[attr-defined]
