"""What a script is started with: arguments after its name, and variables of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InvalidFile
from optimizer.cli import cli
from optimizer.commands.values import words
from optimizer.frameworks.files import read_files
from optimizer.frameworks.read import read_launch

SCRIPT = """#!/bin/bash
# Megatron-LM core_v0.19.0
SIZE=$1
TP=${2}
BATCH=$3
NODES=${WORLD_SIZE}
if [ $# -lt 3 ]; then echo "usage: $0 SIZE TP BATCH"; exit 1; fi
if [ $SIZE = 8B ]; then
    LAYERS=32; HIDDEN=4096
elif [ $SIZE = 1B ]; then
    LAYERS=16; HIDDEN=2048
fi
offload=" --optimizer-cpu-offload --optimizer-offload-fraction ${12}"
torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN \\
    --num-attention-heads $((HIDDEN / 128)) --seq-length 4096 --micro-batch-size 1 \\
    --global-batch-size $((${3} * $NODES)) --tensor-model-parallel-size $TP --bf16 --vocab-size 32000 \\
    --max-position-embeddings 4096 --use-distributed-optimizer EXTRA
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace("EXTRA", ""))
    return path


def test_arguments_and_variables_decide(script: Path) -> None:
    for size, layers, tp in (("8B", 32, 4), ("1B", 16, 2)):
        source = read_launch(read_files([str(script)], words(f"{size} {tp} 16"), {"WORLD_SIZE": "4"}))
        said = source.launch.settings
        assert (said["layers"], said["heads"], said["tp"]) == (layers, layers, tp)
        assert (said["gpus"], said["global_batch"]) == (32, 64)


def test_what_is_missing_is_asked_for_by_name(script: Path) -> None:
    with pytest.raises(
        InvalidFile, match=r"arguments, \$1 SIZE, \$2 TP, \$3 BATCH: give them in this order with --args"
    ):
        read_launch(read_files([str(script)]))
    with pytest.raises(InvalidFile, match=r"--num-layers \$LAYERS: which hangs on LAYERS.*--env LAYERS=.*--args"):
        read_launch(read_files([str(script)], words("70B 4 16"), {"WORLD_SIZE": "4"}))
    script.write_text(SCRIPT.replace("EXTRA", "$offload"))
    with pytest.raises(
        InvalidFile, match=r"--optimizer-offload-fraction which is argument 12 of the script \(--args\)"
    ):
        read_launch(read_files([str(script)], words("8B 4 16"), {"WORLD_SIZE": "4"}))


def test_the_edits_are_of_the_launch_that_was_started(script: Path) -> None:
    asked = ["improve", str(script), "--args", "8B 4 16", "--env", "WORLD_SIZE=4"]
    found = CliRunner().invoke(cli, asked, prog_name="optimize")
    assert found.exit_code == 0, found.output
    assert "on 32 × h100" in " ".join(found.stdout.split())
    patch = CliRunner().invoke(cli, [*asked, "--diff"], prog_name="optimize")
    assert patch.exit_code == 0, patch.output
    assert any(line.startswith("-") and "$TP" in line for line in patch.stdout.splitlines())


@pytest.mark.parametrize("wrong", [["--args", "8B 'open"], ["--env", "WORLD SIZE=4"], ["--env", "WORLD_SIZE"]])
def test_what_no_shell_would_take_is_told(script: Path, wrong: list[str]) -> None:
    done = CliRunner().invoke(cli, ["improve", str(script), *wrong], prog_name="optimize")
    assert done.exit_code != 0
    assert "NAME=VALUE" in done.output + str(done.exception) or "quotation" in done.output + str(done.exception)
    assert not isinstance(done.exception, (KeyError, TypeError, AttributeError))


def test_one_key_and_value_head_for_all_queries(tmp_path: Path) -> None:
    """The flag of BigCode's Megatron-LM (bigcode-project/Megatron-LM @7c325cd3, megatron/arguments.py)."""
    path = tmp_path / "starcoder.sh"
    path.write_text(SCRIPT.replace("EXTRA", "--attention-head-type multiquery"))
    said = read_launch(read_files([str(path)], words("8B 4 16"), {"WORLD_SIZE": "4"})).launch.settings
    assert said["kv_heads"] == 1


@pytest.mark.parametrize(
    "line", ["bash train.sh 8B 4 16", "sh -x ./train.sh 8B 4 16", 'set_it() { ./train.sh "$@"; }\nset_it 8B 4 16']
)
def test_a_script_that_another_one_starts_is_read_as_it_is_started(script: Path, line: str) -> None:
    outer = script.parent / "submit.sh"
    outer.write_text(f"#!/bin/bash\n#SBATCH --nodes=4\nexport WORLD_SIZE=$SLURM_NNODES\n{line}\n")
    for files in ([str(outer)], [str(script), str(outer)]):
        said = read_launch(read_files(files)).launch.settings
        assert (said["layers"], said["tp"], said["global_batch"], said["gpus"]) == (32, 4, 64, 32)


LOOP = """NODES=1; TP=1
while [[ $# -gt 0 ]]; do
    case $1 in
        --tp) TP="$2"; shift; shift;;
        --nodes) NODES=$2; shift 2;;
        --quiet) shift;;
        *) echo "unknown $1"; exit 1;;
    esac
done
while true; do sleep 10; done
"""


def test_a_loop_over_the_arguments_is_read(tmp_path: Path) -> None:
    path = tmp_path / "loop.sh"
    path.write_text(
        LOOP + SCRIPT[SCRIPT.index("if [ $SIZE") :].replace("EXTRA", "").replace("${3} * $NODES", "16 * NODES")
    )
    given = words("--tp 4 --quiet --nodes 2")
    said = read_launch(read_files([str(path)], given, {"SIZE": "8B"})).launch.settings
    assert (said["tp"], said["gpus"], said["global_batch"]) == (4, 16, 32)
    plain = read_launch(read_files([str(path)], (), {"SIZE": "8B"})).launch.settings
    assert (plain["tp"], plain["gpus"]) == (1, 8)


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """A script in a folder, whose degree another file outside of that folder sets; a link in the folder leads there."""
    folder = tmp_path / "launches"
    folder.mkdir()
    (tmp_path / "secret.sh").write_text("TP=4\n")
    (folder / "link.sh").symlink_to(tmp_path / "secret.sh")
    text = SCRIPT.replace("EXTRA", "").replace("TP=${2}", "source NAMED")
    (folder / "train.sh").write_text(text)
    return folder / "train.sh"


@pytest.mark.parametrize("named", ["../secret.sh", "./link.sh", "../launches/../secret.sh"])
def test_a_script_reads_what_lies_in_its_folder_or_the_root_alone(away: Path, named: str) -> None:
    away.write_text(away.read_text().replace("NAMED", named))
    started = (words("8B 2 16"), {"WORLD_SIZE": "4"})
    with pytest.raises(InvalidFile, match=f"nothing of {named}, which lies outside of the folder of train.sh: --root"):
        read_launch(read_files([str(away)], *started))
    source = read_launch(read_files([str(away)], *started, root=str(away.parents[1])))
    assert source.launch.settings["tp"] == 4
    (away.parent / "secret.sh").write_text("TP=2\n")  # a file of that name beside the script counts before
    (away.parent / "link.sh").unlink()
    (away.parent / "link.sh").symlink_to("secret.sh")
    assert read_launch(read_files([str(away)], *started)).launch.settings["tp"] == 2


def test_what_lies_outside_and_is_not_needed_is_noted(away: Path) -> None:
    away.write_text(away.read_text().replace("source NAMED", "TP=${2}; source ../secret.sh; TP=${2}"))
    source = read_launch(read_files([str(away)], words("8B 2 16"), {"WORLD_SIZE": "4"}))
    assert source.launch.settings["tp"] == 2
    assert [text for text in source.launch.assumed if text.startswith("nothing of ../secret.sh, which lies outside")]


def test_a_root_is_a_folder(script: Path) -> None:
    answer = CliRunner().invoke(cli, ["improve", str(script), "--root", str(script)])
    assert (answer.exit_code, "is no folder" in answer.output) == (2, True)
