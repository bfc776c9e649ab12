"""What lies exactly at a border of rules and domains, where one sign or one number more or less decides."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from optimizer.base.units import GB
from optimizer.constraints.given_layout import given_layouts, placements
from optimizer.constraints.posted import allowed
from optimizer.constraints.program import Program
from optimizer.constraints.rule import FloatArray
from optimizer.constraints.rules.context_parallel import ContextParallel
from optimizer.constraints.rules.gpu_product import prime_factors
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.space import divisors, domains
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.job.variables import SCHEDULES
from optimizer.objectives.step.host_memory import least_host_activations, least_weights_on_host, node_memory
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.proof import program_of
from tests.constraints.test_cases import says
from tests.search.jobs import DENSE, MIXTURE, small_job


def test_a_schedule_is_a_choice_only_where_software_offers_more_than_the_usual_ones() -> None:
    assert "schedule" not in domains(small_job())
    offered = small_job(features=Features(schedules=("1f1b", "interleaved", "zero-bubble")))
    assert [SCHEDULES[code] for code in domains(offered)["schedule"]] == ["1f1b", "interleaved", "zero-bubble"]


# Of 8 GPUs, 12 layers, 48 sequences of 4,096 tokens: degrees divide 8, contexts have 1,024 tokens or more,
# micro-batches are at most twice 16, virtual stages share 12 to 14 places (embedding and loss are two).
DOMAINS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("tp", "pp"), (1, 2, 4, 8)),
    **{"cp": (1, 2, 4), "micro_batch": (1, 2, 3, 4, 6, 8, 12, 16, 24), "vpp": (1, 2, 3, 4, 6, 7, 12, 13, 14)},
    **dict.fromkeys(("ep", "etp"), (1,)),
    **{"sequence_parallel": (0, 1), "zero_stage": (0, 1, 2, 3), "recompute": (0, 2)},
    **dict.fromkeys(("shard", "overlap_exchange", "activation_offload"), (0,)),
}
EXPERTS = {"ep": (1, 2, 4, 8), "etp": (1, 2, 4, 8)}
OVERLAPS, FSDP = Features(offers_overlap=True), Features(zero_stages=(0, 2, 3))
HOSTED, MIRRORED = Features(hosted_checkpoints=True), Features(schedules=("1f1b", "interleaved", "dualpipe"))


@pytest.mark.parametrize(
    ("job", "other"),
    [
        (small_job(), {}),
        (small_job(model=MIXTURE), EXPERTS),
        (small_job(model=MIXTURE, features=OVERLAPS), {**EXPERTS, "overlap_exchange": (0, 1)}),
        (small_job(features=OVERLAPS), {}),
        (small_job(features=FSDP), {"shard": (0, 1, 2, 4, 8)}),
        (small_job(features=Features(zero_stages=(0, 2))), {}),
        (small_job(ranges={"shard": (0, 3)}), {"shard": (0, 1, 2, 4, 8)}),
        (small_job(min_cp_tokens=4096), {"cp": (1, 2)}),
        (small_job(min_cp_tokens=1), {"cp": (1, 2, 4, 8)}),
        (small_job(max_micro_batch=2), {"micro_batch": (1, 2, 3, 4)}),
        (small_job(max_vpp=2), {"vpp": (1, 2)}),
        (small_job(fixed={"tp": 3, "layout": "even"}), {"tp": (3,)}),
        (small_job(choices={"tp": (3, 8)}), {"tp": (1, 2, 3, 4, 8)}),
        (small_job(ranges={"activation_offload": (0, 60)}), {"activation_offload": (0, 25, 50, 60, 75, 100)}),
        (small_job(gpus=128), {"tp": (1, 2, 4, 8, 16, 32, 64)}),
        (small_job(gpus=130), {"tp": (1, 2, 5, 10, 13, 26), "pp": (1, 2, 5, 10), "cp": (1, 2)}),
        (replace(small_job(), train="frozen:layers.0-3"), {"pp": (1,)}),
        (replace(small_job(features=HOSTED), train="lora"), {"activation_offload": (0, 100)}),
        (replace(small_job(), train="lora"), {}),
        (small_job(features=HOSTED), {}),
        (small_job(features=MIRRORED), {}),
        (small_job(features=MIRRORED, choices={"schedule": ("dualpipe",)}), {"schedule": (0, 1, 4)}),
    ],
)
def test_values_of_every_variable(job: Job, other: dict[str, tuple[int, ...]]) -> None:
    assert domains(job) == {**DOMAINS, **other}


@pytest.mark.parametrize(("tokens", "least", "cp"), [(128, 1, (1,)), (512, 1, (1, 2)), (512, 1024, (1,))])
def test_contexts_of_half_the_tokens_that_are_asked_for_and_256(tokens: int, least: int, cp: tuple[int, ...]) -> None:
    assert domains(replace(small_job(min_cp_tokens=least), seq_len=tokens))["cp"] == cp


def test_values_for_several_numbers_of_gpus_and_batches() -> None:
    """What divides 8 or 12, and 12 or 64, up to twice the largest micro-batch."""
    either, sizes = (1, 2, 3, 4, 6, 8, 12), (1, 2, 3, 4, 6, 8, 12, 16, 32)
    assert domains(small_job(), gpus=np.array([8, 12]), batches=np.array([12, 64])) == {
        **DOMAINS,
        **{"tp": either, "pp": either, "cp": (1, 2, 3, 4), "micro_batch": sizes},
    }
    shards = domains(small_job(ranges={"shard": (0, 96)}), gpus=np.array([192, 256]))["shard"]
    assert shards == (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
    long = replace(small_job(min_cp_tokens=1), seq_len=2**15)
    assert max(domains(long, gpus=np.array([256, 512]))["cp"]) == max(domains(long, gpus=np.array([256]))["cp"]) == 128


def test_divisors_and_prime_factors_multiply_to_their_number() -> None:
    for number in range(1, 150):
        assert divisors(number) == tuple(each for each in range(1, number + 1) if number % each == 0)
        factors = prime_factors(number)
        assert prod(factors) == number
        assert all(divisors(factor) == (1, factor) for factor in factors)


@pytest.mark.parametrize(
    ("by", "recomputed"),
    [("stage", (3, 3, 3, 3)), ("virtual stage", ()), ("all layers", ())],
)
def test_what_each_stage_recomputes_is_said_where_software_is_told_of_stages(
    by: str, recomputed: tuple[int, ...]
) -> None:
    job = small_job(features=Features(recompute_by=by))
    given = placements(job, Plans.of([Plan(pp=4, recompute="full"), Plan(pp=4), Plan(pp=1, recompute="full")]))
    assert [place.layers for place in given] == [(3, 3, 3, 3), (3, 3, 3, 3), (12,)]
    assert [place.recomputed for place in given] == [recomputed, (), (12,) if recomputed else ()]


@pytest.mark.parametrize(("counts", "beyond"), [("1,1,1", False), ("1,2,1", False), ("2,1,1", True), ("2,2", False)])
def test_layers_that_no_plan_recomputes_are_beyond_the_software(counts: str, beyond: bool) -> None:
    """4 layers on three stages are 1, 2 and 1; each virtual stage recomputes as many of its first layers."""
    features = Features(recompute_by="virtual stage")
    job = small_job(model=replace(DENSE, layers=4), features=features, fixed={"recompute_layers": counts})
    (rule,) = given_layouts(job)
    assert rule.beyond(job) is beyond
    assert not rule.beyond(small_job(fixed={"recompute_layers": counts}))  # software that is told of stages


def test_activations_that_fill_the_host_exactly_fit() -> None:
    job = small_job(features=Features(activation_offload=True))
    plans = Plans.of([Plan(tp=2, pp=2, dp=2, num_microbatches=4, activation_offload=100)])
    on_host = float(HostActivations()._on_host(job, plans)[0])
    assert on_host > 0
    exactly = node_memory(job, on_host)
    for share, fits in ((1.0, True), (1 - 1e-6, False)):
        assert HostActivations().check(job.with_host_memory(share * exactly), plans).tolist() == [fits]


def test_memory_of_the_host_is_asked_for_in_whole_modules() -> None:
    """The least multiple of 16 GB with which the plan fits."""
    job, rule = small_job(features=Features(activation_offload=True)).with_host_memory(1e9), HostActivations()
    plans = Plans.of([Plan(pp=2, dp=4, micro_batch=12, activation_offload=share) for share in (75, 100)])
    for place, required in enumerate(rule.required(job, plans).tolist()):
        plan = plans.take([place])
        assert required % (16 * GB) == 0
        assert rule.check(rule.relax(job, required)[0], plan).all()
        assert not rule.check(job.with_host_memory(required - 16 * GB), plan).any()


@pytest.mark.parametrize(
    ("features", "limits", "lifted"),
    [
        (Features(activation_offload=True), {}, False),
        (Features(activation_offload=True), {"fixed": {"activation_offload": 50}}, True),
        (Features(activation_offload=True), {"fixed": {"recompute": "full"}}, False),
        (Features(activation_offload=True), {"fixed": {"tp": 2}}, False),
        (Features(hosted_weights=True), {}, True),
    ],
)
def test_a_host_takes_whatever_it_is_asked_to_take(features: Features, limits: dict[str, Any], lifted: bool) -> None:
    job = small_job(features=features, **limits).with_host_memory(1e9)
    assert HostActivations().lifted(job).cluster.host_memory == (0.0 if lifted else 1e9)


def test_the_host_of_one_stage_has_its_weights_and_its_activations() -> None:
    job = small_job(features=Features(activation_offload=True, hosted_weights=True))
    for pp in (1, 2):
        plan = Plan(pp=pp, dp=8 // pp, num_microbatches=6 * pp, zero_stage=3, activation_offload=100)
        plans = Plans.of([plan])
        (weights,), (activations,) = least_weights_on_host(job, plans), least_host_activations(job, plans)
        assert min(weights, activations) > 0
        (here,) = HostActivations()._on_host(job, plans)
        assert here == (weights + activations if pp == 1 else max(weights, activations))


@pytest.mark.parametrize(("rows", "value"), [([(3,)], 3), ([], None), ([(5,)], None)])
def test_a_table_of_one_row_allows_it_and_an_empty_one_nothing(rows: list[tuple[int]], value: int | None) -> None:
    program = Program({"pp": (1, 2, 3)})
    program.allow(["pp"], rows)
    values = program.solve().values
    assert (None if values is None else int(values[program.index["pp"]])) == value


@pytest.mark.parametrize(("one", "other"), [(0, 0), (3, 0), (1, 1), (7, 1), (2, 2), (7, 2), (5, 3)])
def test_a_product_is_one(one: int, other: int) -> None:
    """Of 0 to 7 and 0 to 3."""
    program = Program({})
    result = program.product(program.variable(one, one), program.variable(other, other), (7, 3))
    for sign in (1, -1):
        program.minimise([(result, sign)])
        values = program.solve().values
        assert values is not None
        assert values[result] == one * other


def test_a_product_may_be_as_large_as_its_factors_make_it() -> None:
    program = Program({})
    result = program.product(program.variable(7, 7), program.variable(2, 2), (7, 2))
    assert list(program.message.variables[result].domain) == [0, 14]


def test_nothing_of_no_values_is_allowed() -> None:
    program = Program({"tp": (1, 2)})
    program.restrict("tp", [], program.literal("none"))
    assert not np.any(allowed(program, {"tp": np.array([1, 2])})["none"])


def test_memory_of_a_smaller_gpu_and_of_less_risk() -> None:
    """What is left on a GPU one GB smaller is what that GPU leaves; more risk helps only between safe and usable."""
    rule, job = Memory(), small_job()
    safe, usable = safe_memory(job), job.usable_memory
    assert safe < usable
    for required in (0.99 * safe, 0.5 * safe):
        enough, smaller = (job.with_limits(hbm=(rule.size(job, required) - less) * GB) for less in (0, 1))
        assert safe_memory(smaller) < required <= safe_memory(enough)
        assert rule.next_size(job, required) == pytest.approx(safe_memory(smaller), rel=1e-12)
    for required, some in ((safe, False), (1.001 * safe, True), (usable, True), (1.001 * usable, False)):
        assert bool(rule.risk(job, required)) is some
    assert rule.risk(job, usable) == 50


def test_no_stage_recomputes_more_layers_than_it_holds() -> None:
    """12 layers on two stages are six each."""
    plans = Plans.of([Plan(pp=2, recompute="full")])
    for counts, fits in (("6,0", True), ("7,0", False)):
        (rule,) = given_layouts(small_job(fixed={"recompute_layers": counts}))
        assert rule.check(small_job(fixed={"recompute_layers": counts}), plans).tolist() == [fits]


@pytest.mark.parametrize(
    ("features", "limits", "sentence"),
    [
        (Features(), {"layers_per_stage": "12"}, "layers_per_stage=12: 12 layers on one stage"),
        (Features(), {"layers_per_stage": "5,7"}, "layers_per_stage=5,7: 12 layers on 2 stages or virtual stages"),
        (
            Features(uneven_stages=False),
            {"layers_per_stage": "5,7"},
            "layers_per_stage=5,7: 12 layers on 2 stages or virtual stages, but test cuts them evenly",
        ),
        (
            Features(uneven_stages=False),
            {"layers_per_stage": "6,6"},
            "layers_per_stage=6,6: 12 layers on 2 stages or virtual stages",
        ),
    ],
)
def test_a_layout_that_was_asked_for_says_so(features: Features, limits: dict[str, str], sentence: str) -> None:
    job = small_job(features=features, fixed=limits)
    (rule,) = given_layouts(job)
    assert rule.explain(job) == f"you asked for {sentence}"


def test_a_plan_that_needs_all_that_is_safe_fits() -> None:
    class Needs(Memory):
        def required(self, job: Job, plans: Plans) -> FloatArray:
            return safe_memory(job) * np.array([1.0, 1.0 + 1e-15])

    plans = Plans.of([Plan(dp=8)] * 2)
    assert Needs().check(small_job(), plans).tolist() == [True, False]


def test_a_gpu_that_has_enough_is_offered() -> None:
    rule, job = Memory(), small_job(hbm=80e9)
    required = 1.5 * safe_memory(job)
    relaxed, said = rule.relax(job, required)
    assert said == f"HBM 80 -> {rule.size(job, required)} GB"
    assert relaxed.limits.hbm == rule.size(job, required) * GB
    assert rule.explain(small_job(hbm=2e9)) == "nothing is left of 2.0 GB beside 2.0 GB of context"


def test_points_that_do_not_fit_in_memory_are_forbidden() -> None:
    job, plans = small_job(), Plans.of([Plan(dp=8, num_microbatches=6), Plan(dp=4, pp=2, num_microbatches=12)])
    for fits in ((True, False), (False, True)):
        program = program_of(job, [], plans)
        Memory(fits=np.array(fits)).post(job, program, program.literal("memory"))
        program.enforce()
        values = program.solve().values
        assert values is not None
        assert [bool(values[point]) for point in program.points] == list(fits)


def test_points_whose_activations_do_not_fit_on_the_host_are_forbidden() -> None:
    """The second plan keeps activations there, which 1 GB does not take."""
    job = small_job(features=Features(activation_offload=True))
    plans = Plans.of([Plan(dp=8, num_microbatches=6), Plan(dp=8, num_microbatches=6, activation_offload=100)])
    for memory, wanted in ((2e12, 1), (1e9, 0)):
        program = program_of(job.with_host_memory(memory), [HostActivations()], plans)
        program.enforce()
        program.minimise(list(zip(program.points, (1, 0), strict=True)))
        values = program.solve().values
        assert values is not None
        assert bool(values[program.points[wanted]])


def test_a_layout_by_name_leaves_every_plan() -> None:
    job = small_job(fixed={"layout": "even"})
    (rule,) = given_layouts(job)
    assert says(rule, job, Plan(pp=4, dp=2, num_microbatches=24)) == (True, True)


@pytest.mark.parametrize(
    ("counts", "uneven", "possible"), [("5,7", True, True), ("5,7", False, False), ("6,6", False, True)]
)
def test_software_that_cuts_evenly_takes_no_other_counts(counts: str, uneven: bool, possible: bool) -> None:
    job = small_job(features=Features(uneven_stages=uneven), fixed={"layers_per_stage": counts})
    (rule,) = given_layouts(job)
    assert says(rule, job, Plan(pp=2, dp=4, num_microbatches=12)) == (possible, possible)


@pytest.mark.parametrize(("counts", "stages"), [("12", "one stage"), ("6,6", "2 stages or virtual stages")])
def test_layers_that_were_asked_for_are_told_with_their_stages(counts: str, stages: str) -> None:
    job = small_job(fixed={"layers_per_stage": counts})
    (rule,) = given_layouts(job)
    assert rule.explain(job) == f"you asked for layers_per_stage={counts}: 12 layers on {stages}"


def test_contexts_move_a_limit_from_two_ranks_on() -> None:
    plans = Plans.of([Plan(cp=cp) for cp in (1, 2, 4)])
    assert ContextParallel().required(small_job(), plans).tolist() == [0.0, 2 / 4096, 4 / 4096]
    unfused = small_job(features=Features(attention="unfused"))
    assert ContextParallel().required(unfused, plans).tolist() == [0.0, np.inf, np.inf]
