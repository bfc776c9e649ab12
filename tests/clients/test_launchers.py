"""Exported files given to the launchers themselves; those that no registry has are held to tables of their names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optimizer.catalog.targets import MEGATRON_LM, argument_names
from optimizer.frameworks.config.python import config_functions
from optimizer.frameworks.files import read_files
from optimizer.frameworks.megatron_bridge.export import BRIDGE_RELEASES
from optimizer.frameworks.nemo.recipe import TABLES as NEMO
from optimizer.frameworks.torchtitan.models import MAIN, NEW, OLD
from optimizer.frameworks.torchtitan.python import titan_values
from tests.clients.accepted import CLIENTS, STACKS, TOOLS, Client, Clients, written
from tests.thorough import cases

JOBS = cases(8, sample=4)


@pytest.fixture(scope="module", params=STACKS)
def launched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A target and a folder with the launch files of some jobs of it."""
    folder = tmp_path_factory.mktemp("launched")
    written(request.param, JOBS, folder)
    return request.param, folder


@pytest.mark.launchers
def test_the_launcher_accepts_what_is_exported(launched: tuple[str, Path], clients: Clients) -> None:
    target, folder = launched
    if not TOOLS:
        pytest.skip("no launchers here: .ci/launchers FOLDER installs them, OPTIMIZE_TEST_LAUNCHERS=FOLDER names it")
    mine = [client for client in CLIENTS if client.target == target and client.sources(clients.tools) is not None]
    if not mine:
        pytest.skip(f"no registry has {target}; its arguments are held to the table of their names")
    for client in mine:
        said = clients.verdicts(client, folder)
        assert said, f"{client.release}: nothing was exported"
        assert [verdict for verdict in said if verdict] == []


@pytest.mark.launchers
@pytest.mark.parametrize("client", [client for client in CLIENTS if client.target == "megatron-lm"])
def test_the_table_of_arguments_is_that_of_the_parser(client: Client, clients: Clients, tmp_path: Path) -> None:
    if not (TOOLS and client.sources(clients.tools)):
        pytest.skip(f"no source of Megatron-LM {client.release} here")
    said = clients.output(client, "megatron_names.py", tmp_path)
    assert {line for line in said.split() if line.startswith("--")} == argument_names("megatron-lm", client.release)


@pytest.mark.launchers
def test_the_table_of_recipes_is_that_of_the_release(clients: Clients, tmp_path: Path) -> None:
    (client,) = (client for client in CLIENTS if client.target == "nemo")
    if not (TOOLS and client.sources(clients.tools)):
        pytest.skip(f"no source of NeMo {client.release} here")
    paths: dict[str, str] = NEMO["keys"]
    for faster in (False, True):
        rows = {name: row for name, row in NEMO["recipes"].items() if not faster or name in NEMO["performance"]}
        given = {"performance_mode": True} if faster else {}
        asked = {"recipes": [*rows], "paths": [*paths.values()], "given": given}
        said = json.loads(clients.output(client, client.program, tmp_path, json.dumps(asked)))
        for name, row in rows.items():
            own = row | (NEMO["performance"][name] if faster else {})
            made = said[name]
            assert made["model.config"] == row["config"], name
            callbacks = [*row.get("callbacks", ()), *["MegatronCommOverlapCallback"] * faster]
            callbacks += ["MegatronTokenDropCallback"] * own.get("drops", False)
            assert {*callbacks} == {each for each in made["callbacks"] if each in NEMO_CALLBACKS}, name
            assert (made["narrow"], made["tp_overlap"]) == (own.get("narrow", False), own.get("tp_overlap", False))
            for key, path in paths.items():
                now, usual = made[path], NEMO["usual"].get(path)
                assert (now if now is not None else usual) == own.get(key, usual) or (now is False and key not in own)


NEMO_CALLBACKS = ("MegatronCommOverlapCallback", "DeepEPCallback", "MegatronTokenDropCallback")


def test_every_name_that_is_written_is_one_of_the_release(launched: tuple[str, Path]) -> None:
    target, folder = launched
    if target == "megatron-lm":
        for path in folder.glob("*/megatron.args"):
            flags = {word for word in path.read_text().split() if word.startswith("--")}
            for release in MEGATRON_LM[1:]:
                assert flags <= argument_names("megatron-lm", release)
    if target == "megatron-bridge":
        for release in BRIDGE_RELEASES:
            for path in folder.glob(f"*/megatron-bridge-{release}.overrides"):
                lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
                assert {line.partition("=")[0] for line in lines} <= argument_names("megatron-bridge", release)
    if target == "torchtitan":
        import tomllib

        for file, release in (("torchtitan.toml", OLD), ("torchtitan_0_3.py", NEW), ("torchtitan_main.py", MAIN)):
            for path in folder.glob(f"*/{file}"):
                text = path.read_text()
                if release == OLD:
                    keys = {f"{section}.{key}" for section, table in tomllib.loads(text).items() for key in table}
                else:
                    values = titan_values(text, config_functions(text)[0])
                    keys = {path for path in values if path.partition(".")[0] in CALLS}
                assert keys <= argument_names("torchtitan", release)
    for path in folder.glob("*/*"):
        # What a launcher that was given the files leaves beside them is no launch file.
        if path.is_file() and path.name != "job":
            assert read_files([str(path)])


CALLS = ("training", "parallelism", "compile", "debug")


def test_clients_name_targets_that_there_are() -> None:
    assert {client.target for client in CLIENTS} == set(STACKS)
    assert all(isinstance(client, Client) for client in CLIENTS)
