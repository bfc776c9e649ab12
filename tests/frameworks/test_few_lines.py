"""What few lines of a launch say or are written as, case by case: defaults, what excludes what, what is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.config.yaml_edit import yaml_changed
from optimizer.frameworks.every import EVERY
from optimizer.frameworks.files import File
from optimizer.frameworks.huggingface import log as huggingface
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.log_line import LogLine
from optimizer.frameworks.megatron.config import is_flagscale
from optimizer.frameworks.megatron.export_model import model_flags
from optimizer.frameworks.nanotron.export import nanotron_yaml
from optimizer.frameworks.nemo.export import facts, nemo_program
from optimizer.frameworks.nemo.recipe import recipe_changed, recipe_values
from optimizer.frameworks.olmo import log as olmo
from optimizer.frameworks.read import read_launch
from optimizer.frameworks.software import widened
from optimizer.frameworks.unsloth.script import script_values
from optimizer.job.job import Job
from optimizer.job.model import SlidingWindow
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import Features, Stack
from tests.frameworks import launches
from tests.frameworks.launches import NEMO_RECIPE
from tests.search.jobs import DENSE, LATENT, MIXTURE

SIZES = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 """


def launch_of(name: str, text: str, gpus: int | None = None) -> Launch:
    return read_launch([File(name, text.encode())], gpus).launch


def job_of(stack: str, target: str, model: str, gpus: int) -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=aimed(load_stack(stack), target),
        gpus=gpus,
        seq_len=4096,
        global_batch=64,
    )


HEADS = ("--group-query-attention", "--num-query-groups", "--kv-channels")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (replace(DENSE, kv_heads=12), {}),
        (DENSE, {"--group-query-attention": None, "--num-query-groups": "4"}),
        (replace(DENSE, kv_heads=12, head_dim=64), {"--kv-channels": "64"}),
        (LATENT, {}),  # whose heads have widths of their own
        (replace(LATENT, head_dim=64), {}),
    ],
)
def test_heads_are_told_where_they_are_not_the_usual_ones(model: Any, said: dict[str, Any]) -> None:
    assert {flag: value for flag, value in model_flags(model).items() if flag in HEADS} == said


def test_nanotron_is_told_a_model_with_llamas_blocks() -> None:
    job = job_of("nanotron-2024", "nanotron", "llama3-8b", 8)
    answer = Answer(status="optimal", job=job, plan=Plan(tp=2, dp=4, num_microbatches=16, sequence_parallel=True))
    values = YAML(typ="safe").load(nanotron_yaml(answer))
    assert values["model"]["model_config"] == {
        **{"is_qwen2_config": True, "attention_bias": False, "hidden_act": "silu", "hidden_size": 4096},
        **{"intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 32},
        **{"num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0},
        **{"tie_word_embeddings": False, "vocab_size": 128_256},
    }
    assert "--nnodes 1 --nproc_per_node 8" in nanotron_yaml(answer)


def test_nemo_is_told_its_nodes_and_how_its_pipeline_runs() -> None:
    job = job_of("nemo-2024", "nemo", "llama3-8b", 16)
    plan = Plan(pp=2, dp=8, num_microbatches=8, zero_stage=1)
    text = nemo_program(Answer(status="optimal", job=job, plan=plan))
    assert "num_nodes=2" in text
    assert "num_gpus_per_node=8" in text
    cases = (
        (plan, False, True),
        (replace(plan, vpp=2, schedule="interleaved"), True, False),
        (Plan(dp=16), False, False),
    )
    for some, interleaved, plain in cases:
        found = facts(job, some, Knobs())
        assert (found["interleaved"], found["plain"]) == (interleaved, plain)


@pytest.mark.parametrize(
    ("paths", "known"),
    [
        (("system.precision.bf16", "model.num_layers"), True),
        (("system.precision.bf16", "model.num_layers", "data.tokenizer"), True),
        (("system.precision.bf16",), False),
        (("system.tp", "model.num_layers"), False),
    ],
)
def test_flagscale_is_known_by_its_sections(paths: tuple[str, ...], known: bool) -> None:
    assert is_flagscale(dict.fromkeys(paths, 1)) is known


@pytest.mark.parametrize(
    ("arguments", "four"),
    [("", True), ("load_in_4bit=False", False), ("load_in_8bit=True", False), ("full_finetuning=True", False)],
)
def test_unsloth_loads_four_bits_unless_told_otherwise(arguments: str, four: bool) -> None:
    text = f"import unsloth\nm, t = FastModel.from_pretrained('Qwen/Qwen3-4B', {arguments})\nSFTTrainer(model=m)\n"
    assert script_values(text)["load_in_4bit"] is four


@pytest.mark.parametrize(
    ("read", "line", "said"),
    [
        (olmo.LOG.read, "    train/CE loss=2.5", LogLine(loss=2.5)),
        (olmo.LOG.read, "    train/CE loss=-", None),
        (olmo.LOG.read, "    train/other=2.5", None),
        (huggingface.LOG.read, "{'loss': 0.5, 'current_steps': 10, 'total_steps': 'x'}", LogLine(loss=0.5)),
        (huggingface.LOG.read, "{'loss': 0.5, 'current_steps': 10}", LogLine(loss=0.5)),
        (huggingface.LOG.read, "{'loss': 0.5, 'total_steps': 10}", LogLine(loss=0.5)),
    ],
)
def test_half_a_line_of_a_log_says_no_more_than_it_has(read: Any, line: str, said: LogLine | None) -> None:
    assert read(line) == said


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        ("multi_query: true", 1),
        ("grouped_query: false", 1),
        ("grouped_query: true\n    num_kv_heads: 4", 4),
        ("multi_query: true\n    grouped_query: true\n    num_kv_heads: 4", 1),
    ],
)
def test_heads_of_starcoder_in_nanotron(keys: str, heads: int) -> None:
    text = (
        launches.NANOTRON.replace("    num_key_value_heads: 8\n", f"    {keys}\n")
        .replace("    intermediate_size: 14336\n", "    is_starcoder2_config: true\n")
        .replace("    tie_word_embeddings: false\n", "")
    )
    assert launch_of("nano.yaml", text, 32).settings["kv_heads"] == heads


def test_a_recipe_by_another_name_and_defaults_of_its_functions() -> None:
    imported = "from nemo.collections.llm.recipes.llama3_8b import pretrain_recipe\nr = pretrain_recipe(num_nodes=2)\n"
    assert recipe_values(imported)["trainer.num_nodes"] == 2
    defaults = """from nemo.collections import llm
def made(nodes, gpus=4, batch=256):
    recipe = llm.llama3_8b.pretrain_recipe(num_nodes=nodes, num_gpus_per_node=gpus)
    recipe.data.global_batch_size = batch
    return recipe
made(2)
"""
    found = recipe_values(defaults)
    assert [found[name] for name in ("trainer.num_nodes", "trainer.devices", "data.global_batch_size")] == [2, 4, 256]


def test_a_new_line_of_a_recipe_follows_its_last_one_whatever_its_length() -> None:
    text = NEMO_RECIPE.replace(
        "    return recipe", "    recipe.data.seq_length = (\n        4096\n    )\n    return recipe"
    )
    changed = recipe_changed(text, "trainer.max_steps", 9)
    assert recipe_values(changed)["trainer.max_steps"] == 9
    assert recipe_values(changed)["data.seq_length"] == 4096


@pytest.mark.parametrize(
    ("flags", "whole", "parts"),
    [
        ("", None, None),
        ("--enable-cuda-graph", True, ()),
        ("--cuda-graph-impl local", True, ()),
        ("--cuda-graph-impl none", False, ()),
        ("--cuda-graph-impl local --cuda-graph-scope attn", False, ("attention",)),
    ],
)
def test_graphs_replay_whole_layers_or_the_parts_of_their_scope(flags: str, whole: Any, parts: Any) -> None:
    settings = launch_of("run.sh", SIZES + flags).settings
    assert settings.get("cuda_graphs") is whole
    found = settings.get("graphed")
    assert (found if found is None else bool(found)) == (parts if parts is None else bool(parts))


def test_a_launch_without_a_dispatcher_widens_its_software_by_none() -> None:
    stack = Stack(name="test", features=Features())
    assert widened(stack, {}).dispatchers == stack.dispatchers
    assert set(widened(stack, {"dispatcher": "deepep"}).dispatchers) == {*stack.dispatchers, "deepep"}


@pytest.mark.parametrize(
    ("text", "path", "changed"),
    [
        ("a: {}\n", "a.b", "a: {b: 3}\n"),
        ("a: {c: 1}\n", "a.b", "a: {b: 3, c: 1}\n"),
        ("{}\n", "b", "{b: 3}\n"),
        ("a: {\n  c: 1}\n", "a.b", "a: {\n  b: 3,\n  c: 1}\n"),
    ],
)
def test_a_key_comes_into_braces(text: str, path: str, changed: str) -> None:
    assert yaml_changed(text, path, 3) == changed


def test_degrees_that_no_edit_of_a_program_changes_are_one_or_as_they_are() -> None:
    degrees = ("tp", "cp", "pp", "vpp", "ep", "etp")
    only = [(each.name, name, some) for each in EVERY for name, some in each.only.items() if name in degrees]
    assert only
    assert [(program, name) for program, name, some in only if some not in ((), (1,))] == []


@pytest.mark.parametrize(
    ("files", "bucket", "overlap"),
    [
        ({"trainer.yaml": launches.TRAINER}, None, None),
        ({"trainer.yaml": launches.TRAINER, "ds.json": '{"zero_optimization": {"stage": 0}}'}, 1e9, None),
        ({"trainer.yaml": launches.TRAINER, "a.yaml": "deepspeed_config: {zero_stage: 0}\n"}, 1e9, None),
        ({"trainer.yaml": launches.TRAINER, "ds.json": '{"zero_optimization": {"stage": 1}}'}, 1e9, False),
        ({"trainer.yaml": launches.TRAINER, "ds.json": '{"zero_optimization": {"stage": 3}}'}, 1e9, True),
        ({"trainer.yaml": launches.TRAINER, "ds.json": launches.DEEPSPEED}, 4e8, True),
        ({"trainer.yaml": f"{launches.TRAINER}fsdp: full_shard auto_wrap\n"}, None, None),
    ],
)
def test_buckets_and_overlap_of_deepspeed_where_its_config_is_there(
    files: dict[str, str], bucket: float | None, overlap: bool | None
) -> None:
    """500 million elements of two bytes unless it says otherwise; communication overlaps under ZeRO-3."""
    settings = read_launch([File(name, text.encode()) for name, text in files.items()], 8).launch.settings
    assert settings.get("bucket") == bucket
    if overlap is not None:
        assert (settings["reduce_overlap"], settings["gather_overlap"]) == (overlap, overlap)


PLAIN = model_flags(replace(DENSE, kv_heads=12))
LATENT_FLAGS = {
    **{"--multi-latent-attention": None, "--no-rope-fusion": None, "--rope-type": "rope", "--qk-layernorm": None},
    **{"--q-lora-rank": "384", "--kv-lora-rank": "128", "--qk-head-dim": "128", "--qk-pos-emb-head-dim": "64"},
    "--v-head-dim": "128",
}
EXPERT_FLAGS = {
    **{"--num-experts": "8", "--moe-router-topk": "2", "--moe-ffn-hidden-size": "1024", "--moe-grouped-gemm": None},
    "--moe-layer-freq": "([0]*1+[1]*11)",
}


def experts(**changes: Any) -> dict[str, Any]:
    assert MIXTURE.experts is not None
    return {"experts": replace(MIXTURE.experts, **changes)}


@pytest.mark.parametrize(
    ("changes", "more", "less"),
    [
        ({"mla": LATENT.mla}, LATENT_FLAGS, ()),
        (
            {"mla": replace(LATENT.mla, q_rank=0) if LATENT.mla else None},
            {flag: value for flag, value in LATENT_FLAGS.items() if flag != "--q-lora-rank"},
            (),
        ),
        (experts(), EXPERT_FLAGS, ()),
        (
            experts(first_dense_layers=0),
            {flag: value for flag, value in EXPERT_FLAGS.items() if flag != "--moe-layer-freq"},
            (),
        ),
        (experts(first_dense_layers=0, every=2), {**EXPERT_FLAGS, "--moe-layer-freq": "([0,1]*6)"}, ()),
        (experts(every=2), {**EXPERT_FLAGS, "--moe-layer-freq": "([0]*1+[0,1]*5+[0]*1)"}, ()),
        (experts(shared_ffn_hidden=512), {**EXPERT_FLAGS, "--moe-shared-expert-intermediate-size": "512"}, ()),
        (experts(shared_gate=True), {**EXPERT_FLAGS, "--moe-shared-expert-gate": None}, ()),
        (experts(groups=4), EXPERT_FLAGS, ()),
        (
            experts(groups=4, group_limit=2),
            {**EXPERT_FLAGS, "--moe-router-num-groups": "4", "--moe-router-group-topk": "2"},
            (),
        ),
        (experts(router_bias=True), EXPERT_FLAGS, ()),  # of scores by sigmoid alone
        (
            {"window": SlidingWindow(size=128, global_every=4)},
            {"--window-size": "128,0", "--window-attn-skip-freq": "4"},
            (),
        ),
        ({"window": SlidingWindow(size=128, global_every=0)}, {"--window-size": "128,0"}, ()),
        ({"mtp_layers": 1}, {"--mtp-num-layers": "1"}, ()),
        ({"qk_norm": True}, {"--qk-layernorm": None}, ()),
        ({"attention_bias": True}, {"--add-qkv-bias": None}, ()),
        ({"attention_sinks": True}, {"--softmax-type": "learnable"}, ()),
        ({"tied_embeddings": True}, {}, ("--untie-embeddings-and-output-weights",)),
        ({"mlp_bias": True}, {}, ("--disable-bias-linear",)),
    ],
)
def test_what_a_model_has_is_one_flag_each(
    changes: dict[str, Any], more: dict[str, Any], less: tuple[str, ...]
) -> None:
    wanted = {flag: value for flag, value in {**PLAIN, **more}.items() if flag not in less}
    assert model_flags(replace(DENSE, kv_heads=12, **changes)) == wanted


def test_sequences_may_be_longer_than_the_model_was_made_for() -> None:
    assert [model_flags(DENSE, length)["--max-position-embeddings"] for length in (0, 4096, 4097)] == [
        "4096",
        "4096",
        "4097",
    ]


@pytest.mark.parametrize(
    ("keys", "base", "key"),
    [
        ("use_peft: true\nload_in_4bit: true", "nf4-single", "load_in_4bit"),
        ("use_peft: true\nload_in_4bit: true\nuse_bnb_nested_quant: true", "nf4", "load_in_4bit"),
        ("adapter: qlora\nload_in_4bit: true\nbnb_4bit_use_double_quant: false", "nf4-single", "load_in_4bit"),
        ("use_peft: true\nload_in_8bit: true", "int8", "load_in_8bit"),
        ("finetuning_type: lora\nquantization_bit: 4", "nf4", "quantization_bit"),
        ("use_peft: true", None, None),
    ],
)
def test_how_frozen_weights_are_stored_is_where_its_key_stands(keys: str, base: str | None, key: str | None) -> None:
    launch = launch_of("trainer.yaml", f"{launches.TRAINER}{keys}\nlora_r: 8\n", 1)
    assert launch.settings.get("base") == base
    assert launch.written.get("base") == key


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        *(("0:00:07", 7.0), ("0:02:07", 127.0), ("3:02:07", 10_927.0)),
        *(("1 day, 3:02:07", 97_327.0), ("2 days, 0:00:00", 172_800.0)),
    ],
)
def test_a_clock_has_days_hours_minutes_and_seconds(clock: str, seconds: float) -> None:
    line = f"{{'loss': 0.5, 'current_steps': 10, 'total_steps': 90, 'elapsed_time': '{clock}'}}"
    found = huggingface.LOG.read(line)
    assert found is not None
    assert (found.elapsed, found.step, found.last_step) == (seconds, 10, 90)
