"""What the recipes of a NeMo container have where a row of its tables does not say: dispatcher, graphs, overlap.

Source: NVIDIA-NeMo/Megatron-Bridge @97ad8cc6f (25.11) to @067f987df (26.08), scripts/performance/configs; the assertion
of src/megatron/bridge/training/utils/moe_token_drop.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CONTAINER = re.compile(r"\b(\d\d\.\d\d)\S* nemo container")
GRAPHS = "cuda_graph_impl=transformer_engine, cuda_graph_scope=[attn, moe_router, moe_preprocess]"


def container(row: Mapping[str, str]) -> str:
    """The NeMo container that a row's table is of, "" for none.

    >>> container({"table": "26.02.01 NeMo Container / Pre-Training / DGX-H100"}), container({"table": "Table 3"})
    ('26.02', '')
    """
    match = _CONTAINER.search(row.get("table", "").lower())
    return match[1] if match else ""


def drops_tokens(row: Mapping[str, str]) -> bool:
    """Experts take a fixed number of tokens and drop the others: shapes are known and the host waits for nothing.

    So the row says, and so later editions of NVIDIA's tables say of those of the 25.09 container, with the same times.

    >>> drops_tokens({"notes": "variant: token-drop"}), drops_tokens({"table": "25.11 NeMo Container / GB200"})
    (True, False)
    """
    said = re.sub(r"[\s_-]", "", row.get("notes", "").lower())
    return "tokendrop" in said or container(row) == "25.09"


def as_released(row: Mapping[str, str], assumed: list[str]) -> Mapping[str, str]:
    """The row with what its container's recipes have and it does not say; what is taken so is added to `assumed`.

    Experts of a fixed capacity go with all-to-all alone, whatever a recipe without it says. Since 25.11 Qwen3, DeepSeek
    and Kimi go by HybridEP on domains of 72 GPUs, with graphs of attention and router. On H100 and B200, 25.11 still
    had all-to-all for Qwen3, beside other micro-batches where stages are virtual. GPT-OSS has had all-to-all and no
    graphs throughout.

    >>> said: list[str] = []
    >>> row = {"table": "25.11 NeMo Container / DGX-GB200", "model": "Qwen3_235B_a22B", "gpu": "GB200", "ep": "32.0"}
    >>> as_released(row, said)["dispatcher"], said
    ('hybridep', ['HybridEP and graphs of attention and router, as the recipes of 25.11'])
    """
    release = container(row)
    if not release or row.get("dispatcher") or not re.fullmatch(r"(?!1(?:\.0)?$)\d+(?:\.0)?", row.get("ep", "")):
        return row
    if drops_tokens(row):
        return {**row, "dispatcher": "alltoall"}
    model, gpu = row.get("model", "").lower(), row.get("gpu", "").lower()
    notes = row.get("notes", "")
    if "dispatcher" in notes or "recipe" in notes or not re.search("qwen3|deepseek|kimi", model):
        return row
    if re.match("gb[23]00", gpu):
        assumed.append(f"HybridEP and graphs of attention and router, as the recipes of {release}")
        return {**row, "dispatcher": "hybridep", "notes": f"{notes}; {GRAPHS}"}
    if release == "25.11" and "qwen3" in model and row.get("vpp") not in ("", "1", "1.0", None):
        assumed.append("all-to-all beside other micro-batches, as the recipes of 25.11")
        return {**row, "dispatcher": "alltoall", "ep_overlap": "on"}
    return row
