"""The variables of a plan: what each may be, what people call it, and how the lattice comes by its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.job.recomputation import RECOMPUTE

SCHEDULES = ("1f1b", "interleaved", "zero-bubble", "zero-bubble-2p", "dualpipe")
# how routed tokens travel: NCCL's all-to-all, or kernels written for it; optimizer.objectives.layer.dispatchers tells
DISPATCHERS = ("alltoall", "deepep", "hybridep")
UNLIMITED = 2**31
FREE, OPTION, DERIVED = "free", "option", "derived"
# What options and study files call limits, and the field of optimizer.job.job.Limits that each one sets.
LIMITS = {
    "bubble_ceiling": "bubble",
    "hbm_limit": "hbm",
    **{name: name for name in ("max_tp", "max_micro_batch", "max_vpp", "min_cp_tokens", "vocab_padding", "oom_risk")},
}


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One variable, a whole number of at least `least` and at most `most`; where it is `neutral` it asks for nothing.

    names: its values in words, in the order of their numbers. switch: it is on or off. typed: what people type on the
    command line besides its name. role: FREE variables span the lattice, an OPTION multiplies what the others span, and
    a DERIVED variable follows from others unless it is pinned.
    """

    name: str
    role: str = FREE
    least: int = 1
    most: int = UNLIMITED
    neutral: int = 1
    names: tuple[str, ...] = ()
    switch: bool = False
    typed: tuple[str, ...] = ()

    def shown(self, value: int) -> str:
        """A value in words.

        >>> VARIABLES["recompute"].shown(2), VARIABLES["sequence_parallel"].shown(1), VARIABLES["tp"].shown(8)
        ('full', 'on', '8')
        """
        return (self.names or ("off", "on"))[value] if self.names or self.switch else str(value)


def _named(name: str, names: tuple[str, ...], role: str) -> Variable:
    return Variable(name=name, role=role, least=0, most=len(names) - 1, neutral=0, names=names)


# In the order in which the lattice joins them.
VARIABLES: Mapping[str, Variable] = {
    variable.name: variable
    for variable in (
        Variable(name="tp"),
        Variable(name="cp"),
        Variable(name="pp"),
        Variable(name="dp", role=DERIVED),
        Variable(name="micro_batch", typed=("mbs", "mb", "micro_batch_size")),
        Variable(name="num_microbatches", role=DERIVED),
        Variable(name="vpp", typed=("virtual_pp",)),
        _named("schedule", SCHEDULES, DERIVED),
        Variable(name="ep"),
        Variable(name="etp"),
        Variable(name="sequence_parallel", role=OPTION, least=0, most=1, neutral=0, switch=True, typed=("sp",)),
        Variable(name="zero_stage", role=OPTION, least=0, most=3, typed=("zero",)),
        Variable(name="shard", role=OPTION, least=0, neutral=0),
        _named("recompute", RECOMPUTE, OPTION),
        _named("dispatcher", DISPATCHERS, DERIVED),
        Variable(
            name="overlap_exchange",
            role=OPTION,
            least=0,
            most=1,
            neutral=0,
            switch=True,
            typed=("ep_overlap", "overlap_moe_expert_parallel_comm"),
        ),
        Variable(name="activation_offload", role=OPTION, least=0, most=100, neutral=0),
    )
}


def names_of(role: str) -> tuple[str, ...]:
    """Names of the variables of a role.

    >>> names_of(FREE)
    ('tp', 'cp', 'pp', 'micro_batch', 'vpp', 'ep', 'etp')
    """
    return tuple(variable.name for variable in VARIABLES.values() if variable.role == role)
