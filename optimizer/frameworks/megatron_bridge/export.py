"""Overrides of an NVIDIA Megatron-Bridge (NeMo 2) recipe for a plan, one `key=value` per line, for each release.

The recipe's own communication overlap is taken away, since it would set buckets and overlaps over these; its mixed
precision is replaced for the same reason.

Source of the keys: NVIDIA-NeMo/Megatron-Bridge v0.3.1, v0.6.0 and 067f987df, src/megatron/bridge/training/config.py,
comm_overlap.py (setup), mixed_precision.py (setup); presets/launchers/megatron-bridge.csv lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from optimizer.base.content import content
from optimizer.frameworks.config.method import MODULES
from optimizer.frameworks.megatron.export import MOMENTS, plan_flags, recipe_flags, unexpressed_plan
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.frameworks.sbatch import MEETING
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

OLD, NEW, MAIN = "0.3.1", "0.6.0", "main"
BRIDGE_RELEASES = (OLD, NEW, MAIN)
# Families whose recipes on the main branch hold the transformer in a config of its own.
NESTED = ("llama1-", "llama2-", "llama3")
OUTER = ("model.seq_length",)
# What the oldest release has no key for: its containers fuse no experts.
FUSED = ("model.moe_mlp_glu_interleave_size", "model.moe_permute_fusion_into_hybridep")
LISTS = ("--recompute-modules", "--offload-modules", "--cuda-graph-scope")
BF16 = {"_target_": "torch.bfloat16", "_call_": False}
ADAPTED = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
PRECISION = "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"


def bridge_overrides(answer: Answer, release: str) -> str:
    """Overrides for `scripts/training/run_recipe.py`, to be put after a recipe of the same model.

    Raises InputError when the answer holds no plan, or one that the release cannot run.
    """
    job, plan = runnable(
        answer, f"Megatron-Bridge {release}", lambda job, plan, knobs: lacking_of(job, plan, release, knobs)
    )
    values = override_values(job, plan, answer.knobs, release)
    variables = environment(job, plan).items()
    exports = " ".join(f"{name}={value}" for name, value in variables if name not in MEETING)
    lines = [
        f"# Megatron-Bridge {release}: {plan.summary()}",
        f"# On every rank, in the folder of this file: {f'export {exports}; ' if exports else ''}"
        f"mapfile -t plan < <(grep -v '^#' megatron-bridge-{release}.overrides)",
        f"# python3 MEGATRON_BRIDGE/scripts/training/run_recipe.py --mode {mode(job, release)} --recipe RECIPE "
        '"${plan[@]}"',
    ]
    return "\n".join([*lines, *(f"{key}={hydra(value)}" for key, value in values.items())]) + "\n"


def lacking_of(job: Job, plan: Plan, release: str, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What a release lacks to run the plan as it is priced, in words; nothing where it can.

    Source: NVIDIA-NeMo/Megatron-Bridge @067f987df, training/flex_dispatcher_backend.py: DeepEP on Ampere, Hopper, B200
    and B300 alone.
    """
    features, device = job.stack.features, job.cluster.device.name
    partly = release == OLD and plan.activation_offload not in (0, 100)
    missing = {
        f"{plan.activation_offload}% of activations on the host (all or none)": partly,
        f"DeepEP on {device}": plan.dispatcher == "deepep" and plan.ep > 1 and device.startswith("gb"),
        f"{features.attention} attention": not features.attention.startswith("flash"),
        "packed documents as an override": bool(job.lengths) and release == OLD,
        **_unadapted(job, release),
    }
    return (*unexpressed_plan(job, plan, knobs), *lacks(missing))


def mode(job: Job, release: str) -> str:
    """What the runner of recipes calls the training of the job, with its options.

    Source: NVIDIA-NeMo/Megatron-Bridge v0.3.1 and v0.6.0, scripts/training/run_recipe.py.
    """
    if job.method.adapts:
        return "finetune --peft_scheme lora" if release == OLD else "lora"
    return ("finetune" if release == OLD else "sft") if job.lengths else "pretrain"


def adapted_modules(job: Job) -> tuple[str, ...]:
    """Megatron's modules all of whose matrices have an adapter."""
    words = {*job.method.targets, *(() if job.model.gated_mlp else ("gate",))}
    return tuple(name for name in ADAPTED if words.issuperset(MODULES[name]))


def _unadapted(job: Job, release: str) -> dict[str, bool]:
    """What of a job's adapters a release has no words for: each, and whether it is so."""
    if not job.method.adapts:
        return {}
    covered = {word for name in adapted_modules(job) for word in MODULES[name]}
    return {
        "adapters of some matrices of a module that holds several": bool({*job.method.targets} - covered),
        "adapters of latent attention or a recurrence": any(
            kind.model.mla is not None or kind.model.state is not None for kind in job.model.kinds
        ),
        f"weights in {job.method.base} under adapters": job.method.base != "bf16",
        "an adapter for each expert": job.model.experts is not None and release == OLD,
    }


def override_values(job: Job, plan: Plan, knobs: Knobs, release: str = NEW) -> dict[str, object]:
    """Keys of the recipe's configuration and their values under the plan, as a release calls them."""
    flags = plan_flags(job, plan, knobs, shape={})
    values: dict[str, object] = {flag: True if value is None else value for flag, value in flags.items()}
    facts: dict[str, object] = {
        "vpp": plan.vpp if plan.vpp > 1 else None,
        "interleaved": plan.vpp > 1,
        "plain": plan.vpp == 1,
        "shared_experts_overlap": False if plan.overlap_exchange else None,
        "offloaded": plan.activation_offload / 100 if plan.activation_offload and release != OLD else None,
        "precision": _precision(job, plan),
        "moments": BF16 if job.stack.features.optimizer_bytes in MOMENTS else None,
        "packed": True if job.lengths else None,
        "packed_length": job.seq_len if job.lengths else None,
    }
    if job.method.adapts:
        facts |= {"adapted": list(adapted_modules(job)), "rank": job.method.rank, "no_dropout": 0.0}
        facts |= {"shared_adapters": False if job.model.experts else None}
    values |= {name: value for name, value in facts.items() if value is not None}
    values |= {flag: str(values[flag]).split() for flag in LISTS if flag in values}
    tables: dict[str, dict[str, list[object]]] = content("optimizer.frameworks.megatron_bridge", "keys.toml")
    rows = {**tables["model"], **(tables["experts"] if job.model.experts else {}), **tables["run"]}
    stated = {key: values.get(str(flag), *usual) for key, (flag, *usual) in rows.items() if usual or flag in values}
    nested = release == MAIN and job.model.name.startswith(NESTED)
    left = {key: value for key, value in stated.items() if release != OLD or key not in FUSED}
    return {_named(key, release == OLD, nested): value for key, value in left.items()}


def _named(key: str, old: bool, nested: bool) -> str:
    """A key as a release calls it; the transformer of some models is a section of its own."""
    if key == "dataset.seq_length":
        return "dataset.sequence_length" if old else key
    return key.replace("model.", "model.transformer.", 1) if nested and key not in OUTER else key


def _precision(job: Job, plan: Plan) -> dict[str, object]:
    """Number format of weights, matrix products and gradients."""
    half = job.dtype == "fp16"
    kind = {"_target_": "torch.float16", "_call_": False} if half else BF16
    values: dict[str, object] = {"_target_": PRECISION, "fp16" if half else "bf16": True}
    values |= {"params_dtype": kind, "pipeline_dtype": kind, "autocast_dtype": kind}
    values["grad_reduce_in_fp32"] = job.stack.features.grad_bytes == 4
    if "fp8" in job.dtype:
        values |= {"fp8": "hybrid", "fp8_recipe": recipe_flags(job, plan).get("--fp8-recipe") or "delayed"}
    return values | ({"fp4": "e2m1", "fp4_recipe": "nvfp4"} if "fp4" in job.dtype else {})


def hydra(value: object) -> str:
    """A value in the grammar of Hydra's overrides, which YAML reads too.

    >>> hydra({"bf16": True, "recipe": None}), hydra(["mlp", "moe"]), hydra("Et*2|t*2L")
    ('{bf16: true, recipe: null}', '[mlp, moe]', '"Et*2|t*2L"')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {hydra(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(hydra, value))}]"
    return f'"{value}"' if isinstance(value, str) and "|" in value else str(value)


FILES = {f"megatron-bridge-{name}.overrides": partial(bridge_overrides, release=name) for name in BRIDGE_RELEASES}
