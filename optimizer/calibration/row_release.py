"""What a NeMo container's recipes have where a row of its tables does not say: dispatcher, graphs, overlap, layout.

Source: NVIDIA-NeMo/Megatron-Bridge @97ad8cc6f (25.11), @cfeddcd94 (26.02), @bf07e5678 (26.06) and @067f987df (26.08),
scripts/performance/configs and src/megatron/bridge/recipes; the assertion of
src/megatron/bridge/training/utils/moe_token_drop.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CALLED = {"hybridep": "HybridEP", "deepep": "DeepEP", "alltoall": "all-to-all"}
_CONTAINER = re.compile(r"\b(\d\d\.\d\d)\S* nemo container")
# DeepSeek-V3's 61 layers on so many virtual stages; Kimi-K2's without the prediction layer (m).
LAYOUTS: Mapping[int, str] = {
    4: "Et*16|(t*16|)*2t*13mL",
    8: "Et*8|(t*8|)*6t*5mL",
    16: "Et*4|(t*4|)*14tmL",
    32: "Et|(tt|)*30mL",
}
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
    return "tokendrop" in said or (container(row) == "25.09" and "dropless" not in said)


def as_released(row: Mapping[str, str], assumed: list[str]) -> Mapping[str, str]:
    """The row with what its container's recipes have and it does not say; what is taken so is added to `assumed`.

    Experts of a fixed capacity go with all-to-all alone, whatever a recipe without it says. Since 25.11 Qwen3, DeepSeek
    and Kimi go by HybridEP on domains of 72 GPUs, with graphs of attention and router. On H100 and B200, 25.11 still
    had all-to-all for Qwen3, beside other micro-batches where stages are virtual, and DeepEP for DeepSeek on H100;
    since 26.02 DeepSeek goes by HybridEP there, too, and on B300. GPT-OSS has graphs on GB300 and B300 alone.

    >>> said: list[str] = []
    >>> row = {"table": "25.11 NeMo Container / DGX-GB200", "model": "Qwen3_235B_a22B", "gpu": "GB200", "ep": "32.0"}
    >>> as_released(row, said)["dispatcher"], said
    ('hybridep', ['HybridEP and graphs of attention and router, as the recipes of 25.11'])
    """
    release = container(row)
    if not release:
        return row
    row = laid_out(row, release, assumed)
    if row.get("dispatcher") or not re.fullmatch(r"(?!1(?:\.0)?$)\d+(?:\.0)?", row.get("ep", "")):
        return row
    if drops_tokens(row):
        return {**row, "dispatcher": "alltoall"}
    notes = row.get("notes", "")
    if "dispatcher" in notes or "recipe" in notes:
        return row
    dispatcher, graphs, overlap = _recipe(row, release)
    what = [_CALLED[dispatcher]] if dispatcher else []
    what += ["graphs of attention and router"] * graphs
    if not what:
        return row
    words = " and ".join(what) + " beside other micro-batches" * overlap
    assumed.append(f"{words}, as the recipes of {release}")
    found = {**row, "notes": f"{notes}; {GRAPHS}"} if graphs else dict(row)
    return found | ({"dispatcher": dispatcher} if dispatcher else {}) | ({"ep_overlap": "on"} if overlap else {})


def _recipe(row: Mapping[str, str], release: str) -> tuple[str, bool, bool]:
    """Dispatcher, "" for the usual one; whether graphs replay attention and router, and the exchange overlaps."""
    model, gpu = row.get("model", "").lower(), row.get("gpu", "").lower()
    if re.search("gpt.?oss", model):
        return "", gpu.startswith(("gb300", "b300")), False
    if not re.search("qwen3|deepseek|kimi", model):
        return "", False, False
    if re.match("gb[23]00", gpu):
        return "hybridep", True, False
    if "deepseek" in model:
        hopper = gpu.startswith("h")
        return ("hybridep" if release >= "26.02" else "deepep" if hopper else ""), False, False
    if release == "25.11" and "qwen3" in model and row.get("vpp") not in ("", "1", "1.0", None):
        return "alltoall", False, True
    small_on_blackwell = release >= "26.02" and "30b" in model and gpu.startswith("b")
    return ("hybridep", True, False) if small_on_blackwell else ("", False, False)


def laid_out(row: Mapping[str, str], release: str, assumed: list[str]) -> Mapping[str, str]:
    """The row with the pipeline's layout that the recipes of DeepSeek-V3 and Kimi-K2 have for its virtual stages.

    25.11 left the prediction layer out on domains of 72 GPUs, as later editions of its tables say.

    >>> said: list[str] = []
    >>> laid_out({"model": "DeepSeekV3", "gpu": "B200", "pp": "16", "vpp": "1"}, "25.11", said)["notes"], said
    ('; layout Et*4|(t*4|)*14tmL', ["its recipes' layout of 16 virtual stages"])
    """
    model, notes = row.get("model", "").lower().replace("-", "").replace("_", ""), row.get("notes", "")
    if not re.search("deepseekv3|kimik2", model) or "layout" in notes:
        return row
    stages = round(float(row.get("pp") or 1) * float(row.get("vpp") or 1))
    if stages not in LAYOUTS:
        return row
    said = re.search(r"w/?o mtp|without mtp", (row.get("model", "") + notes).lower())
    left_out = said or "kimi" in model or (release == "25.11" and row.get("gpu", "").lower().startswith("gb"))
    layout = LAYOUTS[stages].replace("m", "") if left_out else LAYOUTS[stages]
    assumed.append(f"its recipes' layout of {stages} virtual stages")
    return {**row, "notes": f"{notes}; layout {layout}"}
