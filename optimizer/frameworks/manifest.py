"""What the pods of a Kubernetes manifest or a task of SkyPilot start: a script, and the nodes and GPUs it asks for.

Source of the fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1 (Container);
kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go; of the variables of a PyTorchJob: kubeflow/trainer
release-1.9, pkg/controller.v1/pytorch/envvar.go; of a task: skypilot-org/skypilot, docs/source/reference/yaml-spec.rst.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InvalidFile
from optimizer.base.units import is_count
from optimizer.catalog.readers.yaml_nodes import value_of, yaml_nodes
from optimizer.frameworks.bash.pieces import Piece

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node

KNOWN_BY = re.compile(r"^apiVersion:.*?^kind:|^kind:.*?^apiVersion:", re.MULTILINE | re.DOTALL)
TASK = re.compile(r"\A(?=.*^resources:)(?=.*^run:)(?!.*^apiVersion:)", re.MULTILINE | re.DOTALL)
DEVICES = re.compile(r".*/(?:gpu|gaudi|tpu)")  # resources that are counted one by one
COPIES = ("replicas", "parallelism", "numNodes")  # of what lies below, by any kind of job
PLACES = ("nodeSelector", "affinity")  # which say the kind of a node
INLINE, GIVEN, HERE = re.compile(r"-[a-z]*c"), re.compile(r"\$\((\w+)\)"), "<<"
PYTORCH, PROCESSES = "PyTorchJob", "nprocPerNode"


@dataclass(frozen=True)
class Pod:
    """The container of a manifest that starts most, or a task.

    Attributes:
        script: what it starts; each byte stands where the manifest has it if `placed`.
        placed: whether it does.
        options: nodes and GPUs of a node that all pods together ask for, as batch_options has them.
        variables: of the container's environment.
        kinds: what the manifest says of the nodes, in words.
    """

    script: bytes
    placed: bool
    options: Mapping[str, tuple[int, str, Piece]]
    variables: Mapping[str, str]
    kinds: str


def pod_in(text: str) -> Pod | None:
    r"""The pod of a manifest whose container starts most, None where none starts anything or the text is no manifest.

    >>> job = "kind: Job\napiVersion: batch/v1\nspec: {parallelism: 4, template: {spec: {containers: [%s]}}}"
    >>> pod = pod_in(job % "{command: [torchrun], args: [x.py, --tp=8], resources: {limits: {nvidia.com/gpu: 8}}}")
    >>> pod.script, pod.placed, {name: count for name, (count, *_) in pod.options.items()}
    (b'torchrun x.py --tp=8', False, {'nodes': 4, 'gpus_per_node': 8})
    >>> pod_in(job % "{name: trainer}"), pod_in("a: 1")
    (None, None)
    """
    if TASK.search(text):
        return _task(text)
    if not KNOWN_BY.search(text):
        return None
    try:
        roots = yaml_nodes(text, "a manifest")
        containers = [each for root in roots for each in _containers(root, 1, "", value_of(root))]
    except (InvalidFile, ValueError, OverflowError, LookupError):
        return None
    started = [each for each in containers if each.words]
    if not started:
        return None
    chosen = max(started, key=lambda each: sum(len(word.value) for word in each.words))
    asking = [each for each in containers if each.gpus]
    nodes, gpus = sum(each.copies for each in asking), max((each.gpus for each in asking), default=0)
    script, placed = _script(text, chosen)
    return Pod(
        script=script,
        placed=placed,
        options=_options(nodes, gpus),
        variables={**_of_operator(chosen.job, nodes), **chosen.variables},
        kinds=" ".join(dict.fromkeys(each.kinds for each in containers)),
    )


def _options(nodes: int, gpus: int) -> dict[str, tuple[int, str, Piece]]:
    counts = {"nodes": nodes, "gpus_per_node": gpus} if nodes and gpus else {}
    return {name: (count, "its pods", Piece(str(count))) for name, count in counts.items()}


def _task(text: str) -> Pod | None:
    r"""A task of SkyPilot, None for one that runs nothing.

    >>> pod = _task("num_nodes: 2\nresources: {accelerators: H100:8}\nrun: python x.py\n")
    >>> pod.script, pod.kinds, {name: count for name, (count, *_) in pod.options.items()}
    (b'python x.py', 'H100:8', {'nodes': 2, 'gpus_per_node': 8})
    """
    from ruamel.yaml.nodes import MappingNode, ScalarNode

    try:
        root = yaml_nodes(text, "a task")[0]
        values = value_of(root)
    except (InvalidFile, ValueError, OverflowError, LookupError):
        return None
    runs = {str(key.value): value for key, value in root.value} if isinstance(root, MappingNode) else {}
    if not isinstance(runs.get("run"), ScalarNode) or not isinstance(values.get("resources"), dict):
        return None
    asked = values["resources"].get("accelerators")
    kinds = [f"{kind}:{count}" for kind, count in asked.items()] if isinstance(asked, dict) else [str(asked or ":0")]
    count, stated = kinds[0].partition(":")[2] or "1", str(values.get("num_nodes", 1))
    if isinstance(asked, list) or len(kinds) > 1 or not is_count(stated) or not count.isdecimal():
        return None
    gpus, nodes = int(count), int(stated)
    script, placed = _block(text, runs["run"])
    own = {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus)} if nodes and gpus else {}
    envs = values.get("envs") if isinstance(values.get("envs"), dict) else {}
    given = {str(name): str(value) for name, value in envs.items() if value is not None}
    return Pod(script=script, placed=placed, options=_options(nodes, gpus), variables={**own, **given}, kinds=kinds[0])


@dataclass(frozen=True)
class _Container:
    """One container of `copies` pods of a job, its words as nodes of the manifest."""

    words: Sequence[Node]
    gpus: int
    copies: int
    variables: Mapping[str, str]
    kinds: str
    job: Mapping[str, Any]


def _containers(node: Node, copies: int, kinds: str, job: Any) -> Iterator[_Container]:
    """The containers below a node, with how many pods there are of each."""
    from ruamel.yaml.nodes import MappingNode, SequenceNode

    if isinstance(node, SequenceNode):
        for item in node.value:
            yield from _containers(item, copies, kinds, job)
    if not isinstance(node, MappingNode):
        return
    keys = {str(key.value): value for key, value in node.value}
    for name in COPIES:
        copies *= int(keys[name].value) if name in keys and is_count(str(keys[name].value)) else 1
    kinds = " ".join((kinds, *(str(value_of(keys[name])) for name in PLACES if name in keys))).strip()
    for name, value in keys.items():
        if name == "containers" and isinstance(value, SequenceNode):
            yield from (_container(each, copies, kinds, job) for each in value.value if isinstance(each, MappingNode))
        else:
            yield from _containers(value, copies, kinds, job)


def _container(node: MappingNode, copies: int, kinds: str, job: Any) -> _Container:
    from ruamel.yaml.nodes import ScalarNode, SequenceNode

    keys, values = {str(key.value): value for key, value in node.value}, value_of(node)
    lists = [keys[name].value for name in ("command", "args") if isinstance(keys.get(name), SequenceNode)]
    words = [word for each in lists for word in each if isinstance(word, ScalarNode)]
    asked = values.get("resources") or {}
    counts = {**(asked.get("requests") or {}), **(asked.get("limits") or {})}
    gpus = sum(int(count) for name, count in counts.items() if DEVICES.fullmatch(name) and is_count(str(count)))
    pairs = (each for each in values.get("env") or () if isinstance(each, dict) and "value" in each)
    variables = {str(each.get("name")): str(each["value"]) for each in pairs}
    return _Container(words, gpus, copies, variables, kinds, job if isinstance(job, dict) else {})


def _script(text: str, container: _Container) -> tuple[bytes, bool]:
    """What a container starts, and whether each byte of it stands where the manifest has it."""
    texts = [str(word.value) for word in container.words]
    shell = next((place for place, word in enumerate(texts[:-1]) if place and INLINE.fullmatch(word)), None)
    if shell is None:
        given = [GIVEN.sub(r"${\1}", word) for word in texts]
        quoted = (shlex.quote(word) if word in texts else f'"{word}"' for word in given)
        return " ".join(quoted).encode(), False
    script, placed = _block(text, container.words[shell + 1])
    filled = GIVEN.sub(lambda match: container.variables.get(match[1], match[0]), script.decode())
    return filled.encode(), placed and filled == script.decode()


def _block(text: str, script: Node) -> tuple[bytes, bool]:
    """The text of a block, each byte where the file has it, blanks ahead; of another text only what it says."""
    if getattr(script, "style", "") != "|" or HERE in script.value:
        return str(script.value).encode(), False
    start = text.index("\n", script.start_mark.index) + 1
    ahead = re.sub(rb"[^\n]", b" ", text[:start].encode())
    return ahead + text[start : script.end_mark.index].encode(), True


def _of_operator(job: Mapping[str, Any], nodes: int) -> dict[str, str]:
    """The variables that the operator of a PyTorchJob sets in each pod."""
    if job.get("kind") != PYTORCH or not nodes:
        return {}
    each = str((job.get("spec") or {}).get(PROCESSES, "auto"))
    processes = {"PET_NPROC_PER_NODE": each} if is_count(each) else {}
    return {
        "PET_NNODES": str(nodes),
        "WORLD_SIZE": str(nodes * int(processes.get("PET_NPROC_PER_NODE", 1))),
        **processes,
    }
