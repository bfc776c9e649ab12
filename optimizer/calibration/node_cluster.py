"""A cluster file from the wiring of one node: what nvidia-smi tells, and presets for what it does not."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.base.errors import InputError
from optimizer.base.names import toml_string
from optimizer.catalog import link_names, load_link
from optimizer.catalog.readers.nvidia_topo import Topology
from optimizer.job.hardware import Cluster, Link

PCIE_LINKS = tuple(f"pcie{generation}" for generation in range(3, 8))


@dataclass(frozen=True, kw_only=True)
class NodeCluster:
    """Machines like one node in a network.

    Attributes:
        name: of the cluster.
        node: the matrix of nvidia-smi.
        usual: the preset that has what the matrix leaves open.
        link: the NVLink of a GPU, None for the usual one.
        network: one port between nodes, None for the usual one.
    """

    name: str
    node: Topology
    usual: Cluster
    link: Link | None = None
    network: Link | None = None

    def toml(self) -> str:
        """The file, as `--cluster` takes it; raises InputError where a link is missing."""
        gpus = len(self.node.gpus)
        lines = [
            f"# nvidia-smi topo -m; what that does not tell is of {self.usual.name}.",
            f"name = {toml_string(self.name)}",
            f"device = {toml_string(self.usual.device.name)}",
            f"gpus_per_node = {gpus}",
        ]
        if self.usual.host_bandwidth:
            lines.append(f'host_bandwidth_one_way = "{self.usual.host_bandwidth / 1e9:g} GB/s"')
        if self.usual.host_memory:
            share = gpus / self.usual.gpus_per_node
            lines.append(
                f'host_memory = "{self.usual.host_memory * share / 1e9:g} GB"  # as {self.usual.name}, by GPUs'
            )
        tiers = [*self._nvlink(), *self._pcie(), *self._network()]
        return "\n".join([*lines, *tiers]) + "\n"

    def _nvlink(self) -> list[str]:
        """The tier of the GPUs that NVLink joins; nothing where it joins none."""
        size = self.node.scale_up_size
        if size == 1:
            return []
        link = self.link or self.usual.tiers[0].link
        whole = self.node.nvlink_bandwidth(link)
        counts = [self.node.nvlinks(0, other) for other in range(1, len(self.node.gpus))]
        switched = sum(counts) > link.quantities.get("links", 0.0)
        lines = [
            "",
            "[[tiers]]",
            'name = "nvlink"',
            f"link = {toml_string(link.name)}",
            f'bandwidth_one_way = "{whole / 1e9:g} GB/s"',
            f"size = {size}",
        ]
        if not switched and size > 2:
            pair = min(count for count in counts if count) * link.bandwidth / link.quantities["links"]
            lines += ['topology = "mesh"', f'p2p_bandwidth_one_way = "{pair / 1e9:g} GB/s"']
        return lines

    def _pcie(self) -> list[str]:
        """The tier of the whole node where NVLink does not join all of it."""
        gpus = len(self.node.gpus)
        if self.node.scale_up_size == gpus:
            return []
        rate = self.usual.host_bandwidth or load_link(PCIE_LINKS[1]).bandwidth
        link = min(PCIE_LINKS, key=lambda name: abs(load_link(name).bandwidth - rate))
        return [
            "",
            "[[tiers]]",
            f"# {link} is nearest to what {self.usual.device.name} has to its host.",
            'name = "pcie"',
            f"link = {toml_string(link)}",
            f"size = {gpus}",
        ]

    def _network(self) -> list[str]:
        """The tier between nodes, with the NICs that are nearest to some GPU."""
        gpus = len(self.node.gpus)
        usual = next((tier.link for tier in self.usual.tiers if tier.size > self.usual.gpus_per_node), None)
        link = self.network or usual
        if link is None:
            raise InputError(f"{self.usual.name} has no network between nodes; name a link with --network")
        near = {nic for number in range(gpus) for nic in self.node.nearest_nics(number)}
        ports = len(near) / gpus if near else 1.0
        assumed = "No NIC is listed: one port a GPU is assumed."
        why = f"{len(near)} NICs are nearest to the {gpus} GPUs." if near else assumed
        known = link.name in link_names()
        return [
            "",
            "[[tiers]]",
            f"# {why}" if self.network else f"# {why} Their kind is that of {self.usual.name}: --network says another.",
            'name = "network"',
            f"link = {toml_string(link.name)}" if known else f'bandwidth_one_way = "{link.bandwidth / 1e9:g} GB/s"',
            f"ports_per_gpu = {ports:g}",
        ]
