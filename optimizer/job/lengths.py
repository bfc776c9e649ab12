"""How long the documents of a job are, and what of that a micro-batch computes: packed into sequences, or padded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from optimizer.base.errors import InputError

ON, OFF = "on", "off"  # of `--packing`
POINTS = 1000  # equally likely lengths by which a distribution is counted
PERCENTS = (*range(100), 99.5, 99.8, 99.9, 100)  # by which a list of lengths is kept
SPREAD = 4.0  # a standard deviation over the mean beyond which a figure is mistyped
LONGEST = 2**24  # tokens of a document
_QUANTILE = re.compile(r"p(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)$")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(k?)$")
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lengths:
    """Lengths of documents that are equally likely, the shortest first, and how they are batched."""

    sizes: FloatArray  # of POINTS documents, or fewer where all are as long [tokens]
    # whether documents fill sequences whole and attend to themselves alone, or have one each, which is padded to the
    # longest of its micro-batch
    packed: bool

    @property
    def mean(self) -> float:
        """Of a document [tokens]."""
        return float(self.sizes.mean())

    def shares(self, micro_batch: FloatArray) -> FloatArray:
        """How likely each length is the longest of a micro-batch, a row for each; a packed document's own share [1].

        F^b - F'^b, F and F' being the shares of documents that are at most as long, and that are shorter.

        >>> two = Lengths(sizes=np.array([100.0, 200.0]), packed=False)
        >>> two.shares(np.array([1.0, 2.0])).tolist()
        [[0.5, 0.5], [0.25, 0.75]]
        """
        count = len(self.sizes)
        if self.packed:
            return np.full((len(micro_batch), count), 1.0 / count)
        return np.diff((np.arange(count + 1) / count)[None] ** micro_batch[:, None], axis=1)

    def computed(self, micro_batch: FloatArray, seq_len: int) -> FloatArray:
        """Tokens of a sequence that are computed [tokens]: all of a packed one, else the longest of its micro-batch.

        >>> lengths = lengths_of("100", OFF, 2048)
        >>> lengths.computed(np.array([1.0, 8.0]), 2048).tolist()
        [100.0, 100.0]
        """
        if self.packed:
            return np.full(len(micro_batch), float(seq_len))
        return np.asarray(self.shares(micro_batch) @ self.sizes)


@cache
def lengths_of(text: str, packing: str, seq_len: int) -> Lengths:
    """The lengths that `--lengths` says, documents beyond a sequence cut as training programs do.

    "900" are documents of 900 tokens; "900:600" are log-normal with that mean and standard deviation; those of
    "p50:400,p95:1900" have these quantiles, log-normal between any two and beyond the last. p0 and p100 are the
    shortest and the longest.

    Raises InputError for anything else.

    >>> round(lengths_of("900:600", ON, 1 << 20).mean), round(lengths_of("p50:400,p95:1900", OFF, 1024).mean)
    (900, 489)
    """
    points = quantiles_of(text)
    if len({size for _, size in points}) == 1:
        sizes = np.array([points[0][1]])
    else:
        normal = NormalDist()
        grid = np.array([normal.inv_cdf((index + 0.5) / POINTS) for index in range(POINTS)])
        at = np.array([normal.inv_cdf(min(max(share, 0.5 / POINTS), 1 - 0.5 / POINTS)) for share, _ in points])
        sizes = np.exp(_line(grid, at, np.log([size for _, size in points])))
    return Lengths(sizes=np.minimum(np.maximum(sizes, 1.0), seq_len), packed=packing == ON)


def longest(text: str) -> int:
    """The longest document, of a log-normal one of two thousand [tokens].

    >>> longest("900"), longest("p0:10,p100:4000")
    (900, 4000)
    """
    return int(np.ceil(lengths_of(text, OFF, LONGEST).sizes[-1] - 1e-6))


def quantiles_of(text: str) -> list[tuple[float, float]]:
    """Shares of documents and what they are at most as long as [1, tokens], both rising.

    Raises InputError for a text that says none.

    >>> quantiles_of("p50:400,p95:1900")
    [(0.5, 400.0), (0.95, 1900.0)]
    """
    words = [word.strip() for word in text.split(",")]
    if matches := [_QUANTILE.match(word) for word in words] if words[0].startswith("p") else []:
        points = [(float(each[1]) / 100, float(each[2])) for each in matches if each]
        rising = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(points))
        if len(points) == len(words) > 1 and rising and points[-1][0] <= 1 and points[0][1] >= 1:
            return _checked(points, text)
        raise _wrong(text, "quantiles rise from p0 to p100, two at least")
    numbers = [_tokens(part.strip(), text) for part in text.split(":", 1)]
    if numbers[0] < 1 or (len(numbers) > 1 and numbers[1] > SPREAD * numbers[0]):
        raise _wrong(text, f"a mean is at least 1 and its standard deviation at most {SPREAD:g} times as much")
    if len(numbers) == 1 or not numbers[1]:
        return _checked([(0.0, numbers[0]), (1.0, numbers[0])], text)
    width = sqrt(log(1 + (numbers[1] / numbers[0]) ** 2))
    middle = log(numbers[0]) - width**2 / 2
    # One standard deviation of the logarithms below and above the median.
    shares = NormalDist().cdf(-1.0), NormalDist().cdf(1.0)
    return _checked([(share, exp(middle + z * width)) for share, z in zip(shares, (-1, 1), strict=True)], text)


def quantile_text(sizes: Sequence[float]) -> str:
    """The lengths of documents as the text of lengths_of, by their per cents.

    >>> quantile_text([100, 100]), quantile_text([10, 30])[:18], quantile_text([1] + [5] * 200)[:9]
    ('100', 'p0:10,p1:10.2,p2:1', 'p0:1,p1:5')
    """
    values = np.quantile(np.asarray(sizes, dtype=float), np.array(PERCENTS) / 100)
    if values[0] == values[-1]:
        return f"{values[0]:g}"
    return ",".join(f"p{share:g}:{value:.8g}" for share, value in zip(PERCENTS, values, strict=True))


def _line(at: FloatArray, known: FloatArray, values: FloatArray) -> FloatArray:
    """Values on straight lines through the known ones, the first and last of which go on beyond them."""
    place = np.clip(np.searchsorted(known, at) - 1, 0, len(known) - 2)
    slope = (values[place + 1] - values[place]) / (known[place + 1] - known[place])
    return np.asarray(values[place] + slope * (at - known[place]))


def _tokens(text: str, whole: str) -> float:
    match = _NUMBER.match(text)
    if not match:
        raise _wrong(whole, f"{text!r} is no number of tokens")
    return float(match[1]) * (1024 if match[2] else 1)


def _checked(points: list[tuple[float, float]], text: str) -> list[tuple[float, float]]:
    if points[-1][1] > LONGEST:
        raise _wrong(text, f"a document has at most {LONGEST:,} tokens")
    return points


def _wrong(text: str, why: str) -> InputError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InputError(
        f"--lengths must be a file with a length a line, MEAN[:SD] such as 900:600, or quantiles such as "
        f"p50:400,p95:1900, but got {shown!r}: {why}"
    )
