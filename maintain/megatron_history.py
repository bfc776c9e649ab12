"""Since when parsers of the Megatron family have their flags: presets/launchers/megatron-history.csv.

python -m maintain.megatron_history FOLDER > presets/launchers/megatron-history.csv; FOLDER holds clones with their
history, by the names below.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from maintain.launcher_names import fields_in, source
from optimizer.catalog.targets import MEGATRON_LM, argument_names

# Columns of the table, and the clones (of NVIDIA, deepspeedai, bigscience-workshop and bigcode-project on GitHub).
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "megatron-lm": ("Megatron-LM",),
    "megatron-deepspeed": ("Megatron-DeepSpeed",),
    "forks": ("bigscience-Megatron-DeepSpeed", "bigcode-Megatron-LM"),
}
PARSERS = ("megatron/arguments.py", "megatron/training/arguments.py")
CONFIGS = (
    "megatron/core/model_parallel_config.py",
    "megatron/core/transformer/transformer_config.py",
    "megatron/training/config/training_config.py",
    "megatron/training/config/common_config.py",
)
ADDED = re.compile(r"add_argument\(\s*((?:['\"]--?[\w-]+['\"]\s*,?\s*)+)")
FACTORY = re.compile(r"ArgumentGroupFactory\((\w+)")


def months(clone: Path) -> dict[str, str]:
    """The last commit of each month on the main line of a clone."""
    command = ["git", "-C", str(clone), "log", "--first-parent", "--reverse", "--format=%cs %H"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {date[:7]: commit for date, commit in map(str.split, lines)}


def flags_at(clone: Path, commit: str) -> set[str]:
    """The flags of a commit's parser: those that it adds, and fields of the dataclasses that it makes flags of."""
    texts = [source(clone, commit, path) for path in PARSERS]
    flags = {name for text in texts for words in ADDED.findall(text) for name in re.findall(r"--[\w-]+", words)}
    classes = [name for text in texts for name in FACTORY.findall(text)]
    configs = [text for path in CONFIGS if classes and (text := source(clone, commit, path))]
    flags |= {f"--{field}" for name in classes for text in configs for field in fields_in(text, name)}
    return {flag.replace("_", "-") for flag in flags}


def since(clone: Path) -> dict[str, str]:
    """The first month of every flag of a clone."""
    first: dict[str, str] = {}
    for month, commit in months(clone).items():
        for flag in flags_at(clone, commit):
            first.setdefault(flag, month)
    return first


def main(folder: Path) -> None:
    """Print the table."""
    tables: dict[str, dict[str, str]] = {}
    for column, clones in COLUMNS.items():
        firsts = [since(folder / clone) for clone in clones]
        tables[column] = {flag: min(each[flag] for each in firsts if flag in each) for flag in set().union(*firsts)}
    listed = frozenset().union(*(argument_names("megatron-lm", release) for release in MEGATRON_LM))
    print("# The month since which parsers of the Megatron family have a flag, as maintain/megatron_history.py reads")
    print("# the histories of NVIDIA/Megatron-LM, deepspeedai/Megatron-DeepSpeed, and of the forks")
    print("# bigscience-workshop/Megatron-DeepSpeed and bigcode-project/Megatron-LM.")
    print(",".join(["name", *tables]))
    for flag in sorted(set().union(*tables.values())):
        row = [table.get(flag, "") for table in tables.values()]
        known = flag in listed or any(row[1:]) or row[0] < "2025-12"  # later parsers do not show every field
        if known:
            print(",".join([flag, *row]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
