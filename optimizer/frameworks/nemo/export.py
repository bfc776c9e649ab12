"""A NeMo 2 recipe under a plan, as a program that NeMo-Run runs on this machine or over Slurm.

Source of the names: keys.toml; nemo-toolkit 2.5.3, nemo/collections/llm/recipes; nemo-run 0.11.1,
nemo_run/core/execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimizer.base.content import content, template
from optimizer.base.errors import InputError
from optimizer.frameworks.framework import ExportFiles
from optimizer.frameworks.megatron.export import MOMENTS, plan_flags, recipe_flags, typed, unexpressed_plan
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.refusal import lacks, runnable
from optimizer.frameworks.sbatch import LIMIT, MEETING
from optimizer.job.plan import Knobs

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

RELEASE = "2.5.3"
FILE = "nemo_pretrain.py"
KEYS: Mapping[str, Mapping[str, list[Any]]] = content("optimizer.frameworks.nemo", "keys.toml")
RECIPES: Mapping[str, Mapping[str, Any]] = content("optimizer.frameworks.nemo", "recipes.toml")["recipes"]
# The recipe of each preset: the first, whose sequences are those that the model was made for.
OF_PRESET: Mapping[str, str] = {str(row["model"]): name for name, row in reversed([*RECIPES.items()])}
WRITTEN = frozenset(str(flag) for rows in KEYS.values() for flag, *_ in rows.values() if str(flag).startswith("--"))
# What keys.toml says in other words, and what NeMo has by itself.
OTHERWISE = {
    *(
        "--num-layers-per-virtual-pipeline-stage",
        "--fp8-recipe",
        "--grad-reduce-in-bf16",
        "--accumulate-allreduce-grads-in-fp32",
    ),
    *("--exp-avg-dtype", "--exp-avg-sq-dtype", "--attention-backend", "--nccl-communicator-config-path"),
}
INDENTS = {"ddp": 8, "precision": 8, "overlap": 12}


def nemo_program(answer: Answer) -> str:
    """`python nemo_pretrain.py`; the dataset is yours.

    Raises InputError when the answer holds no plan, one that the release cannot run, or one of nodes that are not full.
    """
    job, plan = runnable(answer, f"NeMo 2 ({RELEASE})", lacking_of)
    gpus = min(job.gpus, job.cluster.gpus_per_node)
    if job.gpus % gpus:
        raise InputError(f"nodes of a recipe are alike: {job.gpus} GPUs are no whole nodes of {gpus}")
    values = facts(job, plan, answer.knobs)
    assigned = [f"    recipe.{path} = {value}" for path, value in stated("plan", values).items()]
    sections = {
        name: "\n".join(f"{' ' * indent}{key}={value}," for key, value in stated(name, values).items())
        for name, indent in INDENTS.items()
    }
    variables = {name: value for name, value in environment(job, plan).items() if name not in MEETING}
    return template("optimizer.frameworks.nemo", "script.txt").format(
        release=RELEASE,
        summary=plan.summary(),
        file=FILE,
        recipe=OF_PRESET[job.model.name],
        nodes=job.gpus // gpus,
        gpus=gpus,
        limit=LIMIT,
        variables="\n".join(["{", *(f'    "{name}": "{value}",' for name, value in variables.items()), "}"]),
        assignments="\n".join(assigned),
        **sections,
    )


def lacking_of(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[str, ...]:
    """What the release lacks to run the plan as it is priced, in words; nothing where it can."""
    features, device = job.stack.features, job.cluster.device
    missing = {
        f"a recipe for the shape of {job.model.name}": job.model.name not in OF_PRESET,
        f"the device {device.name} ({device.vendor})": device.vendor != "NVIDIA",
        f"{features.attention} attention": not features.attention.startswith("flash"),
        "a share of the multiprocessors for gradients": (
            plan.dp * plan.cp > 1 and knobs.comm_sm_share != Knobs().comm_sm_share
        ),
        "four-bit products": "fp4" in job.dtype,
        "packed documents": bool(job.lengths),
    }
    flags = plan_flags(job, plan, knobs, shape={})
    others = {flag: flag not in WRITTEN and flag not in OTHERWISE for flag in flags}
    return (*unexpressed_plan(job, plan, knobs), *lacks(missing), *lacks(others))


def facts(job: Job, plan: Plan, knobs: Knobs) -> dict[str, Any]:
    """Flags of the plan with their values, and what else keys.toml names."""
    half = job.dtype == "fp16"
    flags = plan_flags(job, plan, knobs, shape={})
    values: dict[str, Any] = {flag: typed(flag, text) for flag, text in flags.items()}
    own: dict[str, Any] = {
        "vpp": plan.vpp if plan.vpp > 1 else None,
        "interleaved": plan.pp > 1 and plan.vpp > 1,
        "plain": plan.pp > 1 and plan.vpp == 1,
        "vocab": job.model.vocab,
        "mtp": job.model.mtp_layers or None,
        "precision": "16-mixed" if half else "bf16-mixed",
        "format": Name("torch.float16" if half else "torch.bfloat16"),
        "wide_gradients": job.stack.features.grad_bytes == 4,
        "fp8_recipe": (recipe_flags(job, plan).get("--fp8-recipe") or "delayed") if "fp8" in job.dtype else None,
        "moments": Name("torch.bfloat16") if job.stack.features.optimizer_bytes in MOMENTS else None,
    }
    return values | {name: value for name, value in own.items() if value is not None}


class Name(str):
    """A name of Python's, which stands without quotes."""

    __slots__ = ()


def stated(section: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a section that the plan says, and their values as Python's text."""
    return {
        key: text_of(values[str(flag)]) if str(flag) in values else text_of(Name(usual[0]))
        for key, (flag, *usual) in KEYS[section].items()
        if usual or str(flag) in values
    }


def text_of(value: object) -> str:
    """A value as it stands in a program.

    >>> text_of("bf16-mixed"), text_of(Name("torch.half")), text_of(["mlp"]), text_of(False)
    ('"bf16-mixed"', 'torch.half', '["mlp"]', 'False')
    """
    return str(value) if isinstance(value, Name) else repr(value).replace("'", '"')


FILES = ExportFiles(files={FILE: nemo_program})
