"""What layouts take and need, many at once in arrays, is what each of their stages adds up to alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import inf

import numpy as np
import pytest

from optimizer.objectives.pipeline.schedules import schedule_order
from optimizer.objectives.pipeline.simulator import PassTimes, simulate
from optimizer.objectives.pipeline.stall import stall
from optimizer.objectives.step.host_memory import OFFLOAD_STEP
from optimizer.objectives.step.linear_stage import LayerBytes
from optimizer.search.layouts.costs import LayerSeconds
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve.loads import Loads, by_stage
from tests.search.layouts.problems import costs

NAMES = {field.name for table in (LayerSeconds, LayerBytes) for field in fields(table)}
LAYOUTS, PP = 3, 3


def some_loads(seed: int) -> Loads:
    """Layouts of a problem in which everything takes time and bytes, of up to three virtual stages a stage."""
    rng, vpp = np.random.default_rng(seed), 1 + seed % 3
    kinds = {
        kind: {name: float(rng.uniform(0.5, 2.0)) for name in NAMES} | {"chosen": 1.0 * (kind in ("dense", "moe"))}
        for kind in ("embedding", "dense", "moe", "head")
    }
    for layer in kinds.values():
        layer |= {"state": float(rng.uniform(50, 90)), "recomputed": 0.4 * layer["in_flight"]}
        layer |= {"per_step": layer["reduced"] + layer["gathered"] + 1.0, "freed": 0.1 * layer["freed"]}
    made = costs(kinds, fixed=float(rng.uniform(1, 3)))
    problem = LayoutProblem(
        **made | {"memory": replace(made["memory"], offload=0.25 * (seed % 2))},
        sequence=(("embedding", 1), ("dense", 4), ("moe", 5), ("head", 1)),
        pp=PP,
        vpp=vpp,
        microbatches=PP * int(rng.integers(1, 4)),
        in_flight=(3.5, 2.0, 1.0),
        usable=float(rng.uniform(20, 60)),
        host_memory_per_gpu=float(rng.choice([300.0, inf])),
        seconds=0.75,
        filled=float(rng.choice([0.0, 5.0])),
        hides=float(rng.uniform(0.2, 0.9)),
        more=int(rng.choice([0, 40, 9999])),
        hosted_price=2.5,
        alternates=vpp == 1 and seed % 2 == 0,
    )
    by_kind = {kind: rng.integers(0, 3, (LAYOUTS, PP * vpp)) for kind in kinds}
    stages = {kind: by_stage(number, PP) for kind, number in by_kind.items()}
    recomputed = {kind: rng.integers(0, stages[kind] + 1) for kind in ("dense", "moe")}
    return Loads(problem=problem, by_kind=by_kind, stages=stages, recomputed=recomputed)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one stage takes and needs."""

    problem: LayoutProblem
    held: tuple[dict[str, int], ...]  # layers of each kind on its virtual stages
    recomputed: dict[str, int]
    flying: float  # micro-batches

    def total(self, name: str) -> float:
        """The sum of a field over its layers."""
        return sum(self.passes(name))

    def passes(self, name: str) -> list[float]:
        """The sum of a field over the layers of each virtual stage."""
        tables = [self.problem.kinds, self.problem.memory.layers]
        (table, *_) = (table for table in tables if hasattr(table["head"], name))
        return [sum(n * float(getattr(table[kind], name)) for kind, n in virtual.items()) for virtual in self.held]

    @property
    def recompute_time(self) -> float:
        return sum(n * self.problem.kinds[kind].recompute for kind, n in self.recomputed.items())

    @property
    def seconds(self) -> float:
        return self.problem.seconds + sum(map(self.total, ("forward", "backward", "always"))) + self.recompute_time

    @property
    def resident(self) -> float:
        layers = self.problem.memory.layers
        saved = sum(n * (layers[kind].in_flight - layers[kind].recomputed) for kind, n in self.recomputed.items())
        kinds = {kind for virtual in self.held for kind, n in virtual.items() if n and not layers[kind].chosen}
        kinds |= {kind for kind, n in self.recomputed.items() if n}
        once = max(0.0, max((layers[kind].recomputing for kind in kinds), default=0.0) - self.total("freed"))
        return self.problem.memory.fixed + self.total("static") + self.flying * (self.total("in_flight") - saved) + once

    def memory(self, more: float) -> float:
        return self.resident - more * OFFLOAD_STEP * self.total("state")

    def needs(self, more: float) -> bool:
        """Whether it fits with so many steps on the host, and not with one less."""
        if more == inf:
            return self.resident > self.problem.usable and not self.total("state")
        return self.memory(more) <= self.problem.usable and (more == 0 or self.memory(more - 1) > self.problem.usable)

    def on_host(self, more: float) -> float:
        share = self.problem.memory.offload + more * OFFLOAD_STEP
        return share * self.total("state") + self.total("hosted") + self.flying * self.total("host_in_flight")

    def once(self, more: float) -> float:
        """Gradients hide under backward passes and weights under forward ones: the last virtual stage's under one."""
        others = self.problem.vpp - 1
        hidden = sum(
            min(seconds, others / (others + 1) * seconds + cover, (1 + others * PP) * cover)
            for seconds, cover in (
                (self.total("reduced"), self.total("cover_backward")),
                (self.total("gathered"), self.total("cover_forward")),
            )
        )
        return self.total("per_step") + more * OFFLOAD_STEP * self.total("hosted") - self.problem.hides * hidden


def stages_of(loads: Loads, row: int) -> Iterator[Stage]:
    for stage in range(PP):
        held = tuple(
            {kind: int(number[row, virtual]) for kind, number in loads.by_kind.items()}
            for virtual in range(stage, loads.problem.virtual_stages, PP)
        )
        recomputed = {kind: int(number[row, stage]) for kind, number in loads.recomputed.items()}
        yield Stage(problem=loads.problem, held=held, recomputed=recomputed, flying=loads.problem.in_flight[stage])


def takes(problem: LayoutProblem, stages: list[Stage], pipeline: float) -> float:
    """What running the schedule adds to the closed form, if it is run [s]."""
    aside = problem.seconds / (2 * problem.vpp)
    forward = [[aside + seconds for seconds in stage.passes("forward")] for stage in stages]
    beside = [(stage.recompute_time + stage.total("always")) / problem.vpp + aside for stage in stages]
    backward = [[more + n for n in stage.passes("backward")] for more, stage in zip(beside, stages, strict=True)]
    if problem.vpp > 1:
        return float(stall(problem.microbatches, np.array(forward), np.array(backward)))
    if not problem.alternates:
        return 0.0
    order = schedule_order("1f1b", PP, 1, problem.microbatches)
    return simulate(order, PassTimes(forward=forward, backward=backward)).makespan - pipeline


@pytest.mark.parametrize("seed", range(24))
def test_layouts_are_what_their_stages_add_up_to(seed: int) -> None:
    loads = some_loads(seed)
    problem, m = loads.problem, loads.problem.microbatches
    assert len(loads) == LAYOUTS
    for row in range(LAYOUTS):
        stages = list(stages_of(loads, row))
        assert all(map(Stage.needs, stages, loads.needs[row].tolist()))
        more = min(problem.more, max(loads.needs[row]))
        memory = [stage.memory(more) for stage in stages]
        there = [stage.on_host(more) for stage in stages]
        assert loads.states[row] == pytest.approx([stage.total("state") for stage in stages])
        assert loads.resident[row] == pytest.approx([stage.resident for stage in stages])
        assert loads.more[row] == more
        assert loads.memory[row] == pytest.approx(memory)
        assert loads.on_host[row] == pytest.approx(there)
        fits = max(memory) <= problem.usable and max(there) <= problem.host_memory_per_gpu
        assert loads.fits[row] == fits
        seconds = [stage.seconds for stage in stages]
        assert loads.seconds[row] == pytest.approx(seconds)
        assert loads.recompute_time[row] == pytest.approx([stage.recompute_time for stage in stages])
        waits = max(0.0, (sum(seconds) - max(seconds)) / problem.vpp - problem.filled)
        pipeline = m * max(seconds) + waits
        assert loads.pipeline[row] == pytest.approx(pipeline)
        priced = sum(
            n * problem.kinds[kind].recompute_price for stage in stages for kind, n in stage.recomputed.items()
        ) + problem.hosted_price * (problem.memory.offload + more * OFFLOAD_STEP)
        once = max(stage.once(more) for stage in stages) + priced
        assert loads.once[row] == pytest.approx(once)
        if problem.filled == 0 or not problem.alternates:
            stalled = takes(problem, stages, pipeline)
            assert loads.stalled[row] == pytest.approx(stalled)
            known = stalled if problem.vpp == 1 else 0.0
            assert loads.least[row] == pytest.approx(pipeline + once + known)
            assert loads.late(pipeline + known - 1e-6)[row]
            assert not loads.late(pipeline + known + 1e-6)[row]


def one_layer(usable: float, state: float, host: float, more: int) -> Loads:
    """A stage that reserves 4 B, of which some may lie on the host."""
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": {"static": 4.0, "state": state, "forward": 1.0}, "head": {}}),
        sequence=(("embedding", 1), ("dense", 1), ("head", 1)),
        pp=1,
        microbatches=4,
        in_flight=(1.0,),
        usable=usable,
        host_memory_per_gpu=host,
        more=more,
    )
    held = {kind: np.ones((1, 1), dtype=np.int64) for kind in problem.kinds}
    return Loads(problem=problem, by_kind=held, stages=held, recomputed={})


@pytest.mark.parametrize(
    ("usable", "state", "host", "more", "needs", "fits"),
    [
        (4.0, 0.0, 0.0, 0, 0.0, True),  # to the last byte
        (3.9, 0.0, 9.0, 9999, inf, False),  # nothing of it may lie elsewhere
        (3.0, 4.0, 1.0, 2500, 2500.0, True),
        (3.0, 4.0, 1.0, 2499, 2500.0, False),
        (3.0, 4.0, 0.99, 2500, 2500.0, False),
        (4.0 - 1e-12, 1e-8, 9.0, 1, 1.0, True),
    ],
)
def test_a_stage_fits_to_the_last_byte(
    usable: float, state: float, host: float, more: int, needs: float, fits: bool
) -> None:
    loads = one_layer(usable, state, host, more)
    assert loads.needs.tolist() == [[needs]]
    assert loads.fits.tolist() == [fits]
    assert [loads.late(at_most).tolist() for at_most in (4.0, np.nextafter(4.0, 0))] == [[False], [True]]


def test_layouts_of_one_problem_are_joined() -> None:
    parts = some_loads(3).take([0]), some_loads(3).take([2, 1])
    joined = Loads.joined(parts)
    assert joined.problem is parts[0].problem
    for name in ("seconds", "recompute_time", "once", "memory"):
        assert getattr(joined, name).tolist() == getattr(some_loads(3), name)[[0, 2, 1]].tolist()
