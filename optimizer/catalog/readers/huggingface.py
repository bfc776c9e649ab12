"""Hugging Face config.json, as published beside a model's weights: the architecture in it, as a Model.

Read by the keys that are there, and by what architectures.toml says of classes that no key says. A key that is not
understood and could change a shape refuses the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.base.errors import InvalidFile, nearest
from optimizer.base.names import refusal
from optimizer.catalog.readers.huggingface_experts import dense_width, expert_fields
from optimizer.catalog.readers.huggingface_fields import RECURRENT_KEYS, ConfigFields, names
from optimizer.catalog.readers.huggingface_layers import layer_fields
from optimizer.catalog.readers.huggingface_mixers import attention_fields, recurrence_of, rotary_fields
from optimizer.catalog.readers.huggingface_tower import tower_of
from optimizer.catalog.readers.model_file import MOST_LAYERS, impossible
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.text import read_json, shown
from optimizer.job.model import RECURRENT, Model, Provenance, Tower

Fields = dict[str, Any]
ADVICE = "describe the model in a TOML file instead"
GATES = {"swiglu": ("silu", "swish"), "geglu": ("gelu", "gelu_new", "gelu_pytorch_tanh")}
CAUSAL = ("ForCausalLM", "LMHeadModel")  # how classes of language models end
TEXT, VISION, NEUTRAL = "text_config", "vision_config", "neutral"
# Language models behind a vision tower, by what their files call them: positions in three parts change no shape.
# Source: huggingface/transformers v5, models/qwen2_vl, qwen2_5_vl, qwen3_vl and qwen3_vl_moe, configuration_*.py.
TOWERS: Mapping[str, str] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text"), "qwen2"),
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
# Multimodal models whose text part may leave its own model_type out.
WRAPPERS = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
# Fields of Model that an architecture may state as they are.
STATED = frozenset(field.name for field in fields(Model)) - {"experts", "recurrence"}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a class of transformers has that its keys do not say: a table of architectures.toml."""

    name: str  # its model_type
    facts: Mapping[str, Any]  # what no key says
    known: bool = True  # it is in architectures.toml


def read_config(path: str | Path) -> Model:
    """The Model in a config.json, or in the folder that holds one.

    Raises InvalidFile with every problem of the file: a value that cannot be, a key that is missing, or one that is
    not understood and could change a shape.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    whole = read_json(path)
    part, where = _text_part(path, whole)
    architecture = _architecture(path, part)
    data = _renamed(part, architecture)
    problems: list[str] = []
    config = validated(
        ConfigFields, {key: value for key, value in data.items() if not is_neutral(key)}, problems, where
    )
    in_problems = " ".join(problems)
    problems += _not_understood({key: value for key, value in data.items() if key not in in_problems}, architecture)
    if config is None or problems:
        raise InvalidFile(path, problems)
    try:
        arguments = fields_of(config, architecture)
    except ValueError as error:
        raise InvalidFile(path, [str(error)]) from None
    tower = tower_of(whole) if where else None
    model = Model(
        name=_name(path, whole),
        family=architecture.name,
        provenance=_provenance(path, architecture, where, tower),
        tower=tower,
        **arguments,
    )
    if problems := impossible(model):
        raise InvalidFile(path, problems)
    return model


def fields_of(config: ConfigFields, architecture: Architecture) -> Fields:
    """Arguments of Model; raises ValueError, naming key and value, for what it cannot express."""
    if config.layers > MOST_LAYERS:
        raise ValueError(
            f"num_hidden_layers = {config.layers} is more than {MOST_LAYERS}, the most that can be planned"
        )
    facts = dict(architecture.facts)
    arguments: Fields = {name: value for name, value in facts.items() if name in STATED}
    arguments |= {"gated_mlp": True, "norm": "rms"} | arguments
    arguments |= {
        name: getattr(config, name) for name in ("vocab", "hidden", "layers", "max_seq_len", "tied_embeddings")
    }
    arguments |= attention_fields(config, facts) | rotary_fields(config) | _biases(config, facts)
    arguments |= {name: value for name, value in _blocks(config, facts).items() if value is not None}
    arguments |= layer_fields(config, facts)
    arguments |= expert_fields(config, facts, arguments.get("feed_forwards", ""))
    arguments["ffn_hidden"] = dense_width(config, facts, arguments.get("experts"))
    if RECURRENT in arguments.get("mixers", ""):
        if "recurrence" not in facts:
            raise ValueError(f"layer_types of {architecture.name}: what carries the state is not known")
        arguments["recurrence"] = recurrence_of(config, facts["recurrence"], bool(facts.get("full_gates")))
    return arguments


def _biases(config: ConfigFields, facts: Fields) -> Fields:
    """Which projections have biases."""
    everywhere = config.linear_bias if config.linear_bias is not None else facts.get("biases") == "all"
    attention = config.attention_bias
    if attention is None:
        attention = facts.get("attention_bias", everywhere)
    out = config.attention_out_bias if config.attention_out_bias is not None else facts.get("out_bias", attention)
    mlp = facts.get("mlp_bias", everywhere) if config.mlp_bias is None else config.mlp_bias
    return {
        "attention_bias": attention,
        "attention_out_bias": out,
        "mlp_bias": attention if mlp == "attention" else mlp,
    }


def _blocks(config: ConfigFields, facts: Fields) -> Fields:
    """Norms, activation and how attention and MLP lie, None where no key says it."""
    if (width := config.embed_width or config.hidden) != config.hidden:
        raise ValueError(f"word_embed_proj_dim = {width} differs from hidden_size = {config.hidden} (OPT-350M)")
    if not config.norm_first:
        raise ValueError("do_layer_norm_before = false (norms after the blocks) is not supported")
    if config.qk_norm and facts.get("norm") == "layer":
        raise ValueError("qk_layernorm = true is not supported beside LayerNorm, whose heads' norms differ")
    if config.mtp_layers and RECURRENT in facts.get("mixers", ""):
        raise ValueError(f"num_nextn_predict_layers = {config.mtp_layers} is not supported for recurrences")
    gated = facts.get("gated_mlp", True)
    act = config.activation or "silu"
    named = next((gate for gate, inner in GATES.items() if act in inner), act) if gated else act
    parallel = config.parallel_block
    norms = config.norms_shared
    if config.multi_query is not None and parallel is not None:  # Falcon: one norm before both, or one each
        parallel = parallel or config.new_decoder_architecture
        norms = norms or (1 if parallel and not config.new_decoder_architecture else 2)
    usual_epsilon = 1e-6 if facts.get("norm", "rms") == "rms" else 1e-5
    return {
        "activation": facts.get("activation") or ("gelu" if not gated and "gelu" in act else named),
        "norm_epsilon": usual_epsilon if config.norm_epsilon is None else config.norm_epsilon,
        "qk_norm": config.qk_norm,
        "head_bias": config.head_bias,
        "parallel_block": parallel,
        "norms_per_layer": 4 if config.post_norms else norms,
        "position": "alibi" if config.alibi else None,
        "mtp_layers": config.mtp_layers,
    }


@cache
def architectures() -> Mapping[str, Architecture]:
    """The architectures of architectures.toml by model_type."""
    tables = _tables().items()
    return {name: Architecture(name=name, facts=table) for name, table in tables if name != NEUTRAL}


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("architectures.toml").read_text(encoding="utf-8"))


def _architecture(path: Path, data: Mapping[str, Any]) -> Architecture:
    """The architecture by `model_type` or else by `architectures`.

    One that is not known is read by its keys. Raises InvalidFile for a file that names none.
    """
    given, classes = data.get("model_type"), data.get("architectures")
    listed = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    by_class = {known.facts["class"]: name for name, known in architectures().items()}
    if given is None:
        given = next((by_class[name] for name in listed if name in by_class), listed[0] if listed else None)
    if given is None:
        raise InvalidFile(path, ["neither model_type nor architectures; expected a text in model_type"])
    if not isinstance(given, str):
        raise InvalidFile(path, [f"model_type: expected a text, but got {shown(given)}"])
    if given in architectures():
        return architectures()[given]
    if listed and not any(name.endswith(CAUSAL) for name in listed):
        raise InvalidFile(path, [f"{listed[0]!r} is not known, and no causal language model by its name; {ADVICE}"])
    return Architecture(name=given, facts={}, known=False)


def _text_part(path: Path, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The text model in a multimodal model's file and the key that it lies under, else the whole file and nothing."""
    kind = data.get("model_type")
    behind = TOWERS.get(kind) if isinstance(kind, str) else None
    if behind and TEXT not in data and VISION in data:
        # Without the mark of the whole, whose class is none of a language model.
        of_text = {key: value for key, value in data.items() if key not in (VISION, "architectures", "rope_scaling")}
        return of_text | {"model_type": behind}, f"without {VISION}"
    text_kind = WRAPPERS.get(kind) if isinstance(kind, str) else None
    if TEXT not in data and text_kind is None:
        return data, ""
    part = data.get(TEXT)
    if not isinstance(part, dict):
        raise InvalidFile(path, [f"{TEXT}: expected an object with the text model, but got {shown(part)}"])
    given = {"model_type": text_kind, "tie_word_embeddings": data.get("tie_word_embeddings")}
    if isinstance(own := part.get("model_type"), str) and own in TOWERS:
        part = {key: value for key, value in part.items() if key != "rope_scaling"} | {"model_type": TOWERS[own]}
    return {key: value for key, value in given.items() if value is not None} | part, TEXT


def _renamed(data: Mapping[str, Any], architecture: Architecture) -> Fields:
    """The keys by the names that are understood, with the values of the class for those left out."""
    given = {
        key: value
        for key, value in data.items()
        if value is not None and key not in architecture.facts.get("ignored", ())
    }
    other = architecture.facts.get("renamed", {})
    arguments = {other.get(key, key): value for key, value in given.items()}
    if "num_hidden_layers" not in arguments and isinstance(kinds := arguments.get("layers_block_type"), list):
        arguments["num_hidden_layers"] = len(kinds)
    spellings = _spellings()
    for key, value in architecture.facts.get("defaults", {}).items():
        name = other.get(key, key)
        if not arguments.keys() & spellings.get(name, {name}):
            arguments[name] = value
    return arguments


@cache
def _spellings() -> Mapping[str, frozenset[str]]:
    """Every name of a key with all names of that key."""
    groups = [names(only=own) for own in ConfigFields.model_fields]
    return {name: group for group in groups for name in group}


def is_neutral(key: str, known: bool = True) -> bool:
    """Whether a key changes no shape, whatever its value, of an architecture that is known or of another.

    >>> is_neutral("attention_dropout"), is_neutral("num_experts")
    (True, False)
    """
    table = _tables()[NEUTRAL]
    patterns = (*table["keys"], *(table["of_known"] if known else ()))
    return key not in names() and any(fnmatchcase(key, pattern) for pattern in patterns)


def _not_understood(data: Fields, architecture: Architecture) -> Iterator[str]:
    """A sentence for each key that is not understood and could change a shape.

    Of an architecture that is not known, also one for what its keys leave open: whether its MLP has a gate.
    """
    for key, value in data.items():
        stateful = "recurrence" not in architecture.facts and any(key in names(only=own) for own in RECURRENT_KEYS)
        stateful = stateful or (not architecture.known and key in names(only="attention_gate"))
        unknown = stateful or (key not in names() and not is_neutral(key, architecture.known))
        if unknown and could_be_a_shape(value, architecture.known):
            yield f"{key} = {shown(value)}: not understood, and it could change a shape; {ADVICE}"
    if not architecture.known:
        act = next((data[key] for key in names(only="activation") if key in data), None)
        if act not in GATES["swiglu"] or "rms_norm_eps" not in data:
            near = nearest(architecture.name, architectures(), 1)
            hint = f" (nearest: {near[0]})" if near else ""
            yield (
                f"model_type {architecture.name!r} is not known{hint}, and hidden_act = {shown(act)} does not say "
                f"whether its MLP has a gate; {ADVICE}"
            )


def could_be_a_shape(value: Any, known: bool = True) -> bool:
    """Whether a value may be a width, a count or a switch; of an unknown architecture any value but a switch off.

    >>> [could_be_a_shape(value) for value in (64, True, [1, 2], "relu", 0, False, 0.5, None, [])]
    [True, True, True, True, False, False, False, False, False]
    """
    if isinstance(value, float):
        return not known or (value.is_integer() and value > 1)
    return bool(value)


def _provenance(path: Path, architecture: Architecture, where: str, tower: Tower | None) -> Provenance:
    notes = [] if architecture.known else [f"model_type {architecture.name!r} is not known: read by its keys alone"]
    if tower:
        images = f"{tower.image_tokens:,} tokens of an image in each sequence" if tower.image_tokens else "no image"
        notes += [f"a vision tower of {tower.params / 1e9:.2f} billion parameters where hf-2026 trains, with {images}"]
    elif where:
        notes += [f"the text model alone, {where}"]
    return Provenance(source=str(path), note="; ".join(notes))


def _name(path: Path, data: Mapping[str, Any]) -> str:
    """The name in the file, else that of its folder, or of the file itself when it is not config.json.

    Raises InvalidFile for a text that is no name: it would go into scripts and reports.
    """
    given = data.get("_name_or_path")
    if isinstance(given, str) and given:
        key, name = "_name_or_path", given
    else:
        key, name = "the file's name", path.resolve().parent.name if path.name == "config.json" else path.stem
    if problem := refusal(name):
        raise InvalidFile(path, [f"{key}: {problem}, got {shown(name)}"])
    return name
