"""Launch files of any framework, recognised by what is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import LARGEST as LARGEST_COUNT
from optimizer.frameworks.bash.config import (
    LITGPT,
    QUIET,
    SUBCOMMAND,
    TrainingCommand,
    shipped_config,
    subcommand,
    training_with_config,
)
from optimizer.frameworks.bash.config import UNSLOTH as UNSLOTH_KEY
from optimizer.frameworks.bash.documents import Options
from optimizer.frameworks.bash.pieces import Piece, text_of, unknown_in
from optimizer.frameworks.bash.script import Document, Find, ScriptRun
from optimizer.frameworks.config.file import PYTHON, ConfigFile
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.config.method import TRAINER
from optimizer.frameworks.config.precedence import kind
from optimizer.frameworks.deepspeed import config as deepspeed
from optimizer.frameworks.every import CONFIGS
from optimizer.frameworks.files import (
    BASH,
    CONF,
    KINDS,
    File,
    advice_for,
    kind_of,
    lying_near,
    not_here,
    out_of_reach,
    read_file,
    sources,
)
from optimizer.frameworks.launch import Source
from optimizer.frameworks.machines import device_in, family_in, site_in, step_options
from optimizer.frameworks.maxtext.config import HALVED, MAXTEXT, MEMORY_SHARES
from optimizer.frameworks.megatron.parser import sources_near
from optimizer.frameworks.megatron.script import (
    NOTHING_TRAINS,
    BashLaunch,
    bash_launch,
    evaluation,
    note_asked_device,
    note_sources,
    read_script,
    training_command,
    with_deepspeed,
)
from optimizer.frameworks.programs import refused
from optimizer.frameworks.read_configs import config_launch, config_of, followed_configs
from optimizer.frameworks.unpriced import costs, quantised, unpriced
from optimizer.frameworks.verl import config as verl

# What names an accelerator: programs, an image, and variables that only one family's libraries read.
NAMING = re.compile(
    r"[\w./-]+\.py\b|--use_(?:hpu|habana)\w*|--container-image[= ]\S+|--(?:tpu|device|accelerator)-type[= ]\S+"
    r"|\b(?:HCCL|ASCEND|MIOPEN|HIP|HSA|NEURON|LIBTPU|PYTORCH_NPU|NPUS_PER)_\w+(?==)|\bJAX_PLATFORMS=\S+"
)
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")  # of MPI's processes, a GPU each
DECIMAL = re.compile(r"0?\.\d+|1(?:\.0*)?")  # a share that is not nothing
UNTOLD = re.compile(r"missing|does not set")  # in a problem of a script, which what it sources may solve
# A command of one process, on which the Trainer spreads batches over all GPUs: transformers, trainer.py (_wrap_model).
PYTHON_ALONE = re.compile(
    r"(?:\S*/)?python[\d.]*(?: -u)? (?:\S+\.py|-m (?!torch\.distributed|accelerate|deepspeed)\S+)(?: |$)"
)
STARTED = {"accelerate", "torchrun", "deepspeed"}
ON_TRAINER = ("transformers", "trl")
BASE_MODEL, MODEL_NAME, BATCH = "base_model", "model_name_or_path", "per_device_train_batch_size"
# Programs that are known to take the Trainer's arguments: by keys that only they have, and by name.
KNOWN_BY, TRAINERS = (
    ("finetuning_type", BASE_MODEL, SUBCOMMAND, UNSLOTH_KEY, TRAINER),
    ("run_clm.py", "sft.py", "dpo.py"),
)
# Keys that are newer than a program, by its name: src/llmtuner/hparams/model_args.py of hiyouga/LLaMA-Factory.
OLDER: Mapping[str, tuple[str, ...]] = {"train_bash.py": ("enable_liger_kernel",)}
PREFERENCES = re.compile(r"(?:^|_)(?:dpo|kto|orpo|simpo|cpo|ipo|reward|rm)(?:_|$)")  # in the name of a program
ADAPTED = re.compile(r"(?:^|[_-])(?:q?lora|peft|dora|adapter|unsloth)(?:[_-]|$)")  # there too
# Arguments that few programs name themselves: with some of them all of TrainingArguments are parsed.
PARSED = {"do_train", "evaluation_strategy", "eval_strategy", "save_strategy", "save_total_limit", "report_to", "tf32"}
OPEN = ("length", "seq_len", "deepspeed", "fsdp", "zero", "nodes", "machines", "nproc", "processes")
DEFAULTS = "base.yml"  # of MaxText, which its reader has
FOLDERS = 4  # of a path, its file among them, whose names tell of the accelerators


def read_launch(files: Sequence[File], gpus: int | None = None, model: str = "") -> Source:
    """The launch in one or several files, which then are one launch; `model` is one that the files may leave out.

    Raises InvalidFile for what cannot be read, InputError where the files do not belong together.
    """
    source = _read(files, gpus, model)
    launch = source.launch
    if files[0].section and launch.program != verl.PROGRAM:
        raise InputError(f"--section {files[0].section}: only launches of {verl.PROGRAM} have sections; leave it out")
    followed = source.configs if isinstance(source, ConfigLaunch) else ()
    named = dict.fromkeys([*(file.name for file in files), *(config.name for config in followed)])
    places = [Path(name).absolute() for name in named]
    names = " ".join(f"{place.parent.name} {place.name}" for place in places)
    if "device" not in launch.settings and (device := device_in(names)):
        launch.say("device", device, "the file's name")
    texts = "\n".join(file.text for file in files)
    if "device" not in launch.settings and (site := site_in(texts)):
        launch.say("site", site, "a name of its site")
    elif "device" not in launch.settings and (device := device_in(programs := " ".join(NAMING.findall(texts)))):
        launch.say("device", device, "its programs")
    elif "device" not in launch.settings:
        folders = " ".join("/".join(place.parts[-FOLDERS:]) for place in places)
        if device := device_in(folders):
            launch.say("device", device, "a folder")
        else:
            launch.family = family_in(f"{folders} {programs}") or launch.family
    if launch.program == MAXTEXT and launch.settings.get("device") == HALVED:
        launch.unpriced.append(
            f"{HALVED}, each chip of which is two devices to JAX: a batch per device is priced as one"
        )
    launch.leaves = dict(source.leaves)
    costly = dict(unpriced(launch.program, launch.ignored, launch.leaves))
    launch.unpriced += costly.values()
    launch.unpriced += () if "base" in launch.settings else quantised(launch.leaves)
    launch.ignored = [name for name in launch.ignored if name not in costly]
    if named := launch.settings.get("communicators", ""):
        documents = source.documents if isinstance(source, BashLaunch) else ()
        if blocks := _blocks(files, documents, Path(named).name):
            launch.say("blocks", blocks, launch.written["communicators"])
    return source


def _blocks(files: Sequence[File], documents: Sequence[Document], name: str) -> int:
    """Thread blocks of data parallelism in NCCL's options that a launch writes, or that lie beside it; 0 without."""
    texts = [document.text for document in documents if Path(document.target).name == name]
    try:
        texts += [read_file(str(path)).text for file in files if (path := lying_near(file, name))]
        groups = json.loads(texts[0]) if texts else {}
    except (InvalidFile, ValueError):
        return 0
    group = groups.get("dp_cp") if isinstance(groups, dict) else None
    blocks = group.get("max_ctas") if isinstance(group, dict) else 0
    return blocks if isinstance(blocks, int) and 0 <= blocks <= LARGEST_COUNT else 0


def _read(files: Sequence[File], gpus: int | None, model: str) -> Source:
    scripts = [file for file in files if kind_of(file) == BASH]
    configs = tuple(config_of(file) for file in files if kind_of(file) != BASH)
    followed = followed_configs(files, configs)
    if not scripts:
        source = config_launch((*configs, *followed), gpus, model, files[0].section)
        source.launch.assumed += [f"{each.name}, which a config names, was read" for each in followed]
        return source
    script = main_script(scripts)
    if gpus is not None:
        script = replace(script, outside={**dict.fromkeys(MPI_SIZES, str(gpus)), **script.outside})
    find = sources(script, scripts)
    reading, options = _script_run(script, find)
    tuning = any(any(subcommand(command.texts)) for command in reading.commands)  # beside what prepares its data
    for command in reading.commands:
        words = command.texts
        if words and words[0] not in QUIET and not tuning and not script.section and (why := refused((), words)):
            raise InvalidFile(script.name, [why])
        if not configs and (own := shipped_config(words)):
            copied = f"`tune cp {own} FILE.yaml` writes it: give that file too"
            raise InvalidFile(script.name, [f"it trains by torchtune's own {own}, which is not here; {copied}"])
    away = out_of_reach(script, (*reading.missing, *reading.started))
    try:
        source = _script_launch(script, configs, find, reading, options, gpus, model)
    except InvalidFile as error:
        problems = [*dict.fromkeys(error.problems)]
        if script.pod and NOTHING_TRAINS in problems:
            raise InvalidFile(script.name, [refused(ConfigFile(script.name, script.text, "yaml").values)]) from None
        lost = reading.started if NOTHING_TRAINS in problems else reading.missing
        away += not_here(script, lost) if any(map(UNTOLD.search, problems)) or lost is reading.started else []
        changed = [*problems, *away] != [*error.problems]
        raise InvalidFile(script.name, [*problems, *away]) if changed else error from None
    source.launch.assumed += away
    if script.pod and "device" not in source.launch.settings and (device := device_in(script.pod.kinds)):
        source.launch.say("device", device, "its node selector")
    severed = "and what follows: a comment, or a line without its \\, ends the command before"
    source.launch.unpriced += [f"{text} {severed}" for text in dict.fromkeys(reading.severed)]
    marks = " ".join(NAMING.findall(" ".join(f"{name}=" for name in reading.variables)))  # of what it sources too
    source.launch.family = source.launch.family or family_in(marks)
    for name in MEMORY_SHARES if source.launch.program == MAXTEXT else ():
        if text := _share_of_memory(reading, name):
            source.launch.memory_share = float(text)
            source.launch.written["memory_share"] = name
            break
    return source


def _share_of_memory(reading: ScriptRun, name: str) -> str:
    """The share that a variable of a script or of one of its commands gives, "" where it gives none."""
    words = [word for word in reading.variables.get(name, [])[:1] if not unknown_in(word)]
    texts = [*map(text_of, words), *(dict(command.environment).get(name, "") for command in reading.commands)]
    return next((text for text in texts if DECIMAL.fullmatch(text) and float(text)), "")


def _script_run(script: File, find: Find) -> tuple[ScriptRun, Options]:
    """What a script would run; raises InvalidFile for one that is too much of something."""
    pod = script.pod
    try:
        if pod is None:
            return read_script(script.data, find, script.outside)
        reading, options = read_script(pod.script, find, {**pod.variables, **script.outside}, pod.options)
        reading.commands = [each if pod.placed else each.unplaced() for each in reading.commands]
        return reading, options
    except InvalidFile:
        raise
    except InputError as error:
        raise InvalidFile(script.name, [str(error)]) from None


def _script_launch(
    script: File,
    configs: tuple[ConfigFile, ...],
    find: Find,
    reading: ScriptRun,
    options: Mapping[str, tuple[int, str, Piece]],
    gpus: int | None,
    model: str,
) -> Source:
    """The launch of a script: of Megatron's flags, or of configs that lie where its command says."""
    trains = training_command(reading)
    if trains is None and not configs and (flag := evaluation(reading)):
        raise InvalidFile(script.name, [f"{flag}: it trains nothing"])
    with_config = training_with_config(script.name, script.data, reading)
    named: tuple[ConfigFile, ...] = ()
    if with_config and trains is None and not configs:  # configs that the command names and that lie where it says
        paths = [*dict.fromkeys(path for path in with_config.configs if Path(path).suffix in (*KINDS, CONF))]
        written = {path: each for path in paths for each in reading.documents if each.target == path}
        places = dict.fromkeys(filter(None, (lying_near(script, path) for path in paths if path not in written)))
        lying = [read_file(str(place)) for place in places]
        named = (
            *map(config_of, lying),
            *(
                ConfigFile(path, each.text, KINDS[Path(path).suffix], writer=Path(script.name).name)
                for path, each in written.items()
                if KINDS.get(Path(path).suffix, PYTHON) != PYTHON
            ),
        )
        named += followed_configs(lying, named, script)
    if with_config and LITGPT in with_config.keys.values and with_config.configs and not (configs or named):
        raise InvalidFile(script.name, [advice_for(script, with_config.configs)])
    if trains is not None or with_config is None or not _is_config(with_config, configs, named):
        if trains is None and with_config is not None and with_config.configs and not configs:
            opened = [f"{text}, which is not set (--env)" for text in with_config.opened if _counts("", text)]
            raise InvalidFile(script.name, [advice_for(script, with_config.configs), *opened])
        sources = sources_near(script.name, script.root)
        source = bash_launch(script.name, script.data, gpus, find, script.outside, sources, (reading, options), model)
        place = lying_near(script, source.engine) if not configs and not source.documents else None
        if (
            place is not None
            and (engine := config_of(read_file(str(place)))).whole
            and deepspeed.recognised(engine.values)
        ):
            source.launch.assumed.append(f"{place.name}, which {Path(script.name).name} names, was read")
            configs = (engine,)
        with_deepspeed(source, configs)
        return source
    keyed = _keyed_launch(script, with_config, (*configs, *named), named, reading, options, gpus, model)
    here = {DEFAULTS, *verl.SHIPPED, *(Path(config.name).name for config in (*configs, *named))}
    absent = [path for path in with_config.configs if Path(path).name not in here]
    keyed.launch.unpriced += [f"{path}, which was not read" for path in absent]
    keyed.launch.unpriced += [with_config.spread] if with_config.spread else []
    keyed.launch.unpriced += [
        f"{text}, which is not set" for text in with_config.opened if _counts(keyed.launch.program, text)
    ]
    return keyed


def _counts(program: str, text: str) -> bool:
    """Whether a key that is not set, as it stands, may change the price."""
    key, _, value = text.lstrip("+-").replace("=", " ").partition(" ")
    return any(word in key for word in OPEN) or costs(program, key, value)


def with_followed(files: Sequence[File], source: Source) -> list[File]:
    """The files with the configs that they name and that lie where they say, so that a patch can change those too."""
    known = {file.name for file in files}
    configs = source.configs if isinstance(source, ConfigLaunch) else ()
    named = (config for config in configs if config.name not in known)
    return [*files, *(replace(files[0], name=each.name, data=each.data) for each in named)]


def _is_config(command: TrainingCommand, configs: Sequence[ConfigFile], named: Sequence[ConfigFile]) -> bool:
    """Whether a command trains by a config that is there, or by keys that are one by themselves."""
    if configs or named:
        return True
    if command.function:
        where = f"config_registry.py of {command.module or 'its module'}"
        raise InvalidFile(
            command.keys.name, [f"--config {command.function} is a function of the {where}: give that file too"]
        )
    values = command.keys.values
    return not command.keys.section and (any(each.recognised(values) for each in CONFIGS) or bool(refused(values)))


def _keyed_launch(
    script: File,
    command: TrainingCommand,
    configs: Sequence[ConfigFile],
    named: Sequence[ConfigFile],
    reading: ScriptRun,
    options: Mapping[str, tuple[int, str, Piece]],
    gpus: int | None,
    model: str,
) -> Source:
    """A launch by configs with the keys of a script's command over them."""
    configs = [replace(c, function=command.function or c.function) if c.kind == PYTHON else c for c in configs]
    asked, named_gpus = step_options(command.step, options), gpus
    machines = {name: value for name, (value, *_) in asked.items()} | dict(command.machines)
    if "gpus_per_node" not in machines and machines.get("tasks_per_node", 1) > 1:
        machines["gpus_per_node"] = machines["tasks_per_node"]
    several = machines.get("tasks", 1) > machines.get("gpus_per_node", 0) or "nodes" in " ".join(command.opened)
    if gpus is None and "gpus_per_node" in machines and ("nodes" in machines or command.machines or not several):
        gpus = machines.get("nodes", 1) * machines["gpus_per_node"]
    gpus = gpus or machines.get("gpus") or (machines["tasks"] if machines.get("tasks", 1) > 1 else None)
    known = {path for config in configs if kind(config) != "engine" for path in config.values}
    keys = command.keys
    if BATCH in keys.values:  # of the Trainer: its program is not Axolotl, whatever it calls the model
        given = (replace(one, key=MODEL_NAME) if one.key == BASE_MODEL else one for one in keys.given)
        keys = replace(keys, given=tuple(given))
    absent = [path for path in command.hydra if not configs and not lying_near(script, path)]
    try:
        source = config_launch((*configs, keys), gpus, model, script.section)
    except InvalidFile as error:
        raise InvalidFile(script.name, [*error.problems, *([advice_for(script, absent)] if absent else [])]) from None
    nodes, each = machines.get("nodes", 1), machines.get("gpus_per_node", 0)
    configured = source.launch.settings.get("nodes")
    if configured and configured != command.machines.get("nodes", configured):  # options go before a launcher's config
        source.launch.settings["nodes"] = nodes
        source.launch.settings.pop("gpus_per_node", None)
    if nodes > 1 and nodes * each == gpus and "nodes" not in source.launch.settings:
        source.launch.settings |= {"nodes": nodes, "gpus_per_node": each}
    if gpus is not None and named_gpus is None and "gpus" not in source.launch.written:
        source.launch.assumed.append(f"{gpus} GPU{'s' * (gpus > 1)}, as {script.name} starts (--gpus)")
    source.launch.assumed += [f"{each.name}, which {script.name} names, was read" for each in named]
    if command.among > 1:
        source.launch.assumed.append(
            f"of {command.among} commands with settings the one that has most, of equals the last"
        )
    own = not any(path in known or path in keys.values for path in KNOWN_BY) and command.program
    if source.launch.program == deepspeed.PROGRAM and own and Path(own).name not in TRAINERS:
        stem = Path(own).stem if own.endswith(".py") else own.rpartition(".")[2]
        if PREFERENCES.search(stem) and "loss" not in source.launch.settings:
            source.launch.unpriced.append(f"{own}, which learns from preferences by its name: priced as supervised")
        if ADAPTED.search(stem) and "train" not in source.launch.settings:
            source.launch.unpriced.append(f"{own}, which trains adapters by its name: priced as whole training")
        source.launch.undecided["program"] = f"{Path(own).name} on the Trainer"
        source.launch.assumed.append(f"{own} takes the Trainer's arguments as the Trainer does; its Python is not read")
        if len(PARSED.intersection(keys.values)) < len(PARSED) // 3:
            source.launch.lacks = lambda key: f"{own} may not take --{key}: only its Python says" * ("." not in key)
    newer, program = OLDER.get(Path(command.program).name, ()), command.program
    if newer:
        source.launch.lacks = lambda key: f"--{key} is newer than {program}" if key in newer else ""
    if command.starts:
        source.launch.unpriced.append(f"{command.starts}, ahead of --: only its program says what starts on each")
    alone = (
        not STARTED.intersection(command.step)
        and bool(PYTHON_ALONE.match(" ".join(command.step)))
        and source.launch.settings.get("gpus", 1) > 1
    )
    if alone and source.launch.settings.get("software") in ON_TRAINER:
        source.launch.unpriced.append(
            "python starts one process: the Trainer spreads batches by DataParallel over GPUs"
        )
    places = (
        Piece(one.value, (one.site,)) for one in keys.given if one.site and _counts(source.launch.program, one.key)
    )
    note_sources(source.launch, reading, ((piece,) for piece in places))
    if "device" not in source.launch.settings:
        note_asked_device(source.launch, script.data)
    return source


def main_script(scripts: Sequence[File]) -> File:
    """The script that starts the others; raises InputError where several start by themselves."""
    if len(scripts) == 1:
        return scripts[0]
    read = [_script_run(script, lambda _: None)[0] for script in scripts]
    taken = {Path(path).name for each in read for path in (*each.missing, *each.started) if path}
    left = [script for script in scripts if Path(script.name).name not in taken]
    if len(left) != 1:
        raise InputError(f"{', '.join(file.name for file in scripts)} are several launches: give one script at a time")
    return left[0]
