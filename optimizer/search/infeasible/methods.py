"""Other ways of training a model: lighter ones than that which does not fit, each with the software that it takes, and
switches of the software.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from optimizer.catalog import load_stack
from optimizer.catalog.stacks import default_stack
from optimizer.catalog.usual_batch import AT_ONCE
from optimizer.job.job import Job
from optimizer.job.method import WAYS, lighter_ways, method_of, optimizer_of, tunes
from optimizer.job.switches import Switch, switched_to, switches

SHORTEST = 512  # tokens of a sequence


def lighter_jobs(job: Job) -> Iterator[Iterator[tuple[str, Job]]]:
    """The job as it is and by every lighter way, each as the software has its switches and with these in other states,
    with the options that ask for it; nothing where it has more GPUs than a node.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=16)
    >>> [(options, lighter.stack.name) for options, lighter in list(lighter_jobs(job))[-1]]
    [('--train qlora', 'hf-2026'), ('--train qlora --fix liger=on', 'hf-2026')]
    """
    if job.gpus > job.cluster.gpus_per_node:
        return
    yield switched_jobs(job)
    for train, optimizer in lighter_ways(job.train, job.optimizer):
        lighter = by_way(job, train, optimizer)
        options = f"--train {train}" if train != job.train else f"--optimizer {optimizer}"
        batch = f" --global-batch {lighter.global_batch}" if lighter.global_batch != job.global_batch else ""
        yield chain([(f"{options}{batch}", lighter)], switched_jobs(lighter, f"{options}{batch} "))


def switched_jobs(job: Job, options: str = "") -> Iterator[tuple[str, Job]]:
    """The job with each switch that its software leaves open, and nobody pinned, in its other states, with the option.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("hf-2026"),
    ...     gpus=1, seq_len=2048, global_batch=16, train="lora")
    >>> [(option, other.stack.features.loss_chunks) for option, other in switched_jobs(job)]
    [('--fix liger=on', 0)]
    """
    for switch in (switches()[name] for name in job.stack.features.switchable):
        now = switch.state(job.stack)
        for state in switch.states if now and not _pinned(job, switch) else ():
            if state != now:
                stack = switched_to(job.stack, {switch.name: state})
                yield f"{options}--fix {switch.name}={state}", replace(job, stack=stack)


def _pinned(job: Job, switch: Switch) -> bool:
    """Whether somebody set what a switch does."""
    fields = {f"stack.{name}" for features in switch.states.values() for name in features}
    return not fields.isdisjoint(setting.partition("=")[0] for setting in job.settings)


def shorter_jobs(job: Job) -> Iterator[tuple[str, Job]]:
    """A job of fine-tuning with sequences of ever lower powers of two, which cut its documents, and with switches.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("hf-2026"),
    ...     gpus=1, seq_len=5568, global_batch=16, train="qlora")
    >>> [options.removeprefix("--seq-len ") for options, _ in shorter_jobs(job)][:4]
    ['4096', '4096 --fix liger=on', '2048', '2048 --fix liger=on']
    """
    seq_len = 1 << (job.seq_len - 1).bit_length()
    while job.tunes and (seq_len := seq_len // 2) >= SHORTEST:
        options, shorter = f"--seq-len {seq_len}", replace(job, seq_len=seq_len)
        yield options, shorter
        yield from switched_jobs(shorter, f"{options} ")


def by_way(job: Job, train: str, optimizer: str) -> Job:
    """The job by another way of training; software that is the usual one of some way gives place to that of the way.

    Where nothing accumulates its batch is no more than the few sequences that are usual then.
    """
    usual = {_usual(job, *way) for way in (*WAYS, (job.train, job.optimizer))}
    tuned = tunes(method_of(train), optimizer_of(optimizer), job.loss) and job.stack.name in usual
    name = _usual(job, train, optimizer)
    stack = load_stack(name) if tuned and name != job.stack.name else job.stack
    batch = min(job.global_batch, AT_ONCE * job.gpus) if optimizer_of(optimizer).in_backward else job.global_batch
    base = job.base if train == job.train else ""
    return replace(job, train=train, optimizer=optimizer, base=base, stack=stack, global_batch=batch)


def _usual(job: Job, train: str, optimizer: str) -> str:
    """The software that a way takes where nobody names it."""
    method, rule = method_of(train), optimizer_of(optimizer)
    return default_stack(job.cluster.device, tunes(method, rule, job.loss), rule.in_backward)
