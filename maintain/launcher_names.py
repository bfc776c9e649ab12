"""What launchers call their settings, by release: tables of presets/launchers from the sources of cited commits.

python -m maintain.launcher_names megatron-bridge FOLDER > presets/launchers/megatron-bridge.csv, or torchtitan,
torchtune or ms-swift; FOLDER holds clones named Megatron-Bridge, Megatron-LM, torchtitan, torchtune and ms-swift (of
NVIDIA-NeMo, NVIDIA, pytorch and modelscope on GitHub). Fields of dataclasses and stock configurations are read, nothing
is run.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BRIDGE, MEGATRON = "Megatron-Bridge", "Megatron-LM"
TRAINING = "src/megatron/bridge/training/"
CORE = "megatron/core/"
Owner = tuple[str, str, str]  # clone, path, class


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release of Megatron-Bridge: its commit, and that of the Megatron-LM that it is built with."""

    name: str
    bridge: str
    megatron: str


RELEASES = (
    Release(
        name="0.3.1",
        bridge="9c9dd848966322fc3ed7706747ec13219ef49dda",
        megatron="55ac7082517c3878ae653c07c09c534b8aed49f6",
    ),
    Release(
        name="0.6.0",
        bridge="51885cf132b2814188b6855c25a8588254274c2a",
        megatron="cd4afffa648426a959dc7cb1e24b5ce7d0c3ff54",
    ),
    Release(
        name="main",
        bridge="067f987df03b8355b03192d88d70f1709fedf51a",
        megatron="2a75ac12c54ba6a42b34024756820bf819a2e25f",
    ),
)
CONFIG = f"{TRAINING}config.py"
SHARED = "megatron/training/config/"
TRANSFORMER: tuple[Owner, ...] = (
    (MEGATRON, f"{CORE}transformer/transformer_config.py", "TransformerConfig"),
    (MEGATRON, f"{CORE}model_parallel_config.py", "ModelParallelConfig"),
)
# The owners of each section's keys; what a release does not have is left out.
SECTIONS: Mapping[str, tuple[Owner, ...]] = {
    "": ((BRIDGE, CONFIG, "ConfigContainer"),),
    "model.": (*TRANSFORMER, (BRIDGE, "src/megatron/bridge/models/gpt_provider.py", "GPTModelProvider")),
    "model.transformer.": TRANSFORMER,
    "dataset.": (
        (BRIDGE, CONFIG, "GPTDatasetConfig"),
        (MEGATRON, f"{CORE}datasets/gpt_dataset.py", "GPTDatasetConfig"),
        (MEGATRON, f"{CORE}datasets/blended_megatron_dataset_config.py", "BlendedMegatronDatasetConfig"),
    ),
    "train.": ((BRIDGE, CONFIG, "TrainingConfig"), (MEGATRON, f"{SHARED}training_config.py", "TrainingConfig")),
    "ddp.": ((MEGATRON, f"{CORE}distributed/distributed_data_parallel_config.py", "DistributedDataParallelConfig"),),
    "optimizer.": ((MEGATRON, f"{CORE}optimizer/optimizer_config.py", "OptimizerConfig"),),
    "dist.": (
        (BRIDGE, CONFIG, "DistributedInitConfig"),
        (MEGATRON, f"{SHARED}common_config.py", "DistributedInitConfig"),
    ),
    "checkpoint.": (
        (BRIDGE, CONFIG, "CheckpointConfig"),
        (MEGATRON, f"{SHARED}training_config.py", "CheckpointConfig"),
    ),
    "mixed_precision.": ((BRIDGE, f"{TRAINING}mixed_precision.py", "MixedPrecisionConfig"),),
}
NESTED = "model.transformer."  # since the main branch
TITAN = "torchtitan"
TITAN_COMMITS: Mapping[str, str] = {
    "v0.2.2": "73a0e6979",
    "v0.3.0": "1fdf90d3f9b756ef709ce262bc839f1dab679b5e",
    "main (b5bcd76c6)": "b5bcd76c66d0acb1a08b176d9639425bc55e0b2a",
}
TITAN_SECTIONS: Mapping[str, Sequence[str]] = {
    "model.": ("Model",),
    "training.": ("Training", "TrainingConfig"),
    "parallelism.": ("Parallelism", "ParallelismConfig"),
    "activation_checkpoint.": ("ActivationCheckpoint",),
    "compile.": ("Compile", "CompileConfig"),
    "debug.": ("Debug", "DebugConfig"),
}
TUNE, TUNE_COMMIT = "torchtune", "a6290a5b40758f13bca61c386bc8756a49ef417e"  # v0.6.1
CONFIGS, FUSED = "recipes/configs", "optimizer.fused"
SWIFT, SWIFT_RELEASE, SWIFT_COMMIT = "ms-swift", "main (3602360a5)", "3602360a562313afbf2ef6065fdf61f271a2c5b9"
SWIFT_FILES = tuple(
    f"swift/megatron/arguments/{name}.py" for name in ("megatron_args", "megatron_base_args", "sft_args")
)
TITAN_FILES = ("torchtitan/config/job_config.py", "torchtitan/config/configs.py")


def source(clone: Path, commit: str, path: str) -> str:
    """A file of a commit; "" where there is none."""
    process = subprocess.run(
        ["git", "-C", str(clone), "show", f"{commit}:{path}"], capture_output=True, text=True, check=False
    )
    return process.stdout if process.returncode == 0 else ""


def fields_in(text: str, name: str) -> frozenset[str]:
    r"""The fields of a dataclass: annotated names that are no constants of the class.

    >>> sorted(fields_in("class A:\n    a: int = 1\n    b: ClassVar[int] = 2\n    _c: int = 3\n", "A"))
    ['a']
    """
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == name]
    return frozenset(
        line.target.id
        for node in classes
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if not line.target.id.startswith("_") and "ClassVar" not in ast.unparse(line.annotation)
    )


def keys_of(folder: Path, release: Release) -> frozenset[str]:
    """Every key of a release."""
    commits = {BRIDGE: release.bridge, MEGATRON: release.megatron}
    keys: set[str] = set()
    for section, owners in SECTIONS.items():
        if section == NESTED and release.name != RELEASES[-1].name:
            continue
        for clone, path, name in owners:
            text = source(folder / clone, commits[clone], path)
            keys |= {f"{section}{field}" for field in fields_in(text, name)}
    if release.name == RELEASES[0].name:
        keys.discard("dataset.seq_length")  # a property there
    return frozenset(keys)


def titan_keys(folder: Path, commit: str) -> frozenset[str]:
    """Every key of a release of torchtitan that a plan may decide."""
    texts = [source(folder / TITAN, commit, path) for path in TITAN_FILES]
    return frozenset(
        f"{section}{field}"
        for section, names in TITAN_SECTIONS.items()
        for text in texts
        for name in names
        for field in fields_in(text, name)
    )


def swift_keys(folder: Path) -> frozenset[str]:
    """Every argument of ms-swift's commands on Megatron."""
    texts = [source(folder / SWIFT, SWIFT_COMMIT, path) for path in SWIFT_FILES]
    names = [
        (text, node.name) for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)
    ]
    return frozenset(field for text, name in names for field in fields_in(text, name))


def tune_configs(folder: Path) -> frozenset[str]:
    """Configurations that torchtune ships, and those again whose optimizer has a fused step."""
    clone = folder / TUNE
    listed = subprocess.run(
        ["git", "-C", str(clone), "ls-tree", "-r", "--name-only", TUNE_COMMIT, CONFIGS],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [path for path in listed.stdout.split() if path.endswith(".yaml")]
    names = {path: path.removeprefix(f"{CONFIGS}/").removesuffix(".yaml") for path in paths}
    fused = (f"{name} {FUSED}" for path, name in names.items() if "\n  fused: " in source(clone, TUNE_COMMIT, path))
    return frozenset({*names.values(), *fused})


def table(keys: Mapping[str, Iterable[str]]) -> str:
    """The keys by name, and which releases have them."""
    releases = list(keys)
    sets = {release: frozenset(members) for release, members in keys.items()}
    rows = [
        ",".join([key, *("true" if key in sets[release] else "false" for release in releases)])
        for key in sorted(frozenset().union(*sets.values()))
    ]
    return "\n".join([",".join(["name", *releases]), *rows]) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the table of a launcher."""
    launcher, folder = arguments[0], Path(arguments[1])
    clones = (launcher,) if launcher in (TITAN, TUNE, SWIFT) else (BRIDGE, MEGATRON)
    if missing := [name for name in clones if not (folder / name).is_dir()]:
        sys.exit(f"launcher_names: {folder} has no clone named {' or '.join(missing)}")
    origin = "fields of its dataclasses, as maintain/launcher_names.py reads them"
    if launcher == TUNE:
        print(f"# Configurations that pytorch/torchtune ships, and those with {FUSED}: maintain/launcher_names.py.")
        print(f"# v0.6.1: commit {TUNE_COMMIT}.")
        print(table({"v0.6.1": tune_configs(folder)}), end="")
        return
    if launcher == SWIFT:
        print(f"# Arguments of modelscope/ms-swift on Megatron: {origin}.")
        print(f"# main: commit {SWIFT_COMMIT}.")
        print(table({SWIFT_RELEASE: swift_keys(folder)}), end="")
        return
    if launcher == TITAN:
        print(f"# Keys of the configuration of pytorch/torchtitan: {origin}.")
        for name, commit in TITAN_COMMITS.items():
            print(f"# {name}: commit {commit}.")
        print(table({name: titan_keys(folder, commit) for name, commit in TITAN_COMMITS.items()}), end="")
        return
    print(f"# Keys of the configuration of NVIDIA-NeMo/Megatron-Bridge and Megatron-LM: {origin}.")
    for release in RELEASES:
        print(f"# {release.name}: commit {release.bridge} with NVIDIA/Megatron-LM {release.megatron}.")
    print(table({release.name: keys_of(folder, release) for release in RELEASES}), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
