"""Critical batch size: bigger batches need more tokens for the same loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray

CHINCHILLA_FLOOR, CHINCHILLA_MODEL, CHINCHILLA_DATA = 1.69, 406.4, 410.7
CHINCHILLA_ALPHA, CHINCHILLA_BETA = 0.34, 0.28
KAPLAN_BATCH, KAPLAN_EXPONENT = 2.0e8, 0.21


def chinchilla_loss(params: ArrayLike, tokens: ArrayLike) -> FloatArray:
    """Cross-entropy at the end of training [nat per token].

    L = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28; N: parameters; D: tokens.

    Source: Hoffmann et al., arXiv 2203.15556, equation 10.

    >>> float(chinchilla_loss(70e9, 1.4e12).round(3))
    1.937
    """
    model = CHINCHILLA_MODEL / np.asarray(params, dtype=np.float64) ** CHINCHILLA_ALPHA
    data = CHINCHILLA_DATA / np.asarray(tokens, dtype=np.float64) ** CHINCHILLA_BETA
    loss: FloatArray = CHINCHILLA_FLOOR + model + data
    return loss


def critical_batch(params: ArrayLike, tokens: ArrayLike) -> FloatArray:
    """Batch at which training needs twice the fewest tokens and twice the fewest steps [tokens].

    B_crit = 2e8 / L^(1 / 0.21); L: chinchilla_loss of N parameters after D tokens [nat per token]. Assumed: two fits
    of other data chained and extrapolated; treat it as an order of magnitude.

    Source: Kaplan et al., arXiv 2001.08361, equation 1.4.

    >>> round(float(critical_batch(405e9, 15.6e12)) / 1e6, 1)
    11.6
    """
    batch: FloatArray = KAPLAN_BATCH / chinchilla_loss(params, tokens) ** (1.0 / KAPLAN_EXPONENT)
    return batch


def tokens_needed(published: float, published_batch: ArrayLike, batch: ArrayLike, critical: ArrayLike) -> FloatArray:
    """Tokens that reach with another batch the loss which `published` tokens reach with `published_batch` [tokens].

    D = D0 (1 + B / B_crit) / (1 + B0 / B_crit); D0: tokens; B, B0, B_crit: batches [tokens].

    Source: McCandlish et al., arXiv 1812.06162, equation 2.11: E = E_min (1 + B / B_crit).

    From a quarter of the critical batch to all of it, 2 / 1.25 of the tokens:

    >>> float(tokens_needed(1e12, 1e6, 4e6, 4e6))
    1600000000000.0
    """
    critical = np.asarray(critical, dtype=np.float64)
    tokens: FloatArray = (
        published * (1.0 + np.asarray(batch) / critical) / (1.0 + np.asarray(published_batch) / critical)
    )
    return tokens
