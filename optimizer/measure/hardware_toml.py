"""Measured hardware as the TOML files that `--cluster` and device files take."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.base.names import one_line, toml_string
from optimizer.calibration.link import tier_lines
from optimizer.measure.hardware_of import Made
from optimizer.measure.measured import NodeMeasurements


def device_toml(made: Made, measured: NodeMeasurements, table: str = "") -> str:
    """The device, as a file of its own or as a `table` of a cluster file."""
    device, known = made.device, made.known
    dot = f"{table}." if table else ""
    lines = [f"[{table}]"] if table else [_head(measured)]
    lines += [f"name = {toml_string(device.name)}"]
    if known:
        lines += [f"like = {toml_string(device.name)}  # what is not said here is the catalogue's"]
    else:
        lines += [f"vendor = {toml_string(device.vendor)}"]
    lines += [
        f'memory = "{device.memory:.0f} B"  # measured: what the driver says',
        f'memory_nominal = "{device.memory_nominal:.0f} B"',
        f'memory_bandwidth = "{device.memory_bandwidth / 1e9:.6g} GB/s"  # measured: {_stream(made)}',
        f"sms = {device.sms}",
    ]
    if not known:
        lines += [f"[{dot}peak_flops]  # the best product that was measured", *_rates(device.peak_flops)]
    lines += [
        f"[{dot}measured_matmul]",
        *_rates({key: rate for key, rate in device.measured_matmul.items() if rate == made.best}),
    ]
    for dtype, parameters in device.gemm.items():
        lines += [
            f"[{dot}gemm.{dtype}]  # fitted to {made.products.ratios.size} products, median error "
            f"{made.products.median_error:.1%}",
            *(f"{name} = {value:.6g}" for name, value in parameters.items()),
        ]
    return "\n".join(lines) + "\n"


def cluster_toml(made: Made, measured: NodeMeasurements) -> str:
    """The whole cluster: the device and its tiers, each with what it was fitted to."""
    cluster = made.cluster
    lines = [
        _head(measured).rstrip(),
        f"name = {toml_string(cluster.name)}",
        f"gpus_per_node = {cluster.gpus_per_node}",
        f"max_gpus = {cluster.max_gpus}",
        f'host_bandwidth_one_way = "{cluster.host_bandwidth / 1e9:.6g} GB/s"',
        "",
        device_toml(made, measured, "device"),
    ]
    if cluster.host_memory:
        lines.insert(-2, f'host_memory = "{cluster.host_memory / 1e9:.6g} GB"')
    for tier in cluster.tiers:
        fit = made.links.get(tier.name)
        origin = (
            f"fitted to {len(fit.samples)} collectives, median error {fit.median_error:.1%}" if fit else "catalogue"
        )
        lines += [*tier_lines(tier, made.known, [origin]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _head(measured: NodeMeasurements) -> str:
    machine = measured.machine
    software = " ".join(text for text in (f"PyTorch {machine.torch}", machine.backend, machine.runtime) if text)
    return "# " + one_line(f"{machine.ranks} x {machine.name}, measured by optimize measure; {software}")


def _stream(made: Made) -> str:
    share = made.products.parameters["memory_efficiency"]
    return f"kernels reach {made.stream / 1e9:.4g} GB/s, {share:.1%} of it" if share < 1 else "what kernels reach"


def _rates(rates: Mapping[str, float]) -> list[str]:
    return [f'{dtype} = "{rate / 1e12:.6g} TFLOP/s"' for dtype, rate in rates.items()]
