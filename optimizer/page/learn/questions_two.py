"""The questions of Act II, the numbers of their reveals worked out from its rules."""

from __future__ import annotations

from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.objectives.pipeline.closed_form import bubble_fraction
from optimizer.page.learn.act_one import LAB
from optimizer.page.learn.act_two import CEILING, DEGREES, GOOD, GPUS, HBM, LAYERS, Design, best_by_rule
from optimizer.page.learn.question import PREDICTION, REFLECTION, Choice, Question

CALLED_RIGHT = Design(tp=8, pp=4, microbatches=8)
DEEPER = Design(tp=8, pp=16, microbatches=8)
HIDDEN, SEQUENCE = 12288, 2048  # of GPT-3; Brown et al., arXiv 2005.14165, table 2.1


def prediction() -> Question:
    """Which design is best."""
    called, deeper = CALLED_RIGHT, DEEPER
    wide = Design(tp=128, pp=1, microbatches=8)
    return Question(
        name="act-2",
        act="II",
        kind=PREDICTION,
        text=f"Which TP x PP x DP serves GPT-3 (175 billion parameters) on {GPUS:,} H100 best?",
        right="B",
        choices=(
            Choice(
                key="A",
                text="TP 128, PP 1, DP 8: every layer spread over 128 GPUs.",
                reveal=(
                    f"Each layer's sums would cross {128 // LAB.node} nodes over a network {wide.slowdown:.2f} times "
                    f"slower than NVLink, several times in each of {LAYERS} layers. The rule of thumb gives "
                    f"{100 * wide.mfu:.1f} % MFU. Set TP above {LAB.node} below and see."
                ),
            ),
            Choice(
                key="B",
                text="TP 8, PP 4, DP 32: a node per layer, few stages, many replicas.",
                reveal=(
                    f"The right kind of design, and the one that the document calls right: TP fills a node and no "
                    f"more, PP crosses nodes where little is sent, DP takes the rest; its bubble is "
                    f"{100 * called.bubble:.3f} % by this act's rule, its MFU {100 * called.mfu:.2f} %. But by the "
                    f"same rules it needs {called.memory / 1e9:.2f} GB of {HBM / 1e9:.0f} GB: it does not fit. "
                    f"TP 8 x PP 16 does ({deeper.memory / 1e9:.2f} GB), with a bubble of {100 * deeper.bubble:.3f} %. "
                    "At 8 micro-batches no design with TP 8 passes both tests; find one with more."
                ),
            ),
            Choice(
                key="C",
                text="TP 1, PP 1,024, DP 1: one pipeline, no all-reduce at all.",
                reveal=(
                    f"GPT-3 has {LAYERS} layers: no more than {LAYERS} stages can have one. And a pipeline that long "
                    f"is empty nearly all the time: with one micro-batch {100 * _exact(1024, 1):.1f} % of it, with 64 "
                    f"{100 * _exact(1024, 64):.1f} %. The document's rule says "
                    f"{100 * Design(tp=1, pp=1024, microbatches=64).bubble:.1f} % for these 64, which is how wrong "
                    "that rule is."
                ),
            ),
            Choice(
                key="D",
                text="TP 4, PP 256, DP 1: a deep pipeline.",
                reveal=(
                    f"256 stages for {LAYERS} layers again cannot be filled. With 8 micro-batches the document counts "
                    f"a bubble of {100 * Design(tp=4, pp=256, microbatches=8).bubble:.1f} %; a pipeline of 256 stages "
                    f"with 8 micro-batches in it really stands for {100 * _exact(256, 8):.0f} % of the time."
                ),
            ),
        ),
    )


def reflection() -> Question:
    """Why tensor parallelism stays within a node."""
    sent = float(volume_per_rank("all_reduce", HIDDEN * SEQUENCE * 2, LAB.node))
    inside, across = (1e3 * sent / rate for rate in (LAB.nvlink, LAB.infiniband))
    return Question(
        name="act-2-reflection",
        act="II",
        kind=REFLECTION,
        text="Why is tensor parallelism kept within a node?",
        right="B",
        choices=(
            Choice(
                key="A",
                text="PyTorch cannot run it across nodes.",
                reveal="It can, and so can every library built on it: a group of ranks may lie anywhere. It is slow.",
            ),
            Choice(
                key="B",
                text="It sums over its group several times in every layer, which a slower network cannot keep up with.",
                reveal=(
                    f"Forward and backward, a layer sums 4 times (2 + 2), {4 * LAYERS} times per micro-batch for "
                    f"{LAYERS} layers. Once, a GPU of a group of {LAB.node} sends {sent / 1e6:.0f} MB for one "
                    f"sequence: {inside:.2f} ms at {LAB.nvlink / 1e9:.0f} GB/s, {across:.2f} ms at "
                    f"{LAB.infiniband / 1e9:.0f}. The document has 0.5 ms and 1.1 ms, and counts half of the sums."
                ),
            ),
            Choice(
                key="C",
                text="It needs memory that the GPUs share, which nodes do not have.",
                reveal="It exchanges messages; no GPU reads another's memory. Any network carries them, if slowly.",
            ),
            Choice(
                key="D",
                text="Rounding differs across nodes and makes training unstable.",
                reveal=(
                    "The order of a sum may change its last bits on any network, inside a node as well; the number "
                    "formats are the same. Stability is not why."
                ),
            ),
        ),
    )


def slips() -> tuple[tuple[str, str], ...]:
    """What is wrong with the document's own Act II: a title and a sentence each, with the numbers."""
    called, best = CALLED_RIGHT, best_by_rule()
    return (
        (
            "The answer it calls right does not fit",
            f"TP 8 x PP 4 needs {called.memory / 1e9:.2f} GB of {HBM / 1e9:.0f} GB by its own formula, and Megatron-LM "
            "did not use it: its runs of this model, on 384 to 1,536 A100, are TP 8 x PP 12 (Narayanan et al., "
            "arXiv 2104.04473, table 2).",
        ),
        (
            "The bubble is counted too small",
            f"(PP - 1) / (PP m) is {100 * called.bubble:.3f} % at PP 4 and m 8; stages really wait (PP - 1) / "
            f"(m + PP - 1) = {100 * called.exact_bubble:.1f} % of the time, as seen from the whole, or (PP - 1) / m = "
            f"{100 * 3 / 8:.1f} % of the useful time, as Megatron-LM states it. Neither has PP in the denominator. "
            f"{CEILING:.0%} needs m = {_needed(4)} at PP 4, and {_needed(16)} at PP 16.",
        ),
        (
            "Activations are multiplied where they should be divided",
            "8 GB x TP grows with tensor parallelism, which cuts most activations to 1/TP, and all of them with "
            "sequence parallelism (Korthikanti et al., arXiv 2205.05198, table 2).",
        ),
        (
            "Bytes per parameter",
            "Two moments and a master copy in fp32 are 12 bytes, not 8, and gradients are left out; without ZeRO mixed "
            "precision takes 16 to 18 bytes per parameter. That data parallelism saves no memory is what ZeRO "
            "(Rajbhandari et al., arXiv 1910.02054) undoes.",
        ),
        (
            "Its own rule of thumb would not choose tensor parallelism",
            f"Of all designs with nothing wrong it ranks TP {best.tp} x PP {best.pp} with m {best.microbatches} first, "
            f"at {100 * best.mfu:.1f} %: TP only costs in it, and nothing charges for what a long pipeline leaves "
            f"idle. {GOOD:.0%} is easily met on paper.",
        ),
        (
            "Some of its designs cannot be tried",
            f"Explanations send you to PP 1,024 and PP 256; the sliders end at {DEGREES}, the layers at {LAYERS}.",
        ),
    )


def _exact(stages: int, microbatches: int) -> float:
    return float(bubble_fraction(stages, 1, microbatches))


def _needed(stages: int) -> int:
    """Fewest micro-batches that keep the exact bubble under the ceiling."""
    return next(m for m in range(1, 10**4) if _exact(stages, m) <= CEILING)
