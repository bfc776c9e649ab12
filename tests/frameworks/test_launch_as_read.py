"""From the settings of a launch to its job, plan and knobs: what is taken, assumed, bounded and refused, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.catalog import load_model, load_stack
from optimizer.frameworks.launch import Launch
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, as_split, launch_as_read, settings_of
from optimizer.job.plan import Plan

SHAPE = {"layers": 4, "hidden": 1024, "heads": 8, "ffn_hidden": 4096, "vocab": 50257, "max_seq_len": 2048}
USUAL = {**SHAPE, "gpus": 16, "micro_batch": 1, "global_batch": 16, "seq_len": 2048}
OWN_MODEL = "a model of its own: no preset has this shape (--model)"
GUESSED = "cluster dgx-h100 of h100, not told (--cluster, --device)"
UNASKED = Controls()
SOFTWARE = "Megatron-LM behaves as the stack megatron-core (--stack)"


def asked(
    said: dict[str, Any], controls: Controls = UNASKED, *without: str, program: str = "Megatron-LM", **more: Any
) -> LaunchAsRead:
    settings = {name: value for name, value in {**USUAL, **said}.items() if name not in without}
    return launch_as_read(Launch(program=program, settings=settings, **more), controls, "train.sh")


@pytest.mark.parametrize(
    ("said", "without", "problem"),
    [
        ({"gpus": 0}, (), "GPUs must be from 1 to 1,000,000,000, but is 0"),
        ({"gpus": 10**9 + 1}, (), "GPUs must be from 1 to 1,000,000,000, but is 1000000001"),
        ({"experts": -1}, (), "experts must be from 0 to 1,000,000,000, but is -1"),
        ({"layers": 10_001}, (), "layers must be at most 10,000, but are 10,001"),
        ({"hidden": 7}, (), "8 heads do not fit into a width of 7"),
        ({"tp": 3}, (), "tp x cp x pp = 3 x 1 x 1 does not divide 16 GPUs (--gpus)"),
        ({"cp": 3, "pp": 2}, (), "tp x cp x pp = 1 x 3 x 2 does not divide 16 GPUs (--gpus)"),
        ({"ep": 8, "etp": 4}, (), "ep x etp = 8 x 4 does not divide the 16 GPUs of a pipeline stage (--gpus)"),
        (
            {"tp": 2, "cp": 2, "pp": 2, "ep": 16},
            (),
            "ep x etp = 16 x 1 does not divide the 8 GPUs of a pipeline stage (--gpus)",
        ),
        ({"global_batch": 24}, (), "a global batch of 24 is no multiple of dp x micro-batch = 16 x 1"),
        ({"micro_batch": 2}, (), "a global batch of 16 is no multiple of dp x micro-batch = 16 x 2"),
        ({}, ("layers",), "the model is not told: give --model"),
        ({}, ("gpus",), "the number of GPUs is not told: give --gpus"),
        ({"nodes": 2}, ("gpus",), "the number of GPUs is not told: give --gpus"),
        ({"tp": 2, "cp": 2, "pp": 2, "gpus": 12}, (), "tp x cp x pp = 2 x 2 x 2 does not divide 12 GPUs (--gpus)"),
        ({"zero_stage": 4}, (), "ZeRO stage must be from 0 to 3, but is 4"),
        ({"kv_heads": 3}, (), "kv_heads = 3 does not divide heads = 8"),
        ({"packing": True, "loss": "dpo"}, (), "packing: --loss dpo compares sequences one by one, which none packs"),
    ],
)
def test_what_no_launch_can_be_is_refused_in_one_sentence(
    said: dict[str, Any], without: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InvalidFile) as error:
        asked(said, UNASKED, *without)
    assert error.value.problems == (problem,)


@pytest.mark.parametrize(
    "said",
    [
        {"layers": 10_000},
        {"hidden": 8},
        {"experts": 0},
        {"first_dense": 0},
        {"ep": 8, "etp": 2},
        {"global_batch": 32},
        {"zero_stage": 3},
    ],
)
def test_what_is_at_a_border_is_taken(said: dict[str, Any]) -> None:
    assert asked(said).job.gpus == 16


@pytest.mark.parametrize(
    ("said", "without", "gpus", "dp"),
    [
        ({}, (), 16, 16),
        ({"nodes": 2, "gpus_per_node": 4}, ("gpus",), 8, 8),
        ({"dp": 2, "tp": 2, "cp": 4, "pp": 2}, ("gpus",), 32, 2),
        ({"dp": 2}, ("gpus",), 2, 2),
    ],
)
def test_gpus_are_told_or_follow(said: dict[str, Any], without: tuple[str, ...], gpus: int, dp: int) -> None:
    question = asked(said, UNASKED, *without)
    assert (question.job.gpus, question.plan.dp, question.settings["gpus"]) == (gpus, dp, gpus)


@pytest.mark.parametrize(
    ("said", "written", "without", "sizes", "assumed"),
    [
        ({}, {}, (), (1, 1, 16), []),
        ({"global_batch": 64}, {}, (), (1, 4, 64), []),
        ({}, {}, ("micro_batch",), (1, 1, 16), ["micro-batches of 1"]),
        (
            {"global_batch": 128, "num_microbatches": 2},
            {"num_microbatches": "steps"},
            ("micro_batch",),
            (4, 2, 128),
            ["micro-batches of 4"],
        ),
        # A count that no file states means nothing beside a batch.
        ({"global_batch": 128, "num_microbatches": 2}, {}, ("micro_batch",), (1, 8, 128), ["micro-batches of 1"]),
        (
            {"global_batch": 48, "num_microbatches": 2},
            {"num_microbatches": "steps"},
            ("micro_batch",),
            (1, 3, 48),
            ["micro-batches of 1"],
        ),
        (
            {"micro_batch": 2},
            {},
            ("global_batch",),
            (2, 1, 32),
            ["global batch of 32 sequences, 16 replicas x 2 x 1 (--global-batch)"],
        ),
        (
            {"micro_batch": 2, "num_microbatches": 3},
            {"num_microbatches": "steps"},
            ("global_batch",),
            (2, 3, 96),
            ["global batch of 96 sequences, 16 replicas x 2 x 3 (--global-batch)"],
        ),
    ],
)
def test_batches_are_told_or_assumed(
    said: dict[str, Any],
    written: dict[str, str],
    without: tuple[str, ...],
    sizes: tuple[int, int, int],
    assumed: list[str],
) -> None:
    question = asked(said, UNASKED, *without, written=written)
    plan = question.plan
    assert question.launch.guessed_micro_batch == ("micro-batches of 1" in assumed)
    assert (plan.micro_batch, plan.num_microbatches, question.job.global_batch) == sizes
    assert question.launch.assumed == [OWN_MODEL, GUESSED, SOFTWARE, *assumed]
    assert [question.settings[name] for name in ("micro_batch", "num_microbatches", "global_batch")] == [*sizes]


@pytest.mark.parametrize(
    ("said", "controls", "length", "told"),
    [
        ({"seq_len": 1024}, Controls(), 1024, True),
        ({"seq_len": 1024}, Controls(seq_len=512), 512, True),
        ({"seq_len": None}, Controls(), 2048, False),  # the longest of the model
        ({"seq_len": None, "max_seq_len": 10_000}, Controls(), 8192, False),
        ({"seq_len": None}, Controls(seq_len=512), 512, True),
    ],
)
def test_lengths_are_told_or_those_of_the_model(
    said: dict[str, Any], controls: Controls, length: int, told: bool
) -> None:
    ignored = ["max_tokens", "max_new_tokens", "eval_seq_len", "model_max_length", "learning_rate"]
    question = asked(said, controls, ignored=ignored)
    assert (question.job.seq_len, question.launch.length) == (length, 0 if told else length)
    assert (f"sequences of {length:,} tokens (--seq-len)" in question.launch.assumed) == (not told)
    unread = [] if told else [f"{name}, which may be the length" for name in ("max_tokens", "model_max_length")]
    assert question.launch.unpriced == unread


@pytest.mark.parametrize(
    ("bucket", "priced", "told"),
    [
        (1e9, 1e9, []),
        (2e9, 1e9, ["a gradient bucket of 2 GB is priced as 1 GB"]),
        (10e6, 10e6, []),
        (1e6, 10e6, ["a gradient bucket of 0.001 GB is priced as 0.01 GB"]),
    ],
)
def test_buckets_are_priced_up_to_borders(bucket: float, priced: float, told: list[str]) -> None:
    question = asked({"bucket": bucket})
    assert (question.knobs.bucket, question.launch.unsearched) == (priced, told)


def test_knobs_are_those_of_the_launch_within_what_is_priced() -> None:
    shares = [asked({"blocks": blocks}).knobs.comm_sm_share for blocks in (0, 1, 33, 132)]  # of 132 multiprocessors
    assert shares == [0.01, 0.01, 0.25, 0.3]
    assert asked({}).knobs.comm_sm_share == 0.12
    assert [asked({"offload": share}).knobs.offload for share in (0.0, 0.5)] == [0.0, 0.5]


def test_a_card_without_bf16_trains_in_fp16() -> None:
    volta, hopper = (asked({}, Controls(device=name)) for name in ("v100", "h100"))
    assert (volta.job.dtype, hopper.job.dtype) == ("fp16", "bf16")
    assert "fp16, because v100-32 has no bf16" in volta.launch.assumed
    assert asked({"dtype": "fp8"}).job.dtype == "fp8"


@pytest.mark.parametrize(
    ("said", "written", "per_node", "scale_up"),
    [
        ({"nodes": 4, "gpus_per_node": 4}, {}, 4, 4),
        ({"nodes": 4}, {}, 4, 4),  # of 16 GPUs
        ({"nodes": 2}, {}, 8, 8),
        ({"nodes": 16, "gpus_per_node": 1}, {}, 8, 8),  # of which it takes one
        ({"nodes": 1, "gpus_per_node": 4, "gpus": 4, "global_batch": 4}, {}, 8, 8),
        ({"gpus": 4, "global_batch": 4}, {}, 8, 8),
        ({"nodes": 2, "gpus": 8}, {}, 4, 4),
        ({"nodes": 8}, {}, 2, 2),
        ({"nodes": 1, "gpus_per_node": 16}, {"gpus_per_node": "n"}, 8, 8),
    ],
)
def test_nodes_have_as_many_gpus_as_the_launch_says(
    said: dict[str, Any], written: dict[str, str], per_node: int, scale_up: int
) -> None:
    question = asked(said, written=written)
    assert (question.job.cluster.gpus_per_node, question.job.cluster.scale_up_size) == (per_node, scale_up)
    larger = ["n 16: nodes of dgx-h100 have 8 (--cluster)"] if written else []
    assert question.launch.unpriced == larger
    own = f"nodes of {per_node} GPUs, one domain each, as the launch says"
    assert (own in question.launch.assumed) == (per_node < 8)


def test_the_machine_is_told_named_or_guessed() -> None:
    machines = [
        asked({}),
        asked({"device": "a100-80"}, written={"device": "its name"}),
        asked({"device": "a100-80"}, Controls(device="h200")),
        asked({"device": "a100-80"}, Controls(cluster="dgx-b200")),
    ]
    assert [each.job.cluster.name for each in machines] == ["dgx-h100", "dgx-a100-80", "dgx-h200", "dgx-b200"]
    assert [each.launch.machine for each in machines] == ["dgx-h100", "", "", ""]
    assert [each.launch.assumed[1] for each in machines] == [
        GUESSED,
        "cluster dgx-a100-80 of a100-80, its name names a100-80 (--cluster, --device)",
        "cluster dgx-h200 (--cluster)",
        SOFTWARE,
    ]


def test_states_on_drives_go_at_the_drives_pace() -> None:
    drives, given = (asked({}, each, drives="device") for each in (Controls(), Controls(cluster="dgx-h100")))
    assert (drives.job.cluster.host_bandwidth, drives.job.cluster.host_memory) == (1.6e9, 0.0)
    assert "device nvme: drives of 1.6 GB/s a GPU and room enough (host_bandwidth of a --cluster file)" in (
        drives.launch.assumed
    )
    assert given.job.cluster.host_bandwidth > 1.6e9


@pytest.mark.parametrize(
    ("said", "controls", "tokens"),
    [
        ({}, Controls(), None),
        ({"steps": 10}, Controls(), 10 * 16 * 2048),
        ({"samples": 320}, Controls(), 20 * 16 * 2048),
        ({"samples": 320, "loss": "dpo"}, Controls(), 40 * 16 * 2048),  # of two sequences each
        ({"samples": 320, "packing": True}, Controls(), None),  # how many share a sequence is not told
        ({"samples": 320, "tokens": 7}, Controls(), 7),
    ],
)
def test_a_run_has_as_many_tokens_as_its_steps_or_samples(
    said: dict[str, Any], controls: Controls, tokens: int | None
) -> None:
    assert asked(said, controls).settings.get("tokens") == tokens


def test_packed_sequences_hold_as_many_samples_as_the_lengths_say() -> None:
    question = asked({"samples": 320, "packing": True}, Controls(lengths="512"))
    assert question.settings["tokens"] == pytest.approx(320 * 512)
    assert not any("--lengths" in each for each in question.launch.assumed)


@pytest.mark.parametrize("packing", [True, False])
def test_how_long_documents_are_is_asked_for(packing: bool) -> None:
    how = "packed sequences" if packing else "sequences without packing"
    said = f"{how} are full and one document each: how long documents are is not told (--lengths)"
    question = asked({"packing": packing})
    assert (question.launch.assumed[-1], question.job.packing) == (said, "on" if packing else "off")


@pytest.mark.parametrize(
    ("said", "layers"),
    [
        ({}, ()),
        ({"pp": 2}, (2, 2)),
        ({"pp": 2, "layers_per_stage": (1, 3)}, (1, 3)),
        ({"pp": 2, "layers_per_stage": (3, 3)}, (2, 2)),  # with the embedding and the head
        ({"pp": 4, "layers": 6}, ()),
    ],
)
def test_layers_lie_where_the_launch_has_them(said: dict[str, Any], layers: tuple[int, ...]) -> None:
    assert asked(said).plan.layers_per_stage == layers


@pytest.mark.parametrize(
    ("said", "vpp", "schedule"),
    [
        ({"pp": 2}, 1, "1f1b"),
        ({"pp": 2, "vpp": 2}, 2, "interleaved"),
        ({"vpp": 2}, 1, "1f1b"),
        ({"pp": 2, "schedule": "zero-bubble"}, 1, "zero-bubble"),
        ({"pp": 2, "schedule": "interleaved"}, 1, "1f1b"),
    ],
)
def test_schedules_follow_from_virtual_stages(said: dict[str, Any], vpp: int, schedule: str) -> None:
    plan = asked(said).plan
    assert (plan.vpp, plan.schedule) == (vpp, schedule)


def test_sequences_are_split_where_tensors_are() -> None:
    split = [asked({"tp": tp, "sequence_parallel": True}).plan.sequence_parallel for tp in (1, 2)]
    assert split == [False, True]
    assert not asked({"tp": 2}).plan.sequence_parallel
    assert asked({}, splits_sequences=True).splits_sequences
    assert not asked({}).splits_sequences
    assert asked({}, program="torchtitan").splits_sequences


def test_what_runs_today_is_within_the_limits() -> None:
    limits = asked({"micro_batch": 512, "tp": 16, "global_batch": 512}).job.limits
    assert (limits.max_tp, limits.max_micro_batch) == (16, 512)
    assert (asked({}).job.limits.max_tp, asked({}).job.limits.max_micro_batch) == (8, 0)
    assert asked({"micro_batch": 32, "global_batch": 512}).job.limits.max_micro_batch == 0  # the largest of this model
    assert asked({"cp": 16, "seq_len": 16}).job.limits.min_cp_tokens == 1
    short, long = asked({"cp": 16, "seq_len": 2048}).job.limits, asked({"cp": 2, "seq_len": 65_536}).job.limits
    assert (short.min_cp_tokens, long.min_cp_tokens) == (128, 2048)
    assert asked({}, Controls(hbm=70e9)).job.limits.hbm == 70e9


def test_what_a_program_has_one_way_is_fixed_and_what_it_has_some_ways_a_choice() -> None:
    limits = asked({}, program="torchtitan").job.limits
    assert limits.fixed["vpp"] == 1
    assert "vpp" not in limits.choices
    assert set(limits.choices["recompute"]) == {"none", "selective", "full"}
    assert "recompute" not in limits.fixed
    dispatchers = [asked({}, program=name).job.limits.fixed.get("dispatcher") for name in ("picotron", "Megatron-LM")]
    assert dispatchers == ["alltoall", None]
    assert set(asked({"recompute": "full"}, program="picotron").job.limits.choices["recompute"]) == {"none", "full"}


def test_settings_of_another_plan_follow_it() -> None:
    question = asked({"overlap": 1, "old": 2}, following=lambda plan: {"stage": plan.zero_stage, "old": None})
    settings = settings_of(question, Plan(dp=16, zero_stage=3), {"overlap": 4})
    assert (settings["stage"], settings["overlap"], "old" in settings) == (3, 4, False)


def test_the_name_of_an_unknown_model_is_said() -> None:
    with pytest.raises(InvalidFile) as error:
        asked({}, UNASKED, "layers", unsearched=["another", "x is no model that is known (--model)"])
    assert error.value.problems == ("x is no model that is known: give --model",)


@pytest.mark.parametrize(
    ("said", "shard"),
    [
        ({"hybrid": True}, 8),  # of a node of its machine
        ({"hybrid": True, "nodes": 2}, 8),
        ({"hybrid": True, "nodes": 2, "gpus": 8}, 4),
        ({"hybrid": True, "nodes": 4}, 4),
        ({"hybrid": True, "shard": 2}, 2),
        ({"hybrid": True, "gpus": 8}, None),
        ({"hybrid": False}, None),
    ],
)
def test_hybrid_shards_lie_within_a_node(said: dict[str, Any], shard: int | None) -> None:
    settings = asked(said).settings
    assert (settings.get("shard"), "hybrid" in settings) == (shard, False)


def test_settings_are_those_that_the_software_has() -> None:
    own, switched = (asked({"liger": "off"}, Controls(stack=name)) for name in ("megatron-core", "hf-2026"))
    assert ("liger" in own.settings, switched.settings["liger"]) == (False, "off")
    plain = asked({}).settings
    assert (plain["cuda_graphs"], plain["graphed"]) == (False, ())
    assert "cuda_graphs" not in asked({}, program="torchtitan").settings
    stages = [
        asked({"zero_stage": 3, **said}, program="verl").job.stack.features.zero_stages for said in ({}, {"fsdp": True})
    ]
    assert stages == [(1, 2, 3), (2, 3)]


@pytest.mark.parametrize(("named", "without"), [(("core_attn",), ["attn_proj"]), (("core_attn", "attn_proj"), [])])
def test_modules_that_stay_while_others_are_priced_on_the_host(named: tuple[str, ...], without: list[str]) -> None:
    question = asked({"offload_modules": named, "activation_offload": 1}, written={"offload_modules": "mods"})
    assert question.launch.unpriced == [f"mods without {name}, which are priced on the host too" for name in without]
    assert "offload_modules" not in question.settings


@pytest.mark.parametrize(
    ("family", "unpriced", "said"),
    [
        ("tpu", [], ["tpu, whose kind is not told (--device)"]),
        ("gpu:amd", [], ["gpu:amd, no device that is known (--device)"]),
        ("tpu", ["tpu, whose kind is not told (--device)"], ["tpu, whose kind is not told (--device)"]),
        ("", [], []),
    ],
)
def test_a_family_alone_is_no_device(family: str, unpriced: list[str], said: list[str]) -> None:
    assert asked({}, family=family, unpriced=unpriced).launch.unpriced == said
    assert asked({}, Controls(device="h100"), family=family).launch.unpriced == []


def test_a_vision_tower_that_is_not_priced_is_said_of_a_model_that_is_named() -> None:
    said = "the vision tower of gemma3-4b: neither its weights nor its passes"
    told = [
        asked({}, Controls(model="gemma3-4b"), *SHAPE),
        asked({"model": "gemma3-4b"}, UNASKED, *SHAPE, written={"model": "--model"}),
        asked({"model": "gemma3-4b"}, UNASKED, *SHAPE),
    ]
    assert [said in question.launch.unpriced for question in told] == [True, True, False]


@pytest.mark.parametrize(
    ("pp", "own", "filling", "split"),
    [
        (1, (), True, ()),
        (2, (), True, (18, 14)),
        (4, (), True, (9, 9, 8, 6)),
        (2, (15, 17), True, (15, 17)),
        (2, (), False, ()),
    ],
)
def test_stages_that_software_fills_itself(
    pp: int, own: tuple[int, ...], filling: bool, split: tuple[int, ...]
) -> None:
    stack = load_stack("nanotron-2024" if filling else "megatron-core")
    assert as_split(Plan(pp=pp, layers_per_stage=own), load_model("llama3-8b"), stack).layers_per_stage == split
    assert asked({}).plan.recompute_first == 0
