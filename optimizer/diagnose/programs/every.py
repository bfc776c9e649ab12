"""The programs whose logs can be read, those with the most telling lines first."""

from __future__ import annotations

from optimizer.diagnose.programs import (
    composer,
    deepspeed,
    huggingface,
    maxtext,
    megatron_bridge,
    megatron_lm,
    nanotron,
    nemo,
    primus,
    torchtitan,
)
from optimizer.diagnose.reading import Program

# A program that prints the lines of another, or trains with it, comes before it.
PROGRAMS: tuple[Program, ...] = (
    primus.PROGRAM,
    megatron_bridge.PROGRAM,
    megatron_lm.PROGRAM,
    nemo.PROGRAM,
    torchtitan.PROGRAM,
    nanotron.PROGRAM,
    composer.PROGRAM,
    maxtext.PROGRAM,
    deepspeed.PROGRAM,
    huggingface.PROGRAM,
)
NAMES = tuple(program.name for program in PROGRAMS)
MARKS = tuple(dict.fromkeys(mark for program in PROGRAMS for mark in program.marks))
