"""What a layer, the head and a stage boundary send, counted by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model
from optimizer.job.model import Model
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer import messages as module
from optimizer.objectives.network.messages import BACKWARD, FORWARD, Message
from tests.search.jobs import MIXTURE, small_job

ONE, TOKENS = np.ones(1), 1024
LLAMA, DEEPSEEK = load_model("llama3-8b"), load_model("deepseek-v3")
GATHER, SCATTER, REDUCE = "all_gather", "reduce_scatter", "all_reduce"


def shapes(split: bool = True, **degrees: float) -> Shapes:
    """A sequence of TOKENS with these degrees; `split`: with sequence parallelism."""
    arrays = {name: ONE * degrees.get(name, 1.0) for name in ("tp", "cp", "ep", "etp", "micro_batch")}
    return Shapes(**arrays, sequence_parallel=(arrays["tp"] > 1) & split, seq_len=TOKENS)


def counted(messages: Iterable[Message], purpose: str = "") -> dict[tuple[str, str], float]:
    """How many are sent, by kind and pass."""
    sent: dict[tuple[str, str], float] = {}
    for each in messages:
        if float(each.sent[0]) and purpose in ("", each.purpose):
            sent[each.kind, each.phase] = sent.get((each.kind, each.phase), 0.0) + float(each.sent[0])
    return sent


@pytest.mark.parametrize(
    ("split", "keeps", "sent"),
    [
        (True, False, {(GATHER, FORWARD): 2, (SCATTER, FORWARD): 2, (GATHER, BACKWARD): 4, (SCATTER, BACKWARD): 2}),
        (True, True, {(GATHER, FORWARD): 2, (SCATTER, FORWARD): 2, (GATHER, BACKWARD): 2, (SCATTER, BACKWARD): 2}),
        (False, False, {(REDUCE, FORWARD): 2, (REDUCE, BACKWARD): 2}),
    ],
)
def test_tensor_parallelism_sends_for_each_block(split: bool, keeps: bool, sent: dict[tuple[str, str], float]) -> None:
    some = shapes(split, tp=4)
    found = list(module.tensor_messages(LLAMA, some, 2 * ONE, 0, keeps))
    assert counted(found) == sent
    assert {float(each.size[0]) for each in found} == {2 * TOKENS * 4096}
    assert {(float(each.ranks[0]), float(each.stride[0]), each.under) for each in found} == {(4.0, 1.0, "gemm")}


@pytest.mark.parametrize(
    ("split", "wide", "latent"),
    [
        (
            True,
            {(GATHER, FORWARD): 1, (SCATTER, FORWARD): 2, (GATHER, BACKWARD): 3, (SCATTER, BACKWARD): 1},
            {(GATHER, FORWARD): 1, (GATHER, BACKWARD): 1, (SCATTER, BACKWARD): 1},
        ),
        (False, {(REDUCE, FORWARD): 2, (REDUCE, BACKWARD): 1}, {(REDUCE, BACKWARD): 1}),
    ],
)
def test_latent_vectors_travel_instead_of_attentions_input(
    split: bool, wide: dict[tuple[str, str], float], latent: dict[tuple[str, str], float]
) -> None:
    """1,536 + 512 + 64 elements of a token, of one block of the two."""
    found = list(module.tensor_messages(DEEPSEEK, shapes(split, tp=4), 2 * ONE, module.gathered_latents(DEEPSEEK)))
    assert (counted(found, "activations"), counted(found, "latent vectors")) == (wide, latent)
    sizes = {float(each.size[0]) for each in found if each.purpose == "latent vectors"}
    assert sizes == {2 * TOKENS * (1536 + 512 + 64)}


@pytest.mark.parametrize(
    ("model", "moe", "split", "blocks"),
    [
        (LLAMA, False, True, 2),
        (replace(LLAMA, parallel_block=True), False, True, 1),
        (MIXTURE, True, True, 1),
        (MIXTURE, True, False, 2),
        (MIXTURE, False, True, 2),
        (DEEPSEEK, True, True, 2),  # which has shared experts
    ],
)
def test_experts_are_no_block_where_tokens_are_split(model: Model, moe: bool, split: bool, blocks: int) -> None:
    assert float(module.tensor_blocks(model, shapes(split, tp=4), moe)[0]) == blocks


@pytest.mark.parametrize(
    ("model", "width"),
    [(LLAMA, 2 * 1024 / 4), (DEEPSEEK, (128 * 192 + 128 * 128) / 4)],
)
def test_context_parallelism_gathers_keys_and_values_of_the_whole_sequence(model: Model, width: float) -> None:
    """8 heads of 128, each of keys and values; latent attention as many as queries, of 192 and 128."""
    found = list(module.context_messages(model, shapes(tp=4, cp=2, micro_batch=3)))
    assert counted(found) == {(GATHER, FORWARD): 1, (GATHER, BACKWARD): 1, (SCATTER, BACKWARD): 1}
    assert {float(each.size[0]) for each in found} == {2 * width * TOKENS * 3}
    assert {(float(each.ranks[0]), float(each.stride[0]), each.under) for each in found} == {(2.0, 4.0, "attention")}


def test_a_recurrence_swaps_its_split_of_tokens() -> None:
    """18,560 elements of its inputs and 8,192 of its output, of half of the tokens."""
    kinds = load_model("nemotron-3-super-120b-a12b").kinds
    model = next(kind.model for kind in kinds if kind.model.state and not kind.model.has_attention)
    found = list(module.context_messages(model, shapes(tp=4, cp=2)))
    assert counted(found) == {("all_to_all", FORWARD): 1, ("all_to_all", BACKWARD): 1}
    assert {float(each.size[0]) for each in found} == {2 * (18560 + 8192) / 4 * TOKENS / 2}
    mlp = next(kind.model for kind in kinds if not kind.model.state and not kind.model.has_attention)
    assert list(module.context_messages(mlp, shapes(tp=4, cp=2))) == []


@pytest.mark.parametrize(
    ("split", "scatters", "parts", "gathers"),
    [(True, False, 4, 0.0), (True, True, 4, 0.0), (False, False, 1, 0.0), (False, True, 4, 1.0)],
)
def test_a_boundary_sends_its_tokens_once_each_way(split: bool, scatters: bool, parts: int, gathers: float) -> None:
    """Divided by TP where tokens are split, or the software splits and gathers them."""
    job = small_job(64, features=Features(scatter_gather=scatters))
    plan = Plan(tp=4, cp=2, pp=2, dp=4, micro_batch=3, num_microbatches=4, sequence_parallel=split)
    whole = 2 * 3 * 4096 / 2 * 1536
    found = module.boundary_messages(job, Plans.of([plan]))
    for phase in (FORWARD, BACKWARD):
        sent, gathered = (each for each in found if each.phase == phase)
        assert (float(sent.size[0]), float(sent.ranks[0]), float(sent.stride[0])) == (whole / parts, 2.0, 4 * 2 * 4)
        assert (float(gathered.size[0]), float(gathered.sent[0]), float(gathered.ranks[0])) == (
            *(whole, gathers),
            4.0 if gathers else 1.0,
        )
        assert (sent.skewed, gathered.skewed) == (False, False)
    alone = module.boundary_messages(job, Plans.of([replace(plan, pp=1, dp=8)]))
    assert counted(alone) == {}
    one = module.boundary_messages(job, Plans.of([replace(plan, tp=1, dp=16, sequence_parallel=False)]))
    assert counted(one) == {("point_to_point", FORWARD): 1, ("point_to_point", BACKWARD): 1}
    assert float(one[0].size[0]) == whole


def test_logits_are_gathered_where_the_software_does() -> None:
    """50,000 words are padded to 98 x 512."""
    some = shapes(tp=4)
    assert module.head_messages(small_job(), some) == ()
    (found,) = module.head_messages(small_job(features=Features(gathered_logits=True)), some)
    assert (float(found.size[0]), float(found.sent[0]), found.kind, found.phase) == (
        *(2 * TOKENS * 98 * 512, 1.0, GATHER),
        FORWARD,
    )


def of_experts(**features: Any) -> Any:
    return small_job(model=MIXTURE, features=Features(**features))


def test_experts_exchange_rows_and_gather_them_inside_a_group() -> None:
    """1,024 / 4 tokens of a rank, each to two of eight experts: on EP 8 in one node two copies of 1,536 elements."""
    job, some = of_experts(), shapes(tp=4, ep=8, etp=2)
    found = list(module.expert_messages(job, some))
    tokens = TOKENS / 4 * float(some.busiest(job.stack.imbalance)[0])
    copies = float(module.copies_per_token(job, some)[0])
    assert counted(found, "routed tokens") == {("all_to_all", FORWARD): 2, ("all_to_all", BACKWARD): 2}
    assert counted(found, "tokens of an expert") == {
        (kind, phase): 1 for kind in (GATHER, SCATTER) for phase in (FORWARD, BACKWARD)
    }
    for each in found:
        routed = each.purpose == "routed tokens"
        assert float(each.size[0]) == pytest.approx(2 * 1536 * tokens * copies * (1 if routed else 2))
        assert (float(each.ranks[0]), float(each.stride[0])) == ((8.0, 2.0) if routed else (2.0, 1.0))
    unsplit = list(module.expert_messages(job, shapes(split=False, tp=4, ep=8, etp=2)))
    assert counted(unsplit, "tokens of an expert") == {}
    assert counted(module.without_return(found), "routed tokens") == {
        ("all_to_all", FORWARD): 1,
        ("all_to_all", BACKWARD): 2,
    }
    assert module.without_return([]) == []


@pytest.mark.parametrize(
    ("name", "moe", "sent"),
    [
        ("mlp", False, {GATHER: 1, SCATTER: 1}),
        ("mlp", True, {}),
        ("moe", False, {}),
        ("moe", True, {"all_to_all": 2}),  # experts are no block of TP here
        ("shared_experts", True, {}),
        ("mla_up_proj", False, {GATHER: 1}),
        ("layernorm", False, {}),
    ],
)
def test_a_module_that_is_recomputed_sends_as_in_its_forward_pass(name: str, moe: bool, sent: dict[str, float]) -> None:
    found = module.module_messages(of_experts(), shapes(tp=4, ep=8), name, moe)
    if name == "mla_up_proj":
        latent = replace(of_experts(), model=DEEPSEEK)
        found = module.module_messages(latent, shapes(tp=4, ep=8), name, moe)
        assert {float(each.size[0]) for each in found} == {2 * TOKENS * (1536 + 512)}
        assert counted(module.module_messages(latent, shapes(False, tp=4), name, moe)) == {}
    assert counted(found) == {(kind, FORWARD): count for kind, count in sent.items()}
    whole = module.module_messages(replace(of_experts(), model=DEEPSEEK), shapes(tp=4), "shared_experts", True)
    assert counted(whole) == {(GATHER, FORWARD): 1, (SCATTER, FORWARD): 1}


def test_latent_vectors_of_models_without_queries_of_their_own() -> None:
    """Of DeepSeek-V2-Lite the layer's input, 2,048, and 512."""
    lite = load_model("deepseek-v2-lite")
    assert (module.latent_width(lite), module.gathered_latents(lite)) == (2048 + 512, 0)
    assert (module.latent_width(LLAMA), module.gathered_latents(LLAMA)) == (0, 0)


def test_tokens_are_sent_narrow_the_first_time_where_the_software_does() -> None:
    """Two bytes of each of 1,536 elements; of DeepEP in fp8 one, and four of each block of 128."""
    wide = 2.0 * 1536
    assert list(module._rows(of_experts(), shapes(), FORWARD)) == [(wide, 2.0)]
    narrow = replace(of_experts(fp8_dispatch=True), dtype="fp8")
    assert list(module._rows(narrow, shapes(), BACKWARD)) == [(wide, 2.0)]
    assert list(module._rows(of_experts(fp8_dispatch=True), shapes(), FORWARD)) == [(wide, 2.0)]
    assert list(module._rows(replace(of_experts(), dtype="fp8"), shapes(), FORWARD)) == [(wide, 2.0)]
    for dispatcher, size in (("alltoall", wide), ("deepep", 1536 + 4 * 12)):
        some = replace(shapes(), dispatcher=np.array([DISPATCHERS.index(dispatcher)]))
        (first, once), (second, again) = module._rows(narrow, some, FORWARD)
        assert (float(np.ravel(first)[0]), once, second, again) == (size, 1.0, wide, 1.0)


def test_a_dispatcher_holds_its_multiprocessors() -> None:
    job = of_experts()
    for which, kind in module.KINDS.items():
        assert float(module._taken(job, shapes(), which)[0]) == kind.sms / job.cluster.device.sms
        alone = replace(job.cluster, device=replace(job.cluster.device, sms=1))
        assert float(module._taken(replace(job, cluster=alone), shapes(), which)[0]) == 0.0
    assert load_cluster("dgx-h100").device.sms == 132


def test_the_host_launches_what_is_sent() -> None:
    found = list(module.tensor_messages(LLAMA, shapes(tp=4), 2 * ONE))
    assert [float(np.ravel(module.launched(found, phase))[0]) for phase in (FORWARD, BACKWARD)] == [4.0, 6.0]
    assert module.launched([], FORWARD) == 0.0
