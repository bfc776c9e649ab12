"""From the shape that a launch writes down to a model: a preset of that shape, else a model of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.catalog import load_model, model_names, model_spellings, preset_model
from optimizer.catalog.models import base_of
from optimizer.catalog.places import spelling
from optimizer.frameworks.launch import WORDS, Launch
from optimizer.job.model import Experts, LatentAttention, Model, SlidingWindow

POINT = re.compile(r"(?<=\d)_(?:__)?(?=\d)")
NEEDED = ("layers", "hidden", "heads")
SAME = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_mlp")
# What a preset of the same shape may still have otherwise: the launch is right.
OWN = (
    *("vocab", "tied_embeddings", "norm", "position", "mlp_bias", "attention_bias", "attention_out_bias", "qk_norm"),
    *("embedding_norm", "parallel_block"),
)
# What a launch says if it has it.
SPECIAL = ("indexer", "qk_norm", "attention_sinks", "parallel_block", "recurrence", "mixers")
OWN_NUMBERS = ("mtp_layers",)
ROUTER = ("router", "router_bias", "groups", "group_limit")  # of layers with experts
# Sizes that count over those of the model that a launch names, by the part of a model that has them.
PARTS: Mapping[str, Mapping[str, str]] = {
    "": {name: name for name in ("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim")},
    "experts": {
        "experts": "count",
        "top_k": "top_k",
        "expert_ffn": "ffn_hidden",
        "shared_ffn": "shared_ffn_hidden",
        "first_dense": "first_dense_layers",
        "every": "every",
    },
    "mla": {"q_rank": "q_rank", "kv_rank": "kv_rank", "nope_dim": "nope_dim", "rope_dim": "rope_dim", "v_dim": "v_dim"},
    "window": {"window": "size", "window_every": "global_every"},
}


def model_of(launch: Launch, asked: str = "") -> Model | None:
    """The model of a launch: the one asked for, the one it names, a preset of its shape, or one made of its shape.

    What was assumed goes to the launch. None where it does not say enough. Raises UnknownName for a name asked for.
    """
    if asked:
        return load_model(asked)
    settings = launch.settings
    if "model" in settings:
        return _resized(_with_own(preset_model(settings["model"]), settings), launch)
    if any(name not in settings for name in NEEDED):
        return None
    values = filled(settings)
    same = [model for model in map(preset_model, model_names()) if _same(model, values)]
    if same:
        # One that has nothing which the launch does not say, then the other features, vocabulary and longest sequence.
        model = min(
            same,
            key=lambda other: (
                sum(name not in values and bool(getattr(other, name)) for name in SPECIAL),
                sum(name in values and getattr(other, name) != values[name] for name in OWN),
                abs(other.vocab - settings["vocab"]) if "vocab" in settings else 0,
                abs(other.max_seq_len - values["max_seq_len"]),
            ),
        )
        if "vocab" not in settings:
            launch.vocabulary = model.vocab
            launch.assumed.append(f"vocabulary of {model.vocab:,} tokens, that of {model.name} (--model)")
        launch.assumed.append(f"model {model.name}, which has this shape (--model)")
        if model.experts and model.experts.shared_ffn_hidden and "shared_ffn" not in values:
            launch.assumed.append(f"shared experts as {model.name} has them: no word tells any (--model)")
        return _with_own(model, settings)
    if "vocab" not in settings:
        launch.vocabulary = values["vocab"]
        launch.assumed.append(f"vocabulary of {launch.vocabulary:,} tokens (--model)")
    launch.assumed.append("a model of its own: no preset has this shape (--model)")
    return built(values)


def named(text: str) -> str:
    """The preset that a name on the Hugging Face hub means, or a folder of that name, "" for none.

    Points of numbers may be written otherwise: ModelScope's folders have ___ for each.

    >>> named("meta-llama/Meta-Llama-3.1-8B"), named("Qwen/Qwen3-4B-Instruct-2507"), named("llama3-3B"), named("x/y")
    ('llama3.1-8b', 'qwen3-4b', '', '')
    >>> named("/ckpt/Qwen2___5-Coder-1___5B/"), named("qwen2_5-7b-instruct")
    ('qwen2.5-1.5b', 'qwen2.5-7b')
    >>> named("./DeepSeek-R1-Distill-Llama-8B"), named("mpt-7b")
    ('llama3.1-8b', 'mpt-7b')
    """
    text = text.rstrip("/")
    return _named(text) or _named(POINT.sub(".", text))


def _named(text: str) -> str:
    names = model_spellings()  # of one on the hub its owner may be left out
    spellings = {spelling(known.rpartition("/")[2]): name for known, name in names.items()}
    spellings |= {spelling(known): name for known, name in names.items()}
    bare = spelling(text.rpartition("/")[2])
    for end in ("", "instruct", "chat", "base", "hf", "it", "v0.1"):
        for start in ("", "meta"):
            if bare.endswith(end) and (preset := spellings.get(bare.removeprefix(start).removesuffix(end))):
                return preset
    return base_of(text) or base_of(text.rpartition("/")[2])


def filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A shape with what frameworks take when it is left out.

    >>> filled({"layers": 2, "hidden": 1024, "heads": 16})["ffn_hidden"]
    4096
    """
    values = dict(settings)
    gated = values.setdefault("gated_mlp", False)
    width = values["hidden"]
    # Megatron-LM keeps the operations of an ungated MLP: two thirds of four times the width, a multiple of 64.
    values.setdefault("ffn_hidden", int(4 * width * 2 / 3) // 64 * 64 if gated else 4 * width)
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("head_dim", width // values["heads"])
    values.setdefault("vocab", 50257)
    values.setdefault("max_seq_len", values.get("seq_len", 2048))
    return values


def built(values: Mapping[str, Any]) -> Model:
    """A model of a filled shape."""
    latent = None
    if "kv_rank" in values:
        latent = LatentAttention(
            q_rank=values.get("q_rank", 0),
            kv_rank=values["kv_rank"],
            nope_dim=values.get("nope_dim", 128),
            rope_dim=values.get("rope_dim", 64),
            v_dim=values.get("v_dim", 128),
        )
    window = None
    if values.get("window"):
        window = SlidingWindow(size=values["window"], global_every=values.get("window_every", 0))
    plain = {
        name: values[name]
        for name in (*OWN, *OWN_NUMBERS, "activation", "gated_mlp", "max_seq_len", *SAME, "head_dim")
        if name in values
    }
    model = Model(name="as-launched", title="the launch's own model", **plain, experts=_experts(values), mla=latent)
    return replace(model, window=window, norm_bias=model.norm != "rms")


def _experts(values: Mapping[str, Any]) -> Experts | None:
    if values.get("experts", 0) <= 1:
        return None
    return Experts(
        count=values["experts"],
        top_k=values.get("top_k", 2),
        ffn_hidden=values.get("expert_ffn", values["ffn_hidden"]),
        shared_ffn_hidden=values.get("shared_ffn", 0),
        first_dense_layers=values.get("first_dense", 0),
        every=values.get("every", 1),
        **{name: values[name] for name in ROUTER if name in values},
    )


def _same(model: Model, values: Mapping[str, Any]) -> bool:
    mla = "kv_rank" in values
    names = [name for name in SAME if not (name == "kv_heads" and (mla or model.mla))]
    if model.mla and any(values.get(name, own) != own for name, own in vars(model.mla).items()):
        return False
    if values.get("experts", 0) > 1:
        experts = model.experts
        width = values.get("expert_ffn", values["ffn_hidden"])
        if experts is None or (experts.count, experts.ffn_hidden) != (values["experts"], width):
            return False
        stated = {name: values[name] for name in ("top_k", "shared_ffn", "first_dense", "every") if name in values}
        if any(getattr(experts, PARTS["experts"][name]) != size for name, size in stated.items()):
            return False
        names.remove("ffn_hidden")
    elif model.experts is not None:
        return False
    alike = all(getattr(model, name) == values[name] for name in names)
    alike = alike and (model.gated_mlp or values.get("activation", model.activation) == model.activation)
    # Both have LayerNorm, or both RMSNorm.
    norms = {str(norm).startswith("rms") for norm in (model.norm, values.get("norm", model.norm))}
    return alike and values.get("position", model.position) == model.position and len(norms) == 1


def _with_own(model: Model, settings: Mapping[str, Any]) -> Model:
    """The preset with what the launch says otherwise."""
    changes = {n: settings[n] for n in (*OWN, *OWN_NUMBERS) if n in settings and settings[n] != getattr(model, n)}
    if "norm" in changes and model.norm.startswith(changes["norm"]):
        del changes["norm"]
    if settings.get("max_seq_len", 0) > model.max_seq_len:
        changes["max_seq_len"] = settings["max_seq_len"]
    router = {name: settings[name] for name in ROUTER if name in settings}
    if model.experts and router:
        changes["experts"] = replace(model.experts, **router)
    return replace(model, **changes) if changes else model


def _resized(model: Model, launch: Launch) -> Model:
    """The preset with every size that the files state otherwise, which its title says."""
    stated = {name: launch.settings[name] for name in launch.written if name in launch.settings}
    if model.mla:
        stated.pop("kv_heads", None)
    if model.experts and model.experts.ffn_hidden == model.ffn_hidden and "ffn_hidden" in stated:
        stated.setdefault("expert_ffn", stated["ffn_hidden"])
    changed: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    for part, names in PARTS.items():
        own = getattr(model, part) if part else model
        other = {name: stated[name] for name, field in names.items() if own and name in stated}
        other = {name: size for name, size in other.items() if size != getattr(own, names[name])}
        sizes = {names[name]: size for name, size in other.items()}
        changes |= {part: replace(own, **sizes)} if part and sizes else sizes
        changed |= other
    if not model.experts and (made := _experts({"ffn_hidden": model.ffn_hidden, **stated})):
        changes["experts"], changed["experts"] = made, made.count
    if not changed:
        return model
    if (
        {"hidden", "heads"} & changed.keys()
        and "head_dim" not in launch.settings
        and model.heads * model.head_dim == model.hidden
    ):
        changes["head_dim"] = changes.get("hidden", model.hidden) // changes.get("heads", model.heads)
    letters = {name: getattr(model, name)[: changed.get("layers")] for name in ("mixers", "feed_forwards")}
    title = ", ".join((model.title or model.name, *(f"{WORDS[name]} {size:,}" for name, size in changed.items())))
    return replace(model, **changes, **letters, title=title, published_params=None, published_active_params=None)
