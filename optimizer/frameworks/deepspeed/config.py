"""DeepSpeed's JSON with Hugging Face TrainingArguments and Accelerate's YAML.

Source of the keys and defaults: deepspeedai/DeepSpeed, deepspeed/runtime/zero/config.py;
huggingface/transformers, training_args.py; huggingface/accelerate, utils/dataclasses.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from optimizer.catalog import model_names, preset_model
from optimizer.catalog.readers.text import shown
from optimizer.frameworks.config.launch import Values, rest, take, whole
from optimizer.frameworks.config.method import (
    HABANA,
    KEYS,
    OBJECTIVE,
    OBJECTIVES,
    TRAINER,
    note_loss,
    note_method,
    note_objective,
    note_optimizer,
)
from optimizer.frameworks.deepspeed.defaults import (
    ADAFACTOR,
    ALL_GPUS,
    ALPACA,
    AXOLOTL,
    BUCKET,
    CHAT,
    CHAT_ADAPTERS,
    DEFAULTS,
    KERNELS,
    OPEN_INSTRUCT,
    OVERLAP,
    OWN_BITS,
    PATHS,
    STORAGE,
    SWIFT,
    TITLES,
    TUNED,
    WORDS,
    accumulated,
    chat_rank,
    completed,
    first,
    switched_on,
)
from optimizer.frameworks.deepspeed.sharding import (
    DEGREES,
    DEVICE,
    DISTRIBUTED,
    FOLLOWED,
    HYBRID,
    LAUNCHED,
    OFFLOADING,
    OWN,
    RATIO,
    REPLICATE,
    RESHARD,
    SHARD,
    STAGE,
    STRATEGIES,
    STRATEGY,
    TRAINER_FSDP,
    WEIGHTS,
    hosting,
    mesh,
    mesh_written,
    note_sharding,
    strategy_words,
)
from optimizer.frameworks.launch import LARGEST_COUNT, Launch
from optimizer.frameworks.shape import named
from optimizer.frameworks.unpriced import trains
from optimizer.job.job import Job
from optimizer.job.method import ADAPTERS, DORA, GROUPS, NF4, method_of
from optimizer.job.plan import Plan

BATCHES = {"per_device_train_batch_size", "per_gpu_train_batch_size"}  # of the Trainer, by its newer name and its older
MICRO, STEPS, CHECKPOINT = (PATHS[name] for name in ("micro_batch", "num_microbatches", "recompute"))
COUNTED = ("gpus", "nodes", "micro_batch", "num_microbatches", "global_batch", "tp", "cp", "seq_len")
HOSTED = PATHS["activation_offload"]  # inputs of checkpointed layers
# Axolotl's word for them; with adapters, true puts all activations there and recomputes none, which has no price.
# Source: axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/loaders/model.py.
INPUTS, ON_DISK = "hidden_states", "offload_disk"
HOSTING: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(HOSTED, (True, "legacy", INPUTS)),
    "use_gradient_checkpointing": ("unsloth",),
    "gradient_checkpointing": ("offload",),
}
RUN_STEPS, EPOCHS, SAMPLES = (PATHS[name] for name in ("run_steps", "epochs", "samples"))
NAMES, LENGTHS, PRECISION = (PATHS[name] for name in ("model", "seq_len", "dtype"))
INLINE = ("deepspeed", "fsdp_config", "accelerator_config", "parallelism_config", "model_init_kwargs")  # whole sections
PROGRAM, BATCH = "DeepSpeed", "train_batch_size"
ENGINE = (
    "zero_optimization",
    "train_micro_batch",
    "optimizer.",
    "scheduler.",
    "fp16.",
    "bf16.",
    "steps_per_print",
)  # of DeepSpeed's JSON
WIRE, SUMMED = "communication_data_type", "data_types.grad_accum_dtype"
# LLaMA-Factory recomputes unless it is told not to: its src/llamafactory/hparams/model_args.py; ms-swift too.
LLAMA_FACTORY, UNCHECKED = ("stage", "finetuning_type"), "disable_gradient_checkpointing"
# What Alpaca-LoRA prepares weights of 8 bits by. Source: huggingface/peft v0.3.0, src/peft/utils/other.py.
EIGHT, PREPARED = "load_in_8bit", "prepare_model_for_int8_training"
CORPUS = ("pretraining_dataset",)  # of Axolotl, which packs it
PREFERENCES = ("beta", "loss_type", "max_prompt_length")  # what a loss of preferences takes, at no cost
# What has attention in blocks on Gaudi. Source: huggingface/optimum-habana, examples/trl/sft.py,
# optimum/habana/transformers/training_args.py (attn_implementation, "eager" by default).
ATTENTION, FUSED, FLASH = "attn_implementation", "gaudi_fused_sdpa", "use_flash_attention"
ABOUT = re.compile(r"(?:use_|peft_|enable_|q_?)*(?:lora|peft|adapter)")  # keys of adapters, those that cost nothing too
SHORTENED = (*MICRO[:-1], *STEPS[:1], *CHECKPOINT[:1], *LENGTHS)  # which parsers of commands take by a beginning too
# What has an adapter where a kernel of Axolotl is: all of them. Source: axolotl-ai-cloud/axolotl v0.21.0,
# src/axolotl/monkeypatch/lora_kernels.py, apply_lora_kernel_patches.
PATCHED = dict(zip(KERNELS, ({*GROUPS["mlp"]}, {"q", "k", "v"}, {"o"}, {"embedding"}), strict=True))
UNSLOTH, FACTORY = "unsloth", "llamafactory"  # what starts programs of their own
COMPILED = "torch_compile"
# The optimizer of such programs where none is named. Source: huggingface/transformers v5.17.0, training_args.py
# (default_optim); axolotl-ai-cloud/axolotl, src/axolotl/utils/schemas/training.py.
USUAL_OPTIMIZER = "adamw_torch_fused"
LENGTH = "max_length"
PLAIN = "transformers"  # what behaves as the Trainer does, by itself or in a program that nobody knows
# Programs that store weights of 4 bits in integers where nothing says otherwise, which Accelerate's FSDP leaves whole.
# Source: huggingface/accelerate v1.15.0, src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model.
STORED = (PLAIN, TRAINER, "ms-swift")
# By a name of their own: the kernels that Transformers has anyway.
FLASHES = ("use_flash_attention_2", "use_flash_attn")
# Of Accelerate's plugin, in whatever section: no gradient waits for the last micro-batch. The Trainer takes it in
# arguments of its own. Source: huggingface/transformers #34645 of November 2024, #43919 of February 2026.
SYNCED, SYNCING = "sync_each_batch", "accelerator_config.gradient_accumulation_kwargs"
HEEDED = "which Transformers of 4.46 to February 2026 do not heed"
TRAINERS = {*DEFAULTS["trainer"]["any"]}  # arguments of the Trainer alone
# Programs that fine-tune on a Trainer, by keys that no other has, and what switches on Liger's kernels in them.
TUNERS: Mapping[str, tuple[str, ...]] = {
    PLAIN: (ALPACA,),
    "axolotl": AXOLOTL[:1],
    "llama-factory": LLAMA_FACTORY[1:],
    "ms-swift": (SWIFT, *TUNED),
    "unsloth": (UNSLOTH,),
    TRAINER: ("use_peft", LENGTH, *OBJECTIVE),
}
LIGER = ("use_liger_kernel", "use_liger", "enable_liger_kernel", "liger_fused_linear_cross_entropy")
LIGER_PARTS = tuple(f"liger_{part}" for part in ("rope", "rms_norm", "layer_norm", "swiglu", "glu_activation"))
LIGER_KEYS: Mapping[str, str] = {
    TRAINER: LIGER[0],
    "ms-swift": LIGER[0],
    "llama-factory": LIGER[2],
}  # what switches it on
# What is held of a weight that is trained: a master copy and moments in fp32, by LLaMA-Factory its gradient too.
# Source: deepspeedai/DeepSpeed, deepspeed/runtime/zero/stage3.py; hiyouga/LLaMA-Factory v0.9.5,
# src/llamafactory/model/adapter.py, init_adapter (cast_trainable_params_to_fp32); huggingface/accelerate v1.15.0,
# src/accelerate/utils/fsdp_utils.py, fsdp2_prepare_model, and accelerator.py for FSDP1.
IN_DEEPSPEED: Mapping[str, float] = {"optimizer_bytes": 12, "master_bytes": 4, "update_bytes": 0, "update_group": 1e9}
UPCAST: Mapping[str, int] = {"optimizer_bytes": 12, "master_bytes": 4, "grad_bytes": 4, "update_bytes": 4}
# Of Accelerate where formats are mixed: nothing beside them, and gradients are reduced in the format of products: its
# src/accelerate/utils/dataclasses.py, set_mixed_precision.
IN_FSDP: Mapping[str, int] = {**UPCAST, "param_bytes": 0, "wire_bytes": 2}
PURE = "pure_bf16"
# What has Axolotl cast embeddings and norms back from fp32 where weights are trained whole, and kernels of attention
# beside which it does not. Source: axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/loaders/model.py,
# should_convert_embedding_dtypes.
CASTING = ("flash_attention", "xformers_attention", "flex_attention", "sage_attention", "cut_cross_entropy")
UPCAST_REST = "embeddings, norms and the residual stream in fp32"
UNCAST = (None, "eager", "sdpa")
MIXED = (True, "bf16", "fp16", "auto")  # what mixes formats where it is the value of a path of number formats
UNMIXED = "full"  # Axolotl's word for bf16 without
FLOAT32 = ("float32", "fp32")
TORCH: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "bf16": "bf16", "fp16": "fp16"}
WIDE = (False, "no", *FLOAT32)  # values that mix no formats, and those of weights of 32 bits


def recognised(values: Values) -> bool:
    """Whether files are DeepSpeed's, Accelerate's or a Trainer's.

    >>> [recognised(values) for values in ({SWIFT: "swift sft"}, {"model": "a"}, {SWIFT: "swift sft", "model": "a"})]
    [False, False, True]
    >>> [recognised({"do_train": done, **rest}) for done in (True, False) for rest in ({}, {LLAMA_FACTORY[0]: "sft"})]
    [False, True, False, False]
    """
    marks = (
        *MICRO,
        *STAGE,
        *DEVICE,
        "num_processes",
        DISTRIBUTED,
        "zero_optimization",
        BATCH,
        UNSLOTH,
        FACTORY,
    )
    own = (path for path in marks if path not in AXOLOTL[1:])
    named = values.get(TRAINER) in OBJECTIVES
    named |= str(values.get(SWIFT)).startswith("swift ") and "model" in values  # since its release 3
    # Its files that evaluate, merge or export are like those that train.
    tunes = values.get("do_train") is True and any(path in values for path in LLAMA_FACTORY)
    return named or tunes or any(path in values for path in own) or values.get(AXOLOTL[0]) is not None


def read(launch: Launch, values: Values) -> None:
    """Note what the files say together."""
    written, (values, reported) = values, completed(values)
    settings = launch.settings
    for name, keys in reported.items():
        what = ", ".join(f"{key} {shown(values[key])}" for key in keys)
        launch.assumed.append(f"{what}: {TITLES[name]}'s own where nothing says otherwise")
    if BATCH in values and launch.program == PROGRAM and not any(path.startswith(ENGINE) for path in values):
        launch.unpriced.append(f"{BATCH} {shown(values[BATCH])}, of one GPU or of all: only its program says")
        values = {path: value for path, value in values.items() if path != BATCH}
    counts = {name: first(values, PATHS[name]) for name in COUNTED if not (name == "gpus" and name in settings)}
    take(launch, values, {name: path for name, path in counts.items() if path})
    if ALPACA in values and (batch := whole(launch, values, ALL_GPUS)):
        launch.say("global_batch", _reached(launch, batch), ALL_GPUS)
    for paths, source in ((MICRO, values), (LENGTHS, written)):
        stated = {path: source[path] for path in paths if isinstance(source.get(path), int)}
        if len(set(stated.values())) > 1:
            launch.unpriced.append(" against ".join(f"{path} {size}" for path, size in stated.items()))
    if "global_batch" not in settings and "micro_batch" in settings:
        if "num_microbatches" not in settings:
            settings["num_microbatches"] = accumulated(launch, values)
        launch.written.setdefault("num_microbatches", STEPS[0])
    note_sharding(launch, values)
    if settings["fsdp"]:
        _note_whole_gradients(launch, values)
    # Whatever checkpoints layers: the Trainer, or FSDP where the Trainer is told not to.
    if path := _checkpointing(values):
        launch.say("recompute", "full" if values[path] else "none", path)
    elif LLAMA_FACTORY[1] in values:
        launch.say("recompute", "none" if values.get(UNCHECKED) is True else "full", UNCHECKED)
    elif SWIFT in values or UNSLOTH in values or any(path in values for path in TUNED):
        launch.say("recompute", "full", CHECKPOINT[0])
    elif ALPACA in values and values.get(EIGHT) is True:
        launch.say("recompute", "full")
        launch.fixed += ("recompute",)
        launch.assumed.append(f"layers are recomputed: PEFT's {PREPARED} has it so, and no key")
    launch.unpriced += [f"{path} {ON_DISK}" for path in CHECKPOINT if values.get(path) == ON_DISK]
    hosting = tuple(path for path in HOSTING if values.get(path) in _hosting_words(values, path))
    if hosting:
        launch.say("activation_offload", 100, hosting[0])
    elif not any(path in values for path in HOSTED):  # each program has a key of its own
        launch.fixed += ("activation_offload",)
    if path := first(values, NAMES):
        model = named(str(values[path]))
        if model:
            launch.say("model", model, path)
        else:
            launch.unknown_model(path, values[path])
    _numbers(launch, values)
    _length(launch, values)
    hosted = HOSTED if HOSTED[0] in hosting or values.get(HOSTED[0]) in (None, False) else HOSTED[1:]
    marks = (
        *MICRO,
        *STEPS,
        *RUN_STEPS,
        *EPOCHS,
        *SAMPLES,
        *STAGE,
        *DEVICE,
        *STRATEGY,
        *CHECKPOINT,
        *hosted,
        *WEIGHTS,
        *NAMES,
        *LENGTHS,
        *PRECISION,
    )
    sizes = tuple(mesh(values, key) for key in (*DEGREES.values(), REPLICATE, SHARD))
    more = (
        *RESHARD,
        *sizes,
        *FOLLOWED,
        TRAINER_FSDP,
        RATIO,
        WIRE,
        SUMMED,
        BATCH,
        OVERLAP,
        SWIFT,
        UNSLOTH,
        FACTORY,
        *WORDS,
        UNCHECKED,
        *FLASHES,
        *(path for path in values if path.endswith(SYNCED)),
    )
    more += (*(flag for flag, _ in LAUNCHED.values()), ADAFACTOR) + (ALL_GPUS,) * (ALPACA in values)
    method = (*note_method(launch, values), *note_loss(launch, values), *LIGER)
    if CHAT in values and chat_rank(values):
        method += CHAT_ADAPTERS
    if OPEN_INSTRUCT in values:
        method += ("use_lora",)
        if values.get(OWN_BITS) is not True:  # layers are checkpointed beside weights of 4 bits alone
            launch.unpriced += [f"{CHECKPOINT[0]}, which open-instruct does not heed with use_lora"] * (
                settings.get("recompute") == "full"
            )
            launch.fixed += ("recompute",)
    if HABANA in values and values.get(ATTENTION) != FUSED and values.get(FLASH) is not True:
        settings["attention"] = "fused_softmax"
        launch.assumed.append(
            f"attention whole, by one kernel of softmax: optimum-habana's own without {ATTENTION} {FUSED}"
        )
    if values.get(COMPILED) == "auto" and AXOLOTL[0] in values:  # which compiles then
        launch.unpriced.append(f"{COMPILED} auto")
    known = {*marks, *more, *method}
    short = {
        path: whole for path in {*written} - known for whole in SHORTENED if whole.startswith(path) and len(path) > 8
    }
    launch.unpriced += [
        f"{path} {shown(written[path])}, which may be short for {short[path]}" for path in written if path in short
    ]
    method += (*short,)
    inline = (path for path in INLINE if str(values.get(path)).startswith("{"))
    launch.unpriced += [f"{path} {values[path]}" for path in inline]
    if AXOLOTL[0] in values:
        method += _note_kernels(launch, written)
    if path := _masked(values):
        launch.unpriced.append(f"{path} without flash attention: a mask over whole sequences")
    if UNSLOTH in values:
        launch.fixed += ("recompute", "activation_offload", "zero_stage")
        method += ("quantization",)  # of the file that it saves
        if settings.get("adapter_dropout"):
            launch.unpriced.append("lora_dropout: Unsloth before 2026 then has no fast kernels of adapters")
    software = _software(values, written)
    if "syncs_last" in settings and (not software or (software == PLAIN and not TRAINERS & values.keys())):
        launch.fixed += ("syncs_last",)
    if software:
        launch.settings["software"] = software
        _usual_optimizer(launch, values)
        _states(launch, values, software)
        if not any(path in values for path in CORPUS):  # each packs where it is told to, LLaMA-Factory texts too
            launch.settings.setdefault("packing", values.get(LLAMA_FACTORY[0]) == "pt")
    if settings["fsdp"] and settings.get("base") in NF4 and software in STORED and not values.get(STORAGE):
        launch.unpriced.append(f"weights of 4 bits that FSDP does not shard: {STORAGE} is no format of floats")
    if software in ("", PLAIN) and not {CHAT, ALPACA} & values.keys() and "train" not in launch.settings:
        trained = ", ".join(trains(launch.program, values))
        none = "these files name no adapters, and are of no program known here"
        why = f"whatever {trained} may say, which no program known here has" if trained else none
        launch.assumed.append(f"all weights are trained: {why}")
        about = [path for path in written if ABOUT.match(path.rpartition(".")[2])]
        if launch.program == PROGRAM and about and not trained and not any(written[path] is False for path in about):
            launch.unpriced.append(f"{', '.join(about)}, which {'is' if len(about) == 1 else 'are'} of adapters")
    if software == TRAINER and "loss" not in launch.settings:
        method += note_objective(launch, values)
    if "loss" in launch.settings:
        method += PREFERENCES
    elif CHAT in values:
        launch.assumed.append("objective not given: DeepSpeed-Chat has one in each folder; taken as sft")
    if path := next((path for path in LIGER if values.get(path) is True), ""):
        launch.say("liger", "on", path)
        method += LIGER_PARTS
    elif software in LIGER_KEYS:
        launch.settings["liger"] = "off"
    launch.written = {
        name: path
        for name, path in launch.written.items()
        if path in written or path not in values or name == "num_microbatches"
    }
    rest(launch, written, (*method, *marks, *more, BUCKET, "num_processes", "num_machines", DISTRIBUTED))


def _reached(launch: Launch, batch: int) -> int:
    """The batch of all GPUs that Alpaca-LoRA reaches, whose micro-batches it rounds down twice: by size, by GPUs.

    Source: tloen/alpaca-lora, finetune.py (gradient_accumulation_steps).
    """
    micro, gpus = (int(launch.settings.get(name, 1)) for name in ("micro_batch", "gpus"))
    reached = max(1, batch // micro // gpus) * micro * gpus
    if reached != batch and gpus > 1:
        launch.assumed.append(f"{ALL_GPUS} {batch}: Alpaca-LoRA makes {reached} of it on {gpus} GPUs")
    return reached if gpus > 1 else batch


def _note_whole_gradients(launch: Launch, values: Values) -> None:
    """Note that Accelerate's FSDP reduces gradients in the last micro-batch alone, as its `no_sync` has it."""
    settings = launch.settings
    several = settings.get("num_microbatches", 1) > 1 and settings["zero_stage"]
    if path := next((path for path in values if path.endswith(SYNCED) and values[path] is True), ""):
        launch.assumed += [f"{path} true, {HEEDED}"] * bool(several and path.startswith(SYNCING))
        return
    settings["syncs_last"] = True
    if several:
        whole = "gradients are whole on each GPU until the last micro-batch, as Accelerate's FSDP has them"
        if settings.get("hosted_weights"):
            launch.unpriced.append(f"{whole}, beside weights on the host")
        else:
            launch.assumed.append(f"{whole}: {SYNCING}.{SYNCED} shards them in each, {HEEDED}")


def _checkpointing(values: Values) -> str:
    """The key that has layers checkpointed, else one that has not, but of LLaMA-Factory, which has a key of its own."""
    on = next((path for path in CHECKPOINT if values.get(path) is True), "")
    return on or ("" if LLAMA_FACTORY[1] in values else first(values, CHECKPOINT))


def _software(values: Values, written: Values) -> str:
    """The program that fine-tunes on a Trainer, PLAIN for one that nobody knows, "" for none; a length without the
    Trainer's batch is anyone's.
    """
    program = next((name for name, marks in TUNERS.items() if any(mark in values for mark in marks)), "")
    named = {*TUNERS[TRAINER], MICRO[1]} - {LENGTH}
    if program and (program != TRAINER or named & written.keys()):
        return program
    return PLAIN if BATCHES & values.keys() and not {CHAT, HABANA} & values.keys() else ""


def _masked(values: Values) -> str:
    """The key that packs documents that kernels of attention keep apart by a mask alone, "" for none.

    Source: hiyouga/LLaMA-Factory v0.9.5, src/llamafactory/data/collator.py, SFTDataCollatorWith4DAttentionMask;
    huggingface/transformers v5.17.0, src/transformers/masking_utils.py, find_packed_sequence_indices.
    """
    if LLAMA_FACTORY[0] in values and values.get("flash_attn") not in ("fa2", "fa3"):
        return "neat_packing" if values.get("neat_packing") is True else ""
    uncast = AXOLOTL[0] in values and values.get(ATTENTION) in UNCAST and not any(map(values.get, CASTING[:-1]))
    return "sample_packing" if uncast and values.get("sample_packing") is True else ""


def _note_kernels(launch: Launch, values: Values) -> tuple[str, ...]:
    """Note whether adapters are fused with the products beside them; keys of kernels that are priced, or patch nothing.

    Source: as Job.fused_adapters; modules of which not each matrix has an adapter stay as they are.
    """
    settings, on = launch.settings, switched_on(values)
    if not str(settings.get("train", "")).startswith(ADAPTERS):
        return () if on else KERNELS
    if own := tuple(key for key in on if key not in values):
        launch.assumed.append(f"{', '.join(own)} true: Axolotl's own where nothing says otherwise")
    method, name = method_of(settings["train"]), str(settings.get("model", ""))
    patched = {key for key in on if PATCHED[key] <= {*method.targets}}
    model = preset_model(name) if name in model_names() and method.name != DORA else None
    settings["fused_adapters"] = (
        {*KERNELS[:3]} <= patched and model is not None and model.gated_mlp and not model.experts
    )
    if patched and not settings["fused_adapters"]:
        launch.unpriced += own
        return ()
    return KERNELS


def _hosting_words(values: Values, path: str) -> tuple[Any, ...]:
    """What says that inputs of checkpointed layers go to the host."""
    adapts = AXOLOTL[0] in values and values.get("adapter") is not None
    return tuple(word for word in HOSTING[path] if not (adapts and word is True))


def _usual_optimizer(launch: Launch, values: Values) -> None:
    """Note the Trainer's own optimizer where none of its files names another."""
    if not first(values, KEYS["optimizer"]) and not any(path.startswith("optimizer.") for path in values):
        note_optimizer(launch, USUAL_OPTIMIZER, "")
        launch.assumed.append(f"optim {USUAL_OPTIMIZER}: Transformers 5 has it with PyTorch 2.8 or newer")


def _states(launch: Launch, values: Values, software: str) -> None:
    """Note weights in fp32 of whole training: DeepSpeed has them, Accelerate's FSDP where formats are mixed,
    LLaMA-Factory unless told not to, and others where they load them so.
    """
    settings = launch.settings
    wide = next((word for word in WORDS if values.get(word) in FLOAT32), "")
    if str(settings.get("train", "")).startswith(ADAPTERS):
        launch.unpriced += [f"{wide} {values[wide]}: what is frozen has 32 bits"] if wide else []
        return
    if settings["fsdp"]:
        if mixing := next((path for path in PRECISION if values.get(path) in MIXED), ""):
            settings |= IN_FSDP
            launch.assumed.append(f"{mixing} {values[mixing]}: Accelerate's FSDP then holds what it trains in fp32")
    elif settings["zero_stage"] or any(path.startswith(OWN) for path in values):
        settings |= IN_DEEPSPEED
    elif software == "llama-factory" and values.get(PURE) is not True:
        settings |= UPCAST
        launch.assumed.append(
            f"LLaMA-Factory holds what it trains, and its gradients, in fp32: {PURE} has them in bf16"
        )
    elif wide:
        settings |= UPCAST
    elif software == "axolotl" and values.get(ATTENTION) in UNCAST and not any(map(values.get, CASTING)):
        launch.unpriced.append(f"{UPCAST_REST}, as Axolotl has them without flash attention")
    elif software == PLAIN and not first(values, WORDS):
        launch.assumed.append("weights of 16 bits: Transformers 5 loads them as they are stored, before it in fp32")


def _numbers(launch: Launch, values: Values) -> None:
    mixed = str(values.get("mixed_precision", ""))
    path = next((path for path in PRECISION[1:] if values.get(path) in (True, UNMIXED)), "")
    if wire := next((path for path in (WIRE, SUMMED) if values.get(path) in ("fp32", "bf16", "fp16")), ""):
        launch.say("grad_bytes", 4 if values[wire] == "fp32" else 2, wire)
    if mixed in ("bf16", "fp16", "fp8"):
        launch.say("dtype", mixed, "mixed_precision")
    elif path:
        name = path.partition(".")[0]
        launch.say("dtype", TORCH.get(name, name), path)
    elif word := next((word for word in WORDS if str(values.get(word)) in TORCH), ""):
        launch.say("dtype", TORCH[values[word]], word)
    elif any(values.get(path) == "auto" for path in PRECISION):
        return
    elif values.get(LLAMA_FACTORY[1]) == "full" and not values.get(PURE) and not launch.settings["fsdp"]:
        launch.unpriced.append("no format of 16 bits: LLaMA-Factory computes in fp32 what it holds so, priced as bf16")
    elif wide := next((path for path in _unmixing(values) if values[path] in WIDE), ""):
        launch.unpriced.append(f"{wide} {shown(values[wide])}, and no format of 16 bits: priced as bf16")
    else:
        launch.assumed.append("bf16: these files name no number format")


def _unmixing(values: Values) -> tuple[str, ...]:
    """Keys of number formats, but of programs that compute in the format of a model's weights anyway."""
    if SWIFT in values or LLAMA_FACTORY[1] in values:
        return ()
    return tuple(path for path in (*PRECISION, *WORDS) if path in values and path != "fp8")


def _length(launch: Launch, values: Values) -> None:
    """Note the steps of the whole run, or its samples, where they are told; steps count where both are."""
    steps, passes, most = (values.get(first(values, paths)) for paths in (RUN_STEPS, EPOCHS, SAMPLES))
    counts = [
        value for value in (steps, passes, most) if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if any(abs(value) > LARGEST_COUNT for value in counts):
        launch.problems.append(f"{RUN_STEPS[0]}, {EPOCHS[0]} and {SAMPLES[0]} must be at most {LARGEST_COUNT:,}")
    elif steps in counts and steps > 0:
        launch.settings["steps"] = steps
    elif passes in counts and most in counts:
        launch.settings["samples"] = passes * most
        launch.assumed.append(f"{passes * most:,g} samples in the whole run, {most:,g} an epoch at most (--tokens)")
    elif passes in counts:
        launch.assumed.append(f"{first(values, EPOCHS)} {passes:g} of how many samples is not told (--tokens)")


def write(values: Values, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keys of another plan; a batch that several files state is changed in all of them."""
    values, _ = completed(values)
    wanted: dict[str, Any] = mesh_written(values, before, after)
    for paths, name in ((MICRO, "micro_batch"), (STEPS, "num_microbatches"), (STAGE, "zero_stage")):
        if getattr(before, name) != getattr(after, name):
            there = [path for path in paths if values.get(path) not in (None, "auto")]
            needed = name != "num_microbatches" or not (first(values, (BATCH,)) or ALPACA in values)
            together = job.training_loss.together if name == "micro_batch" else 1
            wanted |= dict.fromkeys(there or ([paths[0]] if needed else []), getattr(after, name) // together)
    strategy = first(values, (*STRATEGY, *RESHARD, TRAINER_FSDP))
    if strategy and not first(values, STAGE) and before.zero_stage != after.zero_stage:
        wanted.pop(STAGE[0], None)
        hybrid = HYBRID in STRATEGIES.get(str(values[strategy]), str(values[strategy])).lower()
        stages = {0: "NO_SHARD", 2: "HYBRID_SHARD_ZERO2" if hybrid else "SHARD_GRAD_OP"}
        stages[3] = "HYBRID_SHARD" if hybrid else "FULL_SHARD"
        wanted[strategy] = stages.get(after.zero_stage, "FULL_SHARD")
        if strategy in RESHARD:
            wanted[strategy] = after.zero_stage == 3
        elif strategy == TRAINER_FSDP:
            others = [word for word in strategy_words(values) if "shard" not in word]
            wanted[strategy] = " ".join((stages.get(after.zero_stage, "FULL_SHARD").lower(), *others))
    if before.recompute != after.recompute:
        path = _checkpointing(values)
        inverted = not path and LLAMA_FACTORY[1] in values
        wanted |= {UNCHECKED: True} if path and LLAMA_FACTORY[1] in values else {}  # which checkpoints without its key
        wanted[UNCHECKED if inverted else path or CHECKPOINT[0]] = (after.recompute == "full") != inverted
    if before.activation_offload != after.activation_offload:
        there = [path for path in HOSTED if path in values]
        on = INPUTS if AXOLOTL[0] in values else True
        wanted |= dict.fromkeys(there[:1], on) if after.activation_offload else dict.fromkeys(there, False)
    if "reduce_overlap" in turned or "gather_overlap" in turned:
        wanted[OVERLAP] = bool(turned.get("reduce_overlap", turned.get("gather_overlap")))
    if "bucket" in turned:
        wanted[BUCKET] = round(turned["bucket"] / 2.0)
    if "offload" in turned:
        wanted[first(values, DEVICE) or DEVICE[0]] = "cpu" if turned["offload"] else "none"
    if "syncs_last" in turned:
        wanted[f"{SYNCING}.{SYNCED}"] = not turned["syncs_last"]
    if "liger" in turned:
        own = next((name for name in LIGER_KEYS if any(mark in values for mark in TUNERS[name])), TRAINER)
        wanted[next((path for path in LIGER if path in values), LIGER_KEYS[own])] = True
    if (path := hosting(values)) and ("hosted_weights" in turned or after.zero_stage != before.zero_stage):
        words = " ".join(word for word in str(wanted.get(path, values[path])).split() if word != OFFLOADING)
        wanted[path] = words if path == TRAINER_FSDP else "none" if path.endswith("device") else False
    return wanted
