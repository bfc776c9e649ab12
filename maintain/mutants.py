"""Random faults of one operator, comparison or constant, and whether the tests see them.

`python -m maintain.mutants optimizer/search optimizer/constraints --count 30 --seed 1` puts so many faults, one after
the other, into a copy of the code, and runs the tests that name the file, but for slow ones, then the quick ones of its
package, then the slow ones that name the file or, beside them, its folder. A fault that no test sees is listed with its
line: an assertion is missing there, or code that does nothing. A test that fails without the fault too, or takes longer
than `--seconds`, sees nothing, and ends the command. The exit code is 1 where more than a tenth of a folder's faults
live.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path

from optimizer.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("optimizer", "tests", "maintain", "bench", "examples", "docs", "conftest.py", "pyproject.toml")
OTHERS: dict[type[ast.AST], tuple[str, str]] = {
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")},
    **{ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")},
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")},
    **{ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.And: ("and", "or"), ast.Or: ("or", "and")},
}
OF_ALL = "tests/test_unsaid.py"  # rules that every package keeps
OF_COMMANDS = "tests/test_cli.py"
HARDLY = 100.0  # from which on one more is less than a percent
MOST_LIVING = 0.1  # of the faults of a folder
# What stands in a test that runs a command, and the command's module; `optimize` itself has no name.
WORDS = {f'"{name}"': where for name, (where, _) in COMMANDS.items()}
WORDS['["--model"'] = "optimizer.commands.plan.command"
RUNS = re.compile(r'CliRunner|import run\b|"-m", "optimizer"')  # how tests run a command
FAILED = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One change of a file: what stands from `start` to `end` becomes `after` [characters]."""

    path: Path
    start: int
    end: int
    after: str

    def text(self) -> str:
        """The file with the fault."""
        before = self.path.read_text()
        return before[: self.start] + self.after + before[self.end :]

    def shown(self) -> str:
        """Where it is, and its line before and after."""
        before = self.path.read_text()
        line = before.count("\n", 0, self.start)
        old, new = (text.splitlines()[line].strip() for text in (before, self.text()))
        return f"{self.path.relative_to(ROOT)}:{line + 1}\n    - {old}\n    + {new}"


def faults(path: Path) -> Iterator[Fault]:
    r"""Every fault of a file that is still Python; types, texts, decorators and what only asserts are left as they are.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "x.py"
    >>> _ = file.write_text("def f(x: int) -> bool:\n    return x + 1 < 3\n")
    >>> sorted(fault.after for fault in faults(file))
    ['-', '2', '4', '<=']
    >>> _ = file.write_text("Limit = tuple[float, str] | None\nPin = Value | tuple[int, int]\n")
    >>> list(faults(file))
    []
    """
    text = path.read_text()
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    raw = text.encode()

    def place(line: int, column: int) -> int:
        return len(raw[: lines[line - 1] + column].decode())

    def between(left: ast.expr, right: ast.expr, kind: type[ast.AST]) -> Iterator[Fault]:
        words, other = OTHERS.get(kind, ("", ""))
        start, end = place(left.end_lineno or 0, left.end_col_offset or 0), place(right.lineno, right.col_offset)
        at = text.find(words, start, end) if words else -1
        if at >= 0:
            yield Fault(path=path, start=at, end=at + len(words), after=other)

    for node in _calculations(ast.parse(text)):
        if isinstance(node, ast.BinOp) and not _is_type(node.right):
            yield from between(node.left, node.right, type(node.op))
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], type(node.op))
        elif isinstance(node, ast.Compare):
            yield from between(node.left, node.comparators[0], type(node.ops[0]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            start, end = place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)
            yield Fault(path=path, start=start, end=end, after=repr(_another(node.value)))


def _another(value: float) -> float:
    """A value that is not this one: the other truth, one more, or twice a number that one more hardly changes.

    >>> _another(True), _another(3), _another(0.5), _another(3.6e6)
    (False, 4, 1.5, 7200000.0)
    """
    if isinstance(value, bool):
        return not value
    return 2 * value if abs(value) > HARDLY else value + 1


def _is_type(node: ast.expr) -> bool:
    """Whether it is of a type, as the None or the tuple of `Limit = tuple[float, str] | None`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        name = node.value.id
        return isinstance(getattr(builtins, name, None), type) or (name[:1].isupper() and not name.isupper())
    return isinstance(node, ast.Constant) and node.value is None


def _calculations(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are run: no annotations, no decorators, no formatted texts, not the `strict` of zip."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            asserts = isinstance(node, ast.keyword) and node.arg == "strict"
            if isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr) and not asserts:
                yield node
                yield from _calculations(node)


def nearest(path: Path) -> tuple[list[str], list[str], list[str]]:
    """The tests that name a file, or run a command that it is, those of its package first; the package, whose quick
    tests come next; and the slow ones of those that name the file, then of those of the package that name its folder
    or run a command of it.

    >>> nearest(ROOT / "optimizer" / "frameworks" / "megatron" / "write.py")[1]
    ['tests/frameworks', 'tests/test_unsaid.py', '-m', 'quick']
    >>> "tests/commands/test_run.py" in nearest(ROOT / "optimizer" / "commands" / "plan" / "command.py")[0]
    True
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    module, package, folder = ".".join(parts), ".".join(parts[:-1]), Path("tests", *parts[1:2])
    it = re.compile(rf"\b{module}\b|\b{package} import [^\n]*\b{path.stem}\b")

    def runs(text: str, whose: str) -> bool:
        known = (word for word, where in WORDS.items() if f"{where}.".startswith(f"{whose}."))
        return RUNS.search(text) is not None and any(word in text for word in known)

    texts = {test: (ROOT / test).read_text() for test in _tests(Path("tests"))}
    pages = Path("tests", "docs")  # which hold the output of all commands, in minutes
    naming = [t for t, text in texts.items() if pages not in t.parents and (it.search(text) or runs(text, module))]
    naming.sort(key=lambda test: (len(os.path.commonpath([test, folder])) * -1, str(test)))
    folder = folder if (ROOT / folder).is_dir() else Path("tests")
    names = [str(path.relative_to(ROOT)), *map(str, naming)]
    near = [
        str(test)
        for test, text in texts.items()
        if test not in naming
        and (
            (folder in test.parents and re.search(rf"\b{package}\b", text))
            or (len(parts) > 3 and pages not in test.parents and runs(text, package))
        )
    ]
    whole = [str(folder), *([OF_COMMANDS] if parts[1] == "commands" else []), OF_ALL]
    return [*names, "-m", "not slow"], [*whole, "-m", "quick"], [*names, *near, "-m", "slow"]


def _tests(folder: Path) -> list[Path]:
    return [test.relative_to(ROOT) for test in sorted((ROOT / folder).rglob("test_*.py"))]


def lives(fault: Fault, copy: Path, seconds: float) -> bool:
    """Whether no test in a copy of the project sees a fault; one after which they hang is seen."""
    target = copy / fault.path.relative_to(ROOT)
    target.write_text(fault.text())
    try:
        seeing = next((failing for words in nearest(fault.path) if (failing := _failing(copy, words, seconds))), None)
    finally:
        target.write_text(fault.path.read_text())
    if seeing and _failing(copy, seeing, seconds):
        sys.exit(f"{' '.join(seeing)}: fails, or takes more than {seconds:g} s, without a fault too; mend it first")
    return seeing is None


def _failing(copy: Path, words: Sequence[str], seconds: float) -> list[str]:
    """The first of these tests that fails, all of them where they hang, none where they pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *words]
    there = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=there, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return [*words]
    if done.returncode in (0, 5):  # 5: no test
        return []
    return FAILED.findall(done.stdout)[:1] or [*words]


def copied(folder: Path) -> Path:
    """A copy of the project whose code may be broken; what is only read is a link."""
    folder.chmod(0o755)  # some tests become somebody else
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    # Compiled once, by times of files that stay: a file with a fault is compiled by whoever imports it.
    compile_dir(folder, quiet=2, workers=1)
    for source in ROOT.iterdir():
        if not (folder / source.name).exists() and not source.name.startswith(".git"):
            (folder / source.name).symlink_to(source)
    return folder


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=30, help="faults of each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="for the tests of one fault, at each step")
    options = parser.parse_args()
    many = False
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copy = copied(Path(place))
        for folder in options.folders:
            every = [fault for path in sorted((ROOT / folder).rglob("*.py")) for fault in faults(path)]
            chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
            living = []
            for fault in chosen:
                if lives(fault, copy, options.seconds):
                    living.append(fault)
                    print(f"  {fault.shown()}", flush=True)
            many |= len(living) > MOST_LIVING * len(chosen)
            print(f"{folder}: {len(living)} of {len(chosen)} live, of {len(every):,} that there are", flush=True)
    sys.exit(many)


if __name__ == "__main__":
    main()
