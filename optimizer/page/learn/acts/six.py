"""Act VI: what the table of an nccl-tests program says, and whether the network is the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from optimizer.base.content import Values, template
from optimizer.base.errors import InputError
from optimizer.catalog.readers.nccl_tests import nccl_samples
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.content_files import PACKAGE
from optimizer.studies.textbook import dense_flops

RANKS = 8
LARGEST = 200_000  # characters of a pasted table


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One line of a curve: `size` [B] reduced in `seconds` by so many `ranks`.

    >>> line = Reading(size=8_589_934_592, seconds=64074e-6, ranks=8)
    >>> round(line.algorithm / 1e9, 2), round(line.bus / 1e9, 2)
    (134.06, 234.61)
    """

    size: float
    seconds: float
    ranks: int
    kind: str = "all_reduce"

    @property
    def algorithm(self) -> float:
        """Bytes of the buffer over the time [B/s]."""
        return self.size / self.seconds

    @property
    def bus(self) -> float:
        """Bytes that each rank has to send over the time [B/s]."""
        return float(volume_per_rank(self.kind, self.size, self.ranks)) / self.seconds


@cache
def all_reduce_perf() -> tuple[tuple[float, ...], ...]:
    """Size [B], time [us], algorithm and bus bandwidth [GB/s] of all_reduce_perf on one node of eight A100.

    Source: the article on networks behind the act prints them.
    """
    _, *lines = template(PACKAGE, "content/all_reduce_perf.csv").splitlines()
    return tuple(tuple(map(float, line.split(","))) for line in lines)


def printed() -> tuple[Reading, ...]:
    """Those lines."""
    return tuple(Reading(size=size, seconds=1e-6 * time, ranks=RANKS) for size, time, _, _ in all_reduce_perf())


def pasted(text: str) -> tuple[Reading, ...]:
    """The out-of-place lines of a table that a reader pasted, smallest message first.

    Raises InputError for one that is too long, InvalidFile for one that cannot be read.
    """
    if len(text) > LARGEST:
        raise InputError(f"the table must have at most {LARGEST:,} characters, but got {len(text):,}")
    samples = nccl_samples(text, Path("pasted table"))
    lines = (Reading(size=x.message, seconds=x.time, ranks=x.ranks, kind=x.kind) for x in samples if not x.in_place)
    return tuple(sorted(lines, key=lambda line: line.size))


@dataclass(frozen=True, kw_only=True)
class BusCurve:
    """Lines of a table and where they are from; `problem` says why what was pasted was not read."""

    readings: tuple[Reading, ...]
    source: str
    problem: str = ""

    @property
    def best(self) -> float:
        """The best bus bandwidth [B/s]."""
        return max(line.bus for line in self.readings)


def read_curve(text: str) -> BusCurve:
    """The curve that a reader pasted, or the printed one where there is none or it cannot be read.

    >>> read_curve("").problem, read_curve("nonsense").problem != ""
    ('', True)
    """
    source, problem = "One node of eight A100", ""
    if text.strip():
        try:
            readings = pasted(text)
        except InputError as error:
            problem = str(error)
        else:
            if len(readings) > 1:
                return BusCurve(readings=readings, source="Your table")
            problem = "the table has fewer than two sizes"
    return BusCurve(readings=printed(), source=source, problem=problem)


def half_message(readings: tuple[Reading, ...]) -> float:
    """The smallest message that reaches half of the best bus bandwidth [B].

    >>> half_message(printed())
    33554432.0
    """
    best = max(line.bus for line in readings)
    return next(line.size for line in readings if line.bus >= best / 2)


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Is the network the bottleneck? fp32 gradients of `billions` of parameters sent twice at `rate` [B/s], beside the
    computation of `batch` sequences of 2,048 tokens on eight GPUs that reach `reached` [FLOP/s] each.

    >>> [round(Bottleneck(rate=rate).communication, 4) for rate in (300e9, 450e9, 25e9)]
    [0.0533, 0.0356, 0.64]
    >>> round(Bottleneck().computation, 2), Bottleneck().bound, Bottleneck(rate=25e9).bound
    (0.42, False, True)
    """

    billions: float = 2
    batch: int = 16
    rate: float = 300e9
    reached: float = 156e12
    gpus: int = 8

    @property
    def gradients(self) -> float:
        """fp32 gradients [B]."""
        return 4e9 * self.billions

    @property
    def communication(self) -> float:
        """Both passes of the all-reduce, taken whole [s]."""
        return 2 * self.gradients / self.rate

    @property
    def flops(self) -> float:
        """Operations of a GPU with recomputation [FLOP]."""
        return dense_flops(1e9 * self.billions, 2048.0 * self.batch, recomputed=True) / self.gpus

    @property
    def computation(self) -> float:
        """Their time [s]."""
        return self.flops / self.reached

    @property
    def bound(self) -> bool:
        """Whether communication takes longer."""
        return self.communication > self.computation


@cache
def advertised() -> float:
    """One-way bandwidth of NVLink 3 by its datasheet [B/s]."""
    from optimizer.catalog import load_link

    return load_link("nvlink3").bandwidth


@cache
def facts() -> Values:
    """The line of 8 GiB beside the datasheet."""
    line = printed()[18]
    return {
        "line": line,
        "advertised": advertised(),
        "share": line.bus / advertised(),
        "algorithm_share": line.algorithm / advertised(),
        "duplex_share": line.algorithm / (2 * advertised()),
    }


def controls(_context: str, pasted: str) -> dict[str, Values]:
    """A line of the table; at first the last but one."""
    last = len(read_curve(pasted).readings)
    return {"line": {"range": [1, last, 1], "value": last - 1}}


def shown(chosen: Values) -> Shown:
    """The reader's line of the curve, and the bottleneck at the reader's rate."""
    curve = read_curve(chosen["paste"])
    line, share = curve.readings[chosen["line"] - 1], Bottleneck(billions=chosen["billions"], rate=1e9 * chosen["rate"])
    values = {
        **{"curve": curve, "line": line, "share": share, "of_best": line.bus / curve.best},
        "kind": curve.readings[0].kind.replace("_", " ").capitalize(),
        "factor": line.bus / line.algorithm,
        "bus_formula": "algbw x 2 (n - 1) / n" if line.kind == "all_reduce" else "algbw x sent / size",
    }
    return Shown(values=values, charts={"act6-chart": lambda: curve_numbers(curve, line)})


def curve_numbers(curve: BusCurve, line: Reading) -> ChartNumbers:
    """Both bandwidths against the size of the message [GB/s]."""
    sizes = [each.size for each in curve.readings]
    return ChartNumbers(
        series={
            "busbw": Series(x=sizes, y=[each.bus / 1e9 for each in curve.readings]),
            "algbw": Series(x=sizes, y=[each.algorithm / 1e9 for each in curve.readings]),
            "here": Series(x=[line.size], y=[line.bus / 1e9]),
        },
        rows=[{"each": each} for each in curve.readings],
        values={"half": half_message(curve.readings), "limit": advertised() if curve.readings == printed() else None},
    )
