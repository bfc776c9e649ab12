"""The values at which the sliders stop."""

from __future__ import annotations

from optimizer.job.job import Job

SHORTEST, LONGEST = 9, 20  # sequences, in doublings of a token
AROUND = range(-4, 5)  # batches, in doublings of the one asked for
MOST_GPUS = 17  # in doublings of one


def steps(job: Job) -> dict[str, list[int]]:
    """Stops of each slider: powers of two, and for the batch doublings and halvings of the one in force.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=96)
    >>> steps(job)["global_batch"], steps(job)["gpus"][:4]
    ([6, 12, 24, 48, 96, 192, 384, 768, 1536], [1, 2, 4, 8])
    """
    batch = job.global_batch
    batches = {batch * 2**power if power >= 0 else batch / 2**-power for power in AROUND}
    most = min(2**MOST_GPUS, job.cluster.max_gpus)
    return {
        "gpus": _with([2**power for power in range(MOST_GPUS + 1) if 2**power <= most], job.gpus),
        "global_batch": sorted(int(value) for value in batches if value >= 1 and value == int(value)),
        "seq_len": _with([2**power for power in range(SHORTEST, LONGEST + 1)], job.seq_len),
    }


def _with(values: list[int], value: int) -> list[int]:
    return sorted({*values, value})
