"""What commands make of what is asked, with fakes around them: what is searched, printed, hinted at and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.base.errors import Infeasible, InputError
from optimizer.base.units import DAY
from optimizer.catalog import load_cluster, load_model
from optimizer.catalog.offers import OLD, PriceBook, quote
from optimizer.cli import cli
from optimizer.commands import defaults, output, request
from optimizer.commands.buy import campaign
from optimizer.commands.launch import improve, trial
from optimizer.commands.launch import read as launch_read
from optimizer.commands.plan import answering, command
from optimizer.commands.study import batch, calibrate, communication, fits, pinned
from optimizer.commands.study.scaling import measured_mfu
from optimizer.job.method import WAYS
from optimizer.job.plan import Knobs, Plan
from optimizer.studies.best_use import Use
from optimizer.studies.fits import LENGTHS
from optimizer.studies.strategies import STRATEGIES
from optimizer.sweep.expansion import Combination
from tests.search.jobs import small_job


@pytest.mark.parametrize(
    ("lengths", "seq_len", "told"),
    [
        ("", 512, ["nothing of --packing on: documents are as long as a sequence (--lengths)"]),
        ("p0:100,p100:1100", 1100, []),
        ("512", 512, []),
        ("p0:9,p50:600,p100:1100", 600, ["the 50.0% of documents that are longer than a sequence are cut (--lengths)"]),
    ],
)
def test_documents_that_are_cut_are_told(lengths: str, seq_len: int, told: list[str]) -> None:
    asked: Any = SimpleNamespace(packing="on")
    assert request._cut(lengths, seq_len, asked) == told


@pytest.mark.parametrize(
    ("samples", "epochs", "lengths", "loss", "tokens"),
    [
        (1000.0, None, "", "", 1000 * 4096),
        (1000.0, 3.0, "", "", 3 * 1000 * 4096),
        (1000.0, 3.0, "512", "", 3 * 1000 * 512),
        (1000.0, None, "", "dpo", 2 * 1000 * 4096),  # a sample is a pair
        (None, None, "", "", 7e9),
    ],
)
def test_a_run_of_so_many_samples_has_the_tokens_of_its_documents(
    samples: float | None,
    epochs: float | None,
    lengths: str,
    loss: str,
    tokens: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optimizer.purchase.price.run_cost.whole_run", lambda job, tokens: tokens)
    job = replace(small_job(), lengths=lengths, **({"train": "full", "loss": loss} if loss else {}))
    assert command._budget(job, 7e9, samples, epochs) == tokens
    assert command._budget(job, None, None, None) is None


@pytest.mark.parametrize(
    ("model", "seq_len", "gpus", "tuned", "batch", "why"),
    [
        ("llama3-8b", 8192, 8, 16, 128, "16 for each GPU, as torchtune's recipes of one GPU have it"),
        # 1536 sequences of 2048 tokens are 3Mi; 125 is the odd factor of 1000, and 12 times it the nearest.
        ("gpt3", 2048, 1024, 0, 1536, "the 3Mi tokens of arXiv 2104.04473, table 1"),
        (
            "gpt3",
            2048,
            1000,
            0,
            1500,
            "the 3Mi tokens of arXiv 2104.04473, table 1 being 1,536, which 1,000 GPUs cannot share",
        ),
        ("qwen3-8b", 4096, 8, 0, 1024, "about 4Mi tokens per step"),
        ("qwen3-8b", 4096, 4096, 0, 1024, "about 4Mi tokens per step"),
        ("qwen3-8b", 4096, 8192, 0, 2048, "1,024 tokens for each of 8,192 GPUs, as the largest published runs took"),
        ("qwen3-8b", 2**23, 8, 0, 1, "about 4Mi tokens per step"),
        ("own", 2048, 8, 0, 2048, "about 4Mi tokens per step"),
    ],
)
def test_a_step_has_the_tokens_that_runs_took(
    model: str, seq_len: int, gpus: int, tuned: int, batch: int, why: str
) -> None:
    """A file's own model has no published run, even under the name of a preset."""
    known = load_model("gpt3" if model == "own" else model)
    if model == "own":
        known = replace(known, provenance=replace(known.provenance, note="mine"))
    assumed: list[str] = []
    assert request._batch(known, seq_len, gpus, assumed, tuned) == batch
    assert assumed == [f"global batch of {batch:,} sequences, {why} (--global-batch)"]


ASKED: dict[str, Any] = {
    "study": "",
    "flex": None,
    "within": None,
    "seed": 7,
    "time_limit": 60.0,
    "trials": 5,
    "gpus": (8, False),
    "dtype": "",
    "top": 3,
}


@pytest.mark.parametrize(
    ("changes", "plan", "steps"),
    [
        ({}, True, []),
        ({}, False, ["switched"]),
        ({"time_limit": None}, True, ["hinted", "faster"]),
        ({"time_limit": None}, False, ["switched", "hinted", "faster"]),
        ({"time_limit": None, "gpus": (8, True)}, False, ["best use"]),
        ({"time_limit": None, "flex": 0.1}, True, ["best use"]),
    ],
)
def test_switches_and_counts_are_tried_where_nothing_was_left_open(
    changes: dict[str, Any], plan: bool, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that lets a plan fit where none does, hints without a limit of time, neither where counts may move."""
    job, taken = small_job(), []
    found = Answer(status="optimal", job=job, plan=Plan(dp=8) if plan else None)

    def step(name: str, result: Any) -> Any:
        taken.append(name)
        return result

    monkeypatch.setattr(answering, "request_of", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(answering, "job_of", lambda _: (job, ("an assumption",)))
    monkeypatch.setattr(answering, "_best_use", lambda *_: step("best use", (job, ("a better use",), None)))
    monkeypatch.setattr(answering, "_switched", lambda answer, assumed, *_: step("switched", (answer, assumed)))
    monkeypatch.setattr(answering, "_hinted", lambda answer, _: step("hinted", answer))
    monkeypatch.setattr(answering, "_faster_switched", lambda answer: step("faster", answer))
    monkeypatch.setattr("optimizer.search.plan.precision.best_format", lambda *_: found)
    answer = answering.answered(ASKED | changes)
    assert taken == steps
    assert answer.assumptions == (("a better use",) if "best use" in steps else ("an assumption",))


@pytest.mark.parametrize(
    ("changes", "top", "within", "limit", "formats"),
    [
        ({}, 3, inf, 60.0, ("bf16",)),
        ({"within": 0.02}, answering.EVERY_STRUCTURE, 0.02, 60.0, ("bf16",)),
        ({"time_limit": None}, 3, inf, None, ("bf16",)),
        ({"dtype": "bf16,fp8"}, 3, inf, 30.0, ("bf16", "fp8")),
    ],
)
def test_formats_share_the_time_of_a_search(
    changes: dict[str, Any],
    top: int,
    within: float,
    limit: float | None,
    formats: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, asked = small_job(), {}

    def best_format(_: object, formats: tuple[str, ...], search: Any) -> Answer:
        asked.update(search.keywords, formats=formats)
        return Answer(status="optimal", job=job, plan=Plan(dp=8))

    monkeypatch.setattr(answering, "request_of", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(answering, "job_of", lambda _: (job, ()))
    for name in ("_hinted", "_faster_switched"):
        monkeypatch.setattr(answering, name, lambda answer, *_: answer)
    monkeypatch.setattr("optimizer.search.plan.precision.best_format", best_format)
    answering.answered(ASKED | changes)
    assert asked == {
        "top": top,
        "within": within,
        "trials": 5,
        "time_limit": limit,
        "seed": 7,
        "study": None,
        "known": None,
        "formats": formats,
    }


@pytest.mark.parametrize(
    ("gpus", "worth", "tried", "told"),
    [
        (72, 1.02, 1, True),  # 8 x 9
        (72, 1.01, 1, False),
        (1000, 9.0, 2, True),  # of 960, 896 and 768 the first two
        (56, 9.0, 0, False),  # 8 x 7
        (16, 9.0, 0, False),
        (18, 9.0, 1, True),  # 2 x 9, two nodes and two more
        (9, 9.0, 0, False),  # a node and one
        (15, 9.0, 0, False),
    ],
)
def test_fewer_gpus_are_hinted_at_where_the_count_divides_badly(
    gpus: int, worth: float, tried: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its odd part is 9 at the least, of two nodes; where they are worth more than a hundredth more."""
    job = small_job(gpus)
    asked: list[Any] = []

    def best_use(jobs: list[Any], *, beyond: float) -> Any:
        assert beyond == pytest.approx(1.01 * job.tokens / 2.0)
        asked.extend(jobs)
        return SimpleNamespace(tried=[Use(job=other, worth=worth * job.tokens / 2.0) for other in jobs])

    monkeypatch.setattr("optimizer.search.plan.alternatives.value_of", lambda *_: 2.0)
    monkeypatch.setattr("optimizer.studies.best_use.best_use", best_use)
    monkeypatch.setattr(answering, "_on", lambda request, count: replace(job, gpus=count))
    estimate: Any = SimpleNamespace()
    found = Answer(status="optimal", job=job, plan=Plan(dp=gpus), estimate=estimate, flags=("a flag",))
    usual: Any = request.Request(model="gpt3", gpus=gpus, limits={})
    flags = answering._hinted(found, usual).flags
    assert len(asked) == tried
    assert all(other.gpus < gpus for other in asked)
    assert flags[0] == "a flag"
    assert [flag.endswith(f"(--gpus at-most:{gpus})") for flag in flags[1:]] == [True] * told


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--like", "x.sh"], "give --export DIR too"),
        (["--epochs", "3"], "a run is --tokens 300M, or --samples 50k"),
        (["--tokens", "1M", "--samples", "50k"], "a run is --tokens 300M, or --samples 50k"),
        (["--tokens", "1M", "--epochs", "3"], "a run is --tokens 300M, or --samples 50k"),
    ],
)
def test_what_goes_with_what_is_told_before_a_plan(words: list[str], why: str, tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("torchrun")
    words = [str(script) if word == "x.sh" else word for word in words]
    done = CliRunner().invoke(cli, ["--model", "llama3-8b", "--gpus", "8", *words])
    assert done.exit_code == 2
    assert why in done.stderr


@pytest.mark.parametrize(
    ("words", "plan", "steps"),
    [
        ("", True, "screen"),
        ("--json", True, "json"),
        ("--why-not tp=4 --explain --robust", True, "compared robust explained screen"),
        ("--why-not tp=4 --explain --robust", False, "robust screen"),
        ("--export out", True, "screen exported"),
        ("--export out", False, "screen"),
    ],
)
def test_a_plan_is_compared_explained_and_exported_where_there_is_one(
    words: str, plan: bool, steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    found = Answer(
        status="optimal" if plan else "infeasible",
        job=small_job(),
        plan=Plan(dp=8) if plan else None,
        knobs=Knobs() if plan else None,
        assumptions=("assumed",),
    )

    def step(name: str, result: Any) -> Any:
        return lambda *_, **__: taken.append(name) or result

    def told(_: object, assumed: Any, *__: object, **___: object) -> None:
        assert assumed == ("assumed",)

    refused = {"nemo": "no reader", "trl": "no reader", "axolotl": "a switch"}
    monkeypatch.setattr(command, "answered", lambda _: found)
    monkeypatch.setattr(command, "_report", told)
    monkeypatch.setattr(command, "print_screen", step("screen", None))
    monkeypatch.setattr("optimizer.search.why.comparison.why_not", step("compared", None))
    monkeypatch.setattr("optimizer.search.why.robustness.robustness", step("robust", None))
    monkeypatch.setattr("optimizer.objectives.step.explain.explain", step("explained", []))
    monkeypatch.setattr("optimizer.reports.answer_json.json_text", step("json", "{}"))
    monkeypatch.setattr("optimizer.frameworks.export_folder.write_exports", step("exported", (["out/a.sh"], refused)))
    done = CliRunner().invoke(cli, ["--model", "gpt3", "--gpus", "8", *words.split()])
    assert (done.exit_code, taken) == (0 if plan else 3, steps.split())
    assert done.stderr == (
        "wrote out/a.sh\nnot nemo, trl: no reader\nnot axolotl: a switch\n" if "exported" in steps else ""
    )
    assert done.stdout == ("{}\n" if "json" in steps else "")


def test_a_file_that_is_read_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read, out = tmp_path / "a.csv", tmp_path / "b.csv"
    read.write_text("")
    with click.Context(click.Command("group")) as group:
        group.params = {"runs": [str(read)]}
        with click.Context(click.Command("command"), parent=group) as context:
            context.params = {"out": out, "html": read}
            output.write_output(out, "text", "csv")
            with pytest.raises(InputError, match="is an input of this command"):
                output.write_output(read, "text", "csv")
    assert (out.read_text(), read.read_text()) == ("text", "")
    assert capsys.readouterr() == ("", f"wrote {out}\n")


def test_what_is_shown_is_json_or_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    nothing: Any = None
    output.show(None, True, nothing, lambda: {"a": [1]})
    output.show(None, True, nothing, lambda: "text")
    assert capsys.readouterr().out == '{\n  "a": [\n    1\n  ]\n}\ntext\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.show(None, True, nothing, lambda: inf)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["gpus=64", " model = gpt3 "], {"gpus": "64", "model": "gpt3"}),
        (["gpus"], "--set gpus must be COLUMN=VALUE"),
        (["gpus="], "--set gpus= must be COLUMN=VALUE"),
        (["color=8"], "a table of runs has no column 'color'; did you mean "),
        (["gpus=x"], "--set: gpus"),
    ],
)
def test_columns_of_a_run_are_typed(pairs: list[str], told: Any) -> None:
    if isinstance(told, str):
        with pytest.raises(InputError, match=told):
            launch_read._settings(pairs)
    else:
        assert launch_read._settings(pairs) == told


@pytest.mark.parametrize(("text", "part"), [("1/1", (1, 1)), ("2/8", (2, 8)), ("8/8", (8, 8))])
def test_a_part_of_a_batch_is_counted_from_one(text: str, part: tuple[int, int]) -> None:
    assert batch.part_of(text) == part


@pytest.mark.parametrize("text", ["0/8", "9/8", "1", "1/", "/8", "a/8", "-1/8", "1/8/2"])
def test_no_part_of_a_batch_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not i/n with i from 1 to n"):
        batch.part_of(text)


@pytest.mark.parametrize(("tokens", "sequences"), [(None, 1024), (8192 * 48, 48), (8192 * 48 - 1, 47), (100, 1)])
def test_a_batch_of_tokens_is_of_whole_sequences(tokens: int | None, sequences: int) -> None:
    options = {"model": "llama3-8b", "gpus": 8, "global_batch": 1024, "seq_len": 8192, "tokens_per_batch": tokens}
    made = batch.make_job(Combination(options=options))
    assert (made.global_batch, made.seq_len) == (sequences, 8192)


def test_workers_are_as_many_as_asked_for_or_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.sweep.local.processors", lambda: 5)
    for asked, workers in ((None, 5), (2, 2)):
        engine: Any = batch._engine("local", "", asked)
        assert engine.workers == workers
    engine = batch._engine("ray", "host:1", None)
    assert engine.address == "host:1"


def test_a_file_of_another_ending_and_one_that_is_there_is_left(tmp_path: Path) -> None:
    there, free = tmp_path / "a.toml", tmp_path / "b.toml"
    there.write_text("")
    output.check_new(there, force=True, ending=".toml")
    output.check_new(free, force=False, ending=".toml")
    output.check_new(tmp_path / "c.py", force=False)
    with pytest.raises(InputError, match="give --force"):
        output.check_new(there, force=False, ending=".toml")
    with pytest.raises(InputError, match=r"write c\.toml"):
        output.check_new(tmp_path / "c.py", force=True, ending=".toml")


def test_an_output_is_of_one_format() -> None:
    for as_json, as_csv in ((True, False), (False, True), (False, False)):
        options = {"as_json": as_json, "as_csv": as_csv, "html": None, "more": 1}
        taken = output.Output.taken(options)
        assert (taken.as_json, taken.as_csv, options) == (as_json, as_csv, {"more": 1})
    with pytest.raises(click.UsageError, match="exclude each other"):
        output.Output.taken({"as_json": True, "as_csv": True, "html": None})


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        *(
            ("gpus", 8, True),
            ("gpus", "8k", True),
            ("oom_risk", 0.05, True),
            ("gpus", True, False),
            ("gpus", None, False),
        ),
        *(("gpus", [8, 16], True), ("gpus", [], False), ("gpus", [[8]], False), ("gpus", {"a": 1}, False)),
        *(("fix", {"tp": 8}, True), ("fix", {"tp": [8]}, False), ("fix", ["tp=8"], True)),
    ],
)
def test_a_default_is_a_number_a_text_or_a_list_of_them(key: str, value: object, plain: bool) -> None:
    assert defaults._is_plain(key, value) is plain


@pytest.mark.parametrize(
    ("name", "value", "texts"),
    [
        ("fix", {"tp": [2, 4], "sp": True}, ["tp=2,4", "sp=on"]),
        ("fix", ["tp=2", "pp=4"], ["tp=2", "pp=4"]),
        ("fix", "tp=2", ["tp=2"]),
        ("hbm_limit", 75e9, ["75000000000.0 B"]),
        ("hbm_limit", "75GB", ["75GB"]),
        ("flex", 0.05, ["batch=0.05"]),
        ("flex", "5%", ["batch=5%"]),
        ("flex", "batch=5%", ["batch=5%"]),
        ("gpus", 8, ["8"]),
    ],
)
def test_a_value_is_typed_as_people_do(name: str, value: object, texts: list[str]) -> None:
    assert list(defaults.option_texts(name, value)) == texts


def test_a_sample_of_a_comparing_loss_needs_an_even_batch() -> None:
    usual = request.Request(model="llama3-8b", gpus=8, limits={}, train="full", loss="dpo", global_batch=64)
    assert request.job_of(usual)[0].global_batch == 64
    with pytest.raises(InputError, match="multiple of 2, but got 65"):
        request.job_of(replace(usual, global_batch=65))


@pytest.mark.parametrize(
    ("device", "stack", "told"),
    [
        ("h100", "", ["cluster dgx-h100 (--cluster)", "software stack megatron-core (--stack)"]),
        ("h100", "megatron-core", ["cluster dgx-h100 (--cluster)"]),
    ],
)
def test_what_nobody_said_is_told(device: str, stack: str, told: list[str]) -> None:
    asked = request.Request(model="gpt3", gpus=8, limits={}, device=device, stack=stack, seq_len=2048, global_batch=8)
    assert list(request.job_of(asked)[1]) == told
    whole = replace(asked, device="", cluster="dgx-h100", stack="megatron-core")
    assert request.job_of(whole)[1] == ()
    with pytest.raises(InputError, match="give only one of them"):
        request.job_of(replace(whole, device="a100-80"))
    mixed = request.job_of(replace(whole, model="mixtral-8x7b"))[1]
    assert [line.partition(",")[0] for line in mixed] == ["routing as even as in published runs"]
    assert request.job_of(replace(whole, model="mixtral-8x7b", routing="1.3"))[1] == ()
    idle = request.job_of(replace(whole, routing="trained"))[1]
    assert idle == ("nothing of --routing trained: gpt3 has no experts to route to",)


UNASKED = "sequences of 2,048 tokens, what LLaMA-Factory and Unsloth take unasked (--seq-len)"
EACH = "global batch of {} sequences, {} for each GPU, as torchtune's recipes of one GPU have it (--global-batch)"
USUAL = [
    "sequences of 8,192 tokens, the model's longest (--seq-len)",
    "global batch of 512 sequences, about 4Mi tokens per step (--global-batch)",
]
TOO_MANY = "{} billion tokens a step: a global batch counts sequences, not tokens (--global-batch)"
PARTS = "megatron-bridge 25.11 as its recipes have it: graphs=parts (--fix, --stack)"
EVEN = (
    "routing as even as in published runs, 1.1 times the mean on the busiest rank; "
    "with a trained router 1.65 (--routing)"
)
CHANCE = "plans of a chance to fit of 50%, not 90%: nobody measured the memory of such a MoE model (--oom-risk)"
WHAT_IF = "--hbm-limit 90 GB is more than the h100 has: a what-if question"


@pytest.mark.parametrize(
    ("words", "found", "told"),
    [
        ("llama3-8b 1", "megatron-core 8192 512 bf16", USUAL),
        ("llama3-8b 8 settings=layers=4", "megatron-core 8192 512 bf16", [*USUAL, "model.layers=4 (--set)"]),
        ("llama3-8b 8 loss=dpo", "hf-2026 2048 128 bf16", [UNASKED, EACH.format(128, 16)]),
        ("llama3-8b 8 stack=megatron-core target=nemo", "megatron-core@nemo 8192 512 bf16", USUAL),
        ("llama3-8b 8 stack=megatron-bridge-25.11", "megatron-bridge-25.11 8192 512 bf16", [*USUAL, PARTS]),
        (
            "llama3-8b 8 train=full global_batch=1048576",
            "hf-2026 2048 1048576 bf16",
            [UNASKED, "1,048,576 sequences, which are " + TOO_MANY.format(2.15)],
        ),
        ("gpt3 8 seq_len=2048 global_batch=131072", "megatron-core 2048 131072 bf16", []),
        (
            "gpt3 8 seq_len=2048 global_batch=131073",
            "megatron-core 2048 131073 bf16",
            ["131,073 sequences, which are " + TOO_MANY.format(0.268)],
        ),
        (
            "llama3.2-1b 2 device=v100-32 train=lora",
            "hf-2026 2048 32 fp16",
            [UNASKED, EACH.format(32, 16), "fp16, because v100-32 has no bf16 (--dtype)"],
        ),
        (
            "llama3.2-1b 2 optimizer=paged-adamw-8bit:in-backward",
            "torchtune-2024 2048 4 bf16",
            [UNASKED, EACH.format(4, 2)],
        ),
        (
            "llama3.2-1b 2 lengths=p50:600,p100:1100",
            "megatron-core 1152 32 bf16",
            ["sequences of 1,152 tokens, the longest document (--seq-len)", EACH.format(32, 16)],
        ),
        (
            "mixtral-8x7b 64 seq_len=8192 global_batch=512 target=nemo hbm=90e9",
            "nemo-2024@nemo 8192 512 bf16",
            [EVEN, CHANCE, WHAT_IF],
        ),
        (
            "mixtral-8x7b 64 seq_len=8192 global_batch=512 stack=megatron-core routing=1.3 oom_risk=0.1 hbm=80e9",
            "megatron-core 8192 512 bf16",
            [],
        ),
    ],
)
def test_all_that_is_assumed_is_told(words: str, found: str, told: list[str]) -> None:
    """But for the machine and the software."""
    model, gpus, *others = words.split()
    asked: dict[str, Any] = dict(word.split("=", 1) for word in others)
    asked |= {name: int(asked[name]) for name in ("seq_len", "global_batch") if name in asked}
    limits = {name: float(asked.pop(name)) for name in ("hbm", "oom_risk") if name in asked}
    if "settings" in asked:
        asked["settings"] = (asked["settings"],)
    job, assumed = request.job_of(request.Request(model=model, gpus=int(gpus), limits=limits, **asked))
    assert f"{job.stack.name} {job.seq_len} {job.global_batch} {job.dtype}" == found
    assert [line for line in assumed if not line.startswith(("cluster ", "software stack "))] == told


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": 0}, "--gpus must be at least 1, but got 0"),
        (
            {"device": "mi300x", "target": "nemo"},
            r"--target nemo does not run on mi300x \(AMD\); --target any",
        ),
    ],
)
def test_no_job_is_refused(changes: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"model": "gpt3", "gpus": 8, "limits": {}}
    with pytest.raises(InputError, match=why):
        request.job_of(request.Request(**usual | changes))
    request.job_of(request.Request(**usual | changes | {"gpus": 1, "target": changes.get("target") and "any"}))


@pytest.mark.parametrize("others", [["--json"], ["--html", "x.html"], ["--json", "--html", "x.html"]])
def test_a_patch_is_printed_alone(others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["improve", "run.sh", "--diff", *others])
    assert done.exit_code == 2
    assert "--diff prints a patch alone" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["read", "a.log", "--plan", "p.json", "--script", "s.sh"], "give one of --plan and --script"),
        (["read", "a.log", "--model", "gpt3"], "--model goes with --script"),
        (["read", "a.log", "--cluster", "dgx-h100"], "--cluster goes with --script"),
        (["check"], "give one plan: PLAN"),
        (["check", "p.json", "--megatron-args", "a.sh"], "give one plan: PLAN"),
        (["check", "p.json", "--gpus", "8"], "PLAN says what --gpus would"),
        (["check", "--megatron-args", "a.sh"], "missing --model"),
        (["trial", "--model", "gpt3", "--gpus", "8"], "missing --out"),
        (["topology", "a.txt", "--out", "b.toml"], "--out and --device go together"),
        (["--model", "gpt3", "--gpus", "8", "--export", "a.txt"], "Directory 'a.txt' is a file"),
        (["--model", "gpt3", "--gpus", "8", "--html", "."], "File '.' is a directory"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.log", "p.json", "s.sh", "a.sh", "a.txt"):
        (tmp_path / name).write_text("")
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("take", "best", "pair", "fits", "patch"),
    [
        ("one", "all", "two", True, "sure"),
        ("two", "all", "two", True, "two"),
        ("two", "all", None, True, "sure"),
        ("all", "all", "two", True, "all"),
        ("all", None, "two", True, "two"),
        ("all", None, None, True, "sure"),
        ("one", None, None, False, "unsure"),
    ],
)
def test_a_patch_is_of_one_edit_two_or_all(
    take: str, best: str | None, pair: str | None, fits: bool, patch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of edits that are sure to fit, unless what runs does not fit itself."""
    edits = [SimpleNamespace(name="unsure", sure=False), SimpleNamespace(name="sure", sure=True)]
    several = {name: SimpleNamespace(name=name) for name in ("two", "all")}
    improvement: Any = SimpleNamespace(
        edits=edits,
        current=SimpleNamespace(fits=fits),
        pair=several[pair] if pair else None,
        best=several[best] if best else None,
        beyond=None,
        question=SimpleNamespace(launch=SimpleNamespace(unpriced=[])),
    )
    monkeypatch.setattr("optimizer.frameworks.read.with_followed", lambda files, source: files)
    monkeypatch.setattr("optimizer.improve.patch.patched", lambda source, question, edit, *_: edit.name)
    monkeypatch.setattr("optimizer.improve.patch.unified", lambda files, text: text)
    nothing: Any = None
    assert improve.patch_of(improvement, nothing, (), nothing, take) == patch
    improvement.edits, improvement.pair, improvement.best = [], None, None
    with pytest.raises(InputError, match="nothing to patch"):
        improve.patch_of(improvement, nothing, (), nothing, take)


def test_a_run_of_a_launch_is_paid_by_the_price_that_is_typed() -> None:
    question: Any = SimpleNamespace(job=small_job())
    book = PriceBook()
    assert improve.run_of(None, 3.6, book, question) is None
    typed = improve.run_of(1e9, 3.6, book, question)
    usual = improve.run_of(1e9, None, book, question)
    assert typed is not None
    assert usual is not None
    assert typed.offer is not None
    assert (typed.tokens, typed.offer.value, typed.offer.row) == (1e9, pytest.approx(1e-3), "--price 3.6")
    assert usual.offer == book.rent("h100", "dgx-h100")


@pytest.mark.parametrize(("text", "read"), [("512=19%", (512, 0.19)), ("1=100%", (1, 1.0)), ("8=1", (8, 1.0))])
def test_a_measured_mfu_is_a_share(text: str, read: tuple[int, float]) -> None:
    assert measured_mfu(text) == read


@pytest.mark.parametrize("text", ["512", "512=", "=19%", "512=0%", "512=-1%", "512=101%", "512=1.5", "0x8=19%", "8=x"])
def test_no_measured_mfu_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no measured MFU"):
        measured_mfu(text)


@pytest.mark.parametrize("command", ["scaling", "fits", "timeline"])
def test_a_study_is_of_one_number_format(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "--model", "llama3-8b", "--gpus", "8", "--dtype", "bf16,fp8"])
    assert done.exit_code == 2
    assert "'bf16,fp8' cannot be planned; write bf16, fp16, fp8 or fp4" in done.stderr


@pytest.mark.parametrize(
    ("given", "length", "ways", "batch", "contexts"),
    [
        ({}, LENGTHS[0], WAYS, 16 * 2, LENGTHS),
        ({"context": (1024, 4096)}, 1024, WAYS, 32, (1024, 4096)),
        ({"seq_len": 2048}, 2048, WAYS, 32, (2048,)),
        ({"global_batch": 8, "train": "lora"}, LENGTHS[0], (("lora", ""),), 8, LENGTHS),
    ],
)
def test_what_fits_is_asked_of_every_method_and_length(
    given: dict[str, Any],
    length: int,
    ways: Any,
    batch: int,
    contexts: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optimizer.studies.fits.fits", lambda job, lengths, methods: (job, lengths, methods))
    usual = dict.fromkeys(("context", "global_batch", "seq_len", "stack", "train"))
    (job, lengths, methods), _ = fits.study_of_options({"model": "llama3-8b", "gpus": 2, **usual, **given})
    assert (job.seq_len, job.global_batch, lengths, methods) == (length, batch, contexts, ways)


def test_a_misspelt_command_is_told_and_a_file_is_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the letters of shwo and show 0.75 are alike, of those of mean and merge 0.44."""
    monkeypatch.chdir(tmp_path)
    assert "Did you mean 'show'?" in CliRunner().invoke(cli, ["batch", "shwo"]).stderr
    assert "Did you mean" not in CliRunner().invoke(cli, ["batch", "mean"]).stderr
    (tmp_path / "shwo").write_text("")
    assert "Did you mean" not in CliRunner().invoke(cli, ["batch", "shwo"]).stderr


def test_old_prices_and_those_without_a_date_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ages: list[int | None] = [OLD - 1, OLD, OLD + 1, OLD + 2, None]
    offers = [
        replace(
            quote("h100", "on_demand", 1e-3, row=f"{number}"),
            date="" if age is None else str(date.today() - timedelta(days=age)),
        )
        for number, age in enumerate(ages)
    ]
    monkeypatch.setattr("optimizer.catalog.offers.book_of", lambda *_: PriceBook(offers=tuple(offers)))
    done = CliRunner().invoke(cli, ["prices", "--json"])
    assert "2 of 5 prices are older" in done.stderr
    assert "1 of 5 prices have no date" in done.stderr
    monkeypatch.setattr("optimizer.catalog.offers.book_of", lambda *_: PriceBook(offers=tuple(offers[:2])))
    assert CliRunner().invoke(cli, ["prices", "--json"]).stderr == ""


@pytest.mark.parametrize("by", ["60", "0.5", "1.5", " 7 "])
def test_a_date_without_a_unit_is_refused(by: str) -> None:
    assert campaign._cell("by", "60d") == 60 * DAY
    assert campaign._cell("start", "0") == 0.0
    assert campaign._cell("by", "") == 0.0
    with pytest.raises(InputError, match="has no unit; write the days after the start as 60d"):
        campaign._cell("by", by)


@pytest.mark.parametrize(("name", "text"), [("tokens", "0"), ("by", "0d"), ("start", "-1d"), ("by", "-1d")])
def test_a_cell_is_above_zero_but_for_a_start(name: str, text: str) -> None:
    with pytest.raises(InputError, match=f"^{name}"):
        campaign._cell(name, text)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], ("compare", ())),
        (["--strategy", "DP", "--strategy", "tp"], ("compare", ("DP", "tp"))),
        (["--fix", "tp=8"], ("study", False)),
        (["--best"], ("study", True)),
        (["--network", "infiniband-ndr"], ("judge", False)),
        (["--network", "infiniband-ndr", "--best"], ("judge", True)),
        (["--strategy", "dp", "--best"], None),
        (["--strategy", "dp", "--fix", "tp=8"], None),
    ],
)
def test_communication_is_studied_compared_or_judged(
    words: list[str], asked: tuple[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, object]] = []
    monkeypatch.setattr(communication, "study_plan", lambda job, best: (best, None))
    monkeypatch.setattr(communication, "_study", lambda job, best, *_: done.append(("study", best)))
    monkeypatch.setattr(communication, "_judge", lambda job, best, *_: done.append(("judge", best)))
    monkeypatch.setattr(communication, "_compare", lambda job, names, *_: done.append(("compare", names)))
    found = CliRunner().invoke(cli, ["communication", "--model", "llama3-8b", "--gpus", "16", *words])
    assert found.exit_code == (0 if asked else 2), found.output
    assert done == ([asked] if asked else [])


def test_strategies_are_those_named_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("optimizer.studies.strategies.compare", lambda job, names: asked.append(names) or ())
    silent: Any = SimpleNamespace(show=lambda *_: None)
    for names, compared in (((), STRATEGIES), (("DP", "tp"), ["dp", "tp"])):
        communication._compare(small_job(), names, (), silent)
        assert asked.pop() == compared


def test_the_best_plan_of_a_study_is_searched_without_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    found = Answer(status="optimal", job=small_job(), plan=Plan(dp=8), knobs=Knobs())

    def plan(_: object, **how: Any) -> Answer:
        asked.append(how)
        return found

    monkeypatch.setattr("optimizer.search.plan.planner.plan", plan)
    assert pinned.study_plan(small_job(), True) == (Plan(dp=8), Knobs())
    assert asked == [{"top": 1, "trials": 0, "priced_risk": False}]
    found = replace(found, plan=None)
    with pytest.raises(Infeasible, match="no plan satisfies every rule"):
        pinned.study_plan(small_job(), True)
    for limits in ({"ranges": {"tp": (1, 2)}}, {"choices": {"tp": (1, 2)}}):
        with pytest.raises(InputError, match="a study needs one plan"):
            pinned.study_plan(small_job(**limits), False)


def test_files_that_were_named_are_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    named = {"model": "./mine.toml", "cluster": "./none.toml", "stack": ""}
    assert trial._places(named) == {"model": str(tmp_path.resolve() / "mine.toml")}
    assert trial._places({"model": "llama3-8b"}) == {}


@pytest.mark.parametrize(
    ("words", "devices"),
    [([], {"h100", "a100-80"}), (["--device", "h100"], {"h100"}), (["--device", "dgx-a100"], {"a100-80"})],
)
def test_prices_are_those_of_a_device(words: list[str], devices: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    offers = tuple(quote(name, "on_demand", 1e-3, row=name) for name in ("h100", "a100-80"))
    monkeypatch.setattr("optimizer.catalog.offers.book_of", lambda *_: PriceBook(offers=offers))
    told = json.loads(CliRunner().invoke(cli, ["prices", "--json", *words]).stdout)
    assert {offer["device"] for offer in told["offers"]} == devices
    assert told["schema_version"] == 1
    assert all(offer["taken"] for offer in told["offers"])
    for more, count in (("--term on_demand", len(devices)), ("--term spot", 0), ("--provider nobody", 0)):
        told = json.loads(CliRunner().invoke(cli, ["prices", "--json", *words, *more.split()]).stdout)
        assert len(told["offers"]) == count


@pytest.mark.parametrize(("option", "each"), [("rent", 3600.0), ("purchase", 1.0)])
def test_a_typed_price_is_of_an_hour_or_for_good(option: str, each: float) -> None:
    cluster = load_cluster("dgx-h100")
    kinds: Any = (SimpleNamespace(kind="h100", cluster=cluster),)
    asked = {"term": "", "provider": "", "prices_file": None, "buy": "cash", "rent": {}, "purchase": {}}
    book = campaign._book({**asked, option: {"h100": "7200"}}, kinds)
    (offer,) = [offer for offer in book.offers if offer.row == f"--{option} h100=7200"]
    assert (offer.value, offer.term) == (pytest.approx(7200 / each), "on_demand" if option == "rent" else "purchase")
    with pytest.raises(InputError, match=f"--{option} h100=much: "):
        campaign._book({**asked, option: {"h100": "much"}}, kinds)


@pytest.mark.parametrize("better", [False, True])
def test_the_best_use_is_what_was_asked_for_unless_another_is_better(
    better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = small_job(64), small_job(48)
    asked: list[int] = []

    def best_use(jobs: Iterator[Any], step: object, tuning: object) -> Any:
        tried = list(jobs)
        asked.extend(each.gpus for each in tried)
        best = SimpleNamespace(job=other if better else job)
        return SimpleNamespace(best=best, tried=tried, known=None, words=lambda: "fewer are better")

    monkeypatch.setattr("optimizer.studies.best_use.best_use", best_use)
    monkeypatch.setattr("optimizer.studies.best_use.counts_at_most", lambda gpus, node: (gpus, 48))
    monkeypatch.setattr(answering, "job_of", lambda request: (small_job(request.gpus), (f"of {request.gpus}",)))
    usual = request.Request(model="gpt3", gpus=64, limits={})
    nothing: Any = None
    found, assumed, _ = answering._best_use(usual, True, None, nothing)
    assert asked == [64, 48]
    if better:
        assert (found, assumed) == (other, ("of 48", "fewer are better"))
    else:
        assert found == job
        assert assumed[0] == "of 64"
        assert assumed[1].startswith("the 64 GPUs and batch asked for: none of 2 others tried is ")


@pytest.mark.parametrize(
    ("rows", "listed"),
    [
        ([("a", "a"), ("a", "a"), ("b", "b"), ("", "c")], "a (2 rows), b (1 rows)."),  # those that rows name
        ([("", "a"), ("", "c"), ("", "c")], "c (2 rows), a (1 rows)."),
        ([(f"{number}", f"{number}") for number in range(9)], ", ".join(f"{n} (1 rows)" for n in range(8)) + "."),
    ],
)
def test_runs_of_several_stacks_ask_for_one(
    rows: list[tuple[str, str]], listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [SimpleNamespace(row={"stack": named}, stack_name=used) for named, used in rows]
    monkeypatch.setattr("optimizer.calibration.runs.read_runs", lambda *_: runs)
    with pytest.raises(InputError) as refused:
        calibrate._runs_of(tmp_path, "")
    assert f"holds runs of several stacks: {listed} Choose one" in str(refused.value)
    runs.clear()
    with pytest.raises(InputError, match="holds no rows"):
        calibrate._runs_of(tmp_path, "")


@pytest.mark.parametrize(
    ("named", "kept"), [("megatron-core", ["megatron-core"]), ("", ["megatron-core", "nemo-2024", "nemo-2024"])]
)
def test_rows_that_name_a_stack_count_for_it_and_all_where_none_does(
    named: str, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = ("megatron-core", "nemo-2024", "nemo-2024")
    runs = [SimpleNamespace(row={"stack": named and stack}, stack_name=stack) for stack in stacks]
    monkeypatch.setattr("optimizer.calibration.runs.read_runs", lambda *_: runs)
    start, own = calibrate._runs_of(Path("x.csv"), "megatron-core")
    assert start.name == "megatron-core"
    assert [run.stack_name for run in own] == kept
