"""Restarts, several runs in a file, ranks side by side, files of ranks and failures are told apart."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.diagnose.measured import read_runs_of
from tests.diagnose import written
from tests.diagnose.test_formats import PACE, first, times


def runs(*arguments: object) -> list[dict[str, Any]]:
    done = CliRunner().invoke(cli, ["read", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return written.runs_of(done.stdout)


def write(path: Path, lines: list[str]) -> Path:
    path.write_text(written.text(lines), encoding="utf-8")
    return path


BOILERPLATE = [f"starting process {number}" for number in range(40)]


def test_a_restart_is_one_run_without_the_slow_steps_after_it(tmp_path: Path) -> None:
    before, after = written.megatron(times(60)), written.megatron(times(60, seed=1), first=41)
    (found,) = runs(write(tmp_path / "a.log", [*before, *BOILERPLATE, *after]))
    assert found["restarts"] == 1
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.003)
    assert found["last_step"] == 100


def test_two_runs_in_one_file_are_two(tmp_path: Path) -> None:
    lines = [*written.megatron(times(40)), *BOILERPLATE, *written.megatron(times(40, pace=3.0), batch=128)]
    one, other = runs(write(tmp_path / "a.log", lines))
    assert one["step_time_s"] == pytest.approx(2.0, rel=0.005)
    assert other["step_time_s"] == pytest.approx(3.0, rel=0.005)
    assert [found["facts"]["global_batch"] for found in (one, other)] == ["64", "128"]


def test_two_runs_of_different_programs_in_one_file_are_two(tmp_path: Path) -> None:
    lines = [*written.torchtitan(times(40)), *written.megatron(times(40, pace=3.0))]
    found = runs(write(tmp_path / "a.log", lines))
    assert [run["program"] for run in found] == ["torchtitan", "Megatron-LM"]
    assert found[1]["step_time_s"] == pytest.approx(3.0, rel=0.005)


def test_megatron_on_deepspeed_is_one_run(tmp_path: Path) -> None:
    pairs = zip(written.deepspeed(times())[2::2], written.megatron(times())[3:], strict=False)
    (found,) = runs(write(tmp_path / "a.log", [line for pair in pairs for line in pair]))
    assert found["program"] == "Megatron-LM"
    engine = [line for line in written.engine(times(60)) if "skipped=" in line]
    pairs = zip(engine[2:], written.megatron(times())[3:], strict=False)
    lines = [*engine[:2], *(line for pair in pairs for line in pair), engine[-1]]  # the engine's begin and end
    (found,) = runs(write(tmp_path / "b.log", lines))
    assert found["program"] == "Megatron-LM"


@pytest.mark.parametrize("label", ["[rank{}]:", "{}: ", "[default{}]:"])
def test_ranks_side_by_side_are_one_run(label: str, tmp_path: Path) -> None:
    rows = written.torchtitan(times())
    lines = [label.format(rank) + row for row in rows for rank in (0, 3, 1, 2)]
    (found,) = runs(write(tmp_path / "a.log", lines))
    assert found["ranks"] == 4
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)
    assert 50 <= int(str(found["steps_used"])) <= 57


def test_ranks_without_labels_are_one_run_though_one_lags_behind(tmp_path: Path) -> None:
    rows = [row for row in written.megatron(times()) if "elapsed" in row]
    lines = [line for place in range(len(rows)) for line in (rows[place], rows[max(0, place - 1)])]
    (found,) = runs(write(tmp_path / "a.log", lines))
    assert found["restarts"] == 0
    assert int(str(found["steps_used"])) <= 57


def test_the_same_numbers_a_day_later_are_another_run(tmp_path: Path) -> None:
    lines = written.megatron(times(40))
    for day, count in (("2026-01-02", 1), ("2026-01-03", 2)):
        again = [line.replace("2026-01-02", day) for line in lines]
        assert len(runs(write(tmp_path / "a.log", lines), write(tmp_path / "b.log", again))) == count


def test_files_of_ranks_are_one_run_and_files_of_runs_are_several(tmp_path: Path) -> None:
    same = [write(tmp_path / f"rank{rank}.log", written.torchtitan(times())) for rank in range(3)]
    (found,) = runs(*same)
    assert found["files"] == [str(path) for path in same]
    other = write(tmp_path / "other.log", written.torchtitan(times(pace=2.4, seed=5)))
    assert len(runs(*same, other)) == 2


def test_the_most_memory_of_any_rank_counts(tmp_path: Path) -> None:
    big = [row.replace("max reserved: 45000.00", "max reserved: 60000.00") for row in written.megatron(times())]
    found = runs(write(tmp_path / "0.log", written.megatron(times())), write(tmp_path / "1.log", big))
    assert [run["memory_bytes"] for run in found] == [60000 * 2**20]


def test_out_of_memory_and_crashes_are_results(tmp_path: Path) -> None:
    oom = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has"
    (alone,) = runs(write(tmp_path / "a.log", ["Traceback (most recent call last):", oom]))
    assert (alone["status"], alone["step_time_s"]) == ("oom", None)
    (went_on,) = runs(write(tmp_path / "c.log", ["Traceback (most recent call last):", *written.megatron(times())]))
    assert went_on["status"] == "ok"
    assert any("steps follow" in str(warning) for warning in went_on["warnings"])
    (late,) = runs(write(tmp_path / "b.log", [*written.megatron(times()), "Traceback (most recent call last):"]))
    assert late["status"] == "crashed"
    assert late["step_time_s"] == pytest.approx(PACE, rel=0.005)


def test_stalls_trend_levels_and_nans_are_told(tmp_path: Path) -> None:
    drawn = times(200)
    for place in range(20, 200, 20):
        drawn[place] *= 3
    found = first(write(tmp_path / "a.log", written.megatron(drawn)))
    steady = dict(found["steady"])
    assert steady["stall_period"] == 20
    assert len(steady["stalls"]) == 9
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.005)
    rising = [seconds * (1 + 0.05 * place / 200) for place, seconds in enumerate(times(200))]
    assert dict(first(write(tmp_path / "b.log", written.nemo(rising)))["steady"])["trend"] > 0.02
    shifted = [seconds * (1.2 if place > 140 else 1.0) for place, seconds in enumerate(times(200))]
    moved = first(write(tmp_path / "c.log", written.nemo(shifted)))
    assert moved["step_time_s"] == pytest.approx(PACE, rel=0.005)
    assert len(dict(moved["steady"])["levels"]) == 2
    bad = [row.replace("grad norm: 1.234", "grad norm: nan") for row in written.megatron(times())]
    assert first(write(tmp_path / "d.log", bad))["nans"] == 60


def test_each_of_two_runs_has_a_heading_with_its_number(tmp_path: Path) -> None:
    logs = [write(tmp_path / f"{pace}.log", written.megatron(times(pace=pace), batch=8)) for pace in (2.0, 3.0)]
    done = CliRunner().invoke(cli, ["read", *map(str, logs)])
    assert all(f"Run {number} of 2" in done.stdout for number in (1, 2)), done.output


def test_screen_and_json_agree(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", written.megatron(times()))
    done = CliRunner().invoke(cli, ["read", str(log)])
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())  # lines are as long as the terminal is wide
    assert f"{float(str(first(log)['step_time_s'])):.3g} s per step" in said
    assert json.loads(CliRunner().invoke(cli, ["read", str(log), "--json"]).stdout)["schema_version"] == 1


def test_bars_of_ranks_one_after_the_other_are_one_run(tmp_path: Path) -> None:
    def bars(more: float) -> str:
        paces = [60.0 - 0.3 * step + more for step in range(1, 17)]
        return "".join(f"\r {6 * n}%|#  | {n}/16 [00:58<14:41, {pace:.2f}s/it]" for n, pace in enumerate(paces, 1))

    log = tmp_path / "out.log"
    log.write_text(
        "\n".join(bars(0.005 * rank) + "[INFO|trainer.py:1339] 2021-05-25 06:53:45,378 >> done" for rank in range(4))
        + "\n",
        encoding="utf-8",
    )
    (run,) = read_runs_of([log], {})
    assert (run.ranks, run.files) == (4, (str(log),))
    log.write_text(f"{bars(0.0)}\n{bars(3.0)}\n", encoding="utf-8")
    assert len(read_runs_of([log], {})) == 2


def test_a_first_step_alone_is_warm_up_and_no_pace(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(written.text(written.megatron([PACE])))
    found = first(log)
    assert (found["step_time_s"], found["status"]) == (None, "ok")
    assert any("the first step alone" in warning for warning in found["warnings"])


@pytest.mark.parametrize(("each", "steps"), [(0.3, 2000), (2.4, 300), (0.0614, 2000)])
def test_a_coarse_clock_tells_the_time_of_many_steps(each: float, steps: int, tmp_path: Path) -> None:
    """Of whole seconds in LLaMA-Factory's lines, or milliseconds in modded-nanogpt's, no single step can be told."""
    log = tmp_path / "run.log"
    if each < 0.1:
        text = "".join(
            f"step:{step}/{steps} train_time:{each * step * 1e3:.0f}ms step_avg:1.00ms\n"
            for step in range(1, steps + 1)
        )
    else:
        text = "".join(
            f'{{"current_steps": {step}, "total_steps": {steps}, "loss": 0.5, "elapsed_time": '
            f'"{timedelta(seconds=int(each * step))}", "remaining_time": "0:01:00"}}\n'
            for step in range(1, steps + 1)
        )
    log.write_text(text)
    (run,) = read_runs_of([log], {})
    assert run.step_time == pytest.approx(each, rel=0.01)


def bar(state: int, length: int, elapsed: float, pace: float = PACE) -> str:
    clock = f"{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}"
    return f" {100 * state // length}%|#   | {state}/{length} [{clock}<10:00,  {pace:.2f}s/it]"


def trained(first: int, last: int, length: int) -> list[str]:
    return [bar(step, length, PACE * step) for step in range(first, last + 1)]


@pytest.mark.parametrize("checked", [50, 100, 300])
def test_bars_of_evaluations_are_no_restarts_however_long(checked: int, tmp_path: Path) -> None:
    check = [bar(state, checked, 0.1 * state, 0.1) for state in range(checked + 1)]
    parts = [[*trained(at + 1, at + 20, 100), *check] for at in range(0, 100, 20)]
    (found,) = runs(write(tmp_path / "a.log", [line for part in parts for line in part]))
    assert (found["restarts"], found["last_step"]) == (0, 100)
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.01)


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_bars_of_ranks_that_lag_are_one_run(lag: int, tmp_path: Path) -> None:
    rows = trained(1, 60, 60)
    lines = [line for at in range(60) for line in (rows[at], rows[max(0, at - lag)])]
    (found,) = runs(write(tmp_path / "a.log", lines))
    assert (found["restarts"], found["last_step"]) == (0, 60)


def test_a_bar_that_is_drawn_once_more_after_an_evaluation_is_no_restart(tmp_path: Path) -> None:
    after = [bar(step, 100, PACE * step + 130) for step in range(50, 101)]
    found = first(
        write(tmp_path / "a.log", [*trained(1, 50, 100), "{'eval_loss': 0.6, 'eval_runtime': 128.4}", *after])
    )
    assert (found["restarts"], found["last_step"]) == (0, 100)
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.01)


def test_bars_whose_states_lie_far_apart_are_timed_by_their_clock(tmp_path: Path) -> None:
    """A notebook keeps a bar's states beside evaluations, of which the running mean knows the last few steps."""
    rows = [
        bar(step, 900, 32.0 * step / 100 + 7 * step / 100 - 7 * late, 0.28)
        for step in range(100, 901, 100)
        for late in (1, 0)
    ]
    lines = [line for row in rows for line in (row, "{'loss': 2.0}")]
    assert first(write(tmp_path / "a.log", lines))["step_time_s"] == pytest.approx(0.32, rel=0.01)


def test_a_bar_that_ends_before_the_last_evaluation_is_trainings(tmp_path: Path) -> None:
    check = [bar(state, 24, 0.9 * state, 0.9) for state in range(25)]
    halves = [[bar(at, 1000, 1.2 * at + 25 * part, 1.2) for part in (0, 1)] for at in (500, 1000)]
    lines = [line for before, after in halves for line in (before, *check[:-1], after, check[-1])]
    found = first(write(tmp_path / "a.log", ["{'loss': 2.0}", *lines]))
    assert (found["last_step"], found["step_time_s"]) == (1000, pytest.approx(1.2, rel=0.05))


def test_stages_without_a_loss_print_none(tmp_path: Path) -> None:
    rows = [row for row in written.torchtitan(times()) if "step:" in row]
    lines = [line for row in rows for line in (row, re.sub(r"loss: +[\d.]+", "loss: -16.0000", row))]
    found = first(write(tmp_path / "a.log", lines))
    assert found["loss"] > 0


def test_a_bar_whose_clock_begins_anew_is_a_restart(tmp_path: Path) -> None:
    again = [bar(step, 100, PACE * (step - 40) + 5) for step in range(41, 101)]
    (found,) = runs(write(tmp_path / "a.log", [*trained(1, 60, 100), *again]))
    assert (found["restarts"], found["last_step"]) == (1, 100)


def test_ranks_that_print_losses_of_their_own_are_one_run(tmp_path: Path) -> None:
    rows = [row for row in written.megatron(times()) if "elapsed" in row]
    lines = [row.replace("lm loss: 1", f"lm loss: {rank}") for row in rows for rank in (1, 2)]
    (found,) = runs(write(tmp_path / "a.log", lines))
    assert (found["restarts"], found["last_step"]) == (0, 60)


def test_validations_of_torchtitan_are_no_steps(tmp_path: Path) -> None:
    lines = []
    for row in written.torchtitan(times()):
        lines.append(row)
        if "step: 20" in row or "step: 40" in row:
            lines.append(row.replace("step:", "validate step:").replace("loss:  1", "loss:  2"))
    (found,) = runs(write(tmp_path / "a.log", lines))
    assert (found["restarts"], found["last_step"]) == (0, 60)


def test_the_slow_first_step_is_not_in_the_means_of_torchtune(tmp_path: Path) -> None:
    mean, weight, rows = 0.0, 0.0, []
    for step in range(1, 13):
        mean, weight = 0.7 * mean + 0.3 * (30.0 if step == 1 else PACE), 0.7 * weight + 0.3
        rows.append(f"1|{step}|Loss: 1.8:" + bar(step, 808, 28 + PACE * step, mean / weight))
    assert first(write(tmp_path / "a.log", rows))["step_time_s"] == pytest.approx(PACE, rel=0.02)


def test_the_mean_of_older_bars_is_told_by_their_clock(tmp_path: Path) -> None:
    """A run of March 2021 on 16 nodes: steps of 225, 210, 215 and 221 s."""
    means = zip((225, 435, 650, 871), (225.28, 220.73, 219.16, 219.64), strict=True)
    rows = [bar(step, 4, elapsed, mean) for step, (elapsed, mean) in enumerate(means, 1)]
    assert first(write(tmp_path / "a.log", [*rows, bar(4, 4, 872, 218.03)]))["step_time_s"] == pytest.approx(
        215, rel=0.01
    )


def test_evaluations_between_states_of_a_bar_are_no_steps(tmp_path: Path) -> None:
    """Every eleventh step stands behind an evaluation of 250 s, which the running mean has for twenty states."""
    mean, weight, clock, rows = 0.0, 0.0, 0.0, []
    for step in range(1, 441):
        each = 19.6 + 250 * (step % 11 == 0) + 0.1 * (step % 3)
        mean, weight, clock = 0.7 * mean + 0.3 * each, 0.7 * weight + 0.3, clock + each
        rows.append(bar(step, 440, int(clock), mean / weight))
    assert first(write(tmp_path / "a.log", rows))["step_time_s"] == pytest.approx(19.7, rel=0.01)


def test_a_line_of_many_steps_counts_as_many(tmp_path: Path) -> None:
    """Nine lines of one step with 64 ms, four of 2,000 with 64 to 75."""
    clocks = [(step, 64 * step) for step in range(1, 11)] + [(2000, 128919), (4000, 277104), (6000, 428170)]
    rows = [f"step:{step}/9000 train_loss:2.1 train_time:{clock}ms step_avg:1ms" for step, clock in clocks]
    assert first(write(tmp_path / "a.log", rows))["step_time_s"] == pytest.approx(0.074, rel=0.01)


@pytest.mark.parametrize(
    "lines",
    [
        ['  "global_step": 2178,', '      "train_runtime": 857600.0,', '      "train_steps_per_second": 0.003'],
        ["  Total optimization steps = 2,178", "{'train_runtime': 857600.0, 'train_steps_per_second': 0.003}"],
    ],
)
def test_a_rounded_rate_is_that_of_the_steps_and_the_runtime(lines: list[str], tmp_path: Path) -> None:
    assert first(write(tmp_path / "state.json", lines))["step_time_s"] == pytest.approx(393.76, rel=1e-4)


def test_two_processes_that_append_to_one_file_are_no_restarts(tmp_path: Path) -> None:
    lines = []
    for step in range(10, 400, 10):
        for late in (0, 130):
            clock = timedelta(seconds=int(PACE * step) + late)
            lines.append(
                f'{{"current_steps": {step}, "total_steps": 400, "loss": 0.{8500 + late}, "elapsed_time": "{clock}"}}'
            )
    (found,) = runs(write(tmp_path / "trainer_log.jsonl", lines))
    assert (found["restarts"], found["last_step"]) == (0, 390)
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.01)


def test_a_slow_step_before_an_excerpt_is_not_in_its_steps(tmp_path: Path) -> None:
    rows = [bar(281 + place, 873, 1536 + 4.25 * place, mean) for place, mean in enumerate((5.35, 5.02, 4.79, 4.62))]
    assert first(write(tmp_path / "a.log", rows))["step_time_s"] == pytest.approx(4.25, rel=0.01)


def test_steps_of_deepspeeds_pipeline_are_read_where_no_program_prints_its_own(tmp_path: Path) -> None:
    rows = [
        f"steps: {place + 1} loss: 10.7576 iter time (s): {each:.3f} samples/sec: 2.4"
        for place, each in enumerate(times())
    ]
    (found,) = runs(write(tmp_path / "node0.log", rows))
    assert found["program"] == "DeepSpeed's steps"
    assert found["step_time_s"] == pytest.approx(PACE, rel=0.006)


def test_sequences_that_mlperf_calls_steps_are_counted(tmp_path: Path) -> None:
    stats = '"key": "tracked_stats", "value": {{"reduced_train_loss": 7.7}}, "metadata": {{"step": {}.0}}'
    row = ':::MLLOG {{"time_ms": {}, ' + stats + "}}"
    size = ':::MLLOG {"time_ms": 0, "key": "global_batch_size", "value": 896, "metadata": {}}'
    rows = [size, *(row.format(1000 + 19_300 * place, 896 * place) for place in range(1, 31))]
    (found,) = runs(write(tmp_path / "result_1.txt", rows))
    assert (found["program"], found["last_step"]) == ("MLPerf", 30)
    assert found["step_time_s"] == pytest.approx(19.3)


def test_a_line_after_missing_ones_counts_as_any(tmp_path: Path) -> None:
    """An excerpt: eight lines of each ten steps, and one of ten thousand steps later."""
    rows = [(10 * at, 2000.0) for at in range(1, 9)] + [(10080, 2400.0)]
    line = " iteration {0:8d}/  90000 | elapsed time per iteration (ms): {1} | lm loss: 2.0 |"
    assert first(write(tmp_path / "a.log", [line.format(*row) for row in rows]))["step_time_s"] == pytest.approx(2.0)
