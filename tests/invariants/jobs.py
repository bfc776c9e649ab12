"""Random small jobs, most of which have a plan, over the presets of models, clusters and stacks."""

from __future__ import annotations

from random import Random

from optimizer.base.errors import InputError
from optimizer.catalog import cluster_names, load_cluster, load_model, load_stack, model_names, stack_names
from optimizer.job.job import Job

GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SEQUENCES = (512, 1024, 2048, 4096)
BATCHES = (4, 8, 12, 16, 32)
LARGEST = 4e10  # parameters


def random_job(random: Random) -> Job:
    """The first job drawn that a device has units for, not too large."""
    while True:
        try:
            job = Job(
                model=load_model(random.choice(model_names())),
                cluster=load_cluster(random.choice(cluster_names())),
                stack=load_stack(random.choice(stack_names())),
                gpus=random.choice(GPUS),
                seq_len=random.choice(SEQUENCES),
                global_batch=random.choice(BATCHES),
                dtype=random.choice(("bf16", "bf16", "fp16", "fp8")),
            )
        except InputError:  # the device has no units for the format, or the cluster too few GPUs
            continue
        if job.model.params <= LARGEST:
            return job
