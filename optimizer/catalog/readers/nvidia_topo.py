"""Reader of `nvidia-smi topo -m`: how the GPUs and NICs of one machine are connected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.readers.text import readable
from optimizer.job.hardware import Link

# from near to far: one PCIe switch, several, a host bridge, several bridges of one socket, another socket
PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
_NVLINK = re.compile(r"NV(\d{1,3})$", re.ASCII)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Connections of a machine's GPUs, as codes of nvidia-smi: "X" itself, "NV12" twelve NVLinks, or one of PCIE."""

    gpus: tuple[str, ...]
    between: tuple[tuple[str, ...], ...]  # [i][j]: between GPUs i and j
    nics: tuple[str, ...] = ()
    to_nic: tuple[tuple[str, ...], ...] = ()  # [i][k]: between GPU i and the k-th of `nics`

    def nvlinks(self, first: int, second: int) -> int:
        """Number of NVLinks bonded between two GPUs; 0 when they talk over PCIe."""
        match = _NVLINK.match(self.between[first][second])
        return int(match[1]) if match else 0

    @property
    def scale_up_size(self) -> int:
        """GPUs that the first one reaches over NVLink, directly or through others, itself included."""
        reached, todo = {0}, [0]
        while todo:
            here = todo.pop()
            fresh = {other for other in range(len(self.gpus)) if self.nvlinks(here, other)} - reached
            reached |= fresh
            todo.extend(fresh)
        return len(reached)

    def nearest_nics(self, gpu: int) -> tuple[str, ...]:
        """The NICs with the shortest PCIe path to a GPU."""
        codes = self.to_nic[gpu] if self.to_nic else ()
        best = min((PCIE.index(code) for code in codes), default=0)
        return tuple(nic for nic, code in zip(self.nics, codes, strict=True) if PCIE.index(code) == best)

    def nvlink_bandwidth(self, link: Link) -> float:
        """One-way NVLink bandwidth of the first GPU, for links of this generation [B/s].

        links x bandwidth / links of a whole GPU. Behind a switch every pair shows all links of a GPU, so that is the
        number; without one the pairs share them, so they add up. Raises InputError for a link that is not an NVLink.

        Twelve links of NVLink 3 (12 on a GPU, 300 GB/s together):

        >>> pair = Topology(gpus=("GPU0", "GPU1"), between=(("X", "NV12"), ("NV12", "X")))
        >>> pair.nvlink_bandwidth(Link(name="nvlink3", bandwidth=300e9, latency=0, quantities={"links": 12}))
        300000000000.0
        """
        whole = link.quantities.get("links", 0.0)
        if not whole:
            raise InputError(f"link {link.name!r} has no number of links per GPU; give an NVLink such as nvlink4")
        counts = [self.nvlinks(0, other) for other in range(1, len(self.gpus))]
        total = sum(counts)
        return (max(counts, default=0) if total > whole else total) * link.bandwidth / whole


def read_topo(path: str | Path) -> Topology:
    """The topology in a file with the output of `nvidia-smi topo -m`, legend and colours or not.

    NICs are named by the NIC legend where there is one. Raises InvalidFile with every line that cannot be used.
    """
    source = Path(path)
    text = readable(source, "give the output of nvidia-smi topo -m")
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if line.split()[:1] == ["GPU0"]), None)
    if start is None:
        raise InvalidFile(source, ["no header line 'GPU0 GPU1 ...': is this the output of nvidia-smi topo -m?"])
    columns = lines[start].split()
    columns = columns[: columns.index("CPU")] if "CPU" in columns else columns
    problems: list[str] = []
    rows = _rows(lines, start, columns, problems)
    gpus = tuple(name for name in columns if name.startswith("GPU"))
    problems += [f"line {len(lines)}: no row for {gpu}; was the matrix cut off?" for gpu in gpus if gpu not in rows]
    if not problems:
        problems += _asymmetries(gpus, columns, rows)
    if problems:
        raise InvalidFile(source, problems)
    return _topology(gpus, columns, rows, lines)


def _rows(lines: list[str], start: int, columns: list[str], problems: list[str]) -> dict[str, list[str]]:
    """Cells of the rows whose name is a column, codes first, then affinities."""
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        name, *cells = line.split() or [""]
        if name not in columns or name in rows:
            continue
        codes = cells[: len(columns)]
        strange = [code for code in codes if code not in (*PCIE, "X") and not _NVLINK.match(code)]
        if len(codes) < len(columns):
            problems.append(
                f"line {number}: {name} has {len(codes)} of {len(columns)} connections; is the row cut off?"
            )
        elif strange:
            problems.append(
                f"line {number}: {name} has unknown connections {', '.join(strange)}; known: NV#, X, {', '.join(PCIE)}"
            )
        elif name.startswith("GPU") and (wrong := _misplaced(name, columns, codes)):
            problems.append(f"line {number}: {name} cannot be connected as {', '.join(wrong)}")
        rows[name] = cells
    return rows


def _misplaced(gpu: str, columns: list[str], codes: list[str]) -> list[str]:
    """Connections of a GPU that no machine has: itself other than as X, another as X, a NIC other than over PCIe."""
    return [
        f"{code} to {other}"
        for other, code in zip(columns, codes, strict=True)
        if ((code == "X") != (other == gpu) if other.startswith("GPU") else code not in PCIE)
    ]


def _asymmetries(gpus: tuple[str, ...], columns: list[str], rows: dict[str, list[str]]) -> list[str]:
    """Pairs of GPUs whose two rows contradict each other."""
    at = {name: place for place, name in enumerate(columns)}
    return [
        f"{one} to {other} is {rows[one][at[other]]}, but back it is {rows[other][at[one]]}"
        for place, one in enumerate(gpus)
        for other in gpus[place + 1 :]
        if rows[one][at[other]] != rows[other][at[one]]
    ]


def _topology(gpus: tuple[str, ...], columns: list[str], rows: dict[str, list[str]], lines: list[str]) -> Topology:
    legend = dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)\s*$", "\n".join(lines), flags=re.MULTILINE))
    at = {name: place for place, name in enumerate(columns)}
    nics = [name for name in columns if name not in gpus]
    return Topology(
        gpus=gpus,
        between=tuple(tuple(rows[one][at[other]] for other in gpus) for one in gpus),
        nics=tuple(legend.get(nic, nic) for nic in nics),
        to_nic=tuple(tuple(rows[gpu][at[nic]] for nic in nics) for gpu in gpus) if nics else (),
    )
