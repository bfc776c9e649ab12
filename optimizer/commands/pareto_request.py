"""From what a buyer typed to a campaign and a grid of designs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.commands.pareto_values import Axis, axis, gigabits, money, share, size
from optimizer.commands.request import Request, job_of
from optimizer.commands.values import merged
from optimizer.errors import InputError, InvalidFile
from optimizer.job import QUANTISED
from optimizer.readers.text import read_text

if TYPE_CHECKING:
    from optimizer.hardware import Cluster
    from optimizer.purchase.campaign import Bounds, Campaign, Design, Run
    from optimizer.purchase.grid import Grid

PORTFOLIO_COLUMNS = ("model", "tokens", "seq_len", "global_batch")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was typed; "" and None stand for what was left out."""

    model: str
    tokens: float
    hardware: str
    gpus: str
    portfolio: Path | None = None
    seq_len: int | None = None
    global_batch: int | None = None
    stack: str = ""
    dtype: str = "bf16"
    nic: str = ""
    oversubscription: str = ""
    hbm: str = ""
    scale_up: str = ""
    power_cap: str = ""
    batch_factor: str = ""
    buy: bool = False
    term: str = ""
    rents: Mapping[str, str]
    prices: Mapping[str, str]
    assume: Mapping[str, str]
    bubble: float = 1.0
    fix: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Question:
    """The campaign, the grid of its discrete designs, the ranges of its continuous ones, and what was assumed."""

    campaign: Campaign
    grid: Grid
    ranges: dict[str, tuple[float, float]]
    kinds: tuple[Design, ...]
    assumed: tuple[str, ...]


def question_of(wish: Wish, bounds: Bounds) -> Question:
    """The question a buyer asked. Raises InputError for a name, number or combination that cannot be used."""
    from optimizer.presets import load_stack
    from optimizer.purchase.assumptions import assumptions
    from optimizer.purchase.campaign import Campaign, Design, counts
    from optimizer.purchase.grid import Grid

    kinds = tuple(Design(kind=name, cluster=cluster, gpus=1) for name, cluster in _clusters(wish.hardware).items())
    unknown = [name for name in (*wish.rents, *wish.prices, *bounds.on_hand) if name not in {k.kind for k in kinds}]
    if unknown:
        raise InputError(f"{unknown[0]!r} is priced or counted but not in --hardware {wish.hardware}")
    gpus = counts(wish.gpus)
    runs, assumed = _runs(wish, kinds[0].kind)
    stack = load_stack(wish.stack or "megatron-core")
    axes: dict[str, Axis] = {
        "nic": axis("--nic", wish.nic, gigabits, 0.0),
        "oversubscription": axis("--oversubscription", wish.oversubscription, float, 0.0),
        "hbm": axis("--hbm", wish.hbm, size, 0.0),
        "power_cap": axis("--power-cap", wish.power_cap, share, 1.0),
        "batch_factor": axis("--batch-factor", wish.batch_factor, float, 1.0),
    }
    domains, ranged = axis("--scale-up", wish.scale_up, float, 0.0)
    if ranged:
        raise InputError(f"--scale-up {wish.scale_up} must be a list of GPU counts such as 8,72")
    campaign = Campaign(
        runs=runs,
        stack=stack,
        assumptions=assumptions(wish.buy, wish.assume),
        bounds=bounds,
        buy=wish.buy,
        term=wish.term,
        rents={name: money(text) / 3600 for name, text in wish.rents.items()},
        prices={name: money(text) for name, text in wish.prices.items()},
        bubble=wish.bubble,
        **merged(wish.fix),
    )
    grid = Grid(
        kinds=kinds,
        gpus=gpus,
        dtypes=tuple(part.strip() for part in wish.dtype.split(",")),
        batch_factors=axes["batch_factor"][0],
        power_caps=axes["power_cap"][0],
        nics=axes["nic"][0],
        oversubscriptions=axes["oversubscription"][0],
        hbms=axes["hbm"][0],
        scale_ups=tuple(int(domain) for domain in domains),
    )
    ranges = {name: found[1] for name, found in axes.items() if found[1]}
    return Question(
        campaign=campaign, grid=grid, ranges=ranges, kinds=kinds, assumed=tuple(assumed) + _notes(wish, axes)
    )


def _clusters(hardware: str) -> Mapping[str, Cluster]:
    from optimizer.presets import load_cluster

    names = [name.strip() for name in hardware.split(",") if name.strip()]
    if not names:
        raise InputError("--hardware names no machine; write for example h100,gb200-nvl72")
    return {name: load_cluster(name) for name in names}


def _runs(wish: Wish, cluster: str) -> tuple[tuple[Run, ...], list[str]]:
    if wish.portfolio is not None:
        return _portfolio(wish.portfolio, cluster), [
            f"runs of {wish.portfolio} one after the other on the same machines"
        ]
    run, assumed = _run(wish.model, wish.tokens, wish.seq_len, wish.global_batch, cluster)
    return (run,), assumed


def _run(model: str, tokens: float, seq_len: int | None, batch: int | None, cluster: str) -> tuple[Run, list[str]]:
    """One run, what is missing filled in as `optimize` itself fills it."""
    from optimizer.purchase.campaign import Run

    job, assumed = job_of(
        Request(
            model=model, gpus=8, cluster=cluster, stack="megatron-core", seq_len=seq_len, global_batch=batch, limits={}
        )
    )
    if tokens < job.tokens:
        raise InputError(f"{tokens:g} tokens are less than one step of {job.tokens:,}; --tokens counts the whole run")
    run = Run(model=job.model, tokens=tokens, seq_len=job.seq_len, global_batch=job.global_batch)
    return run, [line for line in assumed if "--seq-len" in line or "--global-batch" in line]


def _portfolio(path: Path, cluster: str) -> tuple[Run, ...]:
    """The runs of a CSV with the columns model, tokens and, if wanted, seq_len and global_batch."""
    from optimizer.calibration.row_numbers import number_problems

    try:
        lines = list(csv.DictReader(read_text(path).splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(path, [f"cannot be read: {error}"]) from None
    if not lines or not {"model", "tokens"} <= set(lines[0]) or set(lines[0]) - set(PORTFOLIO_COLUMNS):
        raise InvalidFile(path, [f"needs a line of headings with model and tokens, of {', '.join(PORTFOLIO_COLUMNS)}"])
    runs, problems = [], []
    for number, line in enumerate(lines, start=2):
        wrong = number_problems(line, PORTFOLIO_COLUMNS[2:], ("tokens",))
        wrong += [f"{name} is missing" for name in ("model", "tokens") if not line[name]]
        problems += [f"line {number}: {problem}" for problem in wrong]
        if wrong:
            continue
        try:
            seq_len, batch = (int(float(line[name])) if line.get(name) else None for name in PORTFOLIO_COLUMNS[2:])
            runs.append(_run(line["model"], float(line["tokens"]), seq_len, batch, cluster)[0])
        except InputError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise InvalidFile(path, problems)
    return tuple(runs)


def _notes(wish: Wish, axes: Mapping[str, Axis]) -> tuple[str, ...]:
    """What a reader must know about this very question."""
    notes = ["the software stack's efficiency is taken to be the same on every device"]
    if not wish.rents and not wish.prices:
        notes.append("prices are published figures of the dates named, not offers; ask for quotes")
    if wish.power_cap:
        notes.append("power caps follow a DVFS law (assumed): no cap was measured in LLM training on these devices")
    if wish.batch_factor:
        notes.append(
            "other batches need other numbers of tokens by the critical-batch model (assumed; arXiv 1812.06162)"
        )
    if axes["hbm"] != ((0.0,), None):
        notes.append("another HBM size changes neither price nor power (a what-if question)")
    if axes["nic"] != ((0.0,), None) and not wish.buy:
        notes.append("rent does not change with the network; with --buy its price and power do")
    notes += [f"{name} is taken to need no more tokens than bf16" for name in QUANTISED if name in wish.dtype]
    return tuple(notes)
