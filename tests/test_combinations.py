"""A few of the combinations of `python -m tests.combinations`, one of each command among them."""

from __future__ import annotations

import pytest

from tests.combinations import COMMANDS, Combination, combinations, trouble

EVERY = list(combinations())
OF_COMMAND = [[one for one in EVERY if one.name.startswith(f"{command} ")] for command in COMMANDS]
# Each command with another stack and kind of model.
SAMPLE = [some[13 * number % len(some)] for number, some in enumerate(OF_COMMAND)]


@pytest.mark.parametrize("one", SAMPLE, ids=lambda one: one.name)
def test_a_command_answers_for_a_preset(one: Combination) -> None:
    code, said = trouble(one)
    assert not said
    assert code == 0


def test_every_combination_is_there_once() -> None:
    names = [one.name for one in EVERY]
    assert len(set(names)) == len(names) > 423


def test_trouble_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("optimizer.commands.plan.answering.job_of", fail)
    _, said = trouble(next(one for one in EVERY if one.name.startswith("model ")))
    assert said.startswith("ZeroDivisionError at test_combinations.py")
