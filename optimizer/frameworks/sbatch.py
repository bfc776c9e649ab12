"""A Slurm batch script that launches a plan, with pyxis where an image is named, queued again at its time limit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optimizer.base.content import template
from optimizer.base.errors import InputError

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.job.plan import Plan

CPUS_PER_GPU = 8
LIMIT = "04:00:00"
WARNING = 600  # seconds before the time limit in which a checkpoint is written
# Where the ranks find each other.
MEETING: Mapping[str, str] = {
    "MASTER_ADDR": '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    "MASTER_PORT": "29500",
}
USAGE = """usage: sbatch [options of sbatch] THIS_FILE {folder}{arguments}
  from the folder of {config}, in which are your data and checkpoints
  {folder:<12} folder of {program}"""


@dataclass(frozen=True, kw_only=True)
class BatchScript:
    """What a program's script has of its own.

    Attributes:
        title: name of the program, and its release.
        unready: the test of bash that the command line is not as `usage` says.
        usage: the lines that say how the script is submitted.
        places: where bash finds program and files.
        mounts: what a container sees besides the folder of submission.
        environment: variables of the ranks.
        task: what each task does with the words that it gets.
        words: of the program's command line, as bash quotes them.
        each_gpu: whether each GPU has a task of its own; else each node has one.
        notes: comments under the title.
        given: what is written before the tasks start.
    """

    title: str
    unready: str
    usage: str
    places: str
    mounts: str
    environment: Mapping[str, str]
    task: str
    words: str
    each_gpu: bool = False
    notes: str = ""
    given: str = ""

    def text(self, job: Job, plan: Plan) -> str:
        """The whole script. Raises InputError where each node has one task, but not all of them equal GPUs."""
        per_node = min(job.gpus, job.cluster.gpus_per_node)
        if job.gpus % per_node and not self.each_gpu:
            raise InputError(f"tasks of a node are alike: {job.gpus} GPUs are no whole nodes of {per_node}")
        nodes = -(-job.gpus // per_node)
        return template("optimizer.frameworks", "sbatch.txt").format(
            name=one_word(job.model.name),
            nodes=nodes,
            tasks=job.gpus if self.each_gpu else nodes,
            tasks_per_node=per_node if self.each_gpu else 1,
            gpus_per_node=per_node,
            cpus=CPUS_PER_GPU * (1 if self.each_gpu else per_node),
            limit=LIMIT,
            warning=WARNING,
            title=self.title,
            summary=plan.summary(),
            notes=self.notes,
            unready=self.unready,
            usage=self.usage,
            places=self.places,
            mounts=self.mounts,
            environment="\n".join(f"{name}={value}" for name, value in self.environment.items())
            + f"\nexport {' '.join(self.environment)}",
            given=self.given,
            task=self.task,
            words=self.words,
        )


def one_word(name: str) -> str:
    r"""A name in which no sign means anything to a shell or to Slurm.

    >>> one_word("gpt3; rm -rf /\n")
    'gpt3-rm-rf'
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-") or "model"


def config_script(
    program: str, config: str, *, task: str, words: str, environment: Mapping[str, str] = {}, arguments: str = ""
) -> BatchScript:
    """The script of a program that reads a config file, once for each node.

    Args:
        program: its name.
        config: the name of its file, which lies where the job is submitted.
        task: what the task of a node does with its words.
        words: of the command line; `$program` is the folder of the program.
        environment: variables besides those by which ranks find each other.
        arguments: what people may add, "" for nothing.
    """
    usage = USAGE.format(
        folder=program.upper(), program=program, config=config, arguments=f" [{arguments}]" if arguments else ""
    )
    return BatchScript(
        title=program,
        unready=f"(($# {'< 1' if arguments else '!= 1'})) || [[ ! -f {config} ]]",
        usage=usage,
        places='program=$(realpath "$1")\nshift',
        mounts="$program:$program",
        environment={**MEETING, **environment},
        task=task,
        words=words,
    )
