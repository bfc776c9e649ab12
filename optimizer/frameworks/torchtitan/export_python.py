"""A torchtitan training configuration for a plan: a function in Python, as releases since 0.3 load it.

`--module NAME --config FUNCTION` names it, where NAME.py is in the folder that torchtitan is started from.
Source of names and meaning: pytorch/torchtitan v0.3.0 and b5bcd76c6, torchtitan/config/configs.py and manager.py,
models/common/config_utils.py (varlen attention is FlashAttention over packed sequences; under context parallelism flex
alone), components/quantization/float8.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from optimizer.base.content import template
from optimizer.frameworks.refusal import runnable
from optimizer.frameworks.torchtitan.export import (
    BY_ROW,
    DISPATCHERS,
    local_batch,
    overlaps_tp,
    parallelism,
    unexpressed,
)
from optimizer.frameworks.torchtitan.models import MAIN, NEW, Flavor, flavor_of

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

MODULES = {NEW: "torchtitan_0_3", MAIN: "torchtitan_main"}


def torchtitan_python(answer: Answer, release: str) -> str:
    """The configuration of a release; that of the main branch counts batches in tokens.

    Raises InputError when the answer holds no plan, or one that torchtitan cannot run.
    """
    job, plan = runnable(answer, f"torchtitan {release}", partial(unexpressed, release))
    flavor = flavor_of(job.model, release)
    assert flavor is not None
    checkpoint = {"full": "FullAC.Config()", "selective": "SelectiveAC.Config()", "none": "None"}[plan.recompute]
    float8 = _converters(job)
    names = [checkpoint.partition(".")[0]] * (checkpoint != "None")
    converters = ", ".join(sorted(text.partition(".")[0] for text in float8))
    lines = [f"from torchtitan.components.quantization import {converters}"] * bool(float8)
    lines += ["from torchtitan.config import CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig"]
    lines += [f"from torchtitan.distributed.activation_checkpoint import {name}" for name in names]
    lines += [
        f"from torchtitan.models.{flavor.family} import model_registry",
        f"from torchtitan.models.{flavor.family}.config_registry import {flavor.recipe}",
    ]
    lines += ["from torchtitan.trainer import Trainer"]
    registry: dict[str, object] = {"attn_backend": "flex" if plan.cp > 1 else "varlen"}
    registry |= {"moe_comm_backend": DISPATCHERS[plan.dispatcher]} if job.model.experts else {}
    values = {
        "model_spec": _call("model_registry", registry, flavor.name, float8),
        "training": _call("TrainingConfig", _training(job, plan, release)),
        "parallelism": _call("ParallelismConfig", parallelism(job, plan, release)),
        "activation_checkpoint": checkpoint,
        "compile": _call("CompileConfig", {"enable": True, "enable_async_tensor_parallel": overlaps_tp(job, plan)}),
        "debug": _call("DebugConfig", {"moe_force_load_balance": bool(job.model.experts) and job.stack.routing_forced}),
    }
    return template("optimizer.frameworks.torchtitan", "config.txt").format(
        release=release,
        summary=plan.summary(),
        module=MODULES[release],
        recipe=flavor.recipe,
        function=function_of(flavor),
        imports="\n".join(lines),
        fields="\n".join(f"        {name}={value}," for name, value in values.items()),
    )


def function_of(flavor: Flavor) -> str:
    """The name of the function that makes the config: family and size, as those of torchtitan's registries.

    >>> function_of(Flavor("qwen3", "30B-A3B", "qwen3_30b_a3b"))
    'qwen3_30b_a3b_plan'
    """
    return f"{flavor.family}_{flavor.name.lower().replace('.', '_').replace('-', '_')}_plan"


def _call(name: str, values: dict[str, object], first: str = "", converters: Sequence[str] = ()) -> str:
    """A call with literals, a line each."""
    words = [repr(first)] * bool(first) + [f"{key}={value!r}" for key, value in values.items()]
    words += [f"converters=[{', '.join(converters)}]"] * bool(converters)
    inner = "".join(f"            {word},\n" for word in words)
    return f"{name}(\n{inner}        )"


def _converters(job: Job) -> list[str]:
    if job.dtype != "fp8":
        return []
    linear = f'recipe_name="{BY_ROW}", filter_fqns=["lm_head", "router.gate"], model_compile_enabled=True'
    converters = [f"Float8LinearConverter.Config({linear})"]
    return converters + ["Float8GroupedExpertsConverter.Config(model_compile_enabled=True)"] * (
        job.model.experts is not None
    )


def _training(job: Job, plan: Plan, release: str) -> dict[str, object]:
    if release == NEW:
        values: dict[str, object] = {
            "local_batch_size": local_batch(plan),
            "global_batch_size": job.global_batch,
            "seq_len": job.seq_len,
        }
    else:
        values = {
            "num_tokens_per_microbatch_per_dp_rank": plan.micro_batch * job.seq_len,
            "num_tokens_per_train_step": job.tokens,
            "max_context_length": job.seq_len,
        }
    return values | {
        "mixed_precision_param": "bfloat16",
        "mixed_precision_reduce": "float32",
        "disable_cuda_graphs": not job.stack.features.cuda_graphs,
    }


FILES = {f"{module}.py": partial(torchtitan_python, release=release) for release, module in MODULES.items()}
