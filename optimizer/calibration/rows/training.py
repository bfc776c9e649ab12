"""What a row trains, by which optimizer and on which lengths: its columns in the words of optimizer.job.method."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optimizer.base.errors import InputError
from optimizer.calibration.rows.numbers import integer, number
from optimizer.job.lengths import OFF, ON, lengths_of, longest
from optimizer.job.method import ADAPTERS, FULL, GROUPS, IN_BACKWARD, METHODS, optimizers

PRETRAINING = ("", "pretrain", "sft")
# What tables call the matrices and parts that adapters' targets name; one word may mean several of them.
TARGETS: Mapping[str, tuple[str, ...]] = {
    **{"linear": ("all",), "all": ("all",), "qkv": ("q", "k", "v"), "c_attn": ("q", "k", "v"), "proj": ("o",)},
    **{"attn.c": ("o",), "w1": ("up",), "w2": ("gate",), "embedding": ("embedding",), "head": ("head",)},
    **{name: (name,) for name in GROUPS["all"]},
}
BASES = {"nf4": "nf4", "bnb": "nf4", "int8": "int8", "int4": "int4", "mxfp4": "mxfp4", "fp8": "fp8", "bf16": "bf16"}
# 4-bit operands in blocks of 16: an element with its scale is as large as one of 32 that share one, to 6 %.
BASES |= {"fp4": "mxfp4"}
PADDING_FREE = "padding-free"  # begins the kind of rows whose samples lie end to end, however many tokens that makes
SPREAD = 0.6  # standard deviation of the lengths of samples / their mean, where a table has the mean alone


def training(row: Mapping[str, str], assumed: list[str]) -> dict[str, Any]:
    """The fields of a job that say how a row trains.

    Raises InputError for a method, an objective or an optimizer that jobs have not.

    >>> row = {"method": "qlora", "adapter_rank": "64", "adapter_targets": "c_attn attn.c_proj w1 w2",
    ...     "base_precision": "int4 (gptq)", "optimizer": "adamw"}
    >>> training(row, [])
    {'train': 'qlora:64:q,k,v,o,up,gate', 'base': 'int4', 'optimizer': ''}
    """
    name, _, objective = row.get("method", "").partition(" ")
    name = FULL if name in PRETRAINING else name
    if name not in METHODS:
        raise InputError(f"method {row['method']!r} is none of {', '.join(METHODS)}")
    if objective:
        raise InputError(f"the objective {objective} has passes or models that no job has")
    if row.get("dora") and name == "lora":
        name = "dora"
    fields: dict[str, Any] = {"train": name} if name != FULL else {}
    if name in ADAPTERS:
        rank = f":{integer(row, 'adapter_rank')}" if row.get("adapter_rank") else ""
        targets = _targets(row.get("adapter_targets", ""))
        if not targets:
            assumed.append("adapters on all linear layers")
        precision = row.get("base_precision", "").lower()
        base = next((name for word, name in BASES.items() if word in precision), "")
        fields |= {"train": f"{name}{rank or ':' * bool(targets)}{':' * bool(targets)}{targets}", "base": base}
    return fields | {"optimizer": _optimizer(row.get("optimizer", ""))} | _lengths(row, assumed)


def _targets(text: str) -> str:
    words = [word for word in re.split(r"[\s,+()]+|-(?=linear)", text.lower().replace("_proj", "")) if word in TARGETS]
    words = [word for word in words if word != "all"] or words
    return ",".join(dict.fromkeys(target for word in words for target in TARGETS[word]))


def _optimizer(text: str) -> str:
    """An optimizer in the words of `--optimizer`, "" for AdamW.

    >>> [_optimizer(text) for text in ("AdamW", "paged adamw 8-bit, in backward", "adamw (fused)", "adamw in backward")]
    ['', 'paged-adamw-8bit:in-backward', '', 'adamw:in-backward']
    """
    if not text:
        return ""
    plain, when, _ = text.lower().replace("8-bit", "8bit").partition("in backward")
    name = "-".join(re.findall(r"[\w-]+", re.sub(r"\(.*?\)", "", plain).replace("adamw8bit", "adamw-8bit")))
    if name not in optimizers():
        raise InputError(f"optimizer {text!r} is none of {', '.join(optimizers())}")
    return f"{name}:{IN_BACKWARD}" if when else "" if name == "adamw" else name


def _lengths(row: Mapping[str, str], assumed: list[str]) -> dict[str, Any]:
    """Lengths of documents as `--lengths` takes them, where a row has them in columns or words.

    >>> _lengths({"seq_kind": "variable, cut at seq_len: dataset cls-fudan-news-zh, 3234.4 +- 2547.5 tokens"}, [])
    {'lengths': '3234.4:2547.5', 'packing': 'off'}
    >>> _lengths({"seq_kind": "variable: 840 tokens a step in the median", "micro_batch": "4"}, [])
    {'lengths': '210:126', 'packing': 'off'}
    >>> _lengths({"seq_kind": "variable: 840 tokens a step", "grad_accum": "2"}, [])
    {'lengths': '420:252', 'packing': 'off'}
    """
    kind = row.get("seq_kind", "").lower()
    packing = {"packing": ON if kind.startswith(("packed", PADDING_FREE)) else OFF}
    if row.get("document_tokens"):
        return {"lengths": row["document_tokens"], **packing}
    if match := re.search(r"(\d+(?:\.\d+)?) \+- (\d+(?:\.\d+)?)", kind):
        return {"lengths": f"{match[1]}:{match[2]}", **packing}
    if match := re.search(r"(\d+) tokens a step", kind):
        mean = float(match[1]) / (integer(row, "micro_batch", 1) * integer(row, "grad_accum", 1))
        assumed.append(f"lengths spread by {SPREAD:.0%} of their mean")
        return {"lengths": f"{mean:g}:{SPREAD * mean:g}", **packing}
    return {}


def sequence(row: Mapping[str, str], trains: Mapping[str, Any]) -> int:
    """Tokens that a sample of a row takes at most: of packed ones a sequence, of padded ones the longest document.

    Samples that lie end to end take as many as the mean document.

    >>> row = {"seq_len": "4096", "seq_kind": "variable"}
    >>> sequence(row, {"lengths": "900", "packing": "off"}), sequence(row, {"lengths": "900", "packing": "on"})
    (900, 4096)
    """
    most = integer(row, "seq_len")
    if row.get("seq_kind", "").startswith(PADDING_FREE):
        return round(lengths_of(trains["lengths"], OFF, most).mean)
    return most if trains["packing"] == ON else min(longest(trains["lengths"]), most)


def step_seconds(row: Mapping[str, str], samples: int, tokens: int, gpus: int) -> float:
    """The step time that a row's throughput implies, 0 where it has none [s]; samples, tokens: of a step.

    >>> row = {"tokens_per_s": "1650", "tokens_per_s_scope": "all GPUs"}
    >>> round(step_seconds(row, 2, 4096, 1), 4), step_seconds({"samples_per_s": "4"}, 8, 0, 1)
    (2.4824, 2.0)
    """
    if row.get("samples_per_s"):
        return samples / number(row, "samples_per_s")
    if row.get("tokens_per_s"):
        scope = row.get("tokens_per_s_scope", "").lower()
        if scope.startswith(("per gpu", "all")):
            return tokens / (number(row, "tokens_per_s") * (gpus if scope.startswith("per") else 1))
    return 0.0
