"""How the layers of a stage can be dealt to its virtual stages, each of which recomputes its first so many layers."""

from __future__ import annotations

from functools import lru_cache

Limits = tuple[tuple[int, int], ...]  # fewest and most layers on each virtual stage of a stage


@lru_cache(maxsize=1024)
def dealings(limits: Limits, first: int) -> tuple[frozenset[tuple[int, int]], ...]:
    """Layers and recomputed layers that no, one, two, ... and all of the virtual stages can hold together.

    >>> [sorted(pairs) for pairs in dealings(((1, 2), (1, 2)), 1)]
    [[(0, 0)], [(1, 1), (2, 1)], [(2, 2), (3, 2), (4, 2)]]
    """
    found = [frozenset({(0, 0)})]
    for low, high in limits:
        counts = range(low, high + 1)
        found.append(frozenset((held + n, again + min(n, first)) for held, again in found[-1] for n in counts))
    return tuple(found)


def dealt(limits: Limits, first: int, layers: int, again: int) -> list[int]:
    """So many layers, of which so many are recomputed, on the virtual stages: the earlier ones hold the more.

    >>> dealt(((1, 2), (1, 2), (0, 2)), 1, 4, 3)
    [2, 1, 1]
    """
    possible, counts = dealings(limits, first), []
    for number in range(len(limits), 0, -1):
        low, high = limits[number - 1]
        near = sorted(range(low, high + 1), key=lambda n: (abs(n - layers // number), n))
        n = next(n for n in near if (layers - n, again - min(n, first)) in possible[number - 1])
        counts.append(n)
        layers, again = layers - n, again - min(n, first)
    return counts[::-1]
