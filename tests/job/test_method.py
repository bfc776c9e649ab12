"""What `--train`, `--base` and `--optimizer` say."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.job.fields import FIELDS
from optimizer.job.method import BASES, FULL, METHODS, method_of, optimizer_of, optimizers


def test_the_options_list_what_there_is() -> None:
    assert all(name in FIELDS["optimizer"].help for name in optimizers())
    assert FIELDS["base"].choices == tuple(BASES)
    assert all(name in FIELDS["train"].help for name in METHODS)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in (FULL, "frozen")])
def test_adapters_have_a_rank_and_targets_and_train_no_part(name: str) -> None:
    method = method_of(name)
    assert method.rank == 16
    assert method.targets == ("q", "k", "v", "o", "gate", "up", "down")
    assert not any(method.trains(part) for part in ("embedding", "attention", "mlp", "experts", "head"))


def test_targets_are_groups_or_names_of_modules() -> None:
    assert method_of("lora:8:q_proj,v_proj").targets == ("q", "v")
    assert method_of("lora:8:mlp+o").targets == ("o", "gate", "up", "down")
    assert method_of("lora:8:all-linear").targets == method_of("lora").targets


@pytest.mark.parametrize(
    ("train", "base", "words"),
    [
        ("lore", "", "--train must be one of full, lora"),
        ("lora:0", "", "the rank must be a whole number from 1"),
        ("lora:8:embed", "", "adapters stand on all, attention, mlp"),
        ("full", "nf4", "full training freezes no weights"),
        ("full:8", "", "full training freezes no weights"),
        ("qlora", "bf16", "--train qlora keeps its base in one of nf4"),
        ("frozen", "", "name some, not all, of embedding"),
        ("frozen:*", "", "name some, not all, of embedding"),
        ("frozen:sight", "", "nothing is called 'sight'"),
        ("frozen:layers", "", "nothing is called 'layers'"),
        ("lora", "nf3", "--base must be one of bf16"),
    ],
)
def test_what_is_wrong_is_said(train: str, base: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("*", ".")):
        method_of(train, base)


def test_adapters_may_leave_embedding_and_head_trained() -> None:
    method = method_of("lora:64:all,embedding,head")
    assert [part for part in ("embedding", "attention", "head") if method.trains(part)] == ["embedding", "head"]


@pytest.mark.parametrize("text", ["adam", "adamw:later", ":in-backward:twice"])
def test_an_optimizer_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="the optimizer must be one of adamw"):
        optimizer_of(text)
