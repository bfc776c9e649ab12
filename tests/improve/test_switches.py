"""CUDA graphs, the dispatcher and the gradient bucket as edits, where a program has the flag."""

import re
from typing import Any

import pytest

from optimizer.frameworks.files import File
from optimizer.frameworks.launch import Source
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import Improvement, improve
from optimizer.improve.patch import changes_of, patched
from optimizer.improve.state import Edit
from tests.frameworks import launches
from tests.improve.mistakes import EP, ONE, OVERLAP, TP, ZERO, script


def asked(text: str, cluster: str = "dgx-h100", stack: str = "") -> tuple[Source, LaunchAsRead, Improvement]:
    source = read_launch([File("train.sh", text.encode())])
    question = launch_as_read(source.launch, Controls(cluster=cluster, stack=stack), "train.sh")
    return source, question, improve(question)


def edits_of(found: Improvement, name: str) -> list[Edit]:
    every = [*found.edits, *(edit for edit in (found.pair, found.best) if edit)]
    return [edit for edit in every if any(change.name == name for change in edit.changes)]


def flags(source: Source, question: LaunchAsRead, edit: Edit) -> dict[str, Any]:
    return {change.flag: change.after for change in changes_of(source, question, edit)}


def again(written: Any) -> LaunchAsRead:
    return launch_as_read(read_launch(written).launch, Controls(cluster="dgx-h100"), "train.sh")


# A width of 512 leaves the host behind: each of its kernels takes less than a launch.
TINY = re.sub(
    r"--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32",
    "--num-layers 32 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8",
    script("8b", 1, 512, 64, f"{ONE} {TP} 1"),
)


def test_graphs_are_captured_where_the_host_is_behind() -> None:
    source, question, found = asked(TINY)
    assert question.settings["cuda_graphs"] is False
    alone = next(edit for edit in edits_of(found, "cuda_graphs") if len(edit.changes) == 1)
    assert alone.gain > 0.05
    assert flags(source, question, alone) == {"--cuda-graph-impl": "local"}
    files = [File("train.sh", TINY.encode())]
    texts = patched(source, question, alone, files, again)
    assert again([File("train.sh", texts["train.sh"])]).settings["cuda_graphs"] is True


@pytest.mark.parametrize(
    "more",
    ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "--cuda-graph-impl local"],
)
def test_no_graph_of_what_is_recomputed_whole_or_captured_already(more: str) -> None:
    _, _, found = asked(TINY.replace("--bf16", f"--bf16 {more}"))
    alone = [edit for edit in edits_of(found, "cuda_graphs") if len(edit.changes) == 1]
    assert not alone
    for edit in (*found.edits, *(e for e in (found.pair, found.best) if e)):
        assert not (edit.after.settings.get("cuda_graphs") and edit.after.plan.recompute == "full")


def test_no_graph_of_a_mixture() -> None:
    _, question, found = asked(launches.MIXTURE)
    assert question.job.model.experts is not None
    assert not edits_of(found, "cuda_graphs")


def test_the_dispatcher_that_the_script_names_is_priced() -> None:
    flex = launches.MIXTURE.replace("--moe-token-dispatcher-type alltoall", "--moe-token-dispatcher-type flex")
    hybrid = flex.replace(
        "--moe-token-dispatcher-type flex", "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep"
    )
    names = [again([File("train.sh", text.encode())]).plan.dispatcher for text in (launches.MIXTURE, flex, hybrid)]
    assert names == ["alltoall", "deepep", "hybridep"]


def test_the_dispatcher_is_an_edit() -> None:
    text = script("30b-a3b", 8, 4096, 512, f"{ONE} {TP} 1 {EP} 32")
    source, question, found = asked(text)
    assert question.plan.dispatcher == "alltoall"
    alone = next(edit for edit in edits_of(found, "dispatcher") if edit.names == {"dispatcher"})
    told = flags(source, question, alone)
    assert told["--moe-token-dispatcher-type"] == "flex"
    assert told["--moe-flex-dispatcher-backend"] == alone.after.plan.dispatcher
    texts = patched(source, question, alone, [File("train.sh", text.encode())], again)
    assert again([File("train.sh", texts["train.sh"])]).plan.dispatcher == alone.after.plan.dispatcher


def test_programs_without_the_flag_keep_their_dispatcher() -> None:
    _, question, found = asked(
        launches.MIXTURE.replace("torchrun --nnodes $SLURM_NNODES --nproc-per-node=8", "deepspeed")
    )
    assert question.launch.program == "Megatron-DeepSpeed"
    assert not edits_of(found, "dispatcher")


def test_a_bucket_that_is_too_small_is_an_edit() -> None:
    text = script("8b", 16, 4096, 256, f"{ONE} {TP} 1", f"{ZERO} {OVERLAP} --ddp-bucket-size 1000000")
    source, question, found = asked(text)
    alone = next(edit for edit in edits_of(found, "bucket") if len(edit.changes) == 1)
    assert alone.after.knobs.bucket > 10 * question.knobs.bucket
    size = flags(source, question, alone)["--ddp-bucket-size"]
    texts = patched(source, question, alone, [File("train.sh", text.encode())], again)
    assert f"--ddp-bucket-size {size}" in texts["train.sh"].decode()


def test_no_bucket_where_nothing_is_reduced() -> None:
    found = asked(script("8b", 1, 4096, 64, f"{ONE} {TP} 8"))[2]
    assert not [edit for edit in edits_of(found, "bucket") if len(edit.changes) == 1]
