"""Measures nodes: matrix products, memory, launches, attention and collectives. Needs PyTorch and nothing else.

torchrun --nproc-per-node 8 measure.py                                  # one node
torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 measure.py

Every part has a time budget of its own and leaves out what does not fit into it, by name. Rank 0 writes measure.json,
which `optimize measure read` turns into a device file and a cluster file. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REQUEST: dict[str, Any] = {}

# Shares of the time [1]; the rest is for starting up.
SHARES: Mapping[str, float] = {
    "products": 0.30,
    "memory": 0.06,
    "launches": 0.02,
    "attention": 0.12,
    "node": 0.22,
    "network": 0.22,
}
SAMPLE = 0.03  # s: a measurement repeats its operation for so long, ROUNDS times
ROUNDS = 3
ROTATED = 256 * 2**20  # B: operands rotate through so much memory, so that they do not lie in a cache
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


class Process:
    """Where this process runs, and how time is told there."""

    def __init__(self) -> None:
        """Take the GPU of this local rank, else the processor; start the group of processes when torchrun did."""
        import torch
        import torch.distributed as dist

        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.local, self.local_world = (
            int(os.environ.get("LOCAL_RANK", "0")),
            int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        )
        self.gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", self.local) if self.gpu else torch.device("cpu")
        self.backend = "nccl" if self.gpu else "gloo"
        self.wide = torch.bfloat16
        if self.gpu:
            torch.cuda.set_device(self.device)
            if not torch.cuda.is_bf16_supported():
                self.wide = torch.float16
        if self.world > 1:
            dist.init_process_group(self.backend)

    def wait(self) -> None:
        """Until the device has done everything that it was told."""
        if self.gpu:
            import torch

            torch.cuda.synchronize()

    def largest(self, value: float, group: Any = None) -> float:
        """The largest value of all ranks of a group; waits for every one of them."""
        if self.world == 1:
            return value
        import torch
        import torch.distributed as dist

        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=group)
        return float(shared.item())

    def seconds(self, call: Callable[[int], object], graph: bool = True) -> float:
        """Median time of an operation [s]; `call` gets a number that goes up, to rotate its operands with."""
        call(0)
        self.wait()
        one_call = max(1e-7, self._loop(call, 1))
        repeats = max(1, min(200, math.ceil(SAMPLE / one_call)))
        replay = self._captured(call, repeats) if graph and self.gpu else None
        if replay is None:
            return statistics.median(self._loop(call, repeats) for _ in range(ROUNDS))
        replay()
        return statistics.median(self._loop(lambda _: replay(), 1) / repeats for _ in range(ROUNDS))

    def _loop(self, call: Callable[[int], object], repeats: int) -> float:
        self.wait()
        start = time.perf_counter()
        for number in range(repeats):
            call(number)
        self.wait()
        return (time.perf_counter() - start) / repeats

    def _captured(self, call: Callable[[int], object], repeats: int) -> Callable[[], object] | None:
        """The repeated operation as one CUDA graph, so that the host's launches do not count; None where that fails."""
        import torch

        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for number in range(repeats):
                    call(number)
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return graph.replay  # type: ignore[no-any-return]


class TimeBudget:
    """The time of one part [s], and by name what did not fit into it."""

    def __init__(self, seconds: float) -> None:
        """Start the clock."""
        self.start, self.seconds = time.perf_counter(), seconds
        self.took = 0.0
        self.left_out: list[str] = []

    def stop(self) -> None:
        """Stop the clock."""
        self.took = self.spent

    @property
    def spent(self) -> float:
        """Time since the start [s]."""
        return time.perf_counter() - self.start

    def allows(self, expected: float, name: str) -> bool:
        """Whether something that takes so long [s] still fits; what does not is noted."""
        if self.spent + expected <= self.seconds:
            return True
        self.left_out.append(name)
        return False


def rotations(size: float) -> int:
    """How many copies of operands of so many bytes [B] leave no cache warm: at least 1, at most 8.

    >>> rotations(1e9), rotations(64 * 2**20), rotations(1.0)
    (1, 4, 8)
    """
    return max(1, min(8, math.ceil(ROTATED / max(1.0, size))))


def repeated(function: Callable[..., object], sets: Sequence[tuple[Any, ...]]) -> Callable[[int], object]:
    """A call that takes the next of several sets of operands each time."""
    return lambda number: function(*sets[number % len(sets)])


def measure_products(process: Process, shapes: Sequence[Sequence[int]], budget: TimeBudget) -> list[dict[str, Any]]:
    """Times of products (m x k) by (k x n) [s], the small ones first: they tell how long the large ones take."""
    import torch

    rows: list[dict[str, Any]] = []
    rate = 0.0
    for m, n, k in sorted(shapes, key=math.prod):
        flops = 2.0 * m * n * k
        expected = (2 + ROUNDS * max(1.0, SAMPLE * rate / flops)) * flops / rate if rate else 0.0
        if not budget.allows(expected, f"product {m} x {n} x {k}"):
            continue
        try:
            made = {"dtype": process.wide, "device": process.device}
            count = rotations(2.0 * (m * k + k * n + m * n))
            sets = [
                (torch.randn(m, k, **made), torch.randn(n, k, **made).t(), torch.empty(m, n, **made))
                for _ in range(count)
            ]
            seconds = process.seconds(repeated(lambda a, b, out: torch.mm(a, b, out=out), sets))
        except RuntimeError as error:
            budget.left_out.append(f"product {m} x {n} x {k}: {str(error).splitlines()[0][:120]}")
            continue
        rate = max(rate, flops / seconds)
        rows.append({"m": m, "n": n, "k": k, "seconds": seconds})
    return rows


def measure_memory(process: Process, largest: float, budget: TimeBudget) -> list[dict[str, Any]]:
    """Times to read and write memory [s]: copies, sums of two arrays, and copies from and to the host's memory."""
    import torch

    rows: list[dict[str, Any]] = []
    size = 2**20
    while size <= largest:
        if not budget.allows(0.0, f"memory, {size} B"):
            break
        count = rotations(3.0 * size)
        made = {"dtype": torch.float32, "device": process.device}
        sets = [tuple(torch.ones(size // 4, **made) for _ in range(3)) for _ in range(count)]
        copied = process.seconds(repeated(lambda a, b, c: c.copy_(a), sets))
        added = process.seconds(repeated(lambda a, b, c: torch.add(a, b, out=c), sets))
        rows.append({"kind": "copy", "bytes": 2 * size, "seconds": copied})
        rows.append({"kind": "add", "bytes": 3 * size, "seconds": added})
        size *= 4
    if process.gpu:
        host = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
        on_device = torch.empty(2**28, dtype=torch.uint8, device=process.device)
        down = process.seconds(lambda _: on_device.copy_(host, non_blocking=True), graph=False)
        up = process.seconds(lambda _: host.copy_(on_device, non_blocking=True), graph=False)
        rows.append({"kind": "from_host", "bytes": 2**28, "seconds": down})
        rows.append({"kind": "to_host", "bytes": 2**28, "seconds": up})
    return rows


def measure_launches(process: Process) -> dict[str, float]:
    """Time of one tiny operation [s]: `host` as the host issues it, `kernel` inside a CUDA graph (GPUs only)."""
    import torch

    one = torch.zeros(1, device=process.device)
    launches = {"host": process.seconds(lambda _: one.add_(1.0), graph=False)}
    if process.gpu:
        launches["kernel"] = process.seconds(lambda _: one.add_(1.0))
    return launches


def measure_attention(
    process: Process, shapes: Sequence[Mapping[str, int]], budget: TimeBudget
) -> list[dict[str, Any]]:
    """Times of causal attention, forward and backward [s]; key-value heads are repeated to those of the queries."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    rows: list[dict[str, Any]] = []
    rate = 0.0
    for shape in sorted(shapes, key=scores):
        batch, heads, tokens = shape["batch"], shape["heads"], shape["seq_len"]
        name = f"attention, {batch} x {heads} heads x {tokens} tokens"
        if not budget.allows(8.0 * ROUNDS * scores(shape) / rate if rate else 0.0, name):
            continue
        try:
            widths = (shape["qk_dim"], shape["qk_dim"], shape["v_dim"])
            query, key, value = (
                torch.randn(batch, heads, tokens, width, dtype=process.wide, device=process.device, requires_grad=True)
                for width in widths
            )
            ahead = _forward(scaled_dot_product_attention, query, key, value)
            out = ahead(0)
            forward = process.seconds(ahead, graph=False)
            both = process.seconds(_both_ways(ahead, (query, key, value), torch.randn_like(out)), graph=False)
        except RuntimeError as error:
            budget.left_out.append(f"{name}: {str(error).splitlines()[0][:120]}")
            continue
        rate = max(rate, scores(shape) / forward)
        rows.append({**shape, "forward": forward, "backward": max(0.0, both - forward)})
    return rows


def scores(shape: Mapping[str, int]) -> int:
    """Scores of a shape, to which its time is proportional [1]."""
    return shape["batch"] * shape["heads"] * shape["seq_len"] ** 2


def _forward(attend: Callable[..., Any], query: Any, key: Any, value: Any) -> Callable[[int], Any]:
    return lambda _: attend(query, key, value, is_causal=True)


def _both_ways(ahead: Callable[[int], Any], inputs: tuple[Any, ...], gradient: Any) -> Callable[[int], Any]:
    import torch

    return lambda number: torch.autograd.grad(ahead(number), inputs, gradient)


def measure_collectives(
    process: Process, scope: str, group: Any, ranks: int, nodes: int, sizes: Sequence[int], budget: TimeBudget
) -> list[dict[str, Any]]:
    """Times of collectives of a group [s] by the slowest rank; `message` is the whole buffer [B], as in nccl-tests."""
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(KINDS):
        end = budget.seconds * (number + 1) / len(KINDS)
        last = 0.0
        for size in sizes:
            name = f"{scope} {kind}, {size} B"
            if process.largest(budget.spent, group) + 2.5 * last > end:
                budget.left_out.append(name)
                continue
            try:
                message, call = _collective(process, kind, group, ranks, size)
                seconds, last = _shared_seconds(process, group, call)
            except (RuntimeError, NotImplementedError) as error:
                budget.left_out.append(f"{name} and larger: {str(error).splitlines()[0][:120]}")
                break
            rows.append({"kind": kind, "message": message, "ranks": ranks, "nodes": nodes, "seconds": seconds})
    return rows


def _collective(process: Process, kind: str, group: Any, ranks: int, size: int) -> tuple[int, Callable[[], object]]:
    """The bytes of the whole buffer, a multiple of what ranks share evenly, and the call."""
    import torch
    import torch.distributed as dist

    dtype = process.wide if process.gpu else torch.float32
    each = max(1, size // (dtype.itemsize * ranks))
    whole = torch.zeros(each * ranks, dtype=dtype, device=process.device)
    part = torch.zeros(each, dtype=dtype, device=process.device)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole, group=group),
    }
    return each * ranks * dtype.itemsize, calls[kind]


def _shared_seconds(process: Process, group: Any, call: Callable[[], object]) -> tuple[float, float]:
    """Time of a call on the slowest rank [s], and how long it took to find that out [s]; the same on all ranks."""
    begin = time.perf_counter()
    for _ in range(2):
        call()
    one_call = process.largest(process._loop(lambda _: call(), 1), group)
    repeats = max(3, min(100, math.ceil(SAMPLE / max(one_call, 1e-7))))
    rounds = [process.largest(process._loop(lambda _: call(), repeats), group) for _ in range(ROUNDS)]
    return statistics.median(rounds), process.largest(time.perf_counter() - begin, group)


def ranks_apart(process: Process) -> list[float]:
    """Time of the same product on every rank [s]: a slow GPU shows."""
    import torch

    edge = 4096 if process.gpu else 256
    made = {"dtype": process.wide, "device": process.device}
    a, b, out = (torch.randn(edge, edge, **made) for _ in range(3))
    own = process.seconds(lambda _: torch.mm(a, b, out=out))
    if process.world == 1:
        return [own]
    import torch.distributed as dist

    gathered = [torch.zeros(1, dtype=torch.float64, device=process.device) for _ in range(process.world)]
    dist.all_gather(gathered, torch.tensor([own], dtype=torch.float64, device=process.device))
    return [float(value.item()) for value in gathered]


def described(process: Process) -> dict[str, Any]:
    """What the machine says of itself; no names of hosts or people."""
    import torch

    description: dict[str, Any] = {
        "processor": "gpu" if process.gpu else "cpu",
        "dtype": str(process.wide).removeprefix("torch."),
        "torch": torch.__version__,
        "backend": process.backend,
        "ranks": process.world,
        "ranks_per_node": process.local_world,
    }
    if process.gpu:
        properties = torch.cuda.get_device_properties(process.device)
        description["name"] = properties.name
        description["memory"] = properties.total_memory
        description["sms"] = properties.multi_processor_count
        description["gpus_of_node"] = torch.cuda.device_count()
        description["vendor"] = "AMD" if torch.version.hip else "NVIDIA"
        description["runtime"] = str(torch.version.hip or torch.version.cuda)
    else:
        description["name"] = "cpu"
        description["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // process.local_world
        description["gpus_of_node"] = process.local_world
    return description


def measure(process: Process, request: Mapping[str, Any], seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Every part in its budget."""
    budgets: dict[str, TimeBudget] = {}

    def part(name: str) -> TimeBudget:
        process.largest(0.0)
        if budgets:
            list(budgets.values())[-1].stop()
        say(f"{name}, at most {SHARES[name] * seconds:.0f} s")
        budgets[name] = TimeBudget(SHARES[name] * seconds)
        return budgets[name]

    result: dict[str, Any] = {"format": "optimize measure", "version": 1, "job": request.get("job", {})}
    result["machine"] = described(process)
    result["launches"] = measure_launches(process) if part("launches") else {}
    result["memory"] = measure_memory(process, request["memory"], part("memory"))
    result["products"] = measure_products(process, request["products"], part("products"))
    result["attention"] = measure_attention(process, request["attention"], part("attention"))
    result["ranks"] = ranks_apart(process)
    result["collectives"] = []
    if process.world > 1:
        result["collectives"] = _groups(process, request["messages"], part)
    list(budgets.values())[-1].stop()
    result["left_out"] = [line for budget in budgets.values() for line in budget.left_out]
    result["seconds"] = {name: round(budget.took, 2) for name, budget in budgets.items()}
    return result


def _groups(process: Process, sizes: Sequence[int], part: Callable[[str], TimeBudget]) -> list[dict[str, Any]]:
    """Collectives inside every node at once, then over all ranks where there are several nodes."""
    import torch.distributed as dist

    rows: list[dict[str, Any]] = []
    local, nodes = process.local_world, process.world // process.local_world
    own = None
    for node in range(nodes):
        group = dist.new_group(list(range(node * local, (node + 1) * local)))
        own = group if process.rank // local == node else own
    if local > 1:
        rows += measure_collectives(process, "node", own, local, 1, sizes, part("node"))
    if nodes > 1:
        world = dist.new_group(list(range(process.world)))
        rows += measure_collectives(process, "network", world, process.world, nodes, sizes, part("network"))
    return rows


def as_lines(result: Mapping[str, Any]) -> str:
    r"""JSON with a line for every measurement.

    >>> as_lines({"version": 1, "memory": [{"bytes": 8}, {"bytes": 16}]})
    '{\n"version": 1,\n"memory": [\n{"bytes": 8},\n{"bytes": 16}\n]\n}\n'
    """
    rows = []
    for key, value in result.items():
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
        else:
            text = json.dumps(value)
        rows.append(f"{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; 0 on success."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="measure.json", help="where rank 0 writes its JSON [measure.json]")
    parser.add_argument("--seconds", type=float, default=REQUEST.get("seconds", 480.0), help="time for all parts")
    options = parser.parse_args(arguments)
    process = Process()
    begin = time.perf_counter()

    def say(text: str) -> None:
        if process.rank == 0:
            print(f"[{time.perf_counter() - begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    result = measure(process, REQUEST, options.seconds, say)
    if process.rank == 0:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(as_lines(result))
        say(f"wrote {options.out}")
    if process.world > 1:
        import torch.distributed as dist

        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
