"""How often plans at a risk of going out of memory would have: `python -m maintain.risk_replay --runs FILE`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from optimizer.calibration.risk_replay import Replay, replay
from optimizer.calibration.runs import read_runs
from optimizer.catalog.files import presets_folder

RISKS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02)


@click.command()
@click.option("--runs", type=click.Path(path_type=Path), metavar="FILE.csv", help="Measured runs. [published ones]")
def main(runs: Path | None) -> None:
    """Print a Markdown table with a row for each risk."""
    click.echo("\n".join(table(replay(read_runs(runs or presets_folder() / "published.csv"), RISKS))))


def table(found: Sequence[Replay]) -> list[str]:
    """The replays as Markdown."""
    heads = ("--oom-risk", "groups", "answered", "out of memory", "rate", "mean regret", "slower than at 50%")
    rows = [
        (
            f"{item.risk:.0%}",
            f"{item.groups:,}",
            f"{item.answered:,}",
            f"{item.failed:,}",
            f"{item.rate:.1%}",
            f"{item.mean_regret:.1%}",
            f"{item.dearer:.1%}",
        )
        for item in found
    ]
    return [f"| {' | '.join(cells)} |" for cells in (heads, tuple("---" for _ in heads), *rows)]


if __name__ == "__main__":
    main()
