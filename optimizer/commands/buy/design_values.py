"""How the options of `optimize pareto` are read: lists or ranges of a design variable, and deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError
from optimizer.base.units import parse, whole

if TYPE_CHECKING:
    from optimizer.purchase.staged import Delivery

Axis = tuple[tuple[float, ...], tuple[float, float] | None]


def axis(option: str, text: str, read: Callable[[str], float], usual: float) -> Axis:
    """Values of a design variable, and its bounds when they were written as a range for the continuous search.

    Raises InputError for a value that cannot be read, or bounds that do not rise.

    >>> axis("--nic", "200,400", float, 0.0), axis("--nic", "200:800", float, 0.0), axis("--nic", "", float, 0.0)
    (((200.0, 400.0), None), ((0.0,), (200.0, 800.0)), ((0.0,), None))
    """
    if not text:
        return (usual,), None
    try:
        if ":" in text:
            low, high = (read(part.strip()) for part in text.split(":"))
            if not 0 < low < high:
                raise ValueError
            return (usual,), (low, high)
        values = tuple(read(part.strip()) for part in text.split(","))
        if min(values) <= 0:
            raise ValueError
    except ValueError:
        raise InputError(f"{option} {text!r} is neither a list such as 1,2 nor a rising range such as 1:2") from None
    return values, None


def stages(text: str) -> tuple[Delivery, ...]:
    """Deliveries that a buyer wrote, the first of them now. Raises InputError for anything else.

    >>> [(item.gpus, item.at / 86400) for item in stages("2048,2k@180d")]
    [(2048, 0.0), (2048, 180.0)]
    """
    from optimizer.purchase.staged import Delivery

    deliveries = []
    try:
        for part in text.split(","):
            count, at, date = part.strip().partition("@")
            if at and date.strip()[-1:].isdigit():
                raise ValueError
            deliveries.append(Delivery(gpus=whole(count), at=parse(date, "s") if at else 0.0))
        dates = [item.at for item in deliveries]
        if min(item.gpus for item in deliveries) < 1 or dates[0] != 0 or sorted(set(dates)) != dates:
            raise ValueError
    except (ValueError, InputError):
        raise InputError(
            f"--stages {text!r} is no list of deliveries; write 2048,2048@180d: so many GPUs now, so many more after "
            "180 days"
        ) from None
    return tuple(deliveries)


def gigabits(text: str) -> float:
    """A bandwidth [B/s], plain numbers in Gb/s.

    >>> gigabits("400"), gigabits("50 GB/s")
    (50000000000.0, 50000000000.0)
    """
    plain = text.replace(".", "", 1).isdigit()
    return parse(f"{text} Gb/s" if plain else text, "B/s")


def share(text: str) -> float:
    """A share of one.

    >>> share("80%"), share("0.8")
    (0.8, 0.8)
    """
    return parse(text, "1")


def size(text: str) -> float:
    """A size in memory [B], plain numbers in GB.

    >>> size("141"), size("80GiB")
    (141000000000.0, 85899345920.0)
    """
    return parse(f"{text} GB" if text.replace(".", "", 1).isdigit() else text, "B")
