"""Money: what a training run costs when its machines are rented, and when they are bought."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """What owning machines costs, besides their price. Shares [1], rates in SI.

    lifetime: over which the price is written off [s]. network_share: network / whole cluster. support, staff: of the
    price a second [1/s]. software: per GPU [USD/s]. electricity [USD/J]. colocation: per provisioned watt [USD/(W s)].
    """

    lifetime: float
    network_share: float
    support: float
    staff: float
    software: float
    electricity: float
    colocation: float


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


def cluster_price(servers: ArrayLike, network_share: ArrayLike) -> FloatArray:
    """Price of servers with the network that joins them [USD].

    P = servers / (1 - s); s: network / whole cluster [1].

    Source: epoch-research/training-cost-trends @263c40a: the interconnect is 19 % of a cluster's cost.

    >>> float(cluster_price(81e6, 0.19))
    100000000.0
    """
    price: FloatArray = np.asarray(servers, dtype=np.float64) / (1.0 - np.asarray(network_share))
    return price


def network_share(share: ArrayLike, ports: ArrayLike = 1.0, oversubscription: ArrayLike = 1.0) -> FloatArray:
    """Network / whole cluster when ports and spine differ from the usual fabric [1].

    s' = x / (1 + x), x = s / (1 - s) x ports x (2 + 1 / o) / 3: the network's price grows with the ports, a third of
    it (the spine) shrinks with the oversubscription o [1]. Assumed: proportional prices.

    Source: 48 switches for 1,024 GPUs, 16 of them spines, as in objectives.energy.switch_power.

    >>> round(float(network_share(0.19)), 3), round(float(network_share(0.19, ports=2.0)), 3)
    (0.19, 0.319)
    """
    share = np.asarray(share, dtype=np.float64)
    ratio = share / (1.0 - share) * np.asarray(ports) * (2.0 + 1.0 / np.asarray(oversubscription)) / 3.0
    result: FloatArray = ratio / (1.0 + ratio)
    return result


def running_cost(
    capex: ArrayLike, gpus: ArrayLike, provisioned: ArrayLike, power: ArrayLike, own: Ownership
) -> FloatArray:
    """What owned machines cost while they run, besides their price [USD/s].

    r = capex (support + staff) + N software + provisioned x colocation + power x electricity; capex [USD]; provisioned:
    rated power of the servers [W]; power: mean power drawn by the site, cooling included [W].

    >>> zero = {"network_share": 0.0, "staff": 0.0, "software": 0.0}
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


def ownership_cost(capex: ArrayLike, duration: ArrayLike, running: ArrayLike, lifetime: ArrayLike) -> FloatArray:
    """Cost of a run on owned machines: price written off in a straight line, and running cost [USD].

    C = t (capex / L + r); t: wall time of the run [s]; L: lifetime [s]; r: running_cost [USD/s]. The machines are
    taken to be busy with other work before and after.

    Source: epoch-research/training-cost-trends cost_analysis_standalone.py @263c40a, straight-line form.

    A tenth of the life of machines for 1 M USD, and 200,000 USD a lifetime to run them:

    >>> float(ownership_cost(1e6, 0.1, 2e5, 1.0))
    120000.0
    """
    cost: FloatArray = np.asarray(duration, dtype=np.float64) * (
        np.asarray(capex) / np.asarray(lifetime) + np.asarray(running)
    )
    return cost


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
    """Rent of one GPU at which a run costs as much as a rival's [USD/s].

    p = C / (N t); C: the rival's cost [USD]; N, t: GPUs and wall time of the run [s]. Below it this device is cheaper.

    >>> float(parity_price(614400.0, 1024, 864000.0) * 3600)
    2.5
    """
    price: FloatArray = np.asarray(cost, dtype=np.float64) / (np.asarray(gpus) * np.asarray(duration))
    return price
