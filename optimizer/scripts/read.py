"""Launch files of any framework, told by what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from optimizer.errors import InputError, InvalidFile
from optimizer.scripts import deepspeed, llm_foundry, maxtext, megatron_yaml, nanotron, torchtitan
from optimizer.scripts.bash_launch import bash_launch
from optimizer.scripts.config_file import OVERRIDE, OVERRIDES, ConfigFile
from optimizer.scripts.config_launch import ConfigLaunch, checked
from optimizer.scripts.launch import Launch
from optimizer.scripts.machines import device_in
from optimizer.scripts.source import Source

BASH = "bash"
KINDS: Mapping[str, str] = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
KNOWN = (
    "a Megatron script",
    "a torchtitan TOML",
    "a DeepSpeed JSON",
    "an Accelerate, nanotron, llm-foundry, Megatron-Bridge, NeMo, Primus or MaxText YAML",
)
LARGEST = 2_000_000  # bytes of a launch file: more is a log or data


@dataclass(frozen=True)
class File:
    """One file as it was found."""

    name: str
    data: bytes

    @property
    def text(self) -> str:
        """Its text."""
        from optimizer.readers.text import decoded

        return decoded(self.data)


def read_files(paths: Sequence[str]) -> list[File]:
    """The files; raises InvalidFile for what is no text, empty, or too large to be a launch."""
    return [_file(path) for path in paths]


def _file(path: str) -> File:
    try:
        size = Path(path).stat().st_size
        if size > LARGEST:
            raise InvalidFile(path, [f"{size / 1e6:.1f} MB is no launch file: at most {LARGEST / 1e6:.0f} MB are read"])
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidFile(path, [f"cannot be read: {error.strerror}; give a launch script or a config"]) from error
    found = File(path, data)
    try:
        text = found.text
    except UnicodeDecodeError as error:
        raise InvalidFile(path, [f"byte {error.start}: no UTF-8 text; give a launch script or a config"]) from None
    if "\0" in text:
        raise InvalidFile(path, ["a binary file; give a launch script or a config"])
    if not text.strip():
        raise InvalidFile(path, ["the file is empty; give a launch script or a config"])
    return found


def read_launch(files: Sequence[File], gpus: int | None = None, model: str = "") -> Source:
    """The launch in one or several files, which then are one launch; `model` is one that the files may leave out.

    Raises InvalidFile for what cannot be read, InputError where the files do not belong together.
    """
    source = _read(files, gpus, model)
    launch = source.launch
    if "device" not in launch.settings and (device := device_in(" ".join(map(_place, files)))):
        launch.say("device", device, "the file's name")
    return source


def _place(file: File) -> str:
    """A file's name and its folder's."""
    path = Path(file.name).absolute()
    return f"{path.parent.name} {path.name}"


def _read(files: Sequence[File], gpus: int | None, model: str) -> Source:
    scripts = [file for file in files if kind_of(file) == BASH]
    configs = tuple(ConfigFile(file.name, file.text, kind_of(file)) for file in files if kind_of(file) != BASH)
    if len(scripts) > 1:
        raise InputError(f"{', '.join(file.name for file in scripts)} are several launches: give one script at a time")
    if not scripts:
        return config_launch(configs, gpus, model)
    found = bash_launch(scripts[0].name, scripts[0].data, gpus)
    for config in configs:
        if not deepspeed.recognised(config.values):
            raise InputError(f"{config.name} does not belong to {scripts[0].name}: only a DeepSpeed config does")
        _with_deepspeed(found.launch, config)
    return found


def _with_deepspeed(launch: Launch, config: ConfigFile) -> None:
    """A script's launch with what its DeepSpeed config says of ZeRO; the script's batch counts."""
    extra = Launch(program=deepspeed.PROGRAM)
    deepspeed.read(extra, config.values)
    for name in ("zero_stage", "offload"):
        if name in extra.written and name not in launch.written:
            launch.say(name, extra.settings[name], extra.written[name])
    for name in extra.ignored:
        launch.ignore(name)


def config_launch(configs: tuple[ConfigFile, ...], gpus: int | None, model: str = "") -> Source:
    """The launch that configs say, by the format that their keys belong to."""
    values = {path: value for config in configs for path, value in config.values.items()}
    names = ", ".join(config.name for config in configs)
    program = megatron_yaml.recognised(values) if not maxtext.recognised(values) else ""
    if program:
        found = megatron_yaml.read(program, configs, gpus, model)
        checked(names, found.launch)
        return found
    for module in (torchtitan, nanotron, llm_foundry, maxtext, deepspeed):
        if module.recognised(values):
            launch = Launch(program=module.PROGRAM)
            if gpus is not None:
                launch.settings["gpus"] = gpus
            if module is torchtitan:
                torchtitan.read(launch, values, configs[0].text)
            else:
                module.read(launch, values)
            return ConfigLaunch(configs=configs, launch=checked(names, launch), write=module.write)
    raise InvalidFile(names, [f"no launch that is known: expected one of {', '.join(KNOWN)}"])


def kind_of(file: File) -> str:
    """The format of a file, by the end of its name, or lines of overrides alone; what has none of these is a script."""
    lines = [line for line in file.text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if Path(file.name).suffix.lower() not in (*KINDS, ".sh") and lines and all(map(OVERRIDE.match, lines)):
        dotted = sum("." in line.partition("=")[0] for line in lines)
        return OVERRIDES if dotted else BASH
    return KINDS.get(Path(file.name).suffix.lower(), BASH)
