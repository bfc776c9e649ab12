"""Random jobs for every target, exported, and what the launchers themselves say of the files.

python -m tests.clients.accepted FOLDER [JOBS [TARGETS [SEED]]] prints the table by target and release, for so many jobs
of each target; another seed draws other jobs. FOLDER is one that .ci/launchers filled, and may hold what no registry
has: Megatron-LM's release as megatron-lm-0.16.1, and main branches as megatron-lm-main, torchtitan-main and, with its
submodule, megatron-bridge-main; nanotron-main; primus-main with the Megatron-LM that it runs as megatron-lm-primus; and
maxtext-main with what it imports as jax.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Self

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import cluster_names, load_cluster, load_model, load_stack, model_names
from optimizer.catalog.targets import aimed, fixed_for, launchers
from optimizer.frameworks.every import TARGETS
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.llama import unlike_llama
from optimizer.frameworks.maxtext.config import MODELS as MAXTEXT_MODELS
from optimizer.frameworks.megatron.sbatch import environment
from optimizer.frameworks.nemo.export import FILE as NEMO_FILE
from optimizer.frameworks.nemo.export import OF_PRESET
from optimizer.frameworks.torchtitan.export_python import function_of
from optimizer.frameworks.torchtitan.models import MODELS
from optimizer.frameworks.tuning.program import program
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.target import on_device
from optimizer.search.plan.planner import plan

HERE = Path(__file__).parent
TOOLS = os.environ.get("OPTIMIZE_TEST_LAUNCHERS", "")  # the folder of launchers, for tests
TUNED = ("llama3.1-8b", "llama3.2-1b", "llama3.2-3b", "qwen2.5-7b", "qwen2.5-0.5b", "qwen3-8b", "mistral-7b")
TUNING = ("trl", "axolotl", "llama-factory", "ms-swift", "torchtune", "unsloth")
STACKS: Mapping[str, tuple[str, ...]] = {
    "megatron-lm": ("megatron-core", "megatron-te-2026-no-overlap", "megatron-2021"),
    "megatron-bridge": ("megatron-bridge-2025", "nemo-2024"),
    "nemo": ("nemo-2024", "megatron-core-2025"),
    "torchtitan": ("torchtitan-2024",),
    "maxtext": ("maxtext", "maxtext-gpu-2024"),
    "nanotron": ("nanotron-2024",),
    "primus": ("primus-2025",),
    "deepspeed": ("llm-foundry-fsdp-2023",),
    "accelerate": ("llm-foundry-fsdp-2023", "fms-fsdp-2024"),
    **{target: (target,) for target in TUNING},
}
# What it has.
NAMES: Mapping[str, tuple[str, ...]] = {
    "nemo": tuple(OF_PRESET),
    "torchtitan": tuple(MODELS),
    "maxtext": (*MAXTEXT_MODELS, "llama3.2-1b", "llama3.2-3b"),
    "nanotron": tuple(name for name in TUNED if not unlike_llama(load_model(name))),
    **dict.fromkeys(TUNING, TUNED),
    "torchtune": tuple(name for name in program("torchtune").models if name in TUNED),
}
METHODS = ("full", "lora", "lora:64:attention", "dora", "qlora", "qlora:8")
FORMATS: Mapping[str, str] = {"deepspeed": "fp16", "accelerate": "fp16"}  # besides bf16
LARGEST = 8e10  # parameters
QUIET = 600  # seconds that a client may take
FIRST = "from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser"  # what takes time of what TRAINERS have
TORCH = "import torch._dynamo, torch.distributed.checkpoint, torch.distributed.fsdp, torch.distributed.pipelining"
TRAINERS = ("trl-1.16.0", "peft-0.21.2", "tuning")


@dataclass(frozen=True, kw_only=True)
class Client:
    """What loads one file: a program here, what it needs on its path, and the file whose presence asks for it."""

    target: str
    release: str
    file: str
    program: str
    path: tuple[str, ...] = ()

    def sources(self, tools: Path) -> list[Path] | None:
        """The folders that it needs; None where one of them is not there."""
        folders = [tools / folder for folder in self.path]
        return folders if all(folder.is_dir() for folder in folders) else None


CLIENTS = (
    Client(
        target="megatron-lm",
        release="core_v0.16.1",
        file="megatron.args",
        program="megatron_loads.py",
        path=("megatron-lm-0.16.1",),
    ),
    Client(
        target="megatron-lm",
        release="core_v0.19.0",
        file="megatron.args",
        program="megatron_loads.py",
        path=("megatron-core-0.19.0",),
    ),
    Client(
        target="megatron-lm",
        release="main (d98e8a64d)",
        file="megatron.args",
        program="megatron_loads.py",
        path=("megatron-lm-main",),
    ),
    Client(
        target="megatron-bridge",
        release="0.3.1",
        file="megatron-bridge-0.3.1.overrides",
        program="bridge_loads.py",
        path=("megatron-bridge-0.3.1",),
    ),
    Client(
        target="megatron-bridge",
        release="0.6.0",
        file="megatron-bridge-0.6.0.overrides",
        program="bridge_loads.py",
        path=("megatron-bridge-0.6.0", "megatron-core-0.19.0"),
    ),
    Client(
        target="megatron-bridge",
        release="main (067f987df)",
        file="megatron-bridge-main.overrides",
        program="bridge_loads.py",
        path=("megatron-bridge-main/src", "megatron-bridge-main/3rdparty/Megatron-LM"),
    ),
    Client(
        target="nemo",
        release="2.5.3",
        file=NEMO_FILE,
        program="nemo_loads.py",
        path=("nemo-toolkit-2.5.3", "nemo-run-0.11.1", "megatron-core-0.14.0"),
    ),
    Client(
        target="torchtitan",
        release="v0.2.2",
        file="torchtitan.toml",
        program="torchtitan_loads.py",
        path=("torchtitan-0.2.2",),
    ),
    Client(
        target="torchtitan",
        release="v0.3.0",
        file="torchtitan_0_3.py",
        program="torchtitan_loads.py",
        path=("torchtitan-0.3.0",),
    ),
    Client(
        target="torchtitan",
        release="main",
        file="torchtitan_main.py",
        program="torchtitan_loads.py",
        path=("torchtitan-main",),
    ),
    Client(target="deepspeed", release="0.19.8", file="deepspeed.json", program="sharding_loads.py"),
    *(
        Client(
            target=target, release=path[0], file=next(iter(TARGETS[target].files)), program="tuning_loads.py", path=path
        )
        for target, path in {
            "trl": TRAINERS,
            "axolotl": ("axolotl-0.21.0", *TRAINERS),
            "llama-factory": ("llamafactory-0.9.5", *TRAINERS),
            "ms-swift": ("ms-swift-4.6.0", *TRAINERS),
            "torchtune": ("torchtune-0.6.1", "torchao-0.9.0", "tuning"),
            "unsloth": ("unsloth-2026.10.9", *TRAINERS),
        }.items()
    ),
    *(
        Client(
            target=target,
            release="main",
            file=next(reversed(TARGETS[target].files)),
            program="training_loads.py",
            path=path,
        )
        for target, path in {
            "maxtext": ("maxtext-main/src", "jax"),
            "nanotron": ("nanotron-main/src", "tuning"),
            "primus": ("primus-main", "megatron-lm-primus"),
        }.items()
    ),
    Client(target="accelerate", release="1.15.0", file="accelerate-fsdp.yaml", program="sharding_loads.py"),
)


def drawn(random: Random, target: str) -> Job:
    """A job for this target."""
    while True:
        try:
            job = Job(
                model=load_model(random.choice(NAMES.get(target, model_names()))),
                cluster=load_cluster(random.choice(cluster_names())),
                stack=aimed(load_stack(random.choice(STACKS[target])), target),
                gpus=random.choice((1, 1, 2, 8) if target in TUNING else (4, 8, 12, 16, 32, 64)),
                seq_len=random.choice((2048, 4096, 8192)),
                global_batch=random.choice((24, 48, 96)),
                dtype="bf16" if target in TUNING else random.choice(("bf16", "bf16", FORMATS.get(target, "fp8"))),
            )
            job = tuned(random, job, target) if target in TUNING else job
        except InputError:  # the device has no units for the format, or the cluster too few GPUs
            continue
        pins = random.choice(({}, {}, {"recompute": "full"}, {"pp": 2}, {"tp": 2}))
        try:
            job = job.with_limits(fixed=fixed_for(target, pins), bubble=1.0)
        except InputError:
            continue
        vendor = job.cluster.device.vendor in launchers()[target].vendors
        if vendor and job.model.params <= LARGEST:
            return job


def tuned(random: Random, job: Job, target: str) -> Job:
    """A job of fine-tuning that the target can have."""
    files = TARGETS[target]
    train = random.choice([train for train in METHODS if train.partition(":")[0] in files.methods])
    bases = [base for base in ("int8", "nf4") if base in program(target).bases] if train.startswith("lora") else []
    stack = on_device(job.stack, launchers()[target], job.cluster.device.name, job.gpus)
    loss = random.choice(["", "", *program(target).losses])
    return replace(
        job,
        stack=stack,
        train=train,
        base=random.choice(["", "", *bases]),
        optimizer=random.choice(["", *files.optimizers]),
        loss=loss,
        lengths=random.choice(("", "900:600")),
        packing=random.choice(("on", "off")) if not loss else "off",
    )


def answers(target: str, jobs: int, seed: int = 0) -> Iterator[Answer]:
    """Answers to so many jobs of a target."""
    random, found = Random(f"{target}{seed}"), 0
    while found < jobs:
        answer = plan(drawn(random, target), top=0, trials=0, priced_risk=False, explained=False, read_twice=False)
        if answer.plan is None:
            continue
        found += 1
        yield risked(answer)


def risked(answer: Answer) -> Answer:
    """The answer whose user takes the risk that its plan runs out of memory: launch files are refused unasked."""
    return replace(answer, job=answer.job.with_limits(oom_risk=EVEN_RISK))


def described(answer: Answer, folder: Path) -> dict[str, Any]:
    """What a client has to know of a job."""
    job, model = answer.job, answer.job.model
    assert answer.plan is not None
    experts = model.experts
    return {
        "folder": str(folder),
        "model": model.name,
        "gpus": job.gpus,
        "plan": asdict(answer.plan),
        "target": job.stack.name.partition("@")[2],
        "seq_len": job.seq_len,
        "packing": job.packing == "on",
        **{"method": job.method.name, "rank": job.method.rank, "base": job.method.base, "optimizer": job.optimizer},
        **{"loss": job.training_loss.name, "samples": answer.plan.micro_batch // job.training_loss.together},
        "environment": {
            name: value for name, value in environment(job, answer.plan).items() if not name.startswith("MASTER")
        },
        "dropout": 0.1 if job.stack.features.dropout else 0.0,
        **{name: getattr(model, name) for name in ("layers", "hidden", "heads", "kv_heads", "vocab")},
        "experts": experts.count if experts else 0,
        "top_k": experts.top_k if experts else 0,
        "function": function_of(MODELS[model.name]) if model.name in MODELS else "",
    }


class Clients:
    """The clients of a folder of launchers, each in a fork of a process that has imported what all of its kind need."""

    def __init__(self, tools: Path) -> None:
        self.tools = tools
        self.started: dict[tuple[str, ...], subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started.values():
            process.communicate()

    def _process(self, path: tuple[str, ...]) -> subprocess.Popen[str]:
        if path not in self.started:
            # Set before anything is imported; the home of each client is its own.
            said = {"CUDA_VISIBLE_DEVICES": "", "USE_HF": "1", "HF_HUB_OFFLINE": "1", "DISABLE_VERSION_CHECK": "1"}
            self.started[path] = subprocess.Popen(
                [str(self.tools / "env/bin/python"), str(HERE / "forks.py"), FIRST if path else TORCH],
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(str(self.tools / each) for each in path), **said},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self.started[path]

    def output(self, client: Client, program: str, folder: Path, given: str = "") -> str:
        """What a program prints where the client's sources are; HOME is the folder."""
        with tempfile.TemporaryDirectory() as scratch:
            files = [Path(scratch, name) for name in ("input", "output", "errors")]
            files[0].write_text(given)
            asked = {"program": str(HERE / program), "path": [*map(str, client.sources(self.tools) or ())]}
            asked |= {"home": str(folder), "files": [*map(str, files)], "seconds": QUIET}
            process = self._process(TRAINERS if {*TRAINERS} <= {*client.path} else ())
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            ended = int(process.stdout.readline())
            if ended:
                raise AssertionError(f"{program} on {client.path} ended with {ended}: {files[2].read_text()[-2000:]}")
            return files[1].read_text()

    def verdicts(self, client: Client, folder: Path) -> list[str]:
        """What the client says of every folder that holds its file, "" where it accepts it."""
        jobs = [
            json.loads(path.read_text())
            for path in sorted(folder.glob("*/job"))
            if (path.parent / client.file).exists()
        ]
        for job in jobs:
            path = Path(job["folder"]) / client.file
            job |= {"overrides": str(path), "module": path.stem}
            job |= {"toml": str(path)} if path.suffix == ".toml" else {}
        lines = self.output(client, client.program, folder, "\n".join(json.dumps(job) for job in jobs)).splitlines()
        said = [json.loads(line)["verdict"] for line in lines if line.startswith('{"job"')]
        assert len(said) == len(jobs), lines
        return said


def written(target: str, jobs: int, folder: Path, seed: int = 0) -> Counter[str]:
    """Export so many jobs of a target, a folder each; how often each file was refused, and for what."""
    refused: Counter[str] = Counter()
    for number, answer in enumerate(answers(target, jobs, seed)):
        found = exported(answer)
        refused.update(f"{name}: {reason.partition('it lacks ')[2]}" for name, reason in found.refused.items())
        if found.texts:
            place = folder / f"{number:03d}"
            write_exports(answer, place)
            (place / "job").write_text(json.dumps(described(answer, place)))
    return refused


def main(arguments: list[str]) -> None:
    """Print the table."""
    tools, jobs = Path(arguments[0]).resolve(), int(arguments[1]) if len(arguments) > 1 else 20
    seed = int(arguments[3]) if len(arguments) > 3 else 0
    print("| target | release | jobs | refused with a reason | given to the launcher | accepted |")
    print("|---|---|---|---|---|---|")
    for target in arguments[2].split(",") if len(arguments) > 2 else STACKS:
        with tempfile.TemporaryDirectory() as scratch, Clients(tools) as clients:
            reasons = written(target, jobs, Path(scratch), seed)
            for client in CLIENTS:
                if client.target != target or client.sources(tools) is None:
                    continue
                said = clients.verdicts(client, Path(scratch))
                accepted = sum(not verdict for verdict in said)
                print(f"| {target} | {client.release} | {jobs} | {jobs - len(said)} | {len(said)} | {accepted} |")
                for verdict in sorted({verdict for verdict in said if verdict}):
                    print(f"  not accepted: {verdict}", file=sys.stderr)
            for reason, count in sorted(reasons.items()):
                print(f"  {count} x {reason}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
