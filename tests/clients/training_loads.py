"""Run where the source of MaxText, nanotron or Primus is: load its launch files as it does, print verdicts.

Reads lines of JSON with a folder, the target and what was planned; writes one line of JSON for each. No GPU is
looked for: what only a GPU has is taken to be there.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from math import prod
from pathlib import Path
from unittest.mock import MagicMock

os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
KERNELS = ("", ".flash_attn_interface", ".layers", ".layers.rotary", ".ops", ".ops.triton", ".ops.triton.layer_norm")
TURBO = ("enable_primus_turbo", "use_turbo_deepep")  # of Primus itself
PLAN = {"tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "micro_batch": "micro_batch_size"}
SHAPE = {"layers": "num_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "vocab": "vocab_size"}


def maxtext(folder: Path, job: dict) -> None:
    from maxtext.configs import pyconfig
    from maxtext.utils import max_utils

    path, plan = folder / "maxtext.yml", job["plan"]
    stated = dict(line.split(": ") for line in path.read_text().splitlines() if ": " in line and line[0] != "#")
    axes = {key: int(size) for key, size in stated.items() if key.endswith("_parallelism")}
    slices = prod(size for key, size in axes.items() if key.startswith("dcn"))
    inside = prod(size for key, size in axes.items() if key.startswith("ici"))
    assert slices * inside == job["gpus"], axes
    max_utils.maybe_initialize_jax_distributed_system = lambda *_: None
    topology = [f"num_slices={slices}", "internal_compile=true", f"internal_compile_num_devices={job['gpus']}"]
    arguments = ["", str(path), "run_name=mine", "base_output_directory=mine", "log_config=false", *topology]
    config = pyconfig.initialize_pydantic(arguments)
    batch = plan["micro_batch"] * plan["num_microbatches"] * plan["dp"]
    assert config.global_batch_size_to_train_on * config.gradient_accumulation_steps == batch or (
        config.global_batch_size_to_train_on == batch
    ), config.global_batch_size_to_train_on
    assert config.max_target_length == job["seq_len"]
    found = (config.num_decoder_layers, config.emb_dim, config.num_query_heads, config.num_kv_heads)
    assert found == (job["layers"], job["hidden"], job["heads"], job["kv_heads"]), found
    assert config.num_experts in (job["experts"], 1)


def nanotron(folder: Path, job: dict) -> None:
    for name in KERNELS:
        module = MagicMock(__version__="2.7.0", __spec__=ModuleSpec(f"flash_attn{name}", None))
        sys.modules[f"flash_attn{name}"] = module
    from nanotron.config.config import get_config_from_file

    config, plan = get_config_from_file(str(folder / "nanotron.yaml")), job["plan"]
    shape, degrees = config.model.model_config, config.parallelism
    assert (degrees.dp, degrees.tp, degrees.pp) == (plan["dp"], plan["tp"], plan["pp"])
    assert config.global_batch_size == plan["dp"] * plan["micro_batch"] * plan["num_microbatches"]
    assert (degrees.recompute_layer, config.optimizer.zero_stage) == (plan["recompute"] == "full", plan["zero_stage"])
    assert (shape.num_hidden_layers, shape.hidden_size) == (job["layers"], job["hidden"])
    assert (shape.num_attention_heads, shape.num_key_value_heads) == (job["heads"], job["kv_heads"])


def primus(folder: Path, job: dict) -> None:
    from primus.core.config.primus_config import get_module_config, load_primus_config

    own, plan = folder / "primus.yaml", job["plan"]
    found = vars(get_module_config(load_primus_config(own), "pre_trainer").params)
    degrees = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "micro_batch": "micro_batch_size",
    }
    assert {name: found[key] for name, key in degrees.items()} == {name: plan[name] for name in degrees}
    assert found["sequence_parallel"] is plan["sequence_parallel"]
    assert {name: found[key] for name, key in SHAPE.items()} == {name: job[name] for name in SHAPE}
    from argparse import ArgumentParser

    import yaml
    from megatron.training.arguments import add_megatron_arguments

    # Keys that are none of Megatron-LM's settings would be dropped in silence.
    known = {action.dest for action in add_megatron_arguments(ArgumentParser())._actions} | {*TURBO}
    keys = set(yaml.safe_load(own.read_text())["modules"]["pre_trainer"]["overrides"])
    assert keys <= known, keys - known


LOADS: dict[str, Callable[[Path, dict], None]] = {"maxtext": maxtext, "nanotron": nanotron, "primus": primus}


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        try:
            LOADS[job["target"]](Path(job["folder"]), job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
