"""The short words of the field, each in a sentence: what reports explain where they first stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

GLOSSARY: Mapping[str, str] = {
    "TP": "tensor parallelism: every matrix product is divided between so many GPUs",
    "SP": "sequence parallelism: what tensor parallelism leaves whole is divided along the sequence",
    "CP": "context parallelism: each sequence is divided between so many GPUs",
    "EP": "expert parallelism: the experts of a mixture are divided between so many GPUs",
    "PP": "pipeline parallelism: the layers are divided into so many stages",
    "VPP": "virtual stages: parts that each pipeline stage is cut into, which shortens the bubble",
    "DP": "data parallelism: so many replicas, each with its own share of the batch",
    "ZeRO": "optimizer state (1), gradients (2) and weights (3) are divided between the replicas",
    "MFU": "model FLOP/s utilisation: the useful operations a second over the peak of the GPU",
    "HFU": "hardware FLOP/s utilisation: MFU with recomputed operations counted",
    "goodput": "the share of the time that trains: failures, restarts and checkpoints take the rest",
    "micro-batch": "sequences that pass through the stages together",
    "bubble": "time in which a pipeline stage waits for another one",
    "SMs": "the processors of a GPU; a share of them moves the data of communication",
    "PUE": "energy of the site over energy of the machines: what cooling adds",
    "NIC": "network card: the port of a GPU into the network between nodes",
    "oversubscription": "bandwidth below a switch over bandwidth above it",
    "capacity block": "GPUs reserved for days or weeks at a price of their own",
    "spot": "GPUs that the provider may take back at any time",
    "Gb/s": "10^9 bits a second and direction",
}


def words_in(texts: Iterable[str]) -> dict[str, str]:
    """The words of the glossary that stand in a text, in the order of the glossary.

    >>> list(words_in(["TP 4 SP, DP 8", "MFU 40 %"]))
    ['TP', 'SP', 'DP', 'MFU']
    """
    whole = " ".join(texts)
    return {
        word: meaning for word, meaning in GLOSSARY.items() if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w])", whole)
    }
