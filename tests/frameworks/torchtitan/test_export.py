import tomllib
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.targets import aimed
from optimizer.frameworks.export_folder import exported, write_exports
from optimizer.frameworks.files import read_files
from optimizer.frameworks.launch_as_read import plan_of
from optimizer.frameworks.read import read_launch
from optimizer.frameworks.torchtitan.export import parallelism, torchtitan_toml, unexpressed
from optimizer.frameworks.torchtitan.export_python import torchtitan_python
from optimizer.frameworks.torchtitan.models import MAIN, MODELS, NEW, OLD, flavor_of
from optimizer.frameworks.torchtitan.python import titan_values
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan
from tests.clients.accepted import risked
from tests.frameworks.read_back import differing, read_config
from tests.thorough import cases


@pytest.fixture
def titan_answer(gpt3_answer: Answer) -> Answer:
    """A pipelined plan that torchtitan runs."""
    job = replace(
        gpt3_answer.job, model=load_model("llama3-70b"), stack=load_stack("torchtitan-2024"), seq_len=8192, gpus=256
    )
    assert gpt3_answer.plan is not None
    titan = replace(gpt3_answer.plan, zero_stage=3, recompute="full", dp=4, vpp=5, num_microbatches=384)
    return replace(gpt3_answer, job=job, plan=titan)


def test_a_pipelined_plan(titan_answer: Answer) -> None:
    config = tomllib.loads(torchtitan_toml(titan_answer))
    assert config["model"] == {"name": "llama3", "flavor": "70B"}
    parallelism = config["parallelism"]
    assert parallelism["tensor_parallel_degree"] == 8
    assert parallelism["pipeline_parallel_degree"] == 8
    assert parallelism["pipeline_parallel_schedule"] == "Interleaved1F1B"
    stages = parallelism["module_fqns_per_model_part"]
    assert len(stages) == 40
    assert stages[0] == ["tok_embeddings", "layers.0", "layers.1"]
    assert stages[-1] == ["layers.78", "layers.79", "norm", "output"]
    assert parallelism["data_parallel_shard_degree"] == 4
    # One rank of 4 runs 384 micro-batches of one sequence.
    training = config["training"]
    assert (training["local_batch_size"], training["global_batch_size"], training["seq_len"]) == (384, 1536, 8192)
    assert config["activation_checkpoint"]["mode"] == "full"


@pytest.mark.parametrize(("tp", "overlap", "on"), [(8, 0.5, True), (8, 0.0, None), (1, 0.5, None)])
def test_tensor_parallel_collectives_run_under_products_where_the_price_says_so(
    titan_answer: Answer, tp: int, overlap: float, on: bool | None
) -> None:
    assert titan_answer.plan is not None
    job = replace(titan_answer.job, stack=replace(titan_answer.job.stack, parameters={"tp_overlap": overlap}))
    values = parallelism(job, replace(titan_answer.plan, tp=tp), OLD)
    assert values.get("enable_async_tensor_parallel") is on


def test_releases_in_python_name_the_head_otherwise_and_the_last_counts_tokens(titan_answer: Answer) -> None:
    texts = torchtitan_python(titan_answer, NEW), torchtitan_python(titan_answer, MAIN)
    release, main = (titan_values(text, "llama3_70b_plan") for text in texts)
    assert release["parallelism.module_fqns_per_model_part"][-1] == ["layers.78", "layers.79", "norm", "lm_head"]
    assert release["training.local_batch_size"] == 384
    assert main["training.num_tokens_per_microbatch_per_dp_rank"] == 8192
    assert main["training.num_tokens_per_train_step"] == 1536 * 8192
    assert main["parallelism.num_pp_microbatches"] == 384
    assert release["training.disable_cuda_graphs"] is True


def test_an_even_layout_is_read_as_the_search_names_it(titan_answer: Answer, tmp_path: Path) -> None:
    """Said or not it is the same layout, but the bubble differed in the last digit."""
    assert titan_answer.plan is not None
    even = replace(titan_answer, plan=replace(titan_answer.plan, layers_per_stage=(10,) * 8))
    for path in write_exports(even, tmp_path / "out")[0]:
        if path.name.startswith("torchtitan"):
            assert read_config(even.job, path)[0].layers_per_stage == (10,) * 8
            assert differing(even, path) == ""


def test_fully_sharded_inside_groups(titan_answer: Answer) -> None:
    answer = replace(titan_answer, plan=Plan(dp=256, zero_stage=3, shard=8, micro_batch=1, num_microbatches=6))
    parallelism = tomllib.loads(torchtitan_toml(answer))["parallelism"]
    assert (parallelism["data_parallel_replicate_degree"], parallelism["data_parallel_shard_degree"]) == (32, 8)
    assert parallelism["fsdp_reshard_after_forward"] == "always"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"zero_stage": 1, "pp": 1, "vpp": 1}, "ZeRO-1"),
        ({"zero_stage": 2}, "ZeRO-2 under a pipeline"),
        ({"zero_stage": 0, "cp": 2}, "replicas of weights over context-parallel ranks"),
        ({"zero_stage": 0}, "replicas of whole weights beside tensor or pipeline parallelism"),
        ({"sequence_parallel": False}, "tensor without sequence parallelism"),
        ({"schedule": "zero-bubble", "vpp": 1}, "the schedule zero-bubble"),
        ({"recompute": "selective+x"}, "recomputation of selective"),
        ({"recompute_first": 1}, "recomputation of some layers"),
        ({"recompute": "none", "activation_offload": 30}, "activations on the host"),
    ],
)
def test_what_it_would_do_otherwise_is_refused(titan_answer: Answer, changes: dict[str, int], reason: str) -> None:
    assert titan_answer.plan is not None
    with pytest.raises(InputError, match=reason):
        torchtitan_toml(replace(titan_answer, plan=replace(titan_answer.plan, **changes)))


def test_numbers_it_does_not_have_are_refused(titan_answer: Answer) -> None:
    job, own = titan_answer.job, titan_answer.plan
    assert own is not None
    half = replace(job.stack, features=replace(job.stack.features, grad_bytes=2, dropout=True))
    assert unexpressed(OLD, replace(job, dtype="fp16"), own) == ("the number format fp16",)
    assert unexpressed(OLD, replace(job, stack=half), own) == ("gradients that are reduced in bf16", "dropout")
    parts = replace(job.stack, features=replace(job.stack.features, loss_chunks=8))
    lacking = [unexpressed(release, replace(job, stack=parts), own) for release in (OLD, NEW)]
    assert lacking == [("a loss that has the logits of some of the tokens in turn",), ()]
    assert unexpressed(OLD, job, own, knobs=Knobs(offload=0.1)) == ("a share of the optimizer on the host",)
    assert unexpressed(OLD, job, own, knobs=Knobs(bucket=2e8)) == ("gradient buckets of another size than its own",)
    assert unexpressed(OLD, replace(job, model=load_model("gpt3")), own) == ("the model gpt3",)
    assert unexpressed(OLD, replace(job, model=replace(job.model, vocab=32000)), own) == ("the model llama3-70b",)


def test_experts_lie_on_ranks_that_share_weights(titan_answer: Answer) -> None:
    job = replace(titan_answer.job, model=load_model("qwen3-30b-a3b"))
    good = Plan(dp=32, tp=2, ep=8, zero_stage=3, sequence_parallel=True)
    assert unexpressed(NEW, job, good) == ()
    assert unexpressed(NEW, job, replace(good, zero_stage=0)) == ("EP 8 over ranks that do not share weights",)
    assert unexpressed(OLD, job, replace(good, etp=2)) == ()
    assert "experts of one rank split 2 ways" in unexpressed(NEW, job, replace(good, etp=2))[0]
    assert "experts of one rank split 1 ways" in unexpressed(NEW, job, replace(good, ep=1))[0]
    assert unexpressed(OLD, job, replace(good, dispatcher="hybridep")) == ("the dispatcher hybridep",)


PLAIN = Plan(dp=16, zero_stage=3)
TENSOR = replace(PLAIN, dp=8, tp=2, sequence_parallel=True)
PIPED = replace(PLAIN, dp=8, pp=2, num_microbatches=2)
WHOLE = ("replicas of whole weights beside tensor or pipeline parallelism",)
BUCKET = ("gradient buckets of another size than its own",)
SHARE = ("a share of the multiprocessors for gradients",)
ONE = ("ZeRO-1 without a pipeline (gradients are sharded with the optimizer)",)
ALONE = ("bf16 without weights that are shared",)


@pytest.mark.parametrize(
    ("own", "knobs", "lacking"),
    [
        (PLAIN, Knobs(), ()),
        (TENSOR, Knobs(), ()),
        (PIPED, Knobs(), ()),
        (replace(PLAIN, zero_stage=0), Knobs(), ()),
        (replace(TENSOR, zero_stage=0), Knobs(), WHOLE),
        (replace(PIPED, zero_stage=0), Knobs(), WHOLE),
        (replace(TENSOR, dp=1, tp=16, zero_stage=0), Knobs(), (*ALONE, "8 key-value heads split 16 ways")),
        (replace(TENSOR, dp=1), Knobs(), ALONE),
        (replace(PIPED, dp=1), Knobs(), ALONE),
        (replace(PLAIN, dp=1), Knobs(), ()),
        (replace(TENSOR, tp=8), Knobs(), ()),
        (replace(PLAIN, zero_stage=1), Knobs(), ONE),
        (replace(PLAIN, dp=1, zero_stage=1), Knobs(), ()),
        (replace(PIPED, zero_stage=1), Knobs(), ()),
        (replace(PLAIN, zero_stage=2), Knobs(), ()),
        (replace(PIPED, zero_stage=2), Knobs(), ("ZeRO-2 under a pipeline (gradients are scattered once per step)",)),
        (replace(PLAIN, cp=2), Knobs(), ()),
        (replace(PLAIN, cp=2, shard=8), Knobs(), ()),
        (replace(PLAIN, cp=2, shard=32), Knobs(), ()),
        (replace(PLAIN, cp=2, shard=3), Knobs(), ("groups of 3 that share weights with 2 context-parallel ranks",)),
        (
            replace(PLAIN, dp=6, cp=2, shard=8),
            Knobs(),
            ("groups of 8 that share weights with 2 context-parallel ranks",),
        ),
        (replace(PLAIN, cp=2, shard=1), Knobs(), ("groups of 1 that share weights with 2 context-parallel ranks",)),
        (
            replace(PLAIN, dp=9, cp=2, shard=8),
            Knobs(),
            ("groups of 8 that share weights with 2 context-parallel ranks",),
        ),
        (replace(PLAIN, dp=12, cp=2, shard=8), Knobs(), ()),
        (replace(PLAIN, dp=3, cp=2, shard=2), Knobs(), ()),
        (replace(PLAIN, dp=2, cp=1, zero_stage=1), Knobs(), ONE),
        (replace(TENSOR, dp=2, zero_stage=0), Knobs(), WHOLE),
        (replace(TENSOR, tp=7), Knobs(), ("8 key-value heads split 7 ways",)),
        (replace(PIPED, num_microbatches=1), Knobs(), ("1 micro-batches for 2 stages",)),
        (replace(TENSOR, sequence_parallel=False), Knobs(), ("tensor without sequence parallelism",)),
        (replace(PLAIN, recompute="full"), Knobs(), ()),
        (replace(PLAIN, recompute="full", recompute_layers=(2,)), Knobs(), ("recomputation of some layers",)),
        (replace(PLAIN, recompute="selective"), Knobs(), ()),
        (replace(PLAIN, recompute="layernorm"), Knobs(), ("recomputation of layernorm as priced",)),
        (replace(PLAIN, activation_offload=1), Knobs(), ("activations on the host",)),
        (replace(PLAIN, overlap_exchange=True), Knobs(), ("an all-to-all that overlaps another micro-batch",)),
        (PLAIN, Knobs(bucket=2e8), BUCKET),
        (PLAIN, Knobs(comm_sm_share=0.2), SHARE),
        (replace(PLAIN, dp=2), Knobs(bucket=2e8, comm_sm_share=0.2), (*BUCKET, *SHARE)),
        (replace(PLAIN, dp=1), Knobs(bucket=2e8, comm_sm_share=0.2), ()),
        (PLAIN, Knobs(offload=0.01), ("a share of the optimizer on the host",)),
    ],
)
def test_what_a_plan_lacks(titan_answer: Answer, own: Plan, knobs: Knobs, lacking: tuple[str, ...]) -> None:
    assert unexpressed(OLD, titan_answer.job, own, knobs) == lacking


@pytest.mark.parametrize(
    ("features", "lacking"),
    [
        ({"loss_chunks": 1}, ()),
        ({"loss_chunks": 2}, ("a loss that has the logits of some of the tokens in turn",)),
        ({"optimizer_bytes": 8}, ("master weights and moments of 8 bytes",)),
        ({"grad_bytes": 2}, ("gradients that are reduced in bf16",)),
        ({"attention": "unfused"}, ("unfused attention",)),
        ({"attention": "flash3"}, ()),
    ],
)
def test_what_software_lacks(titan_answer: Answer, features: dict[str, Any], lacking: tuple[str, ...]) -> None:
    stack = titan_answer.job.stack
    job = replace(titan_answer.job, stack=replace(stack, features=replace(stack.features, **features)))
    assert unexpressed(OLD, job, PLAIN) == lacking


def test_what_a_model_lacks(titan_answer: Answer) -> None:
    def lacking(name: str, own: Plan, release: str = OLD, **changes: Any) -> tuple[str, ...]:
        return unexpressed(release, replace(titan_answer.job, model=load_model(name), **changes), own)

    assert lacking("qwen3-32b", PIPED) == ("a pipeline",)
    assert [lacking("qwen3-32b", PLAIN), lacking("qwen3-32b", PIPED, NEW)] == [(), ()]
    tied = "a pipeline for an embedding and a head that share weights"
    assert [tied in lacking("llama3.2-1b", own, NEW) for own in (PLAIN, PIPED)] == [False, True]
    assert "MTP layers" in unexpressed(
        NEW, replace(titan_answer.job, model=replace(titan_answer.job.model, mtp_layers=1)), PLAIN
    )
    ranks = "EP 2 over ranks that do not share weights"
    shared = [
        replace(PLAIN, dp=3, cp=cp, tp=tp, ep=2, zero_stage=3, sequence_parallel=tp > 1)
        for cp, tp in ((1, 1), (2, 1), (1, 2))
    ]
    assert [ranks in lacking("qwen3-30b-a3b", own, NEW) for own in shared] == [True, False, False]
    far = replace(PLAIN, dp=16, ep=2, dispatcher="other")
    assert [lacking("qwen3-30b-a3b", replace(far, ep=ep), NEW) for ep in (1, 2)] == [(), ("the dispatcher other",)]
    scaled = "8-bit operands that are scaled tensorwise (--fix fp8_recipe=rowwise)"
    forms = [("llama3-70b", OLD), ("llama3-70b", NEW), ("qwen3-30b-a3b", OLD)]
    assert [scaled in lacking(name, PLAIN, release, dtype="fp8") for name, release in forms] == [False, True, True]
    experts, crossed = "8-bit experts under pipeline or context parallelism", replace(PLAIN, cp=2)
    assert experts in lacking("qwen3-30b-a3b", crossed, dtype="fp8")
    assert experts not in lacking("qwen3-30b-a3b", PLAIN, dtype="fp8")
    assert experts not in lacking("llama3-70b", crossed, dtype="fp8")


def test_every_model_of_the_table_is_a_preset() -> None:
    for name, flavor in MODELS.items():
        found = flavor_of(load_model(name), MAIN)
        assert found == flavor


@pytest.mark.parametrize("seed", range(3))
def test_configs_read_back_cost_the_same(seed: int, tmp_path: Path) -> None:
    random, read = Random(seed), 0
    while read < cases(6, sample=2):
        job = drawn(random)
        answer = plan(job, top=0, trials=0, priced_risk=False, explained=False, read_twice=False) if job else None
        if answer is None or answer.plan is None:
            continue
        answer = risked(answer)
        found = exported(answer)
        assert all(not name.startswith("megatron") for name in (*found.texts, *found.refused))
        if not found.texts:
            continue
        read += 1
        write_exports(answer, tmp_path / str(read))
        for name in found.texts:
            compare(answer, tmp_path / str(read) / name)


def drawn(random: Random) -> Job | None:
    try:
        job = Job(
            model=load_model(random.choice(list(MODELS))),
            cluster=load_cluster(random.choice(("dgx-h100", "dgx-a100-80", "dgx-b200", "mi300x"))),
            stack=aimed(load_stack("torchtitan-2024"), "torchtitan"),
            gpus=random.choice((8, 16, 32, 64)),
            seq_len=random.choice((2048, 8192)),
            global_batch=random.choice((32, 64)),
            dtype=random.choice(("bf16", "fp8")),
        )
    except InputError:  # the device has no units for the format
        return None
    pins = random.choice(({}, {"pp": 2}, {"pp": 4, "vpp": 2}, {"tp": 2}, {"cp": 2, "zero_stage": 3}))
    return job.with_limits(fixed=pins, bubble=1.0, oom_risk=EVEN_RISK)


def compare(answer: Answer, path: Path) -> None:
    """Read the plan from a config and price both."""
    job, problems = answer.job, list[str]()
    assert answer.plan is not None
    launch = read_launch(read_files([str(path)]), gpus=job.gpus).launch
    found = plan_of(launch, dict(launch.settings), job.gpus, None, problems)
    assert not problems
    said = launch.settings
    assert (said["dtype"], said["seq_len"], said["global_batch"]) == (job.dtype, job.seq_len, job.global_batch)
    before, after = (price(job, Plans.of([which]), answer.knobs) for which in (answer.plan, found))
    assert float(after.step_time[0]) == float(before.step_time[0])
    assert float(after.reserved[0]) == float(before.reserved[0])


@pytest.mark.parametrize("name", ['x"\n[model]\nname = "y', "x\n$(touch OUCH)", '"""\nimport os'])
def test_no_name_of_a_model_is_written(titan_answer: Answer, name: str) -> None:
    job = replace(titan_answer.job, model=replace(titan_answer.job.model, name=name))
    with pytest.raises(InputError, match="lacks the model"):
        torchtitan_python(replace(titan_answer, job=job), NEW)


@pytest.mark.parametrize(
    ("model", "fixed"),
    [
        ("qwen3-30b-a3b", {"tp": 2, "ep": 1}),
        ("qwen3-30b-a3b", {"tp": 2, "ep": 8}),
        ("qwen3-30b-a3b", {"cp": 2}),
        ("llama3-8b", {"cp": 2}),
        ("qwen3-1.7b", {}),
    ],
)
def test_what_it_cannot_run_is_not_proposed(model: str, fixed: dict[str, int]) -> None:
    """Experts split as other weights without EP; context-parallel ranks share weights; one stage for tied ones."""
    stack = aimed(load_stack("torchtitan-2024"), "torchtitan")
    job = Job(
        model=load_model(model), cluster=load_cluster("dgx-h100"), stack=stack, gpus=16, seq_len=4096, global_batch=32
    )
    answer = plan(job.with_limits(fixed=fixed, bubble=1.0), trials=0, top=3, priced_risk=False)
    assert answer.plan is not None
    for own in (answer.plan, *(other.plan for other in answer.alternatives)):
        assert unexpressed(NEW, job, own) == ()


def test_a_conflict_names_what_torchtitan_cannot_run() -> None:
    stack = aimed(load_stack("torchtitan-2024"), "torchtitan")
    job = Job(
        model=load_model("qwen3-1.7b"),
        cluster=load_cluster("dgx-h100"),
        stack=stack,
        gpus=8,
        seq_len=4096,
        global_batch=32,
    )
    clashes = plan(job.with_limits(fixed={"pp": 2}, bubble=1.0), trials=0).conflict
    assert "tied-pipeline" in {clash.rule for clash in clashes}
