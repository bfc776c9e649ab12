"""Help reads at 80 columns, and an option that several commands have means the same in all of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from optimizer.cli import cli

COLUMNS = 80
USUAL = 12  # options of planning that its help shows
# Commands whose output is no report: launches of a server or of jobs, files, lists of names.
WITHOUT_PAGE = {
    "optimize batch",
    "optimize batch merge",
    "optimize calibrate-link",
    "optimize measure",
    "optimize measure write",
    "optimize page",
    "optimize presets",
    "optimize presets show",
    "optimize topology",
    "optimize trial next",
}
# Options that take something else somewhere, and why.
DIFFERENT = {
    "--gpus": "a number, several for scaling and pareto, at-most:N where fewer may do",
    "--dtype": "pareto plans each format, bf16 unless told",
    "--flex": "improve edits a launch, whose batch may halve or double",
    "--trials": "pareto tries designs of machines",
    "--export": "a folder of launch files, or the format of a table",
    "--csv": "validate has a row for each run beside its report",
    "--network": "communication compares several",
    "--out": "files or folders",
    "--runs": "the rows that validate and calibrate are about; elsewhere those that every figure knows",
}


def commands(command: click.Command = cli, words: str = "optimize") -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{words} {name}")


@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_help_reads_at_80_columns(words: str) -> None:
    done = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(
        cli, [*words.split()[1:], "--help"], prog_name="optimize", terminal_width=COLUMNS - 2
    )
    assert done.exit_code == 0
    assert "\b" not in done.stdout
    assert "\\b" not in done.stdout
    usage, _, rest = done.stdout.partition("\n\n")
    assert usage.startswith(f"Usage: {words}")
    for line in rest.splitlines():
        assert len(line) <= COLUMNS, line
        assert not re.search(r"\w\.\.\.$", line), f"cut: {line}"


def test_an_option_means_the_same_everywhere() -> None:
    kinds: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for _, command in commands():
        for option in command.params:
            if isinstance(option, click.Option):
                limits = (getattr(option.type, "low", None), getattr(option.type, "high", None))
                default = None if option.default in (None, "") or "UNSET" in str(option.default) else option.default
                seen = (type(option.type).__name__, *limits, default, option.multiple, option.is_flag)
                kinds[option.opts[0]].add(seen)
    several = {name for name, seen in kinds.items() if len(seen) > 1}
    assert several == DIFFERENT.keys(), {name: kinds[name] for name in several ^ DIFFERENT.keys()}


def test_every_report_can_be_a_page() -> None:
    without = {
        words
        for words, command in commands()
        if not any("--html" in option.opts for option in command.params if isinstance(option, click.Option))
    }
    assert without == WITHOUT_PAGE


def test_the_help_of_planning_has_the_options_people_use_and_help_all_the_rest() -> None:
    short, whole = (
        CliRunner().invoke(cli, [option], prog_name="optimize").stdout for option in ("--help", "--help-all")
    )
    shown, every = (re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE) for text in (short, whole))
    assert len(set(shown) - {"--version", "--help", "--help-all"}) == USUAL
    assert set(every) == {max(option.opts, key=len) for option in cli.get_params(click.Context(cli)) if option.opts} | {
        "--help"
    }
    assert short.index("Views of one plan") < short.index("Commands:")
