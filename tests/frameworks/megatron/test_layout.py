from dataclasses import replace

import pytest

from optimizer.catalog import load_model
from optimizer.frameworks.megatron.layout import (
    first_and_last,
    is_even,
    layers_per_virtual_stage,
    plan_layout,
    runs_layout,
    stage_layers,
)
from optimizer.job.plan import Plan


def test_the_plans_own_layers_win_over_the_balanced_split() -> None:
    assert stage_layers(Plan(pp=3, layers_per_stage=(1, 2, 3)), 6) == (1, 2, 3)
    assert stage_layers(Plan(pp=4), 126) == (31, 32, 32, 31)


def test_virtual_stages_are_dealt_in_the_order_of_the_forward_pass() -> None:
    # 126 layers on 16 stages are 7 8 8 ... 8 7; two virtual stages of each stage.
    counts = layers_per_virtual_stage(Plan(pp=16, vpp=2), 126)
    assert len(counts) == 32
    assert sum(counts) == 126
    assert counts[:2] == (4, 4)
    assert counts[16:18] == (3, 4)


@pytest.mark.parametrize(
    ("plan", "layers", "even"),
    [(Plan(pp=8, vpp=6), 96, True), (Plan(pp=8, vpp=5), 96, False), (Plan(pp=16), 126, False), (Plan(), 7, True)],
)
def test_even_means_equal_virtual_stages(plan: Plan, layers: int, even: bool) -> None:
    assert is_even(plan, layers) is even


def test_two_stages_need_only_the_first_to_be_named() -> None:
    assert first_and_last((31, 30)) == (31, None)


def test_layout_of_deepseek_like_stages() -> None:
    model = load_model("deepseek-v3")
    plan = Plan(pp=4, layers_per_stage=(20, 20, 20, 1))
    assert plan_layout(plan, model) == "Et*20|t*20|t*20|tmL"
    assert plan_layout(replace(plan, layers_per_stage=(20, 20, 21, 0), mtp_ahead=1), model) == "Et*20|t*20|t*21m|L"


def test_a_plan_may_list_its_virtual_stages() -> None:
    plan = Plan(pp=2, vpp=2, layers_per_stage=(3, 2, 2, 0))
    assert layers_per_virtual_stage(plan, 7) == (3, 2, 2, 0)
    assert stage_layers(plan, 7) == (5, 2)
    assert not is_even(Plan(pp=2, vpp=2, layers_per_stage=(3, 2, 1, 2)), 8)


def test_an_end_without_layers_needs_a_layout() -> None:
    assert first_and_last((8, 8, 8, 0)) is None


def test_a_found_layout_is_written_as_megatron_reads_it() -> None:
    # The shape of Megatron-LM's own example for DeepSeek-V3 on 16 stages of 2 virtual stages: Et*3|(tt|)*29,m|L.
    runs = (
        (("embedding", 1), ("dense", 3)),
        *((("moe", 2),) for _ in range(29)),
        (("mtp", 1),),
        (("head", 1),),
    )
    text = runs_layout(runs)
    assert text == "Et*3|" + "t*2|" * 29 + "m|L"
    assert text.count("|") + 1 == 16 * 2
