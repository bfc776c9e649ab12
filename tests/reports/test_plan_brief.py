"""The short answer: at most twenty-five lines of eighty columns, whatever is asked."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_stack
from optimizer.cli import cli
from optimizer.frameworks.export_folder import exported
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.step import interval as intervals
from optimizer.objectives.step.interval import SIDES
from optimizer.reports.plan_brief import warnings
from optimizer.reports.plan_report import plan_report
from optimizer.reports.render.screen import screen_text
from tests.thorough import THOROUGH, sampled

LINES, WIDTH = 25, 80
ASKED = """\
--model llama3-8b --gpus 1
--model llama3-70b --gpus 4
--model llama3-8b --gpus 64 --target deepspeed
--model llama3-8b --gpus 64 --target megatron-bridge
--model llama3-8b --gpus 64 --minimize cost --robust
--model llama3-8b --gpus 64 --within 5%
--model llama3-8b --gpus 64 --oom-risk 50%
--model llama3-8b --gpus 64 --top 0
--model llama3-8b --gpus 64 --seq-len 131072 --global-batch 64
--model llama3-8b --gpus 8192
--model llama3-70b --gpus 256 --device tpu-v5p
--model llama3-70b --gpus 256 --device mi300x
--model llama3-70b --gpus 512 --dtype bf16,fp8
--model llama3.1-405b --gpus 131072 --global-batch 16384
--model gpt3 --gpus 512 --device v100-32
--model mixtral-8x7b --gpus at-most:100 --device mi300x --minimize energy
--model llama3-8b --gpus 7 --fix tp=2 --max-vpp 1 --bubble-ceiling 1%
""".splitlines()
# Answers that take seconds.
LONG = """\
--model llama3-8b --gpus 8
--model llama3-8b --gpus 64 --robust
--model llama3-8b --gpus 64 --target any --robust --dtype any
--model llama3-8b --gpus 64 --target torchtitan
--model llama3-8b --gpus 64 --target accelerate
--model llama3-8b --gpus 64 --minimize energy
--model llama3-8b --gpus 64 --prefer fast
--model llama3-70b --gpus 256
--model llama3-70b --gpus 256 --device a100-80
--model llama3-70b --gpus 500
--model llama3-70b --gpus at-most:500 --flex batch=5%
--model llama3-70b --gpus 512
--model llama3-70b --gpus 512 --fix layout=even
--model llama3-70b --gpus 512 --fix tp=8 --fix pp=8 --robust
--model llama3-70b --gpus 64 --device b200 --dtype any
--model llama3.1-405b --gpus 16384 --global-batch 2048
--model llama3.1-405b --gpus 8
--model gpt3 --gpus 1024
--model gpt3 --gpus 131072
--model gpt3 --gpus 1000 --minimize energy
--model mixtral-8x7b --gpus 64
--model deepseek-v3 --gpus 1024 --dtype fp8
--model deepseek-v3 --gpus 2048 --device h800 --global-batch 15360
--model qwen3-235b-a22b --gpus 256 --device tpu-v5p --robust
--model kimi-k2 --gpus 1024 --dtype any --target any --minimize cost --robust
--model gpt-oss-120b --gpus 72 --device gb200 --oom-risk 10%
""".splitlines()


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("asked", [*sampled(ASKED, 2), *(LONG if THOROUGH else ())])
def test_no_answer_is_longer_than_twenty_five_lines(asked: str) -> None:
    done = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(cli, asked.split())
    assert done.exit_code in (0, 3), done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= LINES, done.stdout
    assert max(map(len, lines)) <= WIDTH
    if done.exit_code == 0:
        for part in ("fits with", "plan ", "time ", "binds", "proof", "in this model", "next", "--explain"):
            assert part in done.stdout, part


def text(answer: Answer, assumed: tuple[str, ...] = ()) -> str:
    return screen_text(plan_report(answer, assumed, whole=False), width=WIDTH, colour=False)


def test_the_head_names_what_was_guessed_and_the_chance(gpt3_answer: Answer) -> None:
    guesses = ("cluster dgx-h100 (--cluster)", "tokens are routed evenly (--routing)")
    report = text(gpt3_answer, guesses)
    assert "fits with >99.9%; guessed: cluster, routing" in report
    assert "guessed  tokens are routed evenly (--routing)" in report
    assert "the MFU exceeds anything measured" in report.split("plan ")[0]  # the flag stands in the head


def test_a_plan_that_may_not_fit_says_so_in_the_first_line(gpt3_answer: Answer) -> None:
    assert gpt3_answer.estimate is not None
    tight = replace(gpt3_answer, estimate=replace(gpt3_answer.estimate, reserved=gpt3_answer.job.usable_memory))
    assert "— fits with 50% only, MFU 48.2%" in text(tight).splitlines()[0]
    assert "only" not in text(gpt3_answer).splitlines()[0]


def test_the_next_line_names_the_risk_without_which_no_file_is_written(gpt3_answer: Answer) -> None:
    assert gpt3_answer.estimate is not None
    tight = replace(gpt3_answer, estimate=replace(gpt3_answer.estimate, reserved=gpt3_answer.job.usable_memory))
    assert "--oom-risk 50% --export DIR, --why-not" in text(tight)
    with pytest.raises(InputError, match="accept that risk with --oom-risk 50%"):
        exported(tight)


def test_what_is_doubtful_is_warned_of(gpt3_answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpt3_answer.estimate is not None
    assert warnings(gpt3_answer) == []
    # half-widths of ln 1.5 on either side: a factor of 2.25
    monkeypatch.setattr(intervals, "error_of", lambda *_: (0.0, 0.405465 / SIDES))
    assert warnings(gpt3_answer) == ["the step is known within a factor of 2.2 only"]
    monkeypatch.undo()
    assert warnings(replace(gpt3_answer, job=replace(gpt3_answer.job, gpus=1020))) == [
        "4 of the 1,024 GPUs of these nodes idle"
    ]
    slow = replace(gpt3_answer.estimate, time={"gemm": 3.0, "overhead": 1.0, "dp_communication": 1.0})
    assert warnings(replace(gpt3_answer, estimate=slow)) == [
        "a small batch for 1,024 GPUs: 40% of the step does not grow with it"
    ]
    [late] = warnings(replace(gpt3_answer, job=replace(gpt3_answer.job, global_batch=2 * 1536)))
    assert late.startswith(
        "not known whether data keep up: 78,600 tokens/s a rank (shared disks gave one 36,400: 10.8 s"
    )


def test_a_safer_runner_up_and_uneven_layers_have_a_line(gpt3_answer: Answer) -> None:
    assert "safer" not in text(gpt3_answer)
    assert "layers" not in text(gpt3_answer)
    uneven = replace(gpt3_answer, plan=Plan(pp=4, dp=256, layers_per_stage=(23, 25, 25, 23)), knobs=Knobs(offload=0.4))
    report = text(uneven)
    assert "layers  23 2×25 23" in report
    assert "runner-up 2: +2.0% slower without optimizer on the host and uneven" in report


def test_what_lies_on_the_host_is_said(gpt3_answer: Answer) -> None:
    hosted = replace(gpt3_answer, knobs=replace(gpt3_answer.knobs, offload=0.62))
    assert "62% of the optimizer state lies in its memory" in text(hosted)
    assert "optimizer state lies in its memory" not in text(gpt3_answer)


def test_what_has_no_launch_files_is_not_sent_to_export_them(gpt3_answer: Answer) -> None:
    assert "--export DIR, `optimize trial`, --why-not" in text(gpt3_answer)
    elsewhere = replace(gpt3_answer, job=replace(gpt3_answer.job, stack=load_stack("oneflow")))
    assert "--target NAME --export DIR, --why-not" in text(elsewhere)


def test_all_of_it_is_in_the_whole_report() -> None:
    asked = ["--model", "llama3-8b", "--gpus", "8"]
    short, whole = (CliRunner().invoke(cli, [*asked, *more]).stdout for more in ((), ("--explain",)))
    for part in ("MFU counts", "bracket", "in words", "knobs", "What binds", "Proof", "Search: ", "Assumed", "source:"):
        assert part in whole, part
        assert part not in short, part
    assert short.splitlines()[:3] == whole.splitlines()[:3]
