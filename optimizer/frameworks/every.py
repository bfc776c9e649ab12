"""The programs whose logs can be read, those with the most telling lines first."""

from __future__ import annotations

from optimizer.frameworks.deepspeed import log as deepspeed
from optimizer.frameworks.huggingface import log as huggingface
from optimizer.frameworks.llm_foundry import log as composer
from optimizer.frameworks.log_line import Program
from optimizer.frameworks.maxtext import log as maxtext
from optimizer.frameworks.megatron import log as megatron_lm
from optimizer.frameworks.megatron_bridge import log as megatron_bridge
from optimizer.frameworks.nanotron import log as nanotron
from optimizer.frameworks.nemo import log as nemo
from optimizer.frameworks.primus import log as primus
from optimizer.frameworks.torchtitan import log as torchtitan

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
