"""The energy of a step: GPUs by what they do, their hosts and switches, and the cooling of all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from optimizer.base.errors import InputError
from optimizer.catalog.economics import default_price, find_price
from optimizer.catalog.offers import PriceBook
from optimizer.job.hardware import Cluster
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of_plan
from optimizer.objectives.network.fabric import PORT, fabric
from optimizer.objectives.objective import Objective, Phases, Surplus, all_layers, recomputed_layers, seconds_in
from optimizer.objectives.pipeline.stages import mean_stage
from optimizer.objectives.power import (
    WAITING_UTILISATION,
    BusySeconds,
    PowerCurve,
    compute_utilisation,
    phase_power,
    power_curve,
    power_limit,
)
from optimizer.objectives.step.flops import recomputed_flops, useful_flops
from optimizer.objectives.step.formula import COMPUTE, STREAM, WAIT


def watts(job: Job) -> float:
    """Power of the site while every GPU of a job waits [W].

    N x PUE x (P_limit p_wait + P_host + P_network); N: GPUs, P: of one GPU [W], p_wait: phase_power [1].

    Raises:
        InputError: where the power of the device is not known.
    """
    curve = usual_curve(job.cluster, job.gpus)
    waiting = float(phase_power(WAITING_UTILISATION, curve)[WAIT])
    return job.gpus * site_pue(job.cluster) * (curve.limit * waiting + curve.host + curve.network)


def phases(layer_costs: LayerCosts) -> Phases:
    """What the site draws beyond `watts` while every GPU computes or streams memory [W].

    N x PUE x P_limit x (p - p_wait), p at the plan's `utilisation`.
    """
    job, curve = layer_costs.job, usual_curve(layer_costs.job.cluster, layer_costs.job.gpus)
    shares = phase_power(utilisation(layer_costs), curve)
    scale = job.gpus * site_pue(job.cluster) * curve.limit
    return {phase: scale * (shares[phase] - shares[WAIT]) for phase in (COMPUTE, STREAM)}


def utilisation(layer_costs: LayerCosts) -> FloatArray:
    """Achieved share of the peak while the GPUs of a plan compute, as compute_utilisation has it [1].

    A plan computes at one utilisation, its operations over its seconds of matrix products with every layer recomputed
    that may be: which of them are changes both alike.
    """
    job = layer_costs.job
    spared, recompute = seconds_in(layer_costs, COMPUTE)
    layers = all_layers(layer_costs)
    busy = spared + sum((layers[kind] * added for kind, added in recompute.items()), np.zeros(len(layer_costs)))
    useful = useful_flops(job)
    anywhere = layer_costs.plans.placed(())
    recomputed_in_step = recomputed_flops(job, anywhere, mean_stage(job.model, anywhere))
    executed = (useful + recomputed_in_step) / job.gpus
    return compute_utilisation(busy, executed, job.cluster.device.peak_flops.get("bf16", job.peak_flops))


def busy_seconds(job: Job, plan: Plan, knobs: Knobs) -> BusySeconds:
    """What the mean GPU does in a step of a plan: the seconds that the energy of the plan counts."""
    layer_costs = layer_costs_of_plan(job, plan)
    seconds = {}
    for phase in (COMPUTE, STREAM):
        of_phase = Surplus(layer_costs=layer_costs, phases={phase: 1.0})
        seconds[phase] = float(
            (of_phase.spared(knobs.offload) + of_phase.recomputing(recomputed_layers(layer_costs)))[0]
        )
    return BusySeconds(compute=seconds[COMPUTE], stream=seconds[STREAM], utilisation=float(utilisation(layer_costs)[0]))


@lru_cache(maxsize=64)
def usual_curve(cluster: Cluster, gpus: int) -> PowerCurve:
    """Power of the GPUs of a cluster, their hosts and switches, at the middle of every assumption.

    Raises:
        InputError: where the power of the device is not known.
    """
    limit = power_limit(cluster.device)
    if limit is None:
        raise InputError(
            f"the power of {cluster.device.name} is not known, which energy and the cost of machines that nobody rents "
            "out are counted by: add a row power_limit to presets/prices.csv, or minimise the time of a step"
        )
    ports = cluster.tiers[1].link.bandwidth / PORT if len(cluster.tiers) > 1 else 0.0
    network = fabric(gpus, cluster.gpus_per_node, ports, cluster.tiers[-1].oversubscription)
    curve = power_curve(cluster.device, limit, network.switches, gpus)
    spread, host = default_price("power_spread").value, default_price("host_share").value
    return replace(curve, limit=limit * spread, host=host * limit)


@lru_cache(maxsize=64)
def site_pue(cluster: Cluster) -> float:
    """Energy of a site over that of its machines [1]: that of the offer which prices the cluster, else the usual."""
    offer = PriceBook().rent(cluster.device.name, cluster.name)
    usual = find_price("pue", "other")
    return (offer.pue if offer and offer.pue else 0.0) or (usual.value if usual else 1.0)


OBJECTIVE = Objective(
    name="energy",
    label="energy",
    unit="J",
    about="what GPUs, hosts, switches and their cooling draw during a step",
    good="efficient",
    better="more efficient",
    best="most efficient",
    worse="less efficient",
    per="joule",
    rate=watts,
    phases=phases,
)
