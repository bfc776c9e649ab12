"""The tokens of an optimizer step that published runs took, by their number of accelerators."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor


@dataclass(frozen=True, kw_only=True)
class PublishedStep:
    """An optimizer step of a run at its largest batch."""

    run: str  # what is trained
    accelerators: int  # that train it
    tokens: int  # of the step
    source: str  # where it is written
    presets: tuple[str, ...] = ()  # models whose usual batch it is


LLAMA2 = ("llama2-7b", "llama2-13b", "llama2-70b")
STEPS = (
    PublishedStep(run="BLOOM-176B", accelerators=384, tokens=2048 * 2048, source="arXiv 2211.05100, table 3"),
    PublishedStep(run="OPT-175B", accelerators=992, tokens=2 * 10**6, source="arXiv 2205.01068, table 1"),
    PublishedStep(
        run="GPT-3 175B", accelerators=1024, tokens=1536 * 2048, source="arXiv 2104.04473, table 1", presets=("gpt3",)
    ),
    PublishedStep(
        run="Llama-2 70B", accelerators=2048, tokens=1024 * 4096, source="arXiv 2307.09288, section 2.2", presets=LLAMA2
    ),
    PublishedStep(run="MT-NLG 530B", accelerators=2240, tokens=1920 * 2048, source="arXiv 2201.11990, section 3"),
    PublishedStep(run="Falcon-180B", accelerators=4096, tokens=2048 * 2048, source="arXiv 2311.16867, table 15"),
    PublishedStep(run="Nemotron-4 340B", accelerators=6144, tokens=2304 * 4096, source="arXiv 2406.11704, table 2"),
    PublishedStep(run="PaLM 540B", accelerators=6144, tokens=2048 * 2048, source="arXiv 2204.02311, section 5"),
    PublishedStep(
        run="Llama-3.1 405B",
        accelerators=16384,
        tokens=2048 * 8192,
        source="arXiv 2407.21783, table 4",
        presets=("llama3.1-405b",),
    ),
)
PUBLISHED = {preset: step for step in STEPS for preset in step.presets}
LEAST = 4 * 2**20  # tokens, which most runs on up to 4,096 accelerators took
# Sequences of a GPU in a step of fine-tuning: batch_size 2 x gradient_accumulation_steps 8.
# Source: pytorch/torchtune v0.6.1, recipes/configs/llama3_1/8B_lora_single_device.yaml.
TUNED = 16
AT_ONCE = 2  # where nothing accumulates; the same release, llama3_1/8B_full_single_device.yaml
# Tokens of a sequence in fine-tuning. Source: what hiyouga/LLaMA-Factory, src/llamafactory/hparams/data_args.py
# (cutoff_len), and unslothai/unsloth, unsloth/models/loader.py (max_seq_length), have unasked.
TUNED_LENGTH = 2048
MOVED = 1 / 8  # of an assumed batch, that more plans can share it
EACH = 1024  # tokens for each accelerator beyond: what Falcon-180B and Llama-3.1 405B took


def usual_tokens(gpus: int) -> int:
    """Tokens per optimizer step that a run on so many accelerators usually takes.

    T = max(4Mi, 1,024 N); N: accelerators. The rule lies within a factor of 2.3 of every row of STEPS: batches were
    grown with the machines, because a fixed one leaves each GPU ever less to do between two reductions of gradients.

    >>> usual_tokens(1024), usual_tokens(16384)
    (4194304, 16777216)
    """
    return max(LEAST, EACH * gpus)


def divisible_batch(batch: int, gpus: int) -> int:
    """A batch near an assumed one that many plans of so many GPUs can share: a person's own is never changed.

    A multiple of the largest odd factor of the GPUs, unless that exceeds the batch, and of as many of their other
    factors as move it by no more than MOVED, so often that micro-batches of many sizes divide it; at least one sequence
    for 16 GPUs, since no plan keeps more of them busy on one.

    >>> divisible_batch(1536, 1024), divisible_batch(1536, 1000), divisible_batch(2048, 131072)
    (1536, 1500, 8192)
    >>> divisible_batch(512, 96), divisible_batch(512, 12), divisible_batch(1536, 1023), divisible_batch(512, 10008)
    (576, 576, 2046, 556)
    """
    batch = max(batch, gpus // 16)
    odd = gpus // (gpus & -gpus)
    units = [unit for unit in range(min(batch, gpus), 0, -1) if gpus % unit == 0 and (odd > batch or unit % odd == 0)]
    for unit in units:
        times = range(ceil(batch * (1 - MOVED) / unit), floor(batch * (1 + MOVED) / unit) + 1)
        if times:
            return unit * max(times, key=lambda each: (each & -each, -abs(each * unit - batch)))
    return round(batch / units[-1]) * units[-1]
