"""The other tabs in a real browser: what a visitor does there, and what every tab has in common."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser import axe
from tests.page.conftest import ROOT, Served
from tests.page.test_own_files import CLUSTER, MODEL

TABS = ("plan", "fits", "improve", "buy", "learn")
SCRIPT, LOG = ROOT / "examples" / "llama3-8b.sh", ROOT / "examples" / "slow-run.log"
BUY = "model=llama3-8b&tokens=1e12&hardware=h100&hardware=b200&gpus=64,128"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_keeps_its_policy_and_nobody_out_at_any_width(served: Served, visit: Any, scheme: str) -> None:
    visitor = visit(strict=True, scheme=scheme)
    page = visitor.page
    page.goto(served.room("/"))
    for tab in TABS:
        page.get_by_role("link", name=tab.capitalize(), exact=True).click()
        page.wait_for_selector(f"nav a[href='/{tab}/'][aria-current=page]")
        page.wait_for_load_state("load")
        page.wait_for_selector({"improve": ".start", "learn": "#stand dl"}.get(tab, "#answer .headline"))
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 25, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
        for width in (1440, 420):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") == width
        assert axe(page) == []
        page.set_viewport_size({"width": 1440, "height": 1000})


NUMBERED = """() => {
    for (const each of document.querySelectorAll("details:not([data-view])")) each.open = true;
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
    const can = all.filter((each) => !each.matches(":disabled, [type=hidden]") && each.checkVisibility());
    can.forEach((each, at) => (each.dataset.number = each.type === "radio" ? each.name : at)); // a group is one
    return new Set(can.map((each) => each.dataset.number)).size;
}"""
FOCUSED = """() => {
    const each = document.activeElement, box = each.getBoundingClientRect(), style = getComputedStyle(each);
    const at = document.elementFromPoint(box.left + 4, Math.min(Math.max(box.top, 0) + 4, innerHeight - 1));
    const covered = at && at.closest("#short, .stand") && !at.contains(each) && !each.contains(at);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    const seen = ring && box.bottom > 0 && box.top < innerHeight;
    return [each.dataset.number || null, seen && !covered, each.outerHTML.slice(0, 120)];
}"""


@pytest.mark.parametrize("width", [1440, 420])
def test_every_control_is_reached_and_seen_by_keyboard_alone(served: Served, visit: Any, width: int) -> None:
    page = visit(width).page
    page.goto(served.room("/plan/"))
    for tab in TABS:
        page.goto(f"{served.home}/{tab}/")
        answered = {"improve": ".start", "learn": "#stand dl"}.get(tab, "#answer:not([data-pending]) .headline")
        page.wait_for_selector(answered)
        if tab == "improve":
            page.locator("#pasted").focus()
            page.keyboard.insert_text(SCRIPT.read_text(encoding="utf-8"))
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            page.wait_for_selector("#answer .headline")
        for act in (1, 2) if tab == "learn" else ():
            page.locator(f'.act[data-act="{act}"] form.ask input').first.focus()
            for key in ("Space", "ArrowDown", "Enter"):
                page.keyboard.press(key)
            page.wait_for_selector(f'.act[data-act="{act}"] .panel .block:focus')  # where a reader goes on
        reached, hidden, count = set(), [], page.evaluate(NUMBERED)
        for _ in range(count + 3):  # once around, by way of the browser's own
            page.keyboard.press("Tab")
            number, seen, html = page.evaluate(FOCUSED)
            reached |= {number} - {None}
            hidden += [html] if number and not seen else []
        assert (len(reached), hidden) == (count, []), tab


def test_a_script_is_read_patched_shared_and_planned(served: Served, visit: Any) -> None:
    visitor = visit()
    page = visitor.page
    page.goto(served.room("/improve/"))
    page.fill("#pasted", SCRIPT.read_text(encoding="utf-8"))
    page.click("#read-pasted")
    page.wait_for_selector("#answer .headline")
    assert "2.34 s per step" in visitor.headline
    assert "remove --recompute-granularity" in page.locator("#answer").inner_text()
    assert page.locator("#patch-one").inner_text().startswith("--- pasted.sh")
    assert axe(page) == []
    other = visit()
    other.page.goto(served.room("/improve/", page.url.partition("?")[2]))
    other.page.wait_for_selector("#answer .headline")
    assert other.page.locator("#answer").inner_text() == page.locator("#answer").inner_text()
    page.select_option("#in-cluster", "dgx-a100-80")
    page.wait_for_function("document.querySelector('.headline').innerText.includes('a100')")
    page.click("#undo")
    page.wait_for_function("document.querySelector('.headline').innerText.includes('h100')")
    page.click("a.go")
    page.wait_for_selector('details[data-view="mine"] .drawn')
    values = {name: page.input_value(f"#in-{name}") for name in ("model", "gpus", "global_batch", "seq_len")}
    assert values == {"model": "llama3-8b", "gpus": "64", "global_batch": "256", "seq_len": "4096"}
    place = page.url
    page.get_by_role("link", name="Improve", exact=True).click()
    page.wait_for_function("document.querySelector('.headline').innerText.includes('h100')")  # as it was left
    page.get_by_role("link", name="Plan", exact=True).click()
    page.wait_for_selector("#answer:not([data-pending]) .headline")
    assert page.url == place


def test_a_log_and_what_is_none_are_told_apart(served: Served, visit: Any) -> None:
    page = (visitor := visit()).page
    page.goto(served.room("/improve/"))
    page.set_input_files("#in-file", LOG)
    page.wait_for_selector("#answer .headline")
    assert "8.31 s per step" in visitor.headline
    page.fill("#pasted", "cat /etc/passwd")
    page.click("#read-pasted")
    page.wait_for_selector("#problem:not([hidden])")
    assert "no command that is known to train" in page.locator("#problem").inner_text()


def test_files_of_my_own_are_in_the_link_of_the_plan(served: Served, visit: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "my cluster.toml").write_text(CLUSTER)
    visitor = visit()
    visitor.open(served.room(question="model=llama3-8b&gpus=64"))
    page = visitor.page
    page.click("a.carry")
    page.set_input_files("#in-file", [tmp_path / "config.json", tmp_path / "my cluster.toml"])
    page.click("a.go")
    page.wait_for_selector("#answer:not([data-pending]) .drawn")
    assert (page.input_value("#in-cluster"), page.input_value("#in-gpus")) == ("file", "64")
    assert "--model ./model.json" in page.locator("#flags").inner_text()
    before = visitor.answers()
    page.select_option("#in-model", "llama3-8b")
    visitor.answered(before)
    assert visitor.headline.startswith("Llama-3 8B")
    assert "model_file" not in page.url
    assert "cluster_file" in page.url


def test_files_that_are_chosen_before_the_script_of_a_page_runs_are_read(
    served: Served, visit: Any, tmp_path: Path
) -> None:
    (tmp_path / "my cluster.toml").write_text(CLUSTER)
    page = visit().page
    waiting: list[Any] = []
    page.route("**/page.js", lambda route: waiting.append(route))
    page.goto(served.room("/improve/"), wait_until="commit")
    page.set_input_files("#in-file", [tmp_path / "my cluster.toml"])
    while not waiting:
        page.wait_for_timeout(10)
    waiting[0].continue_()
    page.wait_for_selector("a.go")


def test_a_buyer_edits_a_price_in_place_and_takes_the_report(served: Served, visit: Any, tmp_path: Path) -> None:
    page = (visitor := visit()).page
    page.goto(served.room("/buy/", BUY))
    page.wait_for_selector("#answer .headline")
    first = page.locator("#answer .lead").inner_text()
    page.fill("[id='in-rent.h100']", "0.5")
    page.keyboard.press("Tab")
    page.wait_for_function("location.search.includes('rent.h100=0.5')")
    assert page.locator("#answer .lead").inner_text() != first
    assert "--rent h100=0.5" in page.locator("#flags").inner_text()
    assert axe(page) == []
    with page.expect_download() as download:
        page.click(".take a")
    download.value.save_as(tmp_path / "board.html")
    assert "Which machines to take" in (tmp_path / "board.html").read_text(encoding="utf-8")
    assert visitor.errors == []
    page.goto(f"file://{tmp_path / 'board.html'}")
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) == 2
