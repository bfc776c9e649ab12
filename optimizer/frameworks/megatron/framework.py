"""Megatron-LM, and Megatron-DeepSpeed, whose scripts have most of its flags."""

from __future__ import annotations

from optimizer.frameworks.framework import ExportFiles, Framework
from optimizer.frameworks.megatron import log
from optimizer.frameworks.megatron.export import COMMUNICATORS, arguments_file, communicators_file
from optimizer.frameworks.megatron.flag_names import MEGATRON, MEGATRON_DEEPSPEED
from optimizer.frameworks.megatron.kubernetes import pytorchjob
from optimizer.frameworks.megatron.sbatch import sbatch_script

SETTABLE = ("dispatcher", "layers_per_stage", "offload", "bucket")
MEGATRON_LM = Framework(
    name=MEGATRON,
    stack="megatron-core",
    log=log.LOG,
    targets={
        "megatron-lm": ExportFiles(
            files={
                "megatron.args": arguments_file,
                COMMUNICATORS: communicators_file,
                "megatron.sbatch": sbatch_script,
                "megatron-pytorchjob.yaml": pytorchjob,
            },
            companions=(COMMUNICATORS,),
        )
    },
    settable=SETTABLE,
    graphs=False,
)
DEEPSPEED_SCRIPTS = Framework(name=MEGATRON_DEEPSPEED, stack="megatron-deepspeed-2022", only={"vpp": (1,)})
