"""What configurations of Hugging Face share: their keys, and how these become the fields of Model.

Defaults are those of each family's published configuration class, which config.json may leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from optimizer.catalog.readers.tables import Count, Flag, Natural, Share, Text, Texts, Unsigned
from optimizer.job.model import Model, SlidingWindow

Fields = dict[str, Any]
EPSILON = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "norm_eps")
Numbers = Annotated[tuple[Natural, ...], "a list of whole numbers"]


class Config(BaseModel):
    """The keys of a family: an attribute named as a field of Model is its value, read or always the same.

    `_computed` gives the others; it raises ValueError, naming keys and values, for what Model cannot express.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    rope_base: Unsigned = Field(10_000.0, alias="rope_theta")
    rope_share: Share = Field(1.0, alias="partial_rotary_factor")
    norm_epsilon: Unsigned = Field(1e-5, validation_alias=AliasChoices(*EPSILON))

    def fields(self) -> Fields:
        """Arguments of Model."""
        plain = {field.name: getattr(self, field.name) for field in fields(Model) if hasattr(self, field.name)}
        return plain | self._computed()

    def _computed(self) -> Fields:
        return {}

    @model_validator(mode="after")
    def _expressible(self) -> Config:
        self.fields()
        return self


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model_type: its class in `architectures` and its keys.

    `nested` is the key of the text part in a multimodal model's file.
    """

    architecture: str
    keys: type[Config]
    nested: str = ""


class Decoder(Config):
    """Shapes under the names that most families use."""

    vocab: Count = Field(alias="vocab_size")
    hidden: Count = Field(alias="hidden_size")
    layers: Count = Field(alias="num_hidden_layers")
    heads: Count = Field(alias="num_attention_heads")
    kv_heads: Count | None = Field(None, alias="num_key_value_heads")
    head_dim: Count | None = None
    max_seq_len: Count = Field(alias="max_position_embeddings")
    tied_embeddings: Flag = Field(False, alias="tie_word_embeddings")

    def _computed(self) -> Fields:
        heads, hidden = self.heads, self.hidden
        if self.head_dim is None and hidden % heads:
            raise ValueError(f"{heads} attention heads do not divide the hidden size {hidden}; give head_dim")
        return super()._computed() | {"kv_heads": self.kv_heads or heads, "head_dim": self.head_dim or hidden // heads}


class Gated(Decoder):
    """A decoder in the style of Llama: gated MLP and RMS norms."""

    ffn_hidden: Count = Field(alias="intermediate_size")
    norm_epsilon: Unsigned = Field(1e-6, validation_alias=AliasChoices(*EPSILON))
    activation: Text = Field("silu", alias="hidden_act")
    gated_mlp: ClassVar[bool] = True
    norm: ClassVar[str] = "rms"

    def _computed(self) -> Fields:
        gates = {"swiglu": ("silu", "swish"), "geglu": ("gelu", "gelu_new", "gelu_pytorch_tanh")}
        gate = next((gate for gate, inner in gates.items() if self.activation in inner), self.activation)
        return super()._computed() | {"activation": gate}


class Biased(Config):
    """Biases on all projections of attention, or on none."""

    attention_bias: Flag = False

    def _computed(self) -> Fields:
        return super()._computed() | {"attention_out_bias": self.attention_bias}


class Windowed(Gated):
    """A sliding window, but in the last layer of every `global_every`, or in the layers that layer_types says."""

    sliding_window: Count | None = None
    layer_types: Annotated[Texts | None, "a list of texts"] = None
    global_every: ClassVar[int] = 0

    def _computed(self) -> Fields:
        return super()._computed() | {"window": self._window(self.global_every)}

    def _window(self, global_every: int) -> SlidingWindow | None:
        size = self.sliding_window
        if self.layer_types is not None:
            global_every = period([kind == "full_attention" for kind in self.layer_types])
        if size is None or global_every == 1 or size >= self.max_seq_len:
            return None
        return SlidingWindow(size=size, global_every=global_every)


def period(is_global: Sequence[bool]) -> int:
    """The n for which every n-th layer is global: 0 for none, 1 for all; raises ValueError for another pattern."""
    if not any(is_global):
        return 0
    first = is_global.index(True) + 1
    where = [number for number, kind in enumerate(is_global, start=1) if kind]
    if where != list(range(first, len(is_global) + 1, first)):
        raise ValueError(f"full attention in layers {where} does not recur evenly")
    return first
