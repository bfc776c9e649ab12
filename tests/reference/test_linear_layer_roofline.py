"""The roofline of a linear layer under two-dimensional tensor parallelism.

What is wrong or inconsistent in the document, and what is used here:

* Its last call passes d_in, d_out, tp_in, ... to a method that takes a layer and b: the notebook was edited after the
  number was printed. The number is what the method gives for a layer with those values.
* 900 GB/s is NVLink's duplex figure. 3 (p - 1) n / p words count one send and two receives, so the sum of both
  directions fits that figure; but receives alone (2 of 3) at 450 GB/s take longer than the products, and the layer is
  network-bound, not compute-bound as its number is.
* tp_in x tp_out = 8 x 40 = 320 GPUs do not share an NVLink domain of eight: the reduction over 40 crosses nodes.
* It assumes b / dp much smaller than the tile's sides; here they are 1024 tokens against 2048 x 2048.
* Memory traffic leaves out dL/dY and X of the forward pass and stores gradients in the width of the weights; gradients
  are usually accumulated in fp32. 3352 GB/s is the datasheet's 3.35 TB/s.
* 1979e12 is the dense 8-bit peak: 2 bytes halve it to 989.5e12, as it should be for bf16.
"""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_device
from optimizer.objectives.kernels.roofline import LinearLayer, RooflineRates, forward_backward_work, gradient_work

UTILISATION = 0.8
RATES = RooflineRates(flops=UTILISATION * 1979e12 / 2, memory=UTILISATION * 3352e9, network=900e9)
LAYER = LinearLayer(inputs=16384, outputs=5 * 16384, tp_in=8, tp_out=40, dp=32, element_bytes=2)
TOKENS = 2048**2 / 128


def test_forward_and_backward() -> None:
    work = forward_backward_work(LAYER, TOKENS)
    assert work.time(RATES) == pytest.approx(3.2554072481051035e-05, rel=1e-12)
    assert work.bound(RATES) == "compute"
    assert work.flops == 6 * 2048 * 2048 * 1024


def test_memory_and_network_by_hand() -> None:
    """Tile 2048 x 2048 = 4 Mi elements, 1 Ki tokens: 2 Mi elements of activations on either side."""
    tile, activations = 2048 * 2048, 2048 * 1024
    reduced = 3 * activations * (7 / 8 + 39 / 40)
    work = forward_backward_work(LAYER, TOKENS)
    assert work.network == pytest.approx(2 * reduced)
    assert work.memory == pytest.approx(2 * (4 * tile + activations + reduced))


def test_gradient_all_reduce_at_the_end_of_a_batch() -> None:
    """3 x 31/32 x 4 Mi words of 2 B over 900 GB/s: 27.1 us, three times what the memory needs."""
    work = gradient_work(LAYER)
    assert work.time(RATES) == pytest.approx(3 * 31 / 32 * 2048 * 2048 * 2 / 900e9, rel=1e-12)
    assert work.bound(RATES) == "network"
    assert gradient_work(LinearLayer(inputs=16384, outputs=81920)).time(RATES) == 0.0


def test_receives_at_the_one_way_bandwidth_make_it_network_bound() -> None:
    one_way = RooflineRates(flops=RATES.flops, memory=RATES.memory, network=450e9)
    work = forward_backward_work(LAYER, TOKENS, passes=2.0)
    assert work.bound(one_way) == "network"
    assert work.time(one_way) == pytest.approx(3.4487e-5, rel=1e-4)


def test_the_halved_8_bit_peak_is_the_preset() -> None:
    assert load_device("h100").peak("bf16") == 1979e12 / 2


def test_a_degree_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="tp_in must be at least 1, but got 0"):
        LinearLayer(inputs=1, outputs=1, tp_in=0)
