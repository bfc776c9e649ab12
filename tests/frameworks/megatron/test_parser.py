"""A patch writes no flag that the script's own Megatron may not have."""

from pathlib import Path

import pytest

from optimizer.frameworks.files import read_files
from optimizer.frameworks.launch import FlagChange
from optimizer.frameworks.megatron.parser import parser_of, sources_near
from optimizer.frameworks.read import read_launch

BIGSCIENCE = ["--pad-vocab-size-to", "--embed-layernorm", "--micro-batch-size", "--zero-stage", "--deepspeed"]
BIGCODE = ["--attention-head-type", "--use-distributed-optimizer", "--micro-batch-size", "--fim-rate"]
RECENT = ["--micro-batch-size", "--use-precision-aware-optimizer", "--use-megatron-fsdp"]
FOREIGN = ["--micro-batch-size", "--no-such-flag"]
SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000 \\
    --max-position-embeddings 2048
"""


def added(*names: str) -> tuple[FlagChange, ...]:
    return tuple(FlagChange(flag=name, before=None, after="1") for name in names)


@pytest.mark.parametrize(
    ("names", "program", "text", "written", "told"),
    [
        (BIGSCIENCE, "Megatron-DeepSpeed", "", "--checkpoint-activations", "--recompute-granularity"),
        (BIGCODE, "Megatron-LM", "", "--recompute-granularity", "--overlap-grad-reduce"),
        (BIGCODE, "Megatron-LM", "", "--sequence_parallel", "--context-parallel-size"),
        (RECENT, "Megatron-LM", "", "--context-parallel-size", "--cuda-graph-impl"),
        (FOREIGN, "Megatron-LM", "", "--tensor-model-parallel-size", "--sequence-parallel"),
        (FOREIGN, "Megatron-LM", "git checkout core_r0.9.0", "--context-parallel-size", "--recompute-modules"),
        (FOREIGN, "Megatron-LM", "pip install megatron-core==0.12.1", "--recompute-method", "--use-megatron-fsdp"),
        (FOREIGN, "Megatron-LM", "image=nvcr.io/nvidia/nemo:24.07", "--ddp-bucket-size", "--recompute-modules"),
        ([*FOREIGN, "--enable-zero-bubble"], "Megatron-LM", "", "--zero-bubble-max-pending-backward", "--own"),
    ],
)
def test_a_flag_is_written_where_the_parser_surely_has_it(
    names: list[str], program: str, text: str, written: str, told: str
) -> None:
    parser = parser_of(names, program, text)
    assert parser.lacks(added(written)) == ()
    assert parser.lacks(added(written, told, told)) == (told,)
    assert parser.lacks([FlagChange(flag=told, before="1", after=None)]) == ()


@pytest.mark.parametrize("where", ["checkout", "root"])
def test_the_source_beside_a_script_decides(where: str, tmp_path: Path) -> None:
    checkout = tmp_path / "Megatron"
    place = checkout / "megatron" / "training" / "arguments.py"
    (place.parent / "config").mkdir(parents=True)
    place.write_text("group.add_argument('--overlap-grad-reduce')\nArgumentGroupFactory(Config)\n")
    (place.parent / "config" / "own_config.py").write_text("class Config:\n    num_experts_own: int = 1\n")
    script = (checkout / "examples" if where == "checkout" else tmp_path / "jobs") / "train.sh"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    source = read_launch(read_files([str(script)], root=str(checkout) if where == "root" else ""))
    assert source.lacking(added("--overlap-grad-reduce", "--num-experts-own")) == ""
    assert "own source has none" in source.lacking(added("--sequence-parallel"))
    assert sources_near(str(tmp_path / "other.sh")) == ""
    assert (
        "--root CHECKOUT" in read_launch(read_files([str(script)])).lacking(added("--no-such")) or where == "checkout"
    )
