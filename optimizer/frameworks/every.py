"""Every framework: what its launches and logs are read with, what launches a plan with it, and what it can set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from optimizer.frameworks.axolotl.export import FILES as AXOLOTL_FILES
from optimizer.frameworks.config.launch import Values, keyed_launch
from optimizer.frameworks.deepspeed import config as deepspeed
from optimizer.frameworks.deepspeed.export import ACCELERATE_FILES, DEEPSPEED_FILES
from optimizer.frameworks.deepspeed.log import LOG as DEEPSPEED_LOG
from optimizer.frameworks.deepspeed.log import STEPS_LOG
from optimizer.frameworks.framework import ConfigFormat, ExportFiles, Framework
from optimizer.frameworks.gpt_neox import config as gpt_neox
from optimizer.frameworks.huggingface.log import LOG as HUGGINGFACE_LOG
from optimizer.frameworks.litgpt import config as litgpt
from optimizer.frameworks.litgpt.log import LOG as LITGPT_LOG
from optimizer.frameworks.llama_factory.export import FILES as LLAMA_FACTORY_FILES
from optimizer.frameworks.llm_foundry import config as llm_foundry
from optimizer.frameworks.llm_foundry.log import LOG as LLM_FOUNDRY_LOG
from optimizer.frameworks.log_line import LogFormat
from optimizer.frameworks.maxtext import config as maxtext
from optimizer.frameworks.maxtext.export import FILES as MAXTEXT_FILES
from optimizer.frameworks.maxtext.log import LOG as MAXTEXT_LOG
from optimizer.frameworks.megatron import config as megatron
from optimizer.frameworks.megatron.export import COMMUNICATORS, arguments_file, communicators_file
from optimizer.frameworks.megatron.flag_names import MEGATRON, MEGATRON_DEEPSPEED
from optimizer.frameworks.megatron.kubernetes import pytorchjob
from optimizer.frameworks.megatron.log import LOG as MEGATRON_LOG
from optimizer.frameworks.megatron.sbatch import sbatch_script
from optimizer.frameworks.megatron.skypilot import skypilot_task
from optimizer.frameworks.megatron_bridge.export import FILES as BRIDGE_FILES
from optimizer.frameworks.megatron_bridge.log import LOG as BRIDGE_LOG
from optimizer.frameworks.mlperf.log import LOG as MLPERF_LOG
from optimizer.frameworks.ms_swift.export import FILES as MS_SWIFT_FILES
from optimizer.frameworks.nanogpt.log import LOG as NANOGPT_LOG
from optimizer.frameworks.nanotron import config as nanotron
from optimizer.frameworks.nanotron.export import FILES as NANOTRON_FILES
from optimizer.frameworks.nanotron.log import LOG as NANOTRON_LOG
from optimizer.frameworks.nemo.automodel_log import LOG as AUTOMODEL_LOG
from optimizer.frameworks.nemo.export import FILES as NEMO_FILES
from optimizer.frameworks.nemo.log import LOG as NEMO_LOG
from optimizer.frameworks.olmo.log import LOG as OLMO_LOG
from optimizer.frameworks.picotron import config as picotron
from optimizer.frameworks.plain.log import LOG as PLAIN_LOG
from optimizer.frameworks.primus.export import FILES as PRIMUS_FILES
from optimizer.frameworks.primus.log import LOG as PRIMUS_LOG
from optimizer.frameworks.torchtitan import config as torchtitan
from optimizer.frameworks.torchtitan.export import torchtitan_toml
from optimizer.frameworks.torchtitan.export_python import FILES as TORCHTITAN_FILES
from optimizer.frameworks.torchtitan.log import LOG as TORCHTITAN_LOG
from optimizer.frameworks.torchtune import config as torchtune
from optimizer.frameworks.torchtune.export import FILES as TORCHTUNE_FILES
from optimizer.frameworks.torchtune.log import LOG as TORCHTUNE_LOG
from optimizer.frameworks.trl.export import FILES as TRL_FILES
from optimizer.frameworks.unsloth.export import FILES as UNSLOTH_FILES
from optimizer.frameworks.verl import config as verl
from optimizer.frameworks.verl.log import LOG as VERL_LOG
from optimizer.job.method import FULL, LORA

SETTABLE = ("dispatcher", "layers_per_stage", "offload", "bucket")  # in launches of Megatron-LM
# Configs that split nothing but data: what a plan can be.
SHARDED = {"tp": (1,), "pp": (1,), "cp": (1,), "ep": (1,), "recompute": ("none", "full")}


def by_keys(name: str, module: Any, *files: str) -> ConfigFormat:
    """Config files whose keys say a launch one by one, as the `recognised`, `read` and `write` of a module have it."""
    read = partial(keyed_launch, name, module.read, module.write)
    followed = tuple(getattr(module, "FOLLOWED", ()))
    return ConfigFormat(files=files, recognised=module.recognised, read=read, followed=followed)


def by_flags(name: str, file: str, recognised: Callable[[Values], bool]) -> ConfigFormat:
    """Config files whose keys are Megatron-LM's flags by other names."""
    return ConfigFormat(files=(file,), recognised=recognised, read=partial(megatron.read, name))


# A framework whose files or lines another one has too, or trains with, comes before it.
EVERY: tuple[Framework, ...] = (
    Framework(  # of a launch its actor's update; on FSDP, or Megatron-LM
        name=verl.PROGRAM,
        stack="llm-foundry-fsdp-2023",
        config=ConfigFormat(files=(), recognised=verl.recognised, read=verl.read),
        log=VERL_LOG,
        zero_stages=(1, 2, 3),
        graphs=False,
    ),
    Framework(
        name="torchtune",
        stack="torchtune-2024",
        config=by_keys("torchtune", torchtune, "torchtune YAML"),
        log=TORCHTUNE_LOG,
        targets={"torchtune": TORCHTUNE_FILES},
        only={"vpp": (1,), "pp": (1,), "ep": (1,), "recompute": ("none", "full")},
        zero_stages=(0, 2, 3),
    ),
    Framework(
        name="litgpt",
        stack="litgpt-2023",
        config=by_keys("litgpt", litgpt, "litgpt YAML"),
        log=LITGPT_LOG,
        only=SHARDED,
        zero_stages=(0, 3),
    ),
    Framework(
        name="MaxText",
        stack="maxtext",
        config=by_keys("MaxText", maxtext, "MaxText YAML"),
        log=MAXTEXT_LOG,
        targets={"maxtext": MAXTEXT_FILES},
        only={
            "vpp": (1,),
            "pp": (),
            "cp": (1,),
            "zero_stage": (3,),
            "shard": (),
            "recompute": ("none", "selective", "full"),
        },
        sequence_parallel=True,
    ),
    Framework(  # on Megatron-LM; on MaxText its configs are read as those of MaxText
        name=megatron.PRIMUS,
        stack="primus",
        config=by_flags(megatron.PRIMUS, "Primus YAML", megatron.is_primus),
        log=PRIMUS_LOG,
        targets={"primus": PRIMUS_FILES},
        settable=SETTABLE,
    ),
    Framework(
        name=megatron.SWIFT,
        stack="megatron-core",
        config=by_flags(megatron.SWIFT, "ms-swift commands", megatron.is_swift),
        targets={"ms-swift": MS_SWIFT_FILES},
        # Without arguments for the others, and with one of another meaning for virtual stages.
        only={"overlap_exchange": (False,), "shard": (0,), "activation_offload": (0,), "vpp": (1,)},
        settable=("layers_per_stage", "offload"),
    ),
    Framework(
        name=megatron.NEMO,
        stack="nemo-2024",
        config=replace(
            by_flags(megatron.NEMO, "NeMo YAML", megatron.is_nemo), files=("NeMo YAML", "NeMo 2 program (Python)")
        ),
        log=NEMO_LOG,
        targets={"nemo": NEMO_FILES},
    ),
    Framework(
        name=megatron.FLAGSCALE,
        stack="megatron-core",
        config=by_flags(megatron.FLAGSCALE, "FlagScale YAML", megatron.is_flagscale),
        settable=SETTABLE,
        graphs=False,
    ),
    Framework(
        name=megatron.BRIDGE,
        stack="megatron-bridge",
        config=by_flags(megatron.BRIDGE, "Megatron-Bridge YAML", megatron.is_bridge),
        log=BRIDGE_LOG,
        targets={
            "megatron-bridge": ExportFiles(
                files={COMMUNICATORS: communicators_file, **BRIDGE_FILES},
                companions=(COMMUNICATORS,),
                methods=(FULL, LORA),
                packs=True,
            )
        },
        settable=SETTABLE,
    ),
    Framework(
        name=MEGATRON,
        stack="megatron-core",
        config=by_flags(MEGATRON, "Megatron-LM YAML", megatron.is_yaml_cfg),
        log=MEGATRON_LOG,
        targets={
            "megatron-lm": ExportFiles(
                files={
                    "megatron.args": arguments_file,
                    COMMUNICATORS: communicators_file,
                    "megatron.sbatch": sbatch_script,
                    "megatron-pytorchjob.yaml": pytorchjob,
                    "megatron-skypilot.yaml": skypilot_task,
                },
                companions=(COMMUNICATORS,),
            )
        },
        settable=SETTABLE,
        graphs=False,
    ),
    Framework(name=MEGATRON_DEEPSPEED, stack="megatron-deepspeed-2022", only={"vpp": (1,)}),
    Framework(  # on Megatron's layers and DeepSpeed's engine
        name="GPT-NeoX",
        stack="megatron-deepspeed-2022",
        config=by_keys("GPT-NeoX", gpt_neox, "GPT-NeoX YAML"),
        only={"vpp": (1,), "cp": (1,), "ep": (1,), "recompute": ("none", "full")},
        zero_stages=(0, 1, 2, 3),
    ),
    Framework(
        name="torchtitan",
        stack="torchtitan",
        config=ConfigFormat(
            files=("torchtitan TOML", "torchtitan config_registry.py:FUNCTION"),
            recognised=torchtitan.recognised,
            read=torchtitan.read_configs,
        ),
        log=TORCHTITAN_LOG,
        targets={"torchtitan": ExportFiles(files={"torchtitan.toml": torchtitan_toml, **TORCHTITAN_FILES})},
        only={"vpp": (1,), "recompute": ("none", "selective", "full")},
        sequence_parallel=True,
    ),
    Framework(
        name="nanotron",
        stack="nanotron-2024",
        config=by_keys("nanotron", nanotron, "nanotron YAML"),
        log=NANOTRON_LOG,
        targets={"nanotron": NANOTRON_FILES},
        # It splits layers over stages by itself, and has other attention for CP and other groups for EP.
        only={"vpp": (1,), "pp": (), "cp": (), "ep": (), "recompute": ("none", "full")},
        zero_stages=(0, 1),
    ),
    Framework(
        name="picotron",
        stack="nanotron-2024",
        config=by_keys("picotron", picotron, "picotron JSON"),
        only={"vpp": (1,), "ep": (1,), "recompute": ("none",), "sequence_parallel": (False,)},
        zero_stages=(0,),
    ),
    Framework(
        name="llm-foundry",
        stack="llm-foundry-fsdp-2023",
        config=by_keys("llm-foundry", llm_foundry, "llm-foundry YAML"),
        log=LLM_FOUNDRY_LOG,
        only=SHARDED,
    ),
    Framework(  # and Accelerate, which launches it and FSDP
        name="DeepSpeed",
        stack="llm-foundry-fsdp-2023",
        config=by_keys("DeepSpeed", deepspeed, "DeepSpeed JSON", "Accelerate YAML"),
        log=DEEPSPEED_LOG,
        targets={
            "deepspeed": ExportFiles(files=DEEPSPEED_FILES),
            "accelerate": ExportFiles(files=ACCELERATE_FILES),
        },
        only=SHARDED,
        zero_stages=(0, 1, 2, 3),
        settable=("bucket",),
    ),
    Framework(name="Hugging Face Trainer", log=HUGGINGFACE_LOG),  # launched with DeepSpeed or Accelerate
    Framework(name="TRL", targets={"trl": TRL_FILES}),  # on the Trainer, as the next three; read as DeepSpeed's files
    Framework(name="Axolotl", targets={"axolotl": AXOLOTL_FILES}),
    Framework(name="LLaMA-Factory", targets={"llama-factory": LLAMA_FACTORY_FILES}),
    Framework(name="Unsloth", targets={"unsloth": UNSLOTH_FILES}),
    Framework(name="nanoGPT", log=NANOGPT_LOG),
    Framework(name="NeMo AutoModel", log=AUTOMODEL_LOG),
    Framework(name="OLMo", log=OLMO_LOG),
    Framework(name="MLPerf", log=MLPERF_LOG),
    Framework(
        name="DeepSpeed's steps", log=STEPS_LOG
    ),  # of every program with its engine: what these print counts first
    Framework(name="a plain loop", log=PLAIN_LOG),  # last, since it knows what others print too
)
FRAMEWORKS: Mapping[str, Framework] = {framework.name: framework for framework in EVERY}
CONFIGS: tuple[ConfigFormat, ...] = tuple(framework.config for framework in EVERY if framework.config)
FOLLOWED: tuple[str, ...] = tuple(key for each in CONFIGS for key in each.followed)
LOGS: tuple[LogFormat, ...] = tuple(framework.log for framework in EVERY if framework.log)
RANKS = tuple(log.rank for log in LOGS if log.rank)
TARGETS: Mapping[str, ExportFiles] = {name: files for framework in EVERY for name, files in framework.targets.items()}
