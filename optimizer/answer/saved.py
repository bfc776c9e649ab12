"""Read back what `optimize --json` printed: the job, the plans and everything that was claimed about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.base.errors import InvalidFile
from optimizer.catalog import known_cluster, known_model, known_stack, load_cluster, load_model, load_stack
from optimizer.catalog.settings import Asked, with_settings
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan

SCHEMA_VERSION = 1
WITHOUT_PLAN = ("infeasible", "unknown")  # statuses of answers that need no plan


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a certificate says of a search that is not repeated. Bounds in the unit of the objective; plans priced
    (`space`), `fitting`, read by CP-SAT (`candidates`) and with layers assigned by it (`solved`). `by_format`: the same
    of each number format.
    """

    proven: bool
    lower_bound: float
    knob_bound: float
    space: int
    fitting: int
    candidates: int
    solved: int
    by_format: Mapping[str, Claims] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """A runner-up and its knobs."""

    plan: Plan
    knobs: Knobs


@dataclass(frozen=True, kw_only=True)
class SavedFormat:
    """The best plan of another number format."""

    dtype: str
    plan: Plan | None
    knobs: Knobs


@dataclass(frozen=True, kw_only=True)
class SavedAnswer:
    """An answer as it was written: what can be priced again, and the whole `document`, empty where only a plan is
    given. `risked`: it says what the risk to go out of memory costs, `fastest` being the fastest plan that is predicted
    to fit. trials, seed: of the search for knobs. `places` maps what the user told where to find, such as "model", to
    its name there.
    """

    job: Job
    plan: Plan | None
    knobs: Knobs = Knobs()
    claims: Claims | None = None
    alternatives: tuple[SavedPlan, ...] = ()
    risked: bool = False
    fastest: SavedPlan | None = None
    formats: tuple[SavedFormat, ...] = ()
    trials: int = 0
    seed: int = 0
    pins: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


def read_answer(text: str, name: str = "answer", *, model: str = "", cluster: str = "", stack: str = "") -> SavedAnswer:
    """The answer in a JSON text; `name` is what messages call it.

    The JSON names presets, shipped or of the user's own, of model, cluster and stack; `model`, `cluster` and `stack`
    say where to find them instead.
    Raises InvalidFile with everything that is wrong, UnknownName for a preset that does not exist.
    """
    from optimizer.answer.schema import ANSWER
    from optimizer.catalog.readers.problems import validated

    document, problems = _document(text, name), list[str]()
    table = validated(ANSWER, {"plan": None, "search": {}, **document}, problems)
    if table is None:
        raise InvalidFile(name, problems)
    asked = table.job
    found = Asked(
        model=load_model(model) if model else known_model(asked.model),
        cluster=load_cluster(cluster) if cluster else known_cluster(asked.cluster),
        stack=load_stack(stack) if stack else known_stack(asked.stack),
    )
    found = with_settings(found, asked.settings)
    return SavedAnswer(
        job=Job(
            model=found.model,
            cluster=found.cluster,
            stack=found.stack,
            gpus=asked.gpus,
            seq_len=asked.seq_len,
            global_batch=asked.global_batch,
            dtype=asked.dtype,
            limits=asked.limits,
            settings=found.settings,
            minimize=asked.minimize,
        ),
        plan=table.plan,
        knobs=table.knobs,
        claims=table.certificate,
        alternatives=table.alternatives,
        risked=table.safety is not None,
        fastest=table.safety.fastest if table.safety else None,
        formats=table.formats,
        trials=table.search.trials,
        seed=table.search.seed,
        pins=table.why_not.pins if table.why_not else "",
        document=document,
        places={key: value for key, value in (("model", model), ("cluster", cluster), ("stack", stack)) if value},
    )


def _document(text: str, name: str) -> dict[str, Any]:
    """The outermost object, of a version that can be read and with a plan in it or the reason why there is none."""
    from optimizer.catalog.readers.text import json_of

    try:
        document: Any = json_of(text, name)
    except InvalidFile as error:
        raise InvalidFile(name, [f"{error.problems[0]}; give the output of optimize --json"]) from None
    problem = ""
    if not isinstance(document, dict):
        problem = f"must be an object as optimize --json prints it, but got {json.dumps(document)[:40]}"
    elif document.get("schema_version") != SCHEMA_VERSION:
        problem = f"schema_version must be {SCHEMA_VERSION}, but got {json.dumps(document.get('schema_version'))[:40]}"
    elif document.get("plan") is None and document.get("status") not in WITHOUT_PLAN:
        problem = f"there is no plan to check: the status is {json.dumps(document.get('status'))[:40]}"
    if problem:
        raise InvalidFile(name, [problem])
    return dict(document)
