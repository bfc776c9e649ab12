"""The views of the Plan room: their numbers are the engine's."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog.offers import book_of
from optimizer.constraints.rules.every import STRUCTURAL, structural
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.page.plan.engine import answered, first, offer_of
from optimizer.page.plan.own_files import sealed
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.answer import answer_view, proven_view
from optimizer.page.plan.views.cells import FITS, FORBIDDEN, FULL, cells, forbidding, map_values
from optimizer.page.plan.views.compared import difference_chart, distance, measured, nearest
from optimizer.page.plan.views.every import VIEWS
from optimizer.page.plan.views.paste import paste_view
from optimizer.page.plan.views.shown import fragment
from optimizer.page.plan.views.studies import counts, ends, pipeline_chart, scaling_chart, sensitivity_chart
from optimizer.purchase.price.run_cost import rental
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.planner import plan
from optimizer.search.why.comparison import pinned_job, why_not
from optimizer.search.why.what_binds import sensitivity
from optimizer.studies.scaling import scaling
from optimizer.studies.timeline import timeline_of

ROOT = Path(__file__).resolve().parents[2]
GPT3 = PlanQuestion(gpus=64)
LLAMA = PlanQuestion(model="llama3-8b", gpus=64)


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
    assert (early["title"], early["locks"], late["pending"]) == (late["title"], late["locks"], False)
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
    found = {(cell.tp, cell.pp): cell for cell in cells(job)}
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
    assert chart.figure["data"][0]["x"] == [100 * effect.gain for effect in found.effects]
    assert found.effects[0].variation.name in chart.words


def test_mine_differs_by_what_the_engine_says() -> None:
    answer = answered(GPT3).answer
    one = why_not(answer.job, answer, {"tp": 4})
    chart = difference_chart("mine-0", one)
    assert sum(chart.figure["data"][0]["x"]) == pytest.approx(
        one.estimate.step_time - answer.estimate.step_time, abs=0.01 * answer.estimate.step_time
    )
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


@pytest.mark.parametrize("view", [name for name in VIEWS if name not in ("launch.zip",)])
def test_a_question_without_a_plan_has_every_view(view: str) -> None:
    assert VIEWS[view](PlanQuestion(gpus=8))


def test_a_script_becomes_a_question_with_its_plan_as_mine() -> None:
    found = paste_view(PlanQuestion(), (ROOT / "examples" / "llama3-8b.sh").read_bytes())
    assert "model=llama3-8b&gpus=64" in found["address"]
    assert "mine=tp%3D2%2Cpp%3D1%2Crecompute%3Dfull%2Czero_stage%3D1" in found["address"]
    assert "2.38 s per step" in found["html"]


def test_a_log_becomes_a_question() -> None:
    found = paste_view(PlanQuestion(model="llama3-8b"), (ROOT / "examples" / "slow-run.log").read_bytes())
    assert "gpus=64" in found["address"]
    assert "steady step" in found["html"]
    assert "8.31 s" in found["html"]


def test_a_pasted_text_opens_no_file_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.sh"
    secret.write_text("torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for text in (f"source {secret}\n", "source ./secret.sh\n", f"torchrun train.py --config-file {secret}\n"):
        with pytest.raises(InputError) as caught:
            paste_view(PlanQuestion(), text.encode())
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
        paste_view(PlanQuestion(), json.dumps({"pasted": [["", text]]}).encode())


def test_what_is_too_large_or_empty_is_refused() -> None:
    for body, message in ((b"", "nothing was pasted"), (b"#" * 2_000_001, "at most 2 MB")):
        with pytest.raises(InputError, match=message):
            paste_view(PlanQuestion(), body)
