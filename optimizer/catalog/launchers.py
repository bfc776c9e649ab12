"""What launchers call their arguments, by release: presets/launchers, generated from the commits named there."""

from __future__ import annotations

from functools import cache

from optimizer.catalog.files import csv_rows, presets_folder

MEGATRON_LM = ("core_v0.16.1", "core_v0.19.0", "main (d98e8a64d)")  # releases whose arguments are listed, oldest first


@cache
def argument_names(release: str) -> frozenset[str]:
    """Every argument of a release of Megatron-LM.

    >>> "--recompute-num-layers" in argument_names("core_v0.19.0"), "--recompute" in argument_names("core_v0.19.0")
    (True, False)
    """
    rows = csv_rows(presets_folder() / "launchers" / "megatron-lm.csv")
    return frozenset(row["name"] for _, row in rows if row[release] == "true")


@cache
def bridge_keys(release: str) -> frozenset[str]:
    """Every key of the configuration of a release of Megatron-Bridge, joined with dots.

    >>> sorted(key for key in bridge_keys("0.3.1") if key.startswith("dataset.seq") and key.endswith("length"))
    ['dataset.sequence_length']
    """
    rows = csv_rows(presets_folder() / "launchers" / "megatron-bridge.csv")
    return frozenset(row["name"] for _, row in rows if row[release] == "true")


@cache
def titan_keys(release: str) -> frozenset[str]:
    """Every key of the configuration of a release of torchtitan that a plan may decide, joined with dots.

    >>> "training.seq_len" in titan_keys("v0.3.0"), "training.max_context_length" in titan_keys("main (b5bcd76c6)")
    (True, True)
    """
    rows = csv_rows(presets_folder() / "launchers" / "torchtitan.csv")
    return frozenset(row["name"] for _, row in rows if row[release] == "true")
