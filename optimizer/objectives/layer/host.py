"""What keeping activations in the host's memory costs: bringing them there and back.

Source: NVIDIA/Megatron-LM, fine-grained activation offloading,
docs.nvidia.com/megatron-core/developer-guide/0.19.0/user-guide/features/fine_grained_activation_offloading.html.
"""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.layer.beside import EXCHANGE
from optimizer.objectives.layer.phases import LayerTime


def host_seconds(job: Job, moved: FloatArray, window: FloatArray) -> FloatArray:
    """Seconds that one pass over a layer loses to its traffic with the host [s].

    max(0, moved / host bandwidth - window) + moved / HBM bandwidth: what does not fit under the pass's computation and
    its waits for launches, and the copies' own traffic in device memory. Where communication hides under computation
    the host link waits: it is shared with the network card, and so is none of an exchange inside the scale-up domain.
    That everything else hides is assumed; of one run that was measured (Qwen3-235B on 256 GB200), all of it does.

    Source: assumed; Transformer Engine documentation, CPU offloading (copies run beside the computation).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...           gpus=8, seq_len=2048, global_batch=8)
    >>> host_seconds(job, np.array([55.1e6, 55.1e6]), np.array([0.0, 2e-3])).round(6).tolist()
    [0.001016, 1.6e-05]
    """
    device = job.cluster.device
    return np.maximum(0.0, moved / job.cluster.host_bandwidth - window) + moved / device.memory_bandwidth


def host_passes(
    job: Job, time: LayerTime, recompute: IntArray, moved: FloatArray, near: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """`host_seconds` of the forward and the backward pass of a layer [s].

    near: whether the exchange stays inside the scale-up domain, so that the host link is free meanwhile.
    """
    again = time.again(recompute)
    windows = time.forward.window, time.backward.window + again.window
    # What hides beside another micro-batch travels over the network card too, unless it stays near.
    hides = (terms.get(EXCHANGE, np.zeros(1)) for terms in time.beside)
    exchanges = (time.forward.terms[EXCHANGE], time.backward.terms[EXCHANGE] + again.terms[EXCHANGE])
    forward, backward = (
        host_seconds(job, moved, np.maximum(0.0, window + hidden + np.where(near, exchange, 0.0)))
        for window, hidden, exchange in zip(windows, hides, exchanges, strict=True)
    )
    return forward, backward
