"""What was proven about a plan, in sentences: the bound, the layouts, the knobs, and how near the others are."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.answer.answer import Certificate, NearTies
from optimizer.base.units import seconds, show
from optimizer.job.fields import EXPECTED
from optimizer.objectives.step.interval import LEVEL

SHOWN_GAIN = 5e-5  # below this a gain is printed as none


def shown(value: float, unit: str) -> str:
    """A value of an objective for people.

    >>> shown(5.3149, "s"), shown(2.5e9, "J"), shown(12_345.6, "USD"), shown(0.5, "kg")
    ('5.31 s', '2.5 GJ', '12,346 USD', '0.5 kg')
    """
    if unit == "s":
        return seconds(value)
    return show(value, unit) if unit == "J" else f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def layout_line(certificate: Certificate, pp: int) -> str:
    """What the layout of the layers gains over an even split; on one stage, only what is recomputed may gain."""
    if certificate.best == float("inf") or certificate.given:
        return ""
    words = certificate.objective
    if certificate.layout_gain is None:
        return "No even split of the layers fits: only an uneven layout, or one that recomputes some layers, does."
    if certificate.layout_gain < SHOWN_GAIN:
        known = f"as {words.good} as any layout searched" if certificate.proven else f"the {words.best} layout found"
        return f"An even split of the layers is {known}."
    if pp == 1:
        gain, even = f"{certificate.layout_gain:.1%}", shown(certificate.even, words.unit)
        return f"Recomputing some of the layers gains {gain} over all of them or none, {even}."
    even = shown(certificate.even, words.unit)
    return f"The layout gains {certificate.layout_gain:.1%} over the best even split, {even}."


def proof_lines(certificate: Certificate, ties: NearTies, pp: int, of_run: float | None = None) -> list[str]:
    """What was proven, over how many plans, what was not, and how near the others are.

    The proof is about each plan at its own best knobs; the bound over all knobs stands beside it.

    Args:
        certificate: what was proven.
        ties: how many plans come close.
        pp: stages of the best plan.
        of_run: what no run is expected to beat, the model's error within its interval [s].
    """
    unit, expected = certificate.objective.unit, " expected" if certificate.prefer == EXPECTED else ""
    verdict = "Proven optimal, each plan at its own knobs" if certificate.proven else "Not proven optimal"
    lines = [
        f"{verdict}: lower bound {shown(certificate.lower_bound, unit)}{expected} in this model, best "
        f"{shown(certificate.best, unit)}, "
        f"gap {certificate.gap:.2%}, {certificate.space:,} plans in the space."
    ]
    if certificate.method:
        lines.append(certificate.method)
    if of_run:
        lines.append(
            f"With what the model may err by at {LEVEL:.0%}, no run is expected to take less than {seconds(of_run)}."
        )
    lines.append(layout_line(certificate, pp))
    if 0 < certificate.knob_bound <= certificate.best:
        least = shown(certificate.knob_bound, unit)
        lines.append(
            f"No plan at any setting of the knobs takes less than {least} in this model: this answer is within "
            f"{certificate.best / certificate.knob_bound - 1:.1%} of that bound."
        )
    lines.append(ties_line(ties, given=certificate.given))
    lines += [f"Left out: {line}" for line in certificate.left_out]
    return lines


def ties_line(ties: NearTies, *, given: bool = False) -> str:
    """How many plans come close.

    >>> from optimizer.answer.answer import NearTies
    >>> ties_line(NearTies(within_1_percent=1, within_5_percent=2))
    '1 other plan lies within 1 % of the best, 2 within 5 %, evenly split or as laid out above.'
    >>> ties_line(NearTies())
    'No other plan lies within 5 % of the best, evenly split or as laid out above.'
    """
    one, five = ties.within_1_percent, ties.within_5_percent
    split = "laid out as asked" if given else "evenly split or as laid out above"
    if not five:
        return f"No other plan lies within 5 % of the best, {split}."
    if not one:
        return (
            f"No other plan lies within 1 % of the best, {five:,} {'does' if five == 1 else 'do'} within 5 %, {split}."
        )
    plans = "plan lies" if one == 1 else "plans lie"
    return f"{one:,} other {plans} within 1 % of the best, {five:,} within 5 %, {split}."


def timings(search_s: Mapping[str, float]) -> str:
    """Where the search spent its time."""
    parts = ", ".join(f"{name.replace('_', ' ')} {seconds(value)}" for name, value in search_s.items())
    return f"Search: {parts}." if parts else ""
