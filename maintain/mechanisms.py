"""What each mechanism explains: `python -m maintain.mechanisms --runs FILE [--runs FILE]`.

Every run is priced once more with one mechanism switched to neutral and nothing refitted: of MoE models one table, of
others one of the stacks whose software has what is listed. An error that does not grow without a mechanism says that
these runs do not need it. Printed as Markdown, with the parameters of each stack: fitted, known, at their default, and
runs for each fitted one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from optimizer.base.errors import InputError
from optimizer.calibration.fit import time_errors
from optimizer.calibration.groups import gathered, on_broken_network
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import load_stack
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.kernels import routed_rows
from optimizer.objectives.layer import dispatchers, drained_host, layer_costs
from optimizer.objectives.layer.dispatchers import KINDS

ALL = "all mechanisms"


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A mechanism and what makes it neutral.

    Attributes:
        name: in the table.
        features: of the stack.
        parameters: of the stack.
        plan: fields of the plan.
        experts: fields of the model's experts.
        constants: modules, names and values.
    """

    name: str
    features: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    experts: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[tuple[ModuleType, str, Any], ...] = ()

    def off(self, run: Run) -> Run:
        """The run without the mechanism."""
        if run.job is None or run.plan is None:
            return run
        stack, model = run.job.stack, run.job.model
        model = replace(model, experts=replace(model.experts, **self.experts)) if model.experts else model
        stack = replace(
            stack,
            features=replace(stack.features, **self.features),
            parameters={**stack.parameters, **self.parameters},
        )
        return replace(run, job=replace(run.job, stack=stack, model=model), plan=replace(run.plan, **self.plan))


MECHANISMS = (
    Mechanism(name="dispatchers of their own (all-to-all for all)", plan={"dispatcher": DISPATCHERS[0]}),
    Mechanism(name="at most so many groups of experts a token", experts={"groups": 0, "group_limit": 0}),
    Mechanism(
        name="host time of a dispatcher's call over EFA",
        constants=((dispatchers, "KINDS", {name: replace(kind, proxied=0.0) for name, kind in KINDS.items()}),),
    ),
    Mechanism(name="tokens that the host posts one by one", features={"posts_tokens": False}),
    Mechanism(name="gradients added in kernels of their own", features={"fused_accumulation": True}),
    Mechanism(name="all-to-all overlapped with other micro-batches", plan={"overlap_exchange": False}),
    Mechanism(name="imbalance of real routing", features={"routing": "", "balanced_experts": True}),
    Mechanism(name="start of each expert's product", constants=((routed_rows, "GROUP_ROWS", 0.0),)),
    Mechanism(name="rate of grouped products", parameters={"expert_efficiency": 1.0}),
    Mechanism(name="rows gathered by index cost twice", constants=((routed_rows, "GATHERED", 1.0),)),
    Mechanism(name="wait for the sizes of the all-to-all", features={"synchronised": False}),
    Mechanism(name="graphs of parts of a layer", features={"graphed": (), "cuda_graphs": False}),
    Mechanism(name="host time of eager MoE layers", features={"eager_experts": False}),
    Mechanism(name="what a release does not fuse yet", features={"unfused": ()}),
    Mechanism(name="experts fused in their products", features={"fused_experts": False}),
    Mechanism(name="processes without cores of their own", features={"bound_host": True}),
    Mechanism(name="host calls of a module recomputed apart", constants=((drained_host, "CHECKPOINTED", 0.0),)),
    Mechanism(name="calls of quantising", constants=((drained_host, "QUANTISED", 0.0),)),
    Mechanism(name="launches", parameters={"launch": 0.0}),
)
DENSE_MECHANISMS = (
    Mechanism(name="ZeRO-1 slices each tensor for each rank", features={"sliced_host": 0.0}),
    Mechanism(name="ZeRO-1 reduces all gradients, in one call", features={"reduces_whole": False}),
    Mechanism(name="buckets of DDP, whatever the ranks", features={"bucket_per_rank": 4e6}),
    Mechanism(name="TP groups of several nodes wait", constants=((layer_costs, "SPANNED", 0.0),)),
    Mechanism(name="pipelines between nodes wait, and such groups", parameters={"pipelined_collective": 0.0}),
    Mechanism(name="a head that TP does not split", features={"unsplit_head_rate": 1.0}),
    Mechanism(name="gradients added in kernels of their own", features={"fused_accumulation": True}),
    Mechanism(name="recomputation stops early", features={"stops_early": False}),
    Mechanism(name="ranks wait for each other", parameters={"collective_skew": 0.0}),
    Mechanism(name="launches", parameters={"launch": 0.0}),
)


def errors_without(runs: Sequence[Run], mechanism: Mechanism | None) -> list[float]:
    """|predicted / measured - 1| of every run, without one mechanism or with all of them [1]."""
    changed = [mechanism.off(run) for run in runs] if mechanism else list(runs)
    with _constants(mechanism.constants if mechanism else ()):
        errors = time_errors(changed, {})
    return [float(each) for each in np.abs(np.expm1(errors))]


@contextmanager
def _constants(changes: Sequence[tuple[ModuleType, str, Any]]) -> Iterator[None]:
    """Constants of modules with other values, until the end of the block."""
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def moe_runs(runs: Sequence[Run]) -> list[Run]:
    """The clean runs of MoE models that have a step time."""
    return [run for run in runs if run.job and run.job.model.experts and run.step_time and not run.doubted]


def dense_runs(runs: Sequence[Run]) -> list[Run]:
    """The clean runs of other models that have a step time, of software in which one of the mechanisms is at work, on
    whole networks.
    """
    clean = [run for run in runs if run.job and not run.job.model.experts and run.step_time and not run.doubted]
    clean = [run for run in clean if not on_broken_network(run)]
    moved = [mechanism for mechanism in DENSE_MECHANISMS if mechanism.features]
    stacks = gathered(clean, lambda run: run.stack_name)
    working = {name for name, (run, *_) in stacks.items() if any(each.off(run).job != run.job for each in moved)}
    return [run for run in clean if run.stack_name in working]


def mechanisms_table(chosen: Sequence[Run], mechanisms: Sequence[Mechanism] = MECHANISMS) -> list[str]:
    """Mean errors by stack with all mechanisms, and by how much each is larger without one, in Markdown."""
    groups = gathered(range(len(chosen)), lambda place: chosen[place].stack_name)
    names = [ALL, *map(str, groups)]
    lines = [f"| mean error | {' | '.join(['all stacks', *names[1:]])} |", f"|---|{'---|' * len(names)}"]
    members = [np.arange(len(chosen)), *(np.array(places) for places in groups.values())]
    lines.append(f"| runs | {' | '.join(str(len(some)) for some in members)} |")
    whole = np.array(errors_without(chosen, None))
    lines.append(f"| {ALL} | {' | '.join(f'{whole[some].mean():.1%}' for some in members)} |")
    for mechanism in mechanisms:
        without = np.array(errors_without(chosen, mechanism))
        points = [100.0 * float((without - whole)[some].mean()) for some in members]
        cells = [f"{lost:+.1f}" if abs(lost) >= 0.05 else "" for lost in points]
        lines.append(f"| without: {mechanism.name} | {' | '.join(cells)} |")
    return lines


def parameters_table(names: Sequence[str]) -> list[str]:
    """Parameters and runs of stacks, in Markdown."""
    lines = ["| stack | runs | fitted | known | default | runs for each fitted |", "|---|---|---|---|---|---|"]
    for stack in map(load_stack, names):
        fitted, known, default = stack.counts
        each = f"{stack.runs / fitted:.0f}" if stack.runs and fitted else ""
        lines.append(f"| {stack.name} | {stack.runs} | {fitted} | {known} | {default} | {each} |")
    return lines


def main(arguments: Sequence[str]) -> str:
    """All tables.

    Raises InputError for arguments that are not `--runs FILE`, once or more, and where no run has anything to explain.
    """
    if len(arguments) < 2 or len(arguments) % 2 or set(arguments[::2]) != {"--runs"}:
        raise InputError("usage: python -m maintain.mechanisms --runs FILE.csv [--runs FILE.csv]")
    runs = [run for file in arguments[1::2] for run in read_runs(Path(file))]
    moe, dense = moe_runs(runs), dense_runs(runs)
    if not moe and not dense:
        raise InputError("no row that can be priced has a step time; give tables of such runs")
    lines = mechanisms_table(moe) if moe else []
    if dense:
        lines += ["", *mechanisms_table(dense, DENSE_MECHANISMS)]
    return "\n".join([*lines, "", *parameters_table(sorted({run.stack_name for run in [*moe, *dense]}))])


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except InputError as problem:
        sys.exit(f"mechanisms: {problem}")
