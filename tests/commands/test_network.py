"""A user's network from logs: the fitted tier goes into a cluster file and prices collectives as the logs say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.topology import span
from optimizer.presets import load_cluster
from optimizer.readers.nccl_tests import read_nccl_tests

DATA = Path(__file__).resolve().parents[1] / "readers" / "data"


def test_the_printed_tier_prices_the_log_it_was_fitted_to(tmp_path: Path) -> None:
    log = DATA / "nccl_all_reduce_a100.txt"
    done = CliRunner().invoke(cli, ["calibrate-link", str(log), "--link", "nvlink3"])
    assert done.exit_code == 0, done.output
    cluster = tmp_path / "mine.toml"
    head = 'name = "mine"\ndevice = "a100-80"\ngpus_per_node = 8\n'
    cluster.write_text(head + done.output.replace('name = "fitted"', 'name = "node"\nsize = 8'))
    mine = load_cluster(cluster)
    samples = [sample for sample in read_nccl_tests(log) if not sample.in_place and sample.message >= 2**20]
    message = np.array([sample.message for sample in samples])
    measured = np.array([sample.time for sample in samples])
    predicted = collective_time("all_reduce", message, span(mine, np.full(len(samples), 8), 1), mine)
    assert np.median(np.abs(predicted / measured - 1)) < 0.1


def test_json_holds_the_link() -> None:
    done = CliRunner().invoke(
        cli, ["calibrate-link", str(DATA / "nccl_all_reduce_a100.txt"), "--link", "nvlink3", "--json"]
    )
    link = json.loads(done.output)["link"]
    assert link["name"] == "nvlink3-fitted"
    assert link["bandwidth_bytes_per_s"] == 300e9


def test_a_truncated_log_is_refused_with_its_line() -> None:
    done = CliRunner().invoke(cli, ["calibrate-link", str(DATA / "nccl_truncated.txt"), "--link", "nvlink3"])
    assert done.exit_code == 2
    assert "line" in done.stderr


def test_topology_tells_the_domain_and_its_bandwidth() -> None:
    done = CliRunner().invoke(cli, ["topology", str(DATA / "topo_h100.txt"), "--link", "nvlink4"])
    assert done.exit_code == 0, done.output
    assert "8 GPUs, 8 of them in one NVLink domain" in done.output
    assert "450 GB/s one way" in done.output
