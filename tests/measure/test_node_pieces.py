"""The pieces of the node program without PyTorch: what is measured how often, what fits into its time, what is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.measure import node_program
from optimizer.measure.node_program import Process, TimeBudget

BF16, FP32 = SimpleNamespace(itemsize=2), SimpleNamespace(itemsize=4)


class Array(SimpleNamespace):
    """What arrays are made of: their shape and number format."""

    def t(self) -> Array:
        return Array(shape=self.shape[::-1], dtype=self.dtype)


class Cell(SimpleNamespace):
    """An array of one value."""

    def item(self) -> float:
        return float(self.values[0])


def made(*shape: int, dtype: Any = None, **_: Any) -> Array:
    return Array(shape=shape, dtype=dtype)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A PyTorch that makes shapes, and notes which groups and collectives there are."""
    called: list[tuple[Any, ...]] = []

    def noted(name: str) -> Any:
        return lambda *args, group=None, **_: called.append((name, *(each.shape for each in args), group))

    dist = SimpleNamespace(
        **{name: noted(name) for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")},
        all_to_all_single=noted("all_to_all_single"),
        new_group=tuple,
    )
    properties = SimpleNamespace(name="H100", total_memory=80, multi_processor_count=132)
    fake = SimpleNamespace(
        **dict.fromkeys(("zeros", "ones", "randn", "empty"), made),
        empty_like=lambda array: array,
        randn_like=lambda array: array,
        mm=lambda a, b, out: called.append(("mm", a.shape, b.shape, out.shape)),
        add=lambda a, b, out: called.append(("add", a.shape)),
        float32=FP32,
        float64=None,
        uint8=None,
        __version__="2",
        version=SimpleNamespace(hip=None, cuda="13"),
        cuda=SimpleNamespace(get_device_properties=lambda _: properties, device_count=lambda: 8),
        distributed=dist,
        called=called,
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    return fake


def process(rank: int = 0, world: int = 1, local_world: int = 1, gpu: bool = False, seconds: Any = None) -> Any:
    one: Any = object.__new__(Process)
    vars(one).update(rank=rank, world=world, local=rank % local_world, local_world=local_world, gpu=gpu)
    vars(one).update(
        device="here", backend="gloo", wide=BF16, wait=lambda: None, largest=lambda value, group=None: value
    )
    if seconds:
        one.seconds = seconds
    return one


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands still until it is moved."""
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr(node_program.time, "perf_counter", lambda: now.time)
    return now


@pytest.mark.parametrize(("took", "repeats"), [(0.01, 3), (0.0101, 3), (0.009, 4), (1e-5, 200), (1.0, 1), (0.0, 200)])
def test_an_operation_is_repeated_for_three_hundredths_of_a_second(took: float, repeats: int) -> None:
    asked: list[int] = []
    one = process()
    one._loop = lambda call, count: asked.append(count) or took
    assert one.seconds(lambda _: None) == took
    assert asked == [1, *[repeats] * 3]
    asked.clear()
    one.gpu, captured = True, []
    one._captured = lambda call, count: captured.append(count) or (lambda: None)
    assert one.seconds(lambda _: None) == took / repeats
    assert (captured, asked) == ([repeats], [1, 1, 1, 1])
    assert one.seconds(lambda _: None, graph=False) == took


def test_a_loop_tells_the_time_of_one_call(clock: Any) -> None:
    def call(number: int) -> None:
        clock.time += 1.0 + number

    assert process()._loop(call, 3) == 2.0


def test_what_does_not_fit_into_a_budget_is_noted(clock: Any) -> None:
    budget = TimeBudget(2.0)
    clock.time = 1.0
    assert budget.allows(1.0, "fits")
    assert not budget.allows(1.1, "large")
    budget.stop()
    assert (budget.took, budget.left_out) == (1.0, ["large"])


def test_products_come_by_size_and_tell_how_long_larger_ones_take(torch: Any) -> None:
    rate, expected = 1e9, []
    budget: Any = SimpleNamespace(
        allows=lambda seconds, name: expected.append(seconds) or "8 x" not in name, left_out=[]
    )

    def seconds(call: Any) -> float:
        call(0)
        (m, k), (_, n), _ = torch.called[-1][1:]
        if m == 4:
            raise RuntimeError("no room\nfor it")
        return 2.0 * m * n * k / rate

    shapes = [(8, 8, 8), (1000, 1000, 1000), (10, 10, 10), (4, 4, 4), (100, 100, 100)]
    rows = node_program.measure_products(process(seconds=seconds), shapes, budget)
    assert [(row["m"], row["seconds"]) for row in rows] == [(10, 2e-6), (100, 2e-3), (1000, 2.0)]
    assert budget.left_out == ["product 4 x 4 x 4: no room"]
    # Two calls to begin with and three rounds, of as many as take 0.03 s, or of one.
    assert expected == [0.0, 0.0, 0.0, pytest.approx((2 + 3 * 15) * 2e-3), pytest.approx((2 + 3) * 2.0)]
    assert torch.called[-1] == ("mm", (1000, 1000), (1000, 1000), (1000, 1000))


def test_attention_comes_by_size_and_counts_its_way_back(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1 TFLOP/s: 2 x 1000^2 pairs x 2 (192 + 128) operations take a head 1.28 ms, and both ways thrice as long."""
    widths, calls, expected = {"qk_dim": 192, "v_dim": 128}, [], []
    budget: Any = SimpleNamespace(
        allows=lambda seconds, name: expected.append(seconds) or "5 heads" not in name, left_out=[]
    )

    def attend(query: Any, key: Any, value: Any, is_causal: bool) -> Array:
        assert (query.shape, key.shape, value.shape[-1], is_causal) == (key.shape, query.shape, 128, True)
        calls.append(query.shape)
        return query

    def seconds(call: Any, graph: bool) -> float:
        before = len(torch.called)
        call(0)
        batch, heads, tokens, width = calls[-1]
        if heads == 3:
            raise RuntimeError("no room\nfor it")
        return float(2.0 * batch * heads * tokens**2 * (width + 128) / 1e12 * (1 if len(torch.called) == before else 3))

    torch.nn = SimpleNamespace(functional=SimpleNamespace(scaled_dot_product_attention=attend))
    torch.autograd = SimpleNamespace(grad=lambda out, inputs, gradient: torch.called.append(("grad", len(inputs))))
    monkeypatch.setitem(sys.modules, "torch.nn", torch.nn)
    monkeypatch.setitem(sys.modules, "torch.nn.functional", torch.nn.functional)
    sizes = [(8, 1000), (1, 2000), (1, 1000), (5, 1000), (3, 1000)]
    shapes = [{"batch": 2, "heads": heads, "seq_len": tokens, **widths} for heads, tokens in sizes]
    rows = node_program.measure_attention(process(seconds=seconds), shapes, budget)
    assert rows == [
        {**shapes[2], "forward": pytest.approx(1.28e-3), "backward": pytest.approx(2.56e-3)},
        {**shapes[1], "forward": pytest.approx(5.12e-3), "backward": pytest.approx(10.24e-3)},
        {**shapes[0], "forward": pytest.approx(10.24e-3), "backward": pytest.approx(20.48e-3)},
    ]
    # Eight of the forward pass's time, three rounds of them; nothing is known before the first.
    assert expected == [0.0, *(pytest.approx(8 * 3 * heads * 1.28e-3) for heads in (3, 4, 5, 8))]
    assert budget.left_out == ["attention, 2 x 3 heads x 1000 tokens: no room"]


@pytest.mark.parametrize(("world", "gathered"), [(1, [0.5]), (3, [0.5, 0.5, 0.5])])
@pytest.mark.parametrize(("gpu", "edge"), [(True, 4096), (False, 256)])
def test_every_rank_multiplies_the_same(world: int, gathered: list[float], gpu: bool, edge: int, torch: Any) -> None:
    def all_gather(cells: list[Any], own: Any) -> None:
        for each in cells:
            each.values = own.values

    def seconds(call: Any) -> float:
        call(0)
        return 0.5

    torch.zeros = lambda count, **_: Cell(values=[0.0] * count)
    torch.tensor = lambda values, **_: Cell(values=values)
    torch.distributed.all_gather = all_gather
    assert node_program.ranks_apart(process(world=world, gpu=gpu, seconds=seconds)) == gathered
    assert torch.called == [("mm", (edge, edge), (edge, edge), (edge, edge))]


@pytest.mark.parametrize(("world", "groups"), [(1, []), (2, [True]), (8, [True])])
@pytest.mark.parametrize(
    ("gpu", "bf16", "found"),
    [
        (False, False, ("cpu", "gloo", "bf16")),
        (True, True, ("cuda", "nccl", "bf16")),
        (True, False, ("cuda", "nccl", "fp16")),
    ],
)
def test_a_process_takes_the_gpu_of_its_local_rank(
    world: int,
    groups: list[bool],
    gpu: bool,
    bf16: bool,
    found: tuple[str, ...],
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"RANK": 5, "WORLD_SIZE": world, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    begun: list[str] = []
    torch.distributed.init_process_group = begun.append
    torch.bfloat16, torch.float16, torch.device = "bf16", "fp16", lambda *words: words
    taken: list[Any] = []
    torch.cuda = SimpleNamespace(is_available=lambda: gpu, is_bf16_supported=lambda: bf16, set_device=taken.append)
    one = Process()
    device, backend, wide = found
    assert (one.rank, one.world, one.local, one.local_world, one.gpu) == (5, world, 1, 4, gpu)
    assert (one.device, one.backend, one.wide) == ((device, 1) if gpu else (device,), backend, wide)
    assert (begun, taken) == ([backend] * len(groups), [one.device] * gpu)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name)
    alone = Process()
    assert (alone.rank, alone.world, alone.local, alone.local_world) == (0, 1, 0, 1)


@pytest.mark.parametrize("world", [1, 2])
def test_the_largest_value_is_that_of_all_ranks(world: int, torch: Any) -> None:
    def all_reduce(cell: Any, op: str, group: str) -> None:
        assert (op, group) == ("max", "g")
        cell.values = [9.0]

    torch.tensor = lambda values, **_: Cell(values=values)
    torch.distributed.ReduceOp, torch.distributed.all_reduce = SimpleNamespace(MAX="max"), all_reduce
    one = process(world=world)
    del one.largest
    assert one.largest(4.0, "g") == (4.0 if world == 1 else 9.0)


def test_a_graph_holds_all_the_calls_or_there_is_none(torch: Any) -> None:
    class Graph:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

        def replay(self) -> None:
            pass

    waited: list[int] = []
    graph = Graph()
    torch.cuda = SimpleNamespace(CUDAGraph=lambda: graph, graph=lambda made: made, synchronize=lambda: waited.append(1))
    numbers: list[int] = []
    assert process(gpu=True)._captured(numbers.append, 3) == graph.replay
    assert numbers == [0, 1, 2]

    def fails(number: int) -> None:
        raise RuntimeError("no graph of this")

    assert process(gpu=True)._captured(fails, 3) is None
    assert waited == [1]


def test_operands_rotate_by_their_bytes(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three matrices of two bytes an element; three arrays of so many bytes."""
    asked: list[float] = []
    monkeypatch.setattr(node_program, "rotations", lambda size: asked.append(size) or 2)
    rate = process(seconds=lambda call, graph=True: 0.5)
    node_program.measure_products(rate, [(2, 3, 5)], TimeBudget(1e9))
    node_program.measure_memory(rate, 2**20, TimeBudget(1e9))
    assert asked == [2 * (2 * 5 + 5 * 3 + 2 * 3), 3 * 2**20]


def test_memory_is_read_in_ever_larger_arrays(torch: Any) -> None:
    one = process(seconds=lambda call, graph=True: 0.5)
    elements: list[int] = []
    torch.ones = lambda count, **_: elements.append(count)
    budget: Any = SimpleNamespace(allows=lambda seconds, name: seconds == 0.0)
    rows = node_program.measure_memory(one, 2**24, budget)
    sizes = [2**20, 2**22, 2**24]
    assert sorted({*elements}) == [size // 4 for size in sizes]
    assert rows == [
        {"kind": kind, "bytes": arrays * size, "seconds": 0.5}
        for size in sizes
        for kind, arrays in (("copy", 2), ("add", 3))
    ]
    one.gpu, buffers = True, []
    torch.empty = lambda count, **_: buffers.append(count)
    rows = node_program.measure_memory(one, 2**19, TimeBudget(1e9))
    assert buffers == [2**28] * 2
    assert rows == [{"kind": kind, "bytes": 2**28, "seconds": 0.5} for kind in ("from_host", "to_host")]
    assert node_program.measure_launches(one) == {"host": 0.5, "kernel": 0.5}
    assert node_program.measure_launches(process(seconds=lambda call, graph=True: 0.5)) == {"host": 0.5}
    budget = TimeBudget(-1.0)
    assert node_program.measure_memory(process(), 2**24, budget) == []
    assert budget.left_out == ["memory, 1048576 B"]


@pytest.mark.parametrize(
    ("gpu", "size", "whole"),
    [(False, 4096, 4096), (True, 4096, 4096), (False, 100, 96), (True, 100, 96), (False, 1, 32)],
)
def test_a_message_is_what_ranks_share_evenly(torch: Any, gpu: bool, size: int, whole: int) -> None:
    elements = whole // (2 if gpu else 4)
    calls = {
        "all_reduce": ("all_reduce", (elements,), "g"),
        "all_gather": ("all_gather_into_tensor", (elements,), (elements // 8,), "g"),
        "reduce_scatter": ("reduce_scatter_tensor", (elements // 8,), (elements,), "g"),
        "all_to_all": ("all_to_all_single", (elements,), (elements,), "g"),
    }
    for kind in node_program.KINDS:
        message, call = node_program._collective(process(gpu=gpu), kind, "g", 8, size)
        call()
        assert (message, torch.called[-1]) == (whole, calls[kind])


def test_collectives_have_a_quarter_of_the_time_each(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def collective(process: Any, kind: str, group: Any, ranks: int, size: int) -> tuple[int, Any]:
        if kind == "all_to_all" and size == 2:
            raise RuntimeError("not here\n...")
        return 8 * size, None

    def shared(*_: Any) -> tuple[float, float]:
        clock.time += 1.0
        return 0.25, 1.0

    monkeypatch.setattr(node_program, "_collective", collective)
    monkeypatch.setattr(node_program, "_shared_seconds", shared)
    budget = TimeBudget(14.0)  # each ends 3.5 s after the one before: the first begins, and one more of 2.5 s does
    rows = node_program.measure_collectives(process(), "node", None, 8, 1, (1, 2, 3), budget)
    assert [(row["kind"], row["message"]) for row in rows] == [
        *(("all_reduce", 8), ("all_reduce", 16), ("all_gather", 8), ("all_gather", 16), ("all_gather", 24)),
        *(("reduce_scatter", 8), ("reduce_scatter", 16), ("reduce_scatter", 24), ("all_to_all", 8)),
    ]
    assert rows[0] == {"kind": "all_reduce", "message": 8, "ranks": 8, "nodes": 1, "seconds": 0.25}
    assert budget.left_out == ["node all_reduce, 3 B", "node all_to_all, 2 B and larger: not here"]


def test_a_collective_takes_as_long_as_on_the_slowest_rank(clock: Any) -> None:
    asked: list[int] = []
    one = process()
    one._loop = lambda call, count: (call(0), asked.append(count))[1] or 0.001 * len(asked)

    def call() -> None:
        clock.time += 1.0

    assert node_program._shared_seconds(one, None, call) == (0.003, 6.0)
    assert asked == [1, 30, 30, 30]
    one._loop = lambda call, count: asked.append(count) or 1.0
    node_program._shared_seconds(one, None, call)
    one._loop = lambda call, count: asked.append(count) or 1e-9
    node_program._shared_seconds(one, None, call)
    assert asked[4:] == [1, 3, 3, 3, 1, 100, 100, 100]


@pytest.mark.parametrize(
    ("rank", "world", "local", "found"),
    [
        (0, 1, 1, []),
        (1, 2, 2, [("node", (0, 1), 2, 1)]),
        (5, 8, 4, [("node", (4, 5, 6, 7), 4, 1), ("network", tuple(range(8)), 8, 2)]),
        (1, 2, 1, [("network", (0, 1), 2, 2)]),
    ],
)
def test_groups_are_those_of_nodes_and_of_all(
    torch: Any, rank: int, world: int, local: int, found: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def measured(process: Any, scope: str, group: Any, ranks: int, nodes: int, sizes: Any, budget: Any) -> list[Any]:
        assert budget == f"{scope} budget"
        asked.append((scope, group, ranks, nodes))
        return [scope]

    monkeypatch.setattr(node_program, "measure_collectives", measured)
    budget: Any = "{} budget".format
    rows: Any = node_program._groups(process(rank, world, local), (1,), budget)
    assert (asked, rows) == (found, [scope for scope, *_ in found])


def test_a_machine_tells_what_it_is(torch: Any) -> None:
    cpu = node_program.described(process(world=4, local_world=2))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (cpu["processor"], cpu["memory"], cpu["gpus_of_node"]) == ("cpu", memory // 2, 2)
    gpu = node_program.described(process(gpu=True))
    told = {"processor": "gpu", "name": "H100", "memory": 80, "sms": 132, "gpus_of_node": 8, "vendor": "NVIDIA"}
    assert told.items() <= gpu.items()
    assert gpu["runtime"] == "13"


def test_every_part_has_its_share_of_the_time(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: dict[str, TimeBudget] = {}

    def part(name: str) -> Any:
        def measured(*args: Any) -> list[str]:
            budget = args[-1] if isinstance(args[-1], TimeBudget) else TimeBudget(0.0)
            budgets[name] = budget
            budget.left_out.append(name)
            clock.time += 1.004
            return [name]

        return measured

    monkeypatch.setattr(node_program, "described", lambda _: "machine")
    for name in ("launches", "memory", "products", "attention"):
        monkeypatch.setattr(node_program, f"measure_{name}", part(name))
    monkeypatch.setattr(node_program, "ranks_apart", lambda _: [1.0])
    monkeypatch.setattr(node_program, "_groups", lambda process, sizes, part: part("node") and ["groups"])
    request = {"memory": 1, "products": [], "attention": [], "messages": [], "job": {"model": "m"}}
    said: list[str] = []
    found = node_program.measure(process(world=2), request, 100.0, said.append)
    assert (found["format"], found["version"], found["job"], found["machine"]) == (
        *("optimize measure", 1),
        *({"model": "m"}, "machine"),
    )
    assert said == [
        *("launches, at most 2 s", "memory, at most 6 s", "products, at most 30 s", "attention, at most 12 s"),
        "node, at most 22 s",
    ]
    assert {name: budgets[name].seconds for name in ("memory", "products")} == {"memory": 6.0, "products": 30.0}
    assert found["left_out"] == ["memory", "products", "attention"]
    assert found["seconds"] == {"launches": 1.0, "memory": 1.0, "products": 1.0, "attention": 1.0, "node": 0.0}
    assert (found["ranks"], found["collectives"]) == ([1.0], ["groups"])
    assert node_program.measure(process(), request, 100.0, said.append)["collectives"] == []


@pytest.mark.parametrize(("world", "rank", "writes"), [(1, 0, True), (2, 0, True), (2, 1, False)])
def test_rank_0_writes_and_every_group_is_left(
    world: int,
    rank: int,
    writes: bool,
    torch: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left: list[int] = []
    torch.distributed.destroy_process_group = lambda: left.append(rank)
    monkeypatch.setattr(node_program, "Process", lambda: process(rank, world, world))
    asked: list[float] = []

    def measured(process: Any, request: Any, seconds: float, say: Any) -> dict[str, Any]:
        asked.append(seconds)
        return {"version": 1}

    monkeypatch.setattr(node_program, "measure", measured)
    out = tmp_path / "measure.json"
    assert node_program.main(["--out", str(out)]) == node_program.main(["--out", str(out), "--seconds", "60"]) == 0
    assert asked == [480.0, 60.0]
    assert out.exists() is writes
    assert left == [rank] * 2 * (world > 1)
    assert ("wrote" in capsys.readouterr().err) is writes
