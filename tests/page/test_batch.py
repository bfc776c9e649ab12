"""The jobs of a store in a browser: filters, order, and links to Plan."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from urllib.parse import parse_qsl

import pytest

from optimizer.base.errors import InputError
from optimizer.page.plan.question import asked as plan_asked
from optimizer.page.studies.batch import ORDERS, batch_view, plan_address
from optimizer.page.studies.question import asked
from optimizer.sweep.results import nested
from optimizer.sweep.store import Store
from tests.browser import axe
from tests.page.conftest import ROOT, ended, started

STUDY = """
name = "small"
models = ["llama3-8b", "gpt3-6.7b"]
clusters = ["dgx-h100"]
gpus = [8, 16]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of four jobs."""
    folder = tmp_path_factory.mktemp("batch")
    (folder / "small.toml").write_text(STUDY, encoding="utf-8")
    command = [sys.executable, "-m", "optimizer", "batch", "small.toml", "--store", "small.db", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    return str(folder / "small.db")


def rows_of(shown: dict[str, Any]) -> list[str]:
    """The first cell of each row."""
    return [
        each.partition("</th>")[0].rpartition('">')[2].removesuffix("</a>")
        for each in shown["answer"].split('<th scope="row">')[1:]
    ]


def test_filters_and_order_and_the_command(store: str) -> None:
    shown = batch_view(asked("batch", [], store))
    assert shown["title"] == "4 of 4 jobs"
    assert [name for name in ("model", "gpus", "cluster") if f"where.{name}" in shown["put"]["where"]] == [
        "model",
        "gpus",
    ]
    asks = asked("batch", [("sort", "GPUs"), ("where.model", "gpt3-6.7b")], store)
    assert rows_of(batch_view(asks)) == ["gpt3-6.7b, dgx-h100"] * 2
    assert asks.flags() == f"optimize batch show --store {store} --where model=gpt3-6.7b"
    assert rows_of(batch_view(asked("batch", [("sort", "GPUs")], store)))[0] == "llama3-8b, dgx-h100"
    assert "USD" not in shown["answer"]
    of_a_run = asked("batch", [("tokens", "1T")], store)
    assert of_a_run.flags().endswith("--tokens 1T")
    assert ">days</th>" in batch_view(of_a_run)["answer"]
    assert "No job is like that" in batch_view(asked("batch", [("where.gpus", "9")], store))["answer"]
    with pytest.raises(InputError, match="unknown column 'nothing'"):
        batch_view(asked("batch", [("where.nothing", "9")], store))


def test_jobs_come_best_first_and_those_without_an_answer_last() -> None:
    more = {"mfu": 0.3, "tokens_per_usd": 2e6, "tokens_per_joule": 4.0, "step_time_s": 2.0, "gpus": 8}
    less = {"mfu": 0.2, "tokens_per_usd": 1e6, "tokens_per_joule": 3.0, "step_time_s": 3.0, "gpus": 16}
    none = dict.fromkeys(more) | {"gpus": 64}
    for name, order in ORDERS.items():
        assert sorted((none, less, more), key=order) == [more, less, none], name


def test_a_link_asks_what_the_job_asked(store: str) -> None:
    opened = Store(store, read_only=True)
    for row in opened.rows():
        whole = nested(row)["job"]
        job, _ = plan_asked(parse_qsl(plan_address(whole))).job()
        assert (job.model.name, job.gpus, job.global_batch, job.seq_len, job.cluster.name) == tuple(
            whole[name] for name in ("model", "gpus", "global_batch", "seq_len", "cluster")
        )
    opened.close()
    pinned = {"fixed": {"tp": 8}, "ranges": {"pp": [2, 8]}, "choices": {"vpp": [1, 2]}, "oom_risk": 0.05}
    address = plan_address({"model": "gpt3", "cluster": "dgx-h100", "gpus": 64, "limits": pinned})
    assert plan_asked(parse_qsl(address)).flags().endswith("--fix pp=2..8 --fix vpp=1,2 --trials 0")
    assert plan_address({"model": "./mine.json", "cluster": "dgx-h100", "gpus": 64}) == ""


def test_a_buyer_filters_and_opens_a_job_in_plan(visit: Any, store: str) -> None:
    served = started("--store", store)
    try:
        visitor = visit()
        page = visitor.page
        page.goto(served.room("/batch/"))
        page.wait_for_selector("#answer[data-answered]")
        before = visitor.answers()
        page.get_by_label("Model").select_option("llama3-8b")
        visitor.answered(before)
        assert visitor.headline == "2 of 4 jobs"
        assert axe(page) == []
        page.get_by_role("button", name="Undo").click()
        page.wait_for_function("document.querySelector('.headline').textContent === '4 of 4 jobs'")
        page.get_by_role("link", name="llama3-8b").first.click()
        page.wait_for_selector("#answer[data-answered]:not([data-pending]) .drawn")
        assert "8 × h100" in visitor.headline
        page.goto("about:blank")  # which asks the server for nothing while it ends
    finally:
        ended(served)
