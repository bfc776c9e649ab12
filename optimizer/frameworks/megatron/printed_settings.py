"""Settings that programs print before they train, as columns of a table of runs.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (_print_args); microsoft/DeepSpeed, deepspeed/runtime/
config.py (print); AI-Hypercomputer/maxtext, pyconfig (Config param); pytorch/torchtitan, torchtitan/train.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from optimizer.base.units import is_count
from optimizer.frameworks.log_line import LogLine

DOTTED = re.compile(r"\s([a-z]\w*) \.{3,} ?(\S+)\s*$")
COUNTS: Mapping[str, str] = {
    "world_size": "gpus",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "seq_length": "seq_len",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn_hidden",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_heads",
    "padded_vocab_size": "vocab",
    "train_batch_size": "global_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
}
# Settings that speak for or against a cause; not columns of a run.
SWITCHES = ("overlap_grad_reduce", "overlap_param_gather", "overlap_comm", "num_workers")


def settings(text: str) -> LogLine | None:
    """The setting in a line such as those of Megatron-LM and DeepSpeed, None for any other line.

    >>> settings("  tensor_model_parallel_size ...................... 8").facts
    {'tp': '8'}
    """
    match = DOTTED.search(f" {text}")
    if match is None:
        return None
    name, value = match.groups()
    if name in COUNTS and is_count(value) and int(value) > 0:
        return LogLine(facts={COUNTS[name]: value})
    return LogLine(facts={name: value.lower()}) if name in SWITCHES else None
