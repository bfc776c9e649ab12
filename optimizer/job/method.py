"""What of a model is trained, how the rest is stored, and by which optimizer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

from optimizer.base.content import content
from optimizer.base.errors import InputError
from optimizer.base.units import is_count

ADAMW = "adamw"
FULL, LORA, DORA, QLORA, FROZEN = "full", "lora", "dora", "qlora", "frozen"
METHODS = (FULL, LORA, DORA, QLORA, FROZEN)
ADAPTERS = (LORA, DORA, QLORA)
RANK, MOST_RANK = 16, 4096  # of adapters where none is given, and the largest
# Bytes of an element of frozen linear layers. nf4: 4 bits, a scale of 8 bits for every 64 and one of 32 for every 256
# of these (double quantisation); nf4-single: one of 32 bits for every 64; int4: 4 bits, a scale of 16 and a zero of 4
# for every 128 (GPTQ); mxfp4: 4 bits and a scale of 8 for every 32; fp8 and int8: a scale for each row.
# Source: Dettmers et al., arXiv 2305.14314, section 3; Frantar et al., arXiv 2210.17323, section 4; OCP Microscaling
# Formats v1.0, section 5.3.
BASES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nf4": 0.516,
    "nf4-single": 0.5625,
    "int4": 0.52,
    "mxfp4": 0.53125,
}
NF4 = ("nf4", "nf4-single")
DEQUANTISED = (*NF4, "int4", "mxfp4", "int8")  # what is made bf16 again in every pass; fp8 is multiplied as it is
ATTENTION, MLP = ("q", "k", "v", "o"), ("gate", "up", "down")
GROUPS: Mapping[str, tuple[str, ...]] = {"all": (*ATTENTION, *MLP), "attention": ATTENTION, "mlp": MLP}
# What people try in turn when memory does not suffice, by `--train` and `--optimizer`.
WAYS = (
    *((FULL, name) for name in ("", "adamw-8bit", "paged-adamw-8bit", "paged-adamw-8bit:in-backward")),
    *((name, "") for name in (LORA, QLORA)),
)
SAVED = ("embedding", "head")  # what adapters' targets may name besides, to be trained whole
IN_BACKWARD = "in-backward"  # after an optimizer's name: weights are updated as soon as their gradient is there
VISION = "vision"
PARTS = ("embedding", "attention", "mlp", "experts", "head", VISION)  # what `frozen:PATTERN` names, and such as:
LAYERS, OF_LAYERS = re.compile(r"layers\.(-?\d{1,4})(?:-(-?\d{1,4}))?"), PARTS[1:4]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer, as optimizers.toml has it."""

    name: str
    moments: float  # tensors of the weights' shape beside them
    bytes: float = 0.0  # of an element of one, 0: the software's own [B]
    paged: bool = False  # they lie on the host where the device is full, and travel for every step
    wide: bool = False  # moments are in fp32, whatever the software's own are in
    orthogonal: bool = False  # matrices have one moment, which is made orthogonal; the rest Adam's two
    at_once: bool = False  # kernels over all tensors update the weights, with temporaries of each
    temporaries: float = 0.0  # of an element of the tensor that is updated, where it is one after the other [B]
    moved: float = 0.0  # read and written for an element, 0: what it holds once [B]
    in_backward: bool = False  # its step is part of the backward pass, so that gradients live for one layer


@cache
def optimizer_of(text: str) -> Optimizer:
    """The optimizer that `--optimizer` says, AdamW where it says nothing.

    Raises InputError for one that there is not.

    Source of steps in the backward pass: Lv et al., arXiv 2306.09782, section 3.1.

    >>> optimizer_of("lion").moments, optimizer_of("paged-adamw-8bit:in-backward").in_backward
    (1, True)
    """
    name, _, when = text.partition(":")
    if (text and name not in optimizers()) or when not in ("", IN_BACKWARD):
        known = ", ".join(optimizers())
        raise InputError(f"the optimizer must be one of {known}, or such as adamw-8bit:{IN_BACKWARD}, but got {text!r}")
    return replace(optimizers()[name or ADAMW], in_backward=bool(when))


@cache
def optimizers() -> Mapping[str, Optimizer]:
    """The optimizers by name."""
    return {name: Optimizer(name=name, **table) for name, table in content("optimizer.job", "optimizers.toml").items()}


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is trained: everything, adapters beside frozen linear layers, or all but the frozen parts."""

    name: str = FULL  # one of METHODS
    rank: int = 0  # of the adapters
    # matrices that have one, by the words of GROUPS["all"], and parts of SAVED that are trained whole
    targets: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()  # parts that are frozen, of PARTS
    layers: tuple[tuple[int, int], ...] = ()  # first and last of those that are frozen whole, below 0 from the end
    base: str = "bf16"  # how frozen linear layers are stored, of BASES

    @property
    def adapts(self) -> bool:
        """Whether adapters are trained and nothing else."""
        return self.name in ADAPTERS

    @property
    def freezes(self) -> bool:
        """Whether anything is frozen."""
        return self.name != FULL

    @property
    def base_bytes(self) -> float:
        """Bytes of an element of a frozen linear layer [B]."""
        return BASES[self.base]

    @property
    def in_nf4(self) -> bool:
        """Whether frozen weights are 4-bit floats of bitsandbytes."""
        return self.base in NF4

    def trains(self, part: str) -> bool:
        """Whether a part of the model, of PARTS, is trained itself, in every layer."""
        if self.adapts:
            return part in self.targets
        return part not in self.frozen and not (self.layers and part in OF_LAYERS)


def method_of(train: str, base: str = "") -> Method:
    """The method that `--train` and `--base` say.

    Raises InputError for words, ranks or targets that there are not, and for a base of nothing frozen.

    >>> method_of("lora:64:attention")
    Method(name='lora', rank=64, targets=('q', 'k', 'v', 'o'), frozen=(), layers=(), base='bf16')
    >>> method_of("qlora").base, method_of("frozen:emb*").frozen, method_of("").freezes
    ('nf4', ('embedding',), False)
    >>> method_of("frozen:layers.0-23,layers.-1").layers
    ((0, 23), (-1, -1))
    """
    name, _, rest = (train or FULL).strip().lower().partition(":")
    if name not in METHODS:
        raise InputError(f"--train must be one of {', '.join(METHODS)}, such as lora:16:attention, but got {train!r}")
    if base and base not in BASES:
        raise InputError(f"--base must be one of {', '.join(BASES)}, but got {base!r}")
    if name == FULL:
        if rest or base not in ("", "bf16"):
            what = f"--train {train}" if rest else f"--base {base}"
            raise InputError(f"{what}: full training freezes no weights; write --train lora or qlora")
        return Method()
    stored = base or ("nf4" if name == QLORA else "bf16")
    if name == QLORA and stored not in DEQUANTISED:
        raise InputError(f"--train qlora keeps its base in one of {', '.join(DEQUANTISED)}, but --base says {base}")
    if name == FROZEN:
        frozen, layers = _frozen(rest, train)
        return Method(name=name, frozen=frozen, layers=layers, base=stored)
    rank, _, targets = rest.partition(":")
    return Method(name=name, rank=_rank(rank, train), targets=_targets(targets, train), base=stored)


def tunes(method: Method, rule: Optimizer, loss: str = "") -> bool:
    """Whether such a job trains a model that exists: parts are frozen, its optimizer is one of small machines, or its
    loss is named.

    >>> [tunes(method_of(train), optimizer_of(name)) for train, name in (("", "muon"), ("", "adamw-8bit"))]
    [False, True]
    """
    return method.freezes or bool(rule.bytes) or rule.paged or rule.in_backward or bool(loss)


def lighter_ways(train: str, optimizer: str) -> list[tuple[str, str]]:
    """Ways of WAYS with less memory than this one, adapters as large and where they are.

    >>> lighter_ways("full", "paged-adamw-8bit:in-backward"), lighter_ways("lora:64:attention", "lion")
    ([('lora', ''), ('qlora', '')], [('qlora:64:attention', 'lion')])
    >>> lighter_ways("qlora", "")
    []
    """
    name, _, adapters = train.partition(":")
    if name in (FULL, FROZEN):
        place = max((at for at, way in enumerate(WAYS) if way == (train, optimizer)), default=WAYS.index((FULL, "")))
        return [way for way in WAYS[place + 1 :] if name == FULL or way[0] != FULL]
    return [(f"{QLORA}:{adapters}" if adapters else QLORA, optimizer)] if name != QLORA else []


def _rank(text: str, train: str) -> int:
    if not text:
        return RANK
    if not is_count(text) or not 1 <= int(text) <= MOST_RANK:
        raise InputError(f"--train {train}: the rank must be a whole number from 1 to {MOST_RANK:,}, but got {text!r}")
    return int(text)


def _targets(text: str, train: str) -> tuple[str, ...]:
    """Matrices with adapters, in the order of a layer; names of Hugging Face's modules do too."""
    names: set[str] = set()
    for word in (text or "all").replace("+", ",").split(","):
        plain = word.strip().removesuffix("_proj").removesuffix("-linear")
        if plain not in (*GROUPS, *GROUPS["all"], *SAVED):
            known = ", ".join((*GROUPS, *(f"{name}_proj" for name in GROUPS["all"]), *SAVED))
            raise InputError(f"--train {train}: adapters stand on {known}, but got {word!r}")
        names.update(GROUPS.get(plain, (plain,)))
    return tuple(name for name in (*GROUPS["all"], *SAVED) if name in names)


def _frozen(text: str, train: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    words = [word.strip() for word in text.replace("+", ",").split(",") if word.strip()]
    matches = filter(None, map(LAYERS.fullmatch, words))
    layers = tuple((int(match[1]), int(match[2] or match[1])) for match in matches)
    patterns = [word for word in words if not LAYERS.fullmatch(word)]
    parts = tuple(part for part in PARTS if any(fnmatchcase(part, pattern) for pattern in patterns))
    idle = [pattern for pattern in patterns if not any(fnmatchcase(part, pattern) for part in PARTS)]
    if idle or not (parts or layers) or {*parts, VISION} == set(PARTS):
        raise InputError(
            f"--train {train}: name some, not all, of {', '.join(PARTS)}, layers.FIRST-LAST, as in "
            "frozen:embedding,att* or frozen:embedding,head,layers.0-29"
            + (f"; nothing is called {idle[0]!r}" if idle else "")
        )
    return parts, layers
