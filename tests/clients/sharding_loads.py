"""Run where DeepSpeed, Accelerate and transformers are: load configs as their launchers do, print verdicts.

Reads lines of JSON with a folder and its GPUs; writes one line of JSON for each.
"""

import json
import os
import sys
from pathlib import Path
from unittest.mock import patch


def deepspeed(folder: Path, job: dict) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers import TrainingArguments

    config = DeepSpeedConfig(str(folder / "deepspeed.json"))
    assert config.world_size == job["gpus"]
    plan = job["plan"]
    assert config.train_micro_batch_size_per_gpu == plan["micro_batch"]
    assert config.gradient_accumulation_steps == plan["num_microbatches"]
    assert config.zero_optimization_stage == plan["zero_stage"]
    trainer = json.loads((folder / "trainer-deepspeed.json").read_text())
    names = set(TrainingArguments.__dataclass_fields__)
    assert set(trainer) <= names, set(trainer) - names
    accelerate(folder / "accelerate-deepspeed.yaml", job, "DEEPSPEED")


def accelerate(path: Path, job: dict, kind: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    config = load_config_from_file(str(path))
    assert config.distributed_type.value == kind, config.distributed_type
    assert config.num_processes == job["gpus"]
    known = {action.dest for action in launch_command_parser()._actions}
    inner = {**config.fsdp_config, **config.parallelism_config, **config.deepspeed_config}
    assert set(inner) <= known, set(inner) - known


def fsdp(folder: Path, job: dict) -> None:
    from transformers import TrainingArguments

    accelerate(folder / "accelerate-fsdp.yaml", job, "FSDP")
    trainer = json.loads((folder / "trainer-fsdp.json").read_text())
    assert set(trainer) <= set(TrainingArguments.__dataclass_fields__)
    import yaml

    values = yaml.safe_load((folder / "accelerate-fsdp.yaml").read_text())
    said = {**values["fsdp_config"], **values.get("parallelism_config", {})}
    variables = {name.upper(): str(value).lower() for name, value in said.items()}
    from accelerate.utils import FullyShardedDataParallelPlugin

    wrap = said["fsdp_auto_wrap_policy"]
    with patch.dict(os.environ, variables | {"FSDP_AUTO_WRAP_POLICY": wrap, "ACCELERATE_USE_FSDP": "true"}):
        plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is (job["plan"]["zero_stage"] == 3)
    assert plugin.activation_checkpointing is (job["plan"]["recompute"] == "full")


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        folder = Path(job["folder"])
        try:
            if (folder / "deepspeed.json").exists():
                import deepspeed.comm as comm

                with (
                    patch.object(comm, "get_world_size", lambda *_, size=job["gpus"]: size),
                    patch.object(comm, "get_rank", lambda *_: 0),
                ):
                    deepspeed(folder, job)
            else:
                fsdp(folder, job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
