"""What the backward pass may recompute: nothing, what a stack calls selective, whole layers, or modules by name.

Names and meaning of the modules are Megatron-Core's (--recompute-modules): core_attn, the scores and their product with
the values; layernorm, the norms that are kernels of their own; moe_act, the activation inside the experts; mla_up_proj,
the up-projections of latent attention and the rotary embedding; mlp, the dense MLP; moe, the whole mixture;
shared_experts, the experts that every token visits.

Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, recompute_modules.
"""

from __future__ import annotations

from itertools import compress, product

MODES = ("none", "selective", "full")
MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "shared_experts")
PARTS_OF_MOE = ("moe_act", "shared_experts")  # recomputing the whole mixture recomputes them
RESCALED = ("layernorm", "moe_act")  # outputs quantised again, which fp8 with delayed scaling does not support
SIGN = "+"


def named(modules: tuple[str, ...]) -> str:
    """Modules as a mode of recomputation, in the order of MODULES, without those that another one contains.

    The attention core alone is what such software means by selective.

    >>> named(("moe_act", "layernorm")), named(("moe", "moe_act")), named(("core_attn",))
    ('layernorm+moe_act', 'moe', 'selective')
    """
    inside = PARTS_OF_MOE if "moe" in modules else ()
    names = [name for name in MODULES if name in modules and name not in inside]
    return "selective" if names == ["core_attn"] else SIGN.join(names)


_CHOSEN = (compress(MODULES, row) for row in product((False, True), repeat=len(MODULES)))
_SETS = dict.fromkeys(name for modules in _CHOSEN if (name := named(tuple(modules))) not in ("", *MODES))
RECOMPUTE = (*MODES, *sorted(_SETS, key=lambda name: name.count(SIGN)))


def modules_of(recompute: str) -> tuple[str, ...]:
    """The modules that a mode names; none for the modes that are no sets.

    >>> modules_of("layernorm+moe_act"), modules_of("full")
    (('layernorm', 'moe_act'), ())
    """
    return () if recompute in MODES else tuple(recompute.split(SIGN))


def written(text: str) -> str:
    """A mode as a person may write it, its modules in any order; text that is no mode comes back as it is.

    >>> written("moe_act+layernorm"), written("full"), written("some")
    ('layernorm+moe_act', 'full', 'some')
    """
    parts = tuple(text.split(SIGN))
    return named(parts) if set(parts) <= set(MODULES) else text


def wanted() -> str:
    """What may be asked for, in words that end a sentence."""
    return f"{', '.join(MODES)} or modules joined by {SIGN}: {', '.join(MODULES)}"
