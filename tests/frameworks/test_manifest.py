"""What Kubernetes, SkyPilot, xpk, aprun and MosaicML's platform start is read as the script or config that it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.manifest import Pod, pod_in
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import patched
from optimizer.improve.report import lacking
from tests.frameworks import launches

FLAGS = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 8 --bf16 --vocab-size 32000 "
    "--use-distributed-optimizer"
)
MAXTEXT = "python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-70b per_device_batch_size=1"
BLOCK = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master: &pods
      replicas: 1
      template:
        spec:
          nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-h100-80gb}}
          containers:
            - name: pytorch  # é
              env: [{{name: SIZE, value: "8"}}]
              command: [/bin/bash, -c]
              args:
                - |
                  torchrun --nnodes=$PET_NNODES --nproc-per-node=$SIZE pretrain_gpt.py {FLAGS}
              resources: {{limits: {{nvidia.com/gpu: 8, rdma/ib: 1}}}}
    Worker: {{<<: *pods, replicas: 3}}
"""
WORDS = "".join(f"        - {json.dumps(word)}\n" for word in ["pretrain_gpt.py", *FLAGS.split()])
LISTED = f"""apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  template:
    spec:
      containers:
      - command: ["torchrun"]
        args:
        - --nproc_per_node=$(PER_NODE)
        - --nnodes=2
{WORDS}        env:
        - {{name: PER_NODE, value: "8"}}
        resources:
          requests: {{nvidia.com/gpu: "8"}}
"""
TASK = f"""num_nodes: 4
resources:
  accelerators: {{H100: 8}}
envs: {{WIDTH: "1024"}}
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc-per-node=$SKYPILOT_NUM_GPUS_PER_NODE pretrain_gpt.py {FLAGS}
"""


def launch_of(text: str, name: str = "job.yaml", gpus: int | None = None) -> Launch:
    return read_launch([File(name, text.encode())], gpus).launch


def patch_of(text: str) -> str:
    """The file with the best edit made, read again as promised."""
    file = File("job.yaml", text.encode())
    source = read_launch([file])
    question = launch_as_read(source.launch, Controls(device="h100"), "job.yaml")

    def read(files: Any) -> LaunchAsRead:
        return launch_as_read(read_launch(files).launch, Controls(device="h100"), "job.yaml")

    edit = next(each for each in improve(question).edits if each.sure)
    return patched(source, question, edit, [file], read)["job.yaml"].decode()


@pytest.mark.parametrize(
    ("text", "nodes"), [(BLOCK, 4), (LISTED, 2), (TASK, 4), (TASK.replace("{H100: 8}", "H100:8"), 4)]
)
def test_what_a_manifest_starts_is_the_launch(text: str, nodes: int) -> None:
    settings = launch_of(text).settings
    assert {"tp": 8, "hidden": 1024, "nodes": nodes, "gpus_per_node": 8}.items() <= settings.items()


def test_the_node_selector_names_the_device() -> None:
    assert launch_of(BLOCK).settings["device"] == launch_of(TASK).settings["device"] == "h100"
    assert "device" not in launch_of(LISTED).settings


@pytest.mark.parametrize("text", [BLOCK, TASK])
def test_a_block_is_patched_where_it_stands(text: str) -> None:
    changed = patch_of(text)
    assert changed != text
    assert [a for a, b in zip(text.splitlines(), changed.splitlines(), strict=True) if a != b] == [
        line for line in text.splitlines() if "torchrun" in line
    ]


def test_words_of_a_list_are_not_patched() -> None:
    with pytest.raises(InputError, match=r"no patch|by hand"):
        patch_of(LISTED)
    job = LISTED.replace(WORDS, "").replace(
        "--nnodes=2\n", "".join(f"{word}\n        - " for word in MAXTEXT.split()) + "steps=5\n"
    )
    with pytest.raises(InputError, match=r"no patch|by hand"):
        patch_of(job.replace("--nproc_per_node=$(PER_NODE)", "x"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            LISTED.replace("pretrain_gpt.py", "bench.py").replace(" --", " --x-"),
            "no command that is known to train|manifest",
        ),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: [{command: [sleep, inf]}]}\n", "Kubernetes: a manifest"),
        (TASK.replace("{H100: 8}", "[H100:8, A100:8]"), "SkyPilot: a task is not read"),
    ],
)
def test_what_trains_nothing_is_refused(text: str, why: str) -> None:
    if "--x-" in text:
        text = text.replace('"--', '"--x-')
    with pytest.raises(InvalidFile, match=why):
        launch_of(text)


def test_a_text_that_stands_otherwise_has_no_places() -> None:
    pod = pod_in(BLOCK.replace("pretrain_gpt.py", "pretrain_gpt.py <<E"))
    assert pod is not None
    assert not pod.placed


def told(pod: Pod | None) -> tuple[str, dict[str, int], dict[str, str], str] | None:
    """What a pod starts, how many there are, its variables and the words on its nodes."""
    if pod is None:
        return None
    counts = {name: count for name, (count, *_) in pod.options.items()}
    return pod.script.decode(), counts, dict(pod.variables), pod.kinds


def of_task(nodes: int, gpus: int) -> dict[str, str]:
    return {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus)}


@pytest.mark.parametrize(
    ("asked", "more", "said"),
    [
        ("{accelerators: H100:8}", "", ({"nodes": 1, "gpus_per_node": 8}, of_task(1, 8), "H100:8")),
        ("{accelerators: A100}", "num_nodes: 2", ({"nodes": 2, "gpus_per_node": 1}, of_task(2, 1), "A100")),
        ("{accelerators: {A100: 4}}", "", ({"nodes": 1, "gpus_per_node": 4}, of_task(1, 4), "A100:4")),
        ("{cpus: 4}", "num_nodes: 2", ({}, {}, ":0")),
        ("{cpus: 4}", "envs: {A: 1, B: null, C: x}", ({}, {"A": "1", "C": "x"}, ":0")),
        ("{cpus: 4}", "envs: [A]", ({}, {}, ":0")),
        ("[H100]", "", None),
        ("{accelerators: [H100]}", "", None),
        ("{accelerators: {H100: 8, A100: 8}}", "", None),
        ("{accelerators: H100:some}", "", None),
        ("{accelerators: H100:8}", "num_nodes: several", None),
    ],
)
def test_a_task(asked: str, more: str, said: tuple[dict[str, int], dict[str, str], str] | None) -> None:
    assert told(pod_in(f"resources: {asked}\nrun: go\n{more}\n")) == (said and ("go", *said))


def test_a_task_runs_one_text() -> None:
    assert pod_in("resources: {accelerators: H100:8}\nrun: [go]\n") is None


COMMAND = "command: [go]"
ASKS = "resources: {requests: {cpu: 4, nvidia.com/gpu: 4}, limits: {memory: 9Gi, nvidia.com/gpu: 8}}"
IN_SHELL = 'command: [bash, -c, "go $(A) $(B)"]'


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("Pod", f"{{containers: [{{{COMMAND}}}]}}", ("go", {}, {}, "")),
        ("Pod", f"{{containers: [{{{COMMAND}, {ASKS}}}]}}", ("go", {"nodes": 1, "gpus_per_node": 8}, {}, "")),
        (
            "Pod",
            f"{{nodeSelector: {{gpu: h100}}, containers: [{{{COMMAND}, {ASKS}}}, {{command: [longer]}}]}}",
            ("longer", {"nodes": 1, "gpus_per_node": 8}, {}, "{'gpu': 'h100'}"),
        ),
        (
            "JobSet",
            f"{{replicatedJobs: [{{replicas: 2, template: {{parallelism: 3, containers: [{{{COMMAND}, {ASKS}}}]}}}}]}}",
            ("go", {"nodes": 6, "gpus_per_node": 8}, {}, ""),
        ),
        (
            "Pod",
            f"{{containers: [{{{IN_SHELL}, env: [{{name: A, value: 5}}, {{name: B, valueFrom: {{x: y}}}}, value]}}]}}",
            ("go 5 $(B)", {}, {"A": "5"}, ""),
        ),
        (
            "Pod",
            '{containers: [{command: [go, $(A), "a b"], env: [{name: A, value: 5}]}]}',
            ("go \"${A}\" 'a b'", {}, {"A": "5"}, ""),
        ),
        ("PyTorchJob", f"{{containers: [{{{COMMAND}}}]}}", ("go", {}, {}, "")),
        *(
            (
                "PyTorchJob",
                f"{{{stated}replicas: 4, containers: [{{{COMMAND}, {ASKS}}}]}}",
                ("go", {"nodes": 4, "gpus_per_node": 8}, variables, ""),
            )
            for stated, variables in {
                "": {"PET_NNODES": "4", "WORLD_SIZE": "4"},
                "nprocPerNode: auto, ": {"PET_NNODES": "4", "WORLD_SIZE": "4"},
                'nprocPerNode: "8", ': {"PET_NNODES": "4", "WORLD_SIZE": "32", "PET_NPROC_PER_NODE": "8"},
            }.items()
        ),
    ],
)
def test_pods(kind: str, spec: str, said: tuple[str, dict[str, int], dict[str, str], str]) -> None:
    assert told(pod_in(f"apiVersion: v1\nkind: {kind}\nspec: {spec}\n")) == said


@pytest.mark.parametrize(("sign", "ahead", "placed"), [("|", True, True), ("|-", True, True), (">", False, False)])
def test_a_block_is_where_the_file_has_it_to_the_byte(sign: str, ahead: bool, placed: bool) -> None:
    head, block = f"# é\nresources: {{cpus: 4}}\nrun: {sign}\n", "  go 1 \\\n    2\n"
    blanks = "\n".join(" " * len(line.encode()) for line in head.split("\n"))
    pod = pod_in(head + block)
    assert pod is not None
    assert (pod.script.decode(), pod.placed) == (blanks + block if ahead else "go 1 \\\n  2\n", placed)


def test_a_block_stands_where_the_file_has_it() -> None:
    pod = pod_in(BLOCK)
    assert pod is not None
    assert pod.placed
    assert BLOCK.encode().find(b"torchrun") == pod.script.find(b"torchrun")


@pytest.mark.parametrize(
    ("options", "gpus"),
    [("--tpu-type=v5p-32", 16), ("--tpu-type=v6e-256 --num-slices=2", 512), ("--device-type tpu7x-4x4x8", 128)],
)
def test_slices_of_tpus_are_counted(options: str, gpus: int) -> None:
    launch = launch_of(f'xpk workload create {options} --command "{MAXTEXT}"\n', "run.sh")
    assert launch.settings["gpus"] == gpus
    assert any("two devices to JAX" in text for text in launch.unpriced) == ("tpu7x" in options)


def test_processes_that_aprun_starts_are_counted() -> None:
    script = f"PPN=4\naprun -n $((2*PPN)) -N $PPN -d 16 rank.sh python3 pretrain_gpt.py {FLAGS}\n"
    settings = launch_of(script, "run.sh").settings
    assert (settings["gpus"], settings["gpus_per_node"]) == (8, 4)


def test_given_gpus_are_the_processes_of_mpi() -> None:
    script = f"N=$OMPI_COMM_WORLD_SIZE\npython3 pretrain_gpt.py {FLAGS} --global-batch-size $((4 * N))\n"
    assert launch_of(script, "run.sh", 16).settings["global_batch"] == 64


def test_parameters_of_a_run_are_the_config() -> None:
    inner = "".join(f"  {line}\n" for line in launches.LLM_FOUNDRY.splitlines())
    run = f"command: composer train.py p.yaml\ncompute: {{gpus: 16, gpu_type: a100_80gb}}\nparameters:\n{inner}"
    launch, own = launch_of(run), launch_of(launches.LLM_FOUNDRY, "train.yaml", 16)
    assert launch.settings == own.settings | {"device": "a100-80"}
    changed = patch_of(run)
    assert changed.startswith("command: composer")
    assert "\nparameters:\n" in changed


def test_the_yaml_of_megatron_lm_is_its_own() -> None:
    text = """language_model: {num_layers: 24, hidden_size: 1024, num_attention_heads: 16, activation_func: swiglu}
model_parallel: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1, bf16: true}
micro_batch_size: 2
global_batch_size: 64
seq_length: 2048
swiglu: true
vocab_size: 32000
"""
    launch = launch_of(text, "gpt.yaml", 8)
    assert (launch.program, launch.settings["tp"], launch.settings["layers"]) == ("Megatron-LM", 2, 24)
    assert not any("Megatron-Bridge" in text for text in launch.assumed)


def test_what_only_a_run_decides_is_in_the_title() -> None:
    plain = f"torchrun --nproc-per-node 8 pretrain_gpt.py {FLAGS}"
    script = f"if nvidia-smi; then N=3; MBS=2; else N=3; MBS=4; fi\necho $N\n{plain} --micro-batch-size $MBS\n"
    assert "; MBS guessed: 4" in lacking(launch_of(script, "run.sh"))
    assert "N guessed" not in lacking(launch_of(script, "run.sh"))
    turn = f"for MBS in 2 4; do\n{plain} --micro-batch-size $MBS\ndone\n"
    assert "; MBS guessed: 2" in lacking(launch_of(turn, "run.sh"))


@pytest.mark.parametrize(("flag", "kernel"), [("--data-impl mmap", "fused_softmax"), ("", None)])
def test_flags_that_are_gone_tell_of_older_layers(flag: str, kernel: str | None) -> None:
    launch = launch_of(f"torchrun --nproc-per-node 8 pretrain_gpt.py {FLAGS} {flag}\n", "run.sh")
    assert launch.settings.get("attention") == kernel


def test_open_keys_of_a_config_that_is_away_are_named() -> None:
    script = "python3 -m maxtext.trainers.pre_train.train src/base.yml per_device_batch_size=${SIZE} run_name=${NAME}\n"
    with pytest.raises(InvalidFile, match="not found here") as error:
        launch_of(script, "run.sh")
    assert [*error.value.problems[1:]] == ["per_device_batch_size=$SIZE, which is not set (--env)"]


def test_a_question_of_a_manifest_is_priced() -> None:
    question = launch_as_read(replace(launch_of(BLOCK)), Controls(), "job.yaml")
    assert question.job.gpus == 32


TITAN = """cat > /tmp/own.toml <<EOF
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
EOF
torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file /tmp/own.toml
"""


@pytest.mark.parametrize(
    "script",
    [
        TITAN,
        f"docker run --rm image bash -c '\n{TITAN}'\n",
        f"docker run --rm -i image bash <<'OUT'\n{TITAN}OUT\n",
    ],
)
def test_a_config_that_a_script_writes_is_read(script: str) -> None:
    launch = launch_of(script, "run.sh")
    settings = launch_as_read(launch, Controls(device="h100"), "run.sh").job
    assert (launch.settings["tp"], launch.settings["micro_batch"], settings.gpus) == (2, 2, 8)
    source = read_launch([File("run.sh", script.encode())])
    assert isinstance(source, ConfigLaunch)
    with pytest.raises(InputError, match=r"run.sh writes /tmp/own.toml when it runs"):
        source.configs[0].changed("training.local_batch_size", 4)


def test_options_that_are_given_are_those_of_getopts() -> None:
    script = f"""SIZE=$1; shift
while getopts "t:vp:" one; do
  case $one in t) TP=$OPTARG;; v) set -x;; p) PP=$OPTARG;; esac
done
shift $((OPTIND-1))
torchrun --nproc-per-node 8 pretrain_gpt.py {FLAGS} --tensor-model-parallel-size $TP \\
  --pipeline-model-parallel-size ${{PP:-1}} "$@"
"""
    outside = {str(place): word for place, word in enumerate(["7b", "-vt", "2", "-p4", "--sequence-parallel"], 1)}
    outside["5"], outside["6"] = "--", "--sequence-parallel"
    settings = read_launch([File("run.sh", script.encode(), outside=outside)]).launch.settings
    assert (settings["tp"], settings["pp"], settings["sequence_parallel"]) == (2, 4, True)
