"""A script of ours with what a user's own one asks of the site: account, partition, time, modules, container.

Source of the options: SchedMD/slurm, doc/man/man1/sbatch.1; NVIDIA/pyxis, README.md (--container-image).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from optimizer.base.errors import InvalidFile

DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(?P<text>-.*?)[ \t]*$", re.MULTILINE)
OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)")
SHORT: Mapping[str, str] = {
    **{"A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "J": "job-name", "N": "nodes", "e": "error"},
    **{"c": "cpus-per-task", "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "t": "time", "a": "array"},
    **{"w": "nodelist", "x": "exclude"},
}
# What the plan decides: how many nodes, processes and GPUs there are, how their script is warned and started again.
OURS = (
    *("nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu", "cpus-per-task", "cpus-per-gpu", "array", "nodelist"),
    *(
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "tres-per-task",
        "signal",
        "requeue",
        "no-requeue",
        "open-mode",
    ),
)
SITE = re.compile(r"^(?:module|ml|spack load|conda activate|micromamba activate|source|\.)[ \t]+\S.*$", re.MULTILINE)
CONTAINER = re.compile(r"--container-(image|mounts)[= \t]+(\"[^\"\n]*\"|'[^'\n]*'|[^\s\\]+)")
VARIABLES: Mapping[str, str] = {"image": "CONTAINER", "mounts": "MOUNTS"}
DEEPEST = 4  # variables that hold one another
STRICT, CONTAINED = "set -euo pipefail\n", "container=()\n"


def alike(text: str, own: str, name: str) -> str:
    r"""A batch script of ours with the options, modules and container of another.

    Args:
        text: ours; what asks Slurm for nothing stays as it is.
        own: the user's, which is read and never run.
        name: of the user's file.

    Raises:
        InvalidFile: the user's script asks Slurm for nothing.

    >>> ours = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --time=04:00:00\nset -euo pipefail\n"
    >>> print(alike(ours, "#SBATCH -A me -t 1-0\n#SBATCH -N 9\nmodule load cuda\n", "own.sh"), end="")
    #!/bin/bash
    #SBATCH --nodes=2
    #SBATCH -A me
    #SBATCH -t 1-0
    # as own.sh has them
    module load cuda
    set -euo pipefail
    """
    theirs = {option: line for option, line in _options(_head(own)) if option not in OURS}
    if not DIRECTIVE.search(_head(own)):
        raise InvalidFile(name, ["no line begins with #SBATCH; --like takes a batch script of Slurm"])
    if not DIRECTIVE.search(text):
        return text
    lines = text.splitlines(keepends=True)
    left = [line for line in lines if not any(option in theirs for option, _ in _options(line))]
    last = max(place for place, line in enumerate(left) if DIRECTIVE.match(line)) + 1
    left[last:last] = [f"#SBATCH {line}\n" for line in theirs.values()]
    site = list(dict.fromkeys(needed for line in SITE.findall(own) for needed in _with_variables(line.strip(), own)))
    written = "".join(left)
    if site:
        block = "".join(f"{line}\n" for line in (f"# as {name} has them", *site))
        written = written.replace(STRICT, block + STRICT, 1)
    usual = "".join(f"{line}\n" for line in _container(own, name))
    return written.replace(CONTAINED, usual + CONTAINED, 1)


def _head(own: str) -> str:
    r"""The lines before the first command, where Slurm looks for its options.

    >>> _head("#!/bin/bash\n#SBATCH -N 2\n\n#SBATCH -t 9\nsrun train.py\n#SBATCH -n 4\n")
    '#!/bin/bash\n#SBATCH -N 2\n\n#SBATCH -t 9\n'
    """
    lines = own.splitlines(keepends=True)
    first = (place for place, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return "".join(lines[: next(first, len(lines))])


def _with_variables(line: str, own: str) -> list[str]:
    r"""A line behind what sets its variables in the user's script; nothing where that is computed, or said twice.

    >>> _with_variables("source $ENV/bin/activate", "ENV=/opt/env\nsource $ENV/bin/activate\n")
    ['ENV=/opt/env', 'source $ENV/bin/activate']
    >>> _with_variables("source $ENV/bin/activate", "ENV=$(pwd)\n"), _with_variables("source $HOME/x", "")
    ([], ['source $HOME/x'])
    """
    needed: list[str] = []
    for name in re.findall(r"\$\{?(\w+)", line):
        lines = re.findall(rf"^[ \t]*((?:export[ \t]+)?{name}=.*?)[ \t]*$", own, re.MULTILINE)
        if len(lines) > 1 or any(re.search(r"[$`;&|]", each) for each in lines):
            return []
        needed += lines
    return [*needed, line]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that nothing closes
        return text.split()


def _options(text: str) -> Iterator[tuple[str, str]]:
    """The options of #SBATCH lines by their long names, each as it is written."""
    for match in DIRECTIVE.finditer(text):
        words: list[str] = []
        for word in _words(match["text"]):
            if word.startswith("-") or not words:
                words.append(word)
            else:
                words[-1] += f" {shlex.quote(word)}"
        for word in words:
            if option := OPTION.match(word):
                name, (start, equals, value) = option["name"], word.partition("=")
                long = name if word.startswith("--") else SHORT.get(name[0], name)
                yield long, f"{start}={shlex.quote(value)}" if equals else word


def _container(own: str, name: str) -> Iterator[str]:
    r"""Image and mounts of pyxis, as bash takes them for what nobody set; one that is computed is left to the user.

    >>> script = "IMG=/x/$USER.sqsh\nsrun --container-image=$IMG --container-mounts=$(pwd):/w python train.py\n"
    >>> print("\n".join(_container(script, "own.sh")))
    : "${CONTAINER:=/x/$USER.sqsh}"
    # MOUNTS is yours to set: own.sh computes it
    """
    for kind, text in dict(CONTAINER.findall(own)).items():
        variable, value = VARIABLES[kind], _written_out(text.strip("\"'"), own)
        yield f': "${{{variable}:={value}}}"' if value else f"# {variable} is yours to set: {name} computes it"


def _written_out(value: str, own: str) -> str:
    """A value with the variables that a script sets filled in, those of the environment left; "" for a computed one."""
    for _ in range(DEEPEST):
        names = dict.fromkeys(re.findall(r"\$\{?(\w+)\}?", value))
        lines = {each: re.findall(rf"^[ \t]*(?:export[ \t]+)?{each}=(.*?)[ \t]*$", own, re.MULTILINE) for each in names}
        if re.search(r"\$(?![\w{])|\$\{\w*[^\w}]|[`\"\\]", value) or any(len(texts) > 1 for texts in lines.values()):
            return ""
        if not any(lines.values()):
            return value
        for each, texts in lines.items():
            for text in texts:
                plain = text.strip("\"'").replace("\\", r"\\")
                value = re.sub(rf"\$(?:{each}\b|\{{{each}\}})", plain, value)
    return ""
