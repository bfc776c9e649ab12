"""What no architecture can be: rules that hold for every Model, whoever described it."""

from __future__ import annotations

from optimizer.job.model import Model

MOST_LAYERS = 100_000  # hundreds of times the deepest; the search takes memory and time by the layer


def impossible(model: Model) -> list[str]:
    """Sentences with the offending values, one for each rule that the model breaks; empty for a possible one.

    >>> from dataclasses import replace
    >>> from optimizer.catalog import load_model
    >>> impossible(replace(load_model("llama3-8b"), kv_heads=5))
    ['kv_heads = 5 does not divide heads = 32']
    """
    problems = []
    if model.layers > MOST_LAYERS:
        problems.append(f"layers = {model.layers} is more than {MOST_LAYERS}, the most that can be planned")
    if model.heads % model.kv_heads:
        problems.append(f"kv_heads = {model.kv_heads} does not divide heads = {model.heads}")
    if model.window is not None and model.window.size < 1:
        problems.append(f"window.size = {model.window.size} is no window; leave [window] out for full attention")
    experts = model.experts
    if experts is not None:
        if experts.top_k > experts.count:
            problems.append(f"experts.top_k = {experts.top_k} exceeds experts.count = {experts.count}")
        if experts.every < 1:
            problems.append(f"experts.every = {experts.every}; 1 means that every layer has experts")
        elif model.moe_layers == 0:
            problems.append(
                f"experts.first_dense_layers = {experts.first_dense_layers} and every = {experts.every} "
                f"leave no MoE layer among {model.layers}; leave [experts] out"
            )
    return problems
