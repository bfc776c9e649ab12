"""JSON schemas of the format: `python -m bench.planners.schemas` writes both beside this file."""

from __future__ import annotations

import json
from typing import Any

from bench.planners.jobs import COUNTS, FURTHER, PLAN, SWITCHES
from bench.planners.score import FORMAT, HERE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
COUNT = {"type": "integer", "minimum": 1}
AMOUNT = {"type": "number", "exclusiveMinimum": 0}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}


def table(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object with these fields and no others."""
    needed = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


MODEL = table(
    {
        "name": TEXT,
        **dict.fromkeys(COUNTS, COUNT),
        **dict.fromkeys(SWITCHES, FLAG),
        "parameters": COUNT,
        "active_parameters": COUNT,
        "latent_attention": {"type": ["object", "null"]},
        "experts": {"type": ["object", "null"]},
    }
)
DEVICE = table({"name": TEXT, "peak_flops": AMOUNT, "memory_bytes": AMOUNT, "memory_bandwidth": AMOUNT})
TIER = table({"gpus": COUNT, "bandwidth_one_way": AMOUNT, "latency_s": AMOUNT})
JOB = table(
    {
        "id": TEXT,
        "source": TEXT,
        "group": TEXT,
        "model": MODEL,
        "device": DEVICE,
        "cluster": table({"network": TEXT, "gpus_per_node": COUNT, "tiers": {"type": "array", "items": TIER}}),
        "software": table({"framework": TEXT, "attention": TEXT, "switched_off": {"type": "array", "items": TEXT}}),
        **dict.fromkeys(("gpus", "seq_len", "global_batch"), COUNT),
        "dtype": TEXT,
        "plan": table({**dict.fromkeys(PLAN, COUNT), **{name: {} for name in FURTHER}}),
    }
)
PREDICTION = table(
    {"id": TEXT, "step_time_s": {**AMOUNT, "type": ["number", "null"]}, "fits": {"type": ["boolean", "null"]}},
    optional=("step_time_s", "fits"),
)
SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "jobs": ("Jobs: what a planner is told.", {"jobs": {"type": "array", "items": JOB}}),
    "predictions": (
        "Predictions: what a planner says. Null or left out is no answer.",
        {"planner": TEXT, "predictions": {"type": "array", "items": PREDICTION}},
    ),
}


def schema(name: str) -> dict[str, Any]:
    """The schema of one kind of file."""
    title, fields = SCHEMAS[name]
    return {"$schema": DIALECT, "title": title, **table({"format": {"const": FORMAT}, **fields})}


def text(name: str) -> str:
    """A schema as it lies in its file."""
    return json.dumps(schema(name), indent=2) + "\n"


if __name__ == "__main__":
    for name in SCHEMAS:
        (HERE / f"{name}.schema.json").write_text(text(name), encoding="utf-8")
