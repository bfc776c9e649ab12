"""Where jobs and plans lie among measured runs: what their errors of prediction have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from optimizer.catalog.software import releases
from optimizer.catalog.stacks import preset_stack, stack_names
from optimizer.job.hardware import Device
from optimizer.job.job import DTYPES, Job
from optimizer.job.known import PLAN_COLUMNS, SIZES, TIME, YOURS, RunError
from optimizer.job.method import FULL
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import Features, Stack
from optimizer.job.target import AT
from optimizer.objectives.arrays import FloatArray

DEGREES = ("tp", "cp", "ep", "etp", "pp", "vpp", "dp", "micro_batch", "num_microbatches")
LAYER_DEGREES = [DEGREES.index(name) for name in ("tp", "cp", "ep", "etp", "micro_batch")]
EASY_MFU, HARDEST_MFU = 0.40, 1e-3
FAR = 1e3  # doublings to a plan that is like no other
# What two places share for a part of their errors to be one, by the name of the part.
SHARED: Mapping[str, tuple[str, ...]] = {
    "everything": (),
    "hardware": ("generation", "kind"),
    "root": ("root",),
    "software": ("software",),
    "software_generation": ("software", "generation"),
    "software_kind": ("software", "kind"),
    "software_format": ("software", "format"),
    "site": ("software", "site", "device"),
    "model": ("software", "device", "model"),
    "size": ("software",),
    "plan": ("software", "device"),
    "layer": ("software", "device"),
}
# What runs share that differ in size and plan alone.
RUN = ("software", "device", "kind", "model", "format", "site", "switches")


@dataclass(frozen=True, kw_only=True)
class Places:
    """Places of runs or plans: one row each of every array."""

    codes: NDArray[np.int64]  # equal in a column where two rows share what a part of SHARED, or RUN, names
    roots: tuple[str, ...]  # what the software of each is built on
    softwares: tuple[str, ...]  # their own
    size: FloatArray  # doublings of width, parameters, GPUs and tokens of a sequence [1]
    plan: FloatArray  # doublings of degrees, and choices [1]
    hardness: FloatArray  # of the prediction: doublings to EASY_MFU, or how much is recomputed [1]

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of(cls, rows: Sequence[RunError]) -> Places:
        """Of what is known."""
        return cls(
            codes=np.array([_codes(vars(row)) for row in rows], dtype=np.int64).reshape(len(rows), len(SHARED) + 1),
            roots=tuple(row.root for row in rows),
            softwares=tuple(row.software for row in rows),
            size=np.array([row.size for row in rows], dtype=np.float64).reshape(len(rows), SIZES),
            plan=np.array([row.plan for row in rows], dtype=np.float64).reshape(len(rows), PLAN_COLUMNS),
            hardness=np.array([row.hardness for row in rows], dtype=np.float64),
        )

    @classmethod
    def around(cls, job: Job, plans: Plans, mfu: FloatArray, quantity: str = TIME) -> Places:
        """Of plans of a job, whose predictions make so much of the GPUs [1]."""
        same = cls.of([place(job, None, EASY_MFU, quantity=quantity)]).take(np.zeros(len(plans), dtype=np.intp))
        each = zip(plans.plans(), mfu.tolist(), strict=True)
        hard = [_hardness(job.stack, plan, share, quantity) for plan, share in each]
        return replace(same, plan=plan_columns(plans), hardness=np.array(hard))

    @property
    def layer(self) -> FloatArray:
        """Doublings of what shapes the kernels of a layer on one rank, as layer_columns has them [1]."""
        return layer_columns(self.size, self.plan)

    def with_others(self, others: Places) -> Places:
        """These and others."""
        columns = {
            name: np.concatenate([getattr(self, name), getattr(others, name)])
            for name in ("codes", "size", "plan", "hardness")
        }
        return Places(**columns, roots=self.roots + others.roots, softwares=self.softwares + others.softwares)

    def take(self, chosen: NDArray[np.intp]) -> Places:
        """Some of them."""
        return Places(
            codes=self.codes[chosen],
            roots=tuple(self.roots[index] for index in chosen),
            softwares=tuple(self.softwares[index] for index in chosen),
            size=self.size[chosen],
            plan=self.plan[chosen],
            hardness=self.hardness[chosen],
        )


def _codes(names: Mapping[str, str]) -> list[int]:
    return [hash(tuple(names[name] for name in shared)) for shared in (*SHARED.values(), RUN)]


def place(job: Job, plan: Plan | None, mfu: float, site: str = YOURS, quantity: str = TIME) -> RunError:
    """Where a prediction lies, without an error: of a plan, or of any plan of the job where it is None.

    Args:
        job: Says software, hardware, model and size.
        plan: One of its plans.
        mfu: What the prediction makes of the GPUs [1].
        site: Whose machines the job runs on.
        quantity: What is predicted.
    """
    model, device, stack = job.model, job.cluster.device, job.stack
    software = software_of(stack)
    experts = model.experts
    kind = f"MoE {stack.features.routing}" if experts else "dense"
    shape = (model.layers, model.hidden, experts.count if experts else 0, round(log2(model.params), 1))
    return RunError(
        quantity=quantity,
        root=root_of(stack, software),
        software=software,
        generation=generation(device),
        device=device.name,
        kind=kind if job.train == FULL else f"{kind} {job.train.partition(':')[0]}",
        model="x".join(map(str, shape)),
        format="bf16" if job.dtype == "fp16" else job.dtype,
        site=site,
        size=(log2(model.hidden), log2(model.params), log2(job.gpus), log2(job.seq_len)),
        plan=(FAR,) * PLAN_COLUMNS if plan is None else tuple(plan_columns(Plans.of([plan]))[0].tolist()),
        hardness=_hardness(stack, plan, mfu, quantity),
        error=0.0,
        switches=_digest(stack.features),
    )


@lru_cache(maxsize=64)
def _digest(features: Features) -> str:
    return f"{crc32(repr(features).encode()):08x}"


def _hardness(stack: Stack, plan: Plan | None, mfu: float, quantity: str) -> float:
    """Doublings from the predicted MFU to EASY_MFU; of memory 1 where a plan recomputes something, 2 for all [1].

    Flash attention keeps no scores that a core could recompute.
    """
    if quantity == TIME:
        return max(0.0, log2(EASY_MFU / max(mfu, HARDEST_MFU)))
    nothing = stack.features.selective == "core" and stack.features.attention.startswith("flash")
    if plan is None or plan.recompute in ("none", "selective" if nothing else "none"):
        return 0.0
    return 2.0 if plan.recompute == "full" else 1.0


def plan_columns(plans: Plans) -> FloatArray:
    """Where plans lie among each other: doublings of their degrees, recomputation, ZeRO, sequence parallelism [1].

    >>> one, other = plan_columns(Plans.of([Plan(tp=2, dp=4), Plan(tp=8, dp=1, recompute="full")]))
    >>> float(np.sum((one - other) ** 2))  # TP: 2 doublings, DP: 2, recomputation: 2
    12.0
    """
    columns = [np.log2(getattr(plans, name)) for name in DEGREES]
    recompute = np.where(plans.recompute == RECOMPUTE.index("none"), 0.0, 1.0)
    columns += [np.where(plans.recompute == RECOMPUTE.index("full"), 2.0, recompute)]
    columns += [0.7 * plans.zero_stage, 1.0 * plans.sequence_parallel]
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def layer_columns(size: FloatArray, plans: FloatArray) -> FloatArray:
    """Where kernels of one rank's layer lie among each other: doublings of width, tokens and degrees [1].

    Libraries choose kernels and protocols by shape, so that what a layer takes beside its price repeats wherever its
    shape does, whatever the number of layers, stages and replicas: 641 runs of vTrain on one node have some 30 such
    shapes, whose layers are priced 23 % low to 26 % high, and within a shape the runs lie 1 % apart.

    Args:
        size: As RunError has it, one row a place or one for all.
        plans: As plan_columns has them.

    >>> plans = plan_columns(Plans.of([Plan(tp=2, pp=4, dp=1), Plan(tp=2, pp=1, dp=4), Plan(tp=4, pp=1, dp=2)]))
    >>> rows = layer_columns(np.array([12.0, 33.0, 3.0, 11.0]), plans)
    >>> np.sum((rows - rows[0]) ** 2, axis=1).tolist()
    [0.0, 0.0, 1.0]
    """
    sizes = np.broadcast_to(size, (len(plans), SIZES))[:, [0, -1]]
    return np.concatenate([sizes, plans[:, LAYER_DEGREES], plans[:, len(DEGREES) : len(DEGREES) + 1]], axis=1)


def software_of(stack: Stack) -> str:
    """The software of a stack without its release: a preset's family, else the stack's own name.

    >>> [software_of(preset_stack(name)) for name in ("megatron-core-2025", "megatron-bridge@26.02@any")]
    ['megatron-core', 'megatron-bridge']
    """
    plain = stack.name.partition(AT)[0]
    known = releases().get(plain)
    return family(known.rates if known else plain)


def root_of(stack: Stack, software: str) -> str:
    """The first word of the software that a stack's rates come from."""
    parent = stack.parent if stack.parent in stack_names() else ""
    while parent and (above := preset_stack(parent).parent) and above != parent:
        parent = above
    return (parent or software).partition("-")[0]


def family(stack: str) -> str:
    """A stack's name without the year of its era.

    >>> family("torchtitan-2024"), family("megatron-te-2026-no-overlap")
    ('torchtitan', 'megatron-te-no-overlap')
    """
    return re.sub(r"-20\d\d", "", stack)


def generation(device: Device) -> str:
    """Vendor and newest number format of the matrix units.

    >>> from optimizer.catalog import load_device
    >>> [generation(load_device(name)) for name in ("h20", "gb200", "v100-16", "mi300x")]
    ['NVIDIA fp8', 'NVIDIA fp4', 'NVIDIA fp16', 'AMD fp8']
    """
    formats = ("fp16", *(name for name in DTYPES if name != "fp16"))
    return f"{device.vendor} {[name for name in formats if name in device.peak_flops][-1]}"
