"""Whatever the memory terms are, layouts have the bytes that their price says, and answers fit as surely as asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.model import Experts, Model
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.recomputation import MODES, MODULES
from optimizer.job.stack import Features
from optimizer.objectives.arrays import FloatArray, mapped
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, LAYERS, MOE, placed_stages
from optimizer.objectives.step.explain import explain
from optimizer.objectives.step.host_memory import most_offload, on_host
from optimizer.objectives.step.linear_stage import linear_stage, stage_memory
from optimizer.objectives.step.memory_term import MemoryTerm, memory_term
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.safe_memory import chance_to_fit, safe_memory
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.layouts.least_memory import LeastMemory
from optimizer.search.layouts.problem import layout_problem
from optimizer.search.layouts.solve.layout import best_assignment, placed_layout
from optimizer.search.layouts.solve.least_memory import fitting_layout, least_memory_layout
from optimizer.search.plan.planner import plan
from tests.search.jobs import DENSE as SMALL
from tests.search.jobs import MIXTURE, ZERO_BUBBLE, jobs, small_job
from tests.thorough import cases, sampled

EVERYTHING = Features(
    selective="qkv",
    selective_on_host=True,
    param_bytes=0,
    gathers_layers=False,
    grad_bytes=2,
    optimizer_bytes=8,
    zero_stages=(0, 1, 2, 3),
    schedules=("1f1b", "interleaved", *ZERO_BUBBLE),
    recompute=MODES,
    recompute_modules=MODULES,
    activation_offload=True,
    gathered_logits=True,
    offers_overlap=True,
)
MODELS: tuple[Model, ...] = (
    SMALL,
    replace(MIXTURE, mtp_layers=1),
    replace(MIXTURE, experts=Experts(count=8, top_k=2, ffn_hidden=1024, every=2)),
)


@settings(max_examples=cases(60, sample=8), deadline=None)
@given(jobs(), st.sampled_from([0.0, 0.3]))
def test_bytes_are_the_same_where_no_time_is_told(job: Job, offload: float) -> None:
    plans = next(lattice(job, [rule for rule in structural(job) if rule.name != "bubble"], chunk=500), None)
    assume(plans is not None)
    assert plans is not None
    timed, untimed = (layer_costs_of(job, plans, timed=each) for each in (True, False))
    for here, there in zip(leaves(linear_stage(timed, offload)), leaves(linear_stage(untimed, offload)), strict=True):
        np.testing.assert_array_equal(here, there)
    np.testing.assert_array_equal(most_offload(timed), most_offload(untimed))


def leaves(value: object) -> list[FloatArray]:
    """Every column of what many plans take."""
    columns: list[FloatArray] = []
    mapped(value, columns.append)
    return columns


def of_stage(layer_costs: LayerCosts) -> FloatArray:
    """Rings of a stage [B]: 0.4 GB. Source: made up."""
    return np.full(len(layer_costs), 0.4e9)


def of_element(layer_costs: LayerCosts) -> tuple[FloatArray, FloatArray]:
    """A third moment [B]: 4 B an element. Source: made up."""
    return np.full(len(layer_costs), 4.0), np.full(len(layer_costs), 3.0)


def of_layer(layer_costs: LayerCosts, kind: str) -> FloatArray:
    """Graphs of a layer [B]: 0.1 GB, of an MoE layer more, of the ends less. Source: made up."""
    return np.full(len(layer_costs), {DENSE: 0.1e9, MOE: 0.15e9, EMBEDDING: 0.02e9, HEAD: 0.07e9}.get(kind, 0.05e9))


def of_microbatch(layer_costs: LayerCosts, kind: str) -> FloatArray:
    """Routing of a layer [B]: 20 MB for a micro-batch. Source: made up."""
    return np.full(len(layer_costs), 20e6 * (kind in LAYERS))


TERMS = {
    "fixed": memory_term("rings", "rings", per_stage={"each": of_stage}),
    "fixed, fragments": memory_term("rings", "rings", per_stage={"each": of_stage}, fragments=True),
    "element": memory_term("third", "third moment", per_element=of_element),
    "element, offloadable": memory_term("third", "third moment", per_element=of_element, offloadable=True),
    "layer": memory_term("graphs", "graphs", per_layer=of_layer),
    "layer, fragments": memory_term("graphs", "graphs", per_layer=of_layer, fragments=True),
    "layer, freed early": memory_term(
        "graphs", "graphs", per_layer=of_layer, free_early=lambda _: True, fragments=True
    ),
    "layer, offloadable": memory_term("graphs", "graphs", per_layer=of_layer, offloadable=True),
    "in flight": memory_term("routing", "routing", in_flight=of_microbatch),
    "in flight, less if recomputed": memory_term(
        "routing",
        "routing",
        in_flight=of_microbatch,
        recomputed=lambda layer_costs, kind: of_microbatch(layer_costs, kind) / 4,
        fragments=True,
    ),
}


@pytest.fixture(params=["none", *TERMS])
def term(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryTerm | None:
    """Another term in the registry, of each sort."""
    if request.param == "none":
        return None
    added = TERMS[request.param]
    assert isinstance(MEMORY_TERMS, dict)
    monkeypatch.setitem(MEMORY_TERMS, added.name, added)
    return added


@cache
def drawn(job: Job, count: int, seed: int) -> tuple[tuple[Plan, Knobs], ...]:
    """Random plans of the lattice with random layouts: cuts, recomputed layers, MTP layers before the last stage."""
    return tuple(_drawn(job, count, seed))


def _drawn(job: Job, count: int, seed: int) -> Iterator[tuple[Plan, Knobs]]:
    random, free = np.random.default_rng(seed), job.with_limits(bubble=1.0, hbm=1e12)
    every = Plans.joined(list(lattice(free, structural(free))))
    for index in random.integers(0, len(every), count).tolist():
        some = every.plan(index)
        stages = some.pp * some.vpp
        cuts = np.sort(random.integers(0, job.model.layers + 1, stages - 1))
        layers = tuple(int(n) for n in np.diff([0, *cuts, job.model.layers]))
        held, full = np.array(layers).reshape(some.vpp, some.pp).sum(axis=0), some.recompute == "full"
        yield (
            replace(
                some,
                layers_per_stage=layers,
                recompute_layers=tuple(int(random.integers(0, n + 1)) for n in held) if full else (),
                mtp_ahead=int(random.integers(0, 2)) if job.model.mtp_layers and stages > 2 else 0,
            ),
            Knobs(offload=float(random.choice([0.0, 0.3]))),
        )


def reserved(job: Job, some: Plan, knobs: Knobs) -> list[float]:
    """What the price says that each stage reserves [B]."""
    plans = Plans.of([some])
    memory = stage_memory(layer_costs_of(job, plans), placed_stages(job.model, plans), knobs)
    return [float(size) for size in memory.reserved[:, 0]]


@pytest.mark.parametrize(("features", "model"), sampled(product((Features(), EVERYTHING), MODELS), 2))
def test_layouts_have_the_bytes_that_their_price_says(
    term: MemoryTerm | None, features: Features, model: Model
) -> None:
    job = small_job(8, model=model, features=replace(features, recompute_by="stage"), max_vpp=3)
    for some, knobs in drawn(job, cases(12, sample=2), seed=len(model.name)):
        layout = placed_layout(layout_problem(job, some, knobs), some.placement)
        assert layout.memory == pytest.approx(reserved(job, some, knobs), rel=1e-9), some
        there = float(on_host(layer_costs_of(job, Plans.of([some])), knobs)[0])
        assert max(layout.on_host) == pytest.approx(there, rel=1e-9), some


@pytest.mark.parametrize(
    ("term", "features"),
    [
        pytest.param(name, features, id=f"{name}-{'plain' if features == Features() else 'everything'}")
        for name, features in sampled(product(("none", *TERMS), (Features(), EVERYTHING)), 3)
    ],
    indirect=["term"],
)
def test_an_answer_fits_as_surely_as_asked(term: MemoryTerm | None, features: Features) -> None:
    """Its price, its layout and its chance agree, where memory binds."""
    question = small_job(4, model=MIXTURE, features=features, bubble=1.0, oom_risk=0.1, max_vpp=2, max_micro_batch=1)
    least, _ = LeastMemory(knobs=Knobs()).least(question, lattice(question, structural(question)))
    usable = 1.1 * least * question.usable_memory / safe_memory(question)
    job = question.with_limits(hbm=usable + question.stack["context_memory"])
    answer = plan(job, trials=0, top=0, priced_risk=False, explained=False)
    assert answer.plan is not None
    assert answer.certificate is not None
    assert answer.certificate.proven
    peak = max(reserved(job, answer.plan, answer.knobs))
    assert answer.estimate is not None
    assert answer.estimate.reserved == pytest.approx(peak, rel=1e-9)
    assert chance_to_fit(job, peak) >= 0.9
    problem = layout_problem(job, replace(answer.plan, layers_per_stage=(), recompute_layers=()), answer.knobs)
    assert max(best_assignment(problem).memory) <= safe_memory(job)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}-{model.mtp_layers}")
def test_bounds_and_the_least_memory_count_every_term(term: MemoryTerm | None, model: Model) -> None:
    """No layout has less than the bound; the least that the search finds is what its price says, and fits."""
    job = small_job(8, model=model, features=replace(EVERYTHING, recompute_by="stage"), max_vpp=1)
    search = LeastMemory(knobs=Knobs())
    for some, _ in drawn(job, cases(6, sample=2), seed=7):
        free = replace(some, layers_per_stage=(), recompute_layers=(), mtp_ahead=0)
        bound = float(search.bounds(job, Plans.of([free]))[0])
        problem = replace(layout_problem(job, free), usable=1e12)
        layout = least_memory_layout(problem, bound)
        assert layout is not None
        assert bound <= max(layout.memory) <= max(reserved(job, some, Knobs())) * (1 + 2e-6)
        assert max(layout.memory) == pytest.approx(max(reserved(job, layout.of(free), Knobs())), rel=1e-9)
        assert fitting_layout(replace(problem, usable=max(layout.memory) * (1 + 1e-5))) is not None
        assert fitting_layout(replace(problem, usable=max(layout.memory) * (1 - 1e-4))) is None


def test_a_new_term_is_explained_with_what_was_executed(term: MemoryTerm | None) -> None:
    if term is None:
        return
    some = Plan(tp=2, pp=2, dp=2, num_microbatches=4, layers_per_stage=(7, 5))
    found = next(each for each in explain(small_job(8), some) if each.name == term.name)
    memory = stage_memory(layer_costs_of(small_job(8), Plans.of([some])), placed_stages(SMALL, Plans.of([some])))
    fullest = int(memory.reserved[:, 0].argmax())
    assert found.value == pytest.approx(float(np.broadcast_to(memory.terms[term.name], (2, 1))[fullest, 0]))
    assert found.source == "made up" or term.name == "routing"


def test_only_states_are_offloadable_and_only_what_fragments_is_freed_early() -> None:
    with pytest.raises(ValueError, match="rings: what is offloadable takes bytes per element or layer"):
        memory_term("rings", "rings", per_stage={"each": of_stage}, offloadable=True)
    with pytest.raises(ValueError, match="graphs: what is freed before anything is recomputed fragments"):
        memory_term("graphs", "graphs", per_layer=of_layer, free_early=lambda _: True)


def test_one_term_says_what_is_held_while_layers_are_recomputed() -> None:
    terms = [term for term in MEMORY_TERMS.values() if term.in_flight]
    assert sum(bool(term.modules or term.whole) for term in terms) == 1


def test_a_term_of_two_sorts_is_refused() -> None:
    def stage(layer_costs: LayerCosts) -> FloatArray:
        return np.full(len(layer_costs), 1.5e9)

    def layer(layer_costs: LayerCosts, kind: str) -> FloatArray:
        return np.full(len(layer_costs), 2e7)

    with pytest.raises(ValueError, match="two sorts are two terms"):
        memory_term("profiler", "profiler", per_stage={"each": stage}, per_layer=layer)
