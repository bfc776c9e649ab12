"""Nodes and GPUs that a batch script asks for, or its launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from optimizer.base.content import content
from optimizer.base.units import is_count
from optimizer.frameworks.bash.pieces import Piece, Word

SBATCH = re.compile(rb"^[ \t]*#(?:SBATCH|FLUX:)[ \t]+(.*?)[ \t]*(?:[ \t]#.*)?$", re.MULTILINE)
GRID = re.compile(rb"^#\$[ \t]+-l[ \t]+(\w+)=(\d+)", re.MULTILINE)
QUEUE = re.compile(rb"^#PBS[ \t]+-q[ \t]+(\w+)", re.MULTILINE)
BATCH = (b"#SBATCH", b"#PBS", b"#$")
PBS = re.compile(rb"^#PBS[ \t]+-l[ \t]+select=(\d+)(?:\S*?:ngpus=(\d+))?", re.MULTILINE)
OPTION = re.compile(rb"(--?[A-Za-z][\w-]*)(?:[=\s]\s*|(?<=-N)|(?<=-n)|(?<=-G))([^\s-]\S*)")
STEPS, STEP_OPTION = ("sbatch", "srun"), re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?:=?(.+))?$", re.DOTALL)
SETS = {
    **dict.fromkeys(("-n", "--nrs"), "sets"),
    **dict.fromkeys(("-g", "--gpu_per_rs"), "each"),
    **dict.fromkeys(("-r", "--rs_per_host"), "of_host"),
}
# What starts a process on each GPU, its options, and what starts those of a node itself.
RANKED, PROGRAM = ("aprun", "mpirun", "mpiexec"), re.compile(r"python[\d.]*$|.*\.(?:py|sh)$")
RANKS = {"-n": "gpus", "-np": "gpus", **dict.fromkeys(("-N", "-ppn", "--ppn", "-npernode"), "gpus_per_node")}
STARTED = {"torchrun", "deepspeed", "accelerate", "torch.distributed.run", "torch.distributed.launch"}
TPU_TYPES = ("--tpu-type", "--device-type", "--accelerator-type")
TPU, BY_CORES = re.compile(r"(v4|v5p|v5e|v5litepod|v6e|tpu7x(?=-\d+x))-(\d{1,5}(?:x\d{1,4}){0,2})"), ("v4", "v5p")
# Options without a value.
ALONE = (
    "-l",
    "-u",
    "-v",
    "-Q",
    "-K",
    "-k",
    "-O",
    "-E",
    "-H",
    "-W",
    "--label",
    "--unbuffered",
    "--exclusive",
    "--overlap",
)
TABLES: Mapping[str, Any] = content("optimizer.frameworks", "machines.toml")
LAUNCHER: Mapping[str, str] = TABLES["launcher"]
RESOURCES: Mapping[str, int] = TABLES["resources"]
GRID_OPTION, RESOURCE = "#$ -l", "SGE_RESOURCE_TYPE"
NAMED = "|".join(f"(?P<{name.replace('-', '_')}>{text})" for name, text in TABLES["devices"].items())
DEVICES = re.compile(rf"(?:(?<![a-z0-9])|(?<=[0-9]x))(?:{NAMED})(?![0-9])", re.IGNORECASE)
FAMILIES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<![a-z0-9])(?:{text})(?![0-9])", re.IGNORECASE) for name, text in TABLES["families"].items()
}
SITES: Mapping[str, re.Pattern[str]] = {name: re.compile(text, re.IGNORECASE) for name, text in TABLES["sites"].items()}


def batch_options(data: bytes) -> dict[str, tuple[int, str, Piece]]:
    r"""What #SBATCH, #PBS and #$ lines ask for: name, then the number, the line's option and its place.

    >>> {name: value for name, (value, *_) in batch_options(b"#SBATCH -N 4\n#SBATCH --gres=gpu:a100:8").items()}
    {'nodes': 4, 'gpus_per_node': 8}
    >>> {name: value for name, (value, *_) in batch_options(b"#PBS -l select=32:ncpus=8:ngpus=4").items()}
    {'nodes': 32, 'gpus_per_node': 4}
    >>> {name: value for name, (value, *_) in batch_options(b"#$ -l rt_AF=8\n#$ -l h_rt=7:00:00:00").items()}
    {'gpus_per_node': 8, 'nodes': 8}
    """
    asked: dict[str, tuple[int, str, Piece]] = {}
    for option, lines in (("#PBS -q", QUEUE), (GRID_OPTION, GRID)):
        for line in lines.finditer(data):
            if (resource := line[1].decode()) not in RESOURCES:
                continue
            per_node = RESOURCES[resource]
            asked["gpus_per_node"] = (per_node, f"{option} {resource}", Piece(str(per_node)))
            if lines is GRID and is_count(text := line[2].decode()):
                asked["nodes"] = (int(text), f"{option} {resource}", Piece(text, (line.span(2),)))
    for chunks in PBS.finditer(data):
        for group, name in ((1, "nodes"), (2, "gpus_per_node")):
            if chunks[group] and is_count(text := chunks[group].decode()):
                asked[name] = (int(text), "#PBS -l select", Piece(text, (chunks.span(group),)))
    for line in SBATCH.finditer(data):
        for match in OPTION.finditer(data, line.start(1), line.end(1)):
            option, text = match[1].decode(), match[2].decode("utf-8", "replace")
            if number := _number(option, text):
                start = match.start(2) + number.start(1)
                place = Piece(number[1], ((start, start + len(number[1])),))
                asked[TABLES["options"][option]] = (int(number[1]), f"#SBATCH {option}", place)
    return _with_tasks(asked)


def step_options(
    texts: Sequence[str], batch: Mapping[str, tuple[int, str, Piece]] = {}
) -> dict[str, tuple[int, str, Piece]]:
    """The same of options of sbatch and srun in the words of a command, which go before those of the batch script.

    >>> words = "srun -l -N 4 --ntasks-per-node=1 --gpus-per-task 8 python pretrain_gpt.py -n 3".split()
    >>> {name: value for name, (value, *_) in step_options(words).items()}
    {'nodes': 4, 'tasks_per_node': 1, 'gpus_per_task': 8, 'tasks': 4, 'gpus_per_node': 8}
    >>> {name: value for name, (value, *_) in step_options("sbatch --nodes=8 -A me job.sh srun -l x".split()).items()}
    {'nodes': 8}
    """
    asked: dict[str, tuple[int, str, Piece]] = {}
    names = [text.rpartition("/")[2] for text in texts]
    for step in STEPS:
        place = names.index(step) + 1 if step in names else len(texts)
        while place < len(texts) and texts[place].startswith("-"):
            match = STEP_OPTION.match(texts[place])
            place += 1
            if match is None:
                continue
            option, text = match.groups()
            if text is None and option not in ALONE and place < len(texts) and not texts[place].startswith("-"):
                text, place = texts[place], place + 1
            if number := _number(option, text or ""):
                asked[TABLES["options"][option]] = (int(number[1]), f"{step} {option}", Piece(number[1]))
    return _with_tasks({**batch, **asked})


def _number(option: str, text: str) -> re.Match[str] | None:
    """The number that an option asks for, None for one that asks for none of these."""
    number = re.search(r"(\d+)(?:-\d+)?$", text.split("(")[0])
    counts = number is not None and is_count(number[1]) and (option != "--gres" or text.startswith("gpu"))
    return number if counts and option in TABLES["options"] else None


def _with_tasks(asked: dict[str, tuple[int, str, Piece]]) -> dict[str, tuple[int, str, Piece]]:
    """What follows from the others: tasks of a node, all tasks, and GPUs of a node by those of a task."""
    if "tasks" in asked and "nodes" in asked and "tasks_per_node" not in asked:
        per_node = asked["tasks"][0] // max(1, asked["nodes"][0])
        asked["tasks_per_node"] = (per_node, asked["tasks"][1], Piece(str(per_node)))
    if "tasks" not in asked and {"nodes", "tasks_per_node"} <= asked.keys():
        tasks = asked["nodes"][0] * asked["tasks_per_node"][0]
        asked["tasks"] = (tasks, asked["tasks_per_node"][1], Piece(str(tasks)))
    if {"tasks_per_node", "gpus_per_task"} <= asked.keys() and "gpus_per_node" not in asked:
        each, option, _ = asked["gpus_per_task"]
        gpus = asked["tasks_per_node"][0] * each
        asked["gpus_per_node"] = (gpus, option, Piece(str(gpus)))
    return asked


def batch_variables(options: Mapping[str, tuple[int, str, Piece]]) -> dict[str, Word]:
    """The variables that the batch system sets for a job with these options.

    >>> list(batch_variables(batch_options(b"#$ -l rt_F=4")))
    ['SLURM_NNODES', 'SLURM_JOB_NUM_NODES', 'NHOSTS', 'SLURM_GPUS_ON_NODE', 'SLURM_GPUS_PER_NODE', 'SGE_RESOURCE_TYPE']
    """
    known: dict[str, Word] = {
        variable: (options[name][2],)
        for name, names in TABLES["variables"].items()
        if name in options
        for variable in names
    }
    asked = options["nodes"][1] if "nodes" in options else ""
    if asked.startswith(GRID_OPTION):
        known[RESOURCE] = (Piece(asked.removeprefix(GRID_OPTION).strip()),)
    return known


def included(texts: Sequence[str]) -> dict[str, int]:
    """Nodes and GPUs of the devices that DeepSpeed's launcher is to take, {} where it says of a host none.

    Source: deepspeedai/DeepSpeed, deepspeed/launcher/runner.py (--include, parse_resource_filter).

    >>> included("deepspeed --include localhost:4,5,6,7 train.py".split()), included(["deepspeed", "-i=a:0,1@b:0,1"])
    ({'nodes': 1, 'gpus_per_node': 4}, {'nodes': 2, 'gpus_per_node': 2})
    >>> included(["deepspeed", "--include", "a@b", "x.py"]), included("python x.py --include localhost:0".split())
    ({}, {})
    """
    names = [text.rpartition("/")[2] for text in texts]
    if not {"deepspeed", "deepspeed.launcher.runner"} & {*names}:
        return {}
    pairs = (
        text.partition("=") if "=" in text else (text, "", after)
        for text, after in zip(texts, [*texts[1:], ""], strict=True)
    )
    stated = next((value.strip("\"'") for name, _, value in pairs if name in ("-i", "--include")), "")
    slots = [host.partition(":")[2].split(",") for host in stated.split("@")]
    if not all(all(map(is_count, each)) for each in slots) or len({*map(len, slots)}) != 1:
        return {}
    return {"nodes": len(slots), "gpus_per_node": len(slots[0])}


def resource_sets(texts: Sequence[str]) -> dict[str, int]:
    """GPUs, and nodes where a host's sets are counted, of the resource sets that LSF's jsrun starts; {} without it.

    Source: https://docs.olcf.ornl.gov/systems/summit_user_guide.html (jsrun).

    >>> resource_sets("jsrun -n 96 -a1 -g1 -r 6 python train.py -n 3".split()), resource_sets(["srun", "-n", "8"])
    ({'nodes': 16, 'gpus_per_node': 6}, {})
    >>> resource_sets("/opt/bin/jsrun --nrs=16 --gpu_per_rs 6 bash run.sh".split())
    {'gpus': 96}
    """
    names = [text.rpartition("/")[2] for text in texts]
    asked: dict[str, int] = {}
    start = names.index("jsrun") + 1 if "jsrun" in names else len(texts)
    for text, after in pairwise((*texts[start:], "")):
        match = STEP_OPTION.match(text)
        if match is None and not is_count(text):
            break
        option, value = match.groups() if match else ("", "")
        if option in SETS and is_count(number := value or after):
            asked[SETS[option]] = int(number)
    if not {"sets", "each"} <= asked.keys():
        return {}
    if count := asked.get("of_host", 0):
        return {"nodes": -(-asked["sets"] // count), "gpus_per_node": count * asked["each"]}
    return {"gpus": asked["sets"] * asked["each"]}


def ranks(texts: Sequence[str]) -> dict[str, int]:
    """Processes that aprun or MPI's launcher starts, a GPU each, and those of a node; {} where others start them.

    Source: https://cpe.ext.hpe.com/docs (aprun); https://docs.open-mpi.org (mpirun); https://www.mpich.org (mpiexec).

    >>> ranks("aprun -n 8 -N 4 --cc depth local_rank.sh python x.py -n 3".split()), ranks(["mpiexec", "-n", "12"])
    ({'gpus': 8, 'gpus_per_node': 4}, {'gpus': 12})
    >>> ranks("mpirun -n 2 torchrun --nproc-per-node 8 x.py".split()), ranks("mpirun -n 2 -npernode 1 x".split())
    ({}, {})
    """
    names = [text.rpartition("/")[2] for text in texts]
    start = next((place for place, name in enumerate(names) if name in RANKED), len(texts))
    program = next((place for place, name in enumerate(names) if place > start and PROGRAM.match(name)), len(texts))
    asked = {
        RANKS[text]: int(after)
        for text, after in pairwise(texts[start:program])
        if text in RANKS and is_count(after) and (text != "-N" or names[start] != "mpiexec")
    }
    single = asked.get("gpus_per_node") == 1 or STARTED.intersection(names[start:])
    return {} if single or "gpus" not in asked else asked


def tpu_chips(texts: Sequence[str]) -> dict[str, int]:
    """Chips of the slices of TPUs that xpk or gcloud is to start, {} where it names none that is known.

    Names of v4 and v5p count cores, two to a chip; topologies count chips.
    Source: AI-Hypercomputer/xpk, src/xpk/core/system_characteristics.py.

    >>> tpu_chips("xpk workload create --tpu-type=v5p-32 --num-slices=2".split())
    {'gpus': 32}
    >>> tpu_chips(["--device-type", "tpu7x-4x4x8"]), tpu_chips(["--tpu-type=v6e-256"]), tpu_chips(["--tpu-type="])
    ({'gpus': 128}, {'gpus': 256}, {})
    """
    options = {text.partition("=")[0]: text.partition("=")[2] or after for text, after in pairwise((*texts, ""))}
    match = next(filter(None, (TPU.fullmatch(options.get(name, "")) for name in TPU_TYPES)), None)
    slices = options.get("--num-slices", "1")
    if match is None or not is_count(slices):
        return {}
    chips = prod(map(int, match[2].split("x")))
    cores = "x" not in match[2] and match[1] in BY_CORES
    return {} if cores and chips % 2 else {"gpus": chips // (1 + cores) * int(slices)}


def device_in(text: str) -> str:
    """The device that a text names, "" for none. 40 and 80 GB versions are told apart where the text does.

    >>> device_in("--constraint=v100-32g"), device_in("llama3_8b_h100.sh"), device_in("--partition=gpu_a100-40")
    ('v100-32', 'h100', 'a100-40')
    >>> device_in("tpu/v5p train.sh"), device_in("../gaudi_spawn.py --use_habana"), device_in("llama3-64xgb300-8k.toml")
    ('tpu-v5p', 'gaudi2', 'gb300')
    """
    match = DEVICES.search(text.replace("_", " "))
    if not match:
        return ""
    name, after = str(match.lastgroup).replace("_", "-"), text[match.end() : match.end() + 4]
    if name == "v100":
        return "v100-32" if "32" in after else "v100-16"
    if name == "a100":
        return "a100-40" if "40" in after else "a100-80"
    return name


def family_in(text: str) -> str:
    """The accelerators that a text names without their kind, "" for none.

    >>> family_in("end_to_end/tpu/llama3/8b/run.sh"), family_in("sft_npu.sh"), family_in("input.sh output.sh")
    ('a TPU', 'an NPU', '')
    """
    return next((name for name, marks in FAMILIES.items() if marks.search(text.replace("_", " "))), "")


def site_in(text: str) -> str:
    """The cluster of the site that a script is written for, "" for none that is known.

    >>> site_in("#SBATCH --output=/iopsstor/scratch/cscs/%u/out"), site_in("#SBATCH -p boost_usr_prod"), site_in("./x")
    ('alps-gh200', 'leonardo-a100', '')
    """
    return next((name for name, marks in SITES.items() if marks.search(text)), "")
