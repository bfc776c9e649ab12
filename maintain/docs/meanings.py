"""What the keys of users' files mean, in a few words each: of their fields, else by the name of their table."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache

from optimizer.job.fields import FIELDS
from optimizer.job.model import Experts, Indexer, LatentAttention, Model, Provenance, SlidingWindow, Tower
from optimizer.job.recurrence import Recurrence
from optimizer.job.stack import PARAMETERS, Features, Fixed, Stack

# Dataclasses whose fields are keys, with what they mean beside them.
COMMENTED: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Model, Experts, LatentAttention, SlidingWindow, Tower, Indexer, Recurrence, Provenance),
        *(Stack, Features, Fixed),
    )
}
TRAINED = ("trains", "bases", "optimizers")
AXES = {field.axis: field.meaning for field in FIELDS.values() if field.axis}

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "ClusterTable": {
        "name": "what the cluster is called",
        "device": "a preset, or a table [device]",
        "gpus_per_node": "GPUs that share a host; divides the size of the innermost tier, or is divided by it",
        "max_gpus": "most GPUs that there are",
        "host_bandwidth_one_way": "from a GPU to its host, one way",
        "host_memory": "of the host of a node; it limits what may lie there",
        "tiers": "the network, innermost first",
    },
    "DeviceTable": {
        "name": "what the device is called",
        "like": "a preset that gives what is left out",
        "vendor": "who makes it",
        "peak_flops": "dense peak by number format",
        "memory": "what a process can allocate at most",
        "memory_nominal": "what the datasheet says",
        "memory_bandwidth": "of the device memory, reads and writes together",
        "l2_cache": "last-level cache",
        "sms": "multiprocessors",
        "power": "limit of the board",
        "host_slowness": "time in which its host launches a kernel over that of an x86 server",
        "measured_matmul": "best matrix product that was measured, by number format",
        "gemm": "how it multiplies matrices, as measured, by bf16 or fp8",
    },
    "GemmTable": {
        "ceiling": "share of the peak that the longest products reach",
        "small_rate": "rate of small tiles over that of large ones",
        "wave_softness": "share of the work that is balanced over the multiprocessors; the rest waits for whole waves",
        "k_half": "reduction length at which a tile reaches half of its rate [elements]",
        "launch": "fixed time of a kernel [s]",
        "memory_efficiency": "share of the memory bandwidth that products reach",
    },
    "TierTable": {
        "name": "what the tier is called",
        "link": "a preset that gives what is left out",
        "bandwidth_one_way": "of one port, one way",
        "bandwidth_duplex": "of one port, both ways together; is halved",
        "ports_per_gpu": "ports of a GPU",
        "latency": "of one step of a collective",
        "energy": "of a bit that passes",
        "efficiency": "share of the bandwidth that large messages reach",
        "half_message": "bytes at which half of the bandwidth is reached",
        "in_switch_reduction": "switches reduce, as SHARP does",
        "topology": "how its members are wired",
        "p2p_bandwidth_one_way": "between two members, where it is less",
        "quantities": "numbers of NCCL's protocols, as optimize calibrate-link prints them",
        "size": "GPUs of the tier; the last may leave it out",
        "oversubscription": "bandwidth below the switches over that above",
    },
    "AxesTable": AXES,
    "StudyTable": AXES
    | {
        "name": "what the study is called",
        "scenarios": "named tables of the same keys, each planned",
        "exclude": "combinations to leave out: tables of keys that all match",
        "token_budget": "tokens of the whole run, for days and cost",
        "prices": "price of a GPU-hour by device, instead of the presets' [USD/h]",
        "runs": "measured runs of yours, which every answer then knows, as --runs names them",
        **{field.name: field.meaning for field in FIELDS.values() if field.effort},
    },
    "ExclusionTable": {
        "scenarios": "names of scenarios",
        **{
            name: AXES[name]
            for name in ("models", "clusters", "devices", "dtypes", "stacks", *TRAINED, "losses", "lengths", "packings")
        },
        **dict.fromkeys(("gpus", "seq_lens", "global_batches"), 'numbers, or comparisons such as ">= 4096"'),
    },
    "Parameters": {name: parameter.meaning for name, parameter in PARAMETERS.items()},
    "FixedParameters": {name: parameter.meaning for name, parameter in PARAMETERS.items()},
}


def meaning(table: str, key: str) -> str:
    """What a key of a table means, "" where nobody wrote it.

    >>> meaning("Experts", "top_k"), meaning("Features", "dropout")
    ('experts of a token', 'the model is trained with it')
    """
    kind = COMMENTED.get(table)
    return comments(kind).get(key, "") if kind else MEANINGS.get(table, {}).get(key, "")


@cache
def comments(kind: type) -> dict[str, str]:
    """What the comments of a dataclass say of its fields: the one behind a field, else those above it.

    >>> comments(Features)["dispatcher"][:31]
    'how tokens travel where a run n'
    """
    meanings, above = {}, list[str]()
    for line in inspect.getsource(kind).splitlines():
        code, _, comment = line.strip().partition("# ")
        if not code:
            above.append(comment)
            continue
        if field := re.match(r"(\w+): ", code):
            meanings[field[1]] = comment or " ".join(above)
        above = []
    return meanings
