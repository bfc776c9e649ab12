"""What a design costs in time, money and energy, given the plan that it would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from optimizer.base.units import GB
from optimizer.catalog.economics import default_price
from optimizer.catalog.offers import Offer
from optimizer.catalog.whole import Lot, whole
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.minimised.energy import busy_seconds
from optimizer.objectives.money import Ownership, ownership_cost, rent_cost, running_cost, surcharge
from optimizer.objectives.power import BusySeconds, step_energy
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import mfu
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, TrainingRun
from optimizer.purchase.price.batch_size import critical_batch, tokens_needed
from optimizer.purchase.price.catalogue import (
    added_network,
    host_memory,
    idle_power,
    network_price,
    paid,
    power_curve,
    price_row,
    provisioned_power,
    purchase_price,
    racks,
    rent_offer,
)
from optimizer.purchase.price.goodput import Checkpoint, waiting
from optimizer.purchase.price.run_cost import GPUS_PER_NODE, committed_cost, wall_time

J_PER_KWH = 3.6e6
OWNING = ("lifetime", "residual", "support", "staff", "software", "electricity", "colocation")  # inputs of Ownership


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The answer for one design. What is paid for beside the job idles."""

    time_to_train: float  # wall time of all runs [s]
    training_time: float
    goodput: float
    checkpoint_interval: float
    gpu_seconds: float
    cost: float  # [USD]
    energy: float  # of the site [J]
    co2: float  # [kg]
    mfu: float
    tokens: float  # processed, all runs together
    mean_power: float  # of the site over the whole time [W]
    peak_power: float  # of the site while every GPU computes [W]
    racks: int
    lot: Lot  # what is paid for
    checkpoint: Checkpoint  # the largest
    storage_share: float  # of the time in which the storage takes it at full bandwidth [1]
    waiting: float  # share of the time without enough nodes [1]
    ends: tuple[float, ...]  # of each run, one after the other [s]
    walls: tuple[float, ...]  # how long each takes [s]
    committed: float = 0.0  # rent of the shortest time that the contract binds for, 0 when bought [USD]
    network: float  # its price, or that of what goes beyond a rented cluster's [USD]
    capex: float = 0.0  # their price, 0 when rented [USD]
    running: float = 0.0  # what owned machines cost a second [USD/s]

    @property
    def paid_gpus(self) -> int:
        """GPUs paid for, in whole nodes, racks or slices."""
        return self.lot.gpus

    @property
    def tokens_per_joule(self) -> float:
        """Tokens processed for one joule of the site [1/J]."""
        return self.tokens / self.energy

    @property
    def tokens_per_dollar(self) -> float:
        """Tokens processed for one dollar [1/USD]."""
        return self.tokens / self.cost

    @property
    def cost_per_token(self) -> float:
        """Cost of one token [USD]."""
        return self.cost / self.tokens


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """The plan of one run."""

    estimate: Estimate  # what its step costs
    busy: BusySeconds  # what the mean GPU does meanwhile
    slower: float  # time of its step by what the user's own runs say, over the predicted one [1]

    @classmethod
    def of(cls, job: Job, plan: Plan, knobs: Knobs, estimate: Estimate) -> PlannedRun:
        """Of one run's job and plan."""
        mean = error_of(job, plan, mfu(job, estimate.step_time))[0] if job.stack.known else 0.0
        return cls(estimate=estimate, busy=busy_seconds(job, plan, knobs), slower=exp(mean))


def figures(
    campaign: Campaign,
    design: Design,
    planned: Sequence[PlannedRun],
    values: Mapping[str, float],
    on_host: float = 0.0,
) -> Figures:
    """Time, money and energy of a campaign on one design, one plan for each run, in one scenario.

    on_host: what the plans keep in the host's memory, per GPU [B]; bought machines get what they lack.
    """
    curve = power_curve(design, values)
    training = energy = tokens = weighted = peak = wall = busy = 0.0
    ends, times = [], []
    waits = waits_of(campaign, design, values)
    for run, plan in zip(campaign.runs, planned, strict=True):
        # A lower MFU than planned stretches every term, and the cap stretches the compute terms.
        estimate, rate = plan.estimate, values["mfu"] / plan.slower
        stretched = {term: seconds / rate for term, seconds in estimate.time.items()}
        step = step_energy(stretched, plan.busy.at(rate), curve, design.power_cap)
        seconds = step.step_time
        needed = tokens_of(design, run, values["critical_batch"])
        steps = needed / (design.batch(run) * run.seq_len)
        training += steps * seconds
        time = wall_time(steps * seconds, design.gpus, values, params=run.model.params, waiting=waits)
        times.append(time)
        busy += time.wall
        wall = max(wall, run.start) + time.wall
        ends.append(wall)
        # Lost work and restarts draw what training draws: a slight overestimate while nodes wait.
        energy += steps * step.total * design.gpus / time.goodput
        weighted += steps * estimate.mfu * estimate.step_time
        tokens += needed
        peak = max(peak, step.peak_power)
    largest = max(times, key=lambda time: time.checkpoint.size)
    pue = site_pue(campaign, design, values)
    lot = paid(campaign, design)
    idle = lot.spare * idle_power(design, values)
    site_energy = (energy + idle * wall) * pue
    power = site_energy / wall
    money = _money(campaign, design, values, wall, power, lot, on_host)
    return Figures(
        time_to_train=wall,
        training_time=training,
        goodput=training / busy,
        checkpoint_interval=largest.checkpoint_interval,
        checkpoint=largest.checkpoint,
        storage_share=largest.storage_share,
        waiting=waits,
        gpu_seconds=design.gpus * wall,
        energy=site_energy,
        co2=site_energy / J_PER_KWH * values["carbon_intensity"],
        mfu=weighted / training,
        tokens=tokens,
        mean_power=power,
        peak_power=(peak * design.gpus + idle) * pue,
        racks=racks(design),
        lot=lot,
        ends=tuple(ends),
        walls=tuple(time.wall for time in times),
        **money,
    )


def waits_of(campaign: Campaign, design: Design, values: Mapping[str, float]) -> float:
    """Share of the time for which the job waits for a repair [1]; 0 where someone else's nodes stand in.

    What whole things leave over is spare too.
    """
    if design.spares is None:
        return 0.0
    node = design.cluster.gpus_per_node
    standing = max(design.spares, paid(campaign, design).spare // node)
    return waiting(standing, design.gpus / GPUS_PER_NODE, values)


def tokens_of(design: Design, run: TrainingRun, spread: float) -> float:
    """Tokens that this design's batch needs for the loss of the run as published [tokens]; spread scales B_crit [1]."""
    critical = spread * critical_batch(run.model.active_params, run.tokens)
    base, batch = run.sequences(design.gpus) * run.seq_len, design.batch(run) * run.seq_len
    return float(tokens_needed(run.tokens, base, batch, critical))


def site_pue(campaign: Campaign, design: Design, values: Mapping[str, float]) -> float:
    """Site energy / IT energy: the provider's own where its row says it, moved as the assumption is moved [1]."""
    assumed = next(item for item in campaign.assumptions if item.name == "pue")
    own = price_row(campaign, design).pue
    if own is None or assumed.grade == "user":
        return values["pue"]
    return max(1.0, own * values["pue"] / assumed.value.mid)


def usual_tokens_per_joule(
    design: Design, offer: Offer, time: Mapping[str, float], busy: BusySeconds, tokens: float, goodput: float
) -> float:
    """Tokens that train for one joule of the site, at the middle of every assumption: a purchase's energy [1/J].

    Args:
        design: the machines.
        offer: by which they are priced; it says how they are sold, and the PUE of the site.
        time: seconds of a step by term [s].
        busy: what the mean GPU does meanwhile.
        tokens: of a step, for one GPU.
        goodput: share of the time that trains [1].
    """
    values = {item.name: item.value.mid for item in assumptions(buy=True)}
    used = step_energy(time, busy, power_curve(design, values), design.power_cap)
    lot = whole(design.gpus, design.cluster.gpus_per_node, offer.sold, offer.sold_as)
    idle = lot.spare / design.gpus * idle_power(design, values) * used.step_time
    return tokens / ((used.total + idle) * (offer.pue or values["pue"])) * goodput


def _money(
    campaign: Campaign,
    design: Design,
    values: Mapping[str, float],
    wall: float,
    power: float,
    lot: Lot,
    on_host: float,
) -> dict[str, float]:
    """The fields of Figures that are money."""
    if not campaign.buy:
        offer = rent_offer(campaign, design)
        added = added_network(design, lot.gpus, default_price("network_spread").value)
        usual = Ownership(**{name: default_price(name).value for name in OWNING})
        more = float(surcharge(added, usual)) if added else 0.0
        cost = float(rent_cost(lot.gpus, wall, offer.value * values["rent"])) + more * wall
        committed = committed_cost(lot, wall, offer) + more * max(wall, offer.commitment)
        return {"cost": cost, "committed": committed, "network": added}
    own, capex = ownership(campaign, design, values, lot.gpus, on_host)
    running = float(running_cost(capex, lot.gpus, lot.gpus * provisioned_power(design), power, own))
    return {"cost": float(ownership_cost(capex, wall, running, own)), "capex": capex, "running": running} | {
        "network": network_price(design, lot.gpus, values["network"])
    }


def ownership(
    campaign: Campaign, design: Design, values: Mapping[str, float], gpus: int, on_host: float = 0.0
) -> tuple[Ownership, float]:
    """What owning this design's machines costs, and their price with network and host memory [USD]."""
    each, offer = purchase_price(campaign, design)
    named = {name: getattr(offer, name) for name in ("lifetime", "residual", "electricity")}
    known = {name: value for name, value in named.items() if value or (name == "residual" and value is not None)}
    own = Ownership(**{name: values[name] for name in OWNING} | known)
    lacking = max(0.0, on_host - (host_memory(design) or on_host))
    memory = gpus * lacking / GB * default_price("memory_price").value
    return own, gpus * each * values["capex"] + network_price(design, gpus, values["network"]) + memory
