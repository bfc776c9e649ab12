"""From what a person typed to a Job: defaults are chosen here, and every choice is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.commands.defaults import in_effect
from optimizer.commands.pins import merged, switched
from optimizer.job.fields import DEFAULT_CLUSTER, FIELDS, LIMITS
from optimizer.job.loss import loss_of
from optimizer.job.method import FULL, method_of, optimizer_of, tunes
from optimizer.job.stack import ROUTING

if TYPE_CHECKING:
    from optimizer.job.hardware import Cluster
    from optimizer.job.job import Job
    from optimizer.job.model import Model

LONGEST_DEFAULT_SEQUENCE = 8192
LENGTH_STEP = 64  # sequences as long as the longest document are a multiple of it
PRICED = ("NVIDIA", "AMD", "Google", "")  # vendors whose software a stack was fitted to; "" is an unknown one
MOST_TOKENS = 2**28  # of a step, several times those of any published run: more are tokens typed as sequences


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was typed; None and "" stand for what was left out."""

    model: str
    gpus: int
    cluster: str = ""
    device: str = ""
    stack: str = ""
    target: str = ""
    seq_len: int | None = None
    global_batch: int | None = None
    dtype: str = ""
    limits: Mapping[str, Any]  # fields of optimizer.job.job.Limits
    settings: tuple[str, ...] = ()  # fields of the model, cluster or stack to change, as in "layers=4"
    routing: str = ""  # one of job.stack.ROUTING, or the load of the busiest expert rank over the mean
    train: str = ""  # as optimizer.job.method.method_of reads it
    base: str = ""  # one of optimizer.job.method.BASES
    optimizer: str = ""  # as optimizer.job.method.optimizer_of reads it
    loss: str = ""  # as optimizer.job.loss.loss_of reads it
    lengths: str = ""  # a file of documents' lengths, or as optimizer.job.lengths reads it
    packing: str = FIELDS["packing"].default
    runs: str = ""  # measured runs of one's own, as optimizer.commands.own_runs reads them
    minimize: str = FIELDS["minimize"].default  # one of optimizer.objectives.minimised.registry.NAMES
    prefer: str = FIELDS["prefer"].default  # one of optimizer.objectives.minimised.registry.PREFERRED
    try_cost: float = FIELDS["try_cost"].default  # time of the cluster that a failed start takes [s]


def request_of(options: Mapping[str, Any], **others: Any) -> Request:
    """The request in the options of a command, whatever else they say.

    Args:
        options: values of options by the names of their fields.
        **others: fields of the request that the options do not say.

    Raises:
        InputError: for a variable that is pinned in two ways.
    """
    given = {name: value for name in Request.__dataclass_fields__ if (value := options.get(name)) is not None}
    settings = (*given.pop("settings", ()), *switched(options.get("fix", ())))
    return Request(**{**given, "settings": settings, "limits": limits_of(options), **others})


def limits_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that options set, as fields of optimizer.job.job.Limits; raises InputError for pins that clash."""
    limits = {name: value for name, field in LIMITS.items() if (value := options.get(field.name)) is not None}
    return limits | merged(options.get("fix", ()))


def check_complete(options: Mapping[str, Any], command: str) -> None:
    """Raise click.UsageError where a command that plans is given no model or no number of GPUs."""
    if missing := [FIELDS[name].option for name in ("model", "gpus") if options[name] is None]:
        raise click.UsageError(f"missing {' and '.join(missing)}, as in: {command} --model gpt3 --gpus 1024")


def job_of(request: Request) -> tuple[Job, tuple[str, ...]]:
    """The job a person asked for, and a sentence for everything assumed.

    Raises InputError for a name, number or combination that cannot be used.
    """
    from optimizer.catalog import load_model, load_stack
    from optimizer.catalog.readers.lengths import lengths_text
    from optimizer.catalog.settings import Asked, with_settings
    from optimizer.catalog.software import releases
    from optimizer.catalog.stacks import default_stack
    from optimizer.catalog.targets import aimed, fixed_for, launchers
    from optimizer.catalog.usual_batch import AT_ONCE, TUNED
    from optimizer.job.job import EVEN_RISK, Job, Limits
    from optimizer.job.target import on_device
    from optimizer.objectives.step.safe_memory import risk_of

    if request.gpus < 1:
        raise InputError(f"--gpus must be at least 1, but got {request.gpus}")
    assumed: list[str] = []
    model = load_model(request.model)
    cluster = _cluster(request, assumed)
    launched = launchers()[request.target].stack if request.target in launchers() else ""
    method, rule = method_of(request.train, request.base), optimizer_of(request.optimizer)
    fine = tunes(method, rule, request.loss) or request.train == FULL
    stack = load_stack(request.stack or launched or default_stack(cluster.device, fine, rule.in_backward))
    assumed += _clashes(request, {"model": model.name, "cluster": cluster.name, "stack": stack.name})
    routing = routing_settings(request.routing)
    if routing and not model.experts:
        assumed.append(f"nothing of --routing {request.routing}: {model.name} has no experts to route to")
        routing = ()
    settings = (*request.settings, *routing)
    assumed += _as_read(request.model, model)
    asked = with_settings(Asked(model=model, cluster=cluster, stack=stack), settings)
    model, cluster, stack = asked.model, asked.cluster, asked.stack
    lengths = lengths_text(request.lengths)
    tuned = fine or bool(lengths)
    seq_len = request.seq_len or _seq_len(model, lengths, assumed, tuned=tuned)
    assumed += _cut(lengths, seq_len, request)
    each = (AT_ONCE if rule.in_backward else TUNED) if tuned else 0
    global_batch = request.global_batch or _batch(model, seq_len, request.gpus, assumed, each)
    if (request.global_batch or 0) * seq_len > MOST_TOKENS:
        billions = global_batch * seq_len / 1e9
        assumed.append(
            f"{global_batch:,} sequences, which are {billions:,.3g} billion tokens a step: a global batch counts "
            "sequences, not tokens (--global-batch)"
        )
    dtype = request.dtype or ("bf16" if "bf16" in cluster.device.peak_flops else "fp16")
    if not request.dtype and dtype != "bf16":
        assumed.append(f"{dtype}, because {cluster.device.name} has no bf16 (--dtype)")
    limits = dict(request.limits)
    if request.target:
        device = cluster.device
        if request.target in launchers() and device.vendor not in launchers()[request.target].vendors:
            raise InputError(
                f"--target {request.target} does not run on {device.name} ({device.vendor}); --target any asks for no "
                "software"
            )
        stack = aimed(stack, request.target)
        if request.target in launchers():
            stack = on_device(stack, launchers()[request.target], device.name, request.gpus)
        limits["fixed"] = fixed_for(request.target, limits.get("fixed", {}))
    if not request.stack:
        vendor = cluster.device.vendor
        foreign = "" if vendor in PRICED else f", as none that runs on devices of {vendor} is known"
        assumed.append(f"software stack {stack.name.partition('@')[0]}{foreign} (--stack)")
    if release := releases().get(stack.name.partition("@")[0]):
        on = ", ".join(f"{name}={state}" for name, state in release.on.items())
        assumed += [f"{release.family} {release.name} as its recipes have it: {on} (--fix, --stack)"] * bool(on)
    if global_batch % (together := loss_of(request.loss).together):
        raise InputError(
            f"a sample of --loss {request.loss} is {together} sequences: --global-batch counts these and must be a "
            f"multiple of {together}, but got {global_batch}"
        )
    job = Job(
        model=model,
        cluster=cluster,
        stack=stack,
        gpus=request.gpus,
        seq_len=seq_len,
        global_batch=global_batch,
        dtype=dtype,
        limits=Limits(**limits),
        settings=asked.settings,
        minimize=request.minimize,
        train=request.train or FULL,
        base=request.base,
        optimizer=request.optimizer,
        loss=request.loss,
        lengths=lengths,
        packing=request.packing,
        prefer=request.prefer,
        try_cost=request.try_cost,
    )
    if request.runs:
        from optimizer.commands.own_runs import with_own_runs

        job = with_own_runs(job, request.runs)
    assumed += [f"{setting} (--set)" for setting in asked.settings if setting not in routing]
    if model.experts and not request.routing:
        assumed.append(
            f"routing as even as in published runs, {stack.imbalance:g} times the mean on the busiest rank; with a "
            f"trained router {ROUTING['trained']:g} (--routing)"
        )
    if job.limits.oom_risk is None and risk_of(job) == EVEN_RISK:
        assumed.append(
            f"plans of a chance to fit of {1 - EVEN_RISK:.0%}, not 90%: nobody measured the memory of such a MoE model "
            "(--oom-risk)"
        )
    if job.limits.hbm > cluster.device.memory_nominal:
        assumed.append(
            f"--hbm-limit {job.limits.hbm / 1e9:.0f} GB is more than the {cluster.device.name} has: a what-if question"
        )
    return job, (*assumed, *in_effect())


def _as_read(typed: str, model: Model) -> list[str]:
    """How a model file was understood: its owner knows these counts; and which preset a hub's longer name means."""
    from optimizer.catalog.models import model_spellings
    from optimizer.catalog.places import file_of, spelling

    path = file_of(typed)
    if path is None or not path.exists():
        if spelling(typed) == spelling(model.name):
            return []
        known = {spelling(name) for name in model_spellings()}
        as_base = f"model {typed} has the architecture of {model.name} (--model)"
        return [as_base] if model.family and spelling(typed) not in known and spelling(model.name) in known else []
    active = f", {model.active_params / 1e9:,.3g} billion of them active" if model.experts else ""
    size = f"{model.layers:,} layers and {model.params / 1e9:,.3g} billion parameters{active}"
    how = f"; {model.provenance.note}" if model.provenance.note and path.suffix != ".toml" else ""
    return [f"model {model.name} as {path.name or path} is read: {size}{how} (--model)"]


def routing_settings(text: str) -> tuple[str, ...]:
    """How even routing is, as a setting of the stack; none where nothing is said.

    Raises InputError for what is neither one of ROUTING nor a factor.

    >>> routing_settings("trained"), routing_settings("1.3"), routing_settings("")
    (('stack.routing=trained',), ('stack.expert_imbalance=1.3',), ())
    """
    if not text or text in ROUTING:
        return (f"stack.routing={text}",) if text else ()
    try:
        factor = float(text)
    except ValueError:
        raise InputError(
            f"--routing must be one of {', '.join(ROUTING)} or the busiest expert rank's tokens over the mean, such as "
            f"1.3, but got {text!r}"
        ) from None
    return (f"stack.expert_imbalance={factor:g}",)


def _clashes(request: Request, names: Mapping[str, str]) -> list[str]:
    """What was taken of the user's own presets, and where a preset and a file have one name."""
    from optimizer.base.files import shown
    from optimizer.catalog import KINDS
    from optimizer.catalog.places import clash, file_of, own_file

    lines = []
    for kind, name in names.items():
        typed, shipped = getattr(request, kind), KINDS[kind][0]()
        plain = name.partition("@")[0]
        path = None if typed and file_of(typed) else own_file(kind, plain)
        if path:
            over = ", not the shipped preset of that name" if plain in shipped else ""
            lines.append(f"{kind} {plain} of your {shown(path)}{over} (--{kind})")
        elif typed and (words := clash(kind, typed, name, shipped)):
            lines.append(words)
    return lines


def _cluster(request: Request, assumed: list[str]) -> Cluster:
    from optimizer.catalog import load_cluster, load_device
    from optimizer.catalog.places import file_of

    if request.device and file_of(request.device):
        raise InputError(
            f"--device {request.device}: a device of your own needs a cluster around it; put it under [device] into a "
            "file with name and [[tiers]], and give that with --cluster"
        )
    device = load_device(request.device).name if request.device else ""
    cluster = load_cluster(request.cluster or device or DEFAULT_CLUSTER)
    if not request.cluster:
        assumed.append(f"cluster {cluster.name} (--cluster)")
        cluster = _machine(cluster, request.gpus)
    if device and cluster.device.name != device:
        raise InputError(
            f"--cluster {request.cluster} is built from {cluster.device.name}, but --device says {device}; "
            "give only one of them"
        )
    return cluster


def _machine(cluster: Cluster, gpus: int) -> Cluster:
    """A machine of as many cards as the job has, with their share of the host's memory, where no network joins several:
    who has one card has no eighth of a machine of eight.
    """
    node = cluster.gpus_per_node
    if cluster.max_gpus > node:
        return cluster
    cards = min(gpus, node)
    return replace(cluster, gpus_per_node=cards, host_memory=cluster.host_memory * cards / node)


def _seq_len(model: Model, lengths: str, assumed: list[str], *, tuned: bool) -> int:
    """Tokens of a sequence where nobody says: the longest document, else the model's longest sequence up to a limit."""
    from optimizer.catalog.usual_batch import TUNED_LENGTH
    from optimizer.job.lengths import longest

    if lengths:
        seq_len = min(model.max_seq_len, -(-longest(lengths) // LENGTH_STEP) * LENGTH_STEP)
        why = "the longest document"
    elif tuned:
        seq_len, why = min(model.max_seq_len, TUNED_LENGTH), "what LLaMA-Factory and Unsloth take unasked"
    else:
        seq_len, why = min(model.max_seq_len, LONGEST_DEFAULT_SEQUENCE), f"its longest is {model.max_seq_len:,}"
    if seq_len == model.max_seq_len:
        why = "the model's longest"
    assumed.append(f"sequences of {seq_len:,} tokens, {why} (--seq-len)")
    return seq_len


def _cut(lengths: str, seq_len: int, request: Request) -> list[str]:
    """What is done to documents that are longer than a sequence, and where --packing says nothing."""
    from optimizer.job.lengths import LONGEST, OFF, lengths_of

    if not lengths:
        idle = request.packing != OFF
        return [f"nothing of --packing {request.packing}: documents are as long as a sequence (--lengths)"] * idle
    share = float((lengths_of(lengths, OFF, LONGEST).sizes > seq_len).mean())
    return [f"the {share:.1%} of documents that are longer than a sequence are cut (--lengths)"] * (share > 0)


def _batch(model: Model, seq_len: int, gpus: int, assumed: list[str], tuned: int) -> int:
    """Sequences of a step where nobody says, so many for each GPU where a model that exists is `tuned`."""
    from optimizer.catalog import preset_model
    from optimizer.catalog.usual_batch import EACH, LEAST, PUBLISHED, divisible_batch, usual_tokens

    if tuned:
        why = f"{tuned} for each GPU, as torchtune's recipes of one GPU have it"
        assumed.append(f"global batch of {tuned * gpus:,} sequences, {why} (--global-batch)")
        return tuned * gpus
    published = PUBLISHED.get(model.name)
    if published and model.provenance != preset_model(model.name).provenance:
        published = None  # a file's own model of that name
    tokens = published.tokens if published else usual_tokens(gpus)
    batch = max(1, tokens // seq_len)
    why = f"{EACH:,} tokens for each of {gpus:,} GPUs, as the largest published runs took"
    if published or tokens == LEAST:
        why = f"the {tokens / 2**20:.0f}Mi tokens of {published.source}" if published else "about 4Mi tokens per step"
    fitting = divisible_batch(batch, gpus)
    if fitting != batch:
        why = f"{why} being {batch:,}, which {gpus:,} GPUs cannot share"
        batch = fitting
    assumed.append(f"global batch of {batch:,} sequences, {why} (--global-batch)")
    return batch
