"""The views of the Plan room: their numbers are the engine's."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_model, model_names
from optimizer.catalog.offers import book_of
from optimizer.catalog.readers.model_file import model_text
from optimizer.catalog.sealed import sealed
from optimizer.constraints.rules.every import STRUCTURAL, structural
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.page.improve.question import LaunchQuestion
from optimizer.page.improve.question import asked as launch_asked
from optimizer.page.improve.view import improve_view
from optimizer.page.plan.engine import answered, first, offer_of
from optimizer.page.plan.question import PlanQuestion, asked
from optimizer.page.plan.views.answer import answer_view, proven_view
from optimizer.page.plan.views.compared import difference_chart, distance, measured, nearest
from optimizer.page.plan.views.map import map_values, valued
from optimizer.page.plan.views.shown import fragment
from optimizer.page.plan.views.studies import counts, ends, pipeline_chart, scaling_chart, sensitivity_chart
from optimizer.page.studies.question import asked as study_asked
from optimizer.page.studies.view import board_page, buy_view, designs_csv, designs_json, fits_view
from optimizer.page.tabs import tabs_of
from optimizer.page.views import VIEWS
from optimizer.purchase.price.run_cost import rental
from optimizer.reports.charts.palette import BLUE, ORANGE
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.planner import plan
from optimizer.search.why.comparison import pinned_job, why_not
from optimizer.search.why.what_binds import sensitivity
from optimizer.studies.cells import FITS, FORBIDDEN, FULL, cells, forbidding
from optimizer.studies.scaling import scaling
from optimizer.studies.timeline import timeline_of

ROOT = Path(__file__).resolve().parents[2]
GPT3 = PlanQuestion(gpus=64)
LLAMA = PlanQuestion(model="llama3-8b", gpus=64)
OWN_SHAPE = ("--num-layers 32", "--num-layers 30")


def views_of_plan() -> tuple[str, ...]:
    plan_tab = tabs_of(None)[0]
    return (*plan_tab.opening, *plan_tab.later, *plan_tab.taken)


def test_every_view_of_every_tab_is_there() -> None:
    assert {view for tab in tabs_of(None, "some.db") for view in (*tab.opening, *tab.later, *tab.taken)} == set(VIEWS)


def test_the_answer_is_that_of_the_command_line() -> None:
    found = answered(LLAMA).answer
    job, _ = LLAMA.job()
    direct = plan(job, trials=0)
    assert (found.plan, found.knobs, found.estimate) == (direct.plan, direct.knobs, direct.estimate)
    assert answered(LLAMA, whole=True).answer.to_dict() | {"search_s": 0} == direct.to_dict() | {"search_s": 0}


@pytest.mark.parametrize("asked", [GPT3, LLAMA, PlanQuestion(gpus=8)])
def test_the_first_answer_is_the_proven_one_and_claims_no_proof(asked: PlanQuestion) -> None:
    found, direct = first(asked).answer, answered(asked).answer
    assert (found.plan, found.knobs, found.estimate, found.flags) == (
        *(direct.plan, direct.knobs, direct.estimate, direct.flags),
    )
    early, late = answer_view(asked), proven_view(asked)
    assert (early["title"], early["put"], late["pending"]) == (late["title"], late["put"], False)
    if direct.plan:
        assert (found.certificate, early["pending"]) == (None, True)
        assert "roven optimal" not in early["answer"]
        assert "lower bound" not in early["answer"]
        assert "Proven optimal" in late["answer"]
    else:
        assert early == late


def test_the_run_is_priced_as_asked_or_at_the_median_offer() -> None:
    answer = answered(LLAMA).answer
    asked, usual = offer_of(replace(LLAMA, price=7.2), answer), offer_of(LLAMA, answer)
    assert asked is not None
    assert asked.value == pytest.approx(0.002)
    assert usual == book_of().rent("h100", "dgx-h100")
    budget = answered(replace(LLAMA, price=7.2)).budget
    of_the_run = {"params": answer.job.model.params, "cluster": "dgx-h100"}
    assert budget.charged(3600.0)[1] == rental(3600.0, LLAMA.gpus, 8, asked, **of_the_run).cost


def test_every_assumption_leads_to_its_control() -> None:
    html = answer_view(LLAMA)["answer"]
    for control in ("cluster", "seq_len", "global_batch", "stack"):
        assert f'href="#in-{control}"' in html
    assert 'href="#in-routing"' in answer_view(PlanQuestion(model="mixtral-8x7b", gpus=64))["answer"]
    given = answer_view(replace(LLAMA, cluster="dgx-h100", stack="megatron-core", seq_len=4096, global_batch=512))
    assert "nothing: every input was given" in given["answer"]


@pytest.mark.parametrize("asked", [GPT3, LLAMA, replace(GPT3, fix=(("pp", 8),))])
def test_the_map_agrees_with_the_best_plan_and_its_rules(asked: PlanQuestion) -> None:
    job = answered(asked).answer.job
    found = {(cell.tp, cell.pp): cell for cell in cells(job, valued(answered(asked).answer))}
    for (tp, pp), cell in found.items():
        held = pinned_job(job, {"tp": tp, "pp": pp}) if not job.limits.fixed else job
        there = any(len(p.take((p.tp == tp) & (p.pp == pp))) for p in lattice(held, structural(held)))
        assert there == (cell.kind != FORBIDDEN)
        if cell.kind == FULL:
            assert cell.reserved > safe_memory(job)
        if cell.kind == FORBIDDEN and job.limits.fixed.get("pp", pp) != pp:
            assert cell.why == "fix pp=8: you asked for pp=8"
        elif cell.kind == FORBIDDEN:
            assert cell.why.split(":")[0] in {rule.name for rule in STRUCTURAL}
    best = answered(asked).answer
    fastest = min((cell for cell in found.values() if cell.kind == FITS), key=lambda cell: cell.value, default=None)
    assert (fastest is None) == (best.plan is None)
    if fastest and best.plan:
        assert fastest.value >= best.estimate.step_time * (1 - 1e-9)
        assert (fastest.tp, fastest.pp) == (best.plan.tp, best.plan.pp)


def test_views_say_what_is_minimised() -> None:
    asked = replace(LLAMA, minimize="energy", prefer="fast")
    html, job = proven_view(asked)["answer"], answered(asked).answer.job
    assert "Minimises energy: " in html
    assert '<option value="energy"' not in html
    assert "Less efficient" in html
    assert "Slower" not in html
    values = map_values(job, cells(job))
    assert values["title"].startswith("The best energy of each TP and PP")
    assert values["words"].startswith("Most efficient with TP")
    assert values["words"].endswith("J.")


def test_the_map_names_the_rule_that_forbids() -> None:
    job = answered(GPT3).answer.job
    assert forbidding(job, 16, 1).startswith("tp-scale-up: tp must be at most 8")
    assert forbidding(job, 1, 96).startswith("gpu-product: ")


def test_the_map_hatches_what_does_not_fit() -> None:
    job = answered(GPT3).answer.job
    found = cells(job)
    values = map_values(job, found)
    assert [cell for _, line in values["lines"] for cell, _ in line] == found
    html = fragment("map.html", **values)
    assert html.count('class="n memory"') == sum(cell.kind == FULL for cell in found) > 0
    assert html.count(' fastest"') == 1
    assert len(values["rows"]) == len(found)


def test_the_pipeline_draws_both_ends_and_nothing_between() -> None:
    answer = answered(replace(LLAMA, fix=(("pp", 2), ("micro_batch", 1), ("tp", 2)), global_batch=2048)).answer
    study = timeline_of(answer.job, answer.plan, answer.knobs)
    count = answer.plan.num_microbatches
    near = ends(count, sum(len(stage.passes) for stage in study.timeline.stages))
    assert 2 * near < count
    chart = pipeline_chart(study, near)
    drawn = {text.partition(":")[0].partition(",")[0] for trace in chart.figure["data"] for text in trace["hovertext"]}
    assert drawn == {f"micro-batch {at}" for at in (*range(near), *range(count - near, count))}
    assert f"first and last {near} of {count}" in chart.words


def test_scaling_has_a_point_for_every_number_of_gpus() -> None:
    job = answered(LLAMA).answer.job
    study = scaling(job, counts(job)[:2])
    chart = scaling_chart(study)
    assert [list(trace["x"]) for trace in chart.figure["data"]] == [[16, 32], [16, 32]]
    with pytest.raises(InputError, match="DP is pinned"):
        VIEWS["scaling"](replace(LLAMA, fix=(("dp", 8),)))


def test_sensitivity_draws_every_effect() -> None:
    found = sensitivity(answered(LLAMA).answer.job)
    chart = sensitivity_chart(found)
    (bars,) = chart.figure["data"]
    assert bars["x"] == [100 * effect.gain for effect in found.effects]
    assert bars["marker"]["color"] == [BLUE if effect.gain >= 0 else ORANGE for effect in found.effects]
    assert found.effects[0].variation.name in chart.words


def test_mine_differs_by_what_the_engine_says() -> None:
    answer = answered(GPT3).answer
    one = why_not(answer.job, answer, {"tp": 4})
    chart = difference_chart("mine-0", one)
    (bars,) = chart.figure["data"]
    assert bars["marker"]["color"] == [BLUE if more <= 0 else ORANGE for more in bars["x"]]
    assert sum(bars["x"]) == pytest.approx(
        one.estimate.step_time - answer.estimate.step_time, abs=0.01 * answer.estimate.step_time
    )
    html = VIEWS["mine"](replace(LLAMA, mine=("tp=1,cp=1,pp=8,vpp=1,micro_batch=4",)))["html"]
    assert "% worse" in html  # though beyond the ceiling of the bubble, which is said
    assert "must be at most 0.1" in html
    html = VIEWS["mine"](replace(GPT3, mine=("tp=4", "tp=16")))["html"]
    assert "tp-scale-up" in html
    assert html.index("tp=4") < html.index("tp=16")


def test_the_nearest_runs_are_near_and_clean() -> None:
    job = answered(PlanQuestion()).answer.job
    found = nearest(job, measured())
    assert all(run.step_time and not run.doubted for run in found)
    gaps = [distance(job, run.job) for run in found]
    assert gaps == sorted(gaps)
    assert gaps[0] == min(distance(job, run.job) for run in measured())
    assert distance(job, job) == 0


@pytest.mark.parametrize("view", [name for name in views_of_plan() if name != "launch.zip"])
def test_a_question_without_a_plan_has_every_view(view: str) -> None:
    assert VIEWS[view](PlanQuestion(gpus=8))


def test_a_script_is_priced_and_becomes_a_question_with_its_plan_as_mine() -> None:
    script = (ROOT / "examples" / "llama3-8b.sh").read_bytes()
    found = improve_view(LaunchQuestion(), script)
    assert "model=llama3-8b&gpus=64" in found["plan"]
    assert asked(parse_qsl(found["plan"])).mine == (
        "tp=2,cp=1,pp=1,vpp=1,micro_batch=1,recompute=full,zero_stage=1",
    )  # what runs, not the best that has some of it
    assert "2.34 s per step" in found["title"]
    for heading in ("Understood", "What to change", "Assumed", "The best single edit", "All of them"):
        assert heading in found["answer"]
    assert found["answer"].count("--- pasted.sh") == 3
    again = improve_view(launch_asked(parse_qsl(found["address"])))
    assert (again["answer"], again["address"]) == (found["answer"], found["address"])


def test_a_model_that_is_no_preset_is_planned_as_it_was_read() -> None:
    script = (ROOT / "examples" / "llama3-8b.sh").read_text(encoding="utf-8")
    assert OWN_SHAPE[0] in script
    found = improve_view(LaunchQuestion(), script.replace(*OWN_SHAPE).encode())
    job, _ = (planned := asked(parse_qsl(found["plan"]))).job()
    assert (job.model.layers, job.model.hidden, job.gpus) == (30, 4096, 64)
    answer = proven_view(planned)["answer"]
    assert "--model ./model.toml" in answer
    assert 'download="model.toml"' in answer  # what the command names


def test_a_machine_that_was_guessed_is_said_and_can_be_picked() -> None:
    script = re.sub("^.*h100.*$", "", (ROOT / "examples" / "llama3-8b.sh").read_text(encoding="utf-8"), flags=re.M)
    guessed, picked = (improve_view(LaunchQuestion(cluster=name), script.encode()) for name in ("", "dgx-a100-80"))
    assert "No file names the machine" in guessed["answer"]
    assert "No file names the machine" not in picked["answer"]
    assert "dgx-a100-80" in picked["plan"]


def test_a_log_becomes_a_question_and_with_its_script_the_causes() -> None:
    log = (ROOT / "examples" / "slow-run.log").read_text(encoding="utf-8")
    found = improve_view(LaunchQuestion(model="llama3-8b"), log.encode())
    assert "gpus=64" in found["plan"]
    assert "steady part" in found["answer"]
    assert "8.31 s" in found["title"]
    script = (ROOT / "examples" / "llama3-8b.sh").read_text(encoding="utf-8").replace("BATCH=256", "BATCH=512")
    held = improve_view(LaunchQuestion(), json.dumps({"pasted": [["run.sh", script], ["run.log", log]]}).encode())
    assert "Measured against predicted" in held["answer"]
    assert "likely" in held["answer"]
    assert held["answer"].count("--- run.sh") == 3
    assert held["plan"].startswith("model=llama3-8b&gpus=64")
    assert "read run.log --script run.sh" in held["answer"]
    assert held["answer"].count("Assumed") == 1
    assert "/tmp" not in held["answer"] + held["title"]


def test_every_model_written_as_a_file_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    for name in model_names():
        path.write_text(model_text(load_model(name)), encoding="utf-8")
        assert load_model(path) == load_model(name)


def test_buy_answers_as_the_command_does_and_prices_are_edited_in_place() -> None:
    asks = study_asked("buy", [("model", "llama3-8b"), ("tokens", "1e12"), ("hardware", "h100"), ("gpus", "64,128")])
    found = buy_view(asks)
    assert "The choices that nothing beats" in found["answer"]
    assert 'name="rent.h100"' in found["put"]["rent"]
    typed = study_asked("buy", [*parse_qsl(asks.address()), ("rent.h100", "1"), ("rent.b200", "1")])
    assert typed.flags() == f"{asks.flags()} --rent h100=1"
    assert typed.searched == asks.searched
    assert buy_view(typed)["answer"] != found["answer"]
    assert b"Which machines to take" in board_page(typed)
    bought = study_asked("buy", [*parse_qsl(asks.address()), ("buy", "yes"), ("purchase.h100", "1000")])
    assert bought.flags() == f"{asks.flags()} --buy --purchase h100=1000"
    assert buy_view(bought)["answer"] != found["answer"]
    assert json.loads(designs_json(asks))["command"] == asks.flags()
    assert designs_csv(asks).count(b"\n") == 3


def test_prices_beside_the_fields_are_those_that_the_report_counts_with() -> None:
    asks = study_asked(
        "buy", [("model", "llama3-8b"), ("tokens", "1T"), ("hardware", "h100,gb200-nvl72"), ("gpus", "64,72")]
    )
    prices = [each["price"] for each in json.loads(designs_json(asks))["quotes"]]
    shown = buy_view(asks)["put"]["rent"]
    assert [f'"{3600 * price:,.2f}, ' in shown for price in prices] == [True, True]
    for pairs, told in (
        ([("model", "/etc/passwd")], "unknown model"),
        ([("hardware", "h100,./x.toml")], "unknown hardware './x.toml'"),
        ([*parse_qsl(asks.address()), ("rent.h100", "-1")], "rent h100=-1"),
        ([*parse_qsl(asks.address()), ("deadline", "soon")], "deadline"),
    ):
        with pytest.raises(InputError, match=told):
            buy_view(study_asked("buy", pairs))


def test_fits_answers_as_the_command_does() -> None:
    found = fits_view(study_asked("fits", [("model", "llama3-8b"), ("cluster", "h100"), ("context", "2048")]))
    assert "what fits" in found["title"]
    assert "qlora" in found["answer"]


def test_a_pasted_text_opens_no_file_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.sh"
    secret.write_text("torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for text in (f"source {secret}\n", "source ./secret.sh\n", f"torchrun train.py --config-file {secret}\n"):
        with pytest.raises(InputError) as caught:
            improve_view(LaunchQuestion(), text.encode())
        assert "hidden" not in str(caught.value).replace("--hidden-size, ", "")


def test_sealed_lets_through_the_folder_and_the_program_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "file").write_text("x", encoding="utf-8")
    with sealed(inside):
        (inside / "file").write_text("y", encoding="utf-8")
        assert (inside / "file").read_text(encoding="utf-8") == "y"
        for deed in (
            lambda: (outside / "file").read_text(encoding="utf-8"),
            lambda: (inside / ".." / "out" / "file").read_bytes(),
            lambda: os.listdir(outside),
            lambda: os.system("true"),
        ):
            with pytest.raises(PermissionError, match="a pasted text may not open"):
                deed()
    assert (outside / "file").read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(
    ("text", "kind"),
    [('{"a":', "line 1, column 6: not JSON"), ('{"a": 1}', "no launch"), ("[device]\nmemory = 1", "no launch")],
)
def test_what_is_no_launch_is_refused_as_what_it_looks_like(text: str, kind: str) -> None:
    with pytest.raises(InputError, match=kind):
        improve_view(LaunchQuestion(), json.dumps({"pasted": [["", text]]}).encode())


def test_what_is_too_large_or_empty_is_refused() -> None:
    for body, message in ((b'{"pasted": [["", ""]]}', "nothing was pasted"), (b"#" * 2_000_001, "at most 2 MB")):
        with pytest.raises(InputError, match=message):
            improve_view(LaunchQuestion(), body)
