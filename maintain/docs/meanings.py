"""What the keys of users' files mean, in a few words each, by the name of their table; tests hold it to the tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from optimizer.job.stack import PARAMETERS, Features

AXES = {
    "models": "models: presets, globs or files",
    "clusters": "clusters: presets, globs or files",
    "devices": "devices instead of clusters: each brings its usual cluster",
    "gpus": 'numbers of GPUs; "64:1024" is every doubling',
    "seq_lens": "tokens of a sequence",
    "global_batches": "sequences of a step",
    "tokens_per_batch": "tokens of a step, instead of global_batches",
    "dtypes": "number formats: bf16, fp16, fp8, fp4",
    "stacks": "training software: presets or files",
    "bubble_ceiling": "largest share of a step that the pipeline may idle",
    "hbm_limit": "memory that may be used on a GPU; 0: all of it",
    "max_tp": "largest tensor parallelism; 0: the scale-up domain",
    "max_micro_batch": "most sequences of a micro-batch",
    "max_vpp": "most virtual stages of a stage",
    "min_cp_tokens": "fewest tokens of a sequence on a context-parallel rank",
    "vocab_padding": "most growth of the vocabulary by padding",
    "oom_risk": "largest chance to go out of memory",
    "minimize": "what the best plan takes least of: time, energy, cost",
    "fix": 'variables pinned: "tp=8,pp=4", a table, or a list of either',
}

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "Model": {
        "name": "what the model is called",
        "title": "its name for people",
        "family": "architecture family, such as llama",
        "layers": "transformer layers",
        "hidden": "width of the residual stream",
        "heads": "query heads of a layer",
        "kv_heads": "key-value heads of a layer",
        "head_dim": "width of a head",
        "ffn_hidden": "width of a dense layer's MLP",
        "vocab": "tokens of the vocabulary",
        "max_seq_len": "longest sequence in tokens",
        "gated_mlp": "the MLP has a gate, as SwiGLU",
        "activation": "activation of the MLP",
        "norm": "layer, layer1p, rms, or layer-plain (without weights)",
        "norm_epsilon": "epsilon of the norms",
        "norms_per_layer": "norms of a layer",
        "norm_bias": "norms of kind layer have a bias",
        "qk_norm": "queries and keys are normed",
        "qk_norm_full": "over all heads together",
        "attention_bias": "queries, keys and values have biases",
        "attention_out_bias": "the output projection has a bias",
        "attention_sinks": "one learned logit for each head",
        "mlp_bias": "the MLP has biases",
        "head_bias": "the output head has a bias",
        "position": "rope, learned or alibi",
        "rope_base": "base of the rotary frequencies",
        "rope_share": "share of a head that is rotated",
        "extra_positions": "rows of a learned position table beyond max_seq_len",
        "tied_embeddings": "the output head is the word embedding",
        "parallel_block": "attention and MLP run side by side",
        "embedding_norm": "a norm follows the embedding",
        "window": "sliding-window attention",
        "experts": "mixture of experts",
        "mla": "multi-head latent attention",
        "mtp_layers": "layers that predict further tokens",
        "published_params": "parameters that its publisher says",
        "published_active_params": "active parameters that its publisher says",
        "provenance": "where the numbers come from",
    },
    "SlidingWindow": {
        "size": "tokens that attention sees",
        "global_every": "every so many layers one sees all; 0: none does",
    },
    "Experts": {
        "count": "routed experts of a layer",
        "top_k": "experts of a token",
        "ffn_hidden": "width of a routed expert",
        "shared_ffn_hidden": "width of all shared experts together",
        "first_dense_layers": "dense layers before the first mixture",
        "every": "one layer of so many is a mixture",
        "router": "softmax, pre-softmax or sigmoid",
        "router_bias": "one bias for each routed expert",
        "shared_gate": "the shared experts have a gate",
        "groups": "groups of experts",
        "group_limit": "groups that a token's experts come from at most",
    },
    "LatentAttention": {
        "q_rank": "rank of the queries; 0: projected directly",
        "kv_rank": "rank of keys and values",
        "nope_dim": "width of a head without positions",
        "rope_dim": "width of a head with positions",
        "v_dim": "width of a head's values",
    },
    "Provenance": {
        "source": "where it is written",
        "date": "when it was written or read",
        "grade": "A primary, B secondary, C derived or unconfirmed",
        "note": "what else is to be known",
    },
    "ClusterTable": {
        "name": "what the cluster is called",
        "device": "a preset, or a table [device]",
        "gpus_per_node": "GPUs that share a host; divides the size of the innermost tier, or is divided by it",
        "max_gpus": "most GPUs that there are",
        "host_bandwidth_one_way": "from a GPU to its host, one way",
        "host_memory": "of the host of a node; it limits what may lie there",
        "tiers": "the network, innermost first",
    },
    "DeviceTable": {
        "name": "what the device is called",
        "like": "a preset that gives what is left out",
        "vendor": "who makes it",
        "peak_flops": "dense peak by number format",
        "memory": "what a process can allocate at most",
        "memory_nominal": "what the datasheet says",
        "memory_bandwidth": "of the device memory, reads and writes together",
        "l2_cache": "last-level cache",
        "sms": "multiprocessors",
        "power": "limit of the board",
        "measured_matmul": "best matrix product that was measured, by number format",
        "gemm": "how it multiplies matrices, as measured, by bf16 or fp8",
    },
    "GemmTable": {
        "ceiling": "share of the peak that the longest products reach",
        "small_rate": "rate of small tiles over that of large ones",
        "wave_softness": "share of the work that is balanced over the multiprocessors; the rest waits for whole waves",
        "k_half": "reduction length at which a tile reaches half of its rate [elements]",
        "launch": "fixed time of a kernel [s]",
        "memory_efficiency": "share of the memory bandwidth that products reach",
    },
    "TierTable": {
        "name": "what the tier is called",
        "link": "a preset that gives what is left out",
        "bandwidth_one_way": "of one port, one way",
        "bandwidth_duplex": "of one port, both ways together; is halved",
        "ports_per_gpu": "ports of a GPU",
        "latency": "of one step of a collective",
        "energy": "of a bit that passes",
        "efficiency": "share of the bandwidth that large messages reach",
        "half_message": "bytes at which half of the bandwidth is reached",
        "in_switch_reduction": "switches reduce, as SHARP does",
        "topology": "how its members are wired",
        "p2p_bandwidth_one_way": "between two members, where it is less",
        "quantities": "numbers of NCCL's protocols, as optimize calibrate-link prints them",
        "size": "GPUs of the tier; the last may leave it out",
        "oversubscription": "bandwidth below the switches over that above",
    },
    "Stack": {
        "name": "what the stack is called",
        "parent": "the stack that a fit starts from",
        "features": "what the software does; may be empty",
        "parameters": "those that were fitted",
        "fixed": "those that are known, and why",
        "provenance": "where it comes from",
        "runs": "runs behind the fit",
        "residuals": "errors of the fit",
        "devices": "devices of these runs",
        "intervals": "half-widths of prediction intervals, in log",
        "ranges": "span of these runs, by coordinate",
    },
    "Features": {
        "zero_stages": "ZeRO stages that it offers",
        "schedules": "pipeline schedules that it offers",
        "recompute": "modes of recomputation that it offers",
        "max_vpp": "most virtual stages of a stage",
        "sequence_parallel": "it offers sequence parallelism",
        "default_zero": "ZeRO stage of a run that names none",
        "default_vpp": "virtual stages of a run that names none",
        "default_dtype": "number format of a run that names none",
        "recompute_modules": "modules that it can recompute by name",
        "dispatchers": "dispatchers that it offers; none listed stands for what `dispatcher` says",
        "settable": "knobs that its launcher can set; others stay at their default",
        "fp8_recipe": "how operands of 8 bits get their scales; empty: as in the stack's runs",
        "narrow_products": "which products run in the narrow format",
        "graphed": "parts of mixtures that graphs replay",
        "unfused": "what runs expert by expert or kernel by kernel",
        "routing": "how even routing is; empty: as balanced_experts or expert_imbalance say",
        "recompute_by": "what full recomputation may recompute",
        "filled_stages": "unless told, stages are filled one after the other",
        "synchronised": "the host waits in every mixture for the sizes of its exchange",
        "lifted": "what is assumed beyond the software itself",
    },
    "Fixed": {"value": "the parameter's value", "why": "how it is known"},
    "AxesTable": AXES,
    "StudyTable": AXES
    | {
        "name": "what the study is called",
        "scenarios": "named tables of the same keys, each planned",
        "exclude": "combinations to leave out: tables of keys that all match",
        "token_budget": "tokens of the whole run, for days and cost",
        "prices": "price of a GPU-hour by device, instead of the presets' [USD/h]",
        "top": "runners-up to keep",
        "trials": "trials on the knobs",
        "time_limit": "seconds for each job [s]",
        "seed": "seed of the search",
    },
    "ExclusionTable": {
        "scenarios": "names of scenarios",
        **{name: AXES[name] for name in ("models", "clusters", "devices", "dtypes", "stacks")},
        **dict.fromkeys(("gpus", "seq_lens", "global_batches"), 'numbers, or comparisons such as ">= 4096"'),
    },
    "Parameters": {name: parameter.meaning for name, parameter in PARAMETERS.items()},
    "FixedParameters": {name: parameter.meaning for name, parameter in PARAMETERS.items()},
}


def meaning(table: str, key: str) -> str:
    """What a key of a table means, "" where nobody said.

    >>> meaning("Experts", "top_k"), meaning("Features", "dropout")
    ('experts of a token', 'the model is trained with it')
    """
    said = MEANINGS.get(table, {}).get(key, "")
    return said or (_in_docstring(key) if table == Features.__name__ else "")


def _in_docstring(key: str) -> str:
    """What the docstring of Features says of a key: `key: text.`"""
    text = re.sub(r"\s+", " ", inspect.getdoc(Features) or "")
    found = re.search(rf"(?:[.;] ){key}: (.*?)(?=[.;] [a-z_0-9]+(?:, [a-z_0-9]+)*: |\.?$)", text)
    return found[1] if found else ""
