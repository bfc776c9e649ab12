"""One word for one thing: what the glossary retires stands in no identifier, and no class is named like another one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from maintain.docs.site import DOCS

ROOT = Path(__file__).resolve().parents[1]
# Names that others gave: of libraries, of statistics; and keys of answers and of --fix, which users have in files.
OTHERS = {"ModuleNotFoundError", "PackageNotFoundError", "held_out", "HeldOut", "prior_odds"}
KEYS = {"band", "held_all", "overlap_exchange"}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the program, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("optimizer", "maintain")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def retired() -> dict[str, str]:
    """Every retired word of the glossary, and what is said instead."""
    table = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("## Words that are not used")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE)[1:]
    return {word: said for words, said in rows for word in re.findall(r"[a-z]+", words) if said != "---"}


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that the code of a module gives or uses, and its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


@cache
def parts(name: str) -> frozenset[str]:
    """The words of an identifier."""
    return frozenset(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def test_words_are_split() -> None:
    assert parts("_bill_of") == {"", "bill", "of"}
    assert parts("LayerCosts") == {"layer", "costs"}
    assert len(retired()) > 15


def test_no_identifier_has_a_retired_word() -> None:
    words = retired()
    wrong = [
        f"{path}:{line}: {name}: {word} is {words[word]}"
        for path, tree in trees().items()
        for name, line in identifiers(tree)
        if name not in OTHERS | KEYS
        for word in parts(name) & words.keys()
    ]
    assert not wrong, "\n".join([f"{len(wrong)} identifiers", *wrong[:40]])


def test_no_file_is_named_by_a_retired_word() -> None:
    assert not [path for path in trees() if parts(Path(path).stem) & retired().keys()]


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}
