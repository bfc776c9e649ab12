"""How the software runs that flags of Megatron-LM and Megatron-DeepSpeed start: overlap, kernels, bytes, dispatcher."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron.flag_names import (
    EXPERT_DEGREES,
    FP32_GRADIENTS,
    MEGATRON,
    SOFTWARE_SWITCHES,
    left_open,
    whole_number,
)
from optimizer.job.variables import DISPATCHERS

STATES = ("--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype")
BYTES_OF: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
DISPATCHING = ("--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend")


def read_software(launch: Launch, last: Mapping[str, Flag]) -> None:
    """Note what the flags say of the software beside the plan."""
    for name, (key, value) in SOFTWARE_SWITCHES.items():
        if name in last:
            launch.say(key, value, last[name].written)
    settings = launch.settings
    if launch.program == MEGATRON:
        for key in ("reduce_overlap", "gather_overlap", "tp_overlap"):
            settings.setdefault(key, False)
    if "--attention-backend" in last:
        backend = last["--attention-backend"]
        if backend.value in ("unfused", "local"):
            launch.say("attention", "unfused", backend.written)
        elif backend.value in ("flash", "fused"):
            launch.say("attention", "flash", backend.written)
    if "experts" in settings:
        _dispatcher(launch, last)
    if "--cuda-graph-impl" in last:
        launch.say("cuda_graphs", last["--cuda-graph-impl"].value != "none", "--cuda-graph-impl")
    if launch.program == MEGATRON and "--fp16" in last and FP32_GRADIENTS not in last:
        launch.say("grad_bytes", 2, last["--fp16"].written)
    if "--main-grads-dtype" in last and last["--main-grads-dtype"].value in ("bf16", "fp16"):
        launch.say("grad_bytes", 2, last["--main-grads-dtype"].written)
    if "--use-precision-aware-optimizer" in last and any(name in last for name in STATES):
        sizes = [BYTES_OF.get(last[name].value, 4) if name in last else 4 for name in STATES]
        first = next(name for name in STATES if name in last)
        launch.say("optimizer_bytes", sum(sizes), last[first].written)
    if "--optimizer-cpu-offload" in last and "--optimizer-offload-fraction" in last:
        flag = last["--optimizer-offload-fraction"]
        try:
            launch.say("offload", min(1.0, max(0.0, float(flag.value))), flag.written)
        except ValueError:
            wrong = f"must be a share from 0 to 1, but got {flag.value!r}"
            launch.problems.append(f"{flag.written} {left_open(flag) or wrong}")
    if "--ddp-bucket-size" in last and (number := whole_number(launch, last["--ddp-bucket-size"])):
        launch.say("bucket_params", number, last["--ddp-bucket-size"].written)


def _dispatcher(launch: Launch, last: Mapping[str, Flag]) -> None:
    """How tokens travel where experts are spread: flex takes DeepEP unless it is told otherwise."""
    spread = any(name in last and last[name].value not in ("", "1") for name in EXPERT_DEGREES)
    kind, backend = map(last.get, DISPATCHING)
    if kind is None or kind.value != "flex" or not spread:
        launch.say("dispatcher", DISPATCHERS[0], kind.written if kind and kind.value != "flex" else "")
        return
    launch.say("dispatcher", backend.value if backend else "deepep", (backend or kind).written)
    if launch.settings["dispatcher"] not in DISPATCHERS[1:]:
        launch.problems.append(
            f"{DISPATCHING[1]} must be {' or '.join(DISPATCHERS[1:])}, but got {launch.settings['dispatcher']!r}"
        )
