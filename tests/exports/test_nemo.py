from dataclasses import replace

from optimizer.answer import Answer
from optimizer.exports.nemo import nemo_overrides
from optimizer.plan import Plan
from optimizer.presets import load_model


def test_gpt3_on_1024_gpus(gpt3_answer: Answer) -> None:
    overrides = dict(line.split("=", 1) for line in nemo_overrides(gpt3_answer))
    assert overrides["model.tensor_model_parallel_size"] == "8"
    assert overrides["model.virtual_pipeline_model_parallel_size"] == "6"
    assert overrides["model.pipeline_model_parallel_layout"] == "null"
    assert overrides["model.sequence_parallel"] == "true"
    assert overrides["model.recompute_granularity"] == "selective"
    assert overrides["train.global_batch_size"] == "1536"
    assert overrides["ddp.use_megatron_fsdp"] == "false"


def test_activations_on_the_host_are_a_share_of_modules(gpt3_answer: Answer) -> None:
    overrides = nemo_overrides(replace(gpt3_answer, plan=Plan(dp=1024, activation_offload=50)))
    assert "model.fine_grained_activation_offloading=true" in overrides
    assert "model.offload_modules=[core_attn,attn_proj]" in overrides
    assert "model.activation_offload_fraction=0.5" in overrides


def test_modules_to_recompute_are_a_list(gpt3_answer: Answer) -> None:
    overrides = nemo_overrides(replace(gpt3_answer, plan=Plan(dp=1024, recompute="layernorm+mlp")))
    assert "model.recompute_modules=[layernorm,mlp]" in overrides
    assert "model.recompute_granularity=selective" in overrides


def test_an_uneven_middle_becomes_a_quoted_layout(gpt3_answer: Answer) -> None:
    answer = replace(gpt3_answer, plan=Plan(pp=4, dp=256, layers_per_stage=(24, 23, 25, 24)))
    assert 'model.pipeline_model_parallel_layout="Et*24|t*23|t*25|t*24L"' in nemo_overrides(answer)


def test_an_exchange_beside_another_micro_batch_is_asked_for(gpt3_answer: Answer) -> None:
    job = replace(gpt3_answer.job, model=load_model("mixtral-8x22b"))
    for on in (True, False):
        plan = Plan(ep=8, dp=1024, overlap_exchange=on)
        overrides = dict(line.split("=", 1) for line in nemo_overrides(replace(gpt3_answer, job=job, plan=plan)))
        keys = ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
        assert {overrides[f"comm_overlap.{key}"] for key in keys} == {str(on).lower()}
        assert ("model.moe_shared_expert_overlap" in overrides) is on
    assert not any(line.startswith("comm_overlap.") for line in nemo_overrides(gpt3_answer))
