"""Lines of verl: of each step of reinforcement learning the update of the actor, which trains as pretraining does.

Source: verl-project/verl, verl/utils/logger/aggregate_logger.py (concat_dict_to_str) and
verl/trainer/ppo/metric_utils.py.
"""

from __future__ import annotations

import re

from optimizer.base.units import GiB
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

STEP = re.compile(r"\bstep:(\d+) - ")
VALUE = re.compile(r"(?<=- )([\w/@.-]+):\s*(?:np\.\w+\()?([-+\d.eE]+|nan|inf)\b")
UPDATE = "timing_s/update_actor"


def read(text: str) -> LogLine | None:
    """A step's line: the seconds of its update.

    >>> found = read("step:3 - actor/grad_norm:np.float64(0.5) - timing_s/gen:90.0 - timing_s/update_actor:80.5")
    >>> found.step, found.seconds, found.grad_norm
    (3, 80.5, 0.5)
    """
    step = STEP.search(text)
    values = dict(VALUE.findall(text)) if step else {}
    if step is None or UPDATE not in values:
        return None
    reserved = decimal(values.get("perf/max_memory_reserved_gb"))
    return LogLine(
        step=int(step[1]),
        seconds=decimal(values[UPDATE]),
        loss=decimal(values.get("actor/pg_loss")),
        grad_norm=decimal(values.get("actor/grad_norm")),
        reserved=None if reserved is None else reserved * GiB,
    )


LOG = LogFormat(
    name="verl",
    marks=(f"{UPDATE}:",),
    read=read,
    remark="seconds are those of the actor's update alone, without rollouts, rewards and references",
)
