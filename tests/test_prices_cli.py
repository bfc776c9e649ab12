"""One price book for every command: the same job costs the same to the cent, and each price leads to its row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.catalog.offers import load_offers
from optimizer.cli import cli

pytestmark = pytest.mark.usefixtures("planned_once")
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "quotes.csv"
KINDS = ("h100", "b200", "mi300x")
BUYER = ["pareto", "--model", "llama3-8b", "--tokens", "15e12", "--gpus", "16", "--json", "--hardware"]
STUDY = """
models = "llama3-8b"
devices = ["h100", "b200", "mi300x"]
gpus = 16
token_budget = 15e12
"""


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "buyer.toml"
    path.write_text(STUDY, encoding="utf-8")
    invoke("batch", str(path), "--store", str(path.with_suffix(".db")), "--workers", "1", "--export", "json")
    return path


@pytest.mark.parametrize(
    "options", [[], ["--term", "reserved_1y"], ["--provider", "oci"], ["--prices", str(EXAMPLE)]], ids=str
)
def test_batch_and_pareto_agree_to_the_cent(study: Path, options: list[str]) -> None:
    stored = ("--store", str(study.with_suffix(".db")))
    jobs = json.loads(invoke("batch", "show", str(study), *stored, "--export", "json", *options))
    batch = {job["job"]["device"]: job["costs"] for job in jobs}
    found = json.loads(invoke(*BUYER, ",".join(KINDS), *options))
    quotes = {quote["kind"]: quote for quote in found["quotes"]}
    assert {point["device"] for point in found["points"]} == set(KINDS)
    for point in found["points"]:
        costs = batch[point["device"]]
        assert round(point["cost_usd"], 2) == round(costs["train_usd"], 2)
        assert point["time_to_train_days"] == pytest.approx(costs["train_days"], rel=1e-12)
        assert quotes[point["device"]]["row"] == costs["price_row"]
        assert point["tokens_per_joule"] == pytest.approx(costs["tokens_per_joule"], rel=1e-12)
        assert costs["tokens_per_usd"] == pytest.approx(point["tokens"] / point["cost_usd"])


@pytest.mark.parametrize("winner", KINDS)
def test_a_made_up_price_book_makes_each_device_win(tmp_path: Path, winner: str) -> None:
    prices = tmp_path / "prices.csv"
    rows = "".join(f"{kind},on_demand,{0.3 if kind == winner else 30},USD/h\n" for kind in KINDS)
    prices.write_text("device,term,value,unit\n" + rows, encoding="utf-8")
    found = json.loads(invoke(*BUYER, ",".join(KINDS), "--prices", str(prices)))
    cheapest = min(found["points"], key=lambda point: point["cost_usd"])
    assert cheapest["device"] == found["advised"]["device"] == winner


def test_a_long_commitment_is_never_silent() -> None:
    arguments = [word for word in BUYER if word != "--json"]
    text = " ".join(invoke(*arguments, "h100", "--gpus", "4096", "--term", "reserved_1y").split())
    assert "priced at a rate that binds for 365 days" in text
    assert "Its cost here holds only if the rest is used or sold" in text
    assert "the provider may take the GPUs back" in invoke(*arguments, "h100", "--gpus", "4096", "--term", "spot")
    assert "binds for" not in invoke(*arguments, "h100", "--gpus", "4096")


def test_the_book_is_listed_with_what_is_old() -> None:
    result = CliRunner().invoke(cli, ["prices", "--device", "h100", "--json", "--prices", str(EXAMPLE)])
    offers = json.loads(result.stdout)["offers"]
    assert {offer["device"] for offer in offers} == {"h100"}
    assert [offer["row"] for offer in offers if offer["taken"]] == [f"{EXAMPLE} line 6"]
    assert any(offer["old"] for offer in offers)
    assert "older than 180 days" in result.stderr
    table = invoke("prices", "--device", "gb200")
    assert "CoreWeave" in table
    (offer,) = (o for o in load_offers() if (o.provider, o.device) == ("CoreWeave", "gb200"))
    assert offer.row.removeprefix("presets/offers.csv ") in table
    assert "rows of presets/offers.csv" in table
