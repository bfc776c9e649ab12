"""Questions of the tabs of studies: how long a value may be, when a store is read anew, what no plan depends on."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.page.studies import question as module
from optimizer.page.studies.question import asked, form_values


@pytest.mark.parametrize(("length", "refused"), [(300, False), (301, True)])
def test_a_value_has_300_characters_at_most(length: int, refused: bool) -> None:
    pairs = [("model", "gpt3"), ("tokens", "1" * length)]
    if refused:
        with pytest.raises(InputError, match="301 characters, more than the 300 that are read"):
            asked("buy", pairs)
    else:
        assert dict(asked("buy", pairs).options)["tokens"] == "1" * length


@pytest.mark.parametrize(("now", "moment"), [(0.0, 0), (4.9, 0), (5.0, 1), (14.9, 2), (500.0, 100)])
def test_a_store_is_read_anew_every_five_seconds(now: float, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "monotonic", lambda: now)
    assert asked("batch", [], "some.db").moment == moment
    assert asked("fits", [("model", "llama3-8b")]).moment == 0


def test_prices_are_of_chosen_machines_and_no_plan_depends_on_them() -> None:
    pairs = [
        ("model", "gpt3"),
        ("hardware", "h100,h100"),
        ("hardware", "h200"),
        ("rent.h100", "2"),
        ("rent.gb200", "3"),
    ]
    question = asked("buy", [*pairs, ("purchase.h200", "3e4"), ("tokens", "1T"), ("tokens", "2T"), ("other", "5")])
    assert dict(question.options) == {
        **{"model": "gpt3", "hardware": "h100,h200", "rent.h100": "2", "purchase.h200": "3e4", "tokens": "2T"}
    }
    assert dict(question.searched.options) == {"model": "gpt3", "hardware": "h100,h200"}
    assert question.name == "buy-gpt3"
    for wrong, message in ((("hardware", "h100,x"), "unknown hardware 'x'"), (("rent.x", "2"), "unknown rent 'x'")):
        with pytest.raises(InputError, match=message):
            asked("buy", [("model", "gpt3"), wrong])


def test_a_form_offers_what_is_not_taken_and_not_the_usual() -> None:
    question = asked("buy", [("model", "gpt3"), ("hardware", "h100,h200"), ("term", "spot")])
    fields = {each["name"]: each for each in form_values([], question, {})["form"]["field"]}
    assert fields["hardware"]["taken"] == ["h100", "h200"]
    assert {"h100", "h200"} & set(fields["hardware"]["others"]) == set()
    assert "gb200" in fields["hardware"]["others"]
    assert (fields["term"]["value"], fields["term"]["usual"]) == ("spot", "any")
    assert ("spot", "spot") in fields["term"]["groups"][""]
    dotted = form_values([], question, {})["form"]["dotted"]
    assert {each["name"] for each in dotted} == {"rent", "purchase"}
