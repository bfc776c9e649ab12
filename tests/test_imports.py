"""What may be imported when: the help is fast, and `optimizer.plan` is a function whatever was imported before."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import optimizer

HEAVY = ("numpy", "ortools", "pandas", "optuna", "scipy", "pydantic", "rich", "jinja2", "ruamel")


def loaded(code: str) -> set[str]:
    """The heavy packages among the modules that a fresh interpreter holds after this code."""
    listing = "import json, sys; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})), file=sys.stderr)"
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    return set(json.loads(done.stderr.splitlines()[-1])) & set(HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["presets", "--help"],
        ["presets", "show", "--help"],
        ["validate", "--help"],
        ["calibrate", "--help"],
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert loaded(f"from optimizer.cli import cli\ncli({arguments!r}, standalone_mode=False)") == set()


def test_the_package_alone_imports_nothing_heavy() -> None:
    assert loaded("import optimizer") == set()


@pytest.mark.parametrize("options", [["--json"], []])
def test_planning_from_presets_needs_neither_reports_in_html_nor_checks_of_files(options: list[str]) -> None:
    arguments = ["--model", "llama3-8b", "--gpus", "8", *options]
    code = f"from optimizer.cli import cli\ncli({arguments!r}, standalone_mode=False)"
    assert not loaded(code) & {"jinja2", "pydantic", "ruamel"}


def test_every_public_name_is_there() -> None:
    for name in optimizer.__all__:
        assert getattr(optimizer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = optimizer.nothing


def test_plan_stays_the_function_after_its_namesake_module_was_imported() -> None:
    code = "import optimizer.job.plan\nfrom optimizer.job.plan import Plan\nfrom optimizer import plan\n"
    loaded(f"{code}assert callable(plan), plan")
