"""The pages say what the program does: their commands run, what they print is printed, their links and files exist."""

from __future__ import annotations

import re
import tomllib

import click
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from maintain.docs.blocks import COMMANDS, SKIPPED, Block, blocks
from maintain.docs.commands import ROOT, WIDTH, Ran, lines_of
from maintain.docs.site import DOCS, README, file_of, pages, with_sections, written
from optimizer.cli import cli
from optimizer.job.plan import Knobs, Plan

PAGES = pages()
TEXTS = {name: file_of(name).read_text(encoding="utf-8") for name in (README, *PAGES)}
HOUSE = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "SECURITY.md")}
BY_TUTORIALS = "the tutorials run it"
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:optimizer|tests|presets|examples|docs|schemas)/[\w./-]+|\.ci/\w+|[\w.-]+\.(?:toml|sh|md))`")


def run(words: list[str], stdin: str) -> Ran:
    # CliRunner would force help texts to 80 columns; click leaves two columns of a terminal empty.
    runner, narrower = CliRunner(env={"COLUMNS": WIDTH}), int(WIDTH) - 2
    result = runner.invoke(cli, words, input=stdin, prog_name="optimize", terminal_width=narrower)
    return Ran(output=result.stdout, messages=result.stderr, code=result.exit_code)


@pytest.mark.usefixtures("planned_once")
@pytest.mark.parametrize(
    "name", [name for name in TEXTS if any(block.runs or block.command for block in blocks(TEXTS[name]))]
)
def test_commands_run_and_print_what_the_page_shows(name: str) -> None:
    assert written(name, run) == TEXTS[name], f"python -m maintain.docs {name}"


@pytest.mark.parametrize("name", TEXTS)
def test_generated_sections_are_those_of_the_code(name: str) -> None:
    assert with_sections(name) == TEXTS[name], f"python -m maintain.docs {name}"


@pytest.mark.parametrize("name", TEXTS)
def test_every_block_is_run_shown_or_says_why_not(name: str) -> None:
    for block in blocks(TEXTS[name]):
        if block.language == COMMANDS and not block.runs:
            assert block.title or block.note.removeprefix(SKIPPED), block.text
        if block.language == "text" and not (block.title or block.generated):
            assert _inside_a_section(TEXTS[name], block), f"nothing holds this to the program:\n{block.text}"


def test_what_the_tutorials_are_said_to_run_they_run() -> None:
    ran = {command for text in TEXTS.values() for block in blocks(text) if block.runs for command in _commands(block)}
    said = [block for text in TEXTS.values() for block in blocks(text) if block.note == f"{SKIPPED}{BY_TUTORIALS}"]
    assert said
    assert {command for block in said for command in _commands(block)} <= ran


def _commands(block: Block) -> list[str]:
    return [line.partition("  #")[0].strip() for line in lines_of(block)]


def _inside_a_section(page: str, block: Block) -> bool:
    before = page[: block.start]
    return len(re.findall(r"^<!-- [^\n]*: start -->$", before, re.MULTILINE)) > len(
        re.findall(r"^<!-- [^\n]*: end -->$", before, re.MULTILINE)
    )


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_to_pages_and_headings(name: str) -> None:
    for link in LINK.findall(TEXTS[name]):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        page = file_of(name).parent / path if path else file_of(name)
        assert page.exists(), link
        assert not anchor or anchor in _anchors(page.read_text(encoding="utf-8")), link


def _anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_every_page_is_in_the_menu_and_every_entry_is_a_page() -> None:
    def entries(part: object) -> list[str]:
        if isinstance(part, str):
            return [part]
        return [name for inner in (part.values() if isinstance(part, dict) else part) for name in entries(inner)]  # type: ignore[attr-defined]

    menu = YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"]
    assert sorted(entries(menu)) == PAGES


@pytest.mark.parametrize("name", ["design.md", "how-to-add.md", "how-the-model-works.md", *HOUSE])
def test_files_that_are_named_exist(name: str) -> None:
    for path in FILE.findall(HOUSE.get(name) or TEXTS[name]):
        if "NAME" not in path:
            assert any((folder / path).exists() for folder in (ROOT, DOCS)), path


def test_names_of_code_in_recipes_exist() -> None:
    recipes = re.findall(r"^\d\. .*?(?=^\d\. |^#|\Z)", TEXTS["how-to-add.md"], re.MULTILINE | re.DOTALL)
    checked = 0
    for recipe in recipes:
        files = [ROOT / name for name in FILE.findall(recipe) if name.endswith(".py")]
        sources = [path.read_text(encoding="utf-8") for path in files if path.exists()]
        for word in re.findall(r"`([A-Z_]{3,}|_[A-Z]+|[a-z]+_[a-z_]+)`", recipe):
            if sources and word not in ("NAME", "CHANGELOG"):
                checked += 1
                assert any(re.search(rf"\b{word}\b", source) for source in sources), f"{word} in: {recipe}"
    assert checked > 10


def test_the_glossary_has_every_variable_and_knob() -> None:
    told = set(re.findall(r"`([a-z_]+)`", TEXTS["glossary.md"]))
    fields = {*Plan.__dataclass_fields__, *Knobs.__dataclass_fields__}
    assert fields <= told, sorted(fields - told)


def test_no_page_shows_a_price_of_today() -> None:
    # What `improve` prints names the row and the date of its price.
    for name in TEXTS.keys() - {README, "tutorials/improve.md"}:
        shown = "".join(block.text for block in blocks(TEXTS[name]) if block.generated)
        assert not re.search(r"\$ ?\d|\d ?USD|USD ?\d", shown), name


def test_every_command_is_told_with_its_help() -> None:
    def calls(command: click.Command, words: str) -> list[str]:
        inner = command.commands.items() if isinstance(command, click.Group) else ()
        return [f"{words} --help", *(call for name, part in inner for call in calls(part, f"{words} {name}"))]

    told = [line for block in blocks(TEXTS["commands.md"]) if block.runs for line in lines_of(block)]
    assert sorted(told) == sorted([*calls(cli, "optimize"), "optimize --help-all"])


def test_options_of_the_tables_exist() -> None:
    for name, text in TEXTS.items():
        for command in ("pareto",) if name == "tutorials/buy.md" else ():
            known = {option for parameter in cli.commands[command].params for option in parameter.opts}
            assert set(re.findall(r"`(--[a-z-]+)", text)) <= known


def test_the_site_needs_nothing_from_elsewhere() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = YAML(typ="safe").load(text)
    assert settings["theme"]["font"] is False
    assert "http" not in text
    assert settings["plugins"] == ["search"]  # `offline` would load a script from a CDN
    for page in (*TEXTS.values(), *HOUSE.values()):
        assert not re.search(r"!\[[^\]]*\]\(http|<(?:img|script|link|iframe)\b", page)


def test_everything_that_the_documentation_needs_is_in_the_source_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/docs", "/mkdocs.yml", "/CONTRIBUTING.md", "/SECURITY.md"} <= set(included)
    assert any("mkdocs" in need for need in project["project"]["optional-dependencies"]["docs"])


def test_nothing_of_this_machine_is_told() -> None:
    for name, text in {**TEXTS, **HOUSE}.items():
        assert not re.search(r"/(?:work|tmp|home|root)/", text), name
