"""The Plan room in a real browser: what a visitor does, and what then is on the page."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from tests.browser import axe
from tests.page.conftest import Served

VIEWS = ("mine", "map", "pipeline", "scaling", "sensitivity", "runs")
ELSEWHERE = "http://192.0.2.1:9"  # of documentation: nobody's
SMALL = "model=llama3-8b&gpus=64"


def test_what_a_page_asks_for_elsewhere_is_noticed_and_never_arrives(visit: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        f"<img src={ELSEWHERE}/1 onload=\"document.title='in'\" onerror=\"document.title='out'\">"
        f"<script>new WebSocket('ws{ELSEWHERE[4:]}/2')</script>"
    )
    visitor = visit()
    visitor.page.goto((tmp_path / "page.html").as_uri())
    visitor.page.wait_for_function("document.title")
    assert visitor.page.title() == "out"
    assert sorted(visitor.outside) == [f"{ELSEWHERE}/1", f"ws{ELSEWHERE[4:]}/2"]
    assert visitor.errors
    visitor.outside.clear()
    visitor.errors.clear()


def test_a_slider_and_a_lock_change_the_plan_and_undo_takes_them_back(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    page, first, plan = visitor.page, visitor.headline, visitor.plan
    page.locator("#slide-gpus").focus()
    before = visitor.answers()
    page.keyboard.press("ArrowRight")
    visitor.answered(before)
    assert "on 128 × h100" in visitor.headline
    assert "gpus=128" in page.url
    assert page.locator("#short").is_hidden()
    page.set_viewport_size({"width": 420, "height": 900})
    assert page.locator("#short").inner_text() == visitor.headline  # the slider is in sight, and so is its answer
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.locator("details.locks > summary").click()
    before = visitor.answers()
    page.select_option("#lock-tp", "8")
    visitor.answered(before)
    assert visitor.plan.startswith("TP 8")
    assert "fix=tp%3D8" in page.url
    assert "--fix tp=8" in page.locator("#flags").inner_text()
    for _ in range(2):
        before = visitor.answers()
        page.click("#undo")
        visitor.answered(before)
    assert (visitor.headline, visitor.plan) == (first, plan)
    assert page.input_value("#in-gpus") == "64"


def test_undo_after_a_slow_drag_goes_back_to_where_it_began(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    page, first = visitor.page, visitor.headline
    slider = page.locator("#slide-gpus").bounding_box()
    height, stop = slider["y"] + slider["height"] / 2, slider["width"] / 17
    page.mouse.move(slider["x"] + 6 * stop, height)
    page.mouse.down()
    page.mouse.move(slider["x"] + 8 * stop, height)
    page.wait_for_function("first => document.querySelector('.headline').innerText !== first", arg=first)
    assert "gpus=64" in page.url  # it still moves
    before = visitor.answers()
    page.mouse.move(slider["x"] + 10 * stop, height)
    page.mouse.up()
    visitor.answered(before)
    page.wait_for_function("!location.search.includes('gpus=64')")
    before = visitor.answers()
    page.click("#undo")
    visitor.answered(before)
    assert (visitor.headline, page.input_value("#in-gpus")) == (first, "64")


def test_a_link_opened_again_gives_the_same_page(served: Served, visit: Any) -> None:
    one, two = visit(), visit()
    question = (
        f"{SMALL}&cluster=dgx-a100-80&fix=pp%3D2..4%2Ctp%3D2&tokens=1e12&oom_risk=0.05&mine=tp%3D8&show=mine&show=runs"
    )
    one.open(served.room(question=question))
    one.page.wait_for_selector('details[data-view="runs"] table')
    link = one.page.url
    assert "access_token" not in link
    two.open(served.room())
    two.open(link)
    assert two.page.url == link
    two.page.wait_for_selector('details[data-view="runs"] table')
    for visitor in (one, two):
        assert visitor.page.input_value("#lock-tp") == "2"
        assert visitor.page.input_value("#in-fix") == "pp=2..4"
        assert visitor.page.input_value("#in-cluster") == "dgx-a100-80"
        assert "Run of 1 trillion tokens" in visitor.page.locator(".tiles").inner_text()
    assert one.page.locator("#answer").inner_text() == two.page.locator("#answer").inner_text()


def test_every_view_opens_and_nobody_is_kept_out(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    page = visitor.page
    page.locator(".pin").last.click()
    page.wait_for_selector('details[data-view="mine"] .drawn')
    for view in VIEWS[1:]:
        page.locator(f'details[data-view="{view}"] > summary').click()
        page.wait_for_selector(f'details[data-view="{view}"] table', state="attached")
    assert "The best plan with these pins" in page.locator('details[data-view="mine"]').inner_text()
    assert "Best with TP" in page.locator('details[data-view="map"]').inner_text()
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_function("document.documentElement.scrollWidth === 420")
    assert axe(page) == []
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 690, "height": 900})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.documentElement.scrollWidth === 690")
    widths = page.evaluate("[...document.querySelectorAll('.later .drawn')].map(e => e.getBoundingClientRect().right)")
    assert widths
    assert max(widths) <= 690
    assert page.locator("form").is_hidden()


def test_a_plan_is_shown_before_its_proof_which_comes_by_itself(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    page, held = visitor.page, []
    page.route("**/view/proven?*", lambda route: held.append(route))
    page.fill("#in-gpus", "48")
    page.keyboard.press("Tab")
    page.wait_for_selector("#answer[data-pending]")
    assert "on 48 × h100" in visitor.headline
    assert "being worked out" in page.locator("#verdict").inner_text()
    assert "roven optimal" not in page.locator("main").inner_text()
    early = page.locator(".tiles").inner_text()
    while not held:
        page.wait_for_timeout(10)
    held.pop().continue_()
    page.wait_for_selector("#answer:not([data-pending])")
    assert page.locator("#verdict").inner_text().startswith("Proven optimal")
    assert page.locator("#proven tbody tr").count() >= 1
    assert page.locator(".tiles").inner_text() == early
    page.fill("#in-gpus", "24")
    page.keyboard.press("Tab")
    page.wait_for_selector("#verdict button")  # its request is held back: it counts seconds and can be stopped
    page.click("#verdict button")
    page.wait_for_function("document.getElementById('verdict').innerText.includes('nothing is proven')")


def test_two_visitors_do_not_see_each_other(served: Served, visit: Any) -> None:
    one, two = visit(), visit()
    for visitor in (one, two):
        visitor.open(served.room(question=SMALL))
    for visitor, gpus in ((one, "32"), (two, "128")):
        visitor.page.fill("#in-gpus", gpus)
        visitor.before = visitor.answers()
        visitor.page.keyboard.press("Tab")
    for visitor, gpus in ((one, "32"), (two, "128")):
        visitor.answered(visitor.before)
        assert f"on {gpus} × h100" in visitor.headline
        assert f"gpus={gpus}" in visitor.page.url


def test_plans_of_mine_are_written_pinned_and_unpinned(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    page, view = visitor.page, 'details[data-view="mine"]'
    assert page.locator("#undo").is_disabled()
    page.fill("#in-mine", "TP=8,PP=2")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{view} [data-pins='tp=8,pp=2']")
    assert page.locator("#undo").is_enabled()
    page.fill("#in-mine", "speed=9")
    page.click("#add-mine")
    page.wait_for_selector("#problem:not([hidden])")
    assert "unknown plan variable 'speed'" in page.locator("#problem").inner_text()
    before = visitor.answers()
    page.click(f"{view} [data-pins='tp=8,pp=2']")
    visitor.answered(before)
    assert "mine=" not in page.url
    page.wait_for_selector(f"{view} >> text=Pin a runner-up")
    assert page.locator("#problem").is_hidden()


def test_bad_input_is_one_message_and_the_answer_before_stays(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    headline = visitor.headline
    for typed, told in (("many", "gpus must be a whole number above zero"), ("", "GPUs: the field is empty")):
        visitor.page.fill("#in-gpus", typed)
        visitor.page.keyboard.press("Tab")
        visitor.page.wait_for_selector(f"#problem:not([hidden]):has-text('{told}')")
        assert visitor.headline == headline


def test_a_question_without_a_plan_says_why(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.page.goto(served.room(question="model=gpt3&gpus=8"))
    visitor.page.wait_for_selector("#answer .alert")
    assert "cannot all hold" in visitor.page.locator("#answer .alert").inner_text()


def test_a_long_search_is_stopped_and_a_newer_change_overtakes_it(served: Served, visit: Any) -> None:
    visitor = visit()
    visitor.open(served.room(question=SMALL))
    page = visitor.page
    before = visitor.answers()
    page.select_option("#in-model", "deepseek-v3")
    page.wait_for_selector("#progress:not([hidden])")
    page.click("#stop")
    page.wait_for_selector("#problem:not([hidden])")
    assert "Stopped" in page.locator("#problem").inner_text()
    assert visitor.answers() == before
    page.select_option("#in-model", "qwen3-235b-a22b")
    page.wait_for_timeout(100)
    page.select_option("#in-model", "llama3-8b")
    visitor.answered(before)
    assert "Llama-3 8B" in visitor.headline
    page.wait_for_timeout(500)
    assert (visitor.answers(), page.locator("#progress").is_hidden()) == (before + 1, True)


def test_what_a_visitor_takes_away(served: Served, visit: Any, tmp_path: Path) -> None:
    visitor = visit()
    visitor.open(served.room(question=f"{SMALL}&fix=tp%3D2"))
    page = visitor.page
    found = {}
    for name in ("Report", "Launch", "JSON"):
        with page.expect_download() as download:
            page.locator(f".take a:has-text('{name}')").click()
        found[name] = tmp_path / download.value.suggested_filename
        download.value.save_as(found[name])
    assert [path.name for path in found.values()] == [
        *("llama3-8b-64-report.html", "llama3-8b-64-launch.zip", "llama3-8b-64-answer.json")
    ]
    answer = json.loads(found["JSON"].read_text(encoding="utf-8"))
    assert (answer["plan"]["tp"], answer["job"]["gpus"]) == (2, 64)
    with zipfile.ZipFile(found["Launch"]) as archive:
        assert "--tensor-model-parallel-size 2" in archive.read("launch/megatron.args").decode()
    report = visit()
    report.page.goto(found["Report"].as_uri())
    report.page.wait_for_selector('[aria-labelledby="title-memory"] .drawn')
    assert report.page.locator("h1").inner_text() == visitor.headline
    assert re.search(r"Run of 300 billion tokens\s+[\d.]+ days", report.page.locator(".tiles").inner_text())
    assert axe(report.page) == []
    report.page.set_viewport_size({"width": 420, "height": 900})
    report.page.wait_for_function("document.documentElement.scrollWidth === 420")
