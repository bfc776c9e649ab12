"""Fields of a model, cluster or stack that a person changes: "layers=4", "device.memory=96GB", "stack.launch=6e-6".

A name is a path (model.layers, cluster.device.memory, cluster.rail.bandwidth, stack.dispatcher) or any end of one that
only one field has (layers, experts.top_k, rail.bandwidth).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from optimizer.base.errors import InputError, InvalidFile, nearest
from optimizer.base.units import HUGE, parse
from optimizer.job.hardware import DIMENSIONS, Cluster, Device, cut_domain
from optimizer.job.model import Experts, LatentAttention, Model, SlidingWindow
from optimizer.job.stack import FEATURES, PARAMETERS, Stack

MODEL, CLUSTER, STACK, DEVICE = "model", "cluster", "stack", "device"
_LABELS = ("name", "title", "family", "provenance", "published_params", "published_active_params")
_PARTS: Mapping[str, type] = {"experts": Experts, "mla": LatentAttention, "window": SlidingWindow}
_OF_CLUSTER = ("gpus_per_node", "max_gpus", "host_bandwidth", "host_memory")
_OF_TIER = ("size", "bandwidth", "latency", "oversubscription")
_WHOLE = ("gpus_per_node", "max_gpus", "size", "sms")
MOST_SHOWN = 6
LEAST = 1e6  # less memory, bandwidth or rate is a number that lost its unit, which is then one of these
_UNITS: Mapping[str, str] = {"B": "GB", "B/s": "GB/s", "FLOP/s": "TFLOP/s"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a job asks about, and which fields of it were changed."""

    model: Model
    cluster: Cluster
    stack: Stack
    settings: tuple[str, ...] = ()  # the changes, with whole paths and values as typed


def with_settings(asked: Asked, settings: Sequence[str]) -> Asked:
    """The same with every "field=value" of the settings, in their order.

    Raises InputError for a name that no field or several have, and for a value that the field cannot have.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> asked = Asked(model=load_model("llama3-8b"), cluster=load_cluster("h100"), stack=load_stack("megatron-core"))
    >>> changed = with_settings(asked, ["layers=4", "device.memory=96GB"])
    >>> changed.model.layers, changed.cluster.device.memory, changed.settings
    (4, 96000000000.0, ('model.layers=4', 'cluster.device.memory=96GB'))
    """
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not text:
            raise InputError(f"--set {setting!r} is not of the form field=value, such as layers=4")
        path = _path(name, paths(asked), [part for part in _PARTS if getattr(asked.model, part) is None])
        whole, *rest = path.split(".")
        if whole == MODEL:
            asked = replace(asked, model=_model(asked.model, rest, text))
        elif whole == CLUSTER:
            asked = replace(asked, cluster=_cluster(asked.cluster, rest, text))
        else:
            asked = replace(asked, stack=_stack(asked.stack, rest[0], text))
        asked = replace(asked, settings=(*asked.settings, f"{path}={text}"))
    nodes, inner = asked.cluster.gpus_per_node, asked.cluster.scale_up
    if cut := cut_domain(nodes, inner.size):
        typed = " ".join(f"--set {setting}" for setting in asked.settings)
        raise InputError(f"{typed}: {cut} (gpus_per_node, {inner.name}.size)")
    return asked


def paths(asked: Asked) -> tuple[str, ...]:
    """Every field that can be set, as a path."""
    own = [item.name for item in fields(Model) if item.name not in (*_LABELS, *_PARTS)]
    parts = [f"{part}.{item.name}" for part, kind in _PARTS.items() for item in fields(kind)]
    numbers = [item.name for item in fields(Device) if item.type in ("float", "int")]
    device = [*numbers, *(f"peak_flops.{dtype}" for dtype in asked.cluster.device.peak_flops)]
    tiers = [f"{tier.name}.{field}" for tier in asked.cluster.tiers for field in _OF_TIER]
    return (
        *(f"{MODEL}.{name}" for name in (*own, *parts)),
        *(f"{CLUSTER}.{name}" for name in (*_OF_CLUSTER, *tiers, *(f"{DEVICE}.{name}" for name in device))),
        *(f"{STACK}.{name}" for name in (*PARAMETERS, *FEATURES)),
    )


def _path(name: str, known: Sequence[str], absent: Sequence[str]) -> str:
    """The one path that a name means; fields of parts that are absent give way to others."""
    wanted = name.lower().replace("-", "_")
    fitting = [path for path in known if path.replace("-", "_") == wanted]
    fitting = fitting or [path for path in known if path.replace("-", "_").endswith(f".{wanted}")]
    fitting = [path for path in fitting if path.split(".")[1] not in absent] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(f"--set {name}: several fields are called so; write one of {', '.join(fitting)}")
    shorts = {path.rpartition(".")[2]: path for path in reversed(known)}
    near = [shorts[end] for end in nearest(wanted.rpartition(".")[2], shorts)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"fields are called like {', '.join(known[:MOST_SHOWN])}"
    raise InputError(f"--set {name}: no field of a model, cluster or stack is called so; {hint}")


def _value(text: str) -> Any:
    """A value as TOML has it; what is none is a text."""
    from optimizer.catalog.readers.text import toml_of

    try:
        return toml_of(f"value = {text}", "value")["value"]
    except InvalidFile:
        return text


def _model(model: Model, path: Sequence[str], text: str) -> Model:
    from optimizer.catalog.readers.model_file import KEYS, impossible
    from optimizer.catalog.readers.problems import validated

    data = {key: value for key, value in asdict(model).items() if value is not None}
    if len(path) == 2 and path[0] not in data:
        raise InputError(f"--set model.{'.'.join(path)}={text}: {model.name} has no {path[0]}")
    data |= {"published_params": None, "published_active_params": None}
    inner = data[path[0]] if len(path) == 2 else data
    inner[path[-1]] = _value(text)
    data["title"] = f"{model.title or model.name}, {'.'.join(path)} {text}"
    problems: list[str] = []
    table = validated(KEYS, data, problems)
    changed = Model(**dict(table)) if table else None
    if changed is None or (problems := impossible(changed)):
        raise InputError(f"--set model.{'.'.join(path)}={text}: {'; '.join(problems)}")
    return changed


def _cluster(cluster: Cluster, path: Sequence[str], text: str) -> Cluster:
    number = _quantity(f"{CLUSTER}.{'.'.join(path)}", path, text)
    if len(path) == 1:
        return replace(cluster, **{path[0]: number})
    if path[0] == DEVICE:
        device, changes = cluster.device, {path[1]: number}
        if path[1] == "peak_flops":
            changes = {path[1]: {**device.peak_flops, path[2]: number}}
        elif path[1] == "memory":
            changes["memory_nominal"] = max(number, device.memory_nominal)
        return replace(cluster, device=replace(device, **changes))
    tiers = []
    for tier in cluster.tiers:
        if tier.name == path[0]:
            if path[1] == "bandwidth":
                tier = replace(tier, link=tier.link.scaled(number))
            elif path[1] == "latency":
                tier = replace(tier, link=replace(tier.link, latency=number))
            else:
                tier = replace(tier, **{path[1]: number})
        tiers.append(tier)
    sizes = [tier.size for tier in tiers]
    if sizes != sorted(set(sizes)):
        raise InputError(f"--set {CLUSTER}.{'.'.join(path)}={text}: tiers must grow outwards, but would be {sizes}")
    return replace(cluster, tiers=tuple(tiers), max_gpus=min(cluster.max_gpus, sizes[-1]))


def _quantity(name: str, path: Sequence[str], text: str) -> Any:
    """A positive number in the unit of its field, whole where the field counts."""
    field = "peak_flops" if "peak_flops" in path else path[-1]
    number, unit = parse(text, DIMENSIONS[field]), _UNITS.get(DIMENSIONS[field])
    if unit and 0 < number < LEAST and text.strip()[-1].isdigit():
        raise InputError(f"--set {name}={text}: {text} {DIMENSIONS[field]} is too little to mean; write {text}{unit}")
    if not 0 < number <= HUGE or (field in _WHOLE and number % 1):
        kind = "a whole number above 0" if field in _WHOLE else "a number above 0"
        raise InputError(f"--set {name}={text}: must be {kind} [{DIMENSIONS[field]}]")
    return int(number) if field in _WHOLE else number


def _stack(stack: Stack, name: str, text: str) -> Stack:
    from optimizer.catalog.readers.problems import validated
    from optimizer.catalog.readers.stack_file import KEYS

    part = "parameters" if name in PARAMETERS else "features"
    problems: list[str] = []
    own = {key: getattr(stack.features, key) for key in ("selective", "recompute_modules")}
    data: dict[str, Any] = {"name": stack.name, "features": own}
    data.setdefault(part, {})[name] = _value(text)
    table = validated(KEYS, data, problems)
    if table is None:
        raise InputError(f"--set {STACK}.{name}={text}: {'; '.join(problems)}")
    changed = dict(table)
    if part == "parameters":
        return replace(stack, parameters={**stack.parameters, **changed["parameters"]})
    return replace(stack, features=replace(stack.features, **{name: getattr(changed["features"], name)}))
