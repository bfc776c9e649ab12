"""The questions of Act I, the numbers of their reveals worked out from its formulas."""

from __future__ import annotations

from dataclasses import replace

from optimizer.page.learn.act_one import LAB, SEQUENCE, TOLD, DataParallel
from optimizer.page.learn.question import PREDICTION, REFLECTION, Choice, Question

NODE, RACK, HALL = (DataParallel(gpus=gpus) for gpus in (8, 64, 512))


def prediction() -> Question:
    """Why MFU falls as replicas are added."""
    return Question(
        name="act-1",
        act="I",
        kind=PREDICTION,
        text="Why does MFU fall when a data-parallel job grows from 8 to 512 GPUs?",
        right="B",
        choices=(
            Choice(
                key="A",
                text="The communication library spends more and more time on its own bookkeeping.",
                reveal=(
                    "Bookkeeping of the library is microseconds a call. By the formulas of this act the bytes of the "
                    f"all-reduce alone take {_ms(HALL.all_reduce)} on 512 GPUs, beside {_ms(HALL.compute)} of compute: "
                    "what has to cross the wire decides, not who sends it. (Latency does grow with the ring, which "
                    "these formulas leave out; the cost model behind the switch below counts it.)"
                ),
            ),
            Choice(
                key="B",
                text="Adding up gradients takes longer across nodes while each GPU's compute stays the same, so the "
                "ratio of communication to computation rises.",
                reveal=(
                    f"A GPU always sends close to twice the gradients, {NODE.sent / 1e9:.2f} GB on 8 and "
                    f"{HALL.sent / 1e9:.2f} GB on 512, and its compute does not change at all. What changes is the "
                    f"road: beyond a node the bytes leave NVLink ({LAB.nvlink / 1e9:.0f} GB/s here) for InfiniBand "
                    f"({LAB.infiniband / 1e9:.0f} GB/s here), and the ratio goes from {NODE.ratio:.1f} to "
                    f"{RACK.ratio:.1f}. Note that it hardly moves between 64 and 512 GPUs ({HALL.ratio:.1f})."
                ),
            ),
            Choice(
                key="C",
                text="In larger clusters the caches and the memory of every GPU come under more pressure.",
                reveal=(
                    "In plain data parallelism each GPU holds the same model and the same share of the batch "
                    f"whether it has 7 or 511 peers. Its compute is {_ms(NODE.compute)} on 8 and {_ms(HALL.compute)} "
                    "on 512 GPUs by the same formula. Only what happens between GPUs differs."
                ),
            ),
            Choice(
                key="D",
                text="512 replicas make the batch too large, so that gradients lose quality and more steps are needed.",
                reveal=(
                    f"A batch of 512 x {HALL.batch} = {512 * HALL.batch:,} sequences may indeed train less well per "
                    "token, but MFU does not see that: it compares operations done with operations possible in the "
                    "time of a step, however useful the step is."
                ),
            ),
        ),
    )


def reflection() -> Question:
    """What hides communication behind computation."""
    return Question(
        name="act-1-reflection",
        act="I",
        kind=REFLECTION,
        text="Which technique first of all hides the communication of a data-parallel step behind its computation?",
        right="B",
        choices=(
            Choice(
                key="A",
                text="Faster GPUs, since they shorten the step.",
                reveal=(
                    "They shorten what communication could hide behind, and leave the wire as it is: with twice the "
                    f"peak the ratio on 64 GPUs doubles from {RACK.ratio:.1f} to {2 * RACK.ratio:.1f}."
                ),
            ),
            Choice(
                key="B",
                text="Buckets: gradients of the last layers are summed while those of earlier layers are computed.",
                reveal=(
                    "The backward pass begins at the last layer, so its gradients are ready first; they leave in "
                    "buckets as soon as one is full while the pass goes on. PyTorch's DDP does this by default with "
                    "buckets of 25 MiB (Li et al., arXiv 2006.15704). Only what does not hide is lost."
                ),
            ),
            Choice(
                key="C",
                text="A smaller batch per GPU, since it makes gradients smaller.",
                reveal=(
                    f"Gradients have the size of the model, {RACK.gradients / 1e9:.0f} GB for 7 billion parameters in "
                    "half precision, whatever the batch. A smaller batch shortens the computation alone: the ratio "
                    "gets worse."
                ),
            ),
            Choice(
                key="D",
                text="Gradients in 8 bits on the wire.",
                reveal=(
                    f"That sends less, {RACK.sent / 2e9:.1f} instead of {RACK.sent / 1e9:.1f} GB, at the price of "
                    "rounding in every sum; it shortens communication but hides none of it."
                ),
            ),
        ),
    )


def slips() -> tuple[tuple[str, str], ...]:
    """What is wrong with the document's own Act I: a title and a sentence each, with the numbers."""
    counted = replace(LAB, tokens_per_sequence=SEQUENCE)
    whole = [DataParallel(gpus=gpus, constants=counted).mfu for gpus in TOLD]
    restored = DataParallel(constants=counted)
    told = " / ".join(f"{100 * share:.0f}" for share in TOLD.values())
    drawn = " / ".join(f"{100 * DataParallel(gpus=gpus).mfu:.1f}" for gpus in TOLD)
    return (
        (
            "The sequence length is forgotten",
            f"FLOPs are 6 x parameters x sequences, not tokens. Compute is therefore {_ms(NODE.compute)} instead of "
            f"{restored.compute:.2f} s with {SEQUENCE:,} tokens per sequence, and the curve runs at {drawn} % where "
            f"the message says {told} %.",
        ),
        (
            "Restored, the formula does not explain the message either",
            f"With the tokens counted it gives {' / '.join(f'{100 * share:.1f}' for share in whole)} %: nearly flat. "
            f"And its all-reduce grows by only {100 * (HALL.all_reduce / RACK.all_reduce - 1):.1f} % between 64 and "
            "512 GPUs, where the message has MFU halve. Latency, congestion, stragglers and what does not overlap are "
            "missing.",
        ),
        (
            "The peak is the one with sparsity",
            f"{LAB.peak / 1e12:,.0f} TFLOP/s holds for matrices with every second element zero; dense, an H100 has "
            f"{LAB.peak / 2e12:,.1f}.",
        ),
        (
            "Duplex against one way, a node against a GPU",
            f"{LAB.nvlink / 1e9:.0f} GB/s is what NVLink 4 moves in both directions together; a ring uses "
            f"{LAB.nvlink / 2e9:.0f} each way. {LAB.infiniband / 1e9:.0f} GB/s is what eight NDR ports of a node have "
            "together; one port, which is a GPU's, has 50, and one of HDR has 25.",
        ),
        (
            "An explanation quotes other numbers",
            "It speaks of about 140 ms of all-reduce against 60 ms of compute on 512 GPUs; its own formulas give "
            f"{_ms(HALL.all_reduce)} and {_ms(HALL.compute)}.",
        ),
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
