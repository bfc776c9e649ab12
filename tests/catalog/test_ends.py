"""Where rules of the catalogue change: what is sold whole, which price holds, what a value may be."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.offers import HOUR, MOST_PRICE, MOST_RENT, OLD, Offer, PriceBook, median, quote
from optimizer.catalog.readers.huggingface_experts import _letters
from optimizer.catalog.readers.huggingface_fields import ConfigFields
from optimizer.catalog.readers.huggingface_layers import _mixers, _mixers_of_windows, _windowed
from optimizer.catalog.readers.huggingface_mixers import _grouped, recurrence_of
from optimizer.catalog.readers.huggingface_tower import first, is_whole, listed
from optimizer.catalog.readers.nccl_tests import _possible_ranks
from optimizer.catalog.readers.yaml_nodes import MOST, _size, yaml_nodes
from optimizer.catalog.settings import Asked, with_settings
from optimizer.catalog.usual_batch import AT_ONCE, STEPS, TUNED, TUNED_LENGTH, divisible_batch, usual_tokens
from optimizer.catalog.whole import Lot, whole
from optimizer.job.model import SlidingWindow
from optimizer.job.recurrence import Recurrence


@pytest.mark.parametrize(
    ("gpus", "sizes", "count", "size"),
    [
        (8, (), 1, 8),
        (9, (), 2, 8),
        (64, (16, 64), 1, 64),
        (16, (16, 64), 1, 16),
        (17, (16, 64), 1, 64),
        (65, (16, 64), 5, 16),  # 80 of 16 rather than 128 of 64
        (65, (15, 64), 2, 64),  # 15 is less than a quarter of 64
        (128, (16, 64), 2, 64),  # the larger of equals
    ],
)
def test_what_is_sold_whole_holds_the_job(gpus: int, sizes: tuple[int, ...], count: int, size: int) -> None:
    lot = whole(gpus, 8, sizes)
    assert (lot.count, lot.size, lot.name) == (count, size, "unit" if sizes else "node")
    assert (lot.gpus, lot.spare) == (count * size, count * size - gpus)
    assert lot.words().endswith("used") is (lot.spare > 0)
    assert Lot(used=4, count=2, size=2, name="node").words() == "2 nodes of 2 GPUs"


def test_batches_that_runs_take() -> None:
    assert [usual_tokens(gpus) for gpus in (1, 4096, 4097)] == [4 * 2**20, 4 * 2**20, 4097 * 1024]
    assert [divisible_batch(batch, gpus) for batch, gpus in ((10, 6), (1, 48), (2, 48), (100, 7), (6, 7))] == [
        *(9, 3, 3, 112, 6),
    ]
    # An eighth more or less, for as many replicas, and micro-batches of as many sizes, as odd counts can have.
    shared = {(512, 96): 576, (512, 40): 480, (512, 7): 448, (2048, 384): 2304, (1536, 1008): 1512, (9, 1): 8}
    assert {asked: divisible_batch(*asked) for asked in shared} == shared
    assert (TUNED, AT_ONCE, TUNED_LENGTH) == (16, 2, 2048)


def offer(value: float, provider: str = "", **changes: Any) -> Offer:
    usual: dict[str, Any] = {"offer": "it", "device": "h100", "cluster": "", "term": "on_demand", "grade": "A"}
    usual |= {"low": value, "high": value, "row": f"line {value:g}", "date": PriceBook().day.isoformat()}
    return Offer(**usual | {"value": value, "provider": provider or f"p{value:g}"} | changes)


def test_the_middle_of_offers_is_one_or_between_two() -> None:
    one, two, three = offer(1.0, sold=(8,)), offer(2.0, sold=(64,), grade="B"), offer(6.0)
    assert (median([]), median([one]), median([one, two, three])) == ([], [one], [two])
    (between,) = median([one, two])
    assert (between.value, between.low, between.high, between.grade, between.sold) == (1.5, 1.5, 1.5, "B", (64,))
    assert (between.provider, between.row, between.of) == ("p1 and p2", "line 1 and line 2", (one, two))
    older = replace(two, date="2020-01-02")
    assert median([one, older])[0].date == "2020-01-02"
    assert median([one, two, three, offer(9.0)])[0].value == 4.0


def test_which_rent_holds() -> None:
    day = PriceBook().day
    stale = (day - datetime.timedelta(days=OLD + 1)).isoformat()
    fresh = (day - datetime.timedelta(days=OLD)).isoformat()

    def rent(*offers: Offer, cluster: str = "", alone: bool = False, **book: Any) -> float | None:
        found = PriceBook(offers=offers, term="on_demand", **book).rent("h100", cluster, alone=alone)
        return found.value if found else None

    assert rent(offer(3.0), offer(1.0), offer(2.0)) == 2.0  # of providers the middle one
    assert rent(offer(3.0, "a"), offer(1.0, "a"), offer(5.0, "b")) == 3.0  # each with its cheapest
    assert rent(offer(1.0, date=stale), offer(3.0)) == 3.0
    assert rent(offer(1.0, date=fresh), offer(3.0)) == 2.0
    assert rent(offer(1.0, date=stale)) == 1.0  # where no other is known
    assert rent(offer(1.0, fabric=False), offer(3.0)) == 3.0
    assert rent(offer(1.0, fabric=False)) is None
    assert rent(offer(1.0, fabric=False), alone=True) == 1.0
    assert rent(offer(1.0, "a", fabric=False), provider="a") == 1.0
    assert rent(offer(1.0, "a"), offer(3.0, "b"), provider="b") == 3.0
    named = offer(9.0, cluster="dgx-h100")
    assert (rent(named, offer(1.0), cluster="dgx-h100"), rent(named, offer(1.0), cluster="h100")) == (9.0, 5.0)
    mine = quote("h100", "on_demand", 7.0 / HOUR, row="own")
    assert rent(offer(1.0), mine) == 7.0 / HOUR
    assert rent(offer(1.0), replace(mine, cluster="dgx-h100"), cluster="h100") == 1.0
    assert rent(offer(1.0, device="b200")) is None


def test_which_price_holds_for_buying() -> None:
    server = offer(3e5, term="purchase", cluster="dgx-h100")
    board, chip = (offer(value, term=term) for value, term in ((2e5, "baseboard"), (1e5, "chip")))
    book = PriceBook(offers=(server, board, chip))
    assert book.sale("h100", "dgx-h100") == server
    assert book.sale("h100", "h100") == chip  # what names no cluster is no server and no baseboard of it
    assert PriceBook(offers=(chip, replace(chip, value=5e4))).sale("h100") == replace(chip, value=5e4)
    assert PriceBook(offers=()).sale("h100") is None
    for term, most in (("on_demand", MOST_RENT / HOUR), ("chip", MOST_PRICE)):
        assert quote("h100", term, most, row="own").value == most
        with pytest.raises(InputError, match="more than anybody asks"):
            quote("h100", term, 1.001 * most, row="own")


def test_values_that_are_set_have_ends() -> None:
    asked = Asked(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"))
    for setting in ("rail.bandwidth=1e6", "rail.bandwidth=1MB/s", "device.memory=1e6", "gpus_per_node=8"):
        with_settings(asked, [setting])
    for wrong in ("rail.bandwidth=999999", "device.memory=0", "gpus_per_node=8.5", "device.memory=-1"):
        with pytest.raises(InputError, match="--set"):
            with_settings(asked, [wrong])
    narrow = with_settings(asked, ["rail.size=16", "spine.size=32"]).cluster
    assert ([tier.size for tier in narrow.tiers], narrow.max_gpus) == ([8, 16, 32], 32)
    faster = with_settings(asked, ["rail.bandwidth=10 GB/s", "rail.latency=1 us", "rail.oversubscription=2"]).cluster
    assert (faster.tiers[1].link.bandwidth, faster.tiers[1].link.latency) == (10e9, pytest.approx(1e-6))
    assert (faster.tiers[1].oversubscription, faster.tiers[0]) == (2.0, asked.cluster.tiers[0])
    larger = with_settings(asked, ["device.memory=200GB"]).cluster.device
    assert (larger.memory, larger.memory_nominal) == (200e9, 200e9)
    smaller = with_settings(asked, ["device.memory=20GB"]).cluster.device
    assert (smaller.memory, smaller.memory_nominal) == (20e9, asked.cluster.device.memory_nominal)
    peaks = with_settings(asked, ["peak_flops.bf16=1e15"]).cluster.device.peak_flops
    assert (peaks["bf16"], peaks["fp8"]) == (1e15, asked.cluster.device.peak_flops["fp8"])


def test_steps_of_published_runs_are_as_their_papers_say() -> None:
    """Accelerators, and tokens of a step in units of 2^20."""
    assert {step.run: (step.accelerators, round(step.tokens / 2**20, 1)) for step in STEPS} == {
        **{"BLOOM-176B": (384, 4.0), "OPT-175B": (992, 1.9), "GPT-3 175B": (1024, 3.0), "Llama-2 70B": (2048, 4.0)},
        **{"MT-NLG 530B": (2240, 3.8), "Falcon-180B": (4096, 4.0), "Nemotron-4 340B": (6144, 9.0)},
        **{"PaLM 540B": (6144, 4.0), "Llama-3.1 405B": (16384, 16.0)},
    }


def config(**values: Any) -> Any:
    """What a config.json says, None of all else."""
    return SimpleNamespace(**{**dict.fromkeys(ConfigFields.model_fields), "layers": 6, **values})


@pytest.mark.parametrize(
    ("values", "mixers"),
    [
        ({"attention_layers": [1, 4], "state_conv": 4}, "rarrar"),
        ({"attn_layer_period": 3, "attn_layer_offset": 1}, "rarrar"),
        ({"global_every": 3, "linear_value_heads": 8}, "rrarra"),
        ({"global_every": 3}, ""),
        ({}, ""),
    ],
)
def test_which_layers_attend_and_which_recur(values: dict[str, Any], mixers: str) -> None:
    assert _mixers(config(**values)) == mixers


@pytest.mark.parametrize(
    ("values", "windowed", "mixers"),
    [
        ({}, False, "aaaaaa"),
        ({"max_window_layers": 2}, True, "aawwww"),
        ({"max_window_layers": 0, "global_every": 3}, True, "wwawwa"),
        ({"use_sliding_window": False}, True, "aaaaaa"),
        ({"use_sliding_window": True, "max_window_layers": 5}, False, "aaaaaw"),
        ({"chunk": 128, "no_rope_layer_interval": 3}, False, "wwawwa"),
        ({"chunk": 128, "no_rope_layers": [1, 0, 0, 1, 1, 0]}, False, "waawwa"),
    ],
)
def test_which_layers_see_a_window(values: dict[str, Any], windowed: bool, mixers: str) -> None:
    assert _mixers_of_windows(config(**values), windowed) == mixers


def test_a_window_recurs_or_has_a_letter_for_each_layer() -> None:
    seen = {"sliding_window": 64, "max_seq_len": 4096}
    assert _windowed(config(**seen), "wwawwa") == {"window": SlidingWindow(size=64, global_every=3)}
    assert _windowed(config(**seen), "wwwwww") == {"window": SlidingWindow(size=64, global_every=0)}
    assert _windowed(config(**seen), "awwaww") == {"mixers": "aww", "window": SlidingWindow(size=64)}
    assert _windowed(config(**seen), "rwarwa") == {"mixers": "rwa", "window": SlidingWindow(size=64)}
    for none in ({"use_sliding_window": False}, {"sliding_window": None}, {"sliding_window": 4096}):
        assert _windowed(config(**seen | none), "aaaaaa") == {}
    assert _windowed(config(**seen | {"sliding_window": 4095}), "wwawwa") != {}
    own = {**seen, "global_head_dim": 256, "kv_heads": 4, "head_dim": 128}
    assert _windowed(config(**own), "wwawwa")["window"] == SlidingWindow(size=64, kv_heads=4, head_dim=128)
    with pytest.raises(ValueError, match="says no width"):
        _windowed(config(max_seq_len=4096), "rwarwa")


def test_sizes_of_towers_are_whole_numbers_above_zero() -> None:
    for value, whole_number in ((1, True), (0, False), (-1, False), (True, False), (1.0, False), ("1", False)):
        assert is_whole(value) is whole_number
    assert (first([448, 2]), first(14), first([]), first(None), first(0.5)) == (448, 14, 1, 1, 1)
    assert (listed({"a": [1, 2]}, "a", 4), listed({"a": 2}, "a", 4), listed({}, "a", 4)) == (2, 4, 4)


CLUSTER = """
name = "mine"
device = "h100"
max_gpus = 1024
[[tiers]]
name = "node"
link = "nvlink4"
{inner}
[[tiers]]
name = "network"
link = "infiniband-ndr"
ports_per_gpu = 2
{outer}
"""


@pytest.mark.parametrize(
    ("inner", "outer", "sizes"),
    [
        ("size = 8", "", (8, 1024)),
        ("size = 8", "size = 64", (8, 64)),
        ("", "", None),  # only the last may leave its size out
        ("size = 8", "size = 8", None),
        ("size = 8", "size = 9", (8, 9)),
    ],
)
def test_tiers_of_a_file_grow(tmp_path: Path, inner: str, outer: str, sizes: tuple[int, int] | None) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CLUSTER.format(inner=inner, outer=outer), encoding="utf-8")
    if sizes is None:
        with pytest.raises(InvalidFile, match=r"tiers\[[01]\].size"):
            load_cluster(str(path))
        return
    found = load_cluster(str(path))
    assert tuple(tier.size for tier in found.tiers) == sizes
    one = load_cluster("dgx-h100").tiers[1].link.bandwidth
    assert found.tiers[1].link.bandwidth == 2 * one
    assert found.device.name == load_cluster("dgx-h100").device.name


@pytest.mark.parametrize(
    ("values", "letters"),
    [
        ({}, "eeeeee"),
        ({"moe_layer_freq": [0, 1, 1, 0]}, "deeddd"),
        ({"moe_layer_freq": 2}, "ededed"),
        ({"first_dense_layers": 2}, "ddeeee"),
        ({"moe_start": 1, "moe_end": 3}, "deeedd"),
        ({"moe_end": -1}, "eeeeee"),
        ({"moe_every": 3}, "ddedde"),
        ({"moe_interval": 2, "moe_start": 1}, "dedede"),
        ({"expert_period": 3, "expert_offset": 1}, "dedded"),
        ({"dense_layers": [0, 5]}, "deeeed"),
        ({"moe_layers": [2]}, "ddeddd"),
    ],
)
def test_which_layers_have_experts(values: dict[str, Any], letters: str) -> None:
    usual = {"moe_layer_freq": 1, "first_dense_layers": 0, "moe_start": 0, "moe_every": 1, "moe_interval": 1}
    assert _letters(config(**{**usual, "dense_layers": [], **values})) == letters


def test_ranks_follow_from_bandwidths() -> None:
    """Of 100 GB/s: times 2 (n - 1) / n for all-reduce, (n - 1) / n for the others."""
    columns = ["size", "count", "type", "algbw", "busbw"]
    for kind, bus, ranks in (("all_reduce", 175.0, 8), ("all_gather", 87.5, 8), ("all_to_all", 75.0, 4)):
        assert _possible_ranks(kind, [f"1 1 float 100.00 {bus:.2f}"], columns) == [ranks]
    assert _possible_ranks("broadcast", ["1 1 float 100.00 100.00"], columns) == []


def test_recurrences_of_a_config_by_their_keys_and_what_is_usual() -> None:
    def read(kind: str, **values: Any) -> Recurrence:
        return recurrence_of(config(hidden=1600, heads=20, state_conv=4, **values), kind)

    mamba = read("mamba", state_size=16)
    assert (mamba.heads, mamba.head_dim, mamba.state_dim, mamba.rank, mamba.conv_kernel) == (1, 3200, 16, 100, 4)
    assert read("mamba", state_size=16, state_rank=7, state_expand=3).rank == 7
    assert read("mamba", state_size=16, state_expand=3).head_dim == 4800
    assert read("mamba", state_size=16, state_width=2000).head_dim == 2000
    assert recurrence_of(config(hidden=1601, state_conv=4, state_size=16), "mamba").rank == 101
    second = read("mamba2", state_size=128, state_heads=50)
    assert (second.heads, second.head_dim, second.groups, second.chunk) == (50, 64, 1, 64)
    own = read("mamba2", state_size=128, state_heads=50, state_head_dim=32, state_groups=8, state_chunk=256)
    assert own == replace(second, head_dim=32, groups=8, chunk=256)
    lightning = read("lightning")
    assert (lightning.heads, lightning.head_dim, lightning.groups, lightning.conv_kernel, lightning.chunk) == (
        *(20, 80, 20, 0, 256),
    )
    short = read("short-convolution")
    assert (short.heads, short.head_dim, short.conv_kernel) == (1, 1600, 4)
    keys = {"linear_value_heads": 32, "linear_value_dim": 128, "linear_key_heads": 16, "linear_key_dim": 64}
    delta = read("gated-delta", **keys)
    assert (delta.heads, delta.head_dim, delta.groups, delta.state_dim, delta.rank, delta.conv_kernel) == (
        *(32, 128, 16, 64, 0, 4),
    )
    assert (read("kimi-delta", **keys).rank, read("kimi-delta", **keys, linear_conv=3).conv_kernel) == (128, 3)
    with pytest.raises(ValueError, match="mamba_d_state: missing"):
        read("mamba")


def test_values_behind_aliases_count_each_time() -> None:
    """A list of ten, ten times in another, and so on: 1 + 10 (1 + 10 (...)); names count too."""
    tens = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for level in range(1, 6):
        tens.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
        text = "\n".join(tens)
        held = 1 + sum(1 + sum(10**power for power in range(depth + 2)) for depth in range(level + 1))
        if held <= MOST:
            assert len(yaml_nodes(text, "it")) == 1
            (root,) = yaml_nodes(text, "it")
            assert _size(root, {}, 0) == held
        else:
            with pytest.raises(InvalidFile, match="every alias spelt out"):
                yaml_nodes(text, "it")
    assert held > MOST
    with pytest.raises(InvalidFile, match="not YAML"):
        yaml_nodes("a: &a [*a]", "it")


@pytest.mark.parametrize(
    ("values", "kv_heads", "head_dim", "v_head_dim"),
    [
        ({}, 8, 32, 0),
        ({"kv_heads": 2, "head_dim": 64}, 2, 64, 0),
        ({"v_head_dim": 16}, 8, 32, 16),
        ({"v_head_dim": 32}, 8, 32, 0),  # as wide as a key
        ({"global_kv_heads": 4, "global_head_dim": 128, "kv_heads": 2}, 4, 128, 0),
        ({"multi_query": True}, 1, 32, 0),
        ({"multi_query": False, "kv_heads": 2}, 8, 32, 0),
        ({"multi_query": True, "new_decoder_architecture": True, "kv_heads": 2}, 2, 32, 0),
    ],
)
def test_heads_of_keys_and_values(values: dict[str, Any], kv_heads: int, head_dim: int, v_head_dim: int) -> None:
    found = _grouped(config(hidden=256, heads=8, **values), {})
    assert found == {"kv_heads": kv_heads, "head_dim": head_dim, "v_head_dim": v_head_dim}


def test_heads_that_do_not_divide_the_width_need_a_width_of_their_own() -> None:
    with pytest.raises(ValueError, match="give head_dim"):
        _grouped(config(hidden=250, heads=8), {})
    assert _grouped(config(hidden=250, heads=8, head_dim=30), {})["head_dim"] == 30
    assert _grouped(config(hidden=250, heads=8), {"rounds_heads": True})["head_dim"] == 31
