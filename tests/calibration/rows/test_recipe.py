"""What the words of a measured row change in its job and plan."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.calibration.rows import recipe
from optimizer.calibration.rows.notes import clean_columns
from optimizer.calibration.rows.recipe import (
    in_usual_layout,
    named_parameters,
    number_format,
    printed_layout,
    recomputation,
    sharding,
    stated_parameters,
    under_recipe,
    usual_vpp,
)
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.plan import Plan
from optimizer.job.stack import PARAMETERS, Features, Stack
from optimizer.objectives.pipeline.stages import filled_stages
from tests.search.jobs import small_job

COLUMNS = (
    "model,gpu,gpus,gpus_per_node,dp,tp,micro_batch,global_batch,seq_len,dtype,recompute,framework,step_time_s,notes\n"
)


def with_notes(row: dict[str, str], stack: Stack) -> Stack:
    return under_recipe(clean_columns(row, []), stack)


def features(notes: str, **columns: str) -> Features:
    return with_notes({"notes": notes, **columns}, Stack(name="mine")).features


def read(folder: Path, row: str) -> Run:
    path = folder / "runs.csv"
    path.write_text(COLUMNS + row + "\n", encoding="utf-8")
    (run,) = read_runs(path)
    assert run.refused == ""
    return run


@pytest.mark.parametrize("together", [True, False])
def test_ranks_that_share_a_sequence_split_its_heads_or_its_tokens(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixtral's 8 key-value heads are split by powers of two alone that divide 12 ranks."""
    job, offered = small_job(8), list[Plan]()
    features = replace(job.stack.features, sequence_parallel=together)
    job = replace(job, model=load_model("mixtral-8x7b"), stack=replace(job.stack, features=features))
    monkeypatch.setattr(recipe, "_fastest", lambda job, plans: offered.extend(plans) or plans[1])
    assumed: list[str] = []
    assert in_usual_layout(job, Plan(tp=12, pp=2), assumed) == offered[1]
    assert [(each.tp, each.cp, each.sequence_parallel) for each in offered] == [
        (1, 12, False),
        (2, 6, together),
        (4, 3, together),
    ]
    assert assumed == ["tp 2, cp 6"]


@pytest.mark.parametrize(
    ("cell", "told"), [("low", ""), ("high", ""), ("0.99low", "between"), ("1.01high", "between"), ("none", "between")]
)
def test_a_stated_parameter_lies_between_its_bounds_or_on_one(cell: str, told: str) -> None:
    """Each of them, as a row has it in a column of its own."""
    for name, bounds in PARAMETERS.items():
        if bounds.low <= 0:
            continue
        cells = {"low": bounds.low, "high": bounds.high, "0.99low": 0.99 * bounds.low, "1.01high": 1.01 * bounds.high}
        value = cells.get(cell, cell)
        row = {f"stack.{name}": f"{value!r}" if cell in cells else cell}
        if told:
            with pytest.raises(InputError, match=f"stack.{name} must be {told}"):
                named_parameters(row)
        else:
            assert named_parameters(row)[name].value == value


def test_a_row_without_words_keeps_its_stack() -> None:
    stack = Stack(name="mine")
    assert under_recipe({}, stack) is stack


@pytest.mark.parametrize(("words", "graphs"), [("cuda_graph_impl=local", True), ("cuda_graph_impl=none", False)])
def test_graphs(words: str, graphs: bool) -> None:
    assert features(f"overrides: {words}, cuda_graph_scope=full_iteration").cuda_graphs is graphs


def test_balanced_experts_override_the_fitted_imbalance() -> None:
    stack = Stack(name="mine", parameters={"expert_imbalance": 1.4})
    assert stack.imbalance == 1.4
    assert with_notes({"notes": "experts force-balanced"}, stack).imbalance == 1.0


def test_maxtext_keeps_the_projections_into_attention_and_says_so() -> None:
    assumed: list[str] = []
    assert recomputation(clean_columns({"framework": "MaxText"}, []), assumed) == "selective"
    assert "MaxText" in assumed[0]
    assert features("", framework="MaxText").selective == "qkv"
    assert recomputation({"framework": "MaxText", "recompute": "full"}, []) == "full"


def test_only_full_recomputation_counts_layers() -> None:
    notes = "recompute_num_layers=3"
    assert clean_columns({"recompute": "full", "notes": notes}, [])["recompute_first"] == "3"
    assert "recompute_first" not in clean_columns({"recompute": "selective", "notes": notes}, [])


def test_a_narrow_format_needs_units_for_it(tmp_path: Path) -> None:
    for gpu, dtype in (("GB200", "fp4"), ("H100", "fp8")):
        run = read(tmp_path, f"llama3-8b,{gpu},8,,8,1,1,64,8192,NVFP4,,,5,")
        assert run.job is not None
        assert run.job.dtype == dtype


def nemo_row(cells: str) -> dict[str, str]:
    """A row of NVIDIA's tables: container, GPU, model and format."""
    table, gpu, model, dtype = cells.split(", ")
    return {"table": f"{table} NeMo Container / Pre-Training", "gpu": gpu, "model": model, "dtype": dtype, "ep": "8"}


@pytest.mark.parametrize(
    ("cells", "fused"),
    [
        ("26.06.01, GB200, Qwen3_30B_a3B, MXFP8", True),
        ("26.08, B300, DeepSeekV3, FP8-MX", True),
        ("26.06, B300, DeepSeekV3, MXFP8", False),
        ("26.06, B300, Qwen3_30B_a3B, MXFP8", True),
        ("26.08, GB300, Kimi_K2, MXFP8", False),
        ("26.08, GB300, Nemotron_3_Super, MXFP8", False),
        ("26.08, GB300, Nemotron_3_Ultra, MXFP8", True),
        ("26.08, B300, GPT OSS 120B, MXFP8", False),
        ("26.04.01, GB200, Qwen3_30B_a3B, MXFP8", False),
        ("26.08, H100, Qwen3_30B_a3B, FP8-CS", False),
        ("26.08, GB300, Qwen3_30B_a3B, BF16", False),
    ],
)
def test_late_containers_fuse_the_experts_of_blackwell_where_their_recipes_say_so(cells: str, fused: bool) -> None:
    assert features("", **nemo_row(cells)).fused_experts is fused
    assert not features("", **(nemo_row(cells) | {"table": "26.08 tables"})).fused_experts


@pytest.mark.parametrize(
    ("cells", "vpp", "dispatcher", "overlapped"),
    [
        ("26.06, GB300, GPT OSS 120B, MXFP8", "", "hybridep", False),
        ("26.06, GB300, GPT OSS 120B, BF16", "", "", False),
        ("26.04, B300, Qwen3_235B_a22B, MXFP8", "", "", False),
        ("26.04.01, B300, Qwen3_235B_a22B, MXFP8", "", "hybridep", False),
        ("26.06.01, B200, Qwen3_235B_a22B, MXFP8", "3", "hybridep", False),
        ("26.04, H100, Qwen3_235B_a22B, FP8", "4", "alltoall", True),
        ("26.04.01, B200, DeepSeekV3, MXFP8", "2", "deepep", True),
        ("26.04.01, B200, DeepSeekV3, BF16", "", "hybridep", False),
        ("26.04.01, B200, Nemotron_3_Super, MXFP8", "", "hybridep", False),
    ],
)
def test_dispatchers_of_containers(cells: str, vpp: str, dispatcher: str, overlapped: bool) -> None:
    row = clean_columns(nemo_row(cells) | {"vpp": vpp}, [])
    assert row.get("dispatcher", "") == dispatcher
    assert (row.get("ep_overlap") == "on") is overlapped


@pytest.mark.parametrize(
    ("cells", "modules"),
    [
        ("26.04.01, H100, Nemotron_3_Nano, FP8", "core_attn+layernorm+moe"),
        ("26.04.01, B200, DeepSeekV3, MXFP8", "mla_up_proj+mlp"),
        ("26.04.01, GB200, DeepSeekV3, MXFP8", "mlp"),
        ("26.06, GB200, DeepSeekV3, MXFP8", "mla_up_proj"),
        ("26.06, GB300, DeepSeekV3, MXFP8", "none"),
        ("26.02, GB200, DeepSeekV3, MXFP8", "none"),
        ("26.04, GB200, GPT OSS 120B, BF16", "layernorm+moe_act"),
    ],
)
def test_recomputation_of_containers(cells: str, modules: str) -> None:
    assert set(recomputation(clean_columns(nemo_row(cells), []), []).split("+")) == set(modules.split("+"))
    assert recomputation(clean_columns(nemo_row(cells) | {"recompute": "full"}, []), []) == "full"


@pytest.mark.parametrize(
    ("layers", "hidden", "ffn_hidden", "first"),
    [(16, 2048, 8192, {2: 10, 4: 5, 8: 3, 16: 2}), (32, 4096, 14336, {2: 18, 4: 9, 8: 5, 16: 3, 32: 2})],
)
def test_the_first_stage_of_nanotron_holds_the_layers_that_its_logs_count(
    layers: int, hidden: int, ffn_hidden: int, first: dict[int, int]
) -> None:
    """Parameters of rank 0 in the logs of the Ultra-Scale Playbook's runs, less the embedding of 131,072 words."""
    model = replace(
        load_model("llama3-8b"),
        layers=layers,
        hidden=hidden,
        ffn_hidden=ffn_hidden,
        vocab=131_072,
        head_dim=hidden // 32,
    )
    for pp, count in first.items():
        split = filled_stages(model, pp)
        assert (len(split), sum(split), split[0]) == (pp, layers, count)


@given(layers=st.integers(1, 130), pp=st.integers(1, 40), vocab=st.integers(1, 300_000))
def test_filled_stages_hold_every_layer_once(layers: int, pp: int, vocab: int) -> None:
    split = filled_stages(replace(load_model("llama3-8b"), layers=layers, vocab=vocab), pp)
    assert (len(split), sum(split), min(split) >= 0) == (pp, layers, True)


def test_a_broken_network_slows_its_run(tmp_path: Path) -> None:
    rates = {}
    for rate in ("13", "175", ""):
        note = f"collective bench in the same job GB/s: AllReduce {rate}" if rate else ""
        run = read(tmp_path, f"llama3-8b,H100,64,8,64,1,1,64,8192,BF16,,,5,{note}")
        assert run.job is not None
        rates[rate] = run.job.cluster.tiers[1].bandwidth
    assert rates["175"] == rates[""]
    assert rates["13"] < 0.2 * rates[""]


def test_what_a_row_leaves_out_is_what_its_software_usually_has_and_said() -> None:
    stack = Stack(name="mine", features=Features(default_vpp=6, default_dtype="fp8"))
    assumed: list[str] = []
    assert [usual_vpp(stack, 96, pp, assumed) for pp in (1, 2, 8, 16)] == [1, 6, 6, 6]
    assert usual_vpp(stack, 94, 12, []) == 1
    assert number_format({}, load_cluster("h100"), stack, assumed) == "fp8"
    assert number_format({"dtype": "BF16"}, load_cluster("h100"), stack, []) == "bf16"
    assert number_format({}, load_cluster("a100"), stack, []) == "bf16"
    assert assumed == ["vpp 6", "vpp 6", "vpp 6", "dtype fp8"]


def test_fsdp_of_torchtitan_keeps_weights_whole_under_a_pipeline() -> None:
    stack, cluster = load_stack("torchtitan-2024"), load_cluster("dgx-h100")
    row = {"sharding": "3 (FSDP2)"}
    assert [sharding(row, stack, cluster, piped=piped) for piped in (False, True)] == [(3, 0), (1, 0)]
    assert sharding(row, load_stack("megatron-core"), cluster, piped=True) == (1, 0)
    assert sharding(row, Stack(name="mine"), cluster, piped=True) == (3, 0)


def test_a_torchtitan_run_without_the_compiler_has_no_fused_norms() -> None:
    assert not features("FSDP; memory GiB", stack="torchtitan-2024").fused_norm
    assert features("FSDP + torch.compile", stack="torchtitan-2024").fused_norm
    assert features("FSDP; memory GiB", stack="mine").fused_norm
    assert not features("no compile", stack="torchtitan-2025").fused_norm


def test_real_routing_is_a_trained_router_whatever_the_column_says() -> None:
    assert features("real routing (dropless), as in the forced-balance row", balance="forced").routing == "trained"
    assert features("", balance="real").routing == "trained"
    assert with_notes({"balance": "forced"}, Stack(name="mine")).imbalance == 1.0


def test_a_printed_layout_is_read_with_its_prediction_layers() -> None:
    assert printed_layout(clean_columns({"notes": "layout Et|(tt|)*30L (32 stages)"}, []), 61, 32) == (
        (1, *(2,) * 30, 0),
        False,
    )
    assert printed_layout({"layout": "Et|tt|tmL"}, 4, 3) == ((1, 2, 1), True)
    assert printed_layout({"layout": "Et|tt|tmL"}, 5, 3) is None
    assert printed_layout(clean_columns({"notes": "no layout"}, []), 5, 3) is None


def test_a_named_dispatcher_travels_with_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    head = "model,gpu,gpus,ep,micro_batch,global_batch,step_time_s,dispatcher,inter_link\n"
    path.write_text(head + "qwen3-30b-a3b,H100,64,16,1,64,5,DeepEP+UCCL,32x 100Gb/s EFA per node\n", encoding="utf-8")
    (run,) = read_runs(path)
    assert run.plan is not None
    assert run.job is not None
    assert (run.plan.dispatcher, run.job.cluster.tiers[1].link.name) == ("deepep", "efa-v2")
    assert run.job.stack.features.posts_tokens


def test_asynchronous_tensor_parallelism_hides_a_quarter() -> None:
    stack = Stack(name="mine", parameters={"tp_overlap": 0.1})
    assert with_notes({"notes": "async TP; torch.compile"}, stack)["tp_overlap"] == 0.25
    assert with_notes({"notes": "vanilla TP; torch.compile"}, stack)["tp_overlap"] == 0.1
    more = Stack(name="mine", parameters={"tp_overlap": 0.7})
    assert with_notes({"notes": "async TP"}, more)["tp_overlap"] == 0.7


def test_the_recipe_of_a_narrow_format_is_the_rows() -> None:
    assert features("fp8 all-gather", dtype="fp8 rowwise").fp8_recipe == "rowwise"
    assert features("rowwise vocabulary", dtype="bf16").fp8_recipe == ""
    assert features("", dtype="mxfp8 grouped GEMMs only").narrow_products == "experts"


@pytest.mark.parametrize(
    ("scope", "whole", "parts"),
    [
        ("['moe_router', 'moe_preprocess']", False, ("router", "shared_experts")),
        ("['attn', 'moe_router']", False, ("attention", "router", "shared_experts")),
        ("full_iteration", True, ()),
    ],
)
def test_a_graph_of_parts_replays_these_alone(scope: str, whole: bool, parts: tuple[str, ...]) -> None:
    found = features(f"overrides: cuda_graph_impl=transformer_engine, cuda_graph_scope={scope}, fp8=mx")
    assert (found.cuda_graphs, found.graphed) == (whole, parts)
    off = features(f"overrides: cuda_graph_impl=none, cuda_graph_scope={scope}")
    assert (off.cuda_graphs, off.graphed) == (False, ())


@pytest.mark.parametrize(
    ("notes", "table", "waits"),
    [
        ("variant: tokendrop; 128 experts", "25.11 NeMo Container / Pre-Training", False),
        ("128 experts", "25.09 NeMo Container / Pre-Training", False),
        ("128 experts", "25.11 NeMo Container / Pre-Training", True),
    ],
)
def test_a_host_waits_for_nothing_where_tokens_are_dropped(notes: str, table: str, waits: bool) -> None:
    stack = Stack(name="mine", features=Features(synchronised=True))
    assert with_notes({"notes": notes, "table": table}, stack).features.synchronised is waits


def test_benchmarks_of_torchtitan_have_an_untrained_router_unless_balance_is_forced() -> None:
    row = {"stack": "torchtitan-2025", "experts": "16"}
    assert with_notes(row, Stack(name="mine")).features.routing == "fresh"
    assert with_notes({**row, "balance": "forced"}, Stack(name="mine")).features.routing == ""
    assert with_notes({"stack": "torchtitan-2025"}, Stack(name="mine")).features.routing == ""


def test_states_of_fewer_bytes_are_read() -> None:
    features = with_notes({"notes": "BF16 Adam moments, FP8 primary weights"}, Stack(name="mine")).features
    assert (features.optimizer_bytes, features.param_bytes) == (8, 1)
    features = with_notes({"notes": "weight_dtype=bfloat16"}, Stack(name="mine")).features
    assert (features.optimizer_bytes, features.grad_bytes) == (6, 2)


def test_overlaps_that_a_launch_had_switched_off_hide_no_more_than_without_them() -> None:
    stack = Stack(name="mine", parameters={"tp_overlap": 0.8, "p2p_overlap": 0.5, "dp_overlap": 0.9})
    found = with_notes({"notes": "ub_tp_comm_overlap=False, overlap_p2p_comm=False"}, stack)
    # Megatron-LM hides four of ten collectives of a layer without being told.
    assert (found["tp_overlap"], found["p2p_overlap"], found["dp_overlap"]) == (0.4, 0.0, 0.9)
    assert with_notes({"notes": "TP_COMM_OVERLAP=True"}, stack) is stack


def test_a_parameter_that_was_measured_on_the_machine_of_a_row_is_moved_by_no_fit() -> None:
    stack = Stack(name="mine", parameters={"launch": 5e-6, "hbm_efficiency": 0.7})
    found = under_recipe({"stack.launch": "3.4e-05"}, stack)
    assert (found["launch"], found["hbm_efficiency"], list(stated_parameters(found))) == (3.4e-5, 0.7, ["launch"])


def test_an_older_release_recomputes_to_the_end() -> None:
    stack = Stack(name="mine", features=Features(stops_early=True))
    assert with_notes({"notes": "torch 1.13"}, stack).features.stops_early is False
    assert with_notes({"notes": "torch 2.1"}, stack).features.stops_early
