"""The question of an address: what it says, what it refuses, and that it comes back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.commands.request import Request, job_of
from optimizer.job.fields import FIELDS
from optimizer.job.plan import Plan
from optimizer.page.improve.view import _logged
from optimizer.page.plan.controls import control, form_values, locks
from optimizer.page.plan.question import FILES, LONGEST, MOST_MINE, MOST_PACKED, PAGED, PlanQuestion, asked
from optimizer.page.plan.views.shown import signed_bars
from optimizer.page.tabs import LATER, _plan

PINS = ("tp=8", "pp=2..8", "vpp=1,6", "recompute=full", "sequence_parallel=false", "zero_stage=1", "micro_batch=2")
QUESTIONS = st.builds(
    dict,
    model=st.sampled_from(["gpt3", "llama3-8b"]),
    gpus=st.integers(1, 4096).map(str),
    cluster=st.sampled_from(["", "h100", "dgx-a100-80"]),
    routing=st.sampled_from(["", "trained"]),
    seq_len=st.sampled_from(["", "4096", "8,192"]),
    oom_risk=st.sampled_from(["", "0.05", "10%"]),
    tokens=st.sampled_from(["", "1e12"]),
    fix=st.lists(st.sampled_from(PINS), unique=True).map(",".join),
    mine=st.sampled_from(["", "tp=8,pp=4"]),
)


def read_again(question: PlanQuestion) -> PlanQuestion:
    from urllib.parse import parse_qsl

    return asked(parse_qsl(question.address()))


@given(QUESTIONS)
def test_an_address_read_again_is_the_same_question(values: dict[str, str]) -> None:
    question = asked(list(values.items()))
    assert read_again(question) == question


@given(QUESTIONS)
def test_the_form_holds_every_pin_once(values: dict[str, str]) -> None:
    question = asked(list(values.items()))
    form = form_values(question, None, None)
    pairs = [("gpus", str(question.gpus)), ("fix", form["fix"]), *((f"lock.{name}", v) for name, v in form["locked"])]
    assert asked(pairs).fix == question.fix


def test_thousands_may_have_commas() -> None:
    found = asked([("gpus", "1,024"), ("tokens", "1,500,000"), ("oom_risk", "5%")])
    assert (found.gpus, found.tokens, found.oom_risk) == (1024, 1.5e6, 0.05)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("gpus", "0"), "gpus must be a whole number above zero"),
        (("gpus", " "), "GPUs: the field is empty; write how many there are"),
        (("gpus", "1e3"), "but got '1e3'"),
        (("model", "/etc/passwd"), "unknown model"),
        (("cluster", "./mine.toml"), "unknown cluster"),
        (("dtype", "fp7"), "dtype must be one of bf16, fp16, fp8, fp4"),
        (("routing", "evenly"), "routing must be one of forced, trained, fresh"),
        (("train", "lore"), "--train must be one of full, lora, dora, qlora, frozen"),
        (("optimizer", '"'), "the optimizer must be one of adamw,"),
        (("oom_risk", "0,05"), "oom risk must be above 0 and at most 50%"),
        (("oom_risk", "0.7"), "oom risk must be above 0 and at most 50%"),
        (("tokens", "-1"), "tokens must be a number above zero"),
        (("price", "nan"), "price must be a number above zero"),
        (("fix", "tp"), "a pin must be variable=value"),
        (("fix", "speed=8"), "unknown plan variable 'speed'"),
        (("lock.tp", "x"), "tp must be an integer"),
        (("mine", "tp=x"), "tp must be an integer"),
        (("model", "x" * 301), "model: 301 characters, more than the 300 that are read"),
        (("model_file", "x" * 12_001), "model_file: 12,001 characters, more than the 12,000 that are read"),
    ],
)
def test_what_cannot_be_used_is_one_message(pair: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        asked([pair])


def test_the_form_holds_a_risk_of_its_own() -> None:
    risks = control(FIELDS["oom_risk"], asked([("oom_risk", "7.5%")]))
    assert [text for value, text in risks.groups[""] if value == risks.value] == ["at most 7.5%"]
    assert len(risks.groups[""]) == 7


def test_every_option_of_the_page_is_asked_and_answered() -> None:
    question = asked([("minimize", "energy"), ("routing", "trained"), ("dtype", "fp8")])
    assert question.job()[0].minimize == "energy"
    assert "--minimize energy" in question.flags()
    for option in PAGED:
        shown = control(option, question)
        values = [value for choices in shown.groups.values() for value, _ in choices]
        assert shown.unit or shown.value in ("", *values)
        assert shown.unit or option.name == "runs" or values  # something to choose
        for value in values:
            assert getattr(asked([(option.name, value)]), option.name) is not None
    with pytest.raises(InputError, match="minimize must be one of time, energy, cost"):
        asked([("minimize", "money")])


def test_ways_of_training_are_asked_as_on_the_command_line() -> None:
    question = asked(
        [("model", "llama3-8b"), ("gpus", "8"), ("train", "lora:8:mlp"), ("optimizer", "lion:in-backward")]
    )
    assert [control(FIELDS[name], question).groups["of the address"] for name in ("train", "optimizer")] == [
        [("lora:8:mlp", "lora:8:mlp")],
        [("lion:in-backward", "lion:in-backward")],
    ]
    asks = Request(model="llama3-8b", gpus=8, limits={}, train="lora:8:mlp", optimizer="lion:in-backward")
    assert question.job()[0].method == job_of(asks)[0].method


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InputError, match=r"gpus must.*seq len must"):
        asked([("seq_len", "x"), ("gpus", "x")])


def test_the_same_job_as_on_the_command_line() -> None:
    question = asked([("model", "gpt3"), ("gpus", "64"), ("cluster", "a100-80"), ("fix", "tp=8"), ("oom_risk", "5%")])
    limits = {"fixed": {"tp": 8}, "ranges": {}, "choices": {}, "oom_risk": 0.05}
    assert question.job() == job_of(Request(model="gpt3", gpus=64, cluster="a100-80", limits=limits))
    assert question.flags() == ("optimize --model gpt3 --gpus 64 --cluster a100-80 --oom-risk 5% --fix tp=8 --trials 0")


def test_no_more_than_a_few_plans_are_held_against_the_best() -> None:
    pairs = [("mine", f"tp={2**power}") for power in range(8)] + [("mine", "TP=1")]
    assert asked(pairs).mine == ("tp=1", "tp=2", "tp=4", "tp=8")[:MOST_MINE]


def test_locks_offer_what_the_plan_has_and_experts_only_to_mixtures() -> None:
    job, _ = asked([("model", "gpt3"), ("gpus", "64")]).job()
    found = {lock.name: lock for lock in locks(job, Plan(tp=4, pp=16, recompute="full"), {"pp": 12})}
    assert not {"ep", "etp"} & found.keys()
    assert (found["tp"].has, found["pp"].pinned, found["recompute"].has) == ("4", "12", "full")
    assert {"1", "2", "4", "8"} <= set(found["tp"].choices)
    assert "12" in found["pp"].choices
    mixture, _ = asked([("model", "mixtral-8x7b"), ("gpus", "64")]).job()
    assert {"ep", "etp"} <= {lock.name for lock in locks(mixture, None, {})}


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_the_longest_text_is_read_and_one_more_is_not(more: int, refused: bool) -> None:
    def said(name: str, text: str) -> str:
        try:
            asked([(name, text)])
        except InputError as error:
            return str(error)
        return ""

    for name, most in (("model", LONGEST), (sorted(FILES)[0], MOST_PACKED)):
        assert ("are read; shorten it" in said(name, "x" * (most + more))) is refused


@pytest.mark.parametrize("shown", [[], ["map"], ["mine", "runs"]])
def test_views_that_are_asked_for_are_open(shown: list[str]) -> None:
    found = _plan([("show", name) for name in shown], PlanQuestion(), {})["later"]
    assert {name: is_open for name, (_, is_open) in found.items()} == {name: name in shown for name in LATER}


@pytest.mark.parametrize(("rows", "height"), [(0, 80 + 30), (1, 80 + 30), (4, 80 + 4 * 30)])
def test_a_figure_is_as_high_as_its_bars(rows: int, height: int) -> None:
    drawn = signed_bars([(f"{n}", 1.0, "") for n in range(rows)], " s", height=30)
    assert drawn["layout"]["height"] == height


@pytest.mark.parametrize(
    ("seq_len", "found"), [("0", {}), ("1", {"seq_len": 1}), ("2048.0", {"seq_len": 2048}), ("-4", {})]
)
def test_a_number_of_a_log_counts_above_zero(seq_len: str, found: dict[str, int]) -> None:
    assert _logged({"seq_len": seq_len}) == found
