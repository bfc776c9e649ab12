"""The keys of a user's device and cluster files, for pydantic; imported only when such a file is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from optimizer.base.errors import InputError
from optimizer.base.units import HUGE, parse
from optimizer.catalog.readers.tables import Count, FileTable, Flag, Name, Number, Positive, Share, Text, Unsigned

EXAMPLES = {"B/s": "400 Gb/s", "B": "80 GB", "FLOP/s": "989.5 TFLOP/s", "s": "2 us", "W": "700 W", "J/bit": "5 pJ/bit"}


def quantity(value: Any, dimension: str) -> float:
    """A quantity with its unit, in SI; raises ValueError when the unit is missing, wrong, or the value negative.

    >>> quantity("400 Gb/s", "B/s")
    50000000000.0
    """
    example = f"for example {EXAMPLES[dimension]!r}"
    if isinstance(value, int | float) or (isinstance(value, str) and value.strip().replace(".", "", 1).isdigit()):
        raise ValueError(f"{value!r} has no unit; expected [{dimension}], {example}")
    if not isinstance(value, str):
        raise ValueError(f"expected a text in [{dimension}], {example}, but got {value!r}")
    try:
        number = parse(value, dimension)
    except InputError as error:
        raise ValueError(f"{error}, {example}") from error
    if number > HUGE:
        raise ValueError(f"must be at most {HUGE:g} [{dimension}], but got {value!r}")
    if number < 0:
        raise ValueError(f"must not be negative, but got {value!r}")
    return number


Rate = Annotated[float, BeforeValidator(partial(quantity, dimension="B/s")), Field(gt=0), "a rate above 0 [B/s]"]
Memory = Annotated[float, BeforeValidator(partial(quantity, dimension="B")), Field(gt=0), "a size above 0 [B]"]
Size = Annotated[float, BeforeValidator(partial(quantity, dimension="B"))]
Flops = Annotated[float, BeforeValidator(partial(quantity, dimension="FLOP/s")), Field(gt=0), "a rate above 0 [FLOP/s]"]
Time = Annotated[float, BeforeValidator(partial(quantity, dimension="s"))]
Power = Annotated[float, BeforeValidator(partial(quantity, dimension="W"))]
Energy = Annotated[float, BeforeValidator(partial(quantity, dimension="J/bit"))]
Topology = Annotated[Literal["switch", "mesh", "torus", "bus"], "one of switch, mesh, torus, bus"]
_ONE_WAY = "does not say which way; write {}_one_way [B/s]"


class GemmTable(FileTable):
    """How fast a device multiplies matrices, as measured on it: parameters of gemm_curve, in SI units."""

    ceiling: Share | None = None
    small_rate: Share | None = None
    wave_softness: Annotated[float, Field(strict=True, ge=0, le=1), "a number from 0 to 1"] | None = None
    k_half: Unsigned | None = None
    launch: Unsigned | None = None
    memory_efficiency: Share | None = None


class DeviceTable(FileTable):
    """A device: complete, or `like` a preset with some values of its own."""

    name: Name
    like: Text | None = None
    vendor: Text | None = None
    peak_flops: dict[str, Flops] | None = None
    memory: Memory | None = None
    memory_nominal: Memory | None = None
    memory_bandwidth: Rate | None = None
    l2_cache: Size | None = None
    sms: Count | None = None
    power: Power | None = None
    host_slowness: Positive | None = None
    measured_matmul: dict[str, Flops] | None = None
    gemm: dict[Annotated[Literal["bf16", "fp8"], "one of bf16, fp8"], GemmTable] | None = None

    @model_validator(mode="after")
    def _complete(self) -> DeviceTable:
        required = ("peak_flops", "memory", "memory_bandwidth")
        missing = [key for key in required if getattr(self, key) is None]
        if missing and self.like is None:
            raise ValueError(f"give {', '.join(missing)}, or like = the preset that they are taken from")
        return self


class TierTable(FileTable):
    """A tier: a link by preset name, by its own values, or both."""

    advice: ClassVar[Mapping[str, str]] = {
        "bandwidth": f"{_ONE_WAY.format('bandwidth')}, or bandwidth_duplex for both ways together",
        "p2p_bandwidth": _ONE_WAY.format("p2p_bandwidth"),
    }

    name: Name
    link: Text | None = None
    bandwidth_one_way: Rate | None = None
    bandwidth_duplex: Rate | None = None
    ports_per_gpu: Positive = 1.0
    latency: Time | None = None
    energy: Energy | None = None
    efficiency: Share | None = None
    half_message: Size | None = None
    in_switch_reduction: Flag | None = None
    topology: Topology | None = None
    p2p_bandwidth_one_way: Rate | None = None
    quantities: dict[str, Number] | None = None
    size: Count | None = None
    oversubscription: Annotated[float, Field(strict=True, ge=1, le=HUGE), "a number of at least 1"] = 1.0

    @model_validator(mode="after")
    def _one_bandwidth(self) -> TierTable:
        if self.bandwidth_one_way and self.bandwidth_duplex:
            raise ValueError("give bandwidth_one_way or bandwidth_duplex, not both")
        if not (self.link or self.bandwidth_one_way or self.bandwidth_duplex):
            raise ValueError("give a link, or bandwidth_one_way [B/s]")
        return self


class ClusterTable(FileTable):
    """A cluster: a device and the tiers of its network, innermost first."""

    advice: ClassVar[Mapping[str, str]] = {"host_bandwidth": _ONE_WAY.format("host_bandwidth")}

    name: Name
    device: Annotated[Any, "the name of a preset or a table"]
    gpus_per_node: Count = 8
    max_gpus: Count = 1_000_000
    host_bandwidth_one_way: Rate | None = None
    host_memory: Size | None = None
    tiers: Annotated[tuple[TierTable, ...], Field(min_length=1), "tables [[tiers]], innermost first"]
