"""What a measured run says of the predictions of a software: how far off one was, and where it lies among others."""

from __future__ import annotations

from dataclasses import dataclass

TIME, MEMORY = "time", "memory"
QUANTITIES = (TIME, MEMORY)
SIZES, PLAN_COLUMNS = 4, 12  # numbers of a place in size, and in plan
YOURS = "yours"  # the site of a user's own machines


@dataclass(frozen=True, kw_only=True)
class RunError:
    """One run, or several like it.

    `optimizer.objectives.belief` says what makes errors of two of them alike.
    """

    quantity: str  # one of QUANTITIES
    root: str  # the software that its own is built on
    software: str  # its own, without the release
    generation: str  # of the device: its vendor and the newest number format of its matrix units
    device: str  # as presets call it
    kind: str  # of the model and its training: dense or MoE, how tokens are routed, what is trained
    model: str  # what makes two models one
    format: str  # of numbers
    site: str  # whose machines it ran on
    size: tuple[float, ...]  # doublings of width, parameters, GPUs, tokens of a sequence [1]
    plan: tuple[float, ...]  # doublings of the plan's degrees, and its choices [1]
    hardness: float  # to predict: doublings from the predicted MFU to 40 %; of memory, how much is recomputed [1]
    error: float  # log(measured / predicted) [1]
    spread: float = 0.0  # standard deviation of the error; 0 for that of one run [1]
    switches: str = ""  # a digest of what the software of one run has on


@dataclass(frozen=True, kw_only=True)
class SweptError:
    """What a run of a sweep tells of plans like its own, beside other plans of its software on its device."""

    software: str  # as RunError has it
    device: str  # the same
    size: tuple[float, ...]  # the same [1]
    plan: tuple[float, ...]  # the same [1]
    pull: float  # by how much it moves log(measured / predicted) of a plan just like its own [1]


@dataclass(frozen=True, kw_only=True)
class RunsSource:
    """Where runs of a user's own come from, so that the same answer can be found again."""

    files: str  # where they lie, with commas between
    sha256: str  # of what the files hold
    runs: int  # that count
