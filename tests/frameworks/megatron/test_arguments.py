from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optimizer.base.errors import InvalidFile
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.frameworks.files import read_files
from optimizer.frameworks.megatron.export import arguments, plan_flags, precision_flags
from optimizer.frameworks.megatron.layout import is_even, stage_layers
from optimizer.frameworks.read import read_launch
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, balanced
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import Features
from tests.frameworks.launches import read_arguments
from tests.search.jobs import small_job

SC21 = """
torchrun --nnodes 128 --nproc_per_node 8 pretrain_gpt.py \\
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 \\
    --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel --use-distributed-optimizer \\
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 \\
    --micro-batch-size 1 --global-batch-size 1536 --recompute-activations --bf16 \\
    --lr 6.0e-5 --train-iters 500000
"""


def test_a_launch_command_as_people_write_it() -> None:
    plan, job = read_arguments(SC21)
    assert plan == Plan(
        tp=8,
        pp=8,
        vpp=6,
        dp=16,
        micro_batch=1,
        num_microbatches=96,
        sequence_parallel=True,
        zero_stage=1,
        recompute="selective",
        schedule="interleaved",
        layers_per_stage=(12,) * 8,
    )
    assert job["gpus"] == 1024
    assert job["dtype"] == "bf16"
    assert (job["hidden"], job["seq_len"], job["global_batch"]) == (12288, 2048, 1536)
    assert job["ignored"] == ["--lr"]
    assert job["tokens"] == 500_000 * 1536 * 2048


@pytest.mark.parametrize(("attention", "backend", "unfused"), [("flash", "flash", False), ("unfused", "unfused", True)])
def test_masked_softmax_is_unfused_where_attention_is(attention: str, backend: str, unfused: bool) -> None:
    flags = precision_flags(small_job(features=Features(attention=attention)))
    assert flags["--attention-backend"] == backend
    assert ("--no-masked-softmax-fusion" in flags) is unfused


@st.composite
def plans(draw: st.DrawFn) -> tuple[Job, Plan]:
    model = load_model(draw(st.sampled_from(["gpt3", "llama3.1-405b", "mixtral-8x22b", "deepseek-v3"])))
    tp, cp, pp, dp = (2 ** draw(st.integers(0, most)) for most in (3, 2, 4, 4))
    micro_batch, num_microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 64))
    vpp = draw(st.sampled_from([1, 2, 3])) if pp > 1 else 1
    zero_stage = draw(st.integers(0, 3))
    plan = Plan(
        tp=tp,
        cp=cp,
        ep=draw(st.sampled_from([1, 2])) if model.experts else 1,
        etp=draw(st.sampled_from([1, tp])) if model.experts else 1,
        pp=pp,
        vpp=vpp,
        dp=dp,
        micro_batch=micro_batch,
        num_microbatches=num_microbatches,
        sequence_parallel=tp > 1 and draw(st.booleans()),
        zero_stage=zero_stage,
        shard=dp * cp // 2 if zero_stage and dp * cp > 1 and draw(st.booleans()) else 0,
        recompute=draw(st.sampled_from(RECOMPUTE)),
        overlap_exchange=draw(st.booleans()),
        activation_offload=draw(st.sampled_from([0, 0, 37, 100])),
        schedule="interleaved" if vpp > 1 else "1f1b",
    )
    assume(plan.tp * plan.cp * plan.dp % (plan.ep * plan.etp) == 0)
    if not is_even(plan, model.layers):
        plan = replace(plan, layers_per_stage=stage_layers(plan, model.layers))
    job = Job(
        model=model,
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=plan.gpus,
        seq_len=4096,
        global_batch=dp * micro_batch * num_microbatches,
        dtype=draw(st.sampled_from(["bf16", "fp8"])),
    )
    return job, plan


@given(plans())
def test_what_is_exported_reads_back_the_same(drawn: tuple[Job, Plan]) -> None:
    job, plan = drawn
    found, settings = read_arguments(arguments(plan_flags(job, plan, Knobs())), job.gpus)
    assert found == replace(plan, layers_per_stage=plan.layers_per_stage or balanced(job.model.layers, plan.pp))
    assert settings["dtype"] == job.dtype
    assert settings["layers"] == job.model.layers
    assert settings["global_batch"] == job.global_batch


BASE = "--num-layers 96 --seq-length 2048 --micro-batch-size 1 --global-batch-size 1536 "


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            "--tensor-model-paralel-size 8",
            r"unknown argument --tensor-model-paralel-size; did you mean --tensor-model-",
        ),
        ("--pipeline-model-parallel-size 5", "1 x 1 x 5 does not divide 1024 GPUs"),
        ("--pipeline-model-parallel-size 64", "--num-layers 96 is not a multiple of --pipeline-model-parallel-size 64"),
        ("--tensor-model-parallel-size eight", "--tensor-model-parallel-size eight: no whole number"),
        ("--num-layers-per-virtual-pipeline-stage 0", "must be a whole number of at least 1, but got '0'"),
        ("--context-parallel-size 2 --ds-sequence-parallel-size 4", "is given twice, as 2 and as 4"),
        ("--bf16 --fp16", "--bf16 contradicts --fp16"),
        ("--recompute-activations --recompute-granularity full", "contradicts --recompute-granularity full"),
        ("--fine-grained-activation-offloading --activation-offload-fraction 2", "a number from 0 to 1, but got '2'"),
        ("--recompute-activations --recompute-modules mlp mhc", "must be of core_attn, .*, but got mhc"),
        ("--recompute-activations --recompute-modules moe_act --fp8-format hybrid", "needs another --fp8-recipe"),
    ],
)
def test_wrong_arguments_are_named(extra: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        read_arguments(BASE + extra, gpus=1024)


@pytest.mark.parametrize(
    ("extra", "mode"),
    [
        ("--recompute-activations --recompute-modules moe_act layernorm --bf16", "layernorm+moe_act"),
        ("--recompute-granularity selective --recompute-modules=mlp", "mlp"),
        ("--recompute-granularity selective --recompute-modules moe moe_act", "moe"),
        ("--recompute-granularity selective --recompute-modules core_attn", "selective"),
        ("--recompute-modules mlp", "none"),
    ],
)
def test_modules_to_recompute_are_read(extra: str, mode: str) -> None:
    assert read_arguments(BASE + extra, gpus=512)[0].recompute == mode


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InvalidFile, match="--micro-batch-size is missing"):
        read_arguments("--num-layers 96 --seq-length 2048 --global-batch-size 8")
    with pytest.raises(InvalidFile) as caught:
        read_arguments("--micro-batch-size 1 --hidden-size 8 --num-attention-heads 1")
    assert caught.value.problems[:2] == ("--seq-length is missing", "--num-layers is missing")


def test_of_a_flag_given_twice_the_last_counts() -> None:
    assert read_arguments(f"{BASE} --seq-length 4096", gpus=512)[1]["seq_len"] == 4096


@pytest.mark.parametrize(
    ("text", "blocks"), [('{"dp_cp": {"max_ctas": 24}}', 24), ("[1]", None), ("{", None), ('{"dp_cp": 3}', None)]
)
@pytest.mark.parametrize("inside", [True, False])
def test_blocks_of_communicators_are_read_where_they_are(
    tmp_path: Path, text: str, blocks: int | None, *, inside: bool
) -> None:
    """In a document that the script writes, or beside it; what is no such file tells nothing."""
    written = f"cat >\"$OUT/nccl.json\" <<'END'\n{text}\nEND\n" if inside else ""
    if not inside:
        (tmp_path / "nccl.json").write_text(text)
    (path := tmp_path / "launch.sh").write_text(
        f"{written}{SC21.strip()} --nccl-communicator-config-path $OUT/nccl.json\n"
    )
    launch = read_launch(read_files([str(path)])).launch
    assert launch.problems == []
    assert launch.settings.get("blocks") == blocks
