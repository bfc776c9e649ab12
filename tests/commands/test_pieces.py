"""Pieces of commands at the ends of what they take: prices, portfolios, batches, what is shown on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import DAY
from optimizer.catalog import load_cluster, load_model
from optimizer.catalog.offers import OLD, PriceBook, quote
from optimizer.cli import cli
from optimizer.commands import request
from optimizer.commands.buy import campaign, prices
from optimizer.commands.pins import alternative, joined, merged, pins
from optimizer.commands.plan import answering
from optimizer.commands.study import batch
from optimizer.commands.waiting import progress, waiting
from optimizer.job.plan import Plan
from optimizer.purchase.campaign import AUTO
from optimizer.purchase.wording import texts
from tests.search.jobs import small_job

TODAY = date(2026, 6, 1)


@pytest.mark.parametrize(
    ("term", "price", "key"), [("on_demand", 2.0, "usd_per_gpu_hour"), ("purchase", 7200.0, "usd_per_gpu")]
)
@pytest.mark.parametrize(("days", "old"), [(OLD, False), (OLD + 1, True), (None, False)])
def test_an_offer_is_told_for_an_hour_or_for_good(
    term: str, price: float, key: str, days: int | None, old: bool
) -> None:
    value = price / 3600 if term == "on_demand" else price
    written = "" if days is None else str(TODAY - timedelta(days=days))
    offer = replace(
        quote("h100", term, value, row="r"),
        **{"low": value / 2, "high": 2 * value, "date": written, "commitment": 3 * DAY, "sold": (8, 16)},
    )
    told = prices._plain(offer, TODAY, taken=True)
    assert [told[name] for name in (key, "low", "high")] == pytest.approx([price, price / 2, 2 * price])
    assert (told["age_days"], told["old"], told["commitment_days"], told["sold"]) == (days, old, 3.0, [8, 16])
    assert ("usd_per_gpu" in told) is (term == "purchase")


def portfolio(tmp_path: Path, *lines: str) -> Any:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return campaign._portfolio(path, "dgx-h100")


def test_a_portfolio_may_be_of_one_run(tmp_path: Path) -> None:
    (run,) = portfolio(tmp_path, "model,tokens", "llama3-8b,1T")
    assert (run.model.name, run.tokens, run.start) == ("llama3-8b", 1e12, 0.0)
    (run,) = portfolio(tmp_path, "model,tokens,seq_len,global_batch,start,by", "llama3-8b,1T,4k,1024,0d,60d")
    assert (run.seq_len, run.global_batch, run.start, run.by) == (4096, 1024, 0.0, 60 * DAY)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (("model", "llama3-8b"), "needs a line of headings"),
        (("model,tokens,colour", "llama3-8b,1T,red"), "needs a line of headings"),
        (("model,tokens",), "needs a line of headings"),
        (("model,tokens", "llama3-8b,"), "line 2: tokens is missing"),
        (("model,tokens", "llama3-8b,1T", ",1T"), "line 3: model is missing"),
        (("model,tokens", "llama3-8b,0"), "line 2: tokens must be above 0, but got '0'"),
        (("model,tokens,by", "llama3-8b,1T,60"), "line 2: by '60' has no unit"),
        (("model,tokens,by", "llama3-8b,1T,-1d"), "line 2: by must be above 0"),
        (("model,tokens,start,by", "llama3-8b,1T,9d,9d"), "line 2: it must start before the date"),
        (("model,tokens", "llama3-8b,1000"), "line 2: 1000 tokens are less than one step"),
    ],
)
def test_what_is_no_portfolio_is_told_line_by_line(tmp_path: Path, lines: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InvalidFile) as refused:
        portfolio(tmp_path, *lines)
    assert problem in " ".join(refused.value.problems)


@pytest.mark.parametrize(("seconds", "code"), [("10", 0), ("600", 0), ("9.9", 2), ("600.1", 2)])
def test_a_measurement_takes_ten_seconds_to_ten_minutes(tmp_path: Path, seconds: str, code: int) -> None:
    words = ("measure", "--model", "llama3-8b", "--seconds", seconds, "--out", str(tmp_path / "measure.py"))
    assert CliRunner().invoke(cli, words).exit_code == code


@pytest.mark.parametrize(("dtype", "refused"), [("bf16,fp8", True), ("any", True), ("bf16", False)])
def test_trials_are_of_one_number_format(
    dtype: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reached(*_: object, **__: object) -> None:
        raise InputError("reached")

    monkeypatch.setattr("optimizer.trial.candidates.candidates", reached)
    words = ("trial", "--model", "llama3-8b", "--gpus", "8", "--out", str(tmp_path / "trials"), "--dtype", dtype)
    found = CliRunner().invoke(cli, words)
    assert ("one number format" in str(found.exception or "") + found.output) is refused
    assert ("reached" in str(found.exception or "") + found.output) is not refused


@pytest.mark.parametrize(("tokens", "budget", "counted"), [(0.0, 7e9, 7e9), (3e9, 7e9, 3e9)])
def test_results_of_a_study_are_of_its_tokens_or_of_those_that_are_named(
    tokens: float, budget: float, counted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, float]] = []
    monkeypatch.setattr(
        "optimizer.sweep.results.nested", lambda row, token_budget, book: asked.append((row, token_budget)) or {}
    )
    monkeypatch.setattr(batch, "replace", lambda row, scenario: (row, scenario))
    store: Any = SimpleNamespace(rows=lambda keys=None: [SimpleNamespace(key=key) for key in keys or ("x",)])
    tasks: Any = [SimpleNamespace(key="b", scenario="two"), SimpleNamespace(key="a", scenario="one")]
    study: Any = SimpleNamespace(prices={}, token_budget=budget)
    batch._wholes(store, study, tasks, PriceBook(), tokens)
    assert [(row.key, scenario, of) for (row, scenario), of in asked] == [("b", "two", counted), ("a", "one", counted)]
    asked.clear()
    batch._wholes(store, None, None, PriceBook(), tokens)
    assert [(row.key, of) for row, of in asked] == [("x", tokens)]


@pytest.mark.parametrize(
    ("text", "read"),
    [("tp=8", (("tp", 8),)), ("tp=2,4,pp=8", (("tp", frozenset({2, 4})), ("pp", 8))), ("TP = 8", (("tp", 8),))],
)
def test_pins_are_read(text: str, read: tuple[Any, ...]) -> None:
    assert pins(text) == read
    assert alternative(text) == dict(read)
    nothing: Any = None
    assert joined(nothing, nothing, (read, read)) == (*read, *read)


@pytest.mark.parametrize("text", ["tp", "tp=", "=8", "tp= "])
def test_a_pin_names_a_value(text: str) -> None:
    with pytest.raises(InputError):
        pins(text)


def test_pins_that_contradict_each_other_are_told() -> None:
    assert merged((("tp", 8), ("tp", 8))) == merged((("tp", 8),))
    with pytest.raises(InputError, match=r"--fix tp=8 contradicts --fix tp=4; keep one"):
        merged((("tp", 8), ("tp", 4)))
    with pytest.raises(InputError, match=r"^tp=8 contradicts tp=4"):
        alternative("tp=8,pp=2,tp=4")


class Terminal(io.StringIO):
    """A terminal that keeps what it was told."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_gone_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("planning", 2) as advance:
        advance()
        advance()
    assert "planning" in terminal.getvalue()
    assert terminal.getvalue().rstrip("\n").endswith("\x1b[2K")


@pytest.mark.parametrize(("patience", "told"), [(0.02, True), (60.0, False)])
def test_a_word_comes_after_a_while_and_goes(patience: float, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.commands.waiting.PATIENCE", patience)
    terminal = Terminal()
    with waiting("drawing", terminal) as say:
        say("a line")
        if told:
            while "drawing: 0 s" not in terminal.getvalue():
                pass
    text = terminal.getvalue()
    assert text.startswith("\r\x1b[Ka line\n")
    assert text.endswith("\r\x1b[K" if told else "a line\n")
    assert ("(Ctrl-C stops)" in text) is told
    plain = io.StringIO()
    with waiting("drawing", plain) as say:
        say("a line")
    assert plain.getvalue() == "a line\n"


@pytest.mark.parametrize(("seq_len", "length"), [(None, True), (4096, False)])
@pytest.mark.parametrize(
    ("model", "batch", "told", "grows"),
    [
        ("gpt3", None, ["--global-batch"], False),
        ("qwen3-8b", None, ["--global-batch"], True),
        ("qwen3-8b", 512, [], False),
        ("gpt3", 512, [], False),
    ],
)
def test_what_a_run_assumes_is_told(
    model: str, batch: int | None, told: list[str], grows: bool, seq_len: int | None, length: bool
) -> None:
    """A published model has its own run's batch; that of another grows with the GPUs."""
    run, lines = campaign._run(model, 1e12, seq_len, batch, "dgx-h100")
    assert (run.tokens, run.assumed, run.grows) == (1e12, batch is None, grows)
    assert run.global_batch == batch or batch is None
    assert run.seq_len == seq_len or seq_len is None
    assert len(lines) == length + len(told)
    assert any("--seq-len" in line for line in lines) is length
    assert any("as published runs' grew" in line for line in lines) is grows
    with pytest.raises(InputError, match="less than one step"):
        campaign._run(model, run.global_batch * run.seq_len - 1.0, seq_len, batch, "dgx-h100")
    assert campaign._run(model, float(run.global_batch * run.seq_len), seq_len, batch, "dgx-h100")


@pytest.mark.parametrize(
    ("name", "note", "told"), [("own.json", "a guess", "; a guess"), ("own.json", "", ""), ("own.toml", "a guess", "")]
)
@pytest.mark.parametrize(("model", "active"), [("llama3-8b", ""), ("mixtral-8x7b", ", 12.9 billion of them active")])
def test_how_a_model_file_is_read_is_said(
    name: str, note: str, told: str, model: str, active: str, tmp_path: Path
) -> None:
    """A file in the format of the presets says itself what is known of it."""
    known = load_model(model)
    path = tmp_path / name
    path.touch()
    own = replace(known, name="own", provenance=replace(known.provenance, note=note))
    size = f"32 layers and {known.params / 1e9:,.3g} billion parameters{active}"
    assert request._as_read(str(path), own) == [f"model own as {name} is read: {size}{told} (--model)"]


@pytest.mark.parametrize(
    ("typed", "told"), [("llama3-8b", False), ("Llama3-8B", False), ("meta-llama/Llama-3-8B-Instruct-mine", True)]
)
def test_a_longer_name_is_said_to_be_the_preset_that_it_means(typed: str, told: bool) -> None:
    assert bool(request._as_read(typed, load_model("llama3-8b"))) is told
    assert request._as_read("GPT-3 175B", load_model("gpt3")) == []


@pytest.mark.parametrize(
    ("typed", "name", "told"),
    [
        ("mine", "mine", ["model mine of your own/mine.toml (--model)"]),
        ("", "mine@nemo", ["model mine of your own/mine.toml (--model)"]),
        ("gpt3", "gpt3", ["model gpt3 of your own/gpt3.toml, not the shipped preset of that name (--model)"]),
        ("./gpt3.toml", "gpt3", ["a clash of gpt3"]),
        ("llama3-8b", "llama3-8b", ["a clash of llama3-8b"]),
        ("", "llama3-8b", []),
    ],
)
def test_what_is_of_ones_own_is_told(typed: str, name: str, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def own_file(_: str, name: str) -> Path | None:
        return Path("own", f"{name}.toml") if name in ("mine", "gpt3") else None

    monkeypatch.setattr("optimizer.catalog.places.own_file", own_file)
    monkeypatch.setattr("optimizer.catalog.places.clash", lambda kind, typed, name, shipped: f"a clash of {name}")
    asked = request.Request(model=typed, gpus=8, limits={})
    assert request._clashes(asked, {"model": name}) == told


@pytest.mark.parametrize(
    ("worth", "told"), [(1.25, ["Liger: 25% more tokens a second (--fix liger=on)"]), (1.0, []), (0.5, [])]
)
def test_a_switch_that_makes_it_faster_is_flagged(
    worth: float, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tokens a second of the best plan with it, over those of the answer."""
    job = small_job()
    stack = replace(job.stack, features=replace(job.stack.features, switchable=("liger",)))
    job = replace(job, stack=stack)
    estimate: Any = SimpleNamespace()
    asked: list[float] = []
    found = Answer(status="optimal", job=job, plan=Plan(dp=8), estimate=estimate, flags=("a flag",))
    of: dict[str, Any] = {
        "optimizer.job.switches.switches": lambda: {"liger": SimpleNamespace(meaning="Liger: its kernels")},
        "optimizer.search.infeasible.methods.switched_jobs": lambda _: [("--fix liger=on", job)],
        "optimizer.search.plan.alternatives.value_of": lambda *_: 2.0,
        "optimizer.studies.best_use.best_use": lambda _, beyond: (
            asked.append(beyond) or SimpleNamespace(best=SimpleNamespace(worth=worth * job.tokens / 2.0))
        ),
    }
    for name, value in of.items():
        monkeypatch.setattr(name, value)
    assert answering._faster_switched(found).flags == ("a flag", *told)
    assert asked == [pytest.approx(1.01 * job.tokens / 2.0)]


@pytest.mark.parametrize("drawn", [True, False])
def test_only_what_is_drawn_must_be_drawable(drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise InputError("too long to be drawn")

    monkeypatch.setattr("optimizer.studies.timeline_report.check_drawn", refused)
    words = ["timeline", "--model", "llama3-8b", "--gpus", "8", "--global-batch", "8", "--fix", "tp=2", "--fix", "pp=2"]
    done = CliRunner().invoke(cli, [*words, *(["--html", str(tmp_path / "x.html")] if drawn else [])])
    assert (done.exit_code, "too long to be drawn" in done.stderr) == ((2, True) if drawn else (0, False)), done.output


@pytest.mark.parametrize(
    ("text", "buy", "spares"),
    [("", "", None), ("", "cash", -1), ("auto", "", -1), (" Auto ", "cash", -1), ("12", "cash", 12)],
)
def test_spares_are_counted_left_to_the_provider_or_as_many_as_pay(text: str, buy: str, spares: int | None) -> None:
    assert campaign._spares({"spares": text, "buy": buy}) == (AUTO if spares == -1 else spares)


@pytest.mark.parametrize("text", ["0", "-1", "some", "1.5"])
def test_spares_are_whole_nodes(text: str) -> None:
    with pytest.raises(InputError, match="must be a number of nodes, or auto"):
        campaign._spares({"spares": text, "buy": ""})


@pytest.mark.parametrize("text", ["2:1", "1:1", "0:1", "-1:1", "1:2:3", "0", "1,0", "1,-2", "a", "1,,2"])
def test_an_axis_is_a_list_or_a_rising_range_above_zero(text: str) -> None:
    assert campaign.axis("--nic", "0.5,2", float, 1.0) == ((0.5, 2.0), None)
    assert campaign.axis("--nic", "1 : 2", float, 3.0) == ((3.0,), (1.0, 2.0))
    with pytest.raises(InputError, match="neither a list such as 1,2 nor a rising range"):
        campaign.axis("--nic", text, float, 1.0)


@pytest.mark.parametrize("text", ["", "0", "8,0@5d", "8@1d", "8,8@5", "8,8@0d", "8,8@9d,8@5d", "8,8@5d,8@5d", "8,x@5d"])
def test_deliveries_begin_now_and_rise_in_time(text: str) -> None:
    found = [(item.gpus, item.at / DAY) for item in campaign.stages("1, 2@5d,4k@9d")]
    assert found == [(1, 0.0), (2, 5.0), (4096, 9.0)]
    with pytest.raises(InputError, match="is no list of deliveries"):
        campaign.stages(text)


USUAL: dict[str, object] = {
    "stack": "",
    "rent": {},
    "purchase": {},
    "prices_file": None,
    "buy": "",
    "spares": "",
    "hardware": "h100",
}
USUAL |= {"power_cap": "", "batch_factor": "", "dtype": "bf16"}
NONE = ((0.0,), None)


@pytest.mark.parametrize(
    ("changes", "hbm", "nic", "names"),
    [
        ({}, NONE, NONE, "usual_stacks published_prices provider_spares"),
        ({"stack": "nemo-2024"}, NONE, NONE, "one_stack published_prices provider_spares"),
        ({"rent": {"h100": "2"}}, NONE, NONE, "usual_stacks provider_spares"),
        ({"purchase": {"h100": "2"}}, NONE, NONE, "usual_stacks provider_spares"),
        ({"prices_file": "mine.csv"}, NONE, NONE, "usual_stacks provider_spares"),
        ({"spares": "2"}, NONE, NONE, "usual_stacks published_prices"),
        ({"buy": "cash"}, NONE, ((1.0,), None), "usual_stacks published_prices"),
        ({"hardware": "h100,h200"}, NONE, NONE, "usual_stacks published_prices provider_spares shared_errors"),
        ({"power_cap": "0.8"}, NONE, NONE, "usual_stacks published_prices provider_spares power_caps"),
        ({"batch_factor": "2"}, NONE, NONE, "usual_stacks published_prices provider_spares other_batches"),
        ({}, ((0.0,), (1.0, 2.0)), NONE, "usual_stacks published_prices provider_spares other_memory"),
        ({}, NONE, ((1.0,), None), "usual_stacks published_prices provider_spares other_network"),
    ],
)
def test_a_question_is_told_what_it_assumes(
    changes: dict[str, object], hbm: campaign.Axis, nic: campaign.Axis, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = texts("assumed")
    monkeypatch.setattr("optimizer.purchase.wording.texts", lambda _: {name: name for name in every})
    found = campaign._notes({**USUAL, **changes}, {"hbm": hbm, "nic": nic})
    assert set(found) == set(names.split())


def test_every_narrow_format_is_told_to_need_no_more_tokens() -> None:
    said = campaign._notes({**USUAL, "dtype": "bf16,fp8"}, {"hbm": NONE, "nic": NONE})
    assert [note for note in said if "no more tokens" in note] == ["fp8 is taken to need no more tokens than bf16"]


@pytest.mark.parametrize(
    ("name", "gpus", "cards", "share"),
    [("rtx-4090-8", 1, 1, 1 / 8), ("rtx-4090-8", 7, 7, 7 / 8), ("rtx-4090-8", 8, 8, 1.0), ("dgx-h100", 1, 8, 1.0)],
)
def test_a_machine_without_a_network_has_as_many_cards_as_the_job(
    name: str, gpus: int, cards: int, share: float
) -> None:
    cluster = load_cluster(name)
    found = request._machine(cluster, gpus)
    assert (found.gpus_per_node, found.host_memory) == (cards, share * cluster.host_memory)


@pytest.mark.parametrize(
    ("model", "lengths", "tuned", "seq_len", "why"),
    [
        ("gpt3", "", False, 2048, "the model's longest"),
        ("llama3-8b", "", False, 8192, "the model's longest"),
        ("llama3.1-8b", "", False, 8192, "its longest is 131,072"),
        ("llama3.1-8b", "", True, 2048, "what LLaMA-Factory and Unsloth take unasked"),
        ("gpt3", "", True, 2048, "the model's longest"),
        ("llama3.1-8b", "p0:10,p100:1000", True, 1024, "the longest document"),
        ("llama3.1-8b", "p0:10,p100:1025", True, 1088, "the longest document"),
        ("gpt3", "p0:10,p100:9000", True, 2048, "the model's longest"),
    ],
)
def test_sequences_are_as_long_as_the_documents_or_the_model(
    model: str, lengths: str, tuned: bool, seq_len: int, why: str
) -> None:
    """Documents are filled up to 64 tokens."""
    assumed: list[str] = []
    assert request._seq_len(load_model(model), lengths, assumed, tuned=tuned) == seq_len
    assert assumed == [f"sequences of {seq_len:,} tokens, {why} (--seq-len)"]


@pytest.mark.parametrize(("batch", "told"), [(2**28 // 2048, False), (2**28 // 2048 + 1, True)])
def test_a_batch_of_more_than_any_run_s_tokens_is_told_to_be_of_sequences(batch: int, told: bool) -> None:
    asked = request.Request(model="gpt3", gpus=8, limits={}, seq_len=2048, global_batch=batch)
    assert any("counts sequences, not tokens" in line for line in request.job_of(asked)[1]) is told


@pytest.mark.parametrize(("more", "told"), [(0.0, False), (1.0, True)])
def test_more_memory_than_the_device_has_is_a_what_if_question(more: float, told: bool) -> None:
    hbm = load_cluster("dgx-h100").device.memory_nominal + more
    asked = request.Request(model="gpt3", gpus=8, limits={"hbm": hbm})
    assert any("a what-if question" in line for line in request.job_of(asked)[1]) is told


def test_a_job_has_a_gpu_at_least() -> None:
    assert request.job_of(request.Request(model="llama3-8b", gpus=1, limits={}))[0].gpus == 1
    with pytest.raises(InputError, match="--gpus must be at least 1, but got 0"):
        request.job_of(request.Request(model="llama3-8b", gpus=0, limits={}))
