"""Fine-tuning on few cards, held against what its software's authors published, and what each setting changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.stacks import default_stack
from optimizer.constraints.rules.activation_offload import ActivationOffload
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import SELECTIVE
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.cost import activations_of
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import HEAD
from optimizer.objectives.step.flops import causal_score_flops, useful_flops
from optimizer.objectives.step.price import Costs, price
from optimizer.objectives.step.safe_memory import chance_to_fit

GIB = 2**30
CARD = load_cluster("rtx-4090")
# pytorch/torchtune @bd2a0fc7c, README.md: Llama 3.1 8B on one RTX 4090, two packed sequences of 2,048 tokens.
TORCHTUNE = Job(
    model=load_model("llama3.1-8b"),
    cluster=CARD,
    stack=load_stack("torchtune"),
    gpus=1,
    seq_len=2048,
    global_batch=2,
)
BOTH = Plan(micro_batch=2, recompute="full")


def priced(job: Job, plan: Plan) -> Costs:
    return price(job, Plans.of([plan]))


@pytest.mark.parametrize(
    ("train", "optimizer", "gib", "rate"),
    [("full", "paged-adamw-8bit:in-backward", 18.9, 1650), ("lora:8", "", 16.2, 3083), ("qlora:8", "", 7.4, 2413)],
)
def test_a_model_of_8b_takes_what_torchtune_measured_on_one_card(
    train: str, optimizer: str, gib: float, rate: float
) -> None:
    job = replace(TORCHTUNE, train=train, optimizer=optimizer)
    costs = priced(job, BOTH)
    assert float(costs.reserved[0]) / GIB == pytest.approx(gib, rel=0.08)
    assert 2 * 2048 / float(costs.step_time[0]) == pytest.approx(rate, rel=0.25)
    assert chance_to_fit(job, float(costs.reserved[0])) > 0.9


def test_full_training_of_8b_fits_no_such_card_with_adamw() -> None:
    assert chance_to_fit(TORCHTUNE, float(priced(TORCHTUNE, BOTH).reserved[0])) < 0.01


def test_a_base_in_four_bits_keeps_its_inputs_as_bitsandbytes_of_2023_did() -> None:
    """Lightning-AI/litgpt @26857050, tutorials/resource-tables.md: Llama 2 7B on an A100, at most 1,304 tokens."""
    stack = load_stack("litgpt-2023")
    job = Job(
        model=load_model("llama2-7b"),
        cluster=load_cluster("a100-40"),
        stack=stack,
        gpus=1,
        seq_len=1304,
        global_batch=1,
        train="qlora:8:q+v",
    )
    lean = replace(stack, features=replace(stack.features, keeps_quantised_inputs=False))
    assert float(priced(job, Plan()).allocated[0]) / 1e9 == pytest.approx(13.84, rel=0.05)
    assert float(priced(replace(job, stack=lean), Plan()).allocated[0]) / 1e9 < 0.95 * 13.84


def test_adapters_of_4b_fit_a_card() -> None:
    """LLaMA-Factory's example of Qwen3-4B; with TRL, whose loss is in chunks, it took 9.8 GB on an H200."""
    plan = Plan(num_microbatches=2, recompute="full")
    for stack in (load_stack("trl"), load_stack(default_stack(CARD.device, tuned=True))):
        job = replace(TORCHTUNE, model=load_model("qwen3-4b"), stack=stack, train="lora:16")
        costs = priced(job, plan)
        assert chance_to_fit(job, float(costs.reserved[0])) > 0.9
        if stack.features.loss_chunks > 1:
            assert float(costs.reserved[0]) == pytest.approx(9.8e9, rel=0.08)


def test_a_million_tokens_on_eight_cards_take_what_trl_measured() -> None:
    """huggingface/trl pull request 6846: Qwen3-8B at 1,048,576 tokens on 8 H100, 379.75 s and 56.2 GB."""
    job = Job(
        model=load_model("qwen3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("trl"),
        gpus=8,
        seq_len=1 << 20,
        global_batch=1,
    )
    plan = Plan(cp=8, zero_stage=3, recompute="full", activation_offload=100)
    costs = priced(job, plan)
    assert float(costs.step_time[0]) == pytest.approx(379.75, rel=0.12)
    assert float(costs.reserved[0]) / 1e9 == pytest.approx(56.2, rel=0.15)
    assert float(priced(job, replace(plan, activation_offload=0)).reserved[0]) > job.usable_memory


def test_a_step_in_the_backward_pass_keeps_the_gradient_of_a_layer() -> None:
    plain, early = (priced(replace(TORCHTUNE, optimizer=name), BOTH) for name in ("", "adamw:in-backward"))
    assert plain.memory["gradients"][0] == pytest.approx(2 * TORCHTUNE.model.params)
    assert early.memory["gradients"][0] == 0.0
    assert 0.0 < early.memory["buffers"][0] - plain.memory["buffers"][0] < 0.1 * plain.memory["gradients"][0]


def test_inputs_that_no_gradient_needs_are_not_kept() -> None:
    plan = Plan(micro_batch=2)
    few, all_of_them = (priced(replace(TORCHTUNE, train=f"lora:8:{on}"), plan) for on in ("q,v", "all"))
    model, kept = TORCHTUNE.model, TORCHTUNE.stack["activation_factor"]
    idle = 2 * 2 * 2048 * (model.hidden + model.ffn_hidden) * model.layers
    assert all_of_them.memory["activations"][0] - few.memory["activations"][0] == pytest.approx(kept * idle)


@pytest.mark.parametrize("selective", SELECTIVE)
@pytest.mark.parametrize("quantised", [False, True])
def test_recomputing_keeps_something_and_frees_no_more_than_is_kept(selective: str, quantised: bool) -> None:
    """Inputs that no gradient needs were once taken off twice where the MLP was recomputed."""
    modules = ("core_attn", "mlp") if selective == "core" else ()
    features = replace(TORCHTUNE.stack.features, selective=selective, recompute_modules=modules)
    job = replace(TORCHTUNE, stack=replace(TORCHTUNE.stack, features=features), dtype="fp8" if quantised else "bf16")
    shapes = shapes_of(job, Plans.of([Plan()]))
    for model in (job.model, load_model("gpt3")):
        whole = activations_of(replace(job, train="full"), model, shapes, moe=False)
        for train, fewer in (("lora:8:attention", 0), ("lora:8:all", 0), ("lora:8:mlp", 1)):
            table = activations_of(replace(job, train=train), model, shapes, moe=False)
            assert table.full < table.selective <= table.none
            if table.modules:
                kept, trained_whole = (float(each.none[0] - each.modules["mlp"][0]) for each in (table, whole))
                assert trained_whole - kept == fewer * (1 if quantised else 2) * 2048 * model.hidden


def test_dequantising_costs_the_same_whatever_the_tokens() -> None:
    def more(length: int) -> float:
        job = replace(TORCHTUNE, seq_len=length, train="lora:8")
        passes = [priced(replace(job, train=train), BOTH).time["elementwise"][0] for train in ("lora:8", "qlora:8")]
        return float(np.diff(passes)[0])

    assert more(1024) == pytest.approx(more(4096))
    assert more(1024) > 0.0


def test_embedding_and_head_trained_whole_are_copies_in_half_precision() -> None:
    job = replace(TORCHTUNE, stack=load_stack("transformers"), train="lora:8:all")
    job = replace(job, seq_len=1)  # so that no activations lay where the temporaries of the update do
    small, whole = (priced(replace(job, train=train), BOTH) for train in (job.train, f"{job.train},embedding,head"))
    elements = job.model.embedding_params + job.model.head_params
    added = sum(whole.memory[term][0] - small.memory[term][0] for term in ("weights", "gradients", "optimizer"))
    assert added / elements == pytest.approx(2 + 2 + 2 + 4, rel=1e-3)


def test_a_loss_in_chunks_has_few_logits() -> None:
    features = TORCHTUNE.stack.features
    whole = replace(TORCHTUNE, stack=replace(TORCHTUNE.stack, features=replace(features, loss_chunks=1)))
    assert priced(whole, BOTH).memory["logits"][0] == pytest.approx(8 * priced(TORCHTUNE, BOTH).memory["logits"][0])


def test_what_bitsandbytes_does_not_quantise_is_in_single_precision() -> None:
    job = replace(TORCHTUNE, stack=load_stack("transformers"))
    narrow, wide = (priced(replace(job, train="qlora:8", base=base), BOTH) for base in ("int4", "nf4"))
    rest = job.model.embedding_params + job.model.head_params
    assert wide.memory["weights"][0] - narrow.memory["weights"][0] == pytest.approx(2 * rest, rel=0.03)
    assert wide.memory["activations"][0] > narrow.memory["activations"][0]


@pytest.mark.parametrize(("stack", "allowed"), [("transformers", True), ("litgpt", False), ("megatron-core", False)])
def test_inputs_of_recomputed_layers_lie_on_the_host_where_the_software_can(stack: str, allowed: bool) -> None:
    job = replace(TORCHTUNE, stack=load_stack(stack))
    plans = Plans.of([replace(BOTH, activation_offload=100)])
    assert bool(ActivationOffload().check(job, plans)[0]) is allowed


def test_inputs_on_the_host_leave_two_buffers() -> None:
    here, there = (priced(TORCHTUNE, replace(BOTH, activation_offload=share)) for share in (0, 100))
    model, boundary = TORCHTUNE.model, 2 * 2 * 2048 * TORCHTUNE.model.hidden
    saved = here.memory["activations"][0] - there.memory["activations"][0]
    assert saved == pytest.approx(TORCHTUNE.stack["activation_factor"] * boundary * (model.layers - 2))
    assert there.time["host_transfer"][0] > 0.0


def test_hooks_of_sharding_show_where_they_outlast_the_computation() -> None:
    """Those of a short sequence make the host late, those of a long one run while the GPU computes."""
    one = replace(TORCHTUNE, global_batch=2, stack=load_stack("transformers"), seq_len=256)
    one = replace(one, cluster=load_cluster("dgx-a100-80"))
    plan = replace(BOTH, zero_stage=3)

    def added(job: Job) -> float:
        free = replace(job, stack=replace(job.stack, features=replace(job.stack.features, sharded_host=0.0)))
        return float(priced(job, plan).step_time[0] - priced(free, plan).step_time[0])

    hooks = one.stack.features.sharded_host * one.model.layers
    assert 0.0 < added(one) <= 2 * hooks * (1 + 1e-9)
    assert added(replace(one, seq_len=8192)) == 0.0


@pytest.mark.parametrize(
    ("frozen", "layers"),
    [
        ("embedding,head,layers.0--3", range(30)),
        ("layers.4-20", range(4, 21)),
        ("embedding,layers.0-3,layers.9,layers.30--1", [*range(4), 9, 30, 31]),
        ("head,mlp,layers.-32--1", range(32)),
    ],
)
def test_frozen_layers_cost_what_each_of_them_has_to_do(frozen: str, layers: Sequence[int]) -> None:
    """Two operations a parameter and token forward; backward two where anything below is trained, two where it is."""
    job = replace(TORCHTUNE, stack=load_stack("hf-2026"), train=f"frozen:{frozen}")
    model, embedded = job.model, not frozen.startswith("embedding")
    head, each = 128256 * 4096, 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336
    scores = causal_score_flops(model, job.seq_len) / model.layers / 3
    flops, trained = 2.0 * head + 2.0 * head * (1 + ("head" not in frozen)), 0.0
    for layer in range(model.layers):
        here = 0 if layer in layers else each
        trained += here + (here and 2 * 4096)
        reached = embedded or trained > 0
        flops += 2.0 * each * (1 + reached) + 2.0 * here + scores * (1 + 2 * reached)
    trained += embedded * head + ("head" not in frozen) * (head + 4096)
    assert useful_flops(job) / job.tokens == pytest.approx(flops, rel=1e-4)  # norms count as matrices there
    assert priced(job, BOTH).memory["optimizer"][0] == pytest.approx(job.state_bytes * trained, rel=1e-6)


def test_layers_before_the_first_trained_one_only_run_forward() -> None:
    """Without embedding and head in the way: the step is that of the last four layers, and 28 more forward passes."""
    stack = load_stack("hf-2026")
    few, most, whole = (
        priced(
            replace(TORCHTUNE, stack=stack, model=replace(TORCHTUNE.model, layers=layers), train=f"frozen:{train}"),
            plan,
        )
        for layers, train in (
            (4, "embedding,head"),
            (32, "embedding,head,layers.0-27"),
            (32, "embedding,head,layers.0-30"),
        )
        for plan in [Plan(micro_batch=2)]
    )
    assert most.memory["activations"][0] == pytest.approx(few.memory["activations"][0])
    a_layer = (most.time["gemm"][0] - whole.time["gemm"][0]) / 3  # backward, of inputs and of weights
    assert most.time["gemm"][0] == pytest.approx(few.time["gemm"][0] + 28 * a_layer / 2, rel=0.05)
    for train, words in (("layers.0-32", "has layers 0 to 31"), ("embedding,head,layers.0--1", "nothing is left")):
        with pytest.raises(InputError, match=words):
            replace(TORCHTUNE, train=f"frozen:{train}")


def test_every_forward_pass_beside_the_trained_one_has_a_head() -> None:
    """Of a model that is compared with: no more than the trained one, whose logits also need gradients."""
    plans, heads, passes = Plans.of([Plan(micro_batch=2)]), [], []
    for loss in ("dpo", "kto"):
        job = replace(TORCHTUNE, loss=loss)
        heads.append(layer_costs_of(job, plans).by_kind[HEAD])
        passes.append(job.forward_passes)
    alone = (heads[1].forward - heads[0].forward) / (passes[1] - passes[0])
    trained = heads[0].forward - (passes[0] - 1) * alone
    assert 0.5 * trained < alone <= trained
    assert float(heads[0].backward[0]) == float(heads[1].backward[0]) > 0
