"""A cluster file from the wiring of one node: what nvidia-smi tells, and presets for what it does not."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.base.errors import InputError
from optimizer.base.names import toml_table
from optimizer.catalog import link_names, load_link
from optimizer.catalog.readers.nvidia_topo import Topology
from optimizer.job.hardware import Cluster, Link

TIER = "\n[[tiers]]"
PCIE_LINKS = tuple(f"pcie{generation}" for generation in range(3, 8))


@dataclass(frozen=True, kw_only=True)
class NodeCluster:
    """Machines like one node in a network."""

    name: str  # of the cluster
    node: Topology  # the matrix of nvidia-smi
    usual: Cluster  # the preset that has what the matrix leaves open
    link: Link | None = None  # the NVLink of a GPU, None for the usual one
    network: Link | None = None  # one port between nodes, None for the usual one

    def toml(self) -> str:
        """The file, as `--cluster` takes it; raises InputError where a link is missing."""
        gpus, usual = len(self.node.gpus), self.usual
        rate, memory = usual.host_bandwidth / 1e9, usual.host_memory * gpus / usual.gpus_per_node / 1e9
        head = {
            "name": self.name,
            "device": usual.device.name,
            "gpus_per_node": gpus,
            "host_bandwidth_one_way": f"{rate:g} GB/s" if rate else None,
            "host_memory": f"{memory:g} GB" if memory else None,
        }
        lines = toml_table("", head, f"nvidia-smi topo -m; what that does not tell is of {usual.name}.")
        lines[-1] += f"  # as {usual.name}, by GPUs" if memory else ""
        return "\n".join(["\n".join(lines), *self._nvlink(), *self._pcie(), *self._network()]) + "\n"

    def _nvlink(self) -> list[str]:
        """The tier of the GPUs that NVLink joins; nothing where it joins none."""
        size = self.node.scale_up_size
        if size == 1:
            return []
        link = self.link or self.usual.tiers[0].link
        counts = [self.node.nvlinks(0, other) for other in range(1, len(self.node.gpus))]
        switched = sum(counts) > link.quantities.get("links", 0.0)
        values: dict[str, object] = {"name": "nvlink", "link": link.name}
        values |= {"bandwidth_one_way": f"{self.node.nvlink_bandwidth(link) / 1e9:g} GB/s", "size": size}
        if not switched and size > 2:
            pair = min(count for count in counts if count) * link.bandwidth / link.quantities["links"]
            values |= {"topology": "mesh", "p2p_bandwidth_one_way": f"{pair / 1e9:g} GB/s"}
        return toml_table(TIER, values)

    def _pcie(self) -> list[str]:
        """The tier of the whole node where NVLink does not join all of it."""
        gpus = len(self.node.gpus)
        if self.node.scale_up_size == gpus:
            return []
        rate = self.usual.host_bandwidth or load_link(PCIE_LINKS[1]).bandwidth
        link = min(PCIE_LINKS, key=lambda name: abs(load_link(name).bandwidth - rate))
        why = f"{link} is nearest to what {self.usual.device.name} has to its host."
        return toml_table(TIER, {"name": "pcie", "link": link, "size": gpus}, why)

    def _network(self) -> list[str]:
        """The tier between nodes, with the NICs that are nearest to some GPU."""
        gpus = len(self.node.gpus)
        usual = next((tier.link for tier in self.usual.tiers if tier.size > self.usual.gpus_per_node), None)
        link = self.network or usual
        if link is None:
            raise InputError(f"{self.usual.name} has no network between nodes; name a link with --network")
        near = {nic for number in range(gpus) for nic in self.node.nearest_nics(number)}
        assumed = "No NIC is listed: one port a GPU is assumed."
        why = f"{len(near)} NICs are nearest to the {gpus} GPUs." if near else assumed
        why += "" if self.network else f" Their kind is that of {self.usual.name}: --network says another."
        known = {"link": link.name} if link.name in link_names() else {}
        rate = {} if known else {"bandwidth_one_way": f"{link.bandwidth / 1e9:g} GB/s"}
        lines = toml_table(TIER, {"name": "network", **known, **rate}, why)
        return [*lines, f"ports_per_gpu = {len(near) / gpus if near else 1.0:g}"]
