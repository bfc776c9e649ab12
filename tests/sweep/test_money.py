"""What a row of a batch costs, by a rent of a hand's numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.catalog import load_cluster
from optimizer.catalog.offers import quote
from optimizer.purchase.price import run_cost
from optimizer.sweep import money
from optimizer.sweep.money import COSTS, costs

DEVICE = load_cluster("dgx-h100").device.name
OFFER = quote(DEVICE, "on_demand", 2.0000004 / 3600, row="a row")


class Book:
    """A price book with one offer, or none."""

    def __init__(self, *offers: Any) -> None:
        self.offers = offers

    def rent(self, device: str, cluster: str) -> Any:
        assert (device, cluster in ("dgx-h100", "")) == (DEVICE, True)
        self.cluster = cluster
        return next(iter(self.offers), None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was rented: a run of 100,000 USD and two days, half of them good."""
    rents: list[Any] = []

    def rental(*args: Any, **options: Any) -> Any:
        rents.append((args, options))
        return SimpleNamespace(cost=1e5, time=SimpleNamespace(goodput=0.5, wall=2 * 86400.0))

    monkeypatch.setattr(run_cost, "rental", rental)
    monkeypatch.setattr(money, "_per_joule", lambda *_: 7.0)
    return rents


def of(book: Any, budget: float, *, planned: bool = True, **job: Any) -> dict[str, Any]:
    asked = {"device": DEVICE, "cluster": "dgx-h100", "gpus": 16, "params": 3e9} | job
    return costs({"job": asked, "estimate": {"tokens_per_s_per_gpu": 500.0} if planned else None}, budget, book)


def test_a_run_of_tokens_is_priced(asked: list[Any]) -> None:
    book = Book(OFFER)
    found = of(book, 4e9)
    assert book.cluster == "dgx-h100"
    assert found == dict.fromkeys(COSTS) | {
        "usd_per_gpu_hour": 2.0,
        "usd_per_mtoken": 25.0,
        "train_days": 2.0,
        "gpu_hours": 16 * 48.0,
        "train_usd": 1e5,
        "goodput": 0.5,
        "tokens_per_usd": 4e4,
        "tokens_per_joule": 7.0,
        "price_offer": OFFER.title(),
        "price_row": "a row",
    }
    assert asked == [((4e9 / 8000.0, 16, 8, OFFER), {"params": 3e9, "cluster": "dgx-h100"})]


def test_without_a_budget_it_is_a_million_tokens(asked: list[Any]) -> None:
    found = of(Book(OFFER), 0.0, params=None, cluster=None)
    told = {name for name, value in found.items() if value is not None}
    assert told == {*COSTS} - {"train_days", "gpu_hours", "train_usd"}
    assert (found["usd_per_mtoken"], found["tokens_per_usd"]) == (1e5, 10.0)
    assert asked == [((125.0, 16, 1, OFFER), {"params": 0.0, "cluster": ""})]


def test_without_an_offer_only_time_is_told_and_without_a_plan_only_the_offer(asked: list[Any]) -> None:
    told = {name: value for name, value in of(Book(), 4e9).items() if value is not None}
    assert told == {"goodput": 0.5, "train_days": 2.0, "gpu_hours": 768.0}
    assert asked[0][0][3].value == 0.0
    unplanned = {name for name, value in of(Book(OFFER), 4e9, planned=False).items() if value is not None}
    assert unplanned == {"usd_per_gpu_hour", "price_offer", "price_row"}
    assert len(asked) == 1


def test_tokens_for_a_joule_need_the_parts_of_the_step_and_a_known_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from optimizer.purchase.designs import figures

    taken: list[Any] = []
    monkeypatch.setattr(figures, "usual_tokens_per_joule", lambda *args: taken.append(args) or 3.0)
    cluster = load_cluster("dgx-h100")
    mean_gpu = {"compute_s": 1.0, "stream_s": 0.5, "utilisation": 0.9}
    estimate = {"tokens_per_s_per_gpu": 500.0, "step_time_s": 4.0, "time_s": {"gemm": 1.0}}
    whole = {"job": {"gpus": 16}, "estimate": estimate, "mean_gpu": mean_gpu}
    assert money._per_joule(whole, OFFER, cluster, 0.5) == 3.0
    ((design, offer, times, busy, tokens, goodput),) = taken
    assert (design.gpus, design.dtype, offer, times, tokens, goodput) == (16, "bf16", OFFER, {"gemm": 1.0}, 2000.0, 0.5)
    assert (busy.compute, busy.stream, busy.utilisation) == (1.0, 0.5, 0.9)
    for less in (whole | {"mean_gpu": None}, whole | {"estimate": {"step_time_s": 4.0}}):
        assert money._per_joule(less, OFFER, cluster, 0.5) is None
    assert money._per_joule(whole, OFFER, None, 0.5) is None
