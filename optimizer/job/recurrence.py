"""Mixers that carry a state from token to token instead of looking at all of them: shapes and counts, no timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StateKind:
    """How the widths of a recurrence add up, by kind: numbers of the inner width, of the keys' width and of heads."""

    projected: tuple[int, int, int]  # widths of its input projections, of inner, keys, heads
    convolved: tuple[int, int]  # channels of its short convolution, of inner, keys
    vectors: tuple[int, int]  # weights that are no matrices, of inner, heads
    state_products: int  # multiplications and additions of a token per element of the state [FLOP]
    biased: bool = False  # its convolution has biases
    inverts: bool = False  # its chunks solve a triangular system, as the delta rule asks


# Sources: Gu, Dao, arXiv 2312.00752 (mamba), arXiv 2405.21060 (mamba2); Yang et al., arXiv 2412.06464 (gated-delta);
# Kimi Team, arXiv 2510.26692 (kimi-delta); MiniMax, arXiv 2501.08313 (lightning); Liquid AI, LFM2
# (short-convolution); widths as in Hugging Face transformers 5.23 (modeling_mamba2.py, modeling_qwen3_next.py,
# modeling_kimi_linear.py, modeling_minimax.py, modeling_lfm2.py). Operations of the state: NVIDIA/Megatron-LM,
# megatron/training/training.py, mamba_layer_flops (7) and gdn_layer_flops (2 x 4).
KINDS: Mapping[str, StateKind] = {
    "mamba": StateKind(projected=(2, 0, 0), convolved=(1, 0), vectors=(2, 0), state_products=7, biased=True),
    "mamba2": StateKind(projected=(2, 2, 1), convolved=(1, 2), vectors=(1, 3), state_products=7, biased=True),
    "gated-delta": StateKind(projected=(2, 2, 2), convolved=(1, 2), vectors=(0, 2), state_products=8, inverts=True),
    "kimi-delta": StateKind(projected=(3, 2, 1), convolved=(1, 2), vectors=(1, 1), state_products=8, inverts=True),
    "lightning": StateKind(projected=(2, 2, 0), convolved=(0, 0), vectors=(1, 0), state_products=4),
    "short-convolution": StateKind(projected=(3, 0, 0), convolved=(1, 0), vectors=(0, 0), state_products=0),
}
CHUNK = 64  # tokens that kernels of the delta rule work on at once; flash-linear-attention, fla/ops/gated_delta_rule


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """A mixer with a state of heads x head_dim x state_dim elements, whatever the length of the sequence."""

    kind: str  # which recurrence it is
    heads: int  # heads of the state
    head_dim: int  # width of a head's values
    state_dim: int = 0  # rows of a head's state: its keys' width; 0: a short convolution has none
    groups: int = 1  # heads of the keys, each for several heads of values
    conv_kernel: int = 4  # tokens that the short convolution sees
    rank: int = 0  # rank of what is projected in two steps: steps of mamba, gates of kimi-delta; 0: in one
    chunk: int = CHUNK  # tokens that its kernels work on at once

    @property
    def inner(self) -> int:
        """Width of all heads' values together, the input of the output projection."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all keys together, equally of the queries."""
        return self.groups * self.state_dim

    @property
    def projected(self) -> int:
        """Width of all that is projected from the layer's input at once.

        >>> Recurrence(kind="mamba2", heads=128, head_dim=64, state_dim=128, groups=8).projected
        18560
        >>> Recurrence(kind="kimi-delta", heads=32, head_dim=128, state_dim=128, groups=32, rank=128).projected
        12576
        """
        inner, keys, heads = KINDS[self.kind].projected
        gates = 2 * (self.rank - self.inner) if self.kind == "kimi-delta" and self.rank else 0
        return inner * self.inner + keys * self.keys + heads * self.heads + gates

    @property
    def inner_weights(self) -> int:
        """Elements of matrices between the input and the output projection: what goes through a low rank."""
        if self.kind == "mamba":
            return self.inner * (2 * self.rank + 2 * self.state_dim)
        return 2 * self.rank * self.inner if self.kind == "kimi-delta" else 0

    def weights(self, hidden: int) -> int:
        """Matrix elements of one layer's recurrence, hidden x projected + inner x hidden and what lies between.

        >>> Recurrence(kind="gated-delta", heads=32, head_dim=128, state_dim=128, groups=16).weights(2048)
        33685504
        """
        return hidden * (self.projected + self.inner) + self.inner_weights

    @property
    def channels(self) -> int:
        """Channels of the short convolution."""
        inner, keys = KINDS[self.kind].convolved
        return inner * self.inner + keys * self.keys

    @property
    def vectors(self) -> int:
        """Weights of convolution, norm and decay, biases included [parameters]."""
        kind = KINDS[self.kind]
        inner, heads = kind.vectors
        decay = self.inner * self.state_dim if self.kind == "mamba" else 0
        norm = self.head_dim if kind.inverts else 0
        return self.channels * (self.conv_kernel + kind.biased) + inner * self.inner + heads * self.heads + decay + norm

    @property
    def state_flops(self) -> float:
        """Operations of one token on the state and in the convolution, forward [FLOP].

        state_products x heads x head_dim x state_dim + 2 x conv_kernel x channels.

        Source: NVIDIA/Megatron-LM, megatron/training/training.py, mamba_layer_flops and gdn_layer_flops.

        >>> Recurrence(kind="gated-delta", heads=32, head_dim=128, state_dim=128, groups=16).state_flops
        4259840.0
        """
        products = KINDS[self.kind].state_products
        return float(products * self.inner * self.state_dim + 2 * self.conv_kernel * self.channels)

    @property
    def chunk_flops(self) -> float:
        """Operations of one token in a kernel that works on whole chunks of C tokens, forward [FLOP].

        heads x (2 C (d_k + d_v) + 4 d_k d_v): scores of the chunk and what they weigh, the state read and written. The
        delta rule adds 2 C (2 d_k + d_v) + C^2 + 2 d_k d_v: its keys among each other, the triangular system solved and
        applied, the state's own prediction. A recurrence of one-dimensional states (mamba) has no such products.

        Source: Dao, Gu, arXiv 2405.21060, section 6; Yang et al., arXiv 2406.06484, section 3.2.

        >>> Recurrence(kind="mamba2", heads=1, head_dim=64, state_dim=128, chunk=256).chunk_flops
        131072.0
        """
        if self.kind in ("mamba", "short-convolution"):
            return self.state_flops
        chunk, keys, values = self.chunk, self.state_dim, self.head_dim
        products = 2 * chunk * (keys + values) + 4 * keys * values
        if KINDS[self.kind].inverts:
            products += 2 * chunk * (2 * keys + values) + chunk**2 + 2 * keys * values
        return float(self.heads * products)
