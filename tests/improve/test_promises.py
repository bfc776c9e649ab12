"""What an edit promises is what its files give: written, read again and priced, for every framework's samples."""

from collections.abc import Sequence
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.files import File
from optimizer.frameworks.launch_as_read import LaunchAsRead
from optimizer.improve.edits import improve
from optimizer.improve.patch import changes_of, lost, patched
from optimizer.improve.state import current_state
from tests.frameworks import launches
from tests.improve.improvements import FILES, improved, read
from tests.improve.mistakes import MISTAKES
from tests.thorough import sampled


@pytest.mark.parametrize("name", [*(name for name in FILES if name not in MISTAKES), *sampled(MISTAKES, 4)])
def test_an_edit_written_and_read_again_costs_what_it_promised(name: str) -> None:
    files = FILES[name]
    source, question, improvement = improved(name)
    for edit in improvement.every:
        drafts: list[tuple[Sequence[File], LaunchAsRead]] = []

        def reread(written: Sequence[File], drafts: list[tuple[Sequence[File], LaunchAsRead]] = drafts) -> LaunchAsRead:
            drafts.append((written, read(name, written)[1]))
            return drafts[-1][1]

        texts = patched(source, question, edit, files, reread)
        last, again = drafts[-1]
        assert {file.name: file.data for file in last} == texts
        for variable in ("tp", "cp", "pp", "vpp", "ep", "micro_batch", "zero_stage", "recompute", "sequence_parallel"):
            assert getattr(again.plan, variable) == getattr(edit.after.plan, variable), (edit.changes, texts)
        after = current_state(again)
        assert after.throughput / improvement.current.throughput - 1 == pytest.approx(edit.gain, rel=1e-4, abs=1e-5)
        assert after.fits == edit.after.fits
        assert not lost(question.launch, again.launch, changes_of(source, question, edit))


def test_overlap_follows_the_stage_where_no_file_states_it() -> None:
    source, question, improvement = improved("deepspeed by default")
    lower = next(edit for edit in improvement.edits if edit.names == {"zero_stage"})
    assert (question.settings["reduce_overlap"], lower.after.settings["reduce_overlap"]) == (True, False)
    assert [change.flag for change in changes_of(source, question, lower)] == ["zero_optimization.stage"]
    both = [edit for edit in (improvement.pair, improvement.best) if edit and edit.after.settings["reduce_overlap"]]
    assert all(edit.gain > lower.gain for edit in both)
    for edit in both:
        flags = {change.flag: change.after for change in changes_of(source, question, edit)}
        assert edit.after.plan.zero_stage == 3 or flags["zero_optimization.overlap_comm"] == "true"


def test_files_without_a_key_for_overlap_are_not_told_to_overlap() -> None:
    source, question, improvement = improved("deepspeed's command")
    for edit in improvement.every:
        assert not any("zero_optimization" in change.flag for change in changes_of(source, question, edit))


@pytest.mark.parametrize("name", ["nanotron", "DeepSpeed", "torchtitan", "llama3_8b"])
def test_an_edit_that_drops_a_key_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FILES[name]
    source, question, improvement = improved(name)
    victims = {
        "nanotron": ("general:\n  seed: 1\n", "", "general.seed"),
        "DeepSpeed": ('"wall_clock_breakdown": false', '"wall_clock_breakdown": true', "wall_clock_breakdown"),
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
        if name == "DeepSpeed" and edit.names != {"zero_stage"}:
            continue
        with pytest.raises(InputError, match=rf"no patch: it would change .*{key}.* too"):
            patched(source, question, edit, files, lambda written: read(name, written)[1])


def test_a_variable_of_another_flag_is_not_changed_with_it() -> None:
    text = launches.ARRAYS.replace("--profile", "--num-workers $TP").replace('[ -n "$EXTRA" ]', "true")
    text = text.replace("    --bf16\n", "    --bf16\n    --num-workers $TP\n")
    files = [File("train.sh", text.encode())]
    source, question = read("arrays", files)
    edit = improve(question).best
    assert edit is not None
    assert edit.after.plan.tp != question.plan.tp
    texts = patched(source, question, edit, files, lambda written: read("arrays", written)[1])
    assert b"TP=8\n" in texts["train.sh"]
    assert b"--num-workers $TP" in texts["train.sh"]
    assert f"--tensor-model-parallel-size {edit.after.plan.tp}\n".encode() in texts["train.sh"]
