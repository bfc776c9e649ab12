"""Modes of recomputation of many plans at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optimizer.job.recomputation import MODES, MODULES, RECOMPUTE, modules_of

_HOLDS = {module: np.array([module in modules_of(name) for name in RECOMPUTE]) for module in MODULES}


def recomputes(recompute: NDArray[np.int64], module: str) -> NDArray[np.bool_]:
    """Where a mode, an index of RECOMPUTE, names this module.

    >>> from optimizer.job.recomputation import RECOMPUTE
    >>> recomputes(np.array([0, 2, RECOMPUTE.index("layernorm+mlp")]), "mlp").tolist()
    [False, False, True]
    """
    return np.asarray(_HOLDS[module][recompute])


def modes(recompute: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of MODES: sets of modules count as none.

    >>> modes(np.array([1, 2, 3])).tolist()
    [1, 2, 0]
    """
    return np.where(recompute < len(MODES), recompute, 0)
