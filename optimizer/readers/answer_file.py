"""Read back what `optimize --json` printed: the job, the plan and what was claimed about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from math import isfinite
from typing import Any, TypeVar

from optimizer.errors import InvalidFile
from optimizer.job import PLACING, Job, Limits
from optimizer.plan import FIELDS, SCHEDULES, Knobs, Plan
from optimizer.presets import load_cluster, load_model, load_stack
from optimizer.recomputation import MODES, RECOMPUTE, SIGN

SCHEMA_VERSION = 1
LARGEST = 2**31
CHOICES: Mapping[str, tuple[str, ...]] = {"recompute": RECOMPUTE, "schedule": SCHEDULES}
NEEDED = ("tp", "pp", "dp", "micro_batch", "num_microbatches")  # a plan without these is no plan
SHARES = ("comm_sm_share", "offload", "bubble")
FROM_ZERO = ("zero_stage", "shard", "activation_offload", "mtp_ahead")
Made = TypeVar("Made", Plan, Knobs, Limits)


@dataclass(frozen=True, kw_only=True)
class SavedAnswer:
    """An answer as it was written. `step_time` [s], `reserved` [B], `time` [s] and `memory` [B] by term are claims, as
    is `certificate`, keyed as in the JSON; None and empty where nothing was claimed.
    """

    job: Job
    plan: Plan
    knobs: Knobs = Knobs()
    status: str = ""
    step_time: float | None = None
    reserved: float | None = None
    mfu: float | None = None
    time: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)


def read_answer(text: str, name: str = "answer", *, model: str = "", cluster: str = "", stack: str = "") -> SavedAnswer:
    """The answer in a JSON text; `name` is what messages call it.

    The JSON names model, cluster and stack; `model`, `cluster` and `stack` say where to find them instead. Raises
    InvalidFile with everything that is wrong, UnknownName for a preset that does not exist.
    """
    reader = _Reader()
    document = reader.document(text)
    if reader.problems:
        raise InvalidFile(name, reader.problems)
    table, claimed = reader.table(document, "job"), reader.table(document, "estimate", optional=True)
    certificate = reader.table(document, "certificate", optional=True)
    limits = reader.made(Limits, reader.table(table, "limits", within="job"), "job.limits")
    plan = reader.made(Plan, reader.table(document, "plan"), "plan")
    knobs = reader.made(Knobs, reader.table(document, "knobs"), "knobs")
    sizes = {key: reader.count(table, key, "job") for key in ("gpus", "seq_len", "global_batch")}
    words = {key: reader.word(table, key, "job") for key in ("model", "cluster", "stack", "dtype")}
    claims = {key: reader.number(claimed, key, "estimate") for key in ("step_time_s", "mfu")} if claimed else {}
    memory = reader.terms(claimed, "memory_bytes")
    time = reader.terms(claimed, "time_s")
    if reader.problems or plan is None or knobs is None or limits is None:
        raise InvalidFile(name, reader.problems)
    job = Job(
        model=load_model(model or words["model"]),
        cluster=load_cluster(cluster or words["cluster"]),
        stack=load_stack(stack or words["stack"]),
        dtype=words["dtype"],
        limits=limits,
        **sizes,
    )
    reserved = memory.pop("peak_reserved", None)
    memory.pop("peak_allocated", None)
    return SavedAnswer(
        job=job,
        plan=plan,
        knobs=knobs,
        status=str(document.get("status", "")),
        step_time=claims.get("step_time_s"),
        reserved=reserved,
        mfu=claims.get("mfu"),
        time=time,
        memory=memory,
        certificate=certificate,
    )


class _Reader:
    """Values out of JSON, and every problem met on the way."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def document(self, text: str) -> dict[str, Any]:
        """The outermost object, of a version that can be read and with a plan in it."""
        try:
            document = json.loads(text)
        except ValueError as error:
            self.problems.append(f"is no JSON: {error}; give the output of optimize --json")
            return {}
        if not isinstance(document, dict):
            self.problems.append(f"must be an object as optimize --json prints it, but got {_shown(document)}")
            return {}
        version = document.get("schema_version")
        if version != SCHEMA_VERSION:
            self.problems.append(f"schema_version must be {SCHEMA_VERSION}, but got {_shown(version)}")
        elif document.get("plan") is None:
            self.problems.append(f"there is no plan to check: the status is {_shown(document.get('status'))}")
        return document

    def table(self, parent: Mapping[str, Any], key: str, within: str = "", optional: bool = False) -> Mapping[str, Any]:
        """An object inside another."""
        value = parent.get(key)
        if value is None and optional:
            return {}
        if not isinstance(value, dict):
            self.problems.append(f"{within + '.' if within else ''}{key} must be an object, but got {_shown(value)}")
            return {}
        return value

    def count(self, table: Mapping[str, Any], key: str, where: str, least: int = 1) -> int:
        """A whole number."""
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            self.problems.append(f"{where}.{key} must be a whole number of at least {least}, but got {_shown(value)}")
            return least
        return value

    def number(self, table: Mapping[str, Any], key: str, where: str) -> float:
        """A finite number that is not negative."""
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value >= 0):
            self.problems.append(f"{where}.{key} must be a number of at least 0, but got {_shown(value)}")
            return 0.0
        return float(value)

    def word(self, table: Mapping[str, Any], key: str, where: str) -> str:
        """A text that is not empty."""
        value = table.get(key)
        if not isinstance(value, str) or not value:
            self.problems.append(f"{where}.{key} must be a name, but got {_shown(value)}")
            return ""
        return value

    def terms(self, claimed: Mapping[str, Any], key: str) -> dict[str, float]:
        """A breakdown: numbers by term."""
        table = self.table(claimed, key, "estimate", optional=True)
        return {term: self.number(table, term, f"estimate.{key}") for term in table}

    def made(self, kind: type[Made], table: Mapping[str, Any], where: str) -> Made | None:
        """A value of this class, its fields checked one by one; None when one of them is wrong."""
        before = len(self.problems)
        known = {item.name: item for item in fields(kind)}
        for key in table:
            if key not in known:
                self.problems.append(f"{where}.{key} is unknown to this version")
        if kind is Plan:
            self.problems += [f"{where}.{key} is missing" for key in NEEDED if table and key not in table]
        values = {key: self.value(item, table[key], where) for key, item in known.items() if key in table}
        return kind(**values) if len(self.problems) == before else None

    def value(self, item: Field[Any], value: Any, where: str) -> Any:
        """One field, of the type of its default."""
        key, default = item.name, item.default
        if key in ("fixed", "ranges", "choices"):
            return self.pins(value, f"{where}.{key}")
        if default is MISSING or default is None:
            return value
        if isinstance(default, bool):
            if not isinstance(value, bool):
                self.problems.append(f"{where}.{key} must be true or false, but got {_shown(value)}")
            return value
        if isinstance(default, int):
            unlimited = where == "job.limits" and default == 0
            return self.count({key: value}, key, where, least=0 if key in FROM_ZERO or unlimited else 1)
        if isinstance(default, float):
            number = self.number({key: value}, key, where)
            if key in SHARES and number > 1:
                self.problems.append(f"{where}.{key} must be a share of at most 1, but got {_shown(value)}")
            return number
        if isinstance(default, str):
            choices = CHOICES.get(key)
            if choices and value not in choices:
                shown = MODES if key == "recompute" else choices
                hint = f"; modules are joined by {SIGN}" if key == "recompute" else ""
                self.problems.append(f"{where}.{key} must be one of {', '.join(shown)}, but got {_shown(value)}{hint}")
            return value
        if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= LARGEST for item in value):
            self.problems.append(f"{where}.{key} must be a list of whole numbers, but got {_shown(value)}")
            return ()
        return tuple(value)

    def pins(self, value: Any, where: str) -> dict[str, Any]:
        """Pinned variables, ranges as pairs and lists of values."""
        table = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            self.problems.append(f"{where} must be an object, but got {_shown(value)}")
        self.problems += [f"{where}.{key} is no variable of a plan" for key in table if key not in (*FIELDS, *PLACING)]
        if where.endswith("ranges"):
            for key, ends in table.items():
                if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, int) for end in ends):
                    self.problems.append(f"{where}.{key} must be two whole numbers, but got {_shown(ends)}")
        elif where.endswith("choices"):
            for key, listed in table.items():
                if not isinstance(listed, list) or not listed or not all(isinstance(it, int | str) for it in listed):
                    self.problems.append(f"{where}.{key} must be a list of values, but got {_shown(listed)}")
        else:
            for key, pinned in table.items():
                if not isinstance(pinned, int | str):
                    self.problems.append(f"{where}.{key} must be a value, but got {_shown(pinned)}")
        return {key: _tuple(pinned) for key, pinned in table.items()}


def _tuple(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    """A value as JSON writes it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
