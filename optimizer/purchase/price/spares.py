"""Spare nodes: what training waits for without them, and how many pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping

MOST_SPARES = 4096
PATIENCE = 8  # counts without a better one, after which none is looked for


def blocked(servers: int, load: float) -> float:
    """Share of the time in which all of so many servers are busy [1]: Erlang's B.

    B(0) = 1, B(k) = a B(k - 1) / (k + a B(k - 1)); a: mean number of busy ones if there were no end of them [1]. It
    holds for any distribution of the time that a server is busy.

    Source: Erlang, Elektroteknikeren 13 (1917); for any distribution: Sevastyanov, Theory Probab. Appl. 2 (1957) 104.

    >>> round(blocked(1, 0.5), 4), round(blocked(2, 1.0), 4)
    (0.3333, 0.2)
    """
    share = 1.0
    for server in range(1, servers + 1):
        share = load * share / (server + load * share)
    return share


def waiting(spares: int, nodes: float, values: Mapping[str, float]) -> float:
    """Share of the time in which a job of `nodes` nodes waits for a repair, with so many spare ones beside it [1].

    B(spares + 1, a), a = nodes r q t: the job stands still while one node more is in repair than there are spares, and
    nothing fails while it stands. values: a scenario with `failure_rate` r of a node [1/s], `replaced_share` q of the
    interruptions that take a node out [1], and `repair` t, for which it is out [s].

    A thousand nodes of which one a day is a day in repair wait half of the time without a spare, and a fifth with one:

    >>> usual = {"failure_rate": 1e-3 / 86400, "replaced_share": 1.0, "repair": 86400.0}
    >>> [round(waiting(spares, 1000, usual), 3) for spares in (0, 1, 4)]
    [0.5, 0.2, 0.003]
    """
    return blocked(spares + 1, nodes * values["failure_rate"] * values["replaced_share"] * values["repair"])


def cheapest_count(cost: Callable[[int], float], most: int = MOST_SPARES, together: int = 1) -> int:
    """The number of spares from 0 to `most` at which a run costs least: costs fall with each at first, and then rise.

    together: nodes that are sold together, within which costs stay the same.

    >>> cheapest_count(lambda spares: (spares - 3) ** 2)
    3
    """
    best, least = 0, cost(0)
    for spares in range(1, most + 1):
        total = cost(spares)
        if total < least:
            best, least = spares, total
        elif spares - best >= PATIENCE + together:
            break
    return best
