"""Step times of runs with one planted cause, by its mechanism: the cost model under a setting that varies from step to
step as such faults do, on top of the noise that every run has.

The mechanisms know nothing of the signs by which the program tells causes apart. The setting is drawn from wide ranges
of its own, not from the program's priors, and only faults that slow the step down by SLOWDOWN are planted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.diagnose.causes.cause import Cause, SlowStep
from optimizer.diagnose.causes.every import CAUSES
from optimizer.diagnose.diagnosis import Curve, curves_of
from optimizer.job.job import Job
from optimizer.job.plan import Plan

SLOWDOWN = (0.12, 1.0)  # of a planted fault
STEPS = 150
Array = NDArray[np.float64]
Draw = np.random.Generator


def question(model: str, gpus: int, plan: Plan, seq_len: int, cluster: str = "dgx-h100") -> SlowStep:
    batch = plan.dp * plan.micro_batch * plan.num_microbatches
    job = Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=seq_len,
        global_batch=batch,
    )
    return SlowStep(job=job, plan=plan)


@cache
def questions() -> tuple[SlowStep, ...]:
    """Plans of several kinds: sharded data parallelism, pipelines, tensor parallelism, mixtures, small models."""
    return (
        question("llama3-8b", 64, Plan(tp=2, dp=32, micro_batch=1, num_microbatches=2, sequence_parallel=True), 8192),
        question("llama2-7b", 32, Plan(tp=1, dp=32, micro_batch=2, num_microbatches=4), 4096),
        question(
            "gpt3",
            256,
            Plan(
                tp=8,
                pp=8,
                vpp=2,
                dp=4,
                micro_batch=1,
                num_microbatches=32,
                sequence_parallel=True,
                schedule="interleaved",
            ),
            2048,
        ),
        question(
            "mixtral-8x7b",
            64,
            Plan(tp=1, ep=8, dp=64, micro_batch=1, num_microbatches=4, recompute="full"),
            4096,
        ),
        question(
            "llama3-70b", 128, Plan(tp=4, pp=4, dp=8, micro_batch=1, num_microbatches=16, sequence_parallel=True), 8192
        ),
        question("gpt2-xl", 16, Plan(tp=1, dp=16, micro_batch=1, num_microbatches=2), 1024),
    )


@cache
def curves(place: int) -> tuple[tuple[Cause, Curve], ...]:
    """The causes that the run can have."""
    return tuple(curves_of(questions()[place])[0])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run, its planted cause, and its step times [s]."""

    place: int
    cause: str
    times: Array


def case(place: int, cause: Cause, curve: Curve, draw: Draw) -> Case | None:
    """A run with this cause at a random setting, None where the setting that is drawn is no such fault."""
    asked = questions()[place]
    setting = SETTINGS[cause.name](asked, draw)
    place_of = np.argsort(curve.settings)
    xs, logs = curve.settings[place_of], np.log(curve.seconds[place_of])

    def seconds(values: Array) -> Array:
        return np.asarray(np.exp(np.interp(values, xs, logs)))

    slower = float(seconds(np.array([setting]))[0]) / asked.predicted - 1
    if not SLOWDOWN[0] <= slower <= SLOWDOWN[1]:
        return None
    clean = MECHANISMS[cause.name](setting, seconds, asked.predicted, draw)
    model_error = np.exp(0.02 * draw.standard_normal())
    noise = np.exp(draw.uniform(0.002, 0.012) * draw.standard_normal(STEPS))
    times = clean * model_error * noise
    if draw.random() < 0.3:  # checkpoints
        times[int(draw.integers(10, 60)) :: 60] *= draw.uniform(1.3, 3.0)
    times[:3] *= [5.0, 1.5, 1.1]
    return Case(place=place, cause=cause.name, times=times)


def wandering(draw: Draw, width: float, memory: float) -> Array:
    """A slow random walk around zero of standard deviation `width`."""
    steps = draw.standard_normal(STEPS)
    walk = np.zeros(STEPS)
    walk[0] = steps[0]
    for number in range(1, STEPS):
        walk[number] = memory * walk[number - 1] + np.sqrt(1 - memory**2) * steps[number]
    return width * walk


def network(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """Half of them a lost port or a fallback, steady; the others congestion that comes and goes."""
    if draw.random() < 0.5:
        return seconds(np.full(STEPS, setting))
    return seconds(setting * np.exp(wandering(draw, draw.uniform(0.1, 0.3), draw.uniform(0.6, 0.95))))


def launches(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """A busy host: every step another load."""
    return seconds(setting * draw.gamma(30.0, 1 / 30.0, STEPS))


def straggler(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """A third of them a host that is always slower; the others drift with their temperature or their neighbours."""
    if draw.random() < 1 / 3:
        return seconds(np.full(STEPS, setting))
    return seconds(np.maximum(0.0, setting * (1 + wandering(draw, draw.uniform(0.1, 0.4), draw.uniform(0.8, 0.97)))))


def clocks(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """Half of them a power cap; the others heat that builds up."""
    if draw.random() < 0.5:
        return seconds(np.full(STEPS, setting))
    warm = 1 - np.exp(-np.arange(STEPS) / draw.uniform(20, 60))
    return seconds(1 - (1 - setting) * (0.5 + 0.5 * warm))


def overlap(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """A flag that is missing all the time."""
    return seconds(np.full(STEPS, setting))


def routing(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """Another load with every batch, evened out as the router learns."""
    learnt = draw.uniform(0.3, 1.0) * np.exp(-np.arange(STEPS) / draw.uniform(60, 300))
    return seconds(1 + (setting - 1) * (1 + learnt) * draw.gamma(60.0, 1 / 60.0, STEPS))


def data(setting: float, seconds: Callable[[Array], Array], healthy: float, draw: Draw) -> Array:
    """Workers that fill a queue of batches; a step waits where it is empty. The mean wait is the setting."""
    workers, ahead = int(draw.integers(1, 9)), int(draw.integers(2, 9))
    make = draw.lognormal(0.0, draw.uniform(0.3, 0.9), STEPS)
    make *= workers * (healthy + setting) / make.mean()
    free = np.zeros(workers)
    now, times, began = 0.0, np.zeros(STEPS), np.zeros(STEPS)
    for number in range(STEPS):
        worker = int(np.argmin(free))
        start = max(free[worker], began[number - ahead] if number >= ahead else 0.0)
        free[worker] = ready = start + make[number]
        begin = max(now, ready)
        times[number], began[number], now = begin + healthy - now, begin, begin + healthy
    return times


MECHANISMS: dict[str, Callable[[float, Callable[[Array], Array], float, Draw], Array]] = {
    "network": network,
    "launches": launches,
    "straggler": straggler,
    "clocks": clocks,
    "overlap": overlap,
    "routing": routing,
    "data": data,
}
SETTINGS: dict[str, Callable[[SlowStep, Draw], float]] = {
    "network": lambda asked, draw: float(draw.uniform(0.05, 0.8)),
    "launches": lambda asked, draw: float(asked.job.stack["launch"] * draw.uniform(1, 25)),
    "straggler": lambda asked, draw: float(draw.uniform(0.05, 0.6)),
    "clocks": lambda asked, draw: float(draw.uniform(0.55, 0.95)),
    "overlap": lambda asked, draw: 1.0 if draw.random() < 0.7 else float(draw.uniform(0.3, 1.0)),
    "routing": lambda asked, draw: float(draw.uniform(1.2, 4.0)),
    "data": lambda asked, draw: float(asked.predicted * draw.uniform(0.1, 1.0)),
}
BY_NAME = {cause.name: cause for cause in CAUSES}


def cases(count: int, seed: int) -> list[Case]:
    """Random runs, each cause as often as the runs that can have it allow."""
    draw = np.random.default_rng(seed)
    found: list[Case] = []
    names = list(MECHANISMS)
    while len(found) < count:
        name = names[len(found) % len(names)]
        for _ in range(400):
            place = int(draw.integers(len(questions())))
            curve = next((curve for cause, curve in curves(place) if cause.name == name), None)
            made = case(place, BY_NAME[name], curve, draw) if curve is not None else None
            if made is not None:
                found.append(made)
                break
        else:
            raise AssertionError(f"no run can have {name}")
    return found
