"""Each rule's two readings agree on every plan of small clusters, and its sentences and relaxations carry numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.constraints.program import Program
from optimizer.constraints.rule import LimitRule
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.bubble import Bubble
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.host_activations import HostActivations
from optimizer.constraints.rules.layers import Layers
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.rules.sequence_parallel import SequenceParallel
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import Features
from optimizer.search.lattice.enumerate import lattice, plans_of
from optimizer.search.lattice.proof import program_of
from tests.search.jobs import DENSE, LATENT, MIXTURE, small_job
from tests.thorough import sampled

FSDP = Features(
    attention="unfused",
    zero_stages=(0, 1, 2, 3),
    schedules=("1f1b",),
    recompute=("none", "full"),
    sequence_parallel=False,
    uneven_stages=False,
)
SHARING = Features(
    zero_stages=(0, 2, 3),
    piped_zero_stages=(0, 1),
    schedules=("1f1b",),
    recompute=("none",),
    whole_experts=True,
    context_shares=True,
    tied_stages=False,
)
BY_MODULE = Features(
    recompute=("none",), recompute_modules=("layernorm", "mla_up_proj", "moe_act", "mlp"), activation_offload=True
)
AWKWARD = replace(DENSE, name="awkward", heads=9, kv_heads=3, hidden=1152, ffn_hidden=1000, vocab=300)
OVERLAPPING = Features(
    recompute=("none", "full"), recompute_modules=("layernorm", "moe_act", "moe"), offers_overlap=True
)
JOBS = {
    "awkward": lambda gpus: small_job(gpus, model=AWKWARD),
    "dense": lambda gpus: small_job(gpus),
    "moe": lambda gpus: small_job(gpus, model=MIXTURE, max_tp=4, fixed={"tp": 2}, ranges={"pp": (1, 2)}),
    "overlapping": lambda gpus: small_job(
        gpus, model=MIXTURE, features=OVERLAPPING, fixed={"tp": 1}, ranges={"pp": (1, 2)}
    ),
    "both ways": lambda gpus: small_job(
        gpus,
        model=MIXTURE,
        features=replace(OVERLAPPING, schedules=("1f1b", "dualpipe")),
        fixed={"tp": 1, "layout": "even"},
    ),
    "listed": lambda gpus: small_job(
        gpus, choices={"tp": (1, 4), "recompute": ("none", "full"), "schedule": ("1f1b",)}
    ),
    "modules": lambda gpus: small_job(gpus, model=LATENT, features=BY_MODULE, ranges={"activation_offload": (0, 50)}),
    "fsdp": lambda gpus: small_job(gpus, features=FSDP, bubble=0.3, max_micro_batch=2),
    "in backward": lambda gpus: replace(small_job(gpus), optimizer="adamw-8bit:in-backward"),
    "sharing": lambda gpus: small_job(
        gpus,
        model=replace(MIXTURE, tied_embeddings=True),
        features=SHARING,
        max_tp=4,
        ranges={"pp": (1, 2), "shard": (0, 4), "cp": (1, 2)},
    ),
}
SHORT = {
    "vpp": (1, 2, 3, 5),
    "recompute": tuple(range(len(RECOMPUTE))),
    "schedule": (0, 1, 2, 4),
    "dispatcher": (0, 1, 2),
    "zero_stage": (0, 1, 2, 3),
}


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        *(("dense", gpus) for gpus in sampled(range(1, 17), 3)),
        *product(("moe", "overlapping", "both ways", "listed", "modules", "fsdp", "awkward"), (1, 2, 6, 8, 16)),
        ("sharing", 2),
    ],
)
def test_check_equals_post_on_every_plan(name: str, gpus: int) -> None:
    job = JOBS[name](gpus)
    for rule in structural(job):
        if isinstance(rule, HostActivations):
            continue  # read of whole plans, as memory is: below
        domains = {variable: values_of(job, variable) for variable in rule.variables}
        program = Program(domains)
        rule.post(job, program, program.literal(rule.name))
        program.enforce()
        rows = np.array(list(product(*domains.values())))
        allowed = rows[rule.check(job, plans_with(rule.variables, rows))]
        places = [program.index[name] for name in rule.variables]
        assert solutions(program, places) == {tuple(map(int, row)) for row in allowed}, rule.name


@pytest.mark.parametrize("gpus", [2, 6, 8, 16])
def test_memory_check_equals_post_on_every_plan(gpus: int) -> None:
    rule, job = Memory(), small_job(gpus)
    plans = every_plan(job)
    job = job.with_limits(hbm=float(np.median(rule.required(job, plans))) + job.stack["context_memory"])
    check_equals_post(job, rule, plans)


def test_host_memory_check_equals_post_on_every_plan() -> None:
    rule, job = HostActivations(), JOBS["modules"](8).with_host_memory(1e12)
    plans = every_plan(job)
    asked = rule.required(job, plans)
    check_equals_post(job.with_host_memory(float(np.median(asked[asked > 0]))), rule, plans)


def check_equals_post(job: Job, rule: Memory | HostActivations, plans: Plans) -> None:
    program = program_of(job, [rule], plans)
    program.enforce()
    fits = rule.check(job, plans)
    assert 0 < fits.sum() < len(plans)
    found = solutions(program, program.points)
    assert {row.index(1) for row in found} == set(np.flatnonzero(fits).tolist())
    assert all(sum(row) == 1 for row in found)


@pytest.mark.parametrize("name", JOBS)
def test_every_rule_explains_itself_with_the_numbers_of_the_job(name: str) -> None:
    job = JOBS[name](8)
    sentences = {rule.name: rule.explain(job) for rule in (*structural(job), Memory())}
    assert all(sentences.values())
    assert len(set(sentences.values())) == len(sentences)
    assert sentences["gpu-product"] == "tp x cp x pp x dp must be exactly 8 GPUs (8 = 2^3)"
    assert "48 sequences" in sentences["batch"]


@pytest.mark.parametrize("name", JOBS)
def test_a_relaxed_rule_admits_the_plan_it_was_relaxed_for(name: str) -> None:
    job = JOBS[name](8)
    plans = every_plan(job)
    for rule in (*structural(job), Memory()):
        if not isinstance(rule, LimitRule):
            continue
        required = rule.required(job, plans)
        broken = np.flatnonzero(~rule.check(job, plans) & np.isfinite(required))
        if not len(broken):
            continue
        least = broken[np.argmin(required[broken])]
        relaxed, text = rule.relax(job, float(required[least]))
        same = {other.name: other for other in structural(relaxed)} | {"memory": rule}
        assert text
        assert rule.name not in same or same[rule.name].check(relaxed, plans.take(slice(least, least + 1))).all()


def test_bubble_of_eight_stages_and_96_microbatches_in_six_virtual_stages() -> None:
    """Narayanan et al.: 7 / (6 x 96 + 7) = 1.2 %; without virtual stages 7 / 103 = 6.8 %."""
    plans = Plans.of([Plan(pp=8, vpp=6, num_microbatches=96), Plan(pp=8, num_microbatches=96), Plan()])
    assert Bubble().required(small_job(), plans) == pytest.approx([7 / 583, 7 / 103, 0.0])


def test_uneven_layers_are_a_feature_of_the_stack() -> None:
    """61 layers on 16 stages need uneven stages; 126 on 16 x 4 virtual stages count embedding and head too (128)."""
    plans = Plans.of([Plan(pp=16), Plan(pp=16, vpp=4), Plan(pp=128)])
    even = Features(uneven_stages=False)
    deep, deeper = (replace(DENSE, layers=layers) for layers in (61, 126))
    assert Layers().check(small_job(model=deep), plans).tolist() == [True, False, False]
    assert Layers().check(small_job(model=deeper), plans).tolist() == [True, True, False]
    assert Layers().check(small_job(model=deep, features=even), plans).tolist() == [False, False, False]


def test_a_mixture_with_tensor_parallelism_needs_sequence_parallelism_where_there_is_any() -> None:
    """Megatron-Core's mixture raises ValueError in its first forward pass without it, whatever its ep."""
    plans = Plans.of([Plan(tp=2), Plan(tp=2, sequence_parallel=True), Plan(tp=1)])
    for model, features, allowed in (
        (MIXTURE, Features(), [False, True, True]),
        (DENSE, Features(), [True, True, True]),
        (MIXTURE, Features(sequence_parallel=False), [True, False, True]),
    ):
        job = small_job(model=model, features=features)
        assert SequenceParallel().check(job, plans).tolist() == allowed


def test_pins_are_checked_where_they_are_read() -> None:
    for fixed, message in (
        ({"pt": 8}, "Did you mean"),
        ({"tp": 0}, "at least 1"),
        ({"recompute": "some"}, "none, selective, full"),
        ({"zero_stage": 4}, "between 0 and 3"),
    ):
        with pytest.raises(InputError, match=message):
            structural(small_job(fixed=fixed))
    with pytest.raises(InputError, match="low <= high"):
        structural(small_job(ranges={"pp": (4, 2)}))


def every_plan(job: Job) -> Plans:
    """All factorisations of the GPUs and the batch, whatever other rules say, thinned to 500."""
    parts = list(lattice(job, [GpuProduct(), Batch()]))
    ends = np.cumsum([len(part) for part in parts]).tolist()
    step = max(1, ends[-1] // 500)
    return Plans.joined(
        [part.take(slice((len(part) - end) % step, None, step)) for part, end in zip(parts, ends, strict=True)]
    )


def values_of(job: Job, variable: str) -> tuple[int, ...]:
    if variable in SHORT:
        return SHORT[variable]
    if variable in ("sequence_parallel", "overlap_exchange"):
        return (0, 1)
    if variable == "shard":
        return (0, 2, 4)
    if variable in ("num_microbatches", "micro_batch"):
        return (1, 2, 3, 4, 12, 20)
    if variable in ("ep", "etp"):
        return (1, 2, 3)
    return tuple(sorted({1, 2, 3, job.gpus // 2 or 1, job.gpus}))


def plans_with(names: tuple[str, ...], rows: np.ndarray[Any, np.dtype[np.int64]]) -> Plans:
    """Plans with these values, everything else neutral."""
    neutral = Plans.of([Plan()])
    columns = {name: np.repeat(np.asarray(getattr(neutral, name), dtype=np.int64), len(rows)) for name in FIELDS}
    columns |= {name: rows[:, position] for position, name in enumerate(names)}
    return plans_of(columns)


def solutions(program: Program, places: Sequence[int]) -> set[tuple[int, ...]]:
    """Every assignment of these variables that the program allows."""
    from ortools.sat.python import cp_model_helper

    found: set[tuple[int, ...]] = set()

    class Collector(cp_model_helper.SolutionCallback):  # type: ignore[misc]
        def OnSolutionCallback(self) -> None:
            found.add(tuple(int(self.SolutionIntegerValue(place)) for place in places))

    parameters = cp_model_helper.SatParameters()
    parameters.num_workers = 1
    parameters.enumerate_all_solutions = True
    wrapper: Any = cp_model_helper.SolveWrapper()
    wrapper.set_parameters(parameters)
    collector = Collector()
    wrapper.add_solution_callback(collector)
    wrapper.solve(program.message)
    return found
