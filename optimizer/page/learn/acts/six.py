"""Act VI: a curve of nccl-tests, and whether the network is the bottleneck."""

from __future__ import annotations

from functools import cache

from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import Numbers, Series
from optimizer.page.learn.content_files import Values
from optimizer.page.learn.textbook.bus_curve import Bottleneck, Curve, Reading, half_message, printed, read_curve


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


def curve_numbers(curve: Curve, line: Reading) -> Numbers:
    """Both bandwidths against the size of the message [GB/s]."""
    sizes = [each.size for each in curve.readings]
    return Numbers(
        series={
            "busbw": Series(x=sizes, y=[each.bus / 1e9 for each in curve.readings]),
            "algbw": Series(x=sizes, y=[each.algorithm / 1e9 for each in curve.readings]),
            "here": Series(x=[line.size], y=[line.bus / 1e9]),
        },
        rows=[{"each": each} for each in curve.readings],
        values={
            "half": half_message(curve.readings),
            "limit": advertised() if curve.readings == printed() else None,
        },
    )
