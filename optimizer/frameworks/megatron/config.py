"""YAML that says Megatron's settings by other names: Megatron-Bridge, NeMo, FlagScale, and Primus on Megatron.

Each key becomes the flag that means the same, so that one reader understands them all.
Source of the keys: NVIDIA-NeMo/Megatron-Bridge, docs/megatron-lm-to-megatron-bridge.md; NVIDIA/NeMo,
examples/nlp/language_modeling/conf/megatron_gpt_config.yaml; AMD-AGI/Primus, primus/configs/modules/megatron;
FlagOpen/FlagScale, flagscale/runner/runner_train.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.base.content import content
from optimizer.catalog import load_model, preset_model
from optimizer.catalog.readers.text import shown
from optimizer.catalog.targets import argument_names
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.bash.pieces import Piece
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.config.launch import ConfigLaunch, Values
from optimizer.frameworks.config.method import note_method, note_optimizer
from optimizer.frameworks.config.precedence import merged
from optimizer.frameworks.config.yaml_edit import scalar
from optimizer.frameworks.launch import FlagChange, Launch
from optimizer.frameworks.megatron.flag_names import (
    COUNTED_ENDS,
    FORMER_FSDP,
    FP32_GRADIENTS,
    FSDP,
    LISTS,
    MEGATRON,
    NAMED,
    SHAPE_COUNTS,
    SHAPE_SWITCHES,
    SOFTWARE_SWITCHES,
    TABLES,
)
from optimizer.frameworks.megatron.flags import GROUPED, note_defaults, read_flags
from optimizer.frameworks.megatron.parser import parser_of
from optimizer.frameworks.megatron.write import ON_HOST, PIPELINE, flag_changes
from optimizer.frameworks.nemo.recipe import HOMES, UNREAD
from optimizer.frameworks.shape import named
from optimizer.frameworks.unpriced import costs
from optimizer.job.job import Job
from optimizer.job.plan import Plan

BRIDGE, NEMO, PRIMUS, SWIFT, FLAGSCALE = "Megatron-Bridge", "NeMo", "Primus", "ms-swift", "FlagScale"
VERL = "verl"  # whose actor may train on Megatron-LM
# What NeMo's two sections have and a trainer of another program does not.
NEMO_OWN = re.compile(r"trainer\.(num_nodes|devices|accelerator|precision)|model\.(\w+_batch_size|\w+_parallel_size)")
SWIFT_RELEASE = "main (3602360a5)"  # whose arguments are listed in presets/launchers
TRAINER = "per_device_train_batch_size"
OVERRIDES = "modules.pre_trainer.overrides."
ALIASES: Mapping[str, str] = TABLES["aliases"]  # keys that are not the flag with underscores, by the end of their path
PLACES: Mapping[str, Mapping[str, str]] = TABLES["places"]  # sections of keys by how their flag begins, by program
# The key of each flag in a recipe's configuration.
IN_BRIDGE: Mapping[str, str] = {
    flag: path
    for table in content("optimizer.frameworks.megatron_bridge", "keys.toml").values()
    for path, (flag, *_) in table.items()
}
INVERTED: Mapping[str, str] = TABLES["inverted"]  # keys whose false is the flag
FLAGS = {*NAMED, *SHAPE_COUNTS, *SHAPE_SWITCHES, *SOFTWARE_SWITCHES, *TABLES["plain"]}
SWITCHES = {
    name
    for name in (*FLAGS.difference(TABLES["plain"]), *COUNTED_ENDS)
    if name.startswith(("--use-", "--overlap-", "--tp-comm", "--sequence-", "--bf16", "--fp16", "--no-", "--swiglu"))
}
TOKENS = ("--vocab-file", "--tokenizer-model")  # which a section of the data may have otherwise
MISSING = re.compile(r"^--([\w-]+)(?= is missing)")
# Marks in the names of Megatron-Bridge's mixed precisions, and how operands of 8 bits get their scales there.
SCALES: Mapping[str, str] = {
    **{"fp8_delayed": "delayed", "fp8_current": "tensorwise"},
    **{"mxfp8": "mxfp8", "fp8_subchannel": "blockwise"},
}
PRECISION = ("precision", "mixed_precision", "precision_config")
UNSAID = ("none", "")
PRECISIONS: Mapping[str, str] = {"bf16": "--bf16", "16": "--fp16", "fp16": "--fp16"}
# Mixed precisions by whose name some layers are in bf16: src/megatron/bridge/training/mixed_precision.py.
WIDE_ENDS = ("fp8_current_scaling", "super_bf16_with_nvfp4")
ENUM = "_args_"  # of a member of an Enum, by its number
TARGET, ARGUMENTS = "._target_", f".{ENUM}"
MTP, TEACHER = "mtp_num_layers", "teacher"
# Of NeMo and NeMo-Aligner. Source: NVIDIA/NeMo-Aligner, examples/nlp/gpt/conf/gpt_sft.yaml (the length of the model is
# that of its checkpoint); NVIDIA/NeMo v2.0, examples/nlp/language_modeling/tuning/conf.
MODEL_LENGTH, PACKS = "model.encoder_seq_length", "model.data.train_ds.packed_sequence"
DOCUMENTS = ("data.train_ds.packed_sequence_size", "data.train_ds.max_seq_length")
STEM = re.compile(r"_(pretrain|sft|peft|finetune)_(\w+_)?config$")  # what stands behind the model in a recipe's name
NAMES = (  # keys that name a model
    *(
        "modules.pre_trainer.model",
        "modules.post_trainer.model",
        "recipe",
        "model.recipe",
        "model_recipe_name",
        "recipe_name",
    ),
    *("pretrained_checkpoint", "model.name", "training", "model", "load"),
)


def is_primus(values: Values) -> bool:
    """Whether a YAML is that of Primus on Megatron-LM."""
    framework = "megatron" if any(path.startswith(OVERRIDES) for path in values) else ""
    stated = (values.get(f"modules.{name}_trainer.framework") for name in ("pre", "post"))
    return next(filter(None, stated), framework) == "megatron"


def is_swift(values: Values) -> bool:
    """Whether a command is one of ms-swift on Megatron."""
    return str(values.get("swift", "")).startswith("megatron")


def is_nemo(values: Values) -> bool:
    """Whether a YAML is NeMo's, or values are those of a recipe of NeMo 2."""
    sections = {path.partition(".")[0] for path in values if "." in path}
    return {"trainer", "model"} <= sections and (any(map(NEMO_OWN.fullmatch, values)) or is_program(values))


def is_program(values: Values) -> bool:
    """Whether values are those of a program that runs a recipe of NeMo 2."""
    return "trainer.devices" in values and any(path.startswith("trainer.strategy.") for path in values)


def is_recipe(values: Values) -> bool:
    """Whether a command runs a recipe of Megatron-Bridge by the name of its function."""
    return str(values.get("recipe", "")).endswith("_config")


def is_flagscale(values: Values) -> bool:
    """Whether a YAML is the training config of FlagScale on Megatron-LM, whose sections it hands on as flags."""
    sections = {path.partition(".")[0] for path in values}
    return {"system", "model"} <= sections and any(path.startswith("system.precision.") for path in values)


def is_yaml_cfg(values: Values) -> bool:
    """Whether a YAML is what Megatron-LM's --yaml-cfg takes: its arguments, some of them in two sections.

    Source: NVIDIA/Megatron-LM, examples/gpt3/gpt_config.yaml, megatron/training/yaml_arguments.py.
    """
    return {"language_model", "model_parallel"} <= {path.partition(".")[0] for path in values}


def is_bridge(values: Values) -> bool:
    """Whether a YAML is Megatron-Bridge's."""
    sections = {path.partition(".")[0] for path in values}
    known = any(path.rpartition(".")[2] == "tensor_model_parallel_size" for path in values)
    known = known and TRAINER not in values  # of LLaMA-Factory, whose keys are the Trainer's
    if is_yaml_cfg(values):
        return False
    return known or is_recipe(values) or {"model", "train", "ddp"} <= sections or {"train", "optimizer"} <= sections


@dataclass(frozen=True, kw_only=True)
class FlagLaunch(ConfigLaunch):
    """A config whose keys stand for flags; `paths` says which key each flag is."""

    flags: tuple[Flag, ...]
    paths: Mapping[str, str]

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> tuple[FlagChange, ...]:
        """The keys to write otherwise: each flag that changes, by its key."""
        changes = flag_changes(self.flags, self.launch.program, job, before, after, turned, self.launch.settings)
        if self.launch.program in (NEMO, BRIDGE, VERL):  # which count virtual stages, never their layers
            changes = tuple(
                replace(change, flag=PIPELINE[1], after=str(after.vpp))
                if change.flag == PIPELINE[0] and change.after is not None
                else change
                for change in changes
            )
        keys = [self._as_key(change) for change in changes]
        if self.launch.program == BRIDGE and any(one.flag == DDP[2] and one.after is None for one in changes):
            values = self.values  # where one has it, both do
            ways = {path: values.get(path) for path in SHARDS if values.get(path) is not False}
            keys = [key for key in keys if key.flag not in SHARDS]
            keys += [
                FlagChange(flag=path, before=None if now is None else scalar(now), after=scalar(False))
                for path, now in ways.items()
            ]
        if self.launch.program == PRIMUS and any(change.flag == DEEPEP[0][0] for change in changes):
            own = after.dispatcher == "deepep"
            stated = {name: _ending(self.values, name) for name in (TURBO if own else TURBO[1:])}
            keys += [
                FlagChange(flag=self._new(f"--{name}"), before=None if now is None else scalar(now), after=scalar(own))
                for name, now in stated.items()
                if bool(now) != own
            ]
        return tuple(keys)

    def _as_key(self, change: FlagChange) -> FlagChange:
        path = self.paths.get(change.flag) or self._new(change.flag)
        key = path.rpartition(".")[2]
        values = self.values
        if key in INVERTED:
            after = scalar(change.after is None)
        elif change.after == "":
            after = "true"
        elif change.after is None:
            off = "none" if self.launch.program == SWIFT and key == "recompute_granularity" else "null"
            after = "false" if isinstance(values.get(path), bool) or change.flag in SWITCHES else off
        else:
            after = change.after
            if change.flag in LISTS and self.launch.program != SWIFT:  # whose parser takes words
                after = scalar(after.split())
        if path.endswith("optim.name"):
            after = "distributed_fused_adam" if change.after == "" else "fused_adam"
        before = values.get(path)
        return FlagChange(flag=path, before=None if path not in values else scalar(before).strip('"'), after=after)

    def _new(self, flag: str) -> str:
        """The key of a flag that is not there, beside the degrees; the optimizer's own beside its other keys."""
        neighbour = self.paths.get("--tensor-model-parallel-size") or self.paths.get("--micro-batch-size") or ""
        section = neighbour.rpartition(".")[0]
        program = self.launch.program
        recipe = program == BRIDGE and section in ("model", "train")
        homes = HOMES if program == NEMO and is_program(self.values) else IN_BRIDGE if recipe else {}
        if flag in homes:
            return homes[flag]
        names = {name: key for key, name in ALIASES.items()} if program == NEMO else {}
        if program in (BRIDGE, VERL):
            names = {"--num-virtual-stages-per-pipeline-rank": "virtual_pipeline_model_parallel_size"}
        key = names.get(flag, flag[2:].replace("-", "_"))
        inner = PLACES.get(program, {})
        section += "".join(f".{name}" for start, name in inner.items() if flag.startswith(start))
        return f"{section}.{key}" if section else key

    def lacking(self, changes: Sequence[FlagChange]) -> str:
        """Keys that ms-swift's own parser does not have, or FlagScale's Megatron may not, to judge by the others; those
        that the file of --yaml-cfg has not, which no parser knows or checks.
        """
        if self.launch.program == FLAGSCALE:
            parser = parser_of(list(map(_as_flag, self.values)), MEGATRON, "")
            lacks = ", ".join(parser.lacks([replace(one, flag=_as_flag(one.flag)) for one in changes]))
            return f"its Megatron may not have {lacks}: the newest that it shows is {parser.known_by}" if lacks else ""
        lacks = {SWIFT: "ms-swift has no", MEGATRON: "this file of --yaml-cfg has no"}.get(self.launch.program, "")
        known = argument_names("ms-swift", SWIFT_RELEASE) if self.launch.program == SWIFT else frozenset[str]()
        new = [change.flag for change in changes if change.flag not in self.values and change.flag not in known]
        return f"{lacks} {', '.join(dict.fromkeys(new))}" if lacks and new else ""

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        """The file with these keys; those of Megatron-Bridge stay, for a key that is gone is as the recipe has it."""
        if self.launch.program != BRIDGE:
            changes = tuple(
                replace(change, after=None if change.after == "null" else change.after) for change in changes
            )
        yield from super().edited(changes)


def flags_in(values: Mapping[str, Any]) -> tuple[list[Flag], dict[str, str], list[str], list[str]]:
    """The flags that keys stand for, the key of each, the keys that stand for none, and sections that disagree."""
    flags: list[Flag] = []
    stated: dict[str, dict[tuple[str, ...], str]] = {}
    paths: dict[str, str] = {}
    others: list[str] = []
    for path, value in values.items():
        own = path.removesuffix(TARGET) if str(value).startswith("torch.") else path  # as Megatron-Bridge saves formats
        if path.endswith(ARGUMENTS) and ".enums." in str(values.get(path.removesuffix(ARGUMENTS) + TARGET)):
            own = path.removesuffix(ARGUMENTS)  # and members of an Enum, by their numbers
            value = value[0] if isinstance(value, list) and len(value) == 1 else value
        key = own.rpartition(".")[2]
        name = ALIASES.get(key) or INVERTED.get(key) or f"--{key.replace('_', '-')}"
        if name not in FLAGS and key not in (*ALIASES, *INVERTED) and name not in COUNTED_ENDS:
            others.append(path)
            continue
        paths.setdefault(name, path)
        if key == "grad_reduce_in_fp32" and value:
            flags.append(_flag(FP32_GRADIENTS))
        if key in INVERTED:
            value = not value
        off = value is None or value is False or (value == 0 and name in SWITCHES)
        if off or (isinstance(value, str) and value.lower() in ("none", "null", "")):
            continue
        if name in SWITCHES or isinstance(value, bool):
            texts: tuple[str, ...] = ()
        elif isinstance(value, list):
            texts = tuple(
                str(each[ENUM][0] if isinstance(each, Mapping) and each.get(ENUM) else each) for each in value
            )
        else:
            texts = (str(value),)
        flags.append(Flag(name, name, texts, (Piece(name),), tuple((Piece(text),) for text in texts)))
        stated.setdefault(name, {}).setdefault(texts, path)
    clashes = [
        f"{' and '.join(each.values())} say different values"
        for name, each in stated.items()
        if len(each) > 1 and name not in TOKENS
    ]
    return flags, paths, others, clashes


def read(
    program: str,
    configs: tuple[ConfigFile, ...],
    gpus: int | None,
    asked: str = "",
    chosen: Values | None = None,
) -> FlagLaunch:
    """Read configs of one of these programs; `asked` is the model that the user names, `chosen` what counts of them."""
    launch = Launch(program="Megatron-LM")
    values = _of_documents(_of_aligner(launch, merged(configs))) if chosen is None else chosen
    if gpus is not None:
        launch.settings |= {"gpus": gpus, "gpus_given": True}
    flags, paths, others, launch.problems = flags_in(values)
    has = {flag.name for flag in flags}
    extra = _more(launch, values, has, paths, others)
    if program == PRIMUS:
        left = [name for name in PRIMUS_DEFAULTS if name not in paths and not (name == "--bf16" and "--fp16" in has)]
        if left:
            names = ", ".join(name[2:].replace("-", "_") for name in left)
            launch.assumed.append(f"{names} as Primus' own pre_trainer.yaml and language_model.yaml have it")
        flags += map(_flag, left)
    own = _ending(values, TURBO[1]) is True or _ending(values, SYNC_FREE) in (2, 3)
    if program == PRIMUS and own and _ending(values, TURBO[0]) is True:
        flags = [flag for flag in flags if flag.name not in dict(DEEPEP)]
        flags += [_flag(*words) for words in DEEPEP]
    whole = "training" not in values  # which names a config of NeMo's launcher under the keys of a command
    if program == NEMO and whole and not is_program(values) and UNFUSED not in paths:
        launch.assumed.append("gradient_accumulation_fusion false, as NeMo 1 has it unless told")
        flags.append(_flag(UNFUSED))
    if program == NEMO and whole and not is_program(values) and _ending(values, MASTERS) is None:
        launch.unpriced.append(f"{MASTERS} false, as NeMo 1 has it unless told")
    if program in (NEMO, BRIDGE) and ON_HOST[0] in has and ON_HOST[1] not in paths:
        launch.assumed.append("optimizer_offload_fraction 0, as OptimizerConfig has it: nothing goes to the host")
        flags.append(_flag(ON_HOST[1], "0"))
    if program == SWIFT:
        launch.assumed.append("distributed optimizer, bf16 and selective recomputation as ms-swift has them by default")
        flags += [_flag(name, *words) for name, *words in SWIFT_DEFAULTS if name not in paths]
        flags += [_flag(*SWIFT_FSDP)] if FSDP in has and SWIFT_FSDP[0] not in paths else []
    if program == BRIDGE:
        flags += _of_recipes(launch, values, has, paths)
    if "--num-query-groups" in has and (program != FLAGSCALE or _ending(values, "group_query_attention")):
        extra.append(_flag("--group-query-attention"))
    model = load_model(asked).name if asked else _model(launch, values, others)
    shown = load_model(asked) if asked else preset_model(model) if model else None
    idle = {"--nnodes"} if gpus is not None else set()
    idle |= {"--tokenizer-type"} if program in (NEMO, BRIDGE) and "--vocab-size" in has else set()  # which counts there
    shape = [flag for flag in (*flags, *extra) if flag.name not in idle]
    if shown:
        shape += [_flag("--num-layers", str(shown.layers))] if "--num-layers" not in has else []
        if shown.experts and "--num-experts" not in has:
            shape.append(_flag("--num-experts", str(shown.experts.count)))
    elif "--num-layers" not in has:
        unknown = [
            f"{path} {values[path]} is no model that is known" for path in NAMES if isinstance(values.get(path), str)
        ]
        launch.problems.append(f"{next(iter(unknown), 'the model is not told')}: give --model")
    open_length = shown is not None and "--seq-length" not in {flag.name for flag in (*flags, *extra)}
    shape += [_flag("--seq-length", str(shown.max_seq_len))] if shown and open_length else []
    read_flags(launch, shape)
    if paths.get("--use-distributed-optimizer", "").endswith("optim.name") and DDP[0] not in paths:
        follows = launch.following  # Apex's distributed optimizer reduces under the backward pass by default
        launch.following = lambda plan: {**follows(plan), "reduce_overlap": plan.zero_stage > 0}
    if program in (FLAGSCALE, MEGATRON) or (program == NEMO and not is_program(values)):
        note_defaults(launch, has | ({GROUPED} if _ending(values, "moe_grouped_gemm") else set()))
    for place, each in enumerate(launch.unpriced):
        flag, space, rest = each.partition(" ")
        launch.unpriced[place] = f"{paths.get(flag, flag)}{space}{rest}"
    launch.problems = [MISSING.sub(lambda match: match[1].replace("-", "_"), each) for each in launch.problems]
    if open_length:
        launch.settings.pop("seq_len", None)
        launch.written.pop("seq_len", None)
    if model:
        _forget_shape(launch, has)
    launch.program = program
    launch.settings.pop("gpus_given", None)
    launch.written = {name: paths.get(f"--{flag[2:]}", flag) for name, flag in launch.written.items()}
    if program == NEMO and is_program(values):
        launch.unpriced += [str(values[UNREAD])] if UNREAD in values else []
        if wide := next((path for path in values if path.endswith(".grad_reduce_in_fp32") and values[path]), ""):
            launch.say("grad_bytes", 4, wide)
    method = ("swift", *note_method(launch, values)) if program in (SWIFT, BRIDGE) else (UNREAD,)
    if program == BRIDGE:
        method += tuple(path for path in (SCHEME, "mode") if values.get(path) in TUNED)
    if program == SWIFT:
        launch.settings.setdefault("packing", False)
    if values.get(PACKS) is True:
        launch.say("packing", True, PACKS)
    bare = str(_ending(values, SCHEME) or "").lower() == "none"
    for path in others:
        if values[path] is not None and path not in method and not (bare and ".peft." in path):
            launch.ignore(path)
    if launch.settings.get("packing") and values.get("model.apply_rope_fusion") is False:
        launch.unpriced.append("model.apply_rope_fusion false: each layer reads the lengths of packed documents back")
    if (window := _ending(values, SINKS)) and not (shown and shown.window and shown.window.size == window):
        launch.unpriced.append(f"{SINKS} {window}")
    latent = next((path for path in others if path.endswith("multi_latent_attention")), "")
    if shown and shown.mla and values.get(latent) is False:
        launch.unpriced.append(f"{latent} false: {shown.name} has latent attention")
    if taught := next((path for path in values if TEACHER in path.split(".")), ""):
        launch.problems.append(f"{taught}: a model that learns from another is not priced")
    heads = {path: bool(value) for path, value in values.items() if path.endswith(MTP)}
    launch.unpriced += [
        f"{path} {values[path]}" for path, has in heads.items() if has and shown and not shown.mtp_layers
    ]
    mtp = [path for path, has in heads.items() if not has]
    if shown and shown.mtp_layers and mtp and asked:
        launch.unpriced.append(f"{mtp[0]} {values[mtp[0]]}: {shown.name} has its heads for further tokens all the same")
    elif shown and shown.mtp_layers and mtp:
        launch.say("mtp_layers", 0, mtp[0])
    return FlagLaunch(configs=configs, launch=launch, write=lambda *_: {}, flags=(*flags, *extra), paths=paths)


def _of_documents(values: dict[str, Any]) -> dict[str, Any]:
    """Values with the length to which NeMo cuts or packs documents, where it fine-tunes on some.

    >>> _of_documents({"model.encoder_seq_length": 4096, "model.data.train_ds.max_seq_length": 2048})
    {'model.encoder_seq_length': 2048, 'model.data.train_ds.max_seq_length': 2048}
    """
    lengths = [(path, value) for key in DOCUMENTS for path, value in values.items() if path.endswith(key)]
    length = next((value for _, value in lengths if isinstance(value, int)), None)
    return values if length is None else {**values, MODEL_LENGTH: length}


def _of_aligner(launch: Launch, values: dict[str, Any]) -> dict[str, Any]:
    """Values with those that NeMo-Aligner's supervised fine-tuning takes where its command says nothing."""
    if not any(path.startswith(ALIGNER) for path in values):
        return values
    own = {path: value for path, value in ALIGNED.items() if path not in values}
    if own:
        taken = ", ".join(f"{path} {shown(value)}" for path, value in own.items())
        launch.assumed.append(f"{taken}: NeMo-Aligner's own where nothing says otherwise")
    return {**values, **own}


def _as_flag(path: str) -> str:
    """The flag that FlagScale makes of a key."""
    return f"--{path.rpartition('.')[2].replace('_', '-')}"


def _ending(values: Mapping[str, Any], key: str) -> Any:
    """What the last path says that ends in a key, None without one."""
    return next((values[path] for path in reversed([*values]) if path.rpartition(".")[2] == key), None)


def _of_recipes(launch: Launch, values: Values, has: set[str], paths: Mapping[str, str]) -> list[Flag]:
    """What overrides leave to the recipe: its distributed optimizer, overlaps where it pretrains, its degrees.

    Source: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/recipes/common.py, models/transformer_config.py,
    scripts/training/run_recipe.py.
    """
    recipe = str(values.get("recipe", ""))
    scheme = str(values.get(SCHEME, "")).lower()
    named = (word for word in TUNED if f"_{word}_" in recipe or values.get("mode") == word)
    tunes = scheme if scheme in TUNED else next(named, "")
    if TUNED.get(tunes):
        launch.say("train", TUNED[tunes], SCHEME if tunes == scheme else "mode" if "mode" in values else "recipe")
        if "peft.dim" not in values:
            launch.assumed.append("adapters of rank 32, which the recipe may have otherwise")
    if tunes and "--seq-length" not in paths:
        launch.assumed.append("sequences of 2,048 tokens, which the recipe may have otherwise")
    # Weights cannot be gathered under the forward pass where gradients are not reduced under the backward one.
    alone = tunes or (DDP[0] in paths and DDP[0] not in has)
    usual = DDP[2:] if tunes else DDP
    flags = [_flag(ETP, "1")] if EP in has and ETP not in paths else []
    flags += [_flag(name) for name in usual if name not in paths and not (alone and name == DDP[1])]
    off = [path for path in SHARDS if values.get(path) is False]
    if len(off) == 1 and DDP[2] not in has:
        flags.append(_flag(DDP[2]))
        launch.assumed.append(
            f"{off[0]} false is overruled by the other of {' and '.join(SHARDS)}, which recipes have on"
        )
    if flags:
        names = ", ".join(flag.name[2:].replace("-", "_") + " 1" * (flag.name == ETP) for flag in flags)
        launch.assumed.append(f"{names} as in Megatron-Bridge's {'fine-tuning' if tunes else 'pretraining'} recipes")
    if (fsdp := {FSDP, FORMER_FSDP} & has) and "--data-parallel-sharding-strategy" not in paths:
        launch.unpriced.append(f"{paths[min(fsdp)]} without a strategy, which the recipe may have")
    narrow = next((path for path in values if path.endswith(".fp8_param_gather") and values[path] is False), "")
    if narrow and _ending(values, "fp8") and _ending(values, "fp8_recipe") != "blockwise":
        launch.unpriced.append(f"{narrow} false: priced as the mixed precisions have it")
    left = [name for name in ("--micro-batch-size", *DEGREES) if name not in paths]
    if not {*DEGREES} - {*left}:
        launch.problems.append(OWN_SETTINGS)
    elif left:
        names = ", ".join(name[2:].replace("-", "_") for name in left)
        launch.assumed.append(f"{names} 1, which the recipe may have otherwise")
    given = {"--micro-batch-size": "1"} | ({"--seq-length": "2048"} if tunes else {})
    return flags + [_flag(name, value) for name, value in given.items() if name not in has]


def _flag(name: str, *values: str) -> Flag:
    return Flag(name, name, values, (Piece(name),), tuple((Piece(value),) for value in values))


def _more(
    launch: Launch, values: Mapping[str, Any], has: set[str], paths: dict[str, str], others: list[str]
) -> list[Flag]:
    """What takes more than a name: the precision, the optimizer, the activation, the number format."""
    flags: list[Flag] = []
    for path in list(others):
        key, value = path.rpartition(".")[2], values[path]
        if key in PRECISION:
            text = str(value)
            name = next((flag for mark, flag in PRECISIONS.items() if mark in text), "")
            if not name and text.lower() not in UNSAID:
                launch.unpriced += [f"{path} {text}"] * ("32" not in text)  # which the rest names
                continue
            flags += [_flag(name)] if name and not {"--bf16", "--fp16"} & has else []
            flags += [_flag("--fp8-format", "hybrid")] if "fp8" in text else []
            flags += [_flag("--fp4-format", "e2m1")] if "fp4" in text else []
            scales = next((recipe for mark, recipe in SCALES.items() if mark in text), "")
            named = any(mark in text.replace("-", "_") for mark in WIDE_ENDS)
            launch.unpriced += [f"{path} {text}: its first and last layers are in bf16"] if named else []
            flags += [_flag("--fp8-recipe", scales)] if scales and "--fp8-recipe" not in has else []
        elif key == "fp8" and value:
            flags.append(_flag("--fp8-format", "hybrid"))
        elif key == "fp4" and value:
            flags.append(_flag("--fp4-format", "e2m1"))
        elif key == "use_flash_attention" and value is False and not any(_ending(values, one) for one in ENGINES):
            flags.append(_flag("--attention-backend", "unfused"))
            paths.setdefault("--attention-backend", path)
        elif path.endswith("optim.name"):
            flags += [_flag("--use-distributed-optimizer")] if "distributed" in str(value) else []
            paths.setdefault("--use-distributed-optimizer", path)
            if not note_optimizer(launch, str(value), path) and costs(NEMO, path, str(value)):
                launch.unpriced.append(f"{path} {value}")
            overlaps = "distributed_fused" in str(value)  # as the optimizer of Apex does by default
            flags += [_flag(DDP[0])] if overlaps and DDP[0] not in paths else []
        elif key in ("activation", "activation_func"):
            flags += [_flag("--swiglu")] if "glu" in str(value) or "silu" in str(value) else []
            flags += [_flag("--squared-relu")] if "squared" in str(value) else []
        elif path.endswith("tokenizer.type") and isinstance(value, str):  # of NeMo: a class, or a name on the hub
            flags.append(_flag("--tokenizer-model" if "/" in value else "--tokenizer-type", value))
        elif key == "grad_sync_dtype":
            flags += [_flag("--grad-reduce-in-bf16")] if value == "bf16" else []
        elif (key == "seq_length" and "--seq-length" not in has) or (
            key in ("sequence_length", "max_length") and "--seq-length" not in has and isinstance(value, int)
        ):
            flags.append(_flag("--seq-length", str(value)))
        else:
            continue
        others.remove(path)
    return flags


def _model(launch: Launch, values: Mapping[str, Any], others: list[str]) -> str:
    """The preset that a config names."""
    for path in NAMES:
        if isinstance(values.get(path), str):
            text = str(values[path]).removesuffix(".yaml")
            text = STEM.sub("", text)
            name = named(text) or named(text.replace("/", "-"))
            if name:
                launch.say("model", name, path)
                if path in others:
                    others.remove(path)
                return name
    return ""


# Source: modelscope/ms-swift, swift/megatron/arguments/megatron_args.py.
SWIFT_DEFAULTS = (
    *(("--use-distributed-optimizer",), ("--bf16",), ("--recompute-granularity", "selective")),
    *(("--expert-tensor-parallel-size", "1"), ("--micro-batch-size", "1"), ("--global-batch-size", "16")),
)
SWIFT_FSDP = ("--data-parallel-sharding-strategy", "optim_grads_params")
SIZES_OF_DOCUMENTS = {"micro_batch_size": 1, "global_batch_size": 128, "max_seq_length": 2048}
# Its own kernels take the place of every dispatcher: AMD-AGI/Primus, primus/backends/megatron/patches/turbo.
TURBO = ("enable_primus_turbo", "use_turbo_deepep")
SYNC_FREE, SINKS = "turbo_sync_free_moe_stage", "sink_sliding_window"
SCHEME = "peft_scheme"  # of NeMo and NeMo-Aligner; at "none" what their adapters would be counts nothing
DEEPEP = (("--moe-token-dispatcher-type", "flex"), ("--moe-flex-dispatcher-backend", "deepep"))
# AMD-AGI/Primus @fd1eeab, primus/configs: modules/megatron/pre_trainer.yaml, models/megatron/language_model.yaml.
PRIMUS_DEFAULTS = ("--use-distributed-optimizer", "--bf16", "--sequence-parallel")
UNFUSED = "--no-gradient-accumulation-fusion"
MASTERS = "megatron_amp_O2"  # without which NeMo 1 has all weights in fp32 and casts them for each product
# NVIDIA/NeMo-Aligner, examples/nlp/gpt/conf/gpt_sft.yaml, and keys that no other program has.
ALIGNER = ("trainer.sft.", "model.data.train_ds.file_path")
ALIGNED: Mapping[str, Any] = {
    **{"trainer.precision": "bf16", "model.optim.name": "distributed_fused_adam"},
    **{f"model.data.train_ds.{name}": size for name, size in SIZES_OF_DOCUMENTS.items()},
}
ENGINES = ("mcore_gpt", "transformer_engine")  # of NeMo 1, whose other layers have fused attention where a key says it
DDP = ("--overlap-grad-reduce", "--overlap-param-gather", "--use-distributed-optimizer")
# Its distributed optimizer runs where one of these is on. Source: NVIDIA-NeMo/Megatron-Bridge v0.6.0,
# src/megatron/bridge/training/config.py, _validate_and_sync_distributed_optimizer_settings.
SHARDS = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
# Of which Megatron-Bridge has the second as 1 where nothing says more.
EP, ETP = "--expert-model-parallel-size", "--expert-tensor-parallel-size"
DEGREES = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
# What recipes that fine-tune train; those of the last name are of older releases.
TUNED = {"sft": "", "lora": "lora:32", "dora": "dora:32", "peft": "lora:32", "finetune": "lora:32"}
OWN_SETTINGS = (
    "its own settings are in the recipe's Python: give the run_config.yaml that a run of it writes beside its "
    "checkpoints, or its degrees as overrides"
)
SHAPELESS = ("layers", "gated_mlp", "tied_embeddings", "mlp_bias", "attention_bias", "norm", "position", "activation")


def _forget_shape(launch: Launch, has: Collection[str]) -> None:
    """A config that names its model says no more of its shape than by the flags that it has: no default counts."""
    shape = ("--num-layers", "--num-experts", "")
    for name in (*SHAPELESS, "experts", "top_k", "attention_out_bias"):
        stated = name in launch.written and launch.written[name] in has
        if name in launch.settings and not stated and launch.written.get(name, shape[0]) in shape:
            launch.settings.pop(name, None)
            launch.written.pop(name, None)
