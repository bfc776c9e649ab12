"""Layouts as a CP-SAT program: where the layers are cut, and how many of each kind every stage recomputes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf

from optimizer.base.errors import Infeasible
from optimizer.constraints.program import Program, Term
from optimizer.objectives.pipeline.one_f_one_b import ahead
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP, Runs
from optimizer.objectives.step.host_memory import OFFLOAD_STEP
from optimizer.search.layouts.problem import (
    FEW,
    LayoutProblem,
    recomputable,
    runs_of,
    virtual_stage_limits,
)
from optimizer.search.layouts.solve.least import least_objective, least_once, least_slowest, once_forms

TIME_STEPS = 10**7  # integer steps of one micro-batch's time through all layers
MEMORY_STEPS = 10**8  # integer steps of the usable memory; bytes are rounded up to them
FINER = 10**4  # parts of these steps in which an OFFLOAD_STEP of a layer's state counts


class LayoutProgram:
    """Transformer layers of each kind on each stage of a pipeline without interleaving, and those that it recomputes.

    Where there are few runs of layers of one kind a stage holds a number of each. Where kinds alternate, the cuts
    between stages are variables, and a table says how many MoE layers lie ahead of a cut.
    """

    def __init__(self, problem: LayoutProblem, at_most: float = inf, *, lean: bool = False) -> None:
        """The program of layouts whose pipeline takes `at_most` [s]; a `lean` one asks for the least memory instead."""
        if problem.usable <= 0:
            raise Infeasible("no memory is left for a layout")
        self.problem, self.program = problem, Program()
        self.names = [kind for kind, count in problem.sequence for _ in range(count) if kind in (DENSE, MOE)]
        self.predicting = sum(count for kind, count in problem.sequence if kind == MTP)
        one_pass = sum(n * problem.kinds[kind].seconds for kind, n in problem.sequence) + problem.pp * problem.seconds
        self.tick, self.grain = one_pass / TIME_STEPS or inf, problem.usable / MEMORY_STEPS
        self.ticks = {kind: round(problem.kinds[kind].seconds / self.tick) for kind, _ in problem.sequence}
        self.ahead = {kind: round(problem.kinds[kind].forward / self.tick) for kind, _ in problem.sequence}
        self.extra = {kind: round(problem.kinds[kind].recompute / self.tick) for kind in recomputable(problem)}
        self.whole_ticks = sum(n * self.ticks[kind] for kind, n in problem.sequence)
        self.aside = round(problem.seconds / self.tick)
        self.predicted = self._predict()
        runs = [(kind, count) for kind, count in problem.sequence if kind in (DENSE, MOE)]
        if problem.alike:
            # How many first layers of every stage are recomputed, all and MTP layers where `whole`.
            self.first, self.whole = self.program.variable(1, len(self.names)), self.program.variable(0, 1)
            self.program.linear([(self.first, 1), (self.whole, -len(self.names))], 0, None)
        self.recomputed_terms: list[dict[str, list[Term]]] = []
        self.layers = self._counted(runs) if len(runs) <= FEW else self._cut()
        self._follow()
        self.on_stage = [self._on_stage(stage) for stage in range(problem.pp)]
        choose = self._recomputed_alike if problem.alike else self._recomputed
        self.recomputed = [choose(stage) for stage in range(problem.pp)]
        # OFFLOAD_STEPs of the optimizer state more on the host, and times the layers of each kind on a stage.
        self.more = self.program.variable(0, problem.more) if problem.more else None
        self.hosted = [self._hosted(stage) for stage in range(problem.pp)]
        self.finer = FINER if problem.more else 1
        # The fullest stage's share of the usable memory: all of it is allowed, or as little as can be.
        self.peak = self.program.variable(0, MEMORY_STEPS) if lean else self.program.choice((MEMORY_STEPS,))
        for stage in range(problem.pp):
            self._fit(stage)
            self._fit_on_host(stage)
        if lean:
            self.program.minimise([(self.peak, 1)])
        else:
            self._minimise(at_most)

    def _predict(self) -> list[int]:
        """MTP layers by stage: together, with the embedding only if alone.

        Source: Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py.
        """
        if not self.predicting:
            return []
        free = [stage > 0 or self.problem.pp == 1 for stage in range(self.problem.pp)]
        variables = [self.program.choice((0, self.predicting) if here else (0,)) for here in free]
        self.program.linear([(place, 1) for place in variables], self.predicting, self.predicting)
        return variables

    def _counted(self, runs: Sequence[tuple[str, int]]) -> list[dict[str, list[Term]]]:
        """Layers of every run on each stage; a stage holds some only if the run before ends there or earlier."""
        limits, earlier = virtual_stage_limits(self.problem), None
        so_long: list[list[Term]] = [[] for _ in limits]
        recomputed_terms: list[int | None] = [None for _ in limits]
        self.recomputed_terms = [{} for _ in limits]
        variables: list[dict[str, list[Term]]] = [{} for _ in limits]
        for kind, total in runs:
            numbers = [self.program.variable(0, total) for _ in limits]
            self.program.linear([(number, 1) for number in numbers], total, total)
            for place, number in enumerate(numbers):
                variables[place].setdefault(kind, []).append((number, 1))
                if earlier is not None:
                    numbers_before, total_before = earlier
                    ended = self.program.variable(0, 1)
                    so_far: list[Term] = [(before, 1) for before in numbers_before[: place + 1]]
                    self.program.linear([*so_far, (ended, -total_before)], 0, total_before)
                    self.program.linear([(number, 1), (ended, -total)], -total, 0)
                if self.problem.alike:
                    so_long[place].append((number, 1))
                    here = self._first_of(so_long[place])
                    before = recomputed_terms[place]
                    more: list[Term] = [(here, 1)] if before is None else [(here, 1), (before, -1)]
                    self.recomputed_terms[place].setdefault(kind, []).extend(more)
                    recomputed_terms[place] = here
            earlier = numbers, total
        for (low, high), kinds in zip(limits, variables, strict=True):
            self.program.linear([term for terms in kinds.values() for term in terms], low, high)
        return variables

    def _cut(self) -> list[dict[str, list[Term]]]:
        """Layers of both kinds on each stage, as differences between the cuts around it."""
        total = len(self.names)
        ahead = [self.names[:cut].count(MOE) for cut in range(total + 1)]
        inner = [self.program.variable(0, total) for _ in range(self.problem.pp - 1)]
        cuts = [self.program.choice((0,)), *inner, self.program.choice((total,))]
        moe_layers = [self.program.variable(0, ahead[-1]) for _ in cuts]
        for cut, before in zip(cuts, moe_layers, strict=True):
            self.program.allow((cut, before), list(enumerate(ahead)))
        variables: list[dict[str, list[Term]]] = []
        for place, (low, high) in enumerate(virtual_stage_limits(self.problem)):
            whole: list[Term] = [(cuts[place + 1], 1), (cuts[place], -1)]
            moe: list[Term] = [(moe_layers[place + 1], 1), (moe_layers[place], -1)]
            self.program.linear(whole, low, high)
            variables.append({MOE: moe, DENSE: [*whole, *((variable, -sign) for variable, sign in moe)]})
            self.program.linear(variables[-1][DENSE], 0, None)
            if self.problem.alike:
                here, until = self._first_of(whole), self.program.variable(0, total)
                self.program.linear([(until, 1), (cuts[place], -1), (here, -1)], 0, 0)
                inside = self.program.variable(0, ahead[-1])
                self.program.allow((until, inside), list(enumerate(ahead)))
                mixed: list[Term] = [(inside, 1), (moe_layers[place], -1)]
                self.recomputed_terms.append(
                    {MOE: mixed, DENSE: [(here, 1), *((variable, -sign) for variable, sign in mixed)]}
                )
        return variables

    def _first_of(self, layers: Sequence[Term]) -> int:
        """How many of these layers, the first of a stage, are recomputed."""
        total = len(self.names)
        count = self.program.variable(0, total)
        self.program.linear([(count, -1), *layers], 0, 0)
        return self.program.lesser(count, self.first, total)

    def _follow(self) -> None:
        """No stage is empty, and MTP layers follow all others."""
        last = self.problem.pp - 1
        for stage, kinds in enumerate(self.layers):
            here = [term for terms in kinds.values() for term in terms]
            if self.predicted:
                ends = (stage == 0) + (stage == last)
                self.program.linear([*here, (self.predicted[stage], 1)], 1 - ends, None)
                earlier: list[Term] = [(before, len(self.names)) for before in self.predicted[:stage]]
                scaled = [(variable, sign * self.predicting) for variable, sign in here]
                self.program.linear([*scaled, *earlier], None, len(self.names) * self.predicting)

    def _on_stage(self, stage: int) -> dict[str, int]:
        """Layers of each kind on a stage."""
        last = self.problem.pp - 1
        variables = {
            EMBEDDING: self.program.choice((int(stage == 0),)),
            HEAD: self.program.choice((int(stage == last),)),
        }
        for kind in dict.fromkeys(self.names):
            variables[kind] = self.program.variable(0, self.names.count(kind))
            self.program.linear([(variables[kind], -1), *self.layers[stage][kind]], 0, 0)
        if self.predicted:
            variables[MTP] = self.predicted[stage]
        return variables

    def _hosted(self, stage: int) -> dict[str, int]:
        """OFFLOAD_STEPs more on the host x layers of each kind on a stage."""
        if self.more is None:
            return {}
        problem, ends = self.problem, {EMBEDDING: stage == 0, HEAD: stage == self.problem.pp - 1}
        products = {}
        for kind, on_stage in self.on_stage[stage].items():
            if not problem.memory.layers[kind].state:
                continue
            count = sum(n for name, n in problem.sequence if name == kind)
            if kind not in ends:
                products[kind] = self.program.product(self.more, on_stage, (problem.more, count))
            elif ends[kind]:
                products[kind] = self.more
        return products

    def _recomputed(self, stage: int) -> dict[str, int]:
        """Layers of each kind that a stage recomputes, at most those it holds; MoE layers before dense ones."""
        variables = {}
        for kind in recomputable(self.problem):
            variables[kind] = self.program.variable(0, self.names.count(kind))
            self.program.linear([(variables[kind], 1), (self.on_stage[stage][kind], -1)], None, 0)
        if len(variables) == 2:
            total, whole = len(self.names), self.program.variable(0, 1)
            self.program.linear([(self.on_stage[stage][MOE], 1), (variables[MOE], -1), (whole, total)], None, total)
            self.program.linear([(variables[DENSE], 1), (whole, -total)], None, 0)
        return variables

    def _recomputed_alike(self, stage: int) -> dict[str, int]:
        """Layers of each kind among the first ones of a stage; MTP layers if all layers are."""
        variables = {}
        for kind in recomputable(self.problem):
            on_stage = self.on_stage[stage][kind]
            variables[kind] = self.program.variable(0, sum(n for name, n in self.problem.sequence if name == kind))
            if kind == MTP:
                self.program.linear([(variables[kind], 1), (on_stage, -1)], None, 0)
                self.program.linear([(variables[kind], 1), (self.whole, -self.predicting)], None, 0)
                self.program.linear(
                    [(variables[kind], 1), (on_stage, -1), (self.whole, -self.predicting)], -self.predicting, None
                )
                continue
            self.program.linear([(variables[kind], -1), *self.recomputed_terms[stage][kind]], 0, 0)
        return variables

    def _fit(self, stage: int) -> None:
        """The stage's bytes stay within its memory, with the largest layer that is being recomputed."""
        memory, in_flight, grain = self.problem.memory, self.problem.in_flight[stage], self.grain / self.finer
        on_stage, layers = self.on_stage[stage], memory.layers
        terms: list[Term] = [(n, ceil(memory.of(kind, in_flight) / grain)) for kind, n in on_stage.items()]
        terms += [(n, -floor(memory.saved(kind, in_flight) / grain)) for kind, n in self.recomputed[stage].items()]
        hosted = self.hosted[stage].items()
        terms += [(steps, -floor(OFFLOAD_STEP * layers[kind].state / grain)) for kind, steps in hosted]
        terms.append((self.peak, -self.finer))
        most_bytes = -ceil(memory.fixed / grain)
        self.program.linear(terms, None, most_bytes)
        freed: list[Term] = [(n, -floor(layers[kind].freed / grain)) for kind, n in on_stage.items()]
        always = {kind: n for kind, n in on_stage.items() if not layers[kind].chosen}
        for kind, recomputed in {**self.recomputed[stage], **always}.items():
            if not layers[kind].recomputing:
                continue
            total = sum(n for name, n in self.problem.sequence if name == kind)
            any_recomputed = self.program.variable(0, 1)
            self.program.linear([(recomputed, 1), (any_recomputed, -total)], None, 0)
            extra = ceil(layers[kind].recomputing / grain)
            self.program.linear([*terms, *freed, (any_recomputed, extra)], None, most_bytes)

    def _fit_on_host(self, stage: int) -> None:
        """What the stage keeps on the host stays within the host's room for a GPU."""
        problem = self.problem
        memory, most_steps = problem.memory, MEMORY_STEPS * self.finer
        each = {kind: memory.on_host(kind, problem.in_flight[stage]) for kind in memory.layers}
        if problem.host_memory_per_gpu == inf or not (problem.more or any(each.values())):
            return
        grain = problem.host_memory_per_gpu / most_steps
        terms: list[Term] = [(n, ceil(each[kind] / grain)) for kind, n in self.on_stage[stage].items()]
        hosted = self.hosted[stage].items()
        terms += [(steps, ceil(OFFLOAD_STEP * memory.layers[kind].state / grain)) for kind, steps in hosted]
        self.program.linear(terms, None, most_steps)

    def _minimise(self, at_most: float) -> None:
        """The pipeline and the longest that a stage takes once per step, with what recomputed layers cost beside time.

        The cost is at most `at_most` [s]; rounding may add half a tick for each layer.
        """
        problem = self.problem
        pipeline = self._alternating() if problem.alternates else self._closed()
        prices = {kind: round(problem.kinds[kind].recompute_price / self.tick) for kind in self.extra}
        priced = [(n, prices[kind]) for stage in self.recomputed for kind, n in stage.items() if prices[kind]]
        cost = [(pipeline, 1), (self.once(), 1), *priced]
        self.program.minimise(cost)
        rounding = (problem.microbatches + 2 * problem.pp + 1 + bool(priced)) * (len(self.names) + 3)
        least = floor(least_objective(problem, at_most) / self.tick) - rounding
        most = (at_most - problem.memory.offload * problem.hosted_price) / self.tick + rounding
        self.program.linear(cost, least, int(most) if at_most < inf else None)

    def _closed(self) -> int:
        """(m - 1) slowest + recomputing of all stages, less what weights' gradients fill of the bubble."""
        problem, m = self.problem, self.problem.microbatches
        most = self.whole_ticks + sum(n * self.extra.get(kind, 0) for kind, n in problem.sequence)
        whole = self.whole_ticks + problem.pp * self.aside
        slowest = self._slowest(most + problem.pp * self.aside)
        pipeline = self.program.variable(0, (m + 1) * (most + whole))
        extra = [(n, self.extra[kind]) for stage in self.recomputed for kind, n in stage.items()]
        # The bubble, all stages less the slowest, shrinks by what is filled, but not below nothing.
        filled = round(problem.filled / self.tick)
        self.program.linear([(slowest, m - 1), *extra, (pipeline, -1)], None, filled - whole)
        self.program.linear([(slowest, m), (pipeline, -1)], None, 0)
        return pipeline

    def _slowest(self, most: int) -> int:
        """Ticks of the slowest stage for one micro-batch, of so many at most; rounding may take half of one a layer."""
        mean = -(-self.whole_ticks // self.problem.pp) + self.aside
        least = max(mean, floor(least_slowest(self.problem)[0] / self.tick) - len(self.names) - 3)
        slowest = self.program.variable(least, max(least, most))
        for stage in range(self.problem.pp):
            self.program.linear([*self._busy(stage), (slowest, -1)], None, -self.aside)
        return slowest

    def _busy(self, stage: int) -> list[Term]:
        """Ticks of what a stage holds for one micro-batch."""
        on_stage = [(n, self.ticks[kind]) for kind, n in self.on_stage[stage].items()]
        return [*on_stage, *((n, self.extra[kind]) for kind, n in self.recomputed[stage].items())]

    def _alternating(self) -> int:
        """The longest chain of passes of 1F1B that wait for each other; see one_f_one_b.makespan."""
        problem, m = self.problem, self.problem.microbatches
        most = (m + problem.pp) * (self.whole_ticks * 2 + problem.pp * self.aside)
        alone = ahead(problem.pp, m).tolist()
        early, first = self._filling(self._passes("forward"), self._passes("backward"), alone, most)
        late, last = self._filling(self._passes("backward"), self._passes("forward"), alone, most)
        pipeline = self.program.variable(0, most)
        # What no chain is shorter than, by the slowest stage: the solver would find it stage by stage.
        slowest = self._slowest(most)
        self.program.linear([(slowest, m), (pipeline, -1)], None, 0)
        whole = self.whole_ticks + problem.pp * self.aside
        if m - 1 > problem.pp:
            self.program.linear([(slowest, m - 1 - problem.pp), (pipeline, -1)], None, -2 * whole)
        for stage, passes in enumerate(alone):
            chains = [(first, late), (early, last)]
            steady: list[Term] = []
            fixed = 0
            if m >= passes + 2:
                chains = [(first, last)]
                steady = [(n, (m - 1 - passes) * ticks) for n, ticks in self._busy(stage)]
                fixed = (m - 1 - passes) * self.aside
            for start, end in chains:
                self.program.linear([*steady, (start[stage], 1), (end[stage], 1), (pipeline, -1)], None, -fixed)
        return pipeline

    def _passes(self, name: str) -> list[tuple[list[Term], int]]:
        """Ticks of every stage's forward or backward pass of one micro-batch, and what it has beside its layers."""
        ticks = self.ahead
        if name == "backward":
            ticks = {kind: both - self.ahead[kind] for kind, both in self.ticks.items()}
        passes = []
        for on_stage, recomputed in zip(self.on_stage, self.recomputed, strict=True):
            terms: list[Term] = [(n, ticks[kind]) for kind, n in on_stage.items()]
            terms += [(n, self.extra[kind]) for kind, n in recomputed.items() if name == "backward"]
            passes.append((terms, self.aside // 2 if name == "forward" else self.aside - self.aside // 2))
        return passes

    def _filling(
        self,
        forward: Sequence[tuple[list[Term], int]],
        backward: Sequence[tuple[list[Term], int]],
        alone: Sequence[int],
        most: int,
    ) -> tuple[list[int], list[int]]:
        """When each stage has run its forward passes ahead and one, and when its first backward pass can start."""
        whole, longest, ready = None, None, []
        for (terms, fixed), passes in zip(forward, alone, strict=True):
            here, slow, done = (self.program.variable(0, most) for _ in range(3))
            self.program.linear([*terms, (here, -1), *([(whole, 1)] if whole is not None else [])], -fixed, -fixed)
            self.program.linear([*terms, (slow, -1)], None, -fixed)
            if longest is not None:
                self.program.linear([(longest, 1), (slow, -1)], None, 0)
            self.program.linear([(here, 1), (slow, passes), (done, -1)], None, 0)
            whole, longest = here, slow
            ready.append(done)
        start = [self.program.variable(0, most) for _ in ready]
        for stage, begins in enumerate(start):
            self.program.linear([(ready[stage], 1), (begins, -1)], None, 0)
            if stage + 1 < len(start):
                terms, fixed = backward[stage + 1]
                self.program.linear([*terms, (start[stage + 1], 1), (begins, -1)], None, -fixed)
        return ready, start

    def once(self) -> int:
        """The longest that a stage takes for what it does once per step, convex in its layers."""
        tick = self.tick / self.finer
        share, kinds = self.problem.more * OFFLOAD_STEP, self.problem.kinds
        every = sum(n * (kinds[kind].per_step + share * kinds[kind].hosted) for kind, n in self.problem.sequence)
        # Rounding adds up to half a tick for every layer.
        rounding = 1 + sum(n for _, n in self.problem.sequence)
        most = ceil((every + share * self.problem.hosted_price) / self.tick) + rounding
        fewest = floor(least_once(self.problem) / self.tick) - rounding
        longest = self.program.variable(max(0, min(fewest, most)), most)
        forms = [{kind: round(form[kind] / tick) for kind in form} for form in once_forms(self.problem)]
        for on_stage, hosted in zip(self.on_stage, self.hosted, strict=True):
            later: list[Term] = [
                (steps, round(OFFLOAD_STEP * kinds[kind].hosted / tick)) for kind, steps in hosted.items()
            ]
            if self.more is not None:
                later.append((self.more, round(OFFLOAD_STEP * self.problem.hosted_price / tick)))
            for form in forms:
                terms = [(layers, form[kind]) for kind, layers in on_stage.items()]
                self.program.linear([*terms, *later, (longest, -self.finer)], None, 0)
        return longest

    def runs(self, values: Sequence[int]) -> tuple[Runs, ...]:
        """The runs of layers on each stage in a solution."""
        counts = [
            sum(sign * values[variable] for terms in kinds.values() for variable, sign in terms)
            for kinds in self.layers
        ]
        ahead = next((len(counts) - 1 - stage for stage, on_stage in enumerate(self.predicted) if values[on_stage]), 0)
        return runs_of(self.problem, counts, ahead)

    def first_layers(self, values: Sequence[int]) -> int:
        """How many first layers of every stage are recomputed; 0 for all, or where each stage differs."""
        return 0 if not self.problem.alike or values[self.whole] else values[self.first]
