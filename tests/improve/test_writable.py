"""Where a program lacks what the best plan needs, the best that can be written is offered and the other told."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.commands.launch.improve import beyond_of, flags_of
from optimizer.frameworks.launch import FlagChange, Launch, Source
from optimizer.frameworks.launch_as_read import Controls
from optimizer.improve import writable
from optimizer.improve.patch import changes_of, patched
from optimizer.improve.state import NOTICEABLE, current_state
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.variables import VARIABLES
from optimizer.page.improve.question import LaunchQuestion
from optimizer.page.improve.view import improve_view
from tests.frameworks.launches import SAMPLES
from tests.improve.improvements import FILES, improve_once, improved, read
from tests.improve.test_report import QUESTION, RISKY, SOURCE, improvement
from tests.thorough import cases, sampled


@dataclass(frozen=True)
class Poorer:
    """Files of a program that has none of some flags but those that they hold."""

    source: Source
    flags: frozenset[str]

    @property
    def launch(self) -> Launch:
        return self.source.launch

    @property
    def leaves(self) -> Mapping[str, Mapping[str, object]]:
        return self.source.leaves

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, object]) -> tuple[FlagChange, ...]:
        return self.source.changes(job, before, after, turned)

    def lacking(self, changes: Sequence[FlagChange]) -> str:
        lacks = [change.flag for change in changes if change.flag in self.flags and change.before is None]
        return f"it has no {', '.join(lacks)}" if lacks else self.source.lacking(changes)

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        return self.source.edited(changes)


@pytest.mark.parametrize("name", sampled(SAMPLES, 2))
def test_a_patch_without_a_flag_that_is_lacking_gains_what_it_promises(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable, "improve", improve_once)  # each begins with the same question
    source, question, improvement = improved(name)
    added = {
        change.flag
        for edit in improvement.every
        for change in source.changes(edit.after.job, question.plan, edit.after.plan, {})
        if change.before is None and change.after is not None
    }
    for flags in [{flag} for flag in sorted(added)][: cases(99, sample=1)] + [added] * bool(added):
        poorer = Poorer(source, frozenset(flags))
        without = writable.improve_files(question, poorer)
        for edit in without.every:
            assert not poorer.lacking(changes_of(source, question, edit))
            assert improvement.best is None or not edit.sure or edit.expected <= improvement.best.expected + 1e-3
        if edit := without.best:
            texts = patched(poorer, question, edit, FILES[name], lambda files: read(name, files)[1])
            files = [replace(file, data=texts[file.name]) for file in FILES[name]]
            after = current_state(read(name, files)[1])
            gain = after.throughput / without.current.throughput - 1
            assert gain == pytest.approx(edit.gain, rel=1e-4, abs=1e-5)
        if without.beyond:
            assert without.best is None or without.beyond.expected > without.best.expected
            assert "more is in reach" in beyond_of(without, poorer)


def test_the_best_of_a_fork_of_2022_is_written_and_the_better_one_is_told() -> None:
    source, question, improvement = improved("slurm")
    whole = improve_once(question)
    assert improvement.best is not None
    assert whole.best is not None
    assert improvement.beyond is not None
    assert improvement.beyond.changes == whole.best.changes
    assert 0.05 < improvement.best.gain < whole.best.gain
    told = beyond_of(improvement, source)
    assert "--recompute-granularity" in told
    assert f"{whole.best.gain:.1%} more is in reach, not {improvement.best.gain:.1%}: " in told
    assert "recompute" in told
    flags = flags_of(improvement, source, FILES["slurm"], Controls())
    assert flags.keys() == {id(edit) for edit in improvement.every}
    assert told in source.launch.unwritten


@pytest.mark.parametrize(
    ("start", "more", "told", "refused"),
    [
        ("--nproc_per_node 8 --nnodes 2", "", "", ""),
        ("--nproc_per_node 8", "", "the files do not say how many GPUs run them; give --gpus 16", "give --gpus 16"),
        ("--nproc_per_node 8 --nnodes 2", "--use-te", "all: no patch: not priced: --use-te", "--use-te"),
    ],
)
def test_what_no_patch_has_is_told_beside_the_edits_and_on_the_page(
    start: str, more: str, told: str, refused: str, tmp_path: Path
) -> None:
    shape = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 50257 --bf16"
    job = "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64"
    plan = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2"
    (path := tmp_path / "train.sh").write_text(
        f"export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun {start} pretrain_gpt.py {shape} {job} {plan} {more}\n"
    )
    shown = CliRunner().invoke(cli, ["improve", str(path)])
    assert shown.exit_code == 0
    assert told in " ".join(shown.output.split())
    assert told or "no patch" not in shown.output
    printed = CliRunner().invoke(cli, ["improve", str(path), "--diff"])
    assert (printed.exit_code, refused in printed.output) == (2 if refused else 0, True)
    page = improve_view(LaunchQuestion(files=(("train.sh", path.read_bytes()),)))["answer"]
    assert ('class="patch"' in page) is not bool(refused)
    assert refused in page


def test_a_patch_is_printed_alone_and_what_is_better_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    improvement = improved("slurm")[2]
    monkeypatch.setattr(writable, "improve_files", lambda *_, **__: improvement)
    monkeypatch.chdir(tmp_path)
    for file in FILES["slurm"]:
        Path(file.name).write_bytes(file.data)
    found = CliRunner().invoke(cli, ["improve", *(file.name for file in FILES["slurm"]), "--diff"])
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("--- ")
    assert "more is in reach" in found.stderr
    assert "more is in reach" not in found.stdout


def test_an_edit_without_one_of_its_changes_keeps_the_others() -> None:
    _, question, improvement = improved("slurm")
    edit = improvement.best
    assert edit is not None
    assert len(edit.changes) > 1
    for change in edit.changes:
        undone = writable._undone(question, edit, change.name)
        gone = set(writable.SPLIT) if change.name in writable.SPLIT else {change.name}
        assert [each.name for each in undone.changes] == [each.name for each in edit.changes if each.name not in gone]
        for name in {*VARIABLES} & {*vars(question.plan)}:
            expected = question.plan if name in gone else edit.after.plan
            assert getattr(undone.after.plan, name) == getattr(expected, name)


@pytest.mark.parametrize(
    ("first", "second", "beyond"),
    [(0.2, 0.1, True), (0.2, 0.2 - 0.9 * NOTICEABLE, False), (0.2, 0.3, False), (0.2, None, True), (None, 0.1, False)],
)
def test_what_cannot_be_written_is_told_where_it_is_noticeably_better(
    first: float | None, second: float | None, beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = [None if gain is None else replace(RISKY, expected=gain) for gain in (first, second)]
    found = [replace(improvement(), best=edit) for edit in edits]
    answers = iter(found)
    monkeypatch.setattr(writable, "improve", lambda question, flex_batch: next(answers))
    monkeypatch.setattr(writable, "_lacking", lambda source, question, edit: {"--x"} if edit is edits[0] else set())
    monkeypatch.setattr(writable, "_without", lambda asked, source, edit: asked)
    told = writable.improve_files(QUESTION, SOURCE)
    assert (told.beyond is edits[0]) is beyond if first else told.beyond is None
    assert told.best is edits[1 if first else 0]


def test_a_patch_may_shard_over_all_replicas_in_either_word(tmp_path: Path) -> None:
    (path := tmp_path / "llama3.toml").write_text(
        """[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 4096
[parallelism]
data_parallel_replicate_degree = 4
data_parallel_shard_degree = 8
"""
    )
    printed = CliRunner().invoke(cli, ["improve", str(path), "--device", "h100", "--diff"])
    assert printed.exit_code == 0
    assert "+data_parallel_replicate_degree = 1" in printed.output
