"""The keys of a config that a bash script gives on its command line, as a config over the files that it names.

`--parallelism.tensor_parallel_degree 8` (torchtitan), `++trainer.devices=8` (hydra), `ici_fsdp_parallelism=8`
(MaxText), `--per_device_train_batch_size 4` (Hugging Face).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile
from shlex import quote
from typing import Any

from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.frameworks.bash.edit import cut, replaced
from optimizer.frameworks.bash.pieces import Site, Word, text_of, unknown_in
from optimizer.frameworks.bash.script import EXPERIMENT, RUNNER, SHELLS, Command, ScriptRun
from optimizer.frameworks.config.file import ConfigFile, plain
from optimizer.frameworks.config.method import KEYS, TRAINER
from optimizer.frameworks.config.yaml_edit import scalar
from optimizer.frameworks.machines import LAUNCHER, included, ranks, tpu_chips
from optimizer.frameworks.megatron.flag_names import NAMED, SHAPE_COUNTS, SHAPE_SWITCHES, SOFTWARE_SWITCHES

ASSIGNED = re.compile(r"(?:\+{0,2}|--)(?P<key>[A-Za-z_]\w*(?:\.\w+)*)=(?P<value>.*)", re.DOTALL)
HYPHENED = re.compile(r"--(?P<key>[a-z]\w*(?:-\w+)+)=(?P<value>.*)", re.DOTALL)  # as parsers that have _ take it too
DOTTED = re.compile(r"--(?P<key>[A-Za-z_]\w*(?:-\w+)*(?:\.\w+(?:-\w+)*)+)$")
PLAIN = re.compile(r"--(?P<key>[a-z]\w*(?:-\w+)*)$")
CONFIGS = re.compile(
    r"(?:--?[\w.-]*(?:config|deepspeed)[\w-]*=|[^=\s]*[^\w./${}=\s-])?([\w./${}-]+\.(?:ya?ml|toml|json|conf|config))/?$"
)
# Flags and keys whose files are no configs.
DATA = re.compile(
    r"-*[\w.-]*(?:data|(?:train|valid|val|dev|test)(?!_arg)\w*[_-](?:file|path)|eval|prompt|tokenizer|output|template|to[-_]yaml)[\w.-]*(?:=|$)"
)
VOCABULARY = re.compile(r"(vocab|merges|tokenizer)[\w.-]*\.json$")
# Keys whose value is all the words that follow.
LISTS = ("fsdp", "recompute_modules", "offload_modules", *KEYS["targets"])
IN_JSON = ("accelerator_config",)  # keys whose value is a section in JSON
INLINE = re.compile(r"-[a-z]*c$")  # the option of a shell that runs a text
VISIBLE, FACTORIES = "CUDA_VISIBLE_DEVICES", {"llamafactory-cli", "llamafactory.cli"}
EACH, PYTHON = {"deepspeed", *FACTORIES}, re.compile(r"(?:.*/)?python[\d.]*$")
SPECIAL = re.compile(r"[|&;<>()*$`\s]")  # to the shell
FUNCTION, MODULE, SINGLE = "--config", "--module", ("_single_device", "_single_device.py")
# NeMo's launcher holds the sections of NeMo's own config in one of its own, and names that config by its model.
LAUNCHED = re.compile(r"training\.(?=(?:model|trainer|run|exp_manager)\.)")
PROGRAM = re.compile(
    r"(.*\.py|-m|--module|sft|pt|rlhf|train|dpo|kto|reward|(?:pretrain|finetune)\w*|(?:.*/)?\w+_(?:single_device|distributed)|"
    rf"{RUNNER.pattern})$"
)
# Modules that start another program.
STARTING = re.compile(r"torch\.distributed\.|accelerate\.commands|deepspeed\.launcher")
GIVEN = re.compile(
    r"(?!\S*=)--?[\w-]*(?:config|file|path|code|template|reward|function)"
)  # options whose value is a file that no process starts with
NODES = re.compile(r"--?(?:num[-_])?n?nodes|-N")
SET = re.compile(r"([A-Z][A-Z0-9_]*)=(\S*)")  # before a command of another shell, or env's and a container's
# Options of `accelerate launch` that say what its config says; machines are read apart.
# Source: huggingface/accelerate v1.15.0, src/accelerate/commands/launch.py.
ACCELERATE = re.compile(
    r"use_(?:fsdp|deepspeed|megatron_lm)|deepspeed_config_file|(?:fsdp|fp8|dynamo|parallelism_config|megatron_lm)_\w+|zero_stage"
    r"|offload_(?:optimizer|param)_device|mixed_precision|gradient_accumulation_steps"
)
# Commands of Primus, the section of its config that their keys override, and the options that are no such keys.
PRIMUS = re.compile(rf"(?:.*/)?(?:primus-cli|primus/cli/main\.py)$|{RUNNER.pattern}")
PRIMUS_SECTION = "modules.{}_trainer.overrides."
PRIMUS_OPTIONS = ("config", "exp", "data_path", "backend_path", "export_config")
# Commands whose words choose the program: its name stands among their keys.
SUBCOMMANDS = ("swift sft", "swift pt", "swift rlhf", "megatron sft", "megatron pt")
SUBCOMMAND, UNSLOTH, LITGPT, FACTORY = "swift", "unsloth", "litgpt", "llamafactory"
# Trains adapters whatever its arguments say, by default of the PEFT library's own matrices. Source:
# huggingface/optimum-habana, examples/language-modeling/run_lora_clm.py.
ADAPTING, ADAPTERS = "run_lora_clm.py", "use_peft_lora"
LITGPT_COMMAND = re.compile(r"(?:.*/)?litgpt((?:pretrain|finetune)\w*)$")
# TRL's commands and the scripts of the same names, by the loss of each.
TRAINERS = re.compile(r"(?:trl |(?:.*/)?trl[./]scripts[./])(sft|dpo|kto|reward)(?:\.py)?$")
# Programs that take a training's flags or keys, and train nothing.
IDLE = re.compile(
    r"\w*(text_generation|generate|inference|server|convert|evalharness|decode|maxengine|forward_pass_logit|to_huggingface|doc_index"
    r"|analyze_data|merge_mp|preprocess|hf2\w*core|core2hf)"
    r"\w*\.py$|(?!\w*train)(\w+_)?eval(uat\w+)?(_\w+)?\.py$|[\w.]+\.\w*(inference|decode|maxengine|forward_pass_logit)\w*$|[\w.]+\.(checkpoint_conversion|inference)\.\w+$"
)
# Flags that are no spelling of a key.
MEGATRON = {name for name in (*NAMED, *SHAPE_COUNTS, *SHAPE_SWITCHES, *SOFTWARE_SWITCHES) if "-" in name[2:]}
QUIET = ("echo", "printf", "export", "set", "cat", "cp", "mv", "mkdir", "sed", "pip", "cd", "ls", "wget", "git")


@dataclass(frozen=True)
class Given:
    """One key on the command line: its value and where it is, how both are written, where a switch stands alone."""

    key: str
    value: str
    site: Site | None
    written: str
    alone: Site | None = None


@dataclass(frozen=True)
class CommandKeys(ConfigFile):
    """A script whose training command sets keys, all of one section; its text is that of the whole script."""

    given: tuple[Given, ...] = ()
    end: int = 0
    section: str = ""

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """Every key, the last where one comes twice; of a section that is JSON, each of its own."""
        leaves: dict[str, Any] = {}
        for one in self.given:
            inside = _section(one.value)
            leaves |= {self.section + ".".join((one.key, *path)): value for path, value in inside.items()}
            if not inside:
                leaves[self.section + one.key] = plain(one.value)
        return leaves

    @property
    def values(self) -> dict[str, Any]:
        """The same: the shell has filled in what its variables hold."""
        return self.leaves

    def changed(self, path: str, value: Any) -> ConfigFile:
        """The script with another value, or with one more key after the last one; ++ of hydra sets and adds.

        A switch that stands alone is taken out where it is to be off: parsers that know no value of it refuse one.
        It gets one where the command gives others theirs, and ms-swift's does: programs may have it on by themselves.

        Raises InputError for a value of Primus that is to be none and comes from a variable, and for one in JSON.
        """
        path = path.removeprefix(self.section)
        if not self.end and not any(one.site or one.alone for one in self.given):
            raise InputError(f"no patch: the command stands in {self.name} in words of their own; make it by hand")
        if whole := next((one.key for one in self.given if path.startswith(f"{one.key}.") and _section(one.value)), ""):
            raise InputError(f"no patch: {path} is in the JSON of --{whole}; make it by hand")
        first, *inner = path.split(".")
        if first in IN_JSON and inner and value is not None:
            for name in reversed(inner):
                value = {name: value}
            path, value = first, json.dumps(value)
        nothing = "None" if self.section else ""  # as Primus has it
        text = nothing if value is None else value if isinstance(value, str) else scalar(value)
        sites = [one.site for one in self.given if one.key == path and one.site]
        switches = [one.alone for one in self.given if one.key == path and one.alone]
        if value is False and switches and not sites and _option(self._reads(switches[-1])) == path:
            others = tuple(one for one in self.given if one.alone != switches[-1])
            spelt = [one.value for one in self.given if one.site and one.value in ("True", "true", "False", "false")]
            if spelt or SUBCOMMAND in self.values:
                text = "False" if spelt and spelt[-1].istitle() else "false"
                off = Given(path, text, (switches[-1][1] + 1, switches[-1][1] + 6), "--")
                put = replace(self, given=others)._put(switches[-1][1], switches[-1][1], f" {text}")
                return replace(put, given=(*put.given, off))
            start, end, _ = cut(self.text.encode(), *switches[-1])
            return replace(self, given=others)._put(start, end, "")
        if text == nothing and self.section and sites:
            before = self.text.encode()[: sites[-1][0]]
            if not before.endswith((f"{path} ".encode(), f"{path}=".encode())):
                raise InputError(f"no patch: {path} is to be None and is not written beside it; make it by hand")
        quoted = bool(sites) and self.text.encode()[sites[-1][0] - 1 : sites[-1][0]] in (b"'", b'"')
        if SPECIAL.search(text) and not quoted and path not in LISTS:
            text = quote(text)
        if sites:
            return self._put(*sites[-1], text) if text else self
        style = self.given[-1].written if self.given else "--"
        if any(one.written.startswith("+") for one in self.given):
            style = f"++{style.lstrip('+')}"
        return self._put(self.end, self.end, f" {style}{path}{' ' if style == '--' else '='}{text}")

    def _reads(self, site: Site) -> str:
        return self.text.encode()[slice(*site)].decode("utf-8", "replace")

    def _put(self, start: int, end: int, text: str) -> CommandKeys:
        """The script with other bytes in one place, and all places behind it moved."""
        data, put = self.text.encode(), text.encode()
        more = len(put) - (end - start)

        def moved(site: Site | None) -> Site | None:
            if site is None or site == (start, end):
                return None if site is None else (start, start + len(put))
            return (site[0] + more, site[1] + more) if site[0] >= end else site

        return replace(
            self,
            text=replaced(data, [(start, end, put)]).decode(),
            given=tuple(replace(one, site=moved(one.site), alone=moved(one.alone)) for one in self.given),
            end=self.end + more if self.end >= end else self.end,
        )


def keys_of(words: Sequence[Word]) -> Iterator[tuple[Given, Site]]:
    """Every key of a command's words, and from where to where its value reaches, or itself where it has none."""
    started = accelerated = False
    tunes = any(subcommand([text_of(word) for word in words]))
    for place, word in enumerate(words):
        text = text_of(word)
        before, started = started, started or bool(PROGRAM.match(text))
        if text == MODULE and not before:  # a launcher's own, which starts what is behind it
            continue
        by_name = text == "launch" and text_of(words[place - 1]).rpartition("/")[2] == "accelerate"
        accelerated = accelerated or by_name or text == "accelerate.commands.launch"
        after = words[place + 1] if place + 1 < len(words) else ()
        started = started and not (text == "-m" and STARTING.match(text_of(after)))
        if not tunes and text.partition("=")[0] in MEGATRON:  # of a program that has no keys
            continue
        if unknown_in(word) or not (started or (accelerated and ACCELERATE.fullmatch(_option(text)))):
            continue
        if match := ASSIGNED.match(text) or HYPHENED.match(text):
            value = match["value"].strip("\"'")
            site = _tail(word, value)
            if match["key"] in LISTS and (more := _until_key(words[place + 1 :])):
                value = " ".join((value, *map(text_of, more)))
                site = (site[0], more[-1][-1].sites[0][1]) if site and more[-1][-1].sites else None
            start = launched.end() if (launched := LAUNCHED.match(text, match.start("key"))) else match.start("key")
            key = text[start : match.end("key")].replace("-", "_")
            yield Given(key, value, site, text[:start]), _reach([word])
        elif match := DOTTED.match(text) or PLAIN.match(text):
            following = text_of(after)
            holds = bool(following) and not following.startswith("--") and not ASSIGNED.match(following)
            if holds and unknown_in(after):
                continue
            whole = [after, *_until_key(words[place + 2 :])] if holds else [word]
            reach = _reach(whole)
            switch = None if holds or reach == (0, 0) else reach
            key = _option(match["key"])
            if not holds or key not in LISTS:
                whole = [after]
            whole_site = holds and all(len(each) == 1 and each[0].sites for each in whole)
            site = (whole[0][0].sites[0][0], whole[-1][0].sites[0][1]) if whole_site else None
            yield Given(key, " ".join(map(text_of, whole)) if holds else "true", site, "--", switch), reach


def _section(text: str) -> dict[tuple[str, ...], Any]:
    """The values of a section that is written as JSON, by their keys; none of anything else.

    >>> _section('{"a": {"b": 1}, "c": true}'), _section("{a}"), _section("[1]")
    ({('a', 'b'): 1, ('c',): True}, {}, {})
    """
    try:
        tree = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return dict(_branches(tree, ())) if isinstance(tree, dict) else {}


def _branches(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _branches(value, (*path, key))
    elif path:
        yield path, tree


def _option(text: str) -> str:
    """The name of an option, "-" as "_"."""
    return text.partition("=")[0].lstrip("-").replace("-", "_")


def _opened(words: Sequence[Word]) -> Iterator[str]:
    """Keys and options whose values hang on what nobody gave, as they stand."""
    for word, after in pairwise((*words, ())):
        text, value = text_of(word), text_of(after)
        if ASSIGNED.match(text) and unknown_in(word):
            yield text
        elif (DOTTED.match(text) or PLAIN.match(text)) and unknown_in(after) and not value.startswith("--"):
            yield f"{text} {value}"


def _tail(word: Word, value: str) -> Site | None:
    """Where the value of `key=value` stands, when it is the end of one piece or a piece of its own."""
    last = word[-1]
    if not last.sites or not value:
        return None
    start, end = last.sites[0]
    if last.text == value:
        return start, end
    size = len(value.encode())
    return (end - size, end) if last.text.endswith(value) and len(word) == 1 else None


def _until_key(words: Sequence[Word]) -> list[Word]:
    return list(takewhile(lambda word: not (text_of(word).startswith("-") or ASSIGNED.match(text_of(word))), words))


def _reach(words: Sequence[Word]) -> Site:
    """From the first byte of words to the one after their last, zeros where they have no place."""
    sites = [piece.sites[-1] for word in words for piece in word if piece.sites]
    return min((start for start, _ in sites), default=0), max((end for _, end in sites), default=0)


def _inner(texts: Sequence[str]) -> bool:
    """Whether a command is the text of another shell, whose quotes hold all that reaches the program.

    >>> _inner(["srun", "bash", "-c", "python", "train.py"]), _inner(["bash", "train.sh", "-c"])
    (True, False)
    """
    shells = (before in SHELLS and INLINE.match(text) for before, text in pairwise(texts))
    return any(shells) or not {"eval", "ssh"}.isdisjoint(texts)


def _behind(data: bytes, reach: Site) -> int:
    """The byte behind a value and the quote that closes it.

    >>> [_behind(text, (2, 3)) for text in (b"='8' ", b"=/8' ", b"='8/ ", b"=8")]
    [4, 3, 3, 3]
    """
    start, end = reach
    quoted = data[end : end + 1] in (b"'", b'"') and data[start - 1 : start] == data[end : end + 1]
    return end + quoted


@dataclass(frozen=True, kw_only=True)
class TrainingCommand:
    """A command that trains by a config, one `among` so many: its keys, the configs that it names, those that hydra
    finds by a name, the function of a Python config, the keys and options whose values nobody gave, the GPUs over which
    each process spreads its layers, and all its words, srun's ahead.
    """

    keys: CommandKeys
    configs: tuple[str, ...]
    hydra: tuple[str, ...]
    function: str
    module: str
    machines: Mapping[str, int]
    opened: tuple[str, ...] = ()
    spread: str = ""
    step: tuple[str, ...] = ()
    among: int = 1

    @property
    def program(self) -> str:
        """The Python file or the module that it runs, behind what starts it, "" for none."""
        named = [
            text
            for before, text in pairwise(("", *self.step))
            if (text.endswith(".py") and not GIVEN.match(before)) or (before == "-m" and not STARTING.match(text))
        ]
        starters = {"deepspeed", "accelerate", "torchrun"}  # which take a module behind --module too
        return named[-1] if named else self.module if starters & {*self.step} else ""

    @property
    def starts(self) -> str:
        """The option by which a program that starts the command behind a -- has it on several nodes, "" for none."""
        ahead = self.step[: self.step.index("--")] if "--" in self.step else ()
        nodes = (
            f"{name} {value}" for name, value in _options(ahead) if NODES.fullmatch(name) and value not in ("", "1")
        )
        return next(nodes, "") if any(text.endswith(".py") for text in ahead) else ""


def training_with_config(name: str, data: bytes, reading: ScriptRun) -> TrainingCommand | None:
    """The command with the most keys or a named config; None where none has either."""
    best: TrainingCommand | None = None
    candidates: set[tuple[str, ...]] = set()
    for command in reading.commands:
        words, texts = command.flat, command.texts
        if not words or texts[0].rpartition("/")[2] in QUIET or "pip" in texts[:3]:
            continue
        keyed = list(keys_of(words))
        hydra = tuple(_hydra(texts))
        flagged = (text for flag, text in pairwise(("", *texts)) if not (flag.startswith("-") and DATA.match(flag)))
        named = (
            match[1] for text in flagged if (match := CONFIGS.match(text)) and not ("=" in text and DATA.match(text))
        )
        configs = (*(path for path in named if not VOCABULARY.search(path)), *hydra)
        if section := primus_section(texts):
            keyed = [(one, reach) for one, reach in keyed if one.key not in PRIMUS_OPTIONS]
            configs = configs or tuple(filter(None, [_variables(command, reading).get(EXPERIMENT)]))
        given = (*subcommand(texts), *(one for one, _ in keyed))
        if not any(map(PROGRAM.match, texts)) or not (given or configs) or idle(texts):
            continue
        last = max((reach for _, reach in keyed), key=lambda reach: reach[1], default=(0, 0))
        keys = CommandKeys(
            name,
            data.decode("utf-8", "replace"),
            "bash",
            given=given,
            end=(last[1] if _inner(texts) else _behind(data, last)) if keyed else 0,
            section=section,
        )
        candidate = TrainingCommand(
            keys=keys,
            configs=configs,
            hydra=hydra,
            function=_after(texts, FUNCTION),
            module=_after(texts, MODULE),
            opened=tuple(_opened(words)),
            spread=_spread(command, reading, keys.values),
            machines=_processes(command, reading, "GPUS_PER_NODE", "8")
            if section
            else _processes(command, reading, "NPROC_PER_NODE", "1")
            if given[:1] and given[0].key in (SUBCOMMAND, UNSLOTH)
            else _seen(command, reading) | _machines(texts),
            step=(*command.starter, *texts),
        )
        if best is None or len(given) + len(configs) >= len(best.keys.given) + len(best.configs):
            best = candidate
        candidates.add(candidate.step)
    return best and replace(best, among=len(candidates))


def idle(texts: Sequence[str]) -> bool:
    """Whether a command runs a program that trains nothing.

    >>> idle(["python3", "-m", "maxtext.decode", "x.yml"]), idle(["torchrun", "pretrain_gpt.py", "--save", "inference"])
    (True, False)
    """
    program = next((text for text in texts if text.endswith(".py")), "")
    module = next((after for text, after in pairwise(texts) if text == "-m" and "torch" not in after), "")
    return bool(IDLE.match((program or module).rpartition("/")[2]))


def subcommand(texts: Sequence[str]) -> Iterator[Given]:
    """The program of ms-swift, Unsloth or Gaudi, or the trainer of TRL, that a command names, as a key.

    >>> [one.value for one in subcommand(["/opt/bin/swift", "sft", "--model", "x"])], list(subcommand(["python"]))
    (['swift sft'], [])
    >>> [one.value for one in subcommand(["accelerate", "launch", "-m", "trl.scripts.dpo"])]
    ['dpo']
    >>> [one.key for one in subcommand(["python", "unsloth-cli.py"])]
    ['unsloth']
    >>> [one.key for one in subcommand(["python", "run_lora_clm.py", "--use_habana"])]
    ['use_peft_lora']
    >>> [(one.key, one.value) for one in subcommand("litgpt finetune_lora meta-llama/Llama-3.2-1B --devices 2".split())]
    [('litgpt', 'finetune_lora'), ('checkpoint_dir', 'meta-llama/Llama-3.2-1B')]
    """
    if not FACTORIES.isdisjoint(text.rpartition("/")[2] for text in texts) and "train" in texts:
        yield Given(FACTORY, "train", None, "--")
    if any(text.rpartition("/")[2] == "unsloth-cli.py" for text in texts):
        yield Given(UNSLOTH, "true", None, "--")
    if "--use_habana" in texts and any(text.rpartition("/")[2] == ADAPTING for text in texts):
        yield Given(ADAPTERS, "true", None, "--")
    for place, (one, other) in enumerate(pairwise(texts), 2):
        if match := LITGPT_COMMAND.match(one + other):
            yield Given(LITGPT, match[1], None, "")
            key = "model_name" if match[1].startswith("pretrain") else "checkpoint_dir"
            yield from (Given(key, text, None, "") for text in texts[place : place + 1] if not text.startswith("-"))
            return
    pairs = [f"{one.rpartition('/')[2]} {other}" for one, other in pairwise(texts)]
    trainers = [match[1] for text in (*texts, *pairs) if (match := TRAINERS.match(text))]
    yield from (Given(TRAINER, name, None, "--") for name in trainers[:1])
    yield from (Given(SUBCOMMAND, pair, None, "--") for pair in pairs if pair in SUBCOMMANDS)


def _hydra(texts: Sequence[str]) -> Iterator[str]:
    """The files that hydra and NeMo's launcher find by a name.

    >>> list(_hydra(["--config-path=conf", "--config-name", "gpt_5b"])), list(_hydra(["training=gpt3/5b"]))
    (['conf/gpt_5b.yaml'], ['conf/training/gpt3/5b.yaml'])
    """
    if name := _value(texts, "--config-name"):
        folder = _value(texts, "--config-path")
        yield "/".join(filter(None, (folder, name))) + ("" if name.endswith(".yaml") else ".yaml")
    yield from (f"conf/training/{text[9:]}.yaml" for text in texts if re.fullmatch(r"training=\w+/\w+", text))


def _after(texts: Sequence[str], flag: str) -> str:
    """The value of a flag, "" where it is no name, as that of a file or a place in a template."""
    value = _value(texts, flag)
    named = re.fullmatch(r"[\w.]+", value) and not value.endswith((".toml", ".yaml", ".yml", ".json"))
    return value if named else ""


def shipped_config(texts: Sequence[str]) -> str:
    """The configuration of its own that torchtune starts from, "" for a file or another program.

    >>> shipped_config("tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device".split())
    'llama3_1/8B_lora_single_device'
    >>> shipped_config("tune run lora_finetune_single_device --config mine.yaml".split())
    ''
    """
    if not any(pair == ("tune", "run") for pair in pairwise(text.rpartition("/")[2] for text in texts)):
        return ""
    value = _value(texts, FUNCTION)
    return "" if CONFIGS.match(value) else value


def _value(texts: Sequence[str], flag: str) -> str:
    """What stands behind a flag, "" for nothing."""
    return next((value for name, value in _options(texts) if name == flag), "")


def _seen(command: Command, reading: ScriptRun) -> dict[str, int]:
    """GPUs of a node where a program starts a process on each that it sees, or sees one, as the script says."""
    devices = _variables(command, reading).get(VISIBLE, "").split(",")
    starts = EACH.intersection(text.rpartition("/")[2] for text in command.texts)
    starts |= {"python"} if len(devices) == 1 and PYTHON.match(command.texts[0]) else set()
    counted = starts and all(map(is_count, devices)) and "--hostfile" not in "=".join(command.texts)
    return {"gpus_per_node": len(devices)} if counted else {}


def _spread(command: Command, reading: ScriptRun, values: Mapping[str, Any]) -> str:
    """The GPUs over which ms-swift's processes spread their layers, where they see several each; "" where they do not.

    Source: modelscope/ms-swift v4.6.0, swift/model/utils.py, get_default_device_map.
    """
    devices = _variables(command, reading).get(VISIBLE, "").split(",")
    each = _processes(command, reading, "NPROC_PER_NODE", "1").get("gpus_per_node", 0)
    whole = not str(values.get(SUBCOMMAND)).startswith("swift ") or "zero3" in str(values.get("deepspeed"))
    if whole or not each or len(devices) % each or len(devices) == each or not all(map(is_count, devices)):
        return ""
    return f"{VISIBLE} {','.join(devices)}: each process spreads its layers over {len(devices) // each} GPUs"


def _machines(texts: Sequence[str]) -> dict[str, int]:
    """Nodes and GPUs in the options of a launcher; of torchtune's recipes for one device it has none.

    >>> _machines("torchrun --nproc-per-node=8 train.py".split()), _machines(["tune", "run", "full_single_device"])
    ({'gpus_per_node': 8}, {'nodes': 1, 'gpus_per_node': 1})
    """
    if any(text.endswith(SINGLE) for text in texts):
        return {"nodes": 1, "gpus_per_node": 1}
    options = [(LAUNCHER.get(name.replace("_", "-")), value.split(":")[0]) for name, value in _options(texts)]
    counted = {name: int(value) for name, value in options if name and is_count(value)}
    return {**ranks(texts), **tpu_chips(texts), **counted, **included(texts)}


def primus_section(texts: Sequence[str]) -> str:
    """The section of its config that the keys of a command of Primus override, "" for a command of another program.

    >>> primus_section(["./primus-cli", "direct", "--", "train", "posttrain", "--config", "x.yaml"])
    'modules.post_trainer.overrides.'
    """
    primus = any(map(PRIMUS.match, texts))
    return PRIMUS_SECTION.format("post" if "posttrain" in texts else "pre") if primus else ""


def _variables(command: Command, reading: ScriptRun) -> dict[str, str]:
    """What the variables say that a command finds."""
    known = {name: words[0] for name, words in reading.variables.items() if words}
    within = {match[1]: match[2] for match in map(SET.fullmatch, command.texts) if match}
    values = {name: text_of(word) for name, word in known.items() if not unknown_in(word)}
    return values | dict(command.environment) | within


def _processes(command: Command, reading: ScriptRun, per_node: str, usual: str) -> dict[str, int]:
    """Nodes and GPUs by srun's options and the variables that a program starts its processes by; one node without."""
    values = _variables(command, reading)
    stated = {"nodes": values.get("NNODES", "1"), "gpus_per_node": values.get(per_node, usual)}
    nodes = next((value for name, value in _options(command.texts) if name in ("-N", "--nodes")), "")
    texts = {**stated, **({"nodes": nodes} if nodes else {})}
    return {name: int(text) for name, text in texts.items()} if all(map(is_count, texts.values())) else {}


def _options(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every word with its value: what follows its equals sign, else the next word."""
    for text, following in zip(texts, (*texts[1:], ""), strict=True):
        name, equals, value = text.partition("=")
        yield name, value if equals else following
