"""picotron's JSON.

Source of the keys: huggingface/picotron, template/base_config.json and create_config.py; of what no key says, train.py
and picotron/data_parallel: gradients of 4 bytes, an optimizer in bf16 without master weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.catalog import preset_model
from optimizer.frameworks.config.launch import Values, rest, take, tied
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.shape import named
from optimizer.job.job import Job
from optimizer.job.plan import Plan

DEGREES: Mapping[str, str] = {
    "tp": "distributed.tp_size",
    "cp": "distributed.cp_size",
    "pp": "distributed.pp_size",
    "dp": "distributed.dp_size",
    "micro_batch": "training.micro_batch_size",
    "num_microbatches": "training.gradient_accumulation_steps",
}
SHAPE: Mapping[str, str] = {
    "layers": "model.num_hidden_layers",
    "heads": "model.num_attention_heads",
    "kv_heads": "model.num_key_value_heads",
}
NAME, LENGTH, ENGINE, FLASH = "model.name", "training.seq_length", "distributed.pp_engine", "model.use_flash_attention"
STEPS, TOKENS = "training.total_train_steps", "training.max_tokens"


def recognised(values: Values) -> bool:
    """Whether a JSON is picotron's."""
    return "distributed.tp_size" in values and LENGTH in values


def read(launch: Launch, values: Values) -> None:
    """Note what it says."""
    take(launch, values, {path: name for name, path in {**DEGREES, **SHAPE, "seq_len": LENGTH}.items()})
    settings = launch.settings
    settings |= {
        "zero_stage": 0,
        "recompute": "none",
        "sequence_parallel": False,
        "reduce_overlap": True,
        "dtype": "bf16",
    }
    settings |= {
        "grad_bytes": 4,
        "optimizer_bytes": 4,
        "tied_embeddings": False,
        "max_seq_len": settings.get("seq_len", 1),
    }
    if FLASH in values:
        launch.say("attention", "flash" if values[FLASH] else "unfused", FLASH)
    if values.get(ENGINE) == "afab":
        launch.unsearched.append(f"{ENGINE} afab is priced as 1f1b, which holds fewer activations")
    _model(launch, str(values.get(NAME) or ""))
    if isinstance(values.get(TOKENS), int):
        launch.say("tokens", values[TOKENS], TOKENS)
    elif isinstance(values.get(STEPS), int) and {*DEGREES, "seq_len"} <= {*settings, "tp", "cp", "pp"}:
        step = settings["dp"] * settings["micro_batch"] * settings["num_microbatches"] * settings["seq_len"]
        launch.say("tokens", values[STEPS] * step, STEPS)
    rest(launch, values, (NAME, ENGINE, FLASH, STEPS, TOKENS))


def _model(launch: Launch, name: str) -> None:
    """The model that a name on the Hugging Face hub means, with the layers and heads that the config gives it."""
    settings, preset = launch.settings, named(name)
    if not preset:
        launch.unsearched.append(f"{NAME} {name} is no model that is known (--model)")
        return
    model = preset_model(preset)
    shape = {"hidden": model.hidden, "ffn_hidden": model.ffn_hidden, "vocab": model.vocab, "norm": "rms"}
    own = {key: settings.get(key, getattr(model, key)) for key in SHAPE}
    if all(own[key] == getattr(model, key) for key in SHAPE):
        launch.say("model", preset, NAME)
    else:
        settings |= {**shape, **own, "gated_mlp": True, "position": "rope", "mlp_bias": False}


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan."""
    return tied(values, DEGREES, before, after)
