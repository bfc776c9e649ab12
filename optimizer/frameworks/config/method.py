"""What a fine-tuning program trains, how it stores the rest, and its optimizer, as the words of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.base.content import content
from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.frameworks.config.frozen import (
    AXOLOTL,
    FREEZE,
    LLAMA_FACTORY,
    TOWER,
    UNFROZEN,
    adapted_tower,
    frozen_by_axolotl,
    frozen_by_llama_factory,
    frozen_tower,
    towerless,
)
from optimizer.frameworks.launch import Launch
from optimizer.job.loss import SFT, loss_of
from optimizer.job.method import FULL, LORA, QLORA, RANK, method_of

TABLES: Mapping[str, Any] = content("optimizer.frameworks.config", "methods.toml")
KEYS: Mapping[str, tuple[str, ...]] = {name: tuple(paths) for name, paths in TABLES["keys"].items()}
MODULES: Mapping[str, Sequence[str]] = TABLES["modules"]
OPTIMIZERS: Mapping[str, str] = TABLES["optimizers"]
LOSSES: Mapping[str, Mapping[str, str]] = TABLES["losses"]
OBJECTIVES, OBJECTIVE_TYPES = (
    {name: tuple(words) for name, words in TABLES[table].items()} for table in ("objectives", "objective_types")
)
LOSS_TYPE, BETA = "loss_type", "beta"
COMPUTED = "precompute_ref_log_probs"  # leaves out the passes of the reference that are priced
NAMELESS = ("orpo", "simpo", "kto")  # losses that no key may tell
TRAINER = "trl"  # the one that a command names
OBJECTIVE = (TRAINER, *(key for keys in OBJECTIVES.values() for key in keys), LOSS_TYPE)
DROPPED = ("lora_dropout", "peft_lora_dropout", "peft.dropout", "model.lora_dropout")
RLHF = "rlhf_type"  # of ms-swift, which has reinforcement learning too
# Adapters where no key says more, by the key of the method: ranks of ms-swift, LLaMA-Factory and Megatron-Bridge.
# Source: the files in methods.toml; haotian-liu/LLaVA, llava/train/train.py (lora_enable); huggingface/peft,
# src/peft/utils/constants.py
# (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING).
RANKS: Mapping[str, int] = {
    **dict.fromkeys(("tuner_type", "train_type", "sft_type", "finetuning_type"), 8),
    "peft._target_": 32,
    "lora_enable": 64,
}
# Dropout of adapters that programs have where no key says another, by the key of the method; PEFT has none.
# Source: modelscope/ms-swift v4.6.0, swift/arguments/tuner_args.py; huggingface/trl v1.16.0,
# trl/trainer/model_config.py; haotian-liu/LLaVA, llava/train/train.py.
DROPOUTS: Mapping[str, float] = dict.fromkeys(("tuner_type", "train_type", "sft_type", "use_peft", "lora_enable"), 0.05)
PLAIN_LORA = ("lora_rank", "lora_target_modules", "")  # of programs with adapters that no switch turns on
# Of optimum-habana's programs, whose adapters no switch turns on either. Source: huggingface/optimum-habana,
# examples/trl/sft.py and examples/language-modeling/run_lora_clm.py.
HABANA, HABANA_RANK = "use_habana", 8
PEFT, PEFT_TARGETS = ("use_peft", "use_peft_lora"), "q+v"
COUNTED_IN_SAMPLES = ("micro_batch", "global_batch")
NOT_NESTED = ("use_peft",)  # of TRL, whose weights of four bits have their scales whole unless a key says otherwise
# A model whose experts no release of Transformers has as linear layers, where PEFT looks for them: its
# models/gpt_oss/modeling_gpt_oss.py, GptOssExperts; and programs that have adapters on experts of their own.
WHOLE_EXPERTS, OWN_EXPERTS = "gpt-oss", {"peft._target_", "unsloth"}
# Models whose matrices of queries, keys and values, and of gate and up, Transformers has as one each: its
# models/phi3/modeling_phi3.py. Unsloth parts them.
JOINED = ("phi-3", "phi-4")
ATTENDING, INNER = "q+k+v+o", ("gate", "up", "down", "gate_up")
QUANTISING = ("quant_bits", "quant_method")  # of ms-swift: its swift/arguments/base_args/quant_args.py
BITS: Mapping[int, str] = {4: "nf4", 8: "int8"}  # how weights of so many bits are stored
ALL = ("all", "all-linear")


def optimizer_named(name: object) -> str | None:
    """What `--optimizer` calls an optimizer, None for one that is not known.

    >>> optimizer_named("decoupled_lionw"), optimizer_named("Adam"), optimizer_named("onebitadam")
    ('lion', '', None)
    """
    return OPTIMIZERS.get(str(name).lower().replace("-", "_"))


def note_optimizer(launch: Launch, name: object, path: str) -> bool:
    """Note an optimizer that is known; whether it is."""
    known = optimizer_named(name)
    if known:
        launch.say("optimizer", known, path)
    return known is not None


def note_packing(launch: Launch, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Note whether documents fill sequences together; the keys that say it.

    >>> launch = Launch(program="DeepSpeed")
    >>> note_packing(launch, {"packing": True, "neat_packing": True}), launch.settings
    (('packing', 'neat_packing'), {'packing': True})
    """
    stated = [path for path in KEYS["packing"] if isinstance(values.get(path), int)]
    if stated:
        launch.say("packing", any(values[path] > 0 for path in stated), stated[0])
    return tuple(stated)


def note_loss(launch: Launch, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Note the loss, and batches by its sequences instead of its samples; the keys that say it.

    >>> launch = Launch(program="DeepSpeed", settings={"micro_batch": 4})
    >>> note_loss(launch, {"stage": "dpo", "pref_loss": "orpo"}), launch.settings
    (('stage', 'pref_loss'), {'micro_batch': 8, 'loss': 'orpo'})
    """
    by_key = {key: LOSSES[key].get(str(values.get(key)).lower(), "") for key in LOSSES}
    keys = tuple(key for key, name in by_key.items() if name)
    if RLHF in values and not by_key[RLHF]:
        launch.problems.append(f"{RLHF} {values[RLHF]}: only {', '.join(LOSSES[RLHF])} are priced")
    if keys:
        _say_loss(launch, by_key[keys[-1]], keys[-1])
    return keys


def note_objective(launch: Launch, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Note which of TRL's trainers a command names, or the keys are of; the keys that say it.

    >>> launch = Launch(program="DeepSpeed", settings={"micro_batch": 4})
    >>> note_objective(launch, {"beta": 0.1, "loss_type": ["sigmoid"]}), launch.settings
    (('loss_type', 'beta'), {'micro_batch': 8, 'loss': 'dpo'})
    >>> note_objective(launch, {"max_length": 2048}), launch.assumed[0][:19]
    ((), 'objective not given')
    """
    stated = values.get(LOSS_TYPE)
    words = set(map(str, stated if isinstance(stated, list) else [stated]))
    marks = [(TRAINER, str(values[TRAINER]))] if values.get(TRAINER) in OBJECTIVES else []
    marks += [(LOSS_TYPE, name) for name, types in OBJECTIVE_TYPES.items() if words & set(types)]
    marks += [(key, name) for name, keys in OBJECTIVES.items() for key in keys if key in values]
    if [key for key, _ in marks] == [BETA]:  # which trainers without a reference have too
        written = re.findall("[a-z]+", " ".join(map(str, values.values())).lower())
        marks = [(BETA, next((name for name in NAMELESS if name in written), marks[0][1]))]
        launch.assumed.append(f"{BETA} is a key of several of TRL's trainers; taken as {marks[0][1]}")
    if not marks:
        launch.assumed.append("objective not given: no key is of one of TRL's trainers alone; taken as sft")
    elif marks[0][1] != SFT:
        _say_loss(launch, marks[0][1], next((key for key, _ in marks if key != COMPUTED), ""))
    return tuple(key for key, _ in marks if key != COMPUTED)


def _say_loss(launch: Launch, name: str, key: str) -> None:
    """Note a loss, and batches by its sequences."""
    launch.say("loss", name, key)
    for size in launch.settings.keys() & set(COUNTED_IN_SAMPLES):
        launch.settings[size] *= loss_of(name).together


def note_method(launch: Launch, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Note what is trained and how; the keys that say it. What no job can be stays for the reader of the rest.

    >>> launch = Launch(program="DeepSpeed")
    >>> axolotl = {"adapter": "qlora", "lora_r": 32, "load_in_4bit": True, "optimizer": "adamw_bnb_8bit"}
    >>> note_method(launch, axolotl)
    ('adapter', 'lora_r', 'load_in_4bit', 'optimizer')
    >>> launch.settings
    {'optimizer': 'adamw-8bit', 'train': 'qlora:32', 'base': 'nf4'}
    """
    packs = note_packing(launch, values)
    at = {
        name: next((path for path in paths if values.get(path) not in (None, "")), "")
        for name, paths in KEYS.items()
        if name != "packing"
    }
    stated = {name: values[path] for name, path in at.items() if path}
    known = (
        ["optimizer"] if "optimizer" in stated and note_optimizer(launch, stated["optimizer"], at["optimizer"]) else []
    )
    adapts = stated.get("peft") is True or at["rank"] == "peft.dim"  # overrides of a recipe that has adapters
    adapts |= (at["rank"], at["targets"], at["peft"]) == PLAIN_LORA
    adapts |= bool(at["targets"]) and HABANA in values and stated.get("peft") is not False
    method = str(stated.get("method") or (LORA if adapts else FULL)).lower()
    method = method.rpartition(".")[2].removeprefix("canonical")  # Megatron-Bridge names the class, in two forms
    bits = 4 if stated.get("four") is True else 8 if stated.get("eight") is True else stated.get("bits")
    bits = int(str(bits)) if is_count(str(bits)) else bits
    base = BITS.get(bits, "") if isinstance(bits, int) else ""
    if base == "nf4" and stated.get("nested", at["peft"] not in NOT_NESTED) is False:
        base = "nf4-single"
    if base and at["bits"] == QUANTISING[0] and values.get(QUANTISING[1]) is None:
        launch.assumed.append(f"{QUANTISING[0]} {bits} quantizes nothing: ms-swift does so by {QUANTISING[1]} alone")
        base = ""
    elif bits and not base:  # formats that no job has
        launch.unpriced.append(f"{at['bits']} {bits}")
    if method in (LORA, QLORA) and stated.get("dora") is True:
        base = base or ("nf4" if method == QLORA else "")
        method = "dora"
    elif method == LORA and base:
        method = QLORA
    idle = [name for name in ("rank", "targets") if "method" in stated or stated.get("peft") is False]
    train, names = method, [name for name in stated if name != "optimizer"] if method != FULL else ["method", *idle]
    frozen: tuple[str, ...] = ()
    if method == FREEZE:
        train, frozen = frozen_by_llama_factory(values), LLAMA_FACTORY
    elif method == FULL and UNFROZEN in values:
        train, frozen = frozen_by_axolotl(values, launch.settings.get("model", "")), AXOLOTL
    elif method == FULL and (tower := frozen_tower(values, at["method"], str(launch.settings.get("model", "")))):
        train, frozen = tower, TOWER[at["method"]]
    elif method == FULL:
        frozen = towerless(at["method"], str(launch.settings.get("model", "")))
    else:
        targets = _targets(stated)
        if not targets and at["peft"] in PEFT and not at["targets"]:
            targets = PEFT_TARGETS
            launch.assumed.append("adapters on q and v, PEFT's default: no key says on what")
        if WHOLE_EXPERTS in str(launch.settings.get("model", "")) and not {at["method"], at["peft"]} & OWN_EXPERTS:
            words = (targets or ATTENDING).split("+")
            outer = "+".join(word for word in words if word.removesuffix("_proj") not in INNER)
            if outer != targets:
                targets = outer or targets
                launch.assumed.append("no adapters on experts: these are whole tensors, in which PEFT finds no layers")
        joined = str(launch.settings.get("model")).startswith(JOINED) and not {at["method"], at["peft"]} & OWN_EXPERTS
        if apart := set(re.findall(r"\b(?:[qkv]|gate|up)_proj\b", str(stated.get("targets")) * joined)):
            launch.unpriced.append(f"{at['targets']} {', '.join(sorted(apart))}: this model has them as one matrix")
        rank = stated.get("rank", HABANA_RANK if HABANA in values else RANKS.get(at["method"] or at["peft"], RANK))
        if not at["rank"]:
            launch.assumed.append(f"adapters of rank {rank}, its program's default: no key says it")
        train = f"{method}:{rank}" + (f":{targets}" if targets else "")
        frozen = tuple(key for key in TOWER.get(at["method"], ()) if values.get(key) is True)
        if tower := adapted_tower(values, at["method"], str(launch.settings.get("model", ""))):
            launch.unpriced.append(f"{tower} false: adapters on the vision tower too")
        frozen += note_dropout(launch, values, DROPOUTS.get(at["method"] or at["peft"], 0.0))
    try:
        method_of(train, base)
    except InputError:
        train = ""
    if not train:
        return (*packs, *(at[name] for name in known))
    if train != FULL:
        launch.say("train", train, at["method"] or at["peft"] or at["rank"] or UNFROZEN)
    if base and method != FULL:
        launch.say("base", base, at["four"] or at["eight"] or at["bits"])
    return (*packs, *frozen, *(at[name] for name in (*names, *known) if name in stated))


def note_dropout(launch: Launch, values: Mapping[str, Any], usual: float) -> tuple[str, ...]:
    """Note whether adapters drop elements of their inputs; the keys that say it.

    >>> launch = Launch(program="DeepSpeed")
    >>> note_dropout(launch, {"lora_dropout": 0.1}, 0.0), launch.settings
    (('lora_dropout',), {'adapter_dropout': True})
    >>> note_dropout(Launch(program="DeepSpeed"), {"lora_dropout": 0.0}, 0.05)
    ('lora_dropout',)
    """
    stated = tuple(path for path in DROPPED if isinstance(values.get(path), int | float))
    share = values[stated[0]] if stated else usual
    if share:
        launch.settings["adapter_dropout"] = True
    if share and not stated:
        launch.assumed.append(f"{DROPPED[0]} {share}, its program's default: no key says it")
    return stated


def _targets(stated: Mapping[str, Any]) -> str:
    """Matrices with adapters as `--train` names them, "" for all of them."""
    if stated.get("every") is True or stated.get("targets") in (*ALL, None):
        return ""
    targets = stated["targets"]
    words = targets if isinstance(targets, list) else re.findall(r"[\w.-]+", str(targets))  # a command's list too
    return "+".join(name for word in words for name in MODULES.get(str(word).strip(), (str(word).strip(),)))
