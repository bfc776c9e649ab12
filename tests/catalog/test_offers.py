"""The price book: which row is taken, users' quotes before it, ages, and files that cannot be used."""

from __future__ import annotations

import datetime
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.catalog.offers import (
    OFFERS,
    RENTS,
    SALES,
    Offer,
    PriceBook,
    book_of,
    load_offers,
    median,
    quote,
    read_quotes,
)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quotes.csv"
HEAD = "device,term,value,unit\n"


def test_every_row_has_source_date_grade_and_a_price_that_can_be() -> None:
    seen = set()
    for offer in load_offers():
        assert offer.low <= offer.value <= offer.high
        assert offer.source, offer.row
        assert offer.age(datetime.date(2030, 1, 1)), offer.row
        assert offer.grade in ("A", "B", "C")
        if offer.term in RENTS:
            assert 0.3 < offer.value * 3600 < 20
        else:
            assert 1e3 < offer.value < 1e5
        seen.add((offer.provider, offer.offer, offer.region, offer.device, offer.cluster, offer.term))
    assert len(seen) == len(load_offers())


def test_a_row_is_where_it_says() -> None:
    lines = dict(csv_rows(presets_folder() / OFFERS))
    for offer in load_offers():
        cells = lines[int(offer.row.removeprefix("presets/offers.csv line "))]
        size = 3600.0 if offer.term in RENTS else 1.0
        assert float(cells["value"]) / float(cells["gpus"]) == pytest.approx(offer.value * size)
        assert cells["term"] == offer.term


@pytest.mark.parametrize("device", ["h100", "h200", "b200", "gb200", "a100-80", "mi300x"])
def test_the_median_over_providers_is_taken_each_with_its_cheapest_recent_offer(device: str) -> None:
    book = PriceBook()
    found = book.rent(device)
    assert found is not None
    usual = [o for o in load_offers() if o.device == device and o.term == "on_demand" and o.fabric and not book.old(o)]
    cheapest = {o.provider: min(p.value for p in usual if p.provider == o.provider) for o in usual}
    assert found.value == pytest.approx(statistics.median(cheapest.values()))
    assert found.fabric
    assert not book.old(found)


def test_what_lies_between_two_offers_says_so_and_is_sold_and_dated_as_the_worse() -> None:
    def offer(provider: str, price: float, date: str, sold: tuple[int, ...]) -> Offer:
        own = quote("h100", "on_demand", price / 3600, row=f"row of {provider}")
        return replace(own, provider=provider, grade="A", date=date, sold=sold, source=provider)

    cheap, middle, dear = offer("a", 1, "2026-11", ()), offer("b", 2, "2026-10", (72,)), offer("c", 4, "2026-09", ())
    assert median([cheap, middle, dear]) == [middle]
    assert median([]) == []
    (between,) = median([cheap, middle])
    assert between.value * 3600 == pytest.approx(1.5)
    assert (between.provider, between.date, between.sold) == ("a and b", "2026-10", (72,))
    assert between.row == "row of a and row of b"
    assert between.of == (cheap, middle)


def test_old_offers_count_where_no_other_is_known() -> None:
    (offer,) = [item for item in load_offers() if item.row == PriceBook().rent("mi300x").row]
    before = replace(offer, date="2020-01", value=offer.value / 2, provider="before")
    assert PriceBook(offers=(offer, before)).rent("mi300x") is offer
    assert PriceBook(offers=(before,)).rent("mi300x") is before


def test_one_term_is_found_that_every_machine_has() -> None:
    book = PriceBook()
    assert book.comparable([("h100", "dgx-h100"), ("b200", "dgx-b200")]).first == "on_demand"
    year = book.comparable([("h100", "dgx-h100"), ("mi325x", "")])
    assert year.first == "reserved_1y"
    assert {year.rent("h100").term, year.rent("mi325x").term} == {"reserved_1y"}
    quoted = book.with_quotes([quote("mi325x", "spot", 1.0 / 3600, row="mine")])
    mixed = quoted.comparable([("h100", "dgx-h100"), ("mi325x", "")])
    assert (mixed.first, mixed.rent("mi325x").term) == ("on_demand", "spot")
    assert book.comparable([("h100", ""), ("h800", "")]) == book


def test_a_machine_s_own_offer_comes_first_and_a_provider_s_where_it_is_named() -> None:
    for cluster in ("p5", "a3-high", "nd-h100-v5"):
        found = PriceBook().rent("h100", cluster)
        assert found is not None
        assert found.cluster == cluster
    named = book_of(provider="RunPod").rent("h100")
    assert named is not None
    assert not named.fabric
    assert named.provider == "RunPod"


def test_terms_bind_as_little_as_the_book_allows() -> None:
    only_year = PriceBook().rent("mi325x")
    assert only_year is not None
    assert only_year.term == "reserved_1y"
    assert only_year.commitment == pytest.approx(365.25 * 86400)
    assert PriceBook(term="on_demand").rent("mi325x") is None
    block = PriceBook(term="capacity_block").rent("h100")
    assert block is not None
    assert block.value * 3600 == pytest.approx(5.2)


@pytest.mark.parametrize("device", ["h100", "b200", "mi300x", "tpu-v6e", "l40s"])
def test_the_user_s_quote_is_taken_whatever_it_says(device: str) -> None:
    for term in RENTS:
        own = quote(device, term, 99.0 / 3600, row="mine")
        assert PriceBook().with_quotes([own]).rent(device) is own
    dear, cheap = (quote(device, "spot", price, row=str(price)) for price in (2.0, 1.0))
    assert PriceBook().with_quotes([dear, cheap]).rent(device) is cheap
    assert PriceBook(term="spot").with_quotes([dear]).rent("h200") is not dear


def test_sales_prefer_whole_machines() -> None:
    book = PriceBook()
    terms = {}
    for device, cluster in (("h100", "dgx-h100"), ("mi300x", "mi300x-8"), ("h800", "")):
        found = book.sale(device, cluster)
        assert found is not None
        terms[device] = found.term
    assert terms == {"h100": "purchase", "mi300x": "baseboard", "h800": "chip"}
    assert set(terms.values()) == set(SALES)
    assert book.sale("b300", "dgx-b300") is None


def test_the_example_is_read() -> None:
    year, rack = read_quotes(EXAMPLE)[1:]
    assert year.value * 3600 == pytest.approx(1.90)
    assert year.commitment == pytest.approx(365.25 * 86400)
    assert year.pue == 1.12
    assert rack.value == pytest.approx(3.35e6 / 72)
    assert (rack.sold, rack.sold_as, rack.residual) == ((72,), "rack", 0.15)
    assert rack.electricity == pytest.approx(0.071 / 3.6e6)
    assert rack.row == f"{EXAMPLE} line 8"
    assert book_of(EXAMPLE).sale("gb200", "gb200-nvl72") == rack


def test_ages_count_from_the_first_day_that_a_date_can_mean() -> None:
    offer = load_offers()[0]
    today = datetime.date(2026, 3, 1)
    ages = {date: replace(offer, date=date).age(today) for date in ("2026-02-28", "2026-02", "2026", "")}
    assert ages == {"2026-02-28": 1, "2026-02": 28, "2026": 59, "": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "has no row"),
        (HEAD + "h100,monthly,2,USD/h\n", "must be one of on_demand"),
        (HEAD + "h1000,spot,2,USD/h\n", "line 2"),
        (HEAD + ",spot,2,USD/h\n", "neither a device nor a cluster"),
        (HEAD + "h100,spot,two,USD/h\n", "value"),
        (HEAD + "h100,spot,-2,USD/h\n", "above zero"),
        (HEAD + "h100,spot,2,USD\n", r"\[USD\]; a price of term spot is in \[USD/s\]"),
        ("device,term,value,colour\nh100,spot,2,red\n", "unknown column 'colour'"),
        ("device,term,value,date\nh100,spot,2,May\n", "2026-07-16"),
        ("device,term,value,residual\nh100,purchase,2,1.5\n", "residual must be below 1"),
        ("device,cluster,term,value\nb200,dgx-h100,purchase,2\n", "which is h100"),
        ("device,cluster,term,value\n,dgx-h1000,purchase,2\n", "no cluster preset"),
        ("device,term,value,sold\nh100,spot,2,eight\n", "sold together"),
        ("device,term,value,low\nh100,spot,2,3\n", "must lie between"),
        (HEAD + "h100,spot,1e12,USD/h\n", "line 2: 1e.12 USD for a GPU-hour is above 10,000"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "quotes.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFile, match=message):
        read_quotes(path)


def test_unknown_terms_providers_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown term"):
        book_of(term="weekly")
    with pytest.raises(InputError, match="no offer of 'nobody'"):
        book_of(provider="nobody")
    with pytest.raises(InputError, match=r"^--rent h100=1e12: 1e.12 USD for a GPU-hour is above 10,000"):
        quote("h100", "on_demand", 1e12 / 3600, row="--rent h100=1e12")
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_quotes(tmp_path / "none.csv")
