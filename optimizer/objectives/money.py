"""Money: what a training run costs when its machines are rented, and when they are bought."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """What owning machines costs, besides their price."""

    lifetime: float  # over which the price is written off [s]
    residual: float  # share of the price that is got back at its end [1]
    support: float  # share of the price a second [1/s]
    staff: float  # share of the price a second [1/s]
    software: float  # per GPU [USD/s]
    electricity: float  # [USD/J]
    colocation: float  # per provisioned watt [USD/(W s)]


def rent_cost(gpus: ArrayLike, duration: ArrayLike, price: ArrayLike) -> FloatArray:
    """Cost of rented GPUs; the provider pays power, cooling and network [USD].

    C = N t p; N: GPUs paid for; t: wall time, failures included [s]; p: price of one GPU [USD/s].

    Source: price lists in presets/prices.csv, each row with its term and date.

    1,024 GPUs for ten days at 2.50 USD an hour:

    >>> float(rent_cost(1024, 864000.0, 2.5 / 3600))
    614400.0
    """
    cost: FloatArray = np.asarray(gpus, dtype=np.float64) * np.asarray(duration) * np.asarray(price)
    return cost


def running_cost(
    capex: ArrayLike, gpus: ArrayLike, provisioned: ArrayLike, power: ArrayLike, own: Ownership
) -> FloatArray:
    """What owned machines cost while they run, besides their price [USD/s].

    r = capex (support + staff) + N software + provisioned x colocation + power x electricity; capex [USD]; provisioned:
    rated power of the servers [W]; power: mean power drawn by the site, cooling included [W].

    >>> zero = {"staff": 0.0, "software": 0.0, "residual": 0.0}
    >>> own = Ownership(lifetime=1.0, support=0.01, electricity=2.0, colocation=1.0, **zero)
    >>> float(running_cost(100.0, 1, 3.0, 2.0, own))
    8.0
    """
    rate: FloatArray = (
        np.asarray(capex, dtype=np.float64) * (own.support + own.staff)
        + np.asarray(gpus) * own.software
        + np.asarray(provisioned) * own.colocation
        + np.asarray(power) * own.electricity
    )
    return rate


def resale_value(price: ArrayLike, age: ArrayLike, trend: float) -> FloatArray:
    """What used machines sell for: what new ones of the same performance cost by then [USD].

    V = P 10^(-g t); P: their price when new [USD]; t: age [s]; g: trend of the performance a dollar buys, in orders of
    magnitude [1/s]. Wear and what is left of their life are not counted: an upper bound of a market without scarcity.

    Source: price-performance of machine learning hardware, epoch-research/training-cost-trends
    cost_analysis_standalone.py @263c40a.

    At 0.14 orders of magnitude a year, two years leave about half of the price:

    >>> round(float(resale_value(1000.0, 2.0, 0.14)))
    525
    """
    value: FloatArray = np.asarray(price, dtype=np.float64) * 10.0 ** (-trend * np.asarray(age))
    return value


def ownership_cost(capex: ArrayLike, duration: ArrayLike, running: ArrayLike, own: Ownership) -> FloatArray:
    """Cost of a run on owned machines: price written off in a straight line, and running cost [USD].

    C = t (capex (1 - v) / L + r); t: wall time of the run [s]; L: lifetime [s]; v: residual value [1]; r: running_cost
    [USD/s]. The machines are taken to be busy with other work before and after.

    Source: epoch-research/training-cost-trends cost_analysis_standalone.py @263c40a, straight-line form.

    A tenth of the life of machines for 1 M USD, and 200,000 USD a lifetime to run them:

    >>> zero = {"support": 0.0, "staff": 0.0, "software": 0.0, "colocation": 0.0}
    >>> own = Ownership(lifetime=1.0, residual=0.0, electricity=0.0, **zero)
    >>> float(ownership_cost(1e6, 0.1, 2e5, own))
    120000.0
    """
    cost: FloatArray = np.asarray(duration, dtype=np.float64) * (
        np.asarray(capex) * (1.0 - own.residual) / own.lifetime + np.asarray(running)
    )
    return cost


def surcharge(added: ArrayLike, own: Ownership) -> FloatArray:
    """Rent that pays for what is added to rented machines [USD/s].

    r = added ((1 - v) / L + support + staff); added: price of it [USD]; v: residual value [1], L: lifetime [s].
    Assumed: the provider passes on its costs and no more.

    >>> zero = {"staff": 0.0, "software": 0.0, "residual": 0.0, "electricity": 0.0, "colocation": 0.0}
    >>> float(surcharge(100.0, Ownership(lifetime=50.0, support=0.01, **zero)))
    3.0
    """
    rate: FloatArray = np.asarray(added, dtype=np.float64) * (
        (1.0 - own.residual) / own.lifetime + own.support + own.staff
    )
    return rate


def break_even(capex: ArrayLike, running: ArrayLike, rent: ArrayLike) -> FloatArray:
    """Time of continuous use after which buying has cost less than renting; infinite when it never does [s].

    t = capex / (rent - running); capex [USD]; running: running_cost of the owned machines [USD/s]; rent: price of as
    many rented ones [USD/s].

    >>> break_even(1e6, 1.0, [3.0, 0.5]).tolist()
    [500000.0, inf]
    """
    saved = np.asarray(rent, dtype=np.float64) - np.asarray(running)
    with np.errstate(divide="ignore", invalid="ignore"):
        time: FloatArray = np.where(saved > 0, np.asarray(capex) / saved, np.inf)
    return time


def parity_price(cost: ArrayLike, gpus: ArrayLike, duration: ArrayLike) -> FloatArray:
    """Rent of one GPU at which a run costs as much as an alternative's [USD/s].

    p = C / (N t); C: the alternative's cost [USD]; N, t: GPUs and wall time of the run [s]. Below it
    this device is cheaper.

    >>> float(parity_price(614400.0, 1024, 864000.0) * 3600)
    2.5
    """
    price: FloatArray = np.asarray(cost, dtype=np.float64) / (np.asarray(gpus) * np.asarray(duration))
    return price
