"""Every release is a stack, and names of fitted stacks stay."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_stack, preset_stack, stack_names
from optimizer.catalog.software import families, releases
from optimizer.catalog.stacks import known_stack
from optimizer.job.switches import switches


def test_every_fit_is_a_release_of_one_family() -> None:
    rates = [release.rates for release in releases().values()]
    assert set(rates) == set(stack_names())


@pytest.mark.parametrize("name", sorted(releases()))
def test_a_release_has_the_rates_of_its_fit_and_its_switches(name: str) -> None:
    release, stack = releases()[name], load_stack(name)
    fitted = preset_stack(release.rates)
    assert stack.name == name
    assert stack.parameters == fitted.parameters
    assert {switch: switches()[switch].state(stack) for switch in release.on} == dict(release.on)
    assert load_stack(f"{release.family}@{release.name}") == stack


def test_a_family_is_its_newest_release_and_one_more_target_may_follow() -> None:
    assert load_stack("megatron-bridge") == load_stack("megatron-bridge@26.10")
    assert known_stack("megatron-bridge@26.02@megatron-lm").name == "megatron-bridge-26.02@megatron-lm"
    assert load_stack("torchtitan@2024") == preset_stack("torchtitan-2024")
    assert load_stack("torchtitan").parameters == preset_stack("torchtitan-2024").parameters
    with pytest.raises(InputError, match=r"no release '27\.01': expected one of"):
        load_stack("megatron-bridge@27.01")


def test_newer_releases_switch_nothing_back() -> None:
    before: dict[str, str] = {}
    for release in families()["megatron-bridge"].releases.values():
        assert all(release.on.get(name) == state for name, state in before.items())
        before = dict(release.on)


def test_a_launcher_without_a_dispatcher_on_a_device_plans_without_it() -> None:
    from optimizer.catalog.targets import aimed, launchers
    from optimizer.job.target import on_device

    stack, can = aimed(load_stack("megatron-bridge"), "megatron-bridge"), launchers()["megatron-bridge"]
    assert on_device(stack, can, "gb200", 8).dispatchers == ("alltoall", "hybridep")
    assert on_device(stack, can, "h100", 8) == stack
