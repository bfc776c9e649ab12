"""Run where programs on the Trainer are: load edited commands and configs as they do, print verdicts.

Reads lines of JSON with the program, its words or its file, and the plan; writes one line of JSON for each.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def trl(job: dict) -> tuple[Any, ...]:
    from transformers import HfArgumentParser
    from trl import ModelConfig, ScriptArguments, SFTConfig

    parser = HfArgumentParser((ScriptArguments, SFTConfig, ModelConfig))
    _, training, _ = parser.parse_args_into_dataclasses(job["words"])
    return training.per_device_train_batch_size, training.gradient_accumulation_steps, training.gradient_checkpointing


def llama_factory(job: dict) -> tuple[Any, ...]:
    from llamafactory.hparams import parser

    parser.check_version = lambda *_, **__: None  # of liger-kernel, which needs a GPU
    sys.argv = ["train", *job["words"]]
    model, _, training, *_ = parser.get_train_args()
    checkpoints = not model.disable_gradient_checkpointing
    return training.per_device_train_batch_size, training.gradient_accumulation_steps, checkpoints


def axolotl(job: dict) -> tuple[Any, ...]:
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    values = yaml.safe_load((Path(job["folder"]) / "job.yaml").read_text())
    assert set(values) <= set(AxolotlInputConfig.model_fields), set(values) - set(AxolotlInputConfig.model_fields)
    config = AxolotlInputConfig(**values)
    return config.micro_batch_size, config.gradient_accumulation_steps, bool(config.gradient_checkpointing)


LOADS: dict[str, Callable[[dict], tuple[Any, ...]]] = {
    "trl": trl,
    "llama-factory": llama_factory,
    "axolotl": axolotl,
}


def main() -> None:
    sys.path.append(str(Path(sys.argv[0]).parent))
    import tuning_loads

    tuning_loads.with_bf16()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            found = LOADS[job["program"]](job)
            verdict = "" if found == tuple(job["plan"]) else f"it would run {found}, not {job['plan']}"
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
