"""Python configs, keys on command lines over configs, and scripts that source others: read, changed, never run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch
from optimizer.improve.edits import improve
from optimizer.improve.patch import patched
from tests.frameworks import launches
from tests.frameworks.test_launches import question

REGISTRY = "llama3/config_registry.py"


def registry(function: str, text: str = launches.REGISTRY) -> File:
    return File(REGISTRY, text.encode(), function)


def asked(files: list[File], **controls: Any) -> LaunchAsRead:
    told = Controls(**controls)
    return launch_as_read(read_launch(files, told.gpus, told.model).launch, told, "files")


def test_a_python_config() -> None:
    found = asked([registry("llama3_8b")], gpus=16)
    assert found.job.model.name == "llama3.1-8b"
    assert (found.job.seq_len, found.job.global_batch, found.job.dtype) == (8192, 32, "bf16")
    assert (found.plan.tp, found.plan.dp, found.plan.micro_batch, found.plan.recompute) == (1, 16, 2, "full")
    assert found.settings["tokens"] == 100 * 32 * 8192


def test_a_python_config_on_top_of_another() -> None:
    found = asked([registry("llama3_8b_split")], gpus=16)
    plan = found.plan
    assert (plan.tp, plan.cp, plan.dp, plan.micro_batch, plan.num_microbatches) == (4, 2, 2, 2, 16)
    assert (plan.recompute, plan.sequence_parallel, found.job.dtype) == ("none", False, "fp8")
    assert found.settings["tp_overlap"]
    assert found.launch.written["tp_overlap"] == "compile.enable_async_tensor_parallel"


def test_the_form_of_early_2026() -> None:
    found = asked([registry("llama3_70b", launches.REGISTRY_BEFORE)], gpus=64)
    assert found.job.model.name == "llama3.1-70b"
    assert (found.plan.tp, found.plan.micro_batch, found.plan.recompute) == (8, 8, "selective")
    assert (found.job.seq_len, found.job.global_batch, found.job.dtype) == (4096, 64, "fp8")


def test_a_flavor_that_nobody_knows_is_not_its_family() -> None:
    text = launches.REGISTRY_BEFORE.replace("llama3_70b", "deepseek_v3_17b").replace("70B", "17B")
    with pytest.raises(InputError, match="deepseek_v3 17B is no model that is known: give --model"):
        asked([registry("deepseek_v3_17b", text)], gpus=64)
    whole = text.replace("17b", "671b").replace("17B", "671B")
    assert asked([registry("deepseek_v3_671b", whole)], gpus=64).job.model.name == "deepseek-v3"


def test_which_function_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "config_registry.py"
    path.write_text(launches.REGISTRY)
    with pytest.raises(InputError, match=r"several configs: give .*NAME being one of llama3_8b, llama3_8b_split"):
        read_launch(read_files([str(path)]))
    with pytest.raises(InputError, match="no function nothing makes a config: llama3_8b, llama3_8b_split"):
        read_launch(read_files([f"{path}:nothing"]))
    assert read_launch(read_files([f"{path}:llama3_8b"]), 8).launch.settings["recompute"] == "full"


def test_nothing_of_a_python_config_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f'open({str(mark)!r}, "w").close()\n{launches.REGISTRY}'.replace(
        "steps=100", f"steps=open({str(mark)!r}, 'w')"
    )
    asked([registry("llama3_8b", text)], gpus=8)
    assert not mark.exists()


@pytest.mark.parametrize("text", ["def f(:\n", "x = 1\n", "def f() -> Trainer.Config:\n    return g()\n"])
def test_what_is_no_config_is_said(text: str) -> None:
    with pytest.raises(InputError, match="config"):
        read_launch([registry("", text)], 8)


def test_keys_of_the_command_are_over_the_python_config() -> None:
    found = asked([File("run.sh", launches.TITAN_COMMAND.encode()), registry("")])
    plan = found.plan
    assert (plan.tp, plan.cp, plan.dp, plan.micro_batch) == (8, 2, 2, 1)
    assert found.job.gpus == 32
    assert found.job.cluster.device.name == "h100"
    assert plan.dp * plan.micro_batch * plan.num_microbatches == 64
    alone = File("run.sh", launches.TITAN_COMMAND.encode())
    with pytest.raises(InputError, match=r"llama3_8b_split is a function of the config_registry.py of llama3"):
        read_launch([alone])


CASES: list[tuple[dict[str, str], dict[str, Any], dict[str, Any]]] = [
    (
        {"run.sh": launches.TOML_COMMAND, "llama3.toml": launches.TORCHTITAN},
        {"tp": 2, "dp": 4, "micro_batch": 4, "recompute": "full"},
        {"gpus": 8},
    ),
    (
        {"run.sh": launches.HYDRA_COMMAND, "nemo.yaml": launches.NEMO},
        {"tp": 2, "pp": 2, "dp": 8, "micro_batch": 2},
        {"gpus": 32, "global_batch": 128},
    ),
    *(
        (
            {"run.sh": text},
            {"tp": 2, "dp": 32, "micro_batch": 1, "zero_stage": 0},
            {"gpus": 64, "seq_len": 4096, "global_batch": 256},
        )
        for text in (
            launches.DOCUMENT,
            launches.QUOTED_DOCUMENT,
            launches.SUBMITTED_DOCUMENT,
            launches.PRINTED_DOCUMENT,
        )
    ),
    (
        {"run.sh": launches.LAUNCHER_COMMAND},
        {"tp": 8, "pp": 8, "dp": 2, "micro_batch": 1},
        {"gpus": 128, "seq_len": 2048, "global_batch": 256},
    ),
    (
        {"run.sh": launches.MAXTEXT_COMMAND},
        {"dp": 32, "micro_batch": 2, "shard": 8, "zero_stage": 3, "recompute": "full"},
        {"gpus": 32, "seq_len": 8192, "global_batch": 64},
    ),
    (
        {"train.sh": launches.SOURCING, "cluster.env": launches.ENVIRONMENT},
        {"tp": 4, "dp": 4, "micro_batch": 2},
        {"gpus": 16, "seq_len": 4096},
    ),
]


@pytest.mark.parametrize(("files", "plan", "job"), CASES, ids=lambda value: "+".join(value))
def test_fields(files: Any, plan: Any, job: Any) -> None:
    found = question(files)
    assert {name: getattr(found.plan, name) for name in plan} == plan
    assert {name: getattr(found.job, name) for name in job} == job


def test_a_config_that_a_command_names_is_found_beside_it(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "llama3.toml").write_text(launches.TORCHTITAN)
    (tmp_path / "run.sh").write_text(launches.TOML_COMMAND)
    found = asked(read_files([str(tmp_path / "run.sh")]))
    assert (found.plan.tp, found.plan.micro_batch, found.job.gpus) == (2, 4, 8)
    assert any("llama3.toml, which" in sentence for sentence in found.launch.assumed)


def test_a_sourced_file_beside_the_script_is_read_and_a_missing_one_named(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(launches.SOURCING + ". ./missing.env\n")
    with pytest.raises(InputError):
        asked(read_files([str(tmp_path / "train.sh")]))
    (tmp_path / "cluster.env").write_text(launches.ENVIRONMENT)
    found = asked(read_files([str(tmp_path / "train.sh")]))
    assert found.plan.tp == 4
    assert any("cluster.env, which the script sources" in sentence for sentence in found.launch.assumed)
    assert "source ./missing.env" in found.launch.ignored


def test_keys_of_hydra_in_a_here_document_that_a_variable_holds() -> None:
    found = asked([File("run.sh", launches.READ_DOCUMENT.encode())], model="llama3-8b")
    plan, job = found.plan, found.job
    assert (plan.tp, plan.dp, plan.micro_batch, plan.sequence_parallel) == (4, 8, 1, True)
    assert (job.gpus, job.seq_len, job.global_batch, job.stack.name) == (32, 8192, 256, "nemo-2024")
    assert found.launch.unpriced == [
        "megatron_amp_O2 false, as NeMo 1 has it unless told",
        "conf/megatron_gpt_config.yaml, which was not read",
    ]
    with pytest.raises(
        InputError, match=r"(?s)give --model.*give it too: optimize improve run.sh megatron_gpt_config.yaml"
    ):
        asked([File("run.sh", launches.READ_DOCUMENT.encode())])


def test_what_serves_or_converts_a_model_trains_none() -> None:
    serving = launches.ARRAYS.replace("pretrain_gpt.py", "tools/run_text_generation_server.py")
    with pytest.raises(InputError, match="no command that is known to train"):
        asked([File("run.sh", serving.encode())])


def test_a_script_that_a_step_of_slurm_starts_is_read(tmp_path: Path) -> None:
    outer, inner = launches.QUOTED_DOCUMENT.split("cat <<'EOF' > run.sh\n")
    (tmp_path / "run.sh").write_text(inner.partition("EOF")[0])
    (tmp_path / "job.sh").write_text(f"{outer}\n{launches.STARTED}\n")
    assert asked(read_files([str(tmp_path / "job.sh")])).plan.tp == 2


def test_files_that_source_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(launches.SOURCING)
    (tmp_path / "cluster.env").write_text(f"source cluster.env\n{launches.ENVIRONMENT}")
    assert asked(read_files([str(tmp_path / "train.sh")])).plan.tp == 4


PATCHED: list[list[File]] = [
    [registry("llama3_8b")],
    [File("run.sh", launches.TITAN_COMMAND.encode()), registry("")],
    [File("run.sh", launches.MAXTEXT_COMMAND.encode())],
    [File("run.sh", launches.DOCUMENT.encode())],
    [File("run.sh", launches.LAUNCHER_COMMAND.encode())],
    [File("train.sh", launches.SOURCING.encode()), File("cluster.env", launches.ENVIRONMENT.encode())],
]


@pytest.mark.parametrize("files", PATCHED, ids=lambda files: "+".join(file.name for file in files))
def test_patches_read_back_as_the_plan(files: list[File]) -> None:
    gpus = 16 if len(files) == 1 and files[0].name == REGISTRY else None
    source = read_launch(files, gpus)
    asked_of = launch_as_read(source.launch, Controls(gpus=gpus), "files")
    found = improve(asked_of)

    def again(written: Any) -> LaunchAsRead:
        return launch_as_read(read_launch(written, gpus).launch, Controls(gpus=gpus), "files")

    edits = [edit for edit in (*found.edits, found.pair, found.best) if edit]
    assert edits
    for edit in edits:
        texts: Mapping[str, bytes] = patched(source, asked_of, edit, files, again)
        assert set(texts) == {file.name for file in files}
        assert any(texts[file.name] != file.data for file in files)
        for file in files:
            if file.name == "cluster.env":
                assert texts[file.name] == file.data
