"""What the controls at the left offer and hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from optimizer.constraints.pin_text import pins_text, written
from optimizer.page.plan.locks import TITLES
from optimizer.page.plan.own_files import packed
from optimizer.page.plan.question import CHOICES, PlanQuestion

RISKS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
NUMBERS = ("gpus", "global_batch", "seq_len")


def form_values(
    asked: PlanQuestion, inforce: Mapping[str, int] | None, stops: Mapping[str, Sequence[int]] | None
) -> dict[str, Any]:
    """Every control: its choices and its value; `inforce` and `stops` are those of the answer, once there is one.

    Pins that a lock cannot hold, such as ranges, stay in the text of pins.
    """
    inforce = inforce or {}
    locked = [name for name, value in asked.fix if name in TITLES and not isinstance(value, tuple | frozenset)]
    rest = {name: value for name, value in asked.fix if name not in locked}
    return {
        **_offers(),
        **CHOICES,
        "risks": [(risk, f"{100 * risk:g}%", risk == asked.oom_risk) for risk in _risks(asked)],
        "given": {name: getattr(asked, name) for name in NUMBERS},
        "inforce": {name: inforce.get(name, getattr(asked, name) or "") for name in NUMBERS},
        "stops": {name: list((stops or {}).get(name, ())) for name in NUMBERS},
        "tokens": f"{asked.tokens / 1e9:.12g}e9",
        "fix": pins_text(rest),
        "files": [(kind, packed(text)) for kind, text in asked.files.items()],
        "locked": [(name, written(name, asked.pins[name])) for name in locked],
    }


def _risks(asked: PlanQuestion) -> list[float]:
    """The risks to choose from, and the one of the address if it is another."""
    return sorted({*RISKS, *([asked.oom_risk] if asked.oom_risk else [])}, reverse=True)


@cache
def _offers() -> dict[str, Any]:
    """Models by family, clusters, devices and stacks: (name, title)."""
    from optimizer.catalog import cluster_names, device_names, load_model, model_names, stack_names

    models = [(name, load_model(name).title or name) for name in model_names()]
    return {"models": models, "clusters": cluster_names(), "devices": device_names(), "stacks": stack_names()}
