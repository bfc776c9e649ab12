"""A launch in config files: which keys say what, and which to change for another plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from optimizer.base.content import content
from optimizer.base.errors import InvalidFile
from optimizer.frameworks.config.file import ConfigFile, plain
from optimizer.frameworks.config.precedence import OPEN, kind, merged
from optimizer.frameworks.config.yaml_edit import NULL, scalar
from optimizer.frameworks.launch import LARGEST_COUNT, FlagChange, Launch
from optimizer.job.job import Job
from optimizer.job.plan import Plan

MAYBE_NONE = ("zero_stage", "shard", "shared_ffn", "first_dense", "etp", "experts", "top_k")
Values = Mapping[str, Any]
# Keys to set (None: to take out) so that the files with these values run another plan.
Writer = Callable[[Values, Job, Plan, Plan, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ConfigLaunch:
    """Configs that are one launch. `keys`: the file that holds each path; `write`: the format's way to say a plan."""

    configs: tuple[ConfigFile, ...]
    launch: Launch
    write: Writer

    @property
    def values(self) -> dict[str, Any]:
        """Everything that the files say, by the kind of file where they differ."""
        return merged(self.configs)

    @property
    def leaves(self) -> dict[str, Mapping[str, Any]]:
        """Every value of the files as it is written."""
        return {config.name: config.leaves for config in self.configs}

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> tuple[FlagChange, ...]:
        """The keys to write otherwise."""
        values = self.values
        wanted = self.write(values, job, before, after, turned)
        return tuple(
            FlagChange(flag=path, before=_text(self._home(path).values.get(path)), after=_text(value))
            for path, value in wanted.items()
            if values.get(path) != value
        )

    def lacking(self, changes: Sequence[FlagChange]) -> str:
        """Why the program may not have one of the keys that are new, or refuses the values; "" for neither."""
        if why := next(filter(None, (self.launch.lacks(each.flag) for each in changes if each.before is None)), ""):
            return why
        now = {**self.values, **{each.flag: None if each.after is None else plain(each.after) for each in changes}}
        return self.launch.clashes(now)

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        """The files with these keys; a new key goes to the file that has its section."""
        configs = {config.name: config for config in self.configs}
        for change in changes:
            name = self._home(change.flag).name
            configs[name] = configs[name].changed(change.flag, None if change.after is None else _value(change.after))
        yield {name: config.bytes for name, config in configs.items()}

    def _home(self, path: str) -> ConfigFile:
        """The file that a key is written in: what an engine leaves open is the trainer's to say."""
        section = path.rpartition(".")[0]
        holding = [config for config in self.configs if config.values.get(path) not in OPEN]
        own = [config for config in self.configs if kind(config) != "engine"] or self.configs
        holding = holding or [config for config in own if path in config.values]
        near = [c for c in self.configs if any(other.rpartition(".")[0] == section for other in c.values)]
        return (holding or near or own[:1])[-1]


def keyed_launch(
    name: str,
    read: Callable[[Launch, Values], None],
    write: Writer,
    configs: tuple[ConfigFile, ...],
    gpus: int | None,
    model: str,
) -> ConfigLaunch:
    """The launch in config files whose keys say it one by one.

    Args:
        name: the framework's.
        read: notes in a launch what values say.
        write: the keys of another plan.
        configs: the files.
        gpus: how many the user names, if any.
        model: the one that the user names, "" for none; these files need none.
    """
    launch = Launch(program=name, settings={} if gpus is None else {"gpus": gpus})
    config_launch = ConfigLaunch(configs=configs, launch=launch, write=write)
    read(launch, config_launch.values)
    return config_launch


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else scalar(value)


def _value(text: str) -> Any:
    """What a text stands for, a list as `scalar` writes it."""
    if text == scalar(NULL):
        return NULL
    return json.loads(text) if text.startswith('["') else plain(text)


def whole(launch: Launch, values: Values, path: str, least: int = 1) -> int | None:
    """A value that must be a whole number; None where it is absent or left open ("auto")."""
    value = values.get(path)
    if isinstance(value, float) and value == int(value):
        value = int(value)
    if value is None or str(value).lower() in ("auto", "none"):
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        launch.problems.append(f"{path} must be a whole number, but got {value!r}")
        return None
    if not least <= value <= LARGEST_COUNT:
        launch.problems.append(f"{path} must be from {least} to {LARGEST_COUNT:,}, but got {value}")
        return None
    return value


def take(launch: Launch, values: Values, keys: Mapping[str, str]) -> None:
    """Note every whole number that the keys of these settings say."""
    for name, path in keys.items():
        if path in values and (number := whole(launch, values, path, 0 if name in MAYBE_NONE else 1)) is not None:
            launch.say(name, number, path)


def take_steps(launch: Launch, values: Values, path: str) -> None:
    """Note the tokens of the whole run where a key says its steps."""
    known = launch.settings
    batch = ("global_batch",) if "global_batch" in known else ("dp", "micro_batch", "num_microbatches")
    names = (*batch, "seq_len")
    if isinstance(values.get(path), int) and known.keys() >= set(names):
        launch.say("tokens", values[path] * prod(known[name] for name in names), path)


# Number formats by what their names hold, the first that fits.
FORMATS: Mapping[str, str] = {"fp8": "fp8", "bf16": "bf16", "bfloat16": "bf16", "16": "fp16"}


def note_dtype(launch: Launch, values: Values, path: str) -> None:
    """Note the number format that a key names; one that is not priced, such as 32 bits, is said.

    >>> launch = Launch(program="litgpt")
    >>> note_dtype(launch, {"precision": "bf16-true", "dtype": "float32"}, "precision")
    >>> note_dtype(launch, {"precision": "bf16-true", "dtype": "float32"}, "dtype")
    >>> launch.settings, launch.unpriced
    ({'dtype': 'bf16'}, ['dtype float32'])
    """
    text = str(values.get(path) or "").lower()
    name = next((name for mark, name in FORMATS.items() if mark in text), "")
    if name:
        launch.say("dtype", name, path)
    elif text not in ("", "auto"):
        launch.unpriced.append(f"{path} {text}")


def named_values(launch: Launch, values: Values, known: Mapping[str, Collection[str]]) -> None:
    """Name every value that is none of those `known` of its key, however it is written.

    >>> launch = Launch(program="torchtitan")
    >>> named_values(launch, {"mode": "Full", "parts": ["a", "c"], "dtype": None}, {"mode": ["full"], "parts": ["a"]})
    >>> launch.unpriced
    ['mode Full', 'parts c']
    """
    for path, words in known.items():
        value = values.get(path)
        stated = value if isinstance(value, list) else [] if value is None else [value]
        launch.unpriced += [f"{path} {text}" for text in map(_word, stated) if text not in words]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_tables(framework: str) -> Mapping[str, Any]:
    """The tables of a framework's keys, which its reader and its writer share."""
    return content(f"optimizer.frameworks.{framework}", "keys.toml")


@dataclass(frozen=True)
class ConfigKey:
    """How a config states one setting.

    Attributes:
        name: of the setting, in launch.WORDS.
        paths: of the keys that state it, in the order in which they count.
        means: the setting that a value stands for, None for none.
        default: the value that counts where no key is there, None for none.
        writes: the value that states a plan's setting under the first of the keys, None where a plan does not have it.
    """

    name: str
    paths: tuple[str, ...]
    means: Callable[[Any], Any]
    default: Any = None
    writes: Callable[[Any], Any] | None = None


def note_keys(launch: Launch, values: Values, keys: Sequence[ConfigKey], places: Mapping[str, str] = {}) -> None:
    """Note what a table of keys finds; of a setting that comes twice the last.

    Args:
        launch: where it is noted.
        values: of the config, by path.
        keys: the table.
        places: where paths of the table stand in this config, if elsewhere.
    """
    for key in keys:
        path = next((at for at in (places.get(path, path) for path in key.paths) if values.get(at) is not None), "")
        value = values[path] if path else key.default
        if value is not None and (setting := key.means(value)) is not None:
            launch.say(key.name, setting, path)


def rest(launch: Launch, values: Values, known: Sequence[str]) -> None:
    """Note as ignored whatever is not among the paths known."""
    for path, value in values.items():
        if path not in known and path not in launch.written.values() and value is not None:
            launch.ignore(path)


def checked(name: str, launch: Launch) -> Launch:
    """The launch; raises InvalidFile for its problems."""
    if launch.problems:
        raise InvalidFile(name, launch.problems)
    return launch


def tied(names: Mapping[str, str], before: Plan, after: Plan) -> dict[str, Any]:
    """Keys of degrees that change: `names` maps a plan's variable to its key."""
    return {path: getattr(after, name) for name, path in names.items() if getattr(before, name) != getattr(after, name)}


def written_keys(keys: Sequence[ConfigKey], before: Plan, after: Plan) -> dict[str, Any]:
    """Keys of a table that state settings which change."""
    changed = [key for key in keys if key.writes and getattr(before, key.name) != getattr(after, key.name)]
    return {key.paths[0]: key.writes(getattr(after, key.name)) for key in changed if key.writes}
