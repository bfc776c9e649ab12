"""From measure.json to files for --cluster. tests/measure/data: runs on a processor with gloo, of two ranks on one node
and of four ranks on two nodes (two torchruns on one machine), cut short by their budgets.
"""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from optimizer.catalog import load_cluster, load_device, load_link
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.cli import cli
from optimizer.job.hardware import Cluster
from optimizer.job.model import Experts
from optimizer.measure import request
from optimizer.measure.fit_messages import alpha_betas
from optimizer.measure.fit_products import ProductFit
from optimizer.measure.hardware_of import hardware_of, stream_rate
from optimizer.measure.hardware_toml import cluster_toml, device_toml
from optimizer.measure.measured import AttentionTime, Machine, NodeMeasurements, Product, Transfer, read_measured
from optimizer.objectives.kernels.gemm import gemm_time
from optimizer.objectives.kernels.gemm_curve import curve_for
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.protocols import profile
from optimizer.objectives.network.topology import span
from tests.search.jobs import MIXTURE, small_job

DATA = Path(__file__).parent / "data"
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SLOWER_NETWORK, SLOWER_UNITS = 0.6, 0.9


def slow_cluster() -> Cluster:
    usual = load_cluster("dgx-h100")
    inner, *outer = usual.tiers
    slow = [replace(tier, link=replace(tier.link, bandwidth=SLOWER_NETWORK * tier.link.bandwidth)) for tier in outer]
    return replace(usual, tiers=(inner, *slow))


def planted() -> NodeMeasurements:
    """Two nodes of 8 H100 whose units reach 90 % and whose network 60 % of what is usual: times of the model."""
    cluster = slow_cluster()
    curve = replace(curve_for(cluster.device, "bf16"), throttle=0.0)
    curve = replace(curve, ceiling=SLOWER_UNITS * curve.ceiling)
    edges = (512, 1024, 2048, 4096, 8192, 16384)
    products = tuple(
        Product(m=m, n=n, k=k, seconds=float(gemm_time(m, n, k, curve)))
        for m in edges
        for n in edges[::2]
        for k in edges[1::2]
    )
    sizes = [2.0**power for power in range(11, 31)]
    samples = tuple(
        CollectiveSample(kind=kind, message=size, time=float(time), ranks=ranks, nodes=nodes)
        for ranks, nodes in ((8, 1), (16, 2))
        for kind in KINDS
        for size, time in zip(
            sizes, collective_time(kind, sizes, span(cluster, np.full(20, ranks), 1), cluster), strict=True
        )
    )
    stream = 0.95 * 3350e9 * curve.memory_efficiency
    return NodeMeasurements(
        source="planted",
        job={"model": "llama3-8b"},
        machine=Machine(
            processor="gpu",
            name="NVIDIA H100 80GB HBM3",
            dtype="bfloat16",
            ranks=16,
            ranks_per_node=8,
            gpus_of_node=8,
            memory=85.0e9,
            sms=132,
            vendor="NVIDIA",
        ),
        launches={"host": 5e-6, "kernel": 2e-6},
        memory=(Transfer(kind="add", bytes=2**30, seconds=2**30 / stream),),
        products=products,
        attention=(),
        collectives=samples,
        ranks=(1.0,) * 15 + (1.2,),
    )


@pytest.fixture(scope="module")
def slow() -> NodeMeasurements:
    return planted()


def loaded(tmp_path: Path, measured: NodeMeasurements, **options: str) -> Cluster:
    path = tmp_path / "mine.toml"
    path.write_text(cluster_toml(hardware_of(measured, name="mine", **options), measured))
    return load_cluster(path)


def test_planted_units_and_network_are_found(slow: NodeMeasurements, tmp_path: Path) -> None:
    made = hardware_of(slow)
    usual = curve_for(load_device("h100"), "bf16")
    curve = curve_for(made.device, "bf16")
    assert made.device.name == "h100"
    assert curve.ceiling == pytest.approx(SLOWER_UNITS * usual.ceiling, rel=0.02)
    assert not curve.extrapolated
    assert made.products.median_error < 0.01
    assert made.device.memory_bandwidth == pytest.approx(0.95 * 3350e9)
    big = Product(m=16384, n=8192, k=8192, seconds=1.0)
    slower = gemm_time(big.m, big.n, big.k, curve) / gemm_time(big.m, big.n, big.k, replace(usual, throttle=0.0))
    assert float(slower) == pytest.approx(1 / SLOWER_UNITS, rel=0.02)
    cluster = loaded(tmp_path, slow)
    for kind in KINDS:
        for message in (2.0**14, 2.0**22, 2.0**30):
            mine, true = (
                float(collective_time(kind, message, span(each, np.array([16]), 1), each)[0])
                for each in (cluster, slow_cluster())
            )
            assert mine == pytest.approx(true, rel=0.1)
    assert [tier.size for tier in cluster.tiers] == [8, 256, 1_000_000]


def test_the_written_cluster_is_the_one_that_was_made(slow: NodeMeasurements, tmp_path: Path) -> None:
    made, read = hardware_of(slow), loaded(tmp_path, slow)
    assert read.host_bandwidth == made.cluster.host_bandwidth
    assert read.device.gemm["bf16"] == pytest.approx(made.device.gemm["bf16"], rel=1e-4)
    assert read.device.peak_flops == made.device.peak_flops
    for number, (mine, theirs) in enumerate(zip(made.cluster.tiers, read.tiers, strict=True)):
        assert (mine.size, mine.oversubscription) == (theirs.size, theirs.oversubscription)
        assert theirs.bandwidth == pytest.approx(mine.bandwidth, rel=1e-4)
        a, b = profile(mine.link, number > 0), profile(theirs.link, number > 0)
        for first, second in zip((*a.ring, *a.pairwise), (*b.ring, *b.pairwise), strict=True):
            assert (second.base, second.step, second.share) == pytest.approx(
                (first.base, first.step, first.share), rel=1e-3, abs=2e-9
            )


def test_tiers_that_were_not_measured_are_the_catalogues(slow: NodeMeasurements, tmp_path: Path) -> None:
    alone = replace(slow, collectives=())
    made = hardware_of(alone)
    assert made.links == {}
    assert any("rail: not measured" in line for line in made.notes)
    cluster, usual = loaded(tmp_path, alone), load_cluster("dgx-h100")
    for ranks in (2, 8, 64, 1024):
        for kind in KINDS:
            mine, theirs = (
                float(collective_time(kind, 1e8, span(each, np.array([ranks]), 1), each)[0])
                for each in (cluster, usual)
            )
            assert mine == pytest.approx(theirs, rel=0.01)


def test_a_gpu_of_no_catalogue_is_its_own_peak(slow: NodeMeasurements, tmp_path: Path) -> None:
    unknown = replace(slow, machine=replace(slow.machine, name="Fantasia 9000", vendor="Fantasia"))
    cluster = loaded(tmp_path, unknown)
    assert cluster.device.name == "fantasia-9000"
    assert cluster.device.peak("bf16") == pytest.approx(max(p.rate for p in slow.products))
    assert [tier.name for tier in cluster.tiers] == ["node", "network"]
    assert "no catalogue has 'Fantasia 9000'" in hardware_of(unknown).notes[0]
    assert loaded(tmp_path, unknown, device="a100").device.name == "a100-80"


def test_more_than_the_peak_is_told(slow: NodeMeasurements) -> None:
    fast = replace(slow, products=(Product(m=8192, n=8192, k=8192, seconds=1e-3),))
    made = hardware_of(fast)
    assert any("above the peak of h100" in line for line in made.notes)
    assert set(made.products.parameters) == {"ceiling", "memory_efficiency"}


@pytest.mark.parametrize(("share", "peak"), [(0.8, 0.8 / 0.898), (0.95, 1.0), (1.1, 1.1)])
def test_memory_has_no_more_than_its_peak(slow: NodeMeasurements, share: float, peak: float) -> None:
    """On an H200, on which kernels reach 91 % of 4.8 TB/s, a share of 73.6 % as in the catalogue would be 5.9 TB/s."""
    stream = share * 3350e9
    made = hardware_of(replace(slow, memory=(Transfer(kind="add", bytes=2**30, seconds=2**30 / stream),)))
    curve = curve_for(made.device, "bf16")
    assert made.device.memory_bandwidth == pytest.approx(peak * 3350e9)
    assert curve.bandwidth * curve.memory_efficiency == pytest.approx(stream)


def test_alpha_and_beta_of_planted_times() -> None:
    samples = [
        CollectiveSample(kind="all_gather", message=float(m), time=7 * 3e-6 + m * 7 / 8 / 40e9, ranks=8)
        for m in (2**11, 2**15, 2**20, 2**25, 2**30)
    ]
    (found,) = alpha_betas(samples)
    assert found.alpha == pytest.approx(3e-6, rel=1e-3)
    assert found.bandwidth == pytest.approx(40e9, rel=1e-3)


@pytest.mark.parametrize(("name", "tiers"), [("one_node", ["node"]), ("two_nodes", ["node", "network"])])
def test_a_run_on_the_processor_makes_files_that_plan(name: str, tiers: list[str], tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    done = CliRunner().invoke(cli, ["measure", "read", str(DATA / f"{name}.json"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    for words in ("2 a node", "Collectives", "all_to_all", "Left out", "best bf16 product", "least squares"):
        assert words in done.stdout
    cluster = load_cluster(out)
    assert [tier.name for tier in cluster.tiers] == tiers
    assert load_device(tmp_path / "mine-device.toml").gemm == cluster.device.gemm
    arguments = ["--model", "gpt2-xl", "--gpus", "2", "--global-batch", "8", "--cluster", str(out), "--json"]
    planned = CliRunner().invoke(cli, arguments)
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["job"]["cluster"] == "mine"
    again = CliRunner().invoke(cli, ["measure", "read", str(DATA / f"{name}.json"), "--out", str(out)])
    assert again.exit_code == 2
    assert "--force" in again.stderr


def test_fits_on_the_processor_meet_the_times(tmp_path: Path) -> None:
    measured = read_measured(DATA / "one_node.json")
    made = hardware_of(measured)
    assert made.products.median_error < 0.25
    for fit in made.links.values():
        assert fit.median_error < np.median(np.abs(np.expm1(fit.before)))
    assert "[gemm.bf16]" in device_toml(made, measured)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "write and run the program again"),
        ({"products": []}, "products: expected a list of products, one at least"),
        ({"products": [{"m": 1, "n": 2, "k": 3, "seconds": -1.0}]}, "seconds: expected a number above 0"),
        ({"memory": []}, "the memory was not measured"),
        ({"surprise": 1}, "surprise: unknown key"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "measure.json"
    path.write_text(json.dumps({**json.loads((DATA / "one_node.json").read_text()), **change}))
    done = CliRunner().invoke(cli, ["measure", "read", str(path)])
    assert done.exit_code == 2
    assert words in done.stderr


def test_the_slow_rank_is_named(slow: NodeMeasurements, tmp_path: Path) -> None:
    from optimizer.measure.report import measured_dict

    assert "rank 15 multiplies 20.0% slower than the median rank" in measured_dict(hardware_of(slow), slow)["told"]


def test_a_product_adds_and_multiplies() -> None:
    assert Product(m=2, n=3, k=5, seconds=0.5).rate == 120.0
    assert read_measured(DATA / "one_node.json").machine.sms == 1  # of a processor, which does not count them


def test_attention_is_told_by_the_scores_that_the_mask_leaves() -> None:
    """Three tokens: six scores of a head, each a product of the widths of a key and of a value."""
    one = AttentionTime(batch=2, heads=4, seq_len=3, qk_dim=192, v_dim=128, forward=0.5, backward=1.0)
    assert one.rate == 2 * 4 * 6 * 2 * (192 + 128) / 0.5


@pytest.mark.parametrize(("sms", "told"), [(132, False), (2, True), (1, False), (0, False)])
def test_other_multiprocessors_are_told_where_they_are_counted(slow: NodeMeasurements, sms: int, told: bool) -> None:
    made = hardware_of(replace(slow, collectives=(), machine=replace(slow.machine, sms=sms)))
    assert any(f"has {sms} SMs, h100 132" in line for line in made.notes) is told
    assert made.device.sms == (sms if told else 132)


def test_only_large_transfers_tell_the_rate_of_memory(slow: NodeMeasurements) -> None:
    def rate(*transfers: tuple[str, float, float]) -> float:
        memory = tuple(Transfer(kind=kind, bytes=size, seconds=seconds) for kind, size, seconds in transfers)
        return stream_rate(replace(slow, memory=memory))

    assert rate(("add", 2**28, 1.0), ("copy", 2**29, 1.0), ("add", 2**27, 0.1), ("to_host", 2**30, 0.1)) == 2**29
    assert rate(("add", 2**27, 1.0), ("copy", 2**26, 0.1)) == 2**27


def test_experts_are_split_among_eight_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[float]] = []
    monkeypatch.setattr(
        request, "layer_operators", lambda model, shapes, *_: found.append(np.unique(shapes.ep).tolist()) or "layer"
    )
    job = small_job(model=replace(MIXTURE, experts=Experts(count=12, top_k=2, ffn_hidden=512)))
    request._layers(job)
    request._layers(small_job())
    assert found == [[4.0], [1.0]]


@pytest.mark.parametrize(
    ("seq_len", "lengths"), [(512, [512]), (1024, [1024]), (2048, [1024, 2048]), (8192, [1024, 4096, 8192])]
)
def test_attention_is_measured_over_the_sequence_and_shorter_ones(seq_len: int, lengths: list[int]) -> None:
    job = replace(small_job(), seq_len=seq_len)
    shapes = request.measure_request(job, 60.0)["attention"]
    assert sorted({shape["seq_len"] for shape in shapes}) == lengths
    assert sorted({shape["heads"] for shape in shapes}) == [3, 6, 12, 24]


@pytest.fixture
def unfitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products whose curve is said at once."""
    fit = ProductFit(parameters={"ceiling": 0.7, "memory_efficiency": 0.9}, ratios=np.ones(1))
    monkeypatch.setattr("optimizer.measure.hardware_of.fit_products", lambda *_: fit)


def ring(ranks: int, nodes: int, count: int) -> list[CollectiveSample]:
    """All-gathers of (N - 1) steps of 10 us each at 20 GB/s per rank."""
    messages = [4.0**power for power in range(6, 6 + count)]
    share = (ranks - 1) / ranks
    return [
        CollectiveSample(
            kind="all_gather", message=size, time=(ranks - 1) * 1e-5 + share * size / 2e10, ranks=ranks, nodes=nodes
        )
        for size in messages
    ]


@pytest.mark.usefixtures("unfitted")
@pytest.mark.parametrize(
    ("inside", "outside", "fits", "missing"),
    [
        (4, 4, {"scale_up": 4, "rail": 4}, []),
        (5, 3, {"scale_up": 5}, ["rail"]),
        (3, 6, {"rail": 6}, ["scale_up"]),
        (0, 0, {}, ["scale_up", "rail"]),
    ],
)
def test_four_collectives_tell_a_link(
    inside: int, outside: int, fits: dict[str, int], missing: list[str], slow: NodeMeasurements
) -> None:
    made = hardware_of(replace(slow, collectives=(*ring(8, 1, inside), *ring(16, 2, outside))))
    assert {name: len(fit.samples) for name, fit in made.links.items()} == fits
    assert [*made.notes] == [f"tier {name}: not measured, as in the catalogue" for name in missing]
    assert [tier.link.name for tier in made.cluster.tiers] == [
        "nvlink4-fitted",
        "infiniband-ndr-fitted",
        "infiniband-ndr-fitted",
    ]


@pytest.mark.usefixtures("unfitted")
def test_a_machine_of_no_catalogue_has_the_links_of_its_collectives(slow: NodeMeasurements) -> None:
    """Too few to be fitted: the rate of the largest message, the latency of the smallest, and no sums in a switch."""
    machine = replace(slow.machine, name="Own", ranks=12, ranks_per_node=4)
    samples = [*ring(4, 1, 2), *ring(12, 3, 3)]
    made = hardware_of(replace(slow, machine=machine, collectives=tuple(samples)))
    node, network = made.cluster.tiers
    assert (node.size, network.size) == (4, 12)
    assert (made.cluster.gpus_per_node, made.cluster.max_gpus, made.known, made.cluster.name) == (
        4,
        12,
        False,
        "measured",
    )
    assert made.device.peak_flops == {"bf16": made.best}
    for tier, messages in ((node, samples[:2]), (network, samples[2:])):
        share = (messages[0].ranks - 1) / messages[0].ranks
        reached = max(share * each.message / each.time for each in messages)
        assert tier.link.bandwidth * tier.link.efficiency == pytest.approx(reached)
        assert tier.link.quantities["ring_ll_base_latency"] == pytest.approx(min(each.time for each in messages))
        assert not tier.link.in_switch_reduction
        assert tier.link.name == f"{tier.name}-fitted"
    alone = hardware_of(replace(slow, machine=replace(machine, ranks=4), collectives=(*ring(4, 1, 2),)))
    assert [tier.size for tier in alone.cluster.tiers] == [4]
    silent = hardware_of(replace(slow, machine=machine, collectives=())).cluster.tiers
    assert [tier.link.bandwidth for tier in silent] == [load_link("nvlink4").bandwidth]


@pytest.mark.usefixtures("unfitted")
def test_the_rest_is_the_catalogues(slow: NodeMeasurements) -> None:
    usual = load_cluster("dgx-h100")
    host = tuple(Transfer(kind=kind, bytes=3e9, seconds=s) for kind, s in (("from_host", 0.1), ("to_host", 0.2)))
    known = hardware_of(slow).cluster
    assert (known.gpus_per_node, known.max_gpus, known.host_bandwidth) == (
        usual.gpus_per_node,
        usual.tiers[-1].size,
        usual.host_bandwidth,
    )
    assert hardware_of(slow).known
    assert hardware_of(replace(slow, memory=(*slow.memory, *host))).cluster.host_bandwidth == pytest.approx(15e9)
    nameless = replace(slow, machine=replace(slow.machine, name="???"))
    assert hardware_of(nameless).device.name == "measured"
    assert hardware_of(nameless).cluster.host_bandwidth == Cluster.host_bandwidth
    assert hardware_of(nameless, cluster="dgx-h100").device.name == "h100"
    processor = replace(slow.machine, processor="cpu")
    assert not hardware_of(replace(slow, machine=processor)).known


def test_products_are_those_of_both_grids_and_of_the_job() -> None:
    """All of three edges, a factor of four apart, from 512 and from 1,024 on; none is empty."""
    products = {tuple(shape) for shape in request.measure_request(small_job(model=MIXTURE), 60.0)["products"]}
    grids = [set(product(edges, repeat=3)) for edges in ((512, 2048, 8192), (1024, 4096, 16384))]
    assert grids[0] | grids[1] < products
    assert min(min(shape) for shape in products) >= 1
    # A router sees what sequence parallelism leaves: of TP that divides the heads and one or two sequences.
    tokens = {batch * small_job().seq_len // tp for batch in (1, 2) for tp in request.SPLITS if MIXTURE.heads % tp == 0}
    experts, hidden = MIXTURE.experts.count, MIXTURE.hidden
    assert {m for m, n, k in products if (n, k) == (experts, hidden)} == tokens
