"""What kernels of a layer take, term by term, reckoned by hand from their counts and bytes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.job.stack import Features
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.operators import Elementwise, Gemm, Layer, Scan
from optimizer.objectives.layer import seconds as module
from optimizer.objectives.layer.drained_host import call_seconds
from optimizer.objectives.network.messages import CP, EP, FORWARD, TP
from tests.search.jobs import small_job

ONE = np.ones(1)


def product(name: str = "up", m: float = 5, n: float = 3, k: float = 2, **others: Any) -> Gemm:
    return Gemm(name=name, m=m * ONE, n=n * ONE, k=k * ONE, **others)


def kernels(count: float, forward: float = 0.0, backward: float = 0.0, name: str = "norm") -> Elementwise:
    return Elementwise(name=name, forward_bytes=forward * ONE, backward_bytes=backward * ONE, kernels=count)


def layer(*products: Gemm, core: Any = None, others: tuple[Elementwise, ...] = ()) -> Layer:
    return Layer(gemms=products, attention=core, elementwise=others)


def test_a_product_has_two_more_in_the_backward_pass_unless_it_has_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 x 2 by 2 x 3; then 5 x 3 by 3 x 2, and 2 x 5 by 5 x 3: sizes stand in places of a number."""

    def gemm_time(m: FloatArray, n: FloatArray, k: FloatArray, curve: object, batch: FloatArray) -> FloatArray:
        return (100 * m + 10 * n + k) * batch

    monkeypatch.setattr(module, "gemm_time", gemm_time)
    curve: Any = None
    products = (product(batch=7.0), product(weight=False))
    assert [float(time[0]) for time in module.kernel_seconds(products, curve, False)] == [7 * 532, 532]
    assert [float(time[0]) for time in module.kernel_seconds(products, curve, True)] == [7 * (523 + 235), 523]
    assert module.kernel_seconds((), curve, True) == []
    assert float(module.gemm_seconds(product(rate=0.5), curve, 0.8, True)[0]) == pytest.approx(758 / 0.4)


def test_bytes_of_casts_and_of_added_gradients() -> None:
    """Two read and two written of each of 10 + 6 operands, or 15 gradients; 2 + 4 + 4 of each of 6 weights, or
    2 + 2 + 2 where sums are of 2 bytes."""
    each = product(batch=7.0)
    assert [float(module.cast_bytes(each, back)[0]) for back in (False, True)] == [4 * 16 * 7, 4 * 15 * 7]
    some = layer(each, product(weight=False), product(n=4))
    apart = Features(fused_accumulation=False)
    assert module.accumulation_bytes(some, apart).tolist() == [10 * (6 * 7 + 8)]
    assert module.accumulation_bytes(some, replace(apart, grad_bytes=2)).tolist() == [6 * (6 * 7 + 8)]
    assert module.accumulation_bytes(some, Features(fused_accumulation=True)).tolist() == [0.0]


@pytest.mark.parametrize(("dtype", "casts"), [("bf16", 0), ("fp8", 2 * 3)])
def test_each_product_casts_two_operands_to_a_narrow_format(dtype: str, casts: int) -> None:
    job = replace(small_job(), dtype=dtype)
    norms = (kernels(4), kernels(1.5))
    assert module._kernels(job, layer(*[product()] * 3, others=norms)) == 3 + casts + 5.5


def test_graphs_are_replayed_without_the_host() -> None:
    assert module._launch(small_job()) == call_seconds(small_job()) > 0
    assert module._launch(small_job(features=Features(cuda_graphs=True))) == 0


def test_kernels_limited_by_memory_reach_a_share_of_its_bandwidth() -> None:
    job = small_job()
    rate = job.cluster.device.memory_bandwidth * job.stack["hbm_efficiency"]
    assert module.elementwise_seconds(6 * rate, job) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("count", "backward", "share"),
    [(1.0, False, 0.0), (2.0, False, 0.5), (4.0, False, 0.75), (0.5, False, 0.0), (1.25, True, 0.5), (2.5, True, 0.75)],
)
def test_separate_kernels_find_what_the_last_one_left_in_the_cache(count: float, backward: bool, share: float) -> None:
    """Each moves its part of as many bytes as the cache holds, 1.6 kernels backward for one forward; what is found
    there counts at the cache's rate, 45 GB/s of each multiprocessor."""
    job = eager_job()
    device = job.cluster.device
    whole = device.l2_cache
    faster = device.memory_bandwidth * job.stack["hbm_efficiency"] / (45e9 * device.sms)
    assert 0 < faster < 1
    op = kernels(count, forward=whole * (not backward), backward=whole * backward)
    assert module._moved(job, op, backward) == pytest.approx(whole * (1 - share + share * faster))
    assert module._moved(job, replace(op, name="dequantise"), backward) == pytest.approx(whole)
    assert module._moved(small_job(), op, backward) == pytest.approx(whole)
    slow = replace(job, cluster=replace(job.cluster, device=replace(device, sms=1)))
    assert module._moved(slow, op, backward) == pytest.approx(whole)


def eager_job() -> Job:
    """Kernel by kernel, at a share of the bandwidth that is not one."""
    job = small_job(features=Features(eager=True))
    return replace(job, stack=replace(job.stack, parameters={**job.stack.parameters, "hbm_efficiency": 0.8}))


@pytest.mark.parametrize(
    ("what", "core", "terms"),
    [
        ("core", None, {"attention": 5.0}),
        ("ops", None, {"gemm": 2.0, "elementwise": 3.0}),
        ("core", "scan", {"attention": 0.0}),  # a recurrence has no core
        ("ops", "scan", {"gemm": 2.0, "elementwise": 3.0}),
        ("qkv", None, {"attention": 5.0, "gemm": 1.0, "elementwise": 3.0}),
        ("qkv", "scan", {"attention": 5.0, "gemm": 1.0, "elementwise": 3.0}),
    ],
)
def test_selective_recomputation_adds_what_it_covers(
    what: str, core: str | None, terms: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the last product and those into attention: here the one out of attention and one into the MLP."""
    scan = Scan(flops=ONE, moved=ONE, blocks=ONE) if core else None
    names: list[tuple[str, ...]] = []

    def compute(job: object, some: Layer, curves: object, *, backward: bool) -> dict[str, FloatArray]:
        assert not backward
        names.append(tuple(each.name for each in some.gemms))
        return {"gemm": ONE}

    monkeypatch.setattr(module, "_compute", compute)
    every = [product(name) for name in ("qkv", "kv_b", "attention_out", "up", "down")]
    forward = {"gemm": 4 * ONE, "attention": 5 * ONE, "elementwise": 3 * ONE}
    curves: Any = None
    job = small_job(features=Features(selective=what))
    found = module.recomputed_terms(job, layer(*every, core=scan), curves, forward)
    assert {name: float(term[0]) for name, term in found.items()} == terms
    assert names == ([("attention_out", "up")] if what == "qkv" else [])


@pytest.mark.parametrize(
    ("host", "drained", "launch"), [(1.0, 0.0, 0.0), (20.0, 0.0, 2.0), (20.0, 2.5, 2.5), (1.0, 2.5, 2.5)]
)
def test_a_pass_shows_what_does_not_hide_and_waits_for_its_host(host: float, drained: float, launch: float) -> None:
    """Half of 4 s of TP messages hides under 8 s of products; CP's 0.5 s have no attention to hide under, and the
    all-to-all hides under another micro-batch. A quarter of what hides is taken from the
    products all the same. All of it is 18 s."""
    job = small_job()
    parameters = {**job.stack.parameters, "tp_overlap": 0.5, "cp_overlap": 1.0}
    job = replace(job, stack=replace(job.stack, parameters=parameters))

    def message(parallelism: str, seconds: float, under: str, taken: float = 0.0) -> Any:
        return SimpleNamespace(
            parallelism=parallelism, phase=FORWARD, seconds=lambda job: seconds * ONE, under=under, taken=taken
        )

    compute = {"gemm": 8 * ONE, "attention": 0 * ONE, "elementwise": 1 * ONE}
    messages = [
        message(TP, 3.0, "gemm", 0.25),
        message(TP, 1.0, "gemm"),
        message(CP, 0.5, "attention"),
        message(EP, 6, "gemm"),
    ]
    found = module._phase(job, compute, messages, FORWARD, host * ONE, drained, alone=np.array([False]))
    assert {name: float(term[0]) for name, term in found.terms.items()} == {
        **{"gemm": 8.0, "attention": 0.0, "elementwise": 1.0, "launch": launch},
        **{"tp_communication": 2.0 + 0.25 * 2.0, "cp_communication": 0.5, "ep_communication": 6.0},
    }
    assert float(found.hidden[0]) == 2.0
