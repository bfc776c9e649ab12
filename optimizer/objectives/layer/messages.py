"""What one layer, the head and a stage boundary send: the one list that times, studies and energy read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.job import Job
from optimizer.job.model import Model
from optimizer.job.plan import Plans
from optimizer.objectives.arrays import FloatArray, spread
from optimizer.objectives.kernels.operators import keys_values_width, padded_vocab
from optimizer.objectives.kernels.shapes import Shapes, by_dispatcher
from optimizer.objectives.layer.dispatchers import KINDS, all_to_all_seconds, copies, proxied_seconds, row_bytes
from optimizer.objectives.network.messages import BACKWARD, CP, EP, FORWARD, PP, TP, Message
from optimizer.objectives.network.topology import span

ELEMENT = 2.0  # bytes of an activation or weight on the network
GATHERS = ("mlp", "moe", "shared_experts")  # modules whose products tensor parallelism splits between two collectives


def layer_messages(job: Job, shapes: Shapes, moe: bool) -> tuple[Message, ...]:
    """Messages of one layer and micro-batch, forward and backward, nothing recomputed."""
    blocks = tensor_blocks(job.model, shapes, moe)
    latent = gathered_latents(job.model)
    keeps = job.stack.features.keeps_gathered
    dense = [*tensor_messages(job.model, shapes, blocks, latent, keeps), *context_messages(job.model, shapes)]
    return (*dense, *expert_messages(job, shapes)) if moe else tuple(dense)


def tensor_blocks(model: Model, shapes: Shapes, moe: bool) -> FloatArray:
    """Pairs of column- and row-parallel products between which tensor parallelism communicates in one layer [1].

    Attention and MLP; one for both in a parallel block, or where a layer is one of them. Experts take tokens as
    sequence parallelism has split them and answer so: in an MoE layer only attention and shared experts count.

    Source: Shoeybi et al., arXiv 1909.08053, section 3; NVIDIA/Megatron-LM,
    megatron/core/transformer/moe/token_dispatcher.py and shared_experts.py.
    """
    if model.parallel_block:
        return np.ones_like(shapes.tp)
    whole = np.full_like(shapes.tp, float(model.blocks))
    if not moe or (model.experts and model.experts.shared_ffn_hidden):
        return whole
    return np.where(shapes.sequence_parallel, whole - 1.0, whole)


def tensor_messages(
    model: Model, shapes: Shapes, blocks: FloatArray, latent: int = 0, keeps_gathered: bool = False
) -> Iterable[Message]:
    """What tensor parallelism sends for one layer and micro-batch: messages of tokens x hidden x 2 B each [B].

    An all-reduce for each block in each pass; with sequence parallelism a gather before and a scatter after it, and in
    the backward pass one more gather, of an input that was not kept whole (`keeps_gathered`). A gather or scatter
    sends (tp - 1) / tp of its size and an all-reduce twice that: a layer of two blocks 8 such parts, or 10. Not
    counted are those of the embedding and the head, 2 and 2 parts or 2 and 3: up to 0.6 % of GPT-3's step on 1,024
    H100.

    Source: Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.2 and figure
    6; NVIDIA/Megatron-LM, megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=4 * one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 0, seq_len=2048)
    >>> parts = list(tensor_messages(load_model("gpt3"), shapes, 2 * one))
    >>> float(parts[0].size[0]) == 2048 * 12288 * 2, sum(float(part.times[0]) for part in parts)
    (True, 10.0)
    """
    sp, hidden = shapes.sequence_parallel, ELEMENT * shapes.tokens * model.hidden
    wide = blocks - 1.0 if latent else blocks  # blocks whose input is as wide as the model
    for phase in (FORWARD, BACKWARD):
        back = phase == BACKWARD
        for kind, times in (
            ("all_reduce", np.where(sp, 0.0, wide if back else blocks)),
            ("all_gather", np.where(sp, wide + blocks * (back and not keeps_gathered), 0.0)),
            ("reduce_scatter", np.where(sp, wide if back else blocks, 0.0)),
        ):
            yield _message(TP, "activations", kind, hidden, (shapes.tp, 1), times, phase, "gemm")
        size = ELEMENT * shapes.tokens * latent
        for kind, times in (
            ("all_reduce", np.where(sp | (not back), 0.0, 1.0)),
            ("all_gather", np.where(sp, 1.0, 0.0)),
            ("reduce_scatter", np.where(sp & back, 1.0, 0.0)),
        ):
            if latent:
                yield _message(TP, "latent vectors", kind, size, (shapes.tp, 1), times, phase, "gemm")


def gathered_latents(model: Model) -> int:
    """Elements of a token that the attention's column-parallel products read where they are latent, else 0 [1].

    q_rank + kv_rank + rope_dim: the down-projections run on each rank's own tokens, and what they return is gathered.
    Queries that have no latent read the layer's input, and all of that is gathered.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/multi_latent_attention.py, get_query_key_value_tensors.

    >>> from optimizer.catalog import load_model
    >>> [gathered_latents(load_model(name)) for name in ("deepseek-v3", "deepseek-v2-lite", "gpt3")]
    [2112, 0, 0]
    """
    mla = model.mla
    return mla.q_rank + mla.kv_rank + mla.rope_dim if mla and mla.q_rank and model.has_attention else 0


def context_messages(model: Model, shapes: Shapes) -> Iterable[Message]:
    """Context parallelism: keys and values of the whole sequence gathered, their gradients scattered, 2 B an element.

    In the forward and again in the backward pass. Latent attention sends keys as wide as the queries and values. A
    recurrence swaps the split of tokens for one of heads and back.

    Source: Liu et al., arXiv 2310.01889 (ring attention); Llama 3, arXiv 2407.21783, section 3.3.2 (all-gather).
    """
    if not model.has_attention:
        yield from _swapped_states(model, shapes)
        return
    width = (model.q_dim + model.v_dim) / shapes.tp if model.mla else keys_values_width(model, shapes.tp)
    size, group = ELEMENT * width * shapes.seq_len * shapes.micro_batch, (shapes.cp, shapes.tp)
    for phase in (FORWARD, BACKWARD):
        yield _message(CP, "keys and values", "all_gather", size, group, 1.0, phase, "attention")
    yield _message(CP, "their gradients", "reduce_scatter", size, group, 1.0, BACKWARD, "attention")


def _swapped_states(model: Model, shapes: Shapes) -> Iterable[Message]:
    """What a recurrence sends: its projected inputs and outputs between a split of tokens and one of heads, all-to-all.

    Source: NVIDIA/Megatron-LM, megatron/core/ssm/mamba_context_parallel.py.
    """
    if state := model.state:
        size = ELEMENT * (state.projected + state.inner) / shapes.tp * shapes.tokens
        for phase in (FORWARD, BACKWARD):
            yield _message(CP, "states", "all_to_all", size, (shapes.cp, shapes.tp), 1.0, phase, "attention")


def expert_messages(job: Job, shapes: Shapes) -> Iterable[Message]:
    """Dispatch and combine of routed tokens among the ep ranks, with those of etp inside, in each pass.

    Each rank sends tokens / tp x copies rows of hidden x 2 B twice, in the forward pass a first time in fp8 where the
    software does; expert-tensor ranks gather and scatter them where sequence parallelism has split the tokens, and
    hold them anyhow where it has not: there the all-reduce of the block adds up. Copies and seconds are those of the
    plan's dispatcher.

    Source: Rajbhandari et al., arXiv 2201.05596; Liu et al., arXiv 2504.14960 (folding).
    """
    tokens, group = shapes.tokens / shapes.tp * shapes.busiest(job.stack.imbalance), (shapes.ep, shapes.etp)
    copied = copies_per_token(job, shapes)
    taken = by_dispatcher(shapes, partial(_taken, job, shapes))
    for phase in (FORWARD, BACKWARD):
        for row, times in _rows(job, shapes, phase):
            seconds = by_dispatcher(shapes, partial(all_to_all_seconds, job, row, tokens, *group))
            sent = _message(EP, "routed tokens", "all_to_all", row * tokens * copied, group, times, phase, "gemm")
            yield replace(sent, each=seconds, taken=taken)
        size = ELEMENT * tokens * copied * job.model.routed_width
        for kind in ("all_gather", "reduce_scatter"):
            inside = size * shapes.etp, (shapes.etp, 1), np.where(shapes.sequence_parallel, 1.0, 0.0)
            yield _message(EP, "tokens of an expert", kind, *inside, phase, "gemm")


def without_return(messages: Iterable[Message]) -> list[Message]:
    """Messages of a forward pass that ends before routed tokens travel back from their experts.

    Source: NVIDIA-NeMo/Automodel @36044ad, nemo_automodel/components/moe/megatron/fused_a2a.py: FusedCombine keeps no
    tensor for its backward pass.
    """
    left = list(messages)
    all_to_alls = [i for i, m in enumerate(left) if (m.parallelism, m.phase, m.kind) == (EP, FORWARD, "all_to_all")]
    for last in all_to_alls[-1:]:
        left[last] = replace(left[last], times=left[last].times - 1.0)
    return left


def head_messages(job: Job, shapes: Shapes) -> tuple[Message, ...]:
    """The logits, where the stack gathers them on every TP rank: tokens x padded vocabulary x 2 B."""
    if not job.stack.features.gathered_logits:
        return ()
    size = ELEMENT * shapes.tokens * padded_vocab(job.model.vocab, shapes.tp)
    return (_message(TP, "logits", "all_gather", size, (shapes.tp, 1), 1.0, FORWARD, ""),)


def module_messages(job: Job, shapes: Shapes, module: str, moe: bool) -> tuple[Message, ...]:
    """Messages of the forward pass of one module that is recomputed by name.

    MLP of dense layers, experts and shared experts of the others: the block of tensor parallelism around their
    products; the experts their dispatch and combine too. Up-projections of latent attention: the latent vectors that
    sequence parallelism has split, tokens x (q_rank + kv_rank) x 2 B; queries that have none are projected from the
    layer's input.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/multi_latent_attention.py for the latent vectors.
    """
    messages: list[Message] = []
    if module in GATHERS and (module == "mlp") != moe:
        has_block = tensor_blocks(job.model, shapes, moe) > 1 if moe else np.ones(np.shape(shapes.tp), dtype=np.bool_)
        messages += tensor_messages(job.model, shapes, has_block.astype(np.float64))
    if module == "moe" and moe:
        messages += expert_messages(job, shapes)
    if module == "mla_up_proj":
        size = ELEMENT * shapes.tokens * latent_width(job.model)
        times = np.where(shapes.sequence_parallel, 1.0, 0.0)
        messages.append(_message(TP, "latent vectors", "all_gather", size, (shapes.tp, 1), times, FORWARD, "gemm"))
    return tuple(message for message in messages if message.phase == FORWARD)


def boundary_messages(job: Job, plans: Plans) -> tuple[Message, ...]:
    """What a virtual stage sends to the next one and gets back: tokens x hidden x 2 B, divided by tp where it can be.

    Sequence parallelism divides it. Where the software scatters and gathers, it divides it without as well, and the
    next stage's TP ranks gather what they got. Stages that wait for it were idle: its ranks are not skewed.

    Source: Narayanan et al., arXiv 2104.04473, section 4.1; deepspeed/runtime/pipe/engine.py (is_pipe_partitioned).
    """
    scattered = job.stack.features.scatter_gather & (plans.tp > 1) & ~plans.sequence_parallel
    split = np.where(plans.sequence_parallel | scattered, plans.tp, 1)
    whole = ELEMENT * plans.micro_batch * job.seq_len / plans.cp * job.model.hidden
    ranks, stride = np.where(plans.pp > 1, 2, 1), plans.tp * plans.cp * plans.dp
    messages = []
    for phase in (FORWARD, BACKWARD):
        messages.append(
            _message(PP, "activations", "point_to_point", whole / split, (ranks, stride), 1.0, phase, "", skewed=False)
        )
        group = np.where(scattered & (plans.pp > 1), plans.tp, 1), 1
        messages.append(_message(PP, "activations", "all_gather", whole, group, 1.0, phase, "", skewed=False))
    return tuple(messages)


def launched(messages: Iterable[Message], phase: str) -> FloatArray | float:
    """Collectives that the host launches in one pass: every message that is sent [1]."""
    total: FloatArray | float = 0.0
    for message in messages:
        if message.phase == phase:
            total = total + message.sent
    return total


def copies_per_token(job: Job, shapes: Shapes) -> FloatArray:
    """Copies of a routed token that its rank sends under each plan's dispatcher [1]."""
    group = span(job.cluster, shapes.ep.astype(np.int64), shapes.etp.astype(np.int64))
    return by_dispatcher(shapes, lambda which: copies(job, which, shapes.ep, group))


def proxied_calls(job: Job, shapes: Shapes) -> FloatArray:
    """Host time of one call of each plan's dispatcher [s]."""
    group = span(job.cluster, shapes.ep.astype(np.int64), shapes.etp.astype(np.int64))
    return by_dispatcher(shapes, lambda which: proxied_seconds(job.cluster, which, group))


def _taken(job: Job, shapes: Shapes, which: str) -> FloatArray:
    """Share of the multiprocessors that a dispatcher holds [1]; none where the device has none that it could share."""
    sms = job.cluster.device.sms
    return np.full_like(shapes.tp, KINDS[which].sms / sms if sms > 1 else 0.0)


def _rows(job: Job, shapes: Shapes, phase: str) -> Iterable[tuple[FloatArray | float, float]]:
    """Bytes of a token in the all-to-alls of a pass, and how many are like that."""
    wide = ELEMENT * job.model.routed_width
    if phase == BACKWARD or not (job.stack.features.fp8_dispatch and job.quantised):
        return ((wide, 2.0),)
    narrow = by_dispatcher(shapes, lambda which: np.full_like(shapes.tp, row_bytes(job, which)))
    return ((narrow, 1.0), (wide, 1.0))


def latent_width(model: Model) -> int:
    """Elements per token that the up-projections of latent attention read [1].

    >>> from optimizer.catalog import load_model
    >>> latent_width(load_model("deepseek-v3")) == 1536 + 512
    True
    """
    return (model.mla.q_rank or model.hidden) + model.mla.kv_rank if model.mla else 0


def _message(
    parallelism: str,
    purpose: str,
    kind: str,
    size: FloatArray,
    group: tuple[ArrayLike, ArrayLike],
    times: ArrayLike,
    phase: str,
    under: str,
    *,
    skewed: bool = True,
) -> Message:
    """A message among (ranks, stride), everything as long as its size."""
    ranks, stride, count = (spread(column, size.shape) for column in (*group, times))
    return Message(
        parallelism=parallelism,
        purpose=purpose,
        kind=kind,
        size=size,
        ranks=ranks,
        stride=stride,
        times=count,
        phase=phase,
        under=under,
        skewed=skewed,
    )
