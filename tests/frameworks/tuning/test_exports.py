"""Launch files of programs that fine-tune models: what they say of a plan, what they refuse, how they are read back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed, argument_names, launchers
from optimizer.cli import cli
from optimizer.frameworks.every import TARGETS
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.files import File
from optimizer.frameworks.read import read_launch
from optimizer.frameworks.tuning.program import program
from optimizer.job.job import Job
from optimizer.job.loss import SFT
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.switches import switched_to
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan
from tests.clients.accepted import TUNING
from tests.frameworks.read_back import OTHERS, WITH, differing
from tests.frameworks.read_back import answers as drawn

YAMLS = {
    "trl": "trl.yaml",
    "axolotl": "axolotl.yaml",
    "llama-factory": "llama-factory.yaml",
    "ms-swift": "ms-swift.yaml",
}


def answer(target: str, train: str = "qlora:32", gpus: int = 1, **changes: object) -> Answer:
    """An answer for a target whose plan is given."""
    stack = aimed(load_stack(target), target)
    usual = {"model": load_model("llama3.1-8b"), "cluster": load_cluster("dgx-h100"), "seq_len": 2048}
    job = Job(**{**usual, "stack": stack, "gpus": gpus, "global_batch": 16 * gpus, "train": train, **changes})
    found = plan(job, top=0, trials=0, priced_risk=False, explained=False, read_twice=False)
    assert found.plan is not None
    return found


def with_plan(target: str, gpus: int, chosen: Plan, train: str = "lora") -> Answer:
    """The same with another plan."""
    return replace(answer(target, train, gpus), plan=chosen, knobs=Knobs())


def test_every_program_has_a_target_and_words() -> None:
    assert set(TUNING) == {name for name, files in TARGETS.items() if files.tunes}
    for target in TUNING:
        own = program(target)
        assert {"full", "lora", "qlora"} <= set(own.methods)
        assert {"bf16", "nf4"} <= set(own.bases)
        assert "adamw" in own.optimizers
        assert launchers()[target].only["tp"] == 1


@pytest.mark.parametrize("target", YAMLS)
def test_a_file_says_the_plan_and_the_method(target: str) -> None:
    found = answer(target, optimizer="paged-adamw-8bit")
    values = YAML(typ="safe").load(exported(found).texts[YAMLS[target]])
    assert found.plan is not None
    micro = values.get("per_device_train_batch_size", values.get("micro_batch_size"))
    assert (micro, values["gradient_accumulation_steps"]) == (found.plan.micro_batch, found.plan.num_microbatches)
    assert values.get("lora_r", values.get("lora_rank")) == 32
    assert "paged_adamw_8bit" in values.values()
    assert values.get("load_in_4bit") is True or 4 in (values.get("quantization_bit"), values.get("quant_bits"))
    assert "meta-llama/Llama-3.1-8B" in values.values()
    assert 2048 in (values.get(name) for name in ("max_length", "sequence_len", "cutoff_len"))


@pytest.mark.parametrize("target", YAMLS)
def test_several_gpus_shard_with_fsdp(target: str) -> None:
    chosen = Plan(dp=8, micro_batch=2, num_microbatches=8, zero_stage=3, recompute="full")
    texts = exported(with_plan(target, 8, chosen)).texts
    together = "".join(texts.values())
    assert "reshard_after_forward: true" in together
    assert "activation_checkpointing: true" in together
    assert ("num_processes: 8" in together) is (target in ("trl", "llama-factory"))


@pytest.mark.parametrize("target", YAMLS)
def test_weights_that_fsdp_shards_stay_in_half_precision(target: str) -> None:
    """Accelerate casts what is trained up to fp32 where formats are mixed: the files do not, and are read as priced."""
    chosen = Plan(dp=8, micro_batch=2, num_microbatches=8, zero_stage=3, recompute="full")
    found = with_plan(target, 8, chosen, train="full")
    texts = exported(found).texts
    values = YAML(typ="safe").load(texts[YAMLS[target]])
    assert values["bf16"] == ("full" if target == "axolotl" else False)
    assert "mixed_precision: bf16" not in texts.get("accelerate.yaml", "")
    ours = texts[YAMLS[target]]
    mixed = ours.replace("bf16: false", "bf16: true").replace("bf16: full", "bf16: auto")
    for text, bytes_each in ((ours, None), (mixed, 12)):
        launch = read_launch([File(YAMLS[target], text.encode())], 8).launch
        assert launch.settings.get("dtype", "bf16") == "bf16"
        if "fsdp" in text:
            assert launch.settings.get("optimizer_bytes") == bytes_each


@pytest.mark.parametrize("target", YAMLS)
def test_a_device_without_bf16_trains_adapters_in_fp16(target: str) -> None:
    """Without FlashAttention-2, whose kernels are for bf16's devices; all weights want a master copy to be scaled."""
    where = {"cluster": load_cluster("t4"), "dtype": "fp16", "global_batch": 4, "seq_len": 512}
    found = answer(target, model=load_model("llama3.2-1b"), **where)
    values = YAML(typ="safe").load(exported(found).texts[YAMLS[target]])
    assert (values["fp16"], values["bf16"], "sdpa" in values.values()) == (True, False, True)
    assert values.get("dtype", values.get("torch_dtype", "float16")) == "float16"
    assert found.plan is not None
    whole = replace(found.job, train="full")
    assert "master copy" in "".join(program(target).unexpressed(whole, found.plan))


@pytest.mark.parametrize("target", ["axolotl", "llama-factory"])
@pytest.mark.parametrize("frozen", ["embedding,head,layers.0-27", "embedding,layers.2-31", "layers.0-3"])
def test_frozen_layers_are_read_back(target: str, frozen: str) -> None:
    found = answer(target, f"frozen:{frozen}", cluster=load_cluster("dgx-h200"))
    launch = read_launch([File(YAMLS[target], exported(found).texts[YAMLS[target]].encode())], 1).launch
    read = replace(found.job, train=launch.settings["train"])
    assert (read.frozen_layers, read.method.frozen) == (found.job.frozen_layers, found.job.method.frozen)
    assert not any("freeze" in each or "frozen" in each for each in launch.unpriced)


def test_frozen_parts_that_a_program_cannot_say_are_refused() -> None:
    for target, frozen, why in (
        ("llama-factory", "layers.4-5", "neither the first nor the last"),
        ("axolotl", "mlp", "frozen parts of layers"),
        ("trl", "embedding", "can only have full, lora, dora, qlora"),
    ):
        found = answer(target, f"frozen:{frozen}", cluster=load_cluster("dgx-h200"))
        assert any(why in said for said in exported(found).refused.values())


@pytest.mark.parametrize(
    ("target", "train", "said"),
    [("llama-factory", "frozen:vision", True), ("llama-factory", "full", False), ("ms-swift", "full", False)],
)
def test_a_vision_tower_is_frozen_or_trained_as_it_was_priced(target: str, train: str, said: bool) -> None:
    found = answer(target, train, model=load_model("qwen3-vl-2b"))
    text = exported(found).texts[YAMLS[target]]
    key = "freeze_vision_tower" if target == "llama-factory" else "freeze_vit"
    assert YAML(typ="safe").load(text)[key] is said
    launch = read_launch([File(YAMLS[target], text.encode())], 1).launch
    assert launch.settings.get("train", "full") == train
    unsaid = read_launch([File(YAMLS[target], re.sub(f"{key}: .*\n", "", text).encode())], 1).launch
    assert unsaid.settings["train"] == "frozen:vision"
    assert not any("freeze" in each for each in launch.unpriced)


def test_a_frozen_tower_is_refused_where_no_key_says_it() -> None:
    found = answer("axolotl", "frozen:vision", model=load_model("qwen3-vl-2b"))
    assert any("a frozen vision tower" in said for said in exported(found).refused.values())


@pytest.mark.parametrize("target", YAMLS)
def test_weights_on_the_host_are_written_and_read_back(target: str) -> None:
    stack = switched_to(aimed(load_stack(target), target), {"hosted_weights": "on"})
    chosen = Plan(dp=2, zero_stage=3, num_microbatches=16, recompute="full")
    found = replace(answer(target, "full", 2, stack=stack), plan=chosen, knobs=Knobs())
    files = [File(name, text.encode()) for name, text in exported(found).texts.items()]
    assert read_launch(files, 2).launch.settings["hosted_weights"] is True
    here = replace(found, job=replace(found.job, stack=aimed(load_stack(target), target)))
    files = [File(name, text.encode()) for name, text in exported(here).texts.items()]
    assert not read_launch(files, 2).launch.settings.get("hosted_weights")


def test_torchtunes_weights_on_the_host_are_of_several_gpus() -> None:
    stack = switched_to(aimed(load_stack("torchtune"), "torchtune"), {"hosted_weights": "on"})
    chosen = Plan(dp=2, zero_stage=3, num_microbatches=16, recompute="full")
    found = replace(answer("torchtune", "full", 2, stack=stack), plan=chosen, knobs=Knobs())
    assert "fsdp_cpu_offload=True" in exported(found).texts["torchtune.sh"]


def test_weights_of_one_gpu_on_the_host_are_refused() -> None:
    stack = switched_to(aimed(load_stack("trl"), "trl"), {"hosted_weights": "on"})
    found = replace(answer("trl", "full", stack=stack), plan=Plan(zero_stage=3, num_microbatches=16), knobs=Knobs())
    assert any("weights on the host" in said for said in exported(found).refused.values())


UNSLOTH = "unsloth_sft.py"


@pytest.mark.parametrize("train", ["full", "lora:8:attention", "qlora:32"])
def test_a_program_of_unsloth_is_read_back_and_edited(train: str) -> None:
    found = answer("unsloth", train, cluster=load_cluster("dgx-h200"))
    source = read_launch([File(UNSLOTH, (text := exported(found).texts[UNSLOTH]).encode())], 1)
    launch, chosen = source.launch, found.plan
    assert chosen is not None
    read = replace(found.job, train=launch.settings.get("train", "full"), base=launch.settings.get("base", ""))
    assert read.method == found.job.method
    assert not launch.unpriced
    names = ("micro_batch", "num_microbatches", "recompute", "activation_offload")
    stated = {"activation_offload": 0, **launch.settings}
    assert [stated[name] for name in names] == [getattr(chosen, name) for name in names]
    assert (stated["seq_len"], stated["packing"]) == (2048, False)
    size = chosen.micro_batch
    other = replace(chosen, micro_batch=3 * size)
    (edited,) = next(source.edited(source.changes(found.job, chosen, other, {}))).values()
    assert edited.decode() == text.replace(f"train_batch_size={size},", f"train_batch_size={3 * size},")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "m = FastModel.from_pretrained('a', load_in_4bit=arguments.bits)\nSFTTrainer(model=m)",
            "load_in_4bit: only a run",
        ),
        ("m = FastModel.from_pretrained('a')\nDPOTrainer(model=m)", "DPOTrainer: programs of Unsloth"),
        ("m = AutoModel.from_pretrained('a')\nSFTTrainer(model=m)", "expected FastModel's from_pretrained"),
        ("m = FastModel.from_pretrained('a')", "and an SFTTrainer"),
        (f"m = FastModel.from_pretrained('a')\n{'#' * 100_000}", "are no program that trains"),
    ],
)
def test_what_is_not_told_of_unsloth_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFile, match=why):
        read_launch([File("sft.py", f"from unsloth import FastModel\n{text}\n".encode())], 1)


def test_one_gpu_has_no_file_of_accelerate() -> None:
    assert set(exported(answer("trl")).texts) == {"trl.yaml"}


def test_torchtune_starts_from_a_configuration_that_it_ships() -> None:
    text = exported(answer("torchtune", optimizer="adamw-8bit")).texts["torchtune.sh"]
    assert "tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device" in text
    assert "~optimizer.fused" in text
    assert "optimizer=bitsandbytes.optim.AdamW8bit" in text
    assert "model.quantize_base=True" in text
    assert "llama3_1/8B_lora_single_device" in argument_names("torchtune", "v0.6.1")


def test_a_command_of_torchtune_is_read_with_the_configuration_that_it_starts_from() -> None:
    script = File("torchtune.sh", exported(answer("torchtune", optimizer="adamw-8bit")).texts["torchtune.sh"].encode())
    with pytest.raises(InputError, match=r"tune cp llama3_1/8B_lora_single_device FILE\.yaml"):
        read_launch([script], gpus=1)
    components = {
        "model": {"_component_": "torchtune.models.llama3_1.lora_llama3_1_8b"},
        "optimizer": {"_component_": "torch.optim.AdamW", "fused": True},
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
    }
    settings = read_launch([script, File("own.yaml", json.dumps(components).encode())], gpus=1).launch.settings
    assert (settings["optimizer"], settings["train"].partition(":")[0], settings["seq_len"]) == (
        "adamw-8bit",
        "qlora",
        2048,
    )


def test_torchtune_refuses_what_it_does_not_ship() -> None:
    single = answer("torchtune", "lora", model=load_model("llama2-13b"))
    with pytest.raises(InputError, match="ships no configuration llama2/13B_lora_single_device"):
        write_exports(single, Path("nowhere"))
    other = answer("torchtune", model=load_model("qwen3-8b"))
    assert "the model qwen3-8b" in exported(other).refused["torchtune.sh"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (Plan(dp=1, tp=2, num_microbatches=32), "tp of 2"),
        (Plan(dp=2, num_microbatches=16, activation_offload=50), "activations on the host"),
        (Plan(dp=2, num_microbatches=16, recompute="selective"), "recomputation of selective"),
        (Plan(dp=2, num_microbatches=16, recompute="full", recompute_layers=(3,)), "recomputation of full as priced"),
        (Plan(dp=2, num_microbatches=16, zero_stage=1), "ZeRO-1 on 2 GPUs"),
    ],
)
def test_a_plan_that_is_not_run_as_priced_is_refused(chosen: Plan, said: str) -> None:
    assert said in exported(with_plan("trl", 2, chosen)).refused["trl.yaml"]


@pytest.mark.parametrize(("loss", "optimizer"), [("dpo", ""), ("kto", "adamw-fused"), ("", "adamw-fused")])
def test_trl_s_file_says_its_loss_and_its_optimizer(loss: str, optimizer: str) -> None:
    text = exported(answer("trl", "full", model=load_model("llama3.2-1b"), loss=loss, optimizer=optimizer)).texts[
        "trl.yaml"
    ]
    launch = read_launch([File("trl.yaml", text.encode())], 1).launch
    assert (launch.settings.get("loss", ""), launch.settings.get("optimizer", "")) == (loss, optimizer)


def test_adamw_is_fused_where_it_is_priced_so() -> None:
    assert 'optim="adamw_torch_fused"' in exported(answer("unsloth")).texts["unsloth_sft.py"]
    assert "optimizer.fused=True" in exported(answer("torchtune")).texts["torchtune.sh"]
    assert "optim: adamw_torch\n" in exported(answer("trl")).texts["trl.yaml"]


def test_unsloth_is_a_program_that_compiles() -> None:
    for train in ("full", "lora:8:attention", "qlora"):
        text = exported(answer("unsloth", train, model=load_model("llama3.2-1b"))).texts["unsloth_sft.py"]
        compile(text, "unsloth_sft.py", "exec")
        assert ("get_peft_model" in text) is (train != "full")


def test_what_tunes_and_what_does_not_have_files_of_their_own(tmp_path: Path) -> None:
    command = ["--model", "llama3.2-1b", "--gpus", "1", "--device", "h100", "--seq-len", "2048"]
    for more, there, not_there in (
        (["--train", "lora"], "trl.yaml", "megatron.args"),
        (["--global-batch", "64"], "megatron.args", "trl.yaml"),
    ):
        folder = tmp_path / there
        said = CliRunner().invoke(cli, [*command, *more, "--export", str(folder)])
        assert said.exit_code == 0, said.output
        assert (folder / there).exists()
        assert not (folder / not_there).exists()


def test_other_launchers_know_no_lengths_of_documents() -> None:
    assert "--lengths" in TARGETS["megatron-lm"].refusal(replace(answer("trl", "full", 8).job, lengths="900"))


def test_random_jobs_are_read_back_at_the_price_that_was_promised(tmp_path: Path) -> None:
    read = 0
    for number, found in enumerate(drawn(Random(2), 12, tuple(YAMLS))):
        write_exports(found, folder := tmp_path / str(number))
        if "trl.yaml" in exported(found).texts and found.job.training_loss.name != SFT:
            read += 1  # its file says no loss: the command does
            continue
        for name in set(YAMLS.values()) - OTHERS:
            if (folder / name).exists():
                read += 1
                assert differing(found, folder / name) == "", (name, WITH.get(name))
    assert read == 12


@pytest.mark.parametrize("train", ["lora:32", "dora:32"])
@pytest.mark.parametrize("target", sorted({*YAMLS, "torchtune"} - {"unsloth"}))
def test_directions_are_trained_where_they_are_asked_for(target: str, train: str) -> None:
    text = "".join(exported(answer(target, train)).texts.values()).lower()
    assert bool(re.search("use_dora[:=] ?true", text)) is train.startswith("dora")


@pytest.mark.parametrize(("stage", "sharded"), [(0, False), (3, True)])
def test_what_axolotl_shards_it_shards_by_fsdp2(stage: int, sharded: bool) -> None:
    found = exported(with_plan("axolotl", 2, Plan(dp=2, num_microbatches=16, zero_stage=stage)))
    assert ("fsdp_version: 2\n" in found.texts["axolotl.yaml"]) is sharded


@pytest.mark.parametrize("gpus", [1, 2])
def test_ms_swift_starts_a_process_for_each_of_several_gpus(gpus: int) -> None:
    chosen = Plan(dp=gpus, num_microbatches=16, zero_stage=0)
    text = exported(with_plan("ms-swift", gpus, chosen)).texts["ms-swift.yaml"]
    assert (f"NPROC_PER_NODE: {gpus}" in text, "NPROC_PER_NODE" in text) == (gpus > 1, gpus > 1)


def test_switches_have_the_words_of_each_program() -> None:
    liger = {target: answer(target) for target in ("trl", "llama-factory", "ms-swift", "axolotl")}
    words = {
        "trl": "use_liger_kernel: true",
        "llama-factory": "enable_liger_kernel: true",
        "ms-swift": "use_liger_kernel",
    }
    for target, found in liger.items():
        assert "liger" not in "".join(exported(found).texts.values())
        job = replace(found.job, stack=switched_to(found.job.stack, {"liger": "on"}))
        switched = exported(replace(found, job=job))
        assert words.get(target, "") in "".join(switched.texts.values())
        assert (YAMLS[target] in switched.texts) is (target in words)


def test_inputs_of_checkpointed_layers_on_the_host_are_told_and_read_back(tmp_path: Path) -> None:
    chosen = Plan(num_microbatches=16, recompute="full", activation_offload=100)
    for target in ("trl", "llama-factory", "axolotl"):
        found = with_plan(target, 1, chosen)
        write_exports(found, folder := tmp_path / target)
        assert differing(found, folder / YAMLS[target]) == ""
    assert "activations on the host" in exported(with_plan("ms-swift", 1, chosen)).refused["ms-swift.yaml"]
    script = exported(with_plan("unsloth", 1, chosen)).texts["unsloth_sft.py"]
    assert script.count('use_gradient_checkpointing="unsloth"') == 2


@pytest.mark.parametrize("target", ["trl", "llama-factory", "axolotl"])
def test_files_are_priced_as_the_software_that_they_are_of(target: str, tmp_path: Path) -> None:
    """By `optimize improve`, which is told nothing else: its stack, inputs on the host and Liger's kernels."""
    chosen = Plan(num_microbatches=16, recompute="full", activation_offload=100)
    found = with_plan(target, 1, chosen, "qlora:16")
    write_exports(found, tmp_path)
    text = (path := tmp_path / YAMLS[target]).read_text()
    words = ["improve", str(path), "--gpus", "1", "--cluster", "dgx-h100", "--json"]
    read = json.loads(CliRunner().invoke(cli, words).stdout)
    expected = price(found.job, Plans.of([chosen]), Knobs())
    assert read["job"]["stack"].partition("@")[0] == target
    assert read["estimate"]["memory_bytes"]["activations"] == pytest.approx(float(expected.memory["activations"][0]))
    assert read["estimate"]["step_time_s"] == pytest.approx(float(expected.step_time[0]))
    liger = {"trl": "use_liger_kernel", "llama-factory": "enable_liger_kernel", "axolotl": "liger_rope"}[target]
    path.write_text(f"{text}{liger}: true\n")
    faster = json.loads(CliRunner().invoke(cli, words).stdout)["estimate"]["step_time_s"]
    assert (faster < read["estimate"]["step_time_s"]) is (target != "axolotl")


def test_an_optimizer_that_steps_in_the_backward_pass_is_torchtunes_alone_and_accumulates_nothing() -> None:
    job = replace(answer("torchtune", "full", 8).job, optimizer="paged-adamw-8bit:in-backward")
    found = replace(answer("torchtune", "full", 8), job=job, knobs=Knobs())
    once = Plan(dp=8, micro_batch=16, zero_stage=3, recompute="full")
    assert "optimizer_in_bwd=True" in exported(replace(found, plan=once)).texts["torchtune.sh"]
    several = replace(once, micro_batch=8, num_microbatches=2)
    assert "several micro-batches" in exported(replace(found, plan=several)).refused["torchtune.sh"]
