"""Fitting a link to collectives: it finds back what made them, and improves on a preset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.calibration.link import fit_link, predicted, scaled_link
from optimizer.catalog.readers.nccl_tests import CollectiveSample, read_nccl_tests
from optimizer.job.hardware import Link

DATA = Path(__file__).resolve().parents[1] / "catalog" / "readers" / "data"
NVLINK3 = Link(name="nvlink3", bandwidth=300e9, latency=1e-6)
NDR = Link(name="infiniband-ndr", bandwidth=50e9, latency=2e-6, efficiency=0.96)


def samples(link: Link, scale_up: Link | None, ranks: tuple[int, ...]) -> tuple[CollectiveSample, ...]:
    """Exact samples of a link, as a perfect measurement would give them."""
    asked = tuple(
        CollectiveSample(kind=kind, message=float(message), time=1.0, ranks=count)
        for kind in ("all_reduce", "all_gather", "all_to_all")
        for count in ranks
        for message in 2.0 ** np.arange(12, 33, 2)
    )
    times = predicted(asked, link, scale_up, 8)
    return tuple(replace(sample, time=float(time)) for sample, time in zip(asked, times, strict=True))


@pytest.mark.parametrize(("scale_up", "ranks"), [(None, (2, 4, 8)), (NVLINK3, (16, 64))])
def test_finds_back_the_factors(scale_up: Link | None, ranks: tuple[int, ...]) -> None:
    base = NDR if scale_up else NVLINK3
    truth = scaled_link(base, 0.9, 2.0, 1.3, network=scale_up is not None)
    fit = fit_link(samples(truth, scale_up, ranks), base, scale_up=scale_up)
    assert fit.link.efficiency == pytest.approx(truth.efficiency, rel=0.01)
    assert fit.link.quantities["ring_simple_latency"] == pytest.approx(
        truth.quantities["ring_simple_latency"], rel=0.05
    )
    assert np.abs(fit.residuals).max() < 0.02 < np.abs(fit.before).max()


def test_a_link_scaled_by_one_predicts_the_same() -> None:
    for base, scale_up, ranks in ((NVLINK3, None, (4, 8)), (NDR, NVLINK3, (16, 32))):
        asked = samples(base, scale_up, ranks)
        same = predicted(asked, scaled_link(base, 1.0, 1.0, 1.0, network=scale_up is not None), scale_up, 8)
        assert same == pytest.approx([sample.time for sample in asked], rel=1e-9)


def test_a_real_log_of_an_a100_node() -> None:
    """An older NCCL with slower small messages: 44 us at 32 KB where the preset's measurements took 26."""
    fit = fit_link(read_nccl_tests(DATA / "nccl_all_reduce_a100.txt"), NVLINK3)
    assert fit.link.name == "nvlink3-fitted"
    assert len(fit.samples) == 20
    assert fit.median_error < float(np.median(np.abs(np.expm1(fit.before)))) + 1e-9
    assert fit.median_error < 0.15
    assert fit.link.provenance["efficiency"].source == "fitted to nccl-tests"


def test_too_few_samples() -> None:
    with pytest.raises(InputError, match="four or more"):
        fit_link([CollectiveSample(kind="all_reduce", message=1e6, time=1e-4, ranks=8)], NVLINK3)
