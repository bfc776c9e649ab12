"""How the software runs that flags of Megatron-LM and Megatron-DeepSpeed start: overlap, kernels, bytes, dispatcher."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron.flag_names import (
    EXPERT_DEGREES,
    FP32_GRADIENTS,
    MEGATRON,
    SOFTWARE_SWITCHES,
    Meaning,
    left_open,
    note_flags,
    whole_number,
)
from optimizer.job.stack import FP8_RECIPES
from optimizer.job.variables import DISPATCHERS

STATES = ("--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype")
# Bytes of number formats as Megatron-LM's flags have them, and as PyTorch calls them behind "torch.".
BYTES_OF: Mapping[str, int] = {
    **{"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1},
    **{"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "uint8": 1},
}
GATHERING = "allgather"  # tokens of all ranks to each. Source: NVIDIA/Megatron-LM, megatron/training/arguments.py
DISPATCHING = ("--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend")
# By the words of AttnBackend and by its numbers; of layers of its own one kernel takes the softmax.
# Source: NVIDIA/Megatron-LM, megatron/core/transformer/enums.py; megatron/core/fusions/fused_softmax.py.
KERNELS: Mapping[str, str] = {
    **dict.fromkeys(("flash", "1", "fused", "2"), "flash"),
    **dict.fromkeys(("unfused", "3"), "unfused"),
    **dict.fromkeys(("local", "4"), "fused_softmax"),
}
BACKEND, AUTO, SPLIT_SOFTMAX = "--attention-backend", ("auto", "5"), "--no-masked-softmax-fusion"
ON = ("1", "true")
RECOMPUTE_METHOD, MOVED = "--recompute-method", "--offload-modules"
LOCAL, RING = "--transformer-impl", "--cp-comm-type"  # layers of its own, whose attention is unfused; "p2p" by default
# Parts of MoE layers by the scopes that capture them; the router's holds the shared experts.
# Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, cuda_graph_scope.
SCOPED = ("--cuda-graph-scope", "--cuda-graph-modules")  # the second since 2026
SCOPES: Mapping[str, tuple[str, ...]] = {"attn": ("attention",), "moe_router": ("router", "shared_experts")}
# As saved configs have them. Source: megatron/core/transformer/enums.py, CudaGraphScope.
SCOPE_NUMBERS: Mapping[str, str] = {
    **{"1": "full_iteration", "2": "attn", "3": "mlp", "4": "moe", "5": "moe_router", "6": "moe_preprocess"},
    "7": "mamba",
}
PARTS = ("mlp", "moe", "mamba")  # scopes that are parts of a layer too, which are not priced
WHOLE = {"attn", "mlp"}  # of a dense layer
DISPATCHED = (DISPATCHERS[0], "alltoall_seq", GATHERING, "flex")
FLAGS: Sequence[tuple[str, str, Meaning]] = (
    *((name, key, lambda _, flag: SOFTWARE_SWITCHES[flag.name][1]) for name, (key, _) in SOFTWARE_SWITCHES.items()),
    (BACKEND, "attention", lambda _, flag: KERNELS.get(_word(flag))),
    ("--use-fused-sdpa-with-recompute", "attention", lambda _, flag: "flash" if flag.value.lower() in ON else None),
    ("--cuda-graph-impl", "cuda_graphs", lambda _, flag: flag.value != "none"),
    ("--fp8-recipe", "fp8_recipe", lambda _, flag: flag.value if flag.value in FP8_RECIPES else None),
    ("--main-grads-dtype", "grad_bytes", lambda _, flag: 2 if _bytes(flag) == 2 else None),
    ("--ddp-bucket-size", "bucket_params", lambda launch, flag: whole_number(launch, flag) or None),
)


def _bytes(flag: Flag) -> int:
    """Bytes of the number format that a flag names, those of fp32 where it is none that is known."""
    return BYTES_OF.get(flag.value.rpartition(".")[2], 4)


def _word(flag: Flag) -> str:
    """The last part of a value, such as AttnBackend.flash."""
    return flag.value.rpartition(".")[2]


def read_software(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note what the flags say of the software."""
    note_flags(launch, last, FLAGS)
    settings = launch.settings
    if launch.program == MEGATRON:
        unless_given = ("reduce_overlap", "gather_overlap", "tp_overlap", "fused_experts")
        settings |= {name: settings.get(name, False) for name in unless_given}
    if LOCAL in last and last[LOCAL].value == "local" and "attention" not in settings:
        launch.say("attention", KERNELS["local"], last[LOCAL].written)
    if settings.get("attention") == KERNELS["local"] and SPLIT_SOFTMAX in last:
        launch.say("attention", KERNELS["unfused"], last[SPLIT_SOFTMAX].written)
    known = {BACKEND: (*KERNELS, *AUTO), "--fp8-recipe": FP8_RECIPES, "--fp4-recipe": ("nvfp4",)}
    known |= {"--fp8-format": ("e4m3", "hybrid"), RECOMPUTE_METHOD: ("uniform", "block")}
    for name, words in known.items():
        if name in last and not last[name].unknown and _word(last[name]) not in words:
            launch.unpriced.append(f"{last[name].written} {last[name].value}")
    if MOVED in last and "--fine-grained-activation-offloading" in last:
        words = tuple(word for text in last[MOVED].values for word in text.split(","))
        launch.say("offload_modules", words, last[MOVED].written)
    if RING in last and (kinds := {*last[RING].values} - {"p2p"}):
        launch.unsearched.append(f"{last[RING].written} {' '.join(sorted(kinds))} is priced as p2p")
    _parts_captured(launch, last)
    if "experts" in settings:
        _dispatcher(launch, last)
    if launch.program == MEGATRON and "--fp16" in last and FP32_GRADIENTS not in last:
        launch.say("grad_bytes", 2, last["--fp16"].written)
    if "--use-precision-aware-optimizer" in last and any(name in last for name in STATES):
        sizes = [_bytes(last[name]) if name in last else 4 for name in STATES]
        first = next(name for name in STATES if name in last)
        launch.say("optimizer_bytes", sum(sizes), last[first].written)
    if "--optimizer-cpu-offload" in last and "--optimizer-offload-fraction" in last:
        flag = last["--optimizer-offload-fraction"]
        try:
            launch.say("offload", min(1.0, max(0.0, float(flag.value))), flag.written)
        except ValueError:
            wrong = f"must be a share from 0 to 1, but got {flag.value!r}"
            launch.problems.append(f"{flag.written} {left_open(flag) or wrong}")


def note_own_layers(launch: Launch, by: str, has: Collection[str]) -> None:
    """Note the attention of layers that are Megatron-LM's own because no flag says another thing, as `by` tells."""
    if "attention" not in launch.settings:
        launch.settings["attention"] = KERNELS["unfused" if SPLIT_SOFTMAX in has else "local"]
        launch.assumed.append(f"layers of its own without flash attention, Megatron-LM's default then: {by}")


def _parts_captured(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Which parts of a layer graphs replay, where their scope names parts and not whole layers."""
    scope = next((last[name] for name in SCOPED if name in last), None)
    stated = [word.rpartition(".")[2] for text in scope.values for word in text.split(",")] if scope else []
    words = [SCOPE_NUMBERS.get(word, word) for word in stated]
    whole = {*words} >= WHOLE and launch.settings.get("experts", 0) <= 1
    others = [] if whole else [word for word in words if word in PARTS]
    parts = () if whole else tuple(part for word in words for part in SCOPES.get(word, ()))
    if scope and others and launch.settings.get("cuda_graphs"):
        launch.unpriced.append(f"{scope.written} {' '.join(others)}")
    if scope and (parts or others) and launch.settings.get("cuda_graphs"):
        launch.settings["cuda_graphs"] = False
        launch.say("graphed", parts, scope.written)
    elif "cuda_graphs" in launch.settings:
        launch.settings["graphed"] = ()


def _dispatcher(launch: Launch, last: Mapping[str, Flag]) -> None:
    """How tokens travel where experts are spread: flex takes DeepEP by default."""
    spread = any(name in last and last[name].value not in ("", "1") for name in EXPERT_DEGREES)
    kind, backend = map(last.get, DISPATCHING)
    if kind is None or kind.value != "flex" or not spread:
        launch.say("dispatcher", DISPATCHERS[0], kind.written if kind and kind.value != "flex" else "")
        if kind is not None and kind.value not in DISPATCHED and not kind.unknown and spread:
            launch.unpriced.append(f"{kind.written} {kind.value}")
        elif kind is not None and kind.value == GATHERING and spread:
            launch.unpriced.append(f"{kind.written} {GATHERING}, which is priced as {DISPATCHERS[0]}")
        elif kind is None and spread and launch.program == MEGATRON:
            launch.assumed.append(f"{DISPATCHERS[0]}, not the {GATHERING} of Megatron-LM without {DISPATCHING[0]}")
        return
    launch.say("dispatcher", backend.value if backend else "deepep", (backend or kind).written)
    if launch.settings["dispatcher"] not in DISPATCHERS[1:]:
        launch.problems.append(
            f"{DISPATCHING[1]} must be {' or '.join(DISPATCHERS[1:])}, but got {launch.settings['dispatcher']!r}"
        )
