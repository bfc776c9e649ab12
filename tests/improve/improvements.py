"""A launch of every framework, and what improves it: worked out once for all tests of this folder."""

from collections.abc import Sequence
from functools import cache

import pytest

from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Source
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve import writable
from optimizer.improve.edits import Improvement, improve
from tests.frameworks import launches, test_public_forms
from tests.frameworks.launches import SAMPLES
from tests.improve.mistakes import MISTAKES

ZERO = launches.DEEPSPEED.replace('    "overlap_comm": true,\n', "").replace(
    ',\n    "offload_optimizer": {"device": "cpu"}', ""
)
NAMED: dict[str, tuple[dict[str, str], Controls]] = {
    **{name: (files, Controls(gpus=gpus)) for name, (files, gpus) in SAMPLES.items()},
    "sourcing": ({"train.sh": launches.SOURCING, "cluster.env": launches.ENVIRONMENT}, Controls()),
    "document": ({"train.sh": launches.DOCUMENT}, Controls()),
    "torchtitan's command": ({"t.sh": launches.TOML_COMMAND, "llama3.toml": launches.TORCHTITAN}, Controls()),
    "deepspeed by default": (
        {"ds.json": ZERO, "acc.yaml": launches.ACCELERATE, "args.yaml": launches.TRAINER},
        Controls(),
    ),
    "accelerate": ({"acc.yaml": test_public_forms.MESH}, Controls(model="llama3-8b", global_batch=64)),
    "trainer": ({"sft.yaml": test_public_forms.TRAINER}, Controls(gpus=8)),
    "deepspeed's command": ({"run.sh": test_public_forms.CHAT}, Controls(gpus=8)),
    "nemo's command": ({"h.sh": launches.HYDRA_COMMAND, "nemo.yaml": launches.NEMO}, Controls()),
    "maxtext's command": ({"maxtext.sh": launches.MAXTEXT_COMMAND}, Controls()),
    **{name: ({"train.sh": text}, Controls(cluster=cluster)) for name, (text, cluster, _) in MISTAKES.items()},
}
FILES = {name: [File(path, text.encode()) for path, text in files.items()] for name, (files, _) in NAMED.items()}
FUNCTIONS = {
    "llama3_8b": launches.REGISTRY,
    "llama3_8b_split": launches.REGISTRY,
    "llama3_70b": launches.REGISTRY_BEFORE,
}
FILES |= {name: [File("llama3/config_registry.py", text.encode(), name)] for name, text in FUNCTIONS.items()}


def read(name: str, files: Sequence[File]) -> tuple[Source, LaunchAsRead]:
    """Files that stand in the place of a launch of that name."""
    controls = NAMED[name][1] if name in NAMED else Controls(gpus=64)
    source = read_launch(files, controls.gpus, controls.model)
    return source, launch_as_read(source.launch, controls, name)


_IMPROVED: dict[tuple[int, bool], tuple[LaunchAsRead, Improvement]] = {}


def improve_once(question: LaunchAsRead, *, flex_batch: bool = False) -> Improvement:
    """`improve`, which keeps what it has answered about one question."""
    key = (id(question), flex_batch)
    if key not in _IMPROVED:
        _IMPROVED[key] = question, improve(question, flex_batch=flex_batch)
    return _IMPROVED[key][1]


@cache
def improved(name: str) -> tuple[Source, LaunchAsRead, Improvement]:
    """A launch as it is read, and what improves it."""
    source, question = read(name, FILES[name])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writable, "improve", improve_once)
        return source, question, writable.improve_files(question, source)
