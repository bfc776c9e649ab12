"""Change saved answers and damage stores: `python -m tests.fuzz.tamper 2000 [--stores 300] [--seed 0]`.

Every place of every kind of answer is changed in every way that fits it, as many of these changes as were asked for.
Each must be refused, found by `optimize check`, lie where the check says that it does not look, or be harmless: the
price and the rules are as before. A damaged store must be refused or export what was written. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from optimizer.answer.reading import read_answer
from optimizer.base.errors import InputError
from optimizer.search.check.verification import same, verify
from optimizer.search.infeasible.conflict import CUT_SHORT, conflict
from tests.fuzz.run import Stalled, patience
from tests.search.check.test_verification import Path_, answers, check_same_price, excused, places
from tests.sweep.test_damage import exported, filled

GONE = object()
TEXTS = ("", "banana", "optimal", CUT_SHORT, "gpt3", "h100", "tp=8", "\x1b[2J", "x" * 3000)
NUMBERS = (0, 1, -1, 2**31, 10**30, 1e308, 0.5)
REFUSED, FOUND, SAID, HARMLESS = "refused", "found", "said not to be checked", "harmless"
SMALL = ("--model", "llama3-8b", "--global-batch", "64", "--fix", "tp=2", "--json")
TYPED = {
    "at most": (*SMALL, "--gpus", "at-most:9", "--flex", "batch=5%", "--trials", "0"),
    "study": (*SMALL, "--gpus", "8", "--trials", "4", "--study", "study.db"),
    "hurried": (*SMALL, "--gpus", "8", "--time-limit", "0.05"),
    "robust": (*SMALL, "--gpus", "8", "--trials", "0", "--robust", "--explain"),
}


@cache
def typed(name: str) -> dict[str, Any] | None:
    """An answer as the command prints it; None where the time was over before there was one."""
    from optimizer.cli import cli

    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("study.db", f"{folder}/study.db") for word in TYPED[name]]
        result = CliRunner().invoke(cli, words, prog_name="optimize")
    return dict(json.loads(result.stdout)) if result.exit_code == 0 else None


@cache
def unclear() -> dict[str, Any]:
    """An answer that nothing fits, whose time was over before the least set of clashing rules was known."""
    document: dict[str, Any] = json.loads(answers()["infeasible"])
    job = read_answer(json.dumps(document)).job
    return document | {"conflict": [asdict(clash) for clash in conflict(job, time_limit=0.0)]}


def every_document() -> dict[str, dict[str, Any]]:
    """Every kind of answer: dense, mixture, of two formats, infeasible, cut short, compared, and those of TYPED."""
    found = {name: json.loads(text) for name, text in answers().items()} | {"unclear": unclear()}
    return found | {name: document for name in TYPED if (document := typed(name))}


def changes(value: Any) -> Iterator[Any]:
    """What may stand where this value stood; GONE for nothing at all."""
    yield from (GONE, None)
    if isinstance(value, bool):
        yield from (not value, int(value))
    elif isinstance(value, int | float):
        yield from (type(value)(value * scale) for scale in (0.5, 1.01, 2, 1000, -1))
        yield from (*NUMBERS, str(value))
    elif isinstance(value, str):
        yield from (*TEXTS, value + "x", value[:-1])
    elif isinstance(value, list):
        yield from ([], value[:-1], value[::-1], value * 2, {})
    elif isinstance(value, dict):
        yield from ({}, [value], {**value, "banana": 1})
    else:
        yield from (1, "banana", [], {})


def other_parts(document: dict[str, Any]) -> Iterator[tuple[Path_, Any]]:
    """Parts of the runner-up in the winner's place, and figures that agree with each other but not with the plan."""
    for number, other in enumerate(document["alternatives"]):
        for names in (("plan",), ("estimate",), ("plan", "estimate"), ("plan", "knobs", "estimate")):
            yield ("alternatives", number), {name: other[name] for name in names}
    if document["certificate"]:
        for seconds in (1, 1.0, 1e-9):
            yield (
                ("certificate",),
                {"certificate": document["certificate"] | {"best_s": seconds, "lower_bound_s": seconds}},
            )


def tampered(document: dict[str, Any]) -> Iterator[tuple[Path_, Any, dict[str, Any]]]:
    """Every change of a document: where, what stands there now, and how to make the whole of it."""
    for path in places(document):
        held: Any = document
        for key in path:
            held = held[key]
        for value in changes(held):
            if value is GONE or not same(value, held):
                yield path, value, {}
    for path, parts in other_parts(document):
        yield path, GONE, parts


def made(document: dict[str, Any], path: Path_, value: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """A document with one change."""
    other = copy.deepcopy(document)
    if parts:
        return other | copy.deepcopy(parts)
    table: Any = other
    for key in path[:-1]:
        table = table[key]
    last: Any = path[-1]
    if value is GONE:
        del table[last]
    else:
        table[last] = value
    return other


def verdict(original: dict[str, Any], path: Path_, value: Any, parts: dict[str, Any]) -> str:
    """What became of a change; raises AssertionError for one that passes."""
    document = made(original, path, value, parts)
    try:
        with patience():
            found = verify(read_answer(json.dumps(document)))
    except InputError:
        return REFUSED
    except Stalled:
        raise AssertionError(f"{path}: no verdict in time") from None
    if found.broken:
        return FOUND
    assert not parts, f"{path}: parts of another pass"
    unchecked = set(found.unchecked)
    assert excused(original, path, value is GONE, unchecked), f"{path} = {value!r}"
    check_same_price(original, document)
    text = ".".join(map(str, path))
    return SAID if any(text.startswith(place.partition(",")[0]) for place in unchecked) else HARMLESS


def tried(documents: Mapping[str, dict[str, Any]], count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """So many changes over these answers: what became of them, and those that passed."""
    dice, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    every = [(name, *change) for name, document in documents.items() for change in tampered(document)]
    for name, path, value, parts in dice.sample(every, min(count, len(every))):
        try:
            counts[verdict(documents[name], path, value, parts)] += 1
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {path} = {value!r:.60}: {type(error).__name__}: {error}")
    return counts, wrong


def damages(folder: Path, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """So many damages to a store, by turns to the bytes of its file and to a cell of one of its tables."""
    whole = filled(folder / "whole.db").read_bytes()
    want, dice = exported(folder / "whole.db"), random.Random(seed)
    counts, wrong = Counter[str](), list[str]()
    for number in range(count):
        place = folder / "damaged.db"
        place.write_bytes(_flipped(whole, dice) if number % 2 else whole)
        what = "bytes" if number % 2 else _changed_cell(place, dice)
        try:
            if exported(place) == want:
                counts[HARMLESS] += 1
            else:
                wrong.append(f"damage {number} ({what}): another export")
        except InputError:
            counts[FOUND] += 1
        except Exception as error:
            wrong.append(f"damage {number} ({what}): {type(error).__name__}: {error}")
    return counts, wrong


def _flipped(whole: bytes, dice: random.Random) -> bytes:
    data, at = bytearray(whole), dice.randrange(len(whole))
    deed = dice.randrange(4)
    if deed == 0:
        data[at : at + dice.choice((1, 16, 512, 4096))] = b""
    elif deed == 1:
        data[at : at + 64] = dice.randbytes(64)
    else:
        for _ in range(dice.choice((1, 1, 5))):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def _changed_cell(place: Path, dice: random.Random) -> str:
    """Change one cell, drop or double a row, as a careless program would; what was done."""
    connection = sqlite3.connect(place)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = dice.choice([name for name in tables if name != "batch_about"])
        rows = [row for (row,) in connection.execute(f"SELECT rowid FROM {table}")]
        if not rows:
            return "nothing"
        columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
        row, column = dice.choice(rows), dice.choice(columns)
        (old,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
        if dice.random() < 0.15:
            connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
            what = "a row is gone"
        else:
            text = str(old)
            new = dice.choice((None, "", "banana", "pending", text + " ", text.replace("1", "2"), text[:9], 7, b"\xff"))
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (new, row))
            what = f"{old!r:.30} is {new!r:.30}"
        connection.commit()
        return f"{table}.{column}: {what}"
    except sqlite3.IntegrityError:
        return "nothing"
    finally:
        connection.close()


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--stores", type=int, default=300, help="damages to a store")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begin = time.monotonic()
    counts, wrong = tried(every_document(), asked.count, asked.seed)
    print(
        f"{sum(counts.values()) + len(wrong):,} changes: {told(counts)}; {len(wrong)} pass; "
        f"{time.monotonic() - begin:.0f} s"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept, silent = damages(Path(folder), asked.stores, asked.seed)
    print(f"{asked.stores} damages to a store: {told(kept)}; {len(silent)} wrong")
    for line in (*wrong, *silent):
        print(f"  {line}")
    sys.exit(bool(wrong or silent))


if __name__ == "__main__":
    main()
