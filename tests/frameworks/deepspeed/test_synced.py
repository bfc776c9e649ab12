"""Gradients that Accelerate's FSDP holds whole until the last micro-batch, and the key that has them sharded."""

from __future__ import annotations

import pytest

from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Source
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import patched
from optimizer.improve.state import Edit

ARGUMENTS = (
    *("--model_name_or_path meta-llama/Llama-2-70b-hf", "--per_device_train_batch_size 1"),
    *("--gradient_accumulation_steps 16", "--gradient_checkpointing True", "--model_max_length 4096"),
)
SCRIPT = f"accelerate launch --use_fsdp --num_processes 32 train.py {' '.join(ARGUMENTS)}"
BY_TRAINER = [File("train.sh", f"{SCRIPT} --bf16 True --fsdp 'full_shard auto_wrap'\n".encode())]
IN_YAML = [
    File(
        "sft.yaml",
        b"model_name_or_path: meta-llama/Llama-2-70b-hf\nper_device_train_batch_size: 1\nmax_length: 4096\nbf16: true\n"
        b"gradient_accumulation_steps: 16\ngradient_checkpointing: true\n",
    ),
    File("fsdp.yaml", b"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nmixed_precision: bf16\n"),
]
KEY = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"


def asked(files: list[File]) -> tuple[Source, LaunchAsRead]:
    source = read_launch(files, 32)
    return source, launch_as_read(source.launch, Controls(cluster="dgx-h100", gpus=32, seq_len=4096), files[0].name)


def offered(question: LaunchAsRead) -> list[Edit]:
    found = improve(question)
    return [edit for edit in (*found.edits, found.pair, found.best) if edit and "syncs_last" in edit.names]


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (BY_TRAINER, ' --accelerator_config \'{"gradient_accumulation_kwargs": {"sync_each_batch": true}}\'\n'),
        (IN_YAML, "\naccelerator_config:\n  gradient_accumulation_kwargs:\n    sync_each_batch: true\n"),
    ],
)
def test_they_can_be_sharded(files: list[File], line: str) -> None:
    """A key of the Trainer, not of Accelerate's own file; whole they are 140 GB of a device of 80."""
    source, question = asked(files)
    assert "syncs_last" not in question.launch.fixed
    assert any(f"{KEY} shards them in each" in sentence for sentence in question.launch.assumed)
    edit = offered(question)[0]
    texts = patched(source, question, edit, files, lambda written: asked(written)[1])
    assert all(texts[file.name] == file.data for file in files[1:] if file.name in texts)
    assert texts[files[0].name].decode().endswith(line)
    _, then = asked([File(file.name, texts.get(file.name, file.data)) for file in files])
    assert "syncs_last" not in then.settings
    assert any(
        sentence == f"{KEY} true, which Transformers of 4.46 to February 2026 do not heed"
        for sentence in then.launch.assumed
    )
    assert not offered(then)


def test_a_program_that_has_no_such_key_keeps_them() -> None:
    """`Accelerator` in a script of one's own: none of its arguments is one of the Trainer's."""
    source, question = asked([File("train.sh", f"{SCRIPT} --fsdp_sharding_strategy FULL_SHARD\n".encode())])
    assert question.settings["syncs_last"]
    assert "syncs_last" in source.launch.fixed
    assert not offered(question)


def test_a_batch_that_nothing_says_is_the_trainers() -> None:
    """Of a program that has an argument which no other has; 8 sequences a GPU are TrainingArguments' own."""
    given = "--model_name_or_path meta-llama/Llama-2-70b-hf --eval_strategy no"
    command = f"accelerate launch --config_file fsdp.yaml --num_processes 32 x.py {given}\n"
    _, question = asked([File("train.sh", command.encode()), IN_YAML[1]])
    assert (question.plan.micro_batch, question.settings.get("syncs_last")) == (8, True)
    assert "per_device_train_batch_size 8: the Trainer's own where nothing says otherwise" in question.launch.assumed
