"""Run where one release of Megatron-Bridge is: apply overrides to a configuration, validate it, print verdicts.

Reads lines of JSON with overrides, GPUs and shape; writes one line of JSON for each. Libraries that need a GPU are
absent and never called: validation computes nothing.
"""

import abc
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import logging
import os
import sys
import types
from unittest.mock import MagicMock

ABSENT = (
    *("transformer_engine", "transformer_engine_torch", "modelopt", "apex", "nvidia_resiliency_ext", "flash_attn"),
    *("megatron.energon", "mamba_ssm", "causal_conv1d", "nemo_run", "wandb", "flashinfer", "deep_ep", "fla", "timm"),
    *("emerging_optimizers", "multistorageclient", "qwen_vl_utils", "nvdlfw_inspect", "open_clip", "grouped_gemm"),
    *("torchvision", "torchaudio", "PIL", "peft", "sentencepiece", "tiktoken", "diffusers", "librosa", "bitsandbytes"),
)


class StandIn(abc.ABCMeta):
    """The class of classes that stand for whatever an absent library has: to derive from, to call, to decorate with."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __iter__(cls):
        return iter(())


class Nothing:
    """What such a class makes."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, made=None, *_, **__):
        return made

    def __iter__(self):
        return iter(())


def stand_in(name):
    return StandIn(name, (Nothing,), {})


class Module(types.ModuleType):
    """An absent library: it has every name."""

    __version__ = "9.9.9"
    __all__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = stand_in(name)
        setattr(self, name, found)
        return found


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stand-ins for libraries of the GPU."""

    def find_spec(self, name, path, target=None):
        if any(name == absent or name.startswith(f"{absent}.") for absent in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


def prepared() -> None:
    sys.meta_path.insert(0, Absent())
    known = importlib.metadata.version
    importlib.metadata.version = lambda name: "9.9.9" if name.replace("-", "_") in ABSENT else known(name)
    import typing

    if not hasattr(typing, "override"):
        import typing_extensions

        typing.override = typing_extensions.override
    import torch

    torch.cuda.get_device_capability = lambda *_: (9, 0)
    properties = MagicMock(major=9, minor=0, multi_processor_count=132, total_memory=80 << 30)
    properties.name = "NVIDIA H100"
    torch.cuda.get_device_properties = lambda *_: properties


LLAMA = ("llama1-", "llama2-", "llama3")  # recipes of the main branch build these from a config of its own


def model_of(job: dict):
    """The model's configuration as a recipe of its family makes it, of this shape."""
    from megatron.bridge.models.gpt_provider import GPTModelProvider

    moe = {"num_moe_experts": job["experts"], "moe_router_topk": job["top_k"]} if job["experts"] else {}
    shape = {
        "num_layers": job["layers"],
        "hidden_size": job["hidden"],
        "num_attention_heads": job["heads"],
        "num_query_groups": job["kv_heads"],
        "add_bias_linear": not job["experts"],
        **moe,
    }
    whole = {"vocab_size": job["vocab"], "seq_length": 512}
    try:
        from megatron.bridge.models.gpt.model_config import BridgeGPTModelConfig
        from megatron.bridge.models.transformer_config import TransformerConfig
    except ImportError:
        return GPTModelProvider(**shape, **whole)
    if not job["model"].startswith(LLAMA):
        return GPTModelProvider(**shape, **whole)
    return BridgeGPTModelConfig(transformer=TransformerConfig(**shape), **whole)


def container(job: dict):
    """The configuration that a recipe of this shape would make."""
    from megatron.bridge.training import config as bridge

    return bridge.ConfigContainer(
        model=model_of(job),
        train=bridge.TrainingConfig(micro_batch_size=1, global_batch_size=8, train_iters=10),
        optimizer=bridge.OptimizerConfig(lr=1e-4, min_lr=1e-5, use_distributed_optimizer=True),
        scheduler=bridge.SchedulerConfig(lr_warmup_iters=1),
        dataset=bridge.MockGPTDatasetConfig(
            random_seed=1, reset_attention_mask=False, reset_position_ids=False, eod_mask_loss=False, seq_length=512
        ),
        logger=bridge.LoggerConfig(),
        tokenizer=bridge.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=job["vocab"]),
        checkpoint=bridge.CheckpointConfig(save="/nowhere", ckpt_format="torch_dist"),
        mixed_precision="bf16_mixed",
        comm_overlap=bridge.CommOverlapConfig(tp_comm_overlap=False),
        ddp=bridge.DistributedDataParallelConfig(),
    )


def load(job: dict) -> None:
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    os.environ |= {"WORLD_SIZE": str(job["gpus"]), "RANK": "0", "LOCAL_RANK": "0"}
    lines = [line for line in open(job["overrides"]).read().splitlines() if not line.startswith("#")]
    config = process_config_with_overrides(container(job), cli_overrides=lines)
    runtime_config_update(config)
    config.validate()
    model = config.model
    ranks = model.tensor_model_parallel_size * model.pipeline_model_parallel_size * model.context_parallel_size
    assert config.data_parallel_size * ranks == job["gpus"]
    for line in lines:
        key, _, text = line.partition("=")
        if key in ("comm_overlap", "mixed_precision") or text.startswith("[") or text == "null":
            continue
        value = config
        for part in key.split("."):
            value = getattr(value, part)
        shown = {"true": "True", "false": "False"}.get(text, text.strip('"'))
        if key == "model.pipeline_model_parallel_layout":
            continue
        same = str(value) == shown or (value is not None and text[:1].isdigit() and float(value) == float(shown))
        assert same, f"{key} is {value}, not {shown}"
    if job.get("edited"):
        return
    assert config.ddp.grad_reduce_in_fp32 == ("grad_reduce_in_fp32: true" in "".join(lines))


def main() -> None:
    logging.disable(logging.CRITICAL)
    prepared()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            load(job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
