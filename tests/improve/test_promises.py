"""What an edit promises is what its files give: written, read again and priced, for every framework's samples."""

from collections.abc import Sequence
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.launch import Source
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import File, read_launch
from optimizer.improve.edits import Improvement, improve
from optimizer.improve.patch import changes_of, lost, patched
from optimizer.improve.state import current_state
from tests.frameworks import launches, test_public_forms
from tests.improve.test_planted import MISTAKES

ZERO = launches.DEEPSPEED.replace('    "overlap_comm": true,\n', "").replace(
    ',\n    "offload_optimizer": {"device": "cpu"}', ""
)
NAMED: dict[str, tuple[dict[str, str], Controls]] = {
    "megatron": ({"train.sh": launches.ARRAYS}, Controls()),
    "megatron-deepspeed": ({"train.slurm": launches.SLURM}, Controls()),
    "mixture": ({"train.sh": launches.MIXTURE}, Controls()),
    "sourcing": ({"train.sh": launches.SOURCING, "cluster.env": launches.ENVIRONMENT}, Controls()),
    "document": ({"train.sh": launches.DOCUMENT}, Controls()),
    "torchtitan": ({"llama3.toml": launches.TORCHTITAN}, Controls()),
    "torchtitan's command": ({"t.sh": launches.TOML_COMMAND, "llama3.toml": launches.TORCHTITAN}, Controls()),
    "deepspeed": (
        {"ds.json": launches.DEEPSPEED, "acc.yaml": launches.ACCELERATE, "args.yaml": launches.TRAINER},
        Controls(),
    ),
    "deepspeed by default": (
        {"ds.json": ZERO, "acc.yaml": launches.ACCELERATE, "args.yaml": launches.TRAINER},
        Controls(),
    ),
    "accelerate": ({"acc.yaml": test_public_forms.MESH}, Controls(model="llama3-8b", global_batch=64)),
    "trainer": ({"sft.yaml": test_public_forms.TRAINER}, Controls(gpus=8)),
    "deepspeed's command": ({"run.sh": test_public_forms.CHAT}, Controls(gpus=8)),
    "picotron": ({"pico.json": launches.PICOTRON}, Controls()),
    "nanotron": ({"nanotron.yaml": launches.NANOTRON}, Controls()),
    "gpt-neox": ({"6-7B.yml": launches.GPT_NEOX}, Controls(gpus=64)),
    "llm-foundry": ({"mpt.yaml": launches.LLM_FOUNDRY}, Controls(gpus=64)),
    "nemo": ({"nemo.yaml": launches.NEMO}, Controls()),
    "nemo's command": ({"h.sh": launches.HYDRA_COMMAND, "nemo.yaml": launches.NEMO}, Controls()),
    "bridge": ({"bridge.yaml": launches.BRIDGE}, Controls(gpus=64)),
    "primus": ({"primus.yaml": launches.PRIMUS}, Controls(gpus=8)),
    "maxtext": ({"maxtext.yml": launches.MAXTEXT}, Controls()),
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
    controls = NAMED[name][1] if name in NAMED else Controls(gpus=64)
    source = read_launch(files, controls.gpus, controls.model)
    return source, launch_as_read(source.launch, controls, name)


def improved(name: str, files: Sequence[File]) -> tuple[Source, LaunchAsRead, Improvement]:
    source, question = read(name, files)
    return source, question, improve(question)


@pytest.mark.parametrize("name", FILES)
def test_an_edit_written_and_read_again_costs_what_it_promised(name: str) -> None:
    files = FILES[name]
    source, question, improvement = improved(name, files)
    for edit in [*improvement.edits, *filter(None, (improvement.pair, improvement.best))]:
        if source.lacking(changes_of(source, question, edit)):
            assert name == "megatron-deepspeed"  # a fork of 2022
            continue
        texts = patched(source, question, edit, files, lambda written: read(name, written)[1])
        again = read(name, [File(file.name, texts[file.name], file.part) for file in files])[1]
        after = current_state(again)
        assert after.throughput / improvement.current.throughput - 1 == pytest.approx(edit.gain, rel=1e-4, abs=1e-5)
        assert after.fits == edit.after.fits
        assert not lost(question.launch, again.launch, changes_of(source, question, edit))


def test_overlap_follows_the_stage_where_no_file_states_it() -> None:
    source, question, improvement = improved("deepspeed by default", FILES["deepspeed by default"])
    lower = next(edit for edit in improvement.edits if edit.names == {"zero_stage"})
    assert (question.settings["reduce_overlap"], lower.after.settings["reduce_overlap"]) == (True, False)
    assert [change.flag for change in changes_of(source, question, lower)] == ["zero_optimization.stage"]
    both = [edit for edit in (improvement.pair, improvement.best) if edit and edit.after.settings["reduce_overlap"]]
    assert all(edit.gain > lower.gain for edit in both)
    for edit in both:
        flags = {change.flag: change.after for change in changes_of(source, question, edit)}
        assert edit.after.plan.zero_stage == 3 or flags["zero_optimization.overlap_comm"] == "true"


def test_files_without_a_key_for_overlap_are_not_told_to_overlap() -> None:
    source, question, improvement = improved("deepspeed's command", FILES["deepspeed's command"])
    for edit in [*improvement.edits, *filter(None, (improvement.pair, improvement.best))]:
        assert not any("zero_optimization" in change.flag for change in changes_of(source, question, edit))


@pytest.mark.parametrize("name", ["nanotron", "deepspeed", "torchtitan", "llama3_8b"])
def test_an_edit_that_drops_a_key_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FILES[name]
    source, question, improvement = improved(name, files)
    victims = {
        "nanotron": ("general:\n  seed: 1\n", "", "general.seed"),
        "deepspeed": ('"wall_clock_breakdown": false', '"wall_clock_breakdown": true', "wall_clock_breakdown"),
        "torchtitan": ("lr = 1.5e-4", "lr = 1.5e-3", "optimizer.lr"),
        "llama3_8b": ("steps=100", "steps=10", "training.steps"),
    }
    before, after, key = victims[name]
    changed = ConfigFile.changed

    def careless(config: ConfigFile, path: str, value: Any) -> ConfigFile:
        right = changed(config, path, value)
        return ConfigFile(right.name, right.text.replace(before, after), right.kind, right.function)

    monkeypatch.setattr(ConfigFile, "changed", careless)
    # Of several files the one with the key must be written.
    for edit in improvement.edits:
        if name == "deepspeed" and edit.names != {"zero_stage"}:
            continue
        with pytest.raises(InputError, match=rf"no patch: it would change .*{key}.* too"):
            patched(source, question, edit, files, lambda written: read(name, written)[1])


def test_a_variable_of_another_flag_is_not_changed_with_it() -> None:
    text = launches.ARRAYS.replace("--profile", "--num-workers $TP").replace('[ -n "$EXTRA" ]', "true")
    text = text.replace("    --bf16\n", "    --bf16\n    --num-workers $TP\n")
    files = [File("train.sh", text.encode())]
    source, question, improvement = improved("megatron", files)
    edit = improvement.best
    assert edit is not None
    assert edit.after.plan.tp != question.plan.tp
    texts = patched(source, question, edit, files, lambda written: read("megatron", written)[1])
    assert b"TP=8\n" in texts["train.sh"]
    assert b"--num-workers $TP" in texts["train.sh"]
    assert f"--tensor-model-parallel-size {edit.after.plan.tp}\n".encode() in texts["train.sh"]
