"""Values of keys that are read, one by one from the programs' sources: each has its price, or it is named."""

from typing import Any

import pytest

from tests.frameworks.test_every_argument import EXPERTS, FLAGS, launch_of

GRAPHS = "--cuda-graph-impl transformer_engine --cuda-graph-scope"
FREQUENCY = f"{EXPERTS} --moe-grouped-gemm --moe-layer-freq"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--attention-backend AttnBackend.unfused", {"attention": "unfused"}),
        ("--attention-backend 2", {"attention": "flash"}),
        ("--attention-backend local", {"attention": "fused_softmax"}),
        ("--transformer-impl local --no-masked-softmax-fusion", {"attention": "unfused"}),
        ("--position-embedding-type none", {"position": "none"}),
        ("--normalization rmsnorm", {"norm": "rms"}),
        (f"{GRAPHS} attn,mlp", {"cuda_graphs": True, "graphed": ()}),
        (f"{GRAPHS} full", {"cuda_graphs": True, "graphed": ()}),
        (f'{FREQUENCY} "([0]*1+[1]*1)*16"', {"every": 2, "first_dense": 0}),
        (f'{FREQUENCY} "([1]+[0]*3)*8"', {"every": 4, "first_dense": 0}),
        (f'{FREQUENCY} "([0]*3+[1]*29)"', {"every": 1, "first_dense": 3}),
        (f"{FREQUENCY} 0 1 1 1", {"every": 1, "first_dense": 1}),
    ],
)
def test_a_value_of_a_flag_has_its_price(flags: str, said: dict[str, Any]) -> None:
    launch = launch_of(FLAGS + flags)
    assert ({name: launch.settings[name] for name in said}, launch.unpriced) == (said, [])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        *((text, text) for text in ("--attention-backend weird", "--normalization L2Norm", "--fp8-format e5m2")),
        ("--position-embedding-type relative", "--position-embedding-type relative"),
        ("--fp8-format hybrid --fp8-recipe custom", "--fp8-recipe custom"),
        ("--fp4-format e2m1 --fp4-recipe custom", "--fp4-recipe custom"),
        ("--recompute-granularity full --recompute-method whole", "--recompute-method whole"),
        (f"{GRAPHS} mlp", "--cuda-graph-scope mlp"),
        (f"{EXPERTS} --moe-grouped-gemm --moe-token-dispatcher-type other", "--moe-token-dispatcher-type other"),
        (
            f'{FREQUENCY} "([1]*3+[0])*8"',
            "--moe-layer-freq ([1]*3+[0])*8: of layers that do not alternate evenly",
        ),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl linear", "--cross-entropy-fusion-impl linear"),
        (
            f"{EXPERTS} --moe-grouped-gemm --moe-router-load-balancing-type sinkhorn",
            "--moe-router-load-balancing-type sinkhorn",
        ),
    ],
)
def test_a_value_of_a_flag_without_a_price_is_named(flags: str, named: str) -> None:
    assert launch_of(FLAGS + flags).unpriced == [named]


@pytest.mark.parametrize(
    ("release", "flags", "attention"),
    [
        ("core_v0.5.0", "", "fused_softmax"),
        ("core_v0.5.0", "--no-masked-softmax-fusion", "unfused"),
        ("core_v0.5.0", "--use-flash-attn", "flash"),
        ("core_v0.5.0", "--use-mcore-models", None),
        ("core_v0.5.0", "--transformer-impl transformer_engine", None),
        ("core_v0.6.0", "", None),
    ],
)
def test_layers_of_old_releases_have_no_flash_attention_unless_told(
    release: str, flags: str, attention: str | None
) -> None:
    launch = launch_of((FLAGS + flags).replace("core_v0.19.0", release))
    assert launch.settings.get("attention") == attention
    assert any("layers of its own" in text for text in launch.assumed) == (attention in ("fused_softmax", "unfused"))
