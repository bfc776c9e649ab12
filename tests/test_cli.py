import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from optimizer.answer.answer import Answer
from optimizer.base.errors import TimeLimit
from optimizer.base.units import seconds
from optimizer.cli import cli
from optimizer.commands.request import Request, job_of

Install = Callable[[Answer | BaseException], list[dict[str, Any]]]
GPT3 = ("--model", "gpt3", "--gpus", "1024")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize")


def complaint(*arguments: str, code: int = 2) -> str:
    """What stderr says; stdout stays empty and nothing looks like a traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def test_the_report_goes_to_stdout_alone(with_answer: Install, gpt3_answer: Answer) -> None:
    with_answer(gpt3_answer)
    result = run(*GPT3)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "GPT-3 175B on 1,024 × h100 — MFU 48.2% (" in result.stdout
    assert "at 90%), 5 s per step" in result.stdout
    least = seconds(gpt3_answer.run_bound or 0.0)
    assert f"no plan of 12,345 is faster in this model (bound 5 s, run {least})" in result.stdout
    assert "Proven optimal" in run(*GPT3, "--explain").stdout


def test_options_reach_the_job_and_the_planner(with_answer: Install, gpt3_answer: Answer) -> None:
    asked = with_answer(gpt3_answer)
    options = """
        --seq-len 4096 --global-batch 512 --dtype fp8 --bubble-ceiling 12.5% --hbm-limit 75GiB --max-tp 4
        --max-micro-batch 4 --max-vpp 3 --min-cp-tokens 1024 --vocab-padding 5%
        --fix pp=8 --fix recompute=full --fix sp=off --fix dp=2..8
        --top 3 --trials 7 --time-limit 2.5 --seed 11
    """
    assert run(*GPT3, *options.split()).exit_code == 0
    job = asked[0]["job"]
    assert (job.seq_len, job.global_batch, job.dtype) == (4096, 512, "fp8")
    assert job.limits.bubble == 0.125
    assert job.limits.hbm == 75 * 2**30
    assert job.limits.max_tp == 4
    assert job.limits.ranges == {"dp": (2, 8)}
    assert (job.limits.max_micro_batch, job.limits.max_vpp, job.limits.min_cp_tokens) == (4, 3, 1024)
    assert job.limits.vocab_padding == 0.05
    assert job.limits.fixed == {"pp": 8, "recompute": "full", "sequence_parallel": False}
    assert {name: asked[0][name] for name in ("top", "trials", "time_limit", "seed")} == {
        "top": 3,
        "trials": 7,
        "time_limit": 2.5,
        "seed": 11,
    }


def test_json_is_the_contract_and_says_what_was_assumed(with_answer: Install, gpt3_answer: Answer) -> None:
    with_answer(gpt3_answer)
    answer = json.loads(run(*GPT3, "--json").stdout)
    assert answer["schema_version"] == 1
    assert answer["status"] == "optimal"
    assert (answer["plan"]["tp"], answer["plan"]["pp"], answer["plan"]["dp"]) == (8, 8, 16)
    assert sum(answer["estimate"]["time_s"].values()) == pytest.approx(answer["estimate"]["step_time_s"])
    assert answer["certificate"]["proven"] is True
    assert answer["job"]["global_batch"] == 1536
    assert any("arXiv 2104.04473" in line for line in answer["assumptions"])


@pytest.mark.parametrize(
    ("model", "seq_len", "batch"),
    [("gpt3", 2048, 1536), ("llama2-70b", 4096, 1024), ("llama3.1-405b", 8192, 2048), ("llama3-8b", 8192, 512)],
)
def test_defaults_are_published_ones_or_four_mebitokens(
    with_answer: Install, gpt3_answer: Answer, model: str, seq_len: int, batch: int
) -> None:
    asked = with_answer(gpt3_answer)
    run("--model", model, "--gpus", "64")
    assert (asked[0]["job"].seq_len, asked[0]["job"].global_batch) == (seq_len, batch)


@pytest.mark.parametrize(
    ("device", "cluster"), [("h100", "dgx-h100"), ("a100-80", "dgx-a100-80"), ("gb200", "gb200-nvl72")]
)
def test_a_device_stands_for_its_default_cluster(
    with_answer: Install, gpt3_answer: Answer, device: str, cluster: str
) -> None:
    asked = with_answer(gpt3_answer)
    run(*GPT3, "--device", device)
    assert asked[0]["job"].cluster.name == cluster


def test_infeasible_exits_3_with_rule_numbers_and_relaxation(with_answer: Install, infeasible_answer: Answer) -> None:
    with_answer(infeasible_answer)
    result = run(*GPT3)
    assert result.exit_code == 3
    assert "of full training with fp32 Adam by megatron-core satisfies every rule (proven)" in " ".join(
        result.stdout.split()
    )
    for part in ("memory", "410 GB of 80 GB", "48 GPUs instead of 8"):
        assert part in result.stdout
    assert json.loads(run(*GPT3, "--json").stdout)["conflict"][0]["rule"] == "memory"


def test_a_plan_without_a_proof_exits_0(with_answer: Install, gpt3_answer: Answer) -> None:
    with_answer(replace(gpt3_answer, status="feasible"))
    assert run(*GPT3).exit_code == 0


def test_no_answer_in_time_exits_4(with_answer: Install, infeasible_answer: Answer) -> None:
    with_answer(Answer(status="unknown", job=infeasible_answer.job))
    assert run(*GPT3).exit_code == 4
    with_answer(TimeLimit("the time limit of 1 s passed before any plan was found"))
    assert "time limit of 1 s" in complaint(*GPT3, code=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "gpt3"), "missing --gpus, as in: optimize --model gpt3 --gpus 1024"),
        (("--model", "gtp3", "--gpus", "8"), "Did you mean gpt3"),
        (("--model", "./nothing.toml", "--gpus", "8"), "nothing.toml"),
        (("llama3-70b", "--gpus", "64"), "optimize --model llama3-70b --gpus 64"),
        (("--model", "gpt3", "--gpus", "8", "--fix", "offload=0"), "offload is a knob"),
        (("--model", "gpt3", "--gpus", "-8"), "-8 is not a whole number from 1 to"),
        (("--model", "gpt3", "--gpus", "many"), "'many' is not a whole number"),
        ((*GPT3, "--device", "h10"), "unknown device 'h10'"),
        ((*GPT3, "--device", "./mine.toml"), "a device of your own needs a cluster around it"),
        ((*GPT3, "--cluster", "dgx-a100-80", "--device", "h100"), "is built from a100-80, but --device says h100"),
        ((*GPT3, "--stack", "megatron"), "unknown stack 'megatron'"),
        ((*GPT3, "--device", "v100-32", "--dtype", "bf16"), "use --dtype fp16"),
        ((*GPT3, "--bubble-ceiling", "10"), "did you mean 10%?"),
        ((*GPT3, "--bubble-ceiling", "ten"), "'ten' is not a share"),
        ((*GPT3, "--hbm-limit", "80"), "'80' has no unit; write 80GB or 80GiB"),
        ((*GPT3, "--hbm-limit", "80 GB/s"), "expected a quantity in [B]"),
        ((*GPT3, "--fix", "tp"), "not of the form variable=value"),
        ((*GPT3, "--fix", "tq=8"), "unknown plan variable 'tq'. Did you mean tp"),
        ((*GPT3, "--fix", "tp=0"), "tp must be an integer >= 1, but got '0'"),
        ((*GPT3, "--fix", "pp=2..x"), "pp must be an integer >= 1, but got 'x'"),
        ((*GPT3, "--fix", "zero=4"), "zero_stage must be an integer from 0 to 3"),
        ((*GPT3, "--fix", "recompute=some"), "recompute must be one of none, selective, full"),
        ((*GPT3, "--fix", "tp=8", "--fix", "tp=4"), "--fix tp=8 contradicts --fix tp=4"),
        ((*GPT3, "--seq-length", "2048"), "No such option"),
        (("preset",), "No such command"),
        (("plan", "--model", "gpt3"), "To plan needs none: optimize --model gpt3"),
        (("batch", "shw", "study.toml"), "No such command or file 'shw'. Did you mean 'show'?"),
        (("presets", "show", "h10"), "Did you mean"),
        ((*GPT3, "--device", "h1000"), "`optimize presets` lists every device."),
        ((*GPT3, "--cluster", "dgx-h1000"), "lists every cluster; a path to a file works too."),
    ],
)
def test_bad_input_is_one_clear_message(arguments: tuple[str, ...], message: str) -> None:
    assert message.lower() in complaint(*arguments).lower()


def test_an_unreadable_file_is_one_clear_message(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "model.toml" in complaint("--model", str(path), "--gpus", "8")


def test_a_bug_asks_for_a_report_and_says_how_to_see_the_traceback(
    with_answer: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPTIMIZE_DEBUG", raising=False)
    with_answer(ZeroDivisionError("division by zero"))
    message = complaint(*GPT3, code=1)
    assert "internal error: ZeroDivisionError: division by zero" in message
    assert "OPTIMIZE_DEBUG=1" in message
    monkeypatch.setenv("OPTIMIZE_DEBUG", "1")
    assert isinstance(run(*GPT3).exception, ZeroDivisionError)


def test_interruption_is_quiet(with_answer: Install) -> None:
    with_answer(KeyboardInterrupt())
    assert complaint(*GPT3, code=130) == ""


def test_exports_are_written_once(with_answer: Install, gpt3_answer: Answer, tmp_path: Path) -> None:
    with_answer(gpt3_answer)
    folder = tmp_path / "launch"
    result = run(*GPT3, "--export", str(folder))
    assert result.exit_code == 0
    assert "megatron.sbatch" in result.stderr
    assert "--tensor-model-parallel-size 8" in (folder / "megatron.args").read_text()
    assert "add --force to overwrite" in complaint(*GPT3, "--export", str(folder))
    assert run(*GPT3, "--export", str(folder), "--force").exit_code == 0


def test_presets_lists_every_kind() -> None:
    names = json.loads(run("presets", "--json").stdout)
    assert list(names) == ["models", "devices", "links", "clusters", "stacks"]
    assert {"gpt3", "llama3-8b", "llama3.1-405b", "deepseek-v3", "mixtral-8x22b"} <= set(names["models"])
    assert {"a100-80", "h100", "h800", "b200"} <= set(names["devices"])
    assert {"dgx-h100", "gb200-nvl72"} <= set(names["clusters"])
    assert "megatron-core" in names["stacks"]
    listing = run("presets")
    assert listing.exit_code == 0
    assert "llama3.1-405b" in listing.stdout


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("h100", ("device h100", "989.5 TFLOP/s", "dense", "datasheet")),
        ("nvlink4", ("link nvlink4", "450 GB/s", "one way")),
        ("dgx-h100", ("cluster dgx-h100", "scale_up.size")),
        ("gpt3", ("model gpt3", "layers", "96")),
        ("megatron-core", ("stack megatron-core", "hbm_efficiency")),
    ],
)
def test_presets_show_prints_numbers_with_their_parents(name: str, parts: tuple[str, ...]) -> None:
    result = run("presets", "show", name)
    assert result.exit_code == 0
    for part in parts:
        assert part in result.stdout
    numbers = json.loads(run("presets", "show", name, "--json").stdout)["numbers"]
    assert all(number["source"] for number in numbers)


def test_a_closed_pipe_is_quiet() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-m", "optimizer", "presets", "show", "h100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_set_changes_the_job_and_an_answer_is_checked_with_it(tmp_path: Path) -> None:
    asked = ("--model", "llama3-405b", "--gpus", "16", "--set", "layers=4", "--trials", "0", "--json")
    result = run(*asked)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["job"]["settings"] == ["model.layers=4"]
    file = tmp_path / "answer.json"
    file.write_text(result.stdout, encoding="utf-8")
    assert run("check", str(file)).exit_code == 0
    file.write_text(result.stdout.replace("model.layers=4", "model.layers=5"), encoding="utf-8")
    assert run("check", str(file)).exit_code != 0


def test_a_field_that_does_not_exist_is_told() -> None:
    assert "no field of a model, cluster or stack is called so; did you mean" in complaint(*GPT3, "--set", "layer=4")


def test_routing_is_an_input_that_slows_mixtures_and_widens_their_interval() -> None:
    steps, kinds = {}, {}
    for how in ("forced", "1.3", "trained", "fresh"):
        options = [
            "--model",
            "mixtral-8x7b",
            "--gpus",
            "16",
            "--trials",
            "0",
            "--fix",
            "layout=even",
            "--fix",
            "ep=8",
            "--json",
        ]
        estimate = json.loads(run(*options, "--fix", "ep=8", "--routing", how).stdout)["estimate"]
        steps[how] = estimate["step_time_s"]
        low, high = estimate["interval_s"]
        kinds[how] = high / low
    assert steps["forced"] < steps["1.3"] < steps["trained"] < steps["fresh"]
    assert kinds["trained"] > kinds["forced"]
    assert "--routing must be one of forced, trained, fresh or" in complaint(*GPT3, "--routing", "odd")


def test_routing_says_that_a_dense_model_has_none() -> None:
    asked = Request(model="llama3-8b", gpus=8, limits={})
    (job, assumed), (plain, _) = job_of(replace(asked, routing="1.3")), job_of(asked)
    assert job == plain
    assert "nothing of --routing 1.3: llama3-8b has no experts to route to" in assumed
