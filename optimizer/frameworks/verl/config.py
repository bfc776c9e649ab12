"""The update of verl's actor, which trains as any training does: one step is a mini-batch of PPO.

Its sequences are as long as the longest prompt and answer, and each prompt has as many answers as the rollout makes.
Source of the keys and defaults: volcengine/verl @b178a3cd5, verl/trainer/config (actor, engine, model, rollout),
verl/utils/megatron_utils.py and verl/workers/fsdp_workers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.config.launch import ConfigLaunch, Values, key_tables, keyed_launch, named_values, whole
from optimizer.frameworks.config.precedence import merged
from optimizer.frameworks.deepspeed import config as trainer
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.megatron import config as megatron
from optimizer.job.job import Job
from optimizer.job.method import LORA
from optimizer.job.plan import Plan

PROGRAM = megatron.VERL
TABLES: Mapping[str, Any] = key_tables("verl")
KEYS: Mapping[str, str] = TABLES["trainer"]  # the Trainer's key for the actor's
BACK: Mapping[str, str] = {key: path for path, key in KEYS.items()}
SECTIONS: tuple[str, ...] = tuple(TABLES["sections"])
ACTOR, MODEL = SECTIONS
MEGATRON, STRATEGY = f"{ACTOR}megatron.", f"{ACTOR}strategy"
CONTEXT = f"{MEGATRON}context_parallel_size"
MINI, PACKED, MOST = (
    f"{ACTOR}{key}" for key in ("ppo_mini_batch_size", "use_dynamic_bsz", "ppo_max_token_len_per_gpu")
)
REFERENCE, DEGREES = "actor_rollout_ref.ref.megatron.", ("tp", "pp", "vpp", "ep", "etp", "cp")
MICRO, ULYSSES = f"{ACTOR}ppo_micro_batch_size_per_gpu", f"{ACTOR}ulysses_sequence_parallel_size"
# What an actor under FSDP is priced with; others of these keys are named.
NARROW: Mapping[str, tuple[str, ...]] = {
    STRATEGY: ("fsdp", "fsdp2"),
    **dict.fromkeys(
        (f"{ACTOR}fsdp_config.dtype", f"{ACTOR}fsdp_config.mixed_precision.param_dtype"), ("bf16", "bfloat16")
    ),
}
RANK, SIZE, WIDTH = "lora_rank", f"{ACTOR}fsdp_config.fsdp_size", f"{ACTOR}fsdp_config.model_dtype"
DEFAULTS: Mapping[str, Any] = TABLES["defaults"]
LENGTHS: tuple[str, ...] = tuple(TABLES["lengths"])
WRITTEN: Mapping[str, str] = {  # what says the settings that follow from several keys
    **BACK,
    **dict.fromkeys(("max_seq_length", "seq_length"), LENGTHS[1]),
    **dict.fromkeys(("train_batch_size", "global_batch_size"), MINI),
    "model": f"{MODEL}path",
}
ON_MEGATRON = "ppo_megatron_trainer"
SHIPPED: tuple[str, ...] = tuple(TABLES["shipped"])  # its own configs, whose defaults are here
USED = (*TABLES["used"], *DEFAULTS)
ALONE = "the actor's update alone: no rollouts, rewards and references, nor what goes to the host between them"


def recognised(values: Values) -> bool:
    """Whether keys are those of verl's actor."""
    return any(path.startswith(ACTOR) for path in values)


def read(configs: tuple[ConfigFile, ...], gpus: int | None, model: str) -> ConfigLaunch:
    """Read its update, on Megatron-LM where a key of it is there, else on FSDP."""
    values = {**DEFAULTS, **{path: value for path, value in merged(configs).items() if value is not None}}
    named = any(ON_MEGATRON in config.text for config in configs)  # the config that hydra finds
    if named or values.get(STRATEGY) == "megatron" or any(path.startswith(MEGATRON) for path in values):
        checks = Launch(program=PROGRAM)
        chosen = {**TABLES["megatron"], **_section(values), **_sizes(checks, values)}
        source: ConfigLaunch = megatron.read(PROGRAM, configs, gpus, model, chosen)
        source.launch.problems[:0] = checks.problems
        source.launch.settings["software"] = "megatron-core"
        source.launch.fixed += ("zero_stage", "reduce_overlap", "gather_overlap", "tp_overlap")
        if any(path.startswith(REFERENCE) for path in values):  # which lies as the actor does
            source.launch.fixed += tuple(DEGREES)
    else:
        source = keyed_launch(PROGRAM, _read_fsdp, _write_fsdp, configs, gpus, model)
    launch = source.launch
    launch.assumed += ["every prompt and answer is of its longest length (--seq-len)", ALONE]
    launch.written = {name: WRITTEN.get(key, key) for name, key in launch.written.items()}
    launch.fixed += ("micro_batch",) if values[PACKED] is True else ()
    launch.assumed += [] if MICRO in values or values[PACKED] is True else ["micro-batches of 1"]
    return source


def _section(values: Values) -> dict[str, Any]:
    """What keys say of the actor, of its model and of the machines."""
    own = {path: value for path, value in values.items() if path.startswith((*SECTIONS, "trainer.n"))}
    return {path: value for path, value in own.items() if path not in USED or path.startswith("trainer.")}


def _sizes(launch: Launch, values: Values) -> dict[str, Any]:
    """The sizes of a step, by the names that Megatron's configs and the Trainer's have in common, and its model."""
    paths = (*DEFAULTS, MICRO, ULYSSES, CONTEXT)
    counts = {path: whole(launch, values, path) or 1 for path in paths if path != PACKED}
    prompt, answer, several = (counts[path] for path in LENGTHS)
    length, split = prompt + answer, counts[ULYSSES] * counts[CONTEXT]
    micro = max(1, counts[MOST] * split // length) if values[PACKED] is True else counts[MICRO]
    sizes = {"seq_length": length, "global_batch_size": counts[MINI] * several, MICRO: micro, "bf16": True}
    return {**sizes, "model": values.get(f"{MODEL}path")}


def _as_trainer(launch: Launch, values: Values) -> dict[str, Any]:
    """The Trainer's keys that say the same of an actor under FSDP."""
    sizes = _sizes(launch, values)
    same = {key: values[path] for path, key in KEYS.items() if path in values}
    adapts: dict[str, Any] = {"adapter": LORA} if same.get(RANK) else {RANK: None}
    return {
        **TABLES["fsdp"],
        **same,
        **adapts,
        "bf16": True,
        "max_seq_length": sizes["seq_length"],
        "train_batch_size": sizes["global_batch_size"],
        KEYS[MICRO]: sizes[MICRO],
    }


def _read_fsdp(launch: Launch, values: Values) -> None:
    """Note what keys say of an actor under FSDP."""
    values = {**DEFAULTS, **values}
    machines = [whole(launch, values, path) or 1 for path in DEFAULTS if path.startswith("trainer.")]
    launch.settings.setdefault("gpus", machines[0] * machines[1])
    known = _as_trainer(launch, values)
    trainer.read(launch, known)
    launch.fixed += DEGREES
    shared = values.get(SIZE, -1)
    if isinstance(shared, int) and 0 < shared < launch.settings["gpus"]:
        launch.say("shard", shared, SIZE)
    named_values(launch, values, NARROW)
    launch.unpriced += [f"{WIDTH} {values[WIDTH]}"] if values.get(WIDTH) in ("bf16", "bfloat16") else []
    if launch.settings.get("cp", 1) > 1:
        launch.unsearched.append(f"{ULYSSES}: the parallelism of sequences is priced as context parallelism")
    launch.ignored = [path for path in _section(values) if path not in (*KEYS, SIZE, WIDTH, *DEFAULTS, *NARROW)]


def _write_fsdp(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan, as far as the actor has them."""
    wanted = trainer.write(_as_trainer(Launch(program=PROGRAM), {**DEFAULTS, **values}), job, before, after, turned)
    return {BACK[key]: value for key, value in wanted.items() if key in BACK}
