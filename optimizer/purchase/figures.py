"""What a design costs in time, money and energy, given the plan that it would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.objectives.step.estimate import Estimate
from optimizer.purchase.batch_size import critical_batch, tokens_needed
from optimizer.purchase.campaign import Campaign, Design, Run
from optimizer.purchase.catalogue import (
    occupied,
    ports,
    power_curve,
    provisioned_power,
    purchase_price,
    racks,
    rent_price,
)
from optimizer.purchase.energy import PowerCurve, StepEnergy, step_energy
from optimizer.purchase.goodput import (
    Reliability,
    exact_goodput,
    mean_time_between_failures,
    optimal_interval,
)
from optimizer.purchase.money import Ownership, cluster_price, network_share, ownership_cost, rent_cost, running_cost

GPUS_PER_NODE = 8  # of the failure rate's scope
J_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The answer for one design in SI: time [s], cost [USD], energy of the site [J], co2 [kg], power of the site [W].

    tokens: processed, all runs together. running: what owned machines cost a second; capex: their price, 0 when rented.
    peak_power: while every GPU computes; mean_power: over the whole time. utilisation: of the peak, in compute phases.
    """

    time_to_train: float
    training_time: float
    goodput: float
    checkpoint_interval: float
    gpu_seconds: float
    cost: float
    energy: float
    co2: float
    mfu: float
    tokens: float
    mean_power: float
    peak_power: float
    racks: int
    paid_gpus: int
    capex: float = 0.0
    running: float = 0.0

    @property
    def tokens_per_joule(self) -> float:
        """Tokens processed for one joule of the site [1/J]."""
        return self.tokens / self.energy

    @property
    def cost_per_token(self) -> float:
        """Cost of one token [USD]."""
        return self.cost / self.tokens


def figures(campaign: Campaign, design: Design, estimates: Sequence[Estimate], values: Mapping[str, float]) -> Figures:
    """Time, money and energy of a campaign on one design, one estimate for each run, in one scenario."""
    reliability = Reliability(
        failure_rate=values["failure_rate"] / GPUS_PER_NODE,
        restart=values["restart"],
        checkpoint_stall=values["checkpoint_stall"],
    )
    mtbf = mean_time_between_failures(reliability.failure_rate, design.gpus)
    interval = optimal_interval(reliability.checkpoint_stall, mtbf)
    share = float(exact_goodput(interval, reliability.checkpoint_stall, reliability.restart, mtbf))

    curve = power_curve(design, values)
    training = energy = tokens = weighted = peak = 0.0
    for run, estimate in zip(campaign.runs, estimates, strict=True):
        step = _step(design, estimate, curve, values)
        seconds = float(step.step_time)
        needed = tokens_of(design, run, values["critical_batch"])
        steps = needed / (design.batch(run) * run.seq_len)
        training += steps * seconds
        energy += steps * float(step.total) * design.gpus
        weighted += steps * estimate.mfu * estimate.step_time
        tokens += needed
        peak = max(peak, float(step.peak_power))
    wall = training / share
    # Lost work and restarts draw what training draws: a slight overestimate while nodes wait.
    site_energy = energy / share * values["pue"]
    power = site_energy / wall
    rented, bought = occupied(design)
    paid = bought if campaign.buy else rented
    cost, capex, running = _money(campaign, design, values, wall, power, paid)
    return Figures(
        time_to_train=wall,
        training_time=training,
        goodput=share,
        checkpoint_interval=float(interval),
        gpu_seconds=design.gpus * wall,
        cost=cost,
        energy=site_energy,
        co2=site_energy / J_PER_KWH * values["carbon_intensity"],
        mfu=weighted / training,
        tokens=tokens,
        mean_power=power,
        peak_power=peak * design.gpus * values["pue"],
        racks=racks(design),
        paid_gpus=paid,
        capex=capex,
        running=running,
    )


def tokens_of(design: Design, run: Run, spread: float = 1.0) -> float:
    """Tokens that this design's batch needs for the loss of the run as published [tokens]; spread scales B_crit [1]."""
    critical = spread * critical_batch(run.model.active_params, run.tokens)
    base, batch = run.global_batch * run.seq_len, design.batch(run) * run.seq_len
    return float(tokens_needed(run.tokens, base, batch, critical))


def _step(design: Design, estimate: Estimate, curve: PowerCurve, values: Mapping[str, float]) -> StepEnergy:
    """One step: a lower MFU than planned stretches every term, and the cap stretches the compute terms."""
    device = design.cluster.device
    executed = estimate.hfu * estimate.step_time * device.peak(design.dtype)
    reference = device.peak_flops.get("bf16", device.peak(design.dtype))
    stretched = {term: seconds / values["mfu"] for term, seconds in estimate.time.items()}
    return step_energy(stretched, executed, reference, curve, design.power_cap)


def _money(
    campaign: Campaign, design: Design, values: Mapping[str, float], wall: float, power: float, paid: int
) -> tuple[float, float, float]:
    if not campaign.buy:
        return float(rent_cost(paid, wall, rent_price(campaign, design)[0] * values["rent"])), 0.0, 0.0
    own, capex = ownership(campaign, design, values, paid)
    running = float(running_cost(capex, paid, paid * provisioned_power(design), power, own))
    return float(ownership_cost(capex, wall, running, own.lifetime)), capex, running


def ownership(campaign: Campaign, design: Design, values: Mapping[str, float], gpus: int) -> tuple[Ownership, float]:
    """What owning this design's machines costs, and their price with the network [USD]."""
    network = float(network_share(values["network_share"], ports(design), design.taper))
    own = Ownership(
        lifetime=values["lifetime"],
        network_share=network,
        support=values["support"],
        staff=values["staff"],
        software=values["software"],
        electricity=values["electricity"],
        colocation=values["colocation"],
    )
    servers = gpus * purchase_price(campaign, design)[0] * values["capex"]
    return own, float(cluster_price(servers, network))
