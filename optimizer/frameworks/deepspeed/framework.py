"""DeepSpeed, and Accelerate, which launches it and FSDP."""

from __future__ import annotations

from functools import partial

from optimizer.frameworks.deepspeed import config, export, log
from optimizer.frameworks.framework import SHARDED, ConfigFormat, ExportFiles, Framework, launch_by_keys

NAME = "DeepSpeed"
DEEPSPEED = Framework(
    name=NAME,
    stack="llm-foundry-fsdp-2023",
    config=ConfigFormat(
        files=("DeepSpeed JSON", "Accelerate YAML"),
        recognised=config.recognised,
        read=partial(launch_by_keys, NAME, config.read, config.write),
    ),
    log=log.LOG,
    targets={
        "deepspeed": ExportFiles(
            files={
                "deepspeed.json": export.deepspeed_json,
                "accelerate-deepspeed.yaml": export.accelerate_deepspeed,
                "trainer-deepspeed.json": export.trainer_deepspeed,
            }
        ),
        "accelerate": ExportFiles(
            files={"accelerate-fsdp.yaml": export.accelerate_fsdp, "trainer-fsdp.json": export.trainer_fsdp}
        ),
    },
    only=SHARDED,
    zero_stages=(0, 1, 2, 3),
    settable=("bucket",),
)
