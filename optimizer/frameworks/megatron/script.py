"""The training command of a bash script: found among all that it would run, with its machines and its documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import is_count
from optimizer.frameworks.bash.config import idle, primus_section, subcommand
from optimizer.frameworks.bash.documents import Options, inner_script
from optimizer.frameworks.bash.edit import edited
from optimizer.frameworks.bash.flags import Flag
from optimizer.frameworks.bash.pieces import Piece, Word, text_of
from optimizer.frameworks.bash.script import Command, Document, Find, ScriptRun, read_bash
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.deepspeed import config as deepspeed
from optimizer.frameworks.launch import FlagChange, Launch
from optimizer.frameworks.machines import (
    BATCH,
    LAUNCHER,
    batch_options,
    batch_variables,
    device_in,
    included,
    ranks,
    resource_sets,
    step_options,
)
from optimizer.frameworks.megatron.flag_names import (
    FSDP,
    KNOWN,
    LENGTHS,
    MEGATRON,
    MEGATRON_DEEPSPEED,
    NAMED,
    PLAN_FLAGS,
    SHAPE_COUNTS,
    TABLES,
    left_open,
)
from optimizer.frameworks.megatron.flags import note_defaults, read_flags
from optimizer.frameworks.megatron.parser import OWN_SOURCE, Parser, history, own_layers, parser_of
from optimizer.frameworks.megatron.software import LOCAL, note_own_layers
from optimizer.frameworks.megatron.write import flag_changes
from optimizer.frameworks.programs import refused
from optimizer.frameworks.unpriced import OFF, costs, free, unpriced
from optimizer.job.job import Job
from optimizer.job.plan import Plan

QUIET_COMMANDS = ("echo", "printf", "cat", "export", "set", "log", "tee", "mkdir", "source", ".")
MCORE = "--use-mcore-models"  # whose layers are of Transformer Engine
OTHER = re.compile(r"\w*(bert|t5|ict|esm|vision|mamba|hybrid|vlm|retro)\w*\.py$")
STARTERS = (
    "srun",
    "mpirun",
    "mpiexec",
    "accelerate",
    "sbatch",
    "pdsh",
    "horovodrun",
    "jsrun",
    "lrun",
    "aprun",
    "ibrun",
)
OWN = ("pretrain_gpt", "train_gpt")  # how Megatron's own programs begin whose flags say the whole model
OURS = ("pretrain", "megatron", "gpt", "finetune")  # in the names of Megatron's own scripts
TOP_K = "--moe-router-topk"
EVALUATING = ("--skip-train", "--eval-only", "--inference")  # the last of Megatron-DeepSpeed
DEEPSPEED_CONFIG = "--deepspeed-config"
BOTH = {  # what flags and that config say, by setting
    "zero_stage": "--zero-stage",
    "micro_batch": "--micro-batch-size",
    "global_batch": "--global-batch-size",
}
OF_ENGINE = {  # keys of that config that an edit of flags would contradict
    "zero_stage": "zero_optimization.stage",
    "micro_batch": "train_micro_batch_size_per_gpu",
    "num_microbatches": "gradient_accumulation_steps",
}
# Flags that count GPUs: they say nothing where the user says how many there are.
COUNTING = ("-np", "--nnodes", "--num-nodes", "--world-size", "--num-processes", "--num-machines")
BROKEN = "no bash: is a quote or a bracket left open?"
NOTHING_TRAINS = (
    "no command that is known to train: expected one with Megatron's flags such as --num-layers, --hidden-size, "
    "--micro-batch-size, or with a config of another framework, given too or beside the script"
)
# Source: NVIDIA/Megatron-LM, megatron/training/arguments.py, checks of use_megatron_fsdp.
ONE_CONNECTION = re.compile(rb"^[^#\n]*\bCUDA_DEVICE_MAX_CONNECTIONS=[\"']?(?:\$\{\w+:-)?1\b", re.MULTILINE)
VARIABLE = re.compile(r"\b[A-Z][A-Z_]{3,}\b")
COMMENT = re.compile(r"\s#")
GPU_TYPE = re.compile(r"\b(gpu:[a-zA-Z][\w.-]*)")  # as --gres has it
LEAST = 3  # flags of a model or a plan that make a command a training command
TELLING = {*NAMED, *SHAPE_COUNTS}.difference(LAUNCHER)
NOTHING: Mapping[str, str] = {}
NO_OPTIONS: Options = {}
SPLITTING = ("--tensor-model-parallel-size", "--context-parallel-size")
APART = (FSDP, "--use-torch-fsdp2", "--overlap-moe-expert-parallel-comm")  # which want more connections than one
NEWER = ("b200", "b300", "gb200", "gb300", "mi", "gaudi")  # where nothing is asked
OF_TRAINER = "--per-device-train-batch-size"  # without a value a launch of Hugging Face's Trainer is not known as one
HANGING = re.compile(r"which is (argument)|which hangs on (\w+)")
# Functions, whose arguments are their own, and loops over options.
INNER = re.compile(rb"^(?:(?:function[ \t]+)?[\w-]+[ \t]*\(\)\s*\{.*?^\}|while\b.*?^done\b)", re.MULTILINE | re.DOTALL)
ARGUMENT = re.compile(
    rb"^[ \t]*(?:export |local )?(\w+)=[\"']?\$\{?(\d{1,3})\b|(?:^|;)[ \t]*(shift)\b[ \t]*(\d{1,3})?", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class BashLaunch:
    """A script's launch and the flags of its training command, `placed` where the file itself holds them.

    documents: texts that the script writes to files, or hands to programs; parser: of its Megatron, as far as known.
    """

    name: str
    data: bytes
    launch: Launch
    flags: tuple[Flag, ...]
    documents: tuple[Document, ...]
    placed: bool
    parser: Parser

    @property
    def engine(self) -> str:
        """The path of its DeepSpeed config, "" without one."""
        return next((flag.value for flag in self.flags if flag.name == DEEPSPEED_CONFIG), "")

    @property
    def leaves(self) -> dict[str, Mapping[str, Any]]:
        """The values of every flag, of one that comes several times in order."""
        values: dict[str, list[tuple[str, ...]]] = {}
        for flag in self.flags:
            values.setdefault(flag.written, []).append(flag.values)
        return {self.name: values}

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> tuple[FlagChange, ...]:
        """The flags to write otherwise."""
        return flag_changes(self.flags, self.launch.program, job, before, after, turned, self.launch.settings)

    def lacking(self, changes: Sequence[FlagChange]) -> str:
        """Flags that its Megatron may not have, and how that is known; "" where it surely has them all."""
        flags = ", ".join(self.parser.lacks(changes))
        how = f"the newest that it shows is {self.parser.known_by}; --root CHECKOUT reads its parser"
        how = "its own source has none" if self.parser.known_by == OWN_SOURCE else how
        added = {each.flag.replace("_", "-") for each in changes if each.before is None and each.after is not None}
        one = FSDP in added and ONE_CONNECTION.search(self.data)
        alone = f"Megatron refuses {FSDP} where CUDA_DEVICE_MAX_CONNECTIONS is 1, as the script sets it" if one else ""
        return (
            f"this Megatron may not have {flags}: {how}"
            if flags
            else alone or self._undivided(changes) or self._unconnected(changes)
        )

    def _undivided(self, changes: Sequence[FlagChange]) -> str:
        """Why Megatron-DeepSpeed without --deepspeed refuses its stages: it halts unless they divide the layers.

        Source: argonne-lcf/Megatron-DeepSpeed, megatron/model/transformer.py, _get_num_layers.
        """
        layers, piped = self.launch.settings.get("layers", 0), "--deepspeed" in {flag.name for flag in self.flags}
        stages = [int(each.after) for each in changes if each.flag.replace("_", "-") in PLAN_FLAGS["pp"] and each.after]
        if piped or self.launch.program == MEGATRON or not stages or layers % stages[-1] == 0:
            return ""
        return f"{self.launch.program} without --deepspeed refuses {layers} layers on {stages[-1]} stages"

    def _unconnected(self, changes: Sequence[FlagChange]) -> str:
        """Why Megatron refuses parallelism of tensors or contexts, its first or without FSDP; "" where it does not.

        Source: NVIDIA/Megatron-LM, megatron/training/arguments.py, validate_args (get_device_arch_version() < 10).
        """
        settings = self.launch.settings
        split = max(settings.get("tp", 1), settings.get("cp", 1)) > 1
        first = any(each.flag.replace("_", "-") in SPLITTING and each.after not in (None, "1") for each in changes)
        newer = str(settings.get("device", "")).startswith(NEWER) or self.launch.program != MEGATRON
        apart = any(each.flag.replace("_", "-") in APART and each.after is not None for each in changes)
        gone = {each.flag.replace("_", "-") for each in changes if each.after is None}
        had = {flag.name for flag in self.flags} & {*APART}
        apart = apart or bool(had - gone)
        asked = bool(had) if split else first
        alone = self.data.lstrip().startswith(b"--")  # a file of arguments
        if not asked or newer or apart or alone or ONE_CONNECTION.search(self.data):
            return ""
        return "Megatron splits tensors or contexts with CUDA_DEVICE_MAX_CONNECTIONS=1 alone, which no line sets"

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        """The script with these flags, in each way that there is."""
        for text in edited(self.data, self.flags, changes) if self.placed else ():
            yield {self.name: text}


def read_script(
    data: bytes, find: Find, outside: Mapping[str, str] = NOTHING, asked: Options = NO_OPTIONS
) -> tuple[ScriptRun, Options]:
    """What a script would run, and what its #SBATCH lines ask for, or what is `asked` for it; `outside` are variables
    and arguments, by name or place, that it is started with. Of a script that trains by nothing of its own, what it
    writes is read too.
    """
    options: Options = {**asked, **batch_options(data)}
    given = {name: (Piece(value),) for name, value in outside.items()}
    reading = read_bash(data, batch_variables(options) | given, find)
    if training_command(reading) is None:
        for document in [*reading.documents]:
            inner, asked = inner_script(document, reading, options, find)
            reading.commands += inner.commands
            reading.documents += inner.documents
            if training_command(inner) is not None:
                return reading, asked
    return reading, options


def note_sources(launch: Launch, reading: ScriptRun, priced: Iterable[Word]) -> None:
    """Note the files that a script sources, read or missing, and which turn of a loop counts; of what only a run would
    choose what stands in the words that are priced.
    """
    launch.assumed += reading.guesses
    sites = {site for word in priced for piece in word for site in piece.sites}
    launch.undecided |= {
        name: text_of(word)
        for name, word in reading.undecided.items()
        if sites.intersection(site for piece in word for site in piece.sites[:1])
    }
    launch.assumed += [f"{PurePosixPath(path).name}, which the script sources, was read" for path in reading.sourced]
    for path in reading.missing:
        launch.ignore(f"source {path}".strip())


def bash_launch(
    name: str,
    data: bytes,
    gpus: int | None = None,
    find: Find = lambda path: None,
    outside: Mapping[str, str] = NOTHING,
    sources: str = "",
    read: tuple[ScriptRun, Options] | None = None,
    model: str = "",
) -> BashLaunch:
    """Read a script; `find` has the files that it sources, `outside` what it is started with, `sources` its parser.

    `read` is what `read_script` made of it, where that is done, `model` one that goes before what it says.

    Raises InvalidFile when no command in it trains, or what it says cannot be.
    """
    reading, options = read or read_script(data, find, outside)
    command = training_command(reading)
    placed = command is not None and any(piece.sites for word in command.words for piece in word)
    if command is None and data.lstrip().startswith(b"--"):
        # A file of arguments alone, as --export writes it.
        words = b" ".join(line.partition(b"#")[0].rstrip(b"\\ ") for line in data.splitlines())
        command = training_command(read_bash(b"pretrain_gpt.py " + words, {}))
    if command is None:
        named = refused(VARIABLE.findall(data.decode("utf-8", "replace")))
        raise InvalidFile(name, [named or (f"line {reading.broken} is {BROKEN}" if reading.broken else NOTHING_TRAINS)])
    if batch := next((flag for flag in command.flags if flag.name == OF_TRAINER and flag.unknown), None):
        raise InvalidFile(name, [f"{batch.written} {batch.value}: {left_open(batch)}"])
    launch = Launch(program=MEGATRON)
    note_sources(launch, reading, (word for flag in command.flags if flag.name in KNOWN for word in flag.words))
    options = step_options((*command.starter, *command.texts), options)
    asked: dict[str, tuple[int, str, Piece]] = {
        name: options[name] for name in ("nodes", "gpus_per_node", "gpus") if name in options
    }
    if "tasks_per_node" in options and options["tasks_per_node"][0] > 1:
        asked.setdefault("gpus_per_node", options["tasks_per_node"])
    sets = resource_sets((*command.starter, *command.texts))
    for name, number in (included(command.texts) or sets).items():
        asked[name] = number, "jsrun" if sets else "--include", Piece(str(number))
    launched = any(LAUNCHER.get(flag.name) for flag in command.flags)
    for name, number in (ranks((*command.starter, *command.texts)) if not launched else {}).items():
        asked[name] = number, "-n" if name == "gpus" else "-N", Piece(str(number))
    if not launched and not {"gpus", "gpus_per_node"} & asked.keys() and options.get("tasks", (1,))[0] > 1:
        asked["gpus"] = options["tasks"]  # each task has one
    for key, (number, option, _) in asked.items():
        launch.say(key, number, option)
    note_asked_device(launch, data)
    flags = command.flags
    programs = [text.rpartition("/")[2] for text in command.texts]
    if other := next((word for word in programs if OTHER.match(word)), ""):
        launch.unpriced.append(f"{other}, which trains no decoder")
    launch.settings["alone"] = not options and not {*STARTERS, "deepspeed"} & set(programs)
    if "deepspeed" in command.texts:
        launch.program = MEGATRON_DEEPSPEED
    if gpus is not None:
        launch.settings |= {"gpus": gpus, "gpus_given": True}
    if model:
        launch.settings["model"] = model
    read_flags(launch, [flag for flag in flags if gpus is None or flag.name not in COUNTING])
    unknown = _own_flags(launch, command)
    if harmless := [name for name in unknown if free(launch.program, name)]:
        launch.assumed.append(f"no Megatron has {', '.join(harmless)}: taken to cost nothing")
    if others := [name for name in unknown if name not in harmless]:
        launch.unpriced.append(f"{', '.join(others)}, which no Megatron has")
        launch.ignored = [name for name in launch.ignored if name not in others]
    own = next((word for word in programs if word.endswith(".py") and not word.startswith(OWN)), "")
    width, hidden = launch.settings.get("ffn_hidden", 0), launch.settings.get("hidden", 0)
    if own and not launch.settings.get("gated_mlp") and width and width != 4 * hidden:
        launch.unpriced.append(f"{own}, whose own code may shape the model: an MLP of {width:,} and no gate")
    if "dtype" in launch.settings and "dtype" not in launch.written:
        launch.unpriced.append("fp32, as Megatron-LM has it where no flag names a number format")
    launch.settings.pop("gpus_given", None)
    launch.settings.pop("alone", None)
    if reading.broken and launch.problems:
        launch.problems.append(f"line {reading.broken} is {BROKEN}")
    if launch.problems:
        if launch.unpriced:
            launch.problems.append(f"not priced: {launch.unpriced[0]}")
        other = next((word for word in programs if word.endswith(".py")), "")
        if other and not any(part in other.lower() for part in OURS):
            launch.problems.append(f"{other} is taken for a script of Megatron-LM: the flags of any other are not read")
        wanted = "" if "1" in outside else asked_for(data)
        raise InvalidFile(name, [wanted, *_but_open(launch.problems, data)] if wanted else launch.problems)
    parser = parser_of([flag.name for flag in flags], launch.program, data.decode("utf-8", "replace"), sources)
    names = {flag.name for flag in flags}
    by = own_layers(data.decode("utf-8", "replace"), sources, names) if launch.program == MEGATRON else ""
    if by and not {LOCAL, MCORE} & names:
        note_own_layers(launch, by, names)
    if launch.program == MEGATRON and launch.settings.get("experts", 0) > 1 and "top_k" not in launch.written:
        _note_top_k(launch, parser)
    note_defaults(launch, {flag.name for flag in flags})
    return BashLaunch(
        name=name,
        data=data,
        launch=launch,
        flags=tuple(flags),
        documents=tuple(reading.documents),
        placed=placed,
        parser=parser,
    )


def _note_top_k(launch: Launch, parser: Parser) -> None:
    """Note how many experts a token has where no flag says it: two, but one before there was the flag."""
    if TOP_K in parser.flags:
        launch.assumed.append(f"two experts for each token, as Megatron-LM has it without {TOP_K}")
        return
    launch.settings["top_k"] = 1
    if parser.known_by == OWN_SOURCE:
        launch.assumed.append(f"one expert for each token: this Megatron has no {TOP_K}")
    else:
        launch.unpriced.append(f"experts of a token, one as before {TOP_K}, which is not given")


def with_deepspeed(script: BashLaunch, configs: Sequence[ConfigFile]) -> None:
    """Note in a script's launch what DeepSpeed configs say of ZeRO: those given and those that the script writes.

    The script's batch counts. Raises InputError for a config that is not DeepSpeed's.
    """
    for config in configs:
        if not deepspeed.recognised(config.values):
            raise InputError(f"{config.name} does not belong to {script.name}: only a DeepSpeed config does")
    texts = [(each.target or "a here-document", each.text) for each in script.documents]
    launch = script.launch
    texts = texts if launch.program == MEGATRON_DEEPSPEED else []
    inner = [ConfigFile(target, text, "json") for target, text in texts if text.lstrip()[:1] == "{"]
    engines = (*configs, *(one for one in inner if one.whole and deepspeed.recognised(one.values)))
    given = {flag.name: flag.value for flag in script.flags}
    named = given.get(DEEPSPEED_CONFIG, "")
    launch.fixed += ("offload",) if launch.program == MEGATRON_DEEPSPEED else ()  # which no flag of it sets
    if launch.program == MEGATRON_DEEPSPEED and not engines:  # an edit of flags alone would contradict its config
        launch.fixed += ("zero_stage", "micro_batch") if named else ("zero_stage",)
        if named and "zero_stage" in launch.written:
            launch.assumed.append(f"{named}, which was not read, has the script's ZeRO stage and micro-batch")
        elif named:
            launch.unpriced.append(f"the ZeRO stage of {named}, which was not read")
    for config in engines:
        extra, place = Launch(program=launch.program), PurePosixPath(config.name).name
        deepspeed.read(extra, config.values)
        launch.fixed += tuple(name for name in OF_ENGINE if _literal(script, config, name, config in configs))
        for name in ("zero_stage", "offload", "bucket", "grad_bytes", "hosted_weights"):
            if name in extra.written and name not in launch.written:
                launch.say(name, extra.settings[name], extra.written[name])
        if "bucket" in extra.written:  # the same whatever the plan
            launch.following = lambda plan: {}
        for name, flag in BOTH.items() if named or config in configs else ():
            stated, own = given.get(flag, ""), extra.written.get(name, "")
            if is_count(stated) and own and int(stated) != extra.settings[name]:
                launch.unpriced.append(f"{flag} {stated} against {own} {extra.settings[name]} in {place}")
        for name in ("num_microbatches", "dtype") if named or config in configs else ():
            path, size = extra.written.get(name, ""), extra.settings.get(name)
            if isinstance(config.values.get(path), int) and size != launch.settings[name]:
                launch.unpriced.append(f"{path} {size} in {place} against {launch.settings[name]} of its script")
        costly = dict(unpriced(launch.program, extra.ignored, {config.name: config.leaves}))
        launch.unpriced += costly.values()
        for name in extra.ignored:
            if name not in costly and not costs(launch.program, name, "true"):
                launch.ignore(name)


def _literal(script: BashLaunch, config: ConfigFile, name: str, given: bool) -> bool:
    """Whether a config states a setting by a number of its own, so that no edit of flags changes it."""
    path = OF_ENGINE[name]
    own = rb'"%s"\s*:\s*\d' % path.rpartition(".")[2].encode()
    return path in config.values and (given or re.search(own, script.data) is not None)


def asked_for(data: bytes) -> str:
    r"""That a script wants arguments, by the names that it gives them; "" where it reads none.

    >>> asked_for(b"SIZE=$1\nTP=${2}\n")
    "it is started with arguments, $1 SIZE, $2 TP: give them in this order with --args '...'"
    >>> asked_for(b"SIZE=$1; shift\nTP=$1\nshift\n")
    "it is started with arguments, $1 SIZE, $2 TP: give them in this order with --args '...'"
    >>> asked_for(b"read_file() {\n  FILE=$1\n}\nwhile [ $# -gt 0 ]; do\n  NAME=$2\ndone\n")
    ''
    """
    arguments: dict[int, str] = {}
    dropped = 0
    for match in ARGUMENT.finditer(INNER.sub(b"", data)):
        if match[3] is not None:
            dropped += int(match[4] or 1)
        else:
            arguments[int(match[2]) + dropped] = match[1].decode()
    if not arguments:
        return ""
    names = ", ".join(f"${place} {arguments[place]}" for place in sorted(arguments))
    return f"it is started with arguments, {names}: give them in this order with --args '...'"


def _but_open(problems: Sequence[str], data: bytes) -> list[str]:
    """The problems but those that arguments would mend: of places, and of variables that the script sets on the way."""
    hanging = {problem: HANGING.search(problem) for problem in problems}
    return [
        problem
        for problem, match in hanging.items()
        if not (match and (match[1] or re.search(rb"\b%s=" % match[2].encode(), data)))
    ]


def note_asked_device(launch: Launch, data: bytes) -> None:
    """Note the device that the lines name which ask the batch system for something, or the type that is none."""
    lines = [line.decode("utf-8", "replace") for line in data.splitlines() if line.lstrip().startswith(BATCH)]
    lines = [COMMENT.split(line)[0] for line in lines]
    if device := device_in(" ".join(lines)):
        launch.say("device", device, lines[0].split()[0])
    elif kind := next(filter(None, map(GPU_TYPE.search, lines)), None):
        launch.family = kind[1]


def training_command(reading: ScriptRun) -> Command | None:
    """The command with the most flags of a model or a plan, of equals the last; None where none has enough."""
    best, most = None, LEAST
    for command in reading.commands:
        count = _telling(command)
        if count >= most and not _evaluating(command.flags):
            best, most = command, count
    return best


def evaluation(reading: ScriptRun) -> str:
    """The flag by which a command with flags of a model or a plan trains nothing, "" where none has one."""
    flags = (_evaluating(command.flags) for command in reading.commands if _telling(command) >= LEAST)
    return next(filter(None, flags), "")


def _telling(command: Command) -> int:
    """How many flags of a model or a plan a command has; none where it is no command of Megatron's."""
    keyed = any(subcommand(command.texts)) or primus_section(command.texts)
    trainers = any(flag.name == OF_TRAINER and not flag.unknown for flag in command.flags)
    if text_of(command.words[0]) in QUIET_COMMANDS or keyed or trainers or idle(command.texts):
        return 0
    return len({flag.name for flag in command.flags if flag.name in TELLING})


def _evaluating(flags: Sequence[Flag]) -> str:
    """The flag that says that nothing is trained, or that no steps are."""
    lengths = [flag for flag in flags if flag.name in LENGTHS]
    stated = [flag.written for flag in flags if flag.name in EVALUATING]
    none = [f"{flag.written} 0" for flag in lengths if {each.value for each in lengths} == {"0"}]
    return next(iter((*stated, *none)), "")


def _own_flags(launch: Launch, command: Command) -> list[str]:
    """Flags of its program that no Megatron has of which the history is known, and that nothing here reads."""
    start = next((place for place, text in enumerate(command.texts) if text.endswith(".py")), len(command.texts))
    given = {text.partition("=")[0] for text in command.texts[start:] if text.startswith("--")}
    unread = [flag for flag in command.flags if flag.written in launch.ignored and flag.name not in TABLES["plain"]]
    own = [flag for flag in unread if flag.written in given and (flag.value or "true").lower() not in OFF]
    taken = [flag.written for flag in own if not costs(launch.program, flag.written, flag.value or "true")]
    return [name for name in dict.fromkeys(taken) if not history(name.replace("_", "-"))]
