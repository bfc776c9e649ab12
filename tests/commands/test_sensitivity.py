"""What binds a job that fits only with its optimizer's state on the host."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from optimizer.cli import cli

pytestmark = pytest.mark.usefixtures("planned_once")
ONE = ("sensitivity", "--model", "llama3-8b", "--gpus", "1", "--seq-len", "2048", "--global-batch", "64")


def test_as_much_state_goes_to_the_host_as_does_not_fit() -> None:
    done = CliRunner().invoke(cli, [*ONE, "--json"])
    assert done.exit_code == 0, done.output
    offload = json.loads(done.stdout)["knobs"]["offload"]
    assert 0 < offload < 1
    said = f"{offload:.0%} of the optimizer on the host"
    assert said in " ".join(CliRunner().invoke(cli, ONE).output.split())


def test_a_job_that_never_fits_and_a_loss_of_everything_are_said() -> None:
    done = CliRunner().invoke(cli, [*ONE[:2], "gpt3", *ONE[3:]])
    assert done.exit_code == 3
    lost = CliRunner().invoke(cli, [*ONE, "--lost-nodes", "1"])
    assert lost.exit_code == 2
