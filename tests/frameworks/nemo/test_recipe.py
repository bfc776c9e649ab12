"""Programs that run a recipe of NeMo 2: what is followed, what is told, what is refused, and what a patch writes."""

from __future__ import annotations

import re

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.frameworks.files import File
from optimizer.frameworks.nemo.export import OF_PRESET
from optimizer.frameworks.nemo.recipe import RECIPES, recipe_changed, recipe_values
from optimizer.frameworks.read import read_launch
from tests.frameworks.launches import NEMO_RECIPE as START

OWN = """import nemo_run as run
from nemo import lightning as nl
from nemo.collections import llm

STRATEGY = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=4, pipeline_model_parallel_size=2,
                      virtual_pipeline_model_parallel_size=2, sequence_parallel=True)
TRAINER = run.Config(nl.Trainer, devices=8, num_nodes=2, strategy=STRATEGY,
                     plugins=run.Config(nl.MegatronMixedPrecision, precision="bf16-mixed", grad_reduce_in_fp32=False),
                     callbacks=[run.Config(MegatronCommOverlapCallback, tp_comm_overlap=True)])
run.run(run.Partial(
    llm.pretrain,
    model=run.Config(llm.LlamaModel, config=run.Config(llm.Llama31Config8B)),
    trainer=TRAINER,
    data=run.Config(llm.MockDataModule, seq_length=8192, global_batch_size=256, micro_batch_size=1),
    optim=run.Config(nl.MegatronOptimizerModule, config=run.Config(OptimizerConfig, use_distributed_optimizer=True)),
))
"""


def within(line: str) -> str:
    """The first program with a line before its recipe is handed back."""
    return START.replace("    return recipe", f"    {line}\n    return recipe")


def read(text: str, gpus: int | None = None) -> dict[str, object]:
    return read_launch([File("pretrain.py", text.encode())], gpus).launch.settings


def test_a_recipe_through_functions_and_what_it_has_by_itself() -> None:
    found = read(START)
    assert (found["model"], found["nodes"], found["gpus_per_node"]) == ("llama3-8b", 2, 8)
    assert (found["cp"], found["tp"], found["micro_batch"], found["global_batch"], found["seq_len"]) == (
        1,
        1,
        2,
        512,
        8192,
    )
    assert (found["grad_bytes"], found["reduce_overlap"], found["p2p_overlap"]) == (4, True, False)


def test_a_recipe_of_its_own_classes_and_what_a_callback_sets() -> None:
    found = read(OWN)
    assert (found["model"], found["tp"], found["pp"], found["vpp"], found["sequence_parallel"]) == (
        "llama3.1-8b",
        4,
        2,
        2,
        True,
    )
    assert (found["grad_bytes"], found["tp_overlap"], found["reduce_overlap"]) == (2, True, True)
    assert "p2p_overlap" not in found


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("recipe.trainer.plugins = bf16_with_fp8_mixed()", {"dtype": "fp8"}),
        ("recipe.trainer.plugins.grad_reduce_in_fp32 = False", {"grad_bytes": 2}),
        ("recipe.model.config.recompute_granularity = 'selective'", {"recompute": "selective"}),
        ("recipe.optim.config.use_distributed_optimizer = False", {"zero_stage": 0}),
        ("recipe.trainer.strategy.fsdp = 'megatron'", {"zero_stage": 0}),
        ("if nodes < 4:\n        recipe.data.seq_length = 4096", {"seq_len": 4096}),
        ("if not nodes == 2:\n        recipe.data.seq_length = 4096", {"seq_len": 8192}),
        ("if nodes == 2:\n        return recipe\n    recipe.data.seq_length = 4096", {"seq_len": 8192}),
        ("recipe.data.seq_length = recipe.data.micro_batch_size * 512", {"seq_len": 1024}),
        (
            "recipe.data = run.Config(Own, seq_length=4096, global_batch_size=64, micro_batch_size=4)",
            {"micro_batch": 4},
        ),
    ],
)
def test_what_a_line_says(line: str, settings: dict[str, object]) -> None:
    assert settings.items() <= read(within(line)).items()


def test_a_recipe_that_takes_over_the_sections_of_another_is_the_one_that_runs() -> None:
    taken = "data=recipe.data, trainer=recipe.trainer, optim=recipe.optim"
    model = "run.Config(llm.LlamaModel, run.Config(llm.Llama3Config70B))"
    found = read(within(f"recipe = run.Partial(llm.pretrain, model={model}, {taken})"))
    assert (found["model"], found["cp"], found["micro_batch"]) == ("llama3-70b", 1, 2)


def test_what_performance_mode_makes_of_a_recipe() -> None:
    text = START.replace('name="first"', "performance_mode=True").replace("context_parallel_size = 1", "x = 1")
    found = read(text.replace("llama3_8b", "llama3_70b"))
    assert (found["grad_bytes"], found["tp_overlap"], "p2p_overlap" in found) == (2, True, False)
    launch = read_launch([File("pretrain.py", text.replace("llama3_8b", "mixtral_8x7b").encode())]).launch
    assert (launch.settings["tp"], launch.settings["ep"], launch.settings["tp_overlap"]) == (8, 1, False)
    assert "MegatronTokenDropCallback" in launch.unpriced


def test_arguments_come_through_partial_and_through_others() -> None:
    text = START.replace("llm.llama3_8b.pretrain_recipe(", "partial(llm.llama3_8b.pretrain_recipe, dir='x')(")
    assert read(text) == read(START)
    text = START.replace("gpus_per_node: int = 8)", "**others)").replace("num_gpus_per_node=gpus_per_node", "**others")
    text = text.replace("configured(nodes=2)", "configured(nodes=2, num_gpus_per_node=4)")
    assert read(text)["gpus_per_node"] == 4
    assert read(text.replace("num_gpus_per_node=4", "performance_mode=True"))["grad_bytes"] == 2
    launch = read_launch(
        [File("pretrain.py", text.replace("nodes, **others)\n    recipe", "nodes, **OTHERS)\n    recipe").encode())]
    ).launch
    assert "what **OTHERS gives llm.llama3_8b.pretrain_recipe" in launch.unpriced


@pytest.mark.parametrize(("said", "heads"), [("dir=None", 1), ("use_mtp=True", 1), ("use_mtp=False", None)])
def test_a_recipe_is_told_whether_its_model_predicts_further_tokens(said: str, heads: int | None) -> None:
    text = START.replace("llama3_8b", "deepseek_v3").replace('name="first"', said)
    assert recipe_values(text)["model.config.mtp_num_layers"] == heads


@pytest.mark.parametrize(
    ("line", "costs"),
    [
        ("recipe = tuned(recipe)", "what tuned does to the recipe"),
        ("recipe.trainer.callbacks[0].overlap_param_gather = False", "recipe.trainer.callbacks[0]"),
        ("recipe.trainer.callbacks.append(run.Config(MegatronTokenDropCallback))", "MegatronTokenDropCallback"),
        ("setattr(recipe.trainer.strategy, key, 4)", "what setattr does to the recipe"),
        ("recipe.trainer.callbacks = recipe.trainer.callbacks + [own()]", "trainer.callbacks, which only a run"),
        ("recipe.optim = own_optimizer()", "optim, which is what own_optimizer makes"),
    ],
)
def test_what_is_not_followed_is_not_priced(line: str, costs: str) -> None:
    launch = read_launch([File("pretrain.py", within(line).encode())]).launch
    assert any(costs in each for each in launch.unpriced)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (START.replace("llama3_8b", "llama9_8b"), "recipe llama9_8b is none of those"),
        (START.replace("pretrain_recipe", "finetune_recipe"), "recipes that fine-tune are not read"),
        (
            START.replace("llama3_8b", "deepseek_v3").replace('name="first"', "use_mtp=several()"),
            "use_mtp: only a run would tell",
        ),
        (START.replace('name="first"', "performance_mode=faster()"), "performance_mode: only a run would tell"),
        (START.replace("llama3_8b", "qwen3_8b").replace('name="first"', "performance_mode=True"), "qwen3_8b has none"),
        (START.replace("size = 1", 'size = int(os.environ["CP"])'), "context_parallel_size: only a run would tell"),
        (within("if arguments.short:\n        recipe.data.seq_length = 4"), "data.seq_length: only a run would tell"),
        (within("for n in (1, 2):\n        recipe.data.micro_batch_size = n"), "micro_batch_size: only a run"),
        (within("recipe.data = fdl.build(data)"), "data is what build makes, without seq_length, global_batch_size"),
        (within("recipe.trainer.strategy = own()"), "trainer.strategy is what own makes"),
        (
            within("recipe = tuned(recipe, num_nodes=4, tp_size=n)"),
            "tuned sets num_nodes, tp_size of the recipe",
        ),
        (within("tuned(recipe, 4, 8, 2)"), "tuned sets numbers of the recipe"),
        (START.replace("llm.llama3_8b.pretrain", "pretrain"), "recipe that only a run would tell"),
        (START.replace("run.run(recipe", "run.run(configured()); run.run(recipe"), "with several recipes"),
        (within("other = llm.llama3_8b.pretrain_recipe()").replace("run.run", "go"), "with several recipes"),
        (START.replace("llm.llama3_8b.pretrain_recipe(", "made("), "a program, whose Python is not read"),
        (START.replace("llm.llama3_8b.pretrain_recipe(", "made(") + "# pretrain_recipe", "no call of pretrain_recipe"),
        (within("start(start(), start())"), "calls of its own functions are no program that trains"),
        (START + "x" * 100_000, "no program that trains"),
    ],
)
def test_what_is_refused_says_why(text: str, why: str) -> None:
    with pytest.raises(InvalidFile, match=re.escape(why)):
        read(text)


def test_a_value_is_written_where_it_stands_or_after_the_last() -> None:
    text = recipe_changed(START, "trainer.strategy.context_parallel_size", 4)
    assert text == START.replace("size = 1", "size = 4")
    text = recipe_changed(START, "trainer.strategy.tensor_model_parallel_size", 2)
    call = "configured(nodes=2)"
    assert text == START.replace(call, f"{call}\n    recipe.trainer.strategy.tensor_model_parallel_size = 2")
    assert recipe_values(recipe_changed(START, "trainer.num_nodes", 4))["trainer.num_nodes"] == 4
    text = recipe_changed(OWN, "trainer.strategy.pipeline_model_parallel_size", None)
    assert text == OWN.replace("pipeline_model_parallel_size=2,", "pipeline_model_parallel_size=None,", 1)


@pytest.mark.parametrize("path", ["trainer.callbacks.MegatronCommOverlapCallback.bucket_size", "recipe"])
def test_what_has_no_place_is_not_written(path: str) -> None:
    with pytest.raises(InputError, match="no line of the program has a place for it"):
        recipe_changed(START, path, 1)


def test_a_preset_is_written_by_the_recipe_of_its_name() -> None:
    assert OF_PRESET["llama3-8b"] == "llama3_8b"
    assert {RECIPES[name]["model"] for name in OF_PRESET.values()} == set(OF_PRESET)
