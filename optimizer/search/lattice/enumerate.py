"""Every plan of a job: the lattice, variable by variable, each rule applied as soon as it can be decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.given_layout import placements
from optimizer.constraints.rule import Rule
from optimizer.constraints.rules.every import structural
from optimizer.constraints.space import domains
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, IntArray, Plan, Plans
from optimizer.job.variables import FREE, OPTION, SCHEDULES, VARIABLES, names_of
from optimizer.objectives.layer.dispatch_choice import KEYS, useful_dispatchers
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.search.lattice.deadline import NEVER, Deadline

CHUNK = 2**16
SMALL_CHUNK = 2**13  # where a deadline has to be looked at often
MOST_SHAPES = 2**18  # combinations of tp, cp and pp that are joined at once
TABLED = 2**10  # rows from which a rule about two variables is asked about their values instead
PAIRS = 2**22  # rows and numbers of GPUs or batches that are divided at once
MOST_PRICED_ONCE = 2**17  # most plans that a Space keeps: some 600 bytes each once they are priced
OPTIONS = names_of(OPTION)
Columns = dict[str, NDArray[np.int64]]
_SWITCHES = tuple(name for name in FIELDS if VARIABLES[name].switch)
# The neutral value of every variable, as often as anybody asks for it: columns that take no memory.
_NEUTRAL = {
    name: np.broadcast_to(np.array(VARIABLES[name].neutral, np.bool_ if name in _SWITCHES else np.int64), 2**40)
    for name in FIELDS
}


class Space:
    """The layer costs of all plans that satisfy the rules, to be walked several times; a small space is priced once."""

    def __init__(self, job: Job, rules: Sequence[Rule]) -> None:
        self.job, self.rules = job, rules
        self._cost_batches: list[LayerCosts] | None = None

    def __iter__(self) -> Iterator[LayerCosts]:
        """The layer costs of the plans in chunks, always in the same order."""
        return self.until(NEVER)

    def until(self, deadline: Deadline) -> Iterator[LayerCosts]:
        """The same. Raises TimeLimit after the deadline where the space has to be walked."""
        if self._cost_batches is not None:
            yield from self._cost_batches
            return
        seen: list[LayerCosts] = []
        count = 0
        for plans in lattice(self.job, self.rules, CHUNK if deadline == NEVER else SMALL_CHUNK, deadline):
            deadline.go_on()
            layer_costs = layer_costs_of(self.job, plans)
            count += len(plans)
            seen = [*seen, layer_costs] if count <= MOST_PRICED_ONCE else []
            yield layer_costs
        if count <= MOST_PRICED_ONCE:
            self._cost_batches = seen


@lru_cache(maxsize=1)
def space_of(job: Job) -> Space:
    """The plans that satisfy the structural rules, kept for the next question about the same job."""
    return Space(job, structural(job))


def lattice(job: Job, rules: Sequence[Rule], chunk: int = CHUNK, deadline: Deadline = NEVER) -> Iterator[Plans]:
    """All plans that satisfy the rules, in chunks of about `chunk`, in a fixed order."""
    return walk(job, rules, domains(job), chunk=chunk, deadline=deadline)


def walk(
    job: Job,
    rules: Sequence[Rule],
    values: Mapping[str, tuple[int, ...]],
    *,
    gpus: IntArray | None = None,
    batches: IntArray | None = None,
    chunk: int = CHUNK,
    deadline: Deadline = NEVER,
) -> Iterator[Plans]:
    """All plans with these values of the variables that satisfy the rules. Raises TimeLimit after the deadline.

    Geometry is joined whole, or for a few values of cp where there are many; the options that multiply it are joined
    per chunk. Where the user places the layers, every plan says where they lie. `gpus` and `batches` stand for the
    job's: plans on exactly these numbers of GPUs, with no more replicas than sequences, or of exactly these batches.
    """
    degrees = values["cp"]
    few = max(1, MOST_SHAPES // (len(values["tp"]) * len(values["pp"])))
    if len(degrees) > few:
        for start in range(0, len(degrees), few):
            some = {**values, "cp": degrees[start : start + few]}
            yield from walk(job, rules, some, gpus=gpus, batches=batches, chunk=chunk, deadline=deadline)
        return
    most = job.global_batch if batches is None else int(batches.max())
    several = (("dp", gpus), ("num_microbatches", batches))
    shared = {name: (numbers, most) for name, numbers in several if numbers is not None}
    waiting = [rule for rule in rules if rule.name != "memory"]
    columns: Columns = {}
    bound: set[str] = set()
    for name in names_of(FREE):
        deadline.go_on()
        columns, waiting = _join(job, columns, name, values, bound, waiting, shared)
        if name == "vpp" and "schedule" in values:
            columns, waiting = _join(job, columns, "schedule", values, bound, waiting, shared)
    combinations = int(np.prod([len(values[name]) for name in OPTIONS]))
    rows, step, start = len(columns["tp"]), max(1, chunk // combinations), 0
    while start < rows:
        deadline.go_on()
        part = {name: column[start : start + step] for name, column in columns.items()}
        taken, start = len(part["tp"]), start + step
        known, left = set(bound), waiting
        for name in OPTIONS:
            part, left = _join(job, part, name, values, known, left, shared)
        if len(part["tp"]):
            plans = plans_of(part)
            yield plans.placed(placements(job, plans)) if job.layout_given else plans
        # Rules leave few of the combinations: what a chunk was short of, the next ones take more of the geometry.
        step = max(step, taken * chunk // max(1, len(part["tp"])))


def plans_of(columns: Mapping[str, NDArray[np.int64]]) -> Plans:
    """Columns as plans, those that are not there neutral."""
    rows = len(next(iter(columns.values())))
    values: dict[str, Any] = {
        name: columns[name] if name in columns else endless[:rows] for name, endless in _NEUTRAL.items()
    }
    values |= {name: values[name].astype(bool) for name in _SWITCHES if name in columns}
    return Plans(**values)


def alike(plans: Plans, plan: Plan) -> NDArray[np.bool_]:
    """Which of the plans are this one, wherever their layers lie."""
    mine = Plans.of([plan])
    return np.asarray(np.logical_and.reduce([getattr(plans, name) == getattr(mine, name) for name in FIELDS]))


def _join(
    job: Job,
    columns: Columns,
    name: str,
    values: Mapping[str, tuple[int, ...]],
    bound: set[str],
    waiting: list[Rule],
    shared: Mapping[str, tuple[IntArray, int]],
) -> tuple[Columns, list[Rule]]:
    """Cross the rows with the values of one variable, derive what follows, drop rows that break a rule.

    What is derived from one of several `shared` numbers makes a row of each of them that the row divides; a dispatcher
    makes one of each that the row may gain by.
    """
    rows, options = len(next(iter(columns.values()))) if columns else 1, np.array(values[name], dtype=np.int64)
    bound.add(name)
    allowed, waiting = _tabled(job, columns, name, values, waiting) if rows > TABLED else (None, waiting)
    if allowed is not None:
        taken, which = np.nonzero(allowed)
        columns = {key: column.take(taken) for key, column in columns.items()} | {name: options[which]}
    else:
        if len(options) != 1:
            columns = {key: column.repeat(len(options)) for key, column in columns.items()}
        columns = {**columns, name: (np.ones((rows, 1), dtype=np.int64) * options).ravel()}
    for derived, needs, derive in DERIVATIONS:
        if derived in bound or not needs <= bound:
            continue
        pin = values.get(derived)
        if derived in shared:
            taken, parts = _shares(*shared[derived], np.prod([columns[need] for need in needs], axis=0))
            columns = {key: column[taken] for key, column in columns.items()} | {derived: parts}
            bound.add(derived)
        elif pin is None or len(pin) == 1:
            columns[derived] = derive(job, columns) if pin is None else np.full(len(columns["tp"]), pin[0])
            bound.add(derived)
    if "dispatcher" not in bound and bound.issuperset(KEYS):
        if (pin := values.get("dispatcher")) is None:
            taken, chosen = useful_dispatchers(job, columns)
            columns = {key: column[taken] for key, column in columns.items()} | {"dispatcher": chosen}
        else:
            columns["dispatcher"] = np.full(len(columns["tp"]), pin[0])
        bound.add("dispatcher")
    plans: Plans | None = None
    for rule in waiting:
        if bound.issuperset(rule.variables):
            plans = plans_of(columns) if plans is None else plans
            if not (keep := rule.check(job, plans)).all():
                holding, plans = np.flatnonzero(keep), None
                columns = {key: column[holding] for key, column in columns.items()}
    return columns, [rule for rule in waiting if not bound.issuperset(rule.variables)]


def _tabled(
    job: Job, columns: Columns, name: str, values: Mapping[str, tuple[int, ...]], waiting: list[Rule]
) -> tuple[NDArray[np.bool_] | None, list[Rule]]:
    """Which values of a variable every row may have by rules about it and one other, each asked once for each pair of
    their values; None where there are none. And the rules that are left.
    """
    allowed: NDArray[np.bool_] | None = None
    left: list[Rule] = []
    for rule in waiting:
        others = [other for other in rule.variables if other != name]
        if len(others) == 1 and len(rule.variables) == 2 and others[0] in columns and others[0] in values:
            known, options = np.sort(values[others[0]]), np.array(values[name], dtype=np.int64)
            pairs = {others[0]: known.repeat(len(options)), name: np.tile(options, len(known))}
            table = rule.check(job, plans_of(pairs)).reshape(len(known), len(options))
            rows = table[np.searchsorted(known, columns[others[0]])]
            allowed = rows if allowed is None else allowed & rows
        else:
            left.append(rule)
    return allowed, left


def _shares(numbers: IntArray, most: int, products: IntArray) -> tuple[IntArray, IntArray]:
    """Rows whose product divides a number into at most so many parts, once for each of the numbers, and the parts."""
    step = max(1, PAIRS // len(numbers))
    dividing, parts = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(products), step):
        some = products[start : start + step, None]
        rows, which = np.nonzero((numbers % some == 0) & (numbers <= most * some))
        dividing.append(start + rows)
        parts.append(numbers[which] // products[start + rows])
    return np.concatenate(dividing), np.concatenate(parts)


def _replicas(job: Job, columns: Columns) -> NDArray[np.int64]:
    return np.asarray(np.maximum(1, job.gpus // (columns["tp"] * columns["cp"] * columns["pp"])))


def _microbatches(job: Job, columns: Columns) -> NDArray[np.int64]:
    return np.asarray(np.maximum(1, job.global_batch // (columns["dp"] * columns["micro_batch"])))


def _schedules(_: Job, columns: Columns) -> NDArray[np.int64]:
    return np.where(columns["vpp"] > 1, SCHEDULES.index("interleaved"), SCHEDULES.index("1f1b"))


Derive = Callable[[Job, Columns], NDArray[np.int64]]
DERIVATIONS: tuple[tuple[str, set[str], Derive], ...] = (
    ("dp", {"tp", "cp", "pp"}, _replicas),
    ("num_microbatches", {"dp", "micro_batch"}, _microbatches),
    ("schedule", {"vpp"}, _schedules),
)
