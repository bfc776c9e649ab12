"""What a buyer asks: which training runs, on machines of which kinds, under which limits, at which assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from optimizer.base.errors import InputError
from optimizer.base.units import whole
from optimizer.catalog.offers import USER, PriceBook
from optimizer.catalog.stacks import default_stack, load_stack
from optimizer.catalog.usual_batch import divisible_batch, usual_tokens
from optimizer.job.fields import EXPECTED
from optimizer.job.hardware import Cluster, Device, Tier
from optimizer.job.job import Job, Limits
from optimizer.job.known import RunsSource
from optimizer.job.model import Model
from optimizer.job.stack import Stack
from optimizer.purchase.ranges import Range, own_price

AUTO = -1  # as many spare nodes as pay


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """One training run of a portfolio."""

    model: Model
    tokens: float  # that reach the wanted loss at this batch
    seq_len: int  # tokens of a sequence
    global_batch: int  # sequences of a step
    assumed: bool = False  # nobody named the batch: it follows the GPUs as that of `optimize` does
    grows: bool = False  # nor did a published run of the model: it grows with them as published runs' did
    start: float = 0.0  # no earlier than so long after the first day [s]
    by: float = float("inf")  # ends no later than so long after it [s]

    def sequences(self, gpus: int) -> int:
        """Sequences per optimizer step on so many GPUs, for which `tokens` hold."""
        if not self.assumed:
            return self.global_batch
        batch = usual_tokens(gpus) // self.seq_len if self.grows else self.global_batch
        return divisible_batch(max(1, batch), gpus)


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One input that is not known exactly: its range in SI, what it means, and where it comes from."""

    name: str
    title: str
    value: Range
    unit: str
    source: str
    date: str = ""
    grade: str = ""


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Limits on the answer; infinite or empty when there is none. on_hand: GPUs that exist, by kind of machine."""

    deadline: float = float("inf")
    budget: float = float("inf")
    power: float = float("inf")
    racks: float = float("inf")
    on_hand: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """The whole question."""

    runs: tuple[TrainingRun, ...]
    assumptions: tuple[Assumption, ...]
    stack: Stack | None = None  # on every device; None takes the one that each device usually runs
    bounds: Requirements = Requirements()
    buy: bool = False  # amortises machines instead of renting them
    book: PriceBook = field(default_factory=PriceBook)  # every price that may be taken, the user's quotes in front
    # nodes that stand beside the job, AUTO for as many as pay; None where the provider puts in others
    spares: int | None = None
    bubble: float = Limits.bubble
    flex: float = 0.0  # how far a batch may move, as a share of it
    # variables of the inner plans, as of Limits; ranges and choices too
    fixed: Mapping[str, int | str | bool] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    choices: Mapping[str, tuple[int | str | bool, ...]] = field(default_factory=dict)
    # what devices run, by their name, with what the user's own runs say of it
    known: Mapping[str, Stack] = field(default_factory=dict)
    own_runs: RunsSource | None = None  # where these come from

    def software(self, device: Device) -> Stack:
        """What a device runs."""
        return self.known.get(device.name) or self.stack or load_stack(default_stack(device))

    def scenario(self, design: Design | None = None, **changes: float) -> dict[str, float]:
        """Every assumption at its middle, that of a design where it has its own, but for the given ones."""
        values = {item.name: item.value.mid for item in self.assumptions}
        if design is not None:
            device, cluster = design.cluster.device.name, design.cluster.name
            asked = (item.name for item in self.assumptions if item.grade != USER)
            values |= {name: own.value for name in asked if (own := own_price(name, device, cluster))}
        return values | changes


@dataclass(frozen=True, kw_only=True)
class Design:
    """One machine to consider: the outer variables of the search, 0 where the cluster's own is kept."""

    kind: str  # as the buyer wrote it
    cluster: Cluster
    gpus: int
    dtype: str = "bf16"
    batch_factor: float = 1.0  # multiplies each run's global batch
    power_cap: float = 1.0  # share of the device's power limit [1]
    nic: float = 0.0  # one-way bandwidth per GPU into the network [B/s]
    oversubscription: float = 0.0  # of its last tier [1]
    hbm: float = 0.0  # memory per GPU [B]
    scale_up: int = 0  # GPUs in the NVLink domain
    # nodes paid for that take the place of those in repair; None where others are put in at once
    spares: int | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Every variable, the cluster by its name: equal keys mean equal designs."""
        others = (getattr(self, item.name) for item in fields(self) if item.name != "cluster")
        return (self.cluster.name, *others)

    @property
    def network_bandwidth(self) -> float:
        """One-way bandwidth of one GPU into the first tier outside the scale-up domain [B/s]; 0 without a network."""
        if self.nic:
            return self.nic
        return self.cluster.tiers[1].link.bandwidth if len(self.cluster.tiers) > 1 else 0.0

    @property
    def domain(self) -> int:
        """GPUs of its scale-up domain."""
        return self.scale_up or self.cluster.scale_up_size

    @property
    def taper(self) -> float:
        """Oversubscription of the last tier [1]."""
        return self.oversubscription or self.cluster.tiers[-1].oversubscription

    def built(self) -> Cluster:
        """The cluster with this design's network and scale-up domain."""
        inner, *outer = self.cluster.tiers
        if self.scale_up:
            inner = replace(inner, size=self.scale_up)
        if self.nic:
            outer = [replace(tier, link=tier.link.scaled(self.nic)) for tier in outer]
        if self.oversubscription and outer:
            outer = [*outer[:-1], replace(outer[-1], oversubscription=self.oversubscription)]
        tiers: tuple[Tier, ...] = (inner, *outer)
        return replace(self.cluster, tiers=tiers)

    def job(self, campaign: Campaign, run: TrainingRun) -> Job:
        """The question for the planner. Raises InputError for a batch, dtype or size that cannot be."""
        return Job(
            model=run.model,
            cluster=self.built(),
            stack=campaign.software(self.cluster.device),
            gpus=self.gpus,
            seq_len=run.seq_len,
            global_batch=self.batch(run),
            dtype=self.dtype,
            prefer=EXPECTED,
            limits=Limits(
                bubble=campaign.bubble,
                hbm=self.hbm,
                fixed=campaign.fixed,
                ranges=campaign.ranges,
                choices=campaign.choices,
            ),
            own_runs=campaign.own_runs,
        )

    def batch(self, run: TrainingRun) -> int:
        """Sequences per optimizer step of a run."""
        return max(1, round(run.sequences(self.gpus) * self.batch_factor))

    @property
    def title(self) -> str:
        """The kind of machine as people write it: "GB200 NVL72"; a file by its name."""
        return self.kind.upper().replace("-", " ") if "." not in self.kind else self.cluster.name

    def label(self) -> str:
        """The design in a few words, without what is usual."""
        parts = [f"{self.gpus:,} {self.title}"]
        parts += [self.dtype] * (self.dtype != "bf16")
        parts += [f"batch ×{self.batch_factor:g}"] * (self.batch_factor != 1)
        parts += [f"cap {self.power_cap:.0%}"] * (self.power_cap != 1)
        parts += [f"NIC {self.nic * 8 / 1e9:.0f} Gb/s"] * bool(self.nic)
        parts += [f"{self.oversubscription:g}:1"] * bool(self.oversubscription)
        parts += [f"HBM {self.hbm / 1e9:.0f} GB"] * bool(self.hbm)
        parts += [f"domain {self.scale_up}"] * bool(self.scale_up)
        parts += [f"{self.spares} spare node{'s' * (self.spares != 1)}"] * bool(self.spares)
        return ", ".join(parts)


def counts(text: str) -> tuple[int, ...]:
    """GPU counts a buyer wrote: "1024:32768" doubles, "1024:4096:1024" steps, "512,768" lists.

    Raises InputError for anything else.

    >>> counts("1024:4k"), counts("1000:2000:500"), counts("512,768")
    ((1024, 2048, 4096), (1000, 1500, 2000), (512, 768))
    """
    try:
        if ":" not in text:
            numbers = tuple(whole(part) for part in text.split(","))
        else:
            low, high, *step = (whole(part) for part in text.split(":"))
            if len(step) > 1:
                raise ValueError
            doubled = (low << number for number in range((high // low).bit_length()))
            numbers = tuple(range(low, high + 1, step[0]) if step else doubled)
    except (ValueError, InputError):
        numbers = ()
    if not numbers:
        raise InputError(f"--gpus {text!r} is no range of GPU counts; write 1024:32768, 1024:4096:512 or 1024,1536")
    return numbers
