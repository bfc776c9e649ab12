"""What a trial folder is run with: one script that starts a plan for a few steps, one that runs all trials in turn."""

from __future__ import annotations

import shlex
from pathlib import Path

from optimizer.answer.answer import Answer
from optimizer.frameworks.megatron.export import COMMUNICATORS, RELEASE, exported_plan, megatron_arguments
from optimizer.frameworks.megatron.export_model import differing
from optimizer.frameworks.megatron.sbatch import argument_rows, environment
from optimizer.job.job import Job

LOG, EXIT_CODE, LAUNCH, RUNNER, MANIFEST = "train.log", "exit-code", "launch.sh", "run.sh", "trials.json"
PREFIX = "trial-"
BY_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")  # variables that torchrun sets itself
LEARNING_RATE = "1e-5"
PATIENCE = 10.0  # times the predicted step after which a trial hangs
STARTUP = 300.0  # to start processes, build the model and compile kernels [s] (assumed)
LONGEST_STARTUP = 1200.0  # after which a trial that prints no step is stopped [s] (assumed)

LAUNCH_TEMPLATE = """\
#!/usr/bin/env bash
# Megatron-LM {release}: {summary}, {steps} steps{notes}
# {launch} MEGATRON [ARGUMENT...]: synthetic data unless arguments name yours, such as --data-path and a tokenizer.
set -euo pipefail
megatron=$1
shift

here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
{environment}arguments=(
{arguments}
    --train-iters {steps}
    --log-interval 1
    --eval-iters 0
    --lr {rate}
    --lr-decay-style constant
)
if (($# == 0)); then
    arguments+=(--mock-data --tokenizer-type NullTokenizer)
fi

if [[ -n ${{SLURM_JOB_ID:-}} ]]; then
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    start=(srun --ntasks {nodes} --ntasks-per-node 1 torchrun --nnodes {nodes} --nproc-per-node {per_node}
        --rdzv-backend c10d --rdzv-endpoint "$head:29500" --rdzv-id "$SLURM_JOB_ID-$$")
elif (({nodes} == 1)); then
    start=(torchrun --standalone --nproc-per-node {per_node})
else
    echo "{nodes} nodes need Slurm" >&2
    exit 2
fi
exec "${{start[@]}}" "$megatron/pretrain_gpt.py" "${{arguments[@]}}" "$@"
"""

RUN_TEMPLATE = """\
#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={per_node}
#SBATCH --exclusive
# Runs every trial of this folder that has no result yet, one after the other; start it again after any interruption.
set -uo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
if [[ ! -e $here/{manifest} ]]; then  # Slurm runs a copy of this file
    here={here}
fi
refuse() {{
    echo "{runner}: $1" >&2
    exit 2
}}
if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
    cat >&2 <<'USAGE'
usage: bash {runner} MEGATRON [ARGUMENT...]     on one node, or inside a Slurm allocation; or with sbatch
       bash {runner} --with COMMAND [WORD...]   COMMAND WORD... FOLDER runs the trial in FOLDER and prints its log
MEGATRON is the folder of Megatron-LM. Data are synthetic unless arguments name yours, such as --data-path.
TRIAL_SECONDS: when a trial is stopped [{limit}].
USAGE
    exit 2
fi
[[ -e $here/{manifest} ]] || refuse "no trials in $here"
if [[ $1 == --with ]]; then
    (($# > 1)) || refuse "--with needs a command"
    command -v "$2" >/dev/null || refuse "--with $2: no such command"
else
    compgen -G "$here/{prefix}*/{launch}" >/dev/null || refuse "Megatron-LM cannot run these plans; give --with"
    [[ -e $1/pretrain_gpt.py ]] || refuse "$1 holds no pretrain_gpt.py: give the folder of Megatron-LM"
    (({nodes} == 1)) || [[ -n ${{SLURM_JOB_ID:-}} ]] || refuse "{nodes} nodes need Slurm: use sbatch, or --with"
fi

child=
stop() {{
    trap - INT TERM
    if [[ -n $child ]]; then
        kill -TERM "$child" 2>/dev/null
        wait "$child" 2>/dev/null
    fi
    echo "run.sh: interrupted; start it again to go on" >&2
    exit "$1"
}}
trap 'stop 130' INT
trap 'stop 143' TERM

for folder in "$here"/{prefix}*/; do
    folder=${{folder%/}}
    trial=${{folder##*/}}
    if [[ -s $folder/{exit_code} ]]; then
        echo "$trial: has a result, exit code $(<"$folder/{exit_code}")"
        continue
    fi
    if [[ -e $folder/{log} ]]; then
        attempt=1
        while [[ -e $folder/interrupted-$attempt.log ]]; do attempt=$((attempt + 1)); done
        mv -- "$folder/{log}" "$folder/interrupted-$attempt.log"
    fi
    if [[ $1 == --with ]]; then
        command=("${{@:2}}" "$folder")
    else
        command=(bash "$folder/{launch}" "$@")
        if [[ ! -e $folder/{launch} ]]; then
            echo "$trial: Megatron-LM cannot run it; give --with"
            continue
        fi
    fi
    echo "$trial: runs"
    timeout --kill-after=60 "${{TRIAL_SECONDS:-{limit}}}" "${{command[@]}}" >"$folder/{log}" 2>&1 &
    child=$!
    wait "$child"
    code=$?
    child=
    echo "$code" >"$folder/{exit_code}.part"
    mv -- "$folder/{exit_code}.part" "$folder/{exit_code}"
    echo "$trial: exit code $code"
done
echo "all trials have a result; optimize trial read $(printf '%q' "$here")"
"""


def launch_script(answer: Answer, steps: int) -> str:
    """The script that runs a plan for so many steps with Megatron-LM.

    Raises InputError when the answer holds no plan.
    """
    arguments, job, plan = megatron_arguments(answer), answer.job, exported_plan(answer)
    nodes, per_node = _nodes(job)
    rows = argument_rows(arguments)
    if job.model.experts and job.stack.imbalance <= 1.0:
        rows.append("--moe-router-force-load-balancing")
    variables = {name: value for name, value in environment(job, plan).items() if name not in BY_TORCHRUN}
    lines = [f"export {name}={value}" for name, value in variables.items()]
    if COMMUNICATORS in arguments:
        lines.append(f"communicators=$here/{COMMUNICATORS}")
    return LAUNCH_TEMPLATE.format(
        release=RELEASE,
        summary=plan.summary(),
        notes="".join(f"\n# {note}" for note in differing(job.model)),
        launch=LAUNCH,
        environment="".join(f"{line}\n" for line in (*lines, "")),
        arguments="\n".join(f"    {row}" for row in rows),
        steps=steps,
        rate=LEARNING_RATE,
        nodes=nodes,
        per_node=per_node,
    )


def trial_name(place: int) -> str:
    """What the folder of a trial is called, counted from 0.

    >>> trial_name(0)
    'trial-01'
    """
    return f"{PREFIX}{place + 1:02d}"


def run_script(job: Job, folder: Path, limit: float) -> str:
    """The script that runs all trials of a folder; each is stopped after so many seconds."""
    nodes, per_node = _nodes(job)
    return RUN_TEMPLATE.format(
        name="trials",
        nodes=nodes,
        per_node=per_node,
        limit=round(limit),
        here=shlex.quote(str(folder.resolve())),
        prefix=PREFIX,
        exit_code=EXIT_CODE,
        log=LOG,
        launch=LAUNCH,
        manifest=MANIFEST,
        runner=RUNNER,
    )


def time_limit(slowest: float, steps: int) -> float:
    """When a trial is stopped whose step should take so many seconds [s]."""
    return LONGEST_STARTUP + PATIENCE * steps * slowest


def gpu_hours(job: Job, step_time: float, steps: int) -> float:
    """What a trial costs, its start included [h].

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"), gpus=8,
    ...     seq_len=2048, global_batch=8)
    >>> gpu_hours(job, 7.5, 20)
    1.0
    """
    return job.gpus * (STARTUP + steps * step_time) / 3600.0


def _nodes(job: Job) -> tuple[int, int]:
    """Nodes, and GPUs of each that are used."""
    per_node = min(job.gpus, job.cluster.gpus_per_node)
    return -(-job.gpus // per_node), per_node
