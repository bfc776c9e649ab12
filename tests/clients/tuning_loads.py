"""Run where one program that fine-tunes models is: load its launch files as it does, print verdicts.

Reads lines of JSON with a folder, the target and what was planned; writes one line of JSON for each. No GPU is
looked for.
"""

import ast
import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"DISABLE_VERSION_CHECK": "1", "CUDA_VISIBLE_DEVICES": "", "USE_HF": "1", "HF_HUB_OFFLINE": "1"}


def with_bf16() -> None:
    """Formats that only a GPU has are taken to be there: nothing is computed."""
    import torch
    from transformers import training_args, utils

    for module in (training_args, utils):
        for name in ("is_torch_bf16_gpu_available", "is_torch_bf16_available"):
            if hasattr(module, name):
                setattr(module, name, lambda: True)
    torch.cuda.is_bf16_supported = lambda *_, **__: True


def held(job: dict, arguments: Any, hosted: bool = False, **more: Any) -> None:
    """What was read is what was planned; FSDP checkpoints where it shards, unless inputs are `hosted`."""
    plan = job["plan"]
    assert arguments.gradient_accumulation_steps == plan["num_microbatches"], arguments.gradient_accumulation_steps
    checkpoints = plan["recompute"] == "full" and (hosted or not (plan["dp"] > 1 and plan["zero_stage"]))
    found = {"gradient_checkpointing": arguments.gradient_checkpointing} | more
    assert found["gradient_checkpointing"] is checkpoints, found
    if job["optimizer"] in ("adamw-8bit", "paged-adamw-8bit"):
        name = getattr(arguments, "optim", None) or arguments.optimizer
        assert "8bit" in getattr(name, "value", name)


def adapted(job: dict, kind: str, rank: int | None, four: bool, eight: bool) -> None:
    """The method is the one that was planned."""
    adapts = job["method"] != "full"
    assert (kind != "full") is adapts
    assert not adapts or rank == job["rank"]
    assert (four, eight) == (job["base"] == "nf4", job["base"] == "int8")


def trl(folder: Path, job: dict) -> None:
    from trl import DPOConfig, KTOConfig, ModelConfig, RewardConfig, ScriptArguments, SFTConfig, TrlParser

    configs = {"sft": SFTConfig, "dpo": DPOConfig, "kto": KTOConfig, "reward": RewardConfig}
    parser = TrlParser((ScriptArguments, configs[job["loss"]], ModelConfig))
    _, training, model = parser.parse_args_and_config(["--config", str(folder / "trl.yaml")])
    held(job, training)
    assert f"trl.scripts.{job['loss']} " in (text := (folder / "trl.yaml").read_text()) or f"trl {job['loss']} " in text
    assert training.per_device_train_batch_size == job["samples"]
    assert (training.max_length, getattr(training, "packing", False)) == (job["seq_len"], job["packing"])
    adapted(job, "lora" if model.use_peft else "full", model.lora_r, model.load_in_4bit, model.load_in_8bit)
    accelerated(folder, job)


def accelerated(folder: Path, job: dict) -> None:
    """Accelerate's own file, of several processes."""
    path = folder / "accelerate.yaml"
    assert path.exists() is (job["gpus"] > 1)
    if path.exists():
        from accelerate.commands.config.config_args import load_config_from_file
        from accelerate.commands.launch import launch_command_parser

        config = load_config_from_file(str(path))
        kind = "FSDP" if job["plan"]["zero_stage"] else "MULTI_GPU"
        assert (config.distributed_type.value, config.num_processes) == (kind, job["gpus"])
        known = {action.dest for action in launch_command_parser()._actions}
        assert set(config.fsdp_config or {}) <= known


def axolotl(folder: Path, job: dict) -> None:
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    values = yaml.safe_load((folder / "axolotl.yaml").read_text())
    assert set(values) <= set(AxolotlInputConfig.model_fields), set(values) - set(AxolotlInputConfig.model_fields)
    config = AxolotlInputConfig(**values)
    hosted = job["plan"]["activation_offload"] > 0
    held(job, config, hosted=hosted)
    assert config.activation_offloading == ("hidden_states" if hosted else False), config.activation_offloading
    assert config.micro_batch_size == job["samples"]
    said = {"sft": (None, None), "reward": (None, True)}.get(job["loss"], (job["loss"], None))
    assert (config.rl and config.rl.value, config.reward_model) == said
    assert (config.sequence_len, bool(config.sample_packing)) == (job["seq_len"], job["packing"])
    adapted(job, config.adapter or "full", config.lora_r, bool(config.load_in_4bit), bool(config.load_in_8bit))
    if job["gpus"] > 1 and job["plan"]["zero_stage"]:
        assert config.fsdp_config.reshard_after_forward is (job["plan"]["zero_stage"] == 3)
        assert config.fsdp_config.activation_checkpointing is (job["plan"]["recompute"] == "full" and not hosted)


def llama_factory(folder: Path, job: dict) -> None:
    import yaml
    from llamafactory.hparams.parser import get_train_args

    values = yaml.safe_load((folder / "llama-factory.yaml").read_text())
    model, data, training, tuning, _ = get_train_args(values)
    held(job, training, gradient_checkpointing=not model.disable_gradient_checkpointing)
    assert training.per_device_train_batch_size == job["samples"]
    stages = {"reward": ("rm", "sigmoid"), "orpo": ("dpo", "orpo"), "simpo": ("dpo", "simpo")}
    assert (tuning.stage, tuning.pref_loss) == stages.get(job["loss"], (job["loss"], "sigmoid"))
    # It leaves out a token of packed sequences, so that they stay a multiple of eight.
    assert (data.cutoff_len + bool(data.packing), bool(data.packing)) == (job["seq_len"], job["packing"])
    bits = model.quantization_bit
    adapted(job, tuning.finetuning_type, tuning.lora_rank, bits == 4, bits == 8)
    accelerated(folder, job)


def ms_swift(folder: Path, job: dict) -> None:
    from swift.arguments import RLHFArguments, SftArguments
    from swift.cli.main import parse_yaml_args
    from transformers import HfArgumentParser

    arguments = [str(folder / "ms-swift.yaml")]
    parse_yaml_args(arguments)
    os.environ.pop("NPROC_PER_NODE", None)
    own = SftArguments if job["loss"] == "sft" else RLHFArguments
    parser = HfArgumentParser([own])
    own.__post_init__ = lambda self: None  # looks for the model and a GPU
    (found, unknown) = parser.parse_args_into_dataclasses(arguments, return_remaining_strings=True)
    assert not unknown, unknown
    held(job, found)
    assert found.per_device_train_batch_size == job["samples"]
    assert job["loss"] == "sft" or found.rlhf_type == {"reward": "rm"}.get(job["loss"], job["loss"])
    assert (found.max_length, found.packing) == (job["seq_len"], job["packing"])
    adapted(job, found.tuner_type, found.lora_rank, found.quant_bits == 4, found.quant_bits == 8)


def torchtune(folder: Path, job: dict) -> None:
    import torchtune.config as config
    from omegaconf import OmegaConf
    from torchtune._recipe_registry import get_all_recipes
    from torchtune.config._utils import _merge_yaml_and_cli_args

    lines = (folder / "torchtune.sh").read_text().replace("\\\n", "").splitlines()
    words = shlex.split(lines[-1])
    place = words.index("--config")
    recipe, name, overrides = words[place - 1], words[place + 1], words[place + 2 :]
    configs = {each.name: each.file_path for own in get_all_recipes() if own.name == recipe for each in own.configs}
    import torchtune as package

    stock = OmegaConf.load(Path(package.__file__).parent.parent / "recipes/configs" / configs[name])
    whole = _merge_yaml_and_cli_args(Namespace(**OmegaConf.to_container(stock)), overrides)
    config.validate(whole)
    new = {each.partition("=")[0].strip("~").partition(".")[0] for each in overrides} - set(stock)
    assert new <= {"enable_activation_checkpointing", "fsdp_reshard_after_forward", "optimizer_in_bwd"}, new
    assert (whole.batch_size, whole.gradient_accumulation_steps) == (
        job["plan"]["micro_batch"],
        job["plan"]["num_microbatches"],
    )
    assert "_component_" in whole.optimizer
    adapted(job, recipe.partition("_")[0], whole.model.get("lora_rank"), job["base"] == "nf4", False)


def unsloth(folder: Path, job: dict) -> None:
    """Its script by the signatures in its source: it asks for a GPU when it is imported."""
    from trl import SFTConfig

    root = next(Path(place) for place in sys.path if (Path(place) / "unsloth/models/loader.py").exists())
    signatures = {}
    for name, file in (("from_pretrained", "loader.py"), ("get_peft_model", "llama.py")):
        nodes = ast.walk(ast.parse((root / "unsloth/models" / file).read_text()))
        function = next(node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)
        signatures[name] = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    signatures["SFTConfig"] = set(SFTConfig.__dataclass_fields__)
    source = (folder / "unsloth_sft.py").read_text()
    calls = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in signatures:
                calls[name] = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
                assert set(calls[name]) <= signatures[name], set(calls[name]) - signatures[name]
    loading, training = calls["from_pretrained"], SimpleNamespace(**calls["SFTConfig"])
    held(job, training)
    assert loading["max_seq_length"] == training.max_length == job["seq_len"]
    rank = calls.get("get_peft_model", {}).get("r")
    kind = "full" if loading["full_finetuning"] else "lora"
    adapted(job, kind, rank, loading["load_in_4bit"], loading["load_in_8bit"])


LOADS: dict[str, Callable[[Path, dict], None]] = {
    **{"trl": trl, "axolotl": axolotl, "llama-factory": llama_factory},
    **{"ms-swift": ms_swift, "torchtune": torchtune, "unsloth": unsloth},
}


def main() -> None:
    with_bf16()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            LOADS[job["target"]](Path(job["folder"]), job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
