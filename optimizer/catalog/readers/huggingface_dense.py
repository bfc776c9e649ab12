"""Dense families of Hugging Face with gated MLPs: the keys of their config.json and what they mean."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AliasChoices, Field

from optimizer.catalog.readers.huggingface_keys import Biased, Family, Fields, Gated, Windowed
from optimizer.catalog.readers.tables import Count, Flag, Natural, Text, Unsigned
from optimizer.job.model import SlidingWindow


class Llama(Gated, Biased):
    """Llama 1 to 3."""

    mlp_bias: Flag = False


class QwenWindow(Windowed):
    """Qwen's window, in the layers from max_window_layers on, if it is in use at all."""

    use_sliding_window: Flag = False
    max_window_layers: Natural = 0

    def _window(self, global_every: int) -> SlidingWindow | None:
        full = self.max_window_layers if self.layer_types is None else 0
        if not self.use_sliding_window or self.sliding_window is None or full >= self.layers:
            return None
        if full:
            raise ValueError(
                f"max_window_layers = {full} of {self.layers} layers: full attention in the first ones only"
            )
        return super()._window(global_every)


class Qwen2(QwenWindow):
    """Qwen2 and Qwen2.5: biases on queries, keys and values only."""

    attention_bias: ClassVar[bool] = True


class Qwen3(QwenWindow, Biased):
    """Qwen3: norms on queries and keys."""

    head_dim: Count = 128
    qk_norm: ClassVar[bool] = True


class Gemma(Gated):
    """Gemma 1."""

    head_dim: Count = 256
    tied_embeddings: Flag = Field(True, alias="tie_word_embeddings")
    activation: Text = Field("gelu_pytorch_tanh", alias="hidden_act")


class Gemma2(Gemma, Windowed):
    """Gemma 2: norms before and after each block, a window in every other layer."""

    sliding_window: Count = 4096
    global_every: ClassVar[int] = 2
    norms_per_layer: ClassVar[int] = 4


class Gemma3(Gemma2):
    """Gemma 3: as Gemma 2, with norms on queries and keys and five local layers per global one."""

    vocab: Count = Field(262208, alias="vocab_size")
    heads: Count = Field(8, alias="num_attention_heads")
    kv_heads: Count = Field(4, alias="num_key_value_heads")
    max_seq_len: Count = Field(131072, alias="max_position_embeddings")
    rope_base: Unsigned = Field(1_000_000.0, alias="rope_theta")
    pattern: Count = Field(6, validation_alias=AliasChoices("sliding_window_pattern", "_sliding_window_pattern"))
    qk_norm: ClassVar[bool] = True

    def _computed(self) -> Fields:
        return super()._computed() | {"window": self._window(self.pattern)}


class Glm(Gated):
    """GLM-4 9B: biases on queries, keys and values only."""

    head_dim: Count = 128
    attention_bias: Flag = False


class Glm4(Glm):
    """GLM-4-0414: norms before and after each block."""

    norms_per_layer: ClassVar[int] = 4


class Olmo(Gated, Biased):
    """OLMo 1: norms without weights."""

    norm: ClassVar[str] = "layer-plain"


class Olmo2(Gated, Biased):
    """OLMo 2: norms after each block, and over all heads of the queries and of the keys."""

    qk_norm: ClassVar[bool] = True
    qk_norm_full: ClassVar[bool] = True


GATED: dict[str, Family] = {
    "llama": Family(architecture="LlamaForCausalLM", keys=Llama),
    "mistral": Family(architecture="MistralForCausalLM", keys=Windowed),
    "phi3": Family(architecture="Phi3ForCausalLM", keys=Windowed),
    "qwen2": Family(architecture="Qwen2ForCausalLM", keys=Qwen2),
    "qwen3": Family(architecture="Qwen3ForCausalLM", keys=Qwen3),
    "gemma": Family(architecture="GemmaForCausalLM", keys=Gemma),
    "gemma2": Family(architecture="Gemma2ForCausalLM", keys=Gemma2),
    "gemma3_text": Family(architecture="Gemma3ForCausalLM", keys=Gemma3),
    "gemma3": Family(architecture="Gemma3ForConditionalGeneration", keys=Gemma3, nested="text_config"),
    "glm": Family(architecture="GlmForCausalLM", keys=Glm),
    "glm4": Family(architecture="Glm4ForCausalLM", keys=Glm4),
    "olmo": Family(architecture="OlmoForCausalLM", keys=Olmo),
    "olmo2": Family(architecture="Olmo2ForCausalLM", keys=Olmo2),
}
