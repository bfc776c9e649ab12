"""Fields changed one by one: what a name means, which values are refused, and that an answer is read back with them."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_device, load_model, load_stack
from optimizer.catalog.settings import Asked, paths, with_settings
from optimizer.catalog.stacks import default_stack
from optimizer.commands.request import Request, job_of


def asked(model: str = "llama3-8b") -> Asked:
    return Asked(model=load_model(model), cluster=load_cluster("h100"), stack=load_stack("megatron-core"))


def test_each_kind_of_field_is_set() -> None:
    found = with_settings(
        asked("deepseek-v3"),
        [
            "layers=8",
            "experts.top_k=4",
            "norm=layer",
            "rail.bandwidth=800 Gb/s",
            "device.peak_flops.bf16=500 TFLOP/s",
            "gpus_per_node=4",
            "launch=6e-6",
            "cuda-graphs=true",
        ],
    )
    assert found.model.experts is not None
    assert (found.model.layers, found.model.experts.top_k, found.model.norm) == (8, 4, "layer")
    assert found.model.title == "DeepSeek-V3 671B-A37B, layers 8, experts.top_k 4, norm layer"
    assert found.cluster.tiers[1].bandwidth == 100e9
    assert (found.cluster.device.peak("bf16"), found.cluster.gpus_per_node) == (500e12, 4)
    assert (found.stack["launch"], found.stack.features.cuda_graphs) == (6e-6, True)
    assert found.settings[0] == "model.layers=8"
    assert found.settings[-1] == "stack.cuda_graphs=true"


def test_nodes_and_domains_of_another_size_are_set_together() -> None:
    found = with_settings(asked(), ["gpus_per_node=3", "scale_up.size=6"]).cluster
    assert (found.gpus_per_node, found.scale_up_size) == (3, 6)


def test_a_fixed_parameter_can_be_set() -> None:
    stack = load_stack("megatron-core")
    assert stack.fixed["expert_efficiency"].value != 0.5
    assert with_settings(asked(), ["expert_efficiency=0.5"]).stack["expert_efficiency"] == 0.5


def test_what_only_mixtures_have_is_not_meant_in_a_dense_model() -> None:
    assert with_settings(asked(), ["ffn_hidden=8192"]).model.ffn_hidden == 8192
    with pytest.raises(InputError, match="several fields are called so; write one of"):
        with_settings(asked("mixtral-8x7b"), ["ffn_hidden=8192"])


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("layers", "is not of the form field=value"),
        ("layer=4", "did you mean model.layers"),
        ("layers=0", "expected a whole number above 0, but got 0"),
        ("layers=four", 'but got "four"'),
        ("heads=7", "kv_heads = 8 does not divide heads = 7"),
        ("experts.top_k=2", "llama3-8b has no experts"),
        ("bandwidth=5", "cluster.scale_up.bandwidth, cluster.rail.bandwidth, cluster.spine.bandwidth"),
        ("device.memory=80 GB/s", "expected a quantity in"),
        ("device.memory=80", "write 80GB"),
        ("rail.bandwidth=400", "400 B/s is too little to mean; write 400GB/s"),
        ("gpus_per_node=2.5", "must be a whole number above 0"),
        ("gpus_per_node=3", "nodes of 3 GPUs cut through the innermost tier, of 8: let one"),
        ("rail.size=4", "tiers must grow outwards, but would be"),
        ("stack.launch=1", "expected a number from 5e-07 to 0.0002"),
        ("dispatcher=pigeon", "expected one of alltoall"),
    ],
)
def test_what_cannot_be_set_is_told(setting: str, told: str) -> None:
    with pytest.raises(InputError) as raised:
        with_settings(asked(), [setting])
    assert told in str(raised.value)


def test_every_path_names_one_field() -> None:
    known = paths(asked())
    assert len(set(known)) == len(known)
    assert {"model.layers", "cluster.spine.latency", "stack.ep_overlap", "stack.dispatcher"} <= set(known)


@pytest.mark.parametrize(
    ("device", "stack"), [("h100", "megatron-core"), ("mi355x", "primus-2025"), ("tpu-v7", "maxtext")]
)
def test_each_vendor_has_its_usual_stack(device: str, stack: str) -> None:
    assert default_stack(load_device(device)) == stack
    job, assumed = job_of(Request(model="llama3-8b", gpus=8, device=device, limits={}))
    assert job.stack.name == stack
    assert f"software stack {stack} (--stack)" in assumed
