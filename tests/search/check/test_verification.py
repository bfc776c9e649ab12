"""The check accepts what the planner says and finds every tampering by name, without loading a solver."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.answer.answer import Answer
from optimizer.answer.reading import read_answer
from optimizer.answer.saved import SavedAnswer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Plan
from optimizer.objectives.step.explain import explain
from optimizer.reports.answer_json import json_text
from optimizer.search.check.plan_rules import priced, rule_findings
from optimizer.search.check.verification import UNCHECKED, _missing, disagreements, verify
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.oracle import sweep
from optimizer.search.plan.planner import plan
from optimizer.search.plan.precision import best_format
from optimizer.search.why.comparison import why_not
from tests.fuzz.run import patience
from tests.search.jobs import small_job
from tests.thorough import cases

ROOT = Path(__file__).resolve().parents[3]
Path_ = tuple[str | int, ...]
CHANGES = cases(300, sample=8)  # one of each kind of answer
PARTS = cases(60, sample=6)
KINDS = ("compared", "mixture", "formats", "given", "energy", "infeasible", "clashing", "hurried")
# Where another value makes another question or plan, of which everything else may be true as well.
FREE = ("job.", "knobs.", "plan.", "search.")
OPTIONAL = (("explain",), ("why_not",), ("assumptions",))


@pytest.fixture(scope="module")
def printed() -> str:
    """The answer for GPT-3, once for every test that changes a copy of it."""
    job = replace(asked("gpt3", 1024, 1536), limits=Limits(hbm=80e9, max_micro_batch=1))
    return json.dumps(plan(job, trials=0).to_dict())


@pytest.fixture
def document(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed)
    return found


def broken(document: dict[str, Any]) -> set[str]:
    return {finding.name for finding in verify(read_answer(json.dumps(document))).broken}


def asked(model: str, gpus: int, batch: int, **limits: Any) -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=2048,
        global_batch=batch,
        limits=Limits(**limits),
    )


@cache
def answers() -> dict[str, str]:
    """Answers as `optimize --json` prints them: dense, mixture, of two formats, infeasible, cut short, compared."""
    few = {"max_micro_batch": 2, "max_vpp": 4}
    dense, mixture = asked("llama3-8b", 8, 64, **few), asked("mixtral-8x7b", 16, 64, fixed={"etp": 1, "cp": 1}, **few)
    found = plan(dense, trials=8, top=3)
    assert found.plan is not None
    compared = json_text(
        found, ["cluster dgx-h100"], explain(dense, found.plan, found.knobs), why_not(dense, found, {"pp": 4})
    )
    formats = best_format(dense, ("fp8", "bf16"), lambda job: plan(job, trials=0, top=2))
    given = plan(asked("llama3-8b", 8, 64, fixed={"layout": "even"}, **few), trials=0, top=2)
    return {
        "compared": compared,
        "mixture": json_text(plan(mixture, trials=8, top=3)),
        "formats": json_text(formats),
        "given": json_text(given),
        "energy": json_text(plan(replace(mixture, minimize="energy"), trials=0, top=2)),
        "infeasible": json_text(plan(asked("llama3-70b", 2, 8, **few))),
        "clashing": json_text(plan(asked("llama3-8b", 8, 64, fixed={"tp": 3}, **few))),
        "hurried": json_text(plan(dense, time_limit=1e-9)),
    }


@pytest.mark.parametrize("trials", [0, 8])
def test_the_planner_s_own_answer_holds(gpt3_job: Job, trials: int) -> None:
    answer: Answer = plan(gpt3_job, trials=trials)
    found = verify(read_answer(json.dumps(answer.to_dict())))
    assert found.broken == ()
    assert answer.estimate is not None
    assert found.estimate is not None
    assert found.estimate.step_time == pytest.approx(answer.estimate.step_time, rel=1e-9)
    assert found.to_dict()["holds"] is True
    assert any("CP-SAT" in line for line in found.to_dict()["unchecked"])


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_answer_holds(name: str) -> None:
    assert verify(read_answer(answers()[name])).broken == ()


def test_what_is_not_checked_is_a_short_list_with_reasons() -> None:
    assert set(UNCHECKED) == {"search_s", "assumptions", "certificate.candidates", "certificate.layouts_solved"}
    found = verify(read_answer(answers()["compared"]))
    assert set(UNCHECKED) <= set(found.unchecked)
    assert len(found.unchecked) <= 8
    assert all(found.unchecked.values())


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every place in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, rng: random.Random) -> Any:
    """Another value of the same type; of a number, 1 % more, or nothing."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return rng.choice([text for text in (value + "x", value[:-1], "other") if text != value])
    if isinstance(value, int | float):
        other = type(value)(value * rng.choice((0.5, 1.01, 2, 1.00001)))
        return other if other != value else value + 1
    return 1


def tampered(document: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], Path_, bool]:
    """The document with one change, where that is, and whether something was left out."""
    other = copy.deepcopy(document)
    path = rng.choice(list(places(other)))
    table: Any = other
    for key in path[:-1]:
        table = table[key]
    last: Any = path[-1]
    if isinstance(table[last], dict | list) or rng.random() < 0.2:
        del table[last]
        return other, path, True
    table[last] = changed(table[last], rng)
    return other, path, False


def excused(document: dict[str, Any], path: Path_, dropped: bool, unchecked: set[str]) -> bool:
    """Whether an answer that the check accepts may have this change."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]
    if any(text == place or text.startswith((f"{place}.", f"{place}[")) for place in unchecked):
        return True
    if "by_format" in path and path[-1] in ("candidates", "layouts_solved"):
        return True
    if dropped:
        only_stage = path[-2:] == ("layers_per_stage", 0)  # of a plan that has one, which holds every layer anyhow
        return only_stage or path in OPTIONAL or path == ("alternatives", len(document["alternatives"]) - 1)
    return text.startswith(FREE) or (path[0] in ("alternatives", "formats") and path[2] in ("plan", "knobs"))


def test_any_single_change_is_found_or_lies_where_it_is_said_that_nothing_is_checked() -> None:
    rng = random.Random(0)
    documents = [json.loads(text) for text in answers().values()]
    for number in range(CHANGES):
        original = documents[number % len(documents)]
        document, path, dropped = tampered(original, rng)
        try:
            found = verify(read_answer(json.dumps(document)))
        except InputError:
            continue
        if not found.broken:
            assert excused(original, path, dropped, set(found.unchecked)), path
            check_same_price(original, document)


def check_same_price(original: dict[str, Any], document: dict[str, Any]) -> None:
    """A changed question or plan that passes costs what was said, and keeps the rules."""
    before, after = (read_answer(json.dumps(saved)) for saved in (original, document))
    if before.plan is None or after.plan is None:
        return
    seconds = [priced(saved.job, saved.plan, saved.knobs).step_time for saved in (before, after) if saved.plan]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)
    assert all(finding.holds for finding in rule_findings(after.job, after.plan, after.knobs))


def _change(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        table: Any = document
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = value

    return change


# Values that nothing else follows from: each is named, though others beside it are wrong as well.
LEAVES: tuple[tuple[Path_, Any, set[str]], ...] = (
    (("estimate", "step_time_s"), 5.0, {"estimate.step_time_s"}),
    (("estimate", "time_s", "gemm"), 1.0, {"estimate.time_s.gemm"}),
    (("estimate", "memory_bytes", "peak_reserved"), 1e9, {"estimate.memory_bytes.peak_reserved"}),
    (("estimate", "mfu"), 0.9, {"estimate.mfu"}),
    (("certificate", "lower_bound_s"), 7.0, {"certificate.lower_bound_s"}),
    (("certificate", "gap"), 0.5, {"certificate.gap"}),
    (("certificate", "run_bound_s"), 1.0, {"certificate.run_bound_s"}),
    (("certificate", "best_s"), 7.0, {"certificate.best_s"}),
    (("certificate", "space"), 17, {"certificate.space"}),
    (("certificate", "even_split_s"), 1.0, {"certificate.even_split_s"}),
    (("certificate", "knob_bound_s"), 1.0, {"certificate.knob_bound_s"}),
    (("certificate", "colour"), "red", {"certificate.colour"}),
    (("estimate", "interval_s"), [0.0, 1.0], {"estimate.interval_s[0]", "estimate.interval_s[1]"}),
    (("estimate", "interval_kind"), "measured", {"estimate.interval_kind"}),
    (("estimate", "hfu"), "high", {"estimate.hfu"}),
    (("estimate", "mfu_by_convention", "causal"), 0.9, {"estimate.mfu_by_convention.causal"}),
    (("near_ties", "within_1_percent"), 99, {"near_ties.within_1_percent"}),
    (("flags",), ["too good"], {"flags"}),
    (("conflict",), [{"rule": "memory"}], {"conflict"}),
    (("alternatives", 0, "slower"), 0.5, {"alternatives[0].slower"}),
    (("novelty",), 1, {"novelty"}),
)


@pytest.mark.parametrize(
    ("tamper", "names"),
    [
        (_change("plan", "tp", value=16), {"gpu-product", "tp-scale-up", "estimate.step_time_s", "certificate.best_s"}),
        (_change("plan", "micro_batch", value=5), {"batch"}),
        (_change("plan", "vpp", value=7), {"layers"}),
        (_change("plan", "schedule", value="1f1b"), {"schedule"}),
        (_change("plan", "zero_stage", value=3), {"zero-stage"}),
        (_change("plan", "layers_per_stage", value=[12] * 7 + [11]), {"layers per stage"}),
        (_change("job", "limits", "hbm", value=40e9), {"memory"}),
        (_change("job", "limits", "bubble", value=0.001), {"bubble"}),
        (_change("job", "limits", "fixed", value={"pp": 64}), {"fix pp=64"}),
        (_change("certificate", "proven", value=False), {"status", "certificate.method"}),
        (_change("certificate", value=None), {"certificate"}),
        (_change("status", value="feasible"), {"status"}),
        (_change("status", value="splendid"), {"status"}),
        (_change("job", "device", value="a100-80"), {"job.device"}),
        (_change("estimate", value=None), {"estimate"}),
    ],
)
def test_tampering_is_named(
    document: dict[str, Any], tamper: Callable[[dict[str, Any]], None], names: set[str]
) -> None:
    tamper(document)
    assert names <= broken(document)


def test_every_value_that_was_changed_is_named(document: dict[str, Any]) -> None:
    assert broken(document) == set()
    for path, value, _ in LEAVES:
        _change(*path, value=value)(document)
    assert set().union(*(names for _, _, names in LEAVES)) <= broken(document)


def test_what_agrees_is_neither_wrong_nor_unchecked_nor_empty(document: dict[str, Any]) -> None:
    whole = verify(read_answer(json.dumps(document)))
    assert {"estimate", "certificate", "alternatives"} <= whole.agreeing.keys()
    assert whole.agreeing.keys().isdisjoint({"search_s", "assumptions"} & whole.unchecked.keys())
    assert {"search_s", "assumptions"} <= whole.unchecked.keys()
    assert all(whole.agreeing.values())
    _change("certificate", "gap", value=0.5)(document)
    assert whole.agreeing.keys() - verify(read_answer(json.dumps(document))).agreeing.keys() == {"certificate"}


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    "rules",
    [
        {"interleaving": ("plan", "vpp"), "alternatives[4] interleaving": ("alternatives", 4, "plan", "vpp")},
        {"gpu-product": ("plan", "tp"), "zero-stage": ("plan", "zero_stage")},
    ],
)
def test_a_plan_of_absurd_size_is_refused_at_once(document: dict[str, Any], rules: dict[str, Path_]) -> None:
    document |= {"robust": {}}
    for place in rules.values():
        _change(*place, value=4000)(document)
    with patience():
        assert {*rules, "robust"} <= {part.partition(".")[0] for part in broken(document)}


@pytest.mark.parametrize("section", ["estimate", "certificate", "alternatives", "near_ties", "flags", "status"])
def test_what_is_missing_is_said(document: dict[str, Any], section: str) -> None:
    del document[section]
    assert section in broken(document)


def test_a_slower_plan_is_no_proven_optimum(document: dict[str, Any]) -> None:
    """The runner-up with its own figures keeps every rule and says its own price, but a faster plan was seen."""
    other = document["alternatives"][0]
    document |= {"plan": other["plan"], "estimate": other["estimate"]}
    assert "certificate.best_s" in broken(document)
    slower = other["estimate"]["step_time_s"]
    document["certificate"] |= {"best_s": slower, "lower_bound_s": slower}
    assert "certificate of bf16: bound" in broken(document)


def test_a_runner_up_that_was_passed_over_is_named(document: dict[str, Any]) -> None:
    del document["alternatives"][0]
    (finding,) = verify(read_answer(json.dumps(document))).broken
    assert finding.name == "alternatives"
    assert "faster than the slowest" in finding.reason


def test_a_plan_that_does_not_fit_or_is_no_better_was_not_passed_over() -> None:
    """Whatever the sweep's values are, which may be bounds: what is named was priced, and fits."""
    job = small_job(2, max_micro_batch=1, max_vpp=1)
    answer, swept = plan(job, trials=0, top=1, priced_risk=False, read_twice=False), sweep(job, structural(job))
    assert answer.plan is not None
    assert swept.points is not None
    points = replace(swept.points, values=0 * swept.points.values, fits=np.ones_like(swept.points.fits))
    main = SimpleNamespace(job=job, swept=replace(swept, points=points))
    assert _missing(main, answer.plan, answer.alternatives) is None  # type: ignore[arg-type]


def test_noise_is_what_is_little_beside_the_largest_number_of_its_table() -> None:
    assert not [*disagreements({"a": 1e-13, "b": 1.0}, {"a": 0.0, "b": 1.0}, ())]
    assert [*disagreements({"a": 1e-13, "b": "x"}, {"a": 0.0, "b": "x"}, ())]
    assert [*disagreements([1e-13], [0.0], ())]
    assert [*disagreements({"a": [1e-13]}, {"a": [0.0]}, ())]


def test_runners_up_stand_in_their_order(document: dict[str, Any]) -> None:
    document["alternatives"][:2] = reversed(document["alternatives"][:2])
    assert "alternatives[1]" in broken(document)
    document["alternatives"][1] = document["alternatives"][0]
    assert "alternatives[1]" in broken(document)


def test_a_plan_that_exists_is_not_denied() -> None:
    feasible, infeasible = (json.loads(answers()[name]) for name in ("compared", "infeasible"))
    document = infeasible | {"job": feasible["job"]}
    assert "certificate of bf16: no plan" in broken(document)


def test_of_a_conflict_cut_short_the_rules_and_their_numbers_are_checked() -> None:
    document = json.loads(answers()["infeasible"])
    job = read_answer(json.dumps(document)).job
    document["conflict"] = [asdict(clash) for clash in conflict(job, time_limit=0.0)]
    assert broken(document) == set()
    assert "conflict" in verify(read_answer(json.dumps(document))).unchecked
    (first, *others) = document["conflict"]
    for change, name in (
        ({"reason": "it rains"}, "conflict[0].reason"),
        ({"relaxation": "--hbm-limit 1"}, "conflict[0].relaxation"),
        ({"rule": "banana"}, "conflict"),
    ):
        assert name in broken(document | {"conflict": [first | change, *others, {**first, "rule": "x"}]})
    assert broken(document | {"conflict": [*others, first, first]}) == {"conflict"}


def test_rules_are_checked_by_their_own_check() -> None:
    job = small_job(8)
    findings = {item.name: item for item in rule_findings(job, Plan(tp=2, dp=4, micro_batch=1, num_microbatches=12))}
    assert all(item.holds for item in findings.values())
    findings = {item.name: item for item in rule_findings(job, Plan(tp=2, dp=4, micro_batch=1, num_microbatches=11))}
    assert {name for name, item in findings.items() if not item.holds} == {"batch"}
    assert "48 sequences" in findings["batch"].reason


def test_without_claims_only_rules_are_checked() -> None:
    job = small_job(8)
    found = verify(SavedAnswer(job=job, plan=Plan(tp=2, dp=4, num_microbatches=12)))
    assert found.broken == ()
    assert found.claims == ()
    assert found.unchecked == {}


def test_no_solver_is_loaded(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    code = (
        "import sys\nfrom optimizer.answer.reading import read_answer\n"
        "from optimizer.search.check.verification import verify\n"
        f"assert not verify(read_answer(open({str(path)!r}).read())).broken\n"
        "assert not {'ortools', 'optuna'} & {name.split('.')[0] for name in sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def transplanted(document: dict[str, Any], other: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], Path_]:
    """The document with parts of another answer, or of its own runner-up, in their places; one of the places."""
    found, paths = copy.deepcopy(document), []
    donor = rng.choice([other, *(document["alternatives"] or [other])])
    shared = [name for name in donor if name in found and donor[name] != found[name] and name not in UNCHECKED]
    for name in rng.sample(shared, k=min(len(shared), rng.randint(1, 3))):
        found[name] = copy.deepcopy(donor[name])
        paths.append((name,))
    return found, paths[0] if paths else ()


def test_parts_of_other_answers_do_not_pass_for_its_own() -> None:
    """Plan, estimate and knobs of a runner-up under the winner's certificate; parts of answers to other questions."""
    rng = random.Random(1)
    documents = [json.loads(text) for text in answers().values()]
    for number in range(PARTS):
        original, other = documents[number % len(documents)], rng.choice(documents)
        document, path = transplanted(original, other, rng)
        if not path or document == original or set(document["search"]) != set(original["search"]):
            continue
        try:
            found = verify(read_answer(json.dumps(document)))
        except InputError:
            continue
        if not found.broken:
            check_same_price(original, document)
            assert document["plan"] == original["plan"], path
            assert document["job"] != original["job"] or document["certificate"] == original["certificate"], path


@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_a_faster_best_and_its_bound_alike_are_no_proof(document: dict[str, Any], seconds: float) -> None:
    document["certificate"] |= {"best_s": seconds, "lower_bound_s": seconds}
    assert {"certificate.best_s", "certificate.lower_bound_s"} <= broken(document)


def test_a_runner_up_is_no_better_for_being_unproven(document: dict[str, Any]) -> None:
    """With every figure of its own, its certificate says what is not so: that CP-SAT's search was cut short there."""
    other = document["alternatives"].pop(0)
    seconds = other["estimate"]["step_time_s"]
    document |= {name: other[name] for name in ("plan", "knobs", "estimate")} | {"status": "feasible"}
    document["certificate"] |= {"best_s": seconds, "lower_bound_s": seconds, "proven": False}
    assert "certificate of bf16: bound" in broken(document)


@pytest.mark.parametrize(("key", "value"), [("trials", 10**6), ("seed", 2**31), ("trials", -1)])
def test_numbers_of_the_search_are_within_their_options(document: dict[str, Any], key: str, value: int) -> None:
    document["search"][key] = value
    with pytest.raises(InputError, match=f"search.{key}"):
        read_answer(json.dumps(document))
