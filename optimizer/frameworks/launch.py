"""A launch as it was read, in one vocabulary for every framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from optimizer.job.job import Job
from optimizer.job.plan import Plan

LARGEST_COUNT = 10**9  # of anything in a launch: what is more is no count
# The vocabulary: what a setting is called here, and what it says.
MACHINES: Mapping[str, str] = {
    "gpus": "GPUs",
    "nodes": "nodes",
    "gpus_per_node": "GPUs of a node",
    "device": "kind of GPU",
}
JOB: Mapping[str, str] = {
    "seq_len": "tokens of a sequence",
    "global_batch": "sequences of a step",
    "dtype": "number format",
    "tokens": "tokens of the whole run",
}
PLAN: Mapping[str, str] = {
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "pp": "pipeline parallelism",
    "vpp": "virtual stages of a stage",
    "ep": "expert parallelism",
    "etp": "tensor parallelism of experts",
    "dp": "data parallelism",
    "micro_batch": "sequences of a micro-batch",
    "num_microbatches": "micro-batches of a step",
    "sequence_parallel": "sequence parallelism",
    "zero_stage": "ZeRO stage",
    "shard": "replicas that share states",
    "recompute": "recomputation",
    "recompute_first": "first layers that every virtual stage recomputes",
    "overlap_exchange": "exchange of experts runs beside another micro-batch",
    "activation_offload": "activations on the host [%]",
    "schedule": "pipeline schedule",
    "layers_per_stage": "layers on each stage",
    "dispatcher": "how tokens travel to experts",
    "mtp_ahead": "virtual stages between prediction layers and head",
}
SOFTWARE: Mapping[str, str] = {
    "reduce_overlap": "gradients are reduced under the backward pass",
    "gather_overlap": "weights are gathered under the forward pass",
    "tp_overlap": "tensor-parallel collectives run under products",
    "p2p_overlap": "pipeline transfers run under computation",
    "bucket": "gradient bucket [B]",
    "communicators": "file of NCCL's options",
    "blocks": "thread blocks of the data-parallel communicators",
    "offload": "share of the optimizer on the host",
    "attention": "attention kernels",
    "cuda_graphs": "CUDA graphs",
    "grad_bytes": "bytes of a gradient",
    "optimizer_bytes": "bytes of master weight and moments",
    "fused_accumulation": "weight gradients are accumulated inside products",
}
SHAPE: Mapping[str, str] = {
    "model": "model",
    "layers": "layers",
    "hidden": "width",
    "ffn_hidden": "width of the MLP",
    "heads": "attention heads",
    "kv_heads": "key-value heads",
    "head_dim": "width of a head",
    "vocab": "vocabulary",
    "max_seq_len": "longest sequence",
    "gated_mlp": "gated MLP",
    "activation": "activation",
    "norm": "norm",
    "position": "positions",
    "tied_embeddings": "tied embeddings",
    "mlp_bias": "biases in the MLP",
    "attention_bias": "biases of queries, keys and values",
    "qk_norm": "norms of queries and keys",
    "embedding_norm": "norm after the embedding",
    "window": "sliding window",
    "window_every": "layers from one with full attention to the next",
    "experts": "experts",
    "top_k": "experts of a token",
    "expert_ffn": "width of an expert",
    "shared_ffn": "width of the shared experts",
    "first_dense": "dense layers before the first mixture",
    "every": "layers from one mixture to the next",
    "q_rank": "rank of the queries",
    "kv_rank": "rank of keys and values",
    "nope_dim": "width of a head without positions",
    "rope_dim": "width of a head with positions",
    "v_dim": "width of a head's values",
    "mtp_layers": "prediction layers",
}
WORDS: Mapping[str, str] = {**MACHINES, **JOB, **PLAN, **SOFTWARE, **SHAPE}
LACKING = "cannot hold its plan (--gpus)"  # how the note ends that more GPUs are taken than a launch says


@dataclass
class Launch:
    """What a launch says, gathered file by file.

    Attributes:
        program: the training software.
        settings: values by name in WORDS.
        written: what the files call each of them.
        assumed: sentences.
        ignored: settings that were seen and mean nothing here, by the name that the file gives them.
        unsearched: settings outside of what is searched, which every edit leaves alone, in words.
        problems: sentences, for which the launch is refused.
        leaves: every value of the files as it is written, by file and by key or flag.
        following: what the program makes of a plan's settings that no file states, None for nothing.
        fixed: settings that none of these files can state otherwise.
    """

    program: str
    settings: dict[str, Any] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    leaves: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    following: Callable[[Plan], Mapping[str, Any]] = lambda plan: {}
    fixed: tuple[str, ...] = ()

    def say(self, name: str, value: Any, written: str = "") -> None:
        """Note a setting; `written` is how the file calls it."""
        self.settings[name] = value
        if written:
            self.written[name] = written

    def ignore(self, name: str) -> None:
        """Note a setting that means nothing here, once."""
        if name not in self.ignored:
            self.ignored.append(name)

    def understood(self) -> dict[str, dict[str, Any]]:
        """Every setting that a file states, by name: its value and what the file calls it."""
        order = [name for name in WORDS if name in self.written]
        return {name: {"value": self.settings[name], "written": self.written[name]} for name in order}


@dataclass(frozen=True, kw_only=True)
class FlagChange:
    """One flag before and after: None where it is not given, "" where it has no value."""

    flag: str
    before: str | None
    after: str | None

    def written(self) -> tuple[str, str]:
        """Both as they stand in a script, "-" for nothing.

        >>> FlagChange(flag="--sequence-parallel", before=None, after="").written()
        ('-', '--sequence-parallel')
        """
        before, after = (
            "-" if value is None else f"{self.flag} {value}".strip() for value in (self.before, self.after)
        )
        return before, after


class Source(Protocol):
    """Launch files that were read."""

    @property
    def launch(self) -> Launch:
        """What they say."""
        ...

    @property
    def leaves(self) -> Mapping[str, Mapping[str, Any]]:
        """Every value of the files as it is written, by file and by key or flag."""
        ...

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> tuple[FlagChange, ...]:
        """What to write otherwise for another plan; `turned` are the software's settings that change."""
        ...

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        """The files with the changes made, by path, in each way that there is, the most natural first."""
        ...
