"""Lines of a program that no format knows, by a regular expression of the user."""

from __future__ import annotations

import re
from collections.abc import Mapping

from optimizer.base.errors import InputError
from optimizer.frameworks.log_line import LogFormat, LogLine, decimal

# Named groups, and what each says.
GROUPS: Mapping[str, str] = {
    "step": "number of the step",
    "last": "number of the last step",
    "seconds": "of a step",
    "ms": "milliseconds of a step",
    "tokens": "per second and GPU",
    "samples": "sequences per second",
    "loss": "loss",
}
TIMES = ("seconds", "ms", "tokens", "samples")


def format_of(pattern: str) -> LogFormat:
    r"""The format of lines that fit a pattern with named groups.

    Raises InputError for one that is none, or names no time.

    >>> format_of(r"it (?P<step>\d+) took (?P<ms>[\d.]+) ms").read("[0] it 7 took 1500.0 ms").seconds
    1.5
    """
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise InputError(f"--pattern {pattern!r} is no regular expression: {error}") from None
    unknown = [name for name in compiled.groupindex if name not in GROUPS]
    if unknown or not any(name in compiled.groupindex for name in (*TIMES, "step")):
        what = f"has a group {unknown[0]!r}" if unknown else "names no time and no step"
        raise InputError(
            f"--pattern {pattern!r} {what}: name what lines say by groups (?P<NAME>...), NAME being one of "
            f"{', '.join(GROUPS)}, such as 'step (?P<step>\\d+).*time (?P<seconds>[\\d.]+)'"
        )

    def read(text: str) -> LogLine | None:
        match = compiled.search(text)
        if match is None:
            return None
        values = {name: decimal(value) for name, value in match.groupdict().items()}
        seconds, milliseconds = values.get("seconds"), values.get("ms")
        step, last = values.get("step"), values.get("last")
        return LogLine(
            step=None if step is None else int(step),
            last_step=None if last is None else int(last),
            seconds=seconds if milliseconds is None else milliseconds / 1e3,
            alone="step" not in compiled.groupindex,
            tokens_rate=values.get("tokens"),
            sequences_rate=values.get("samples"),
            loss=values.get("loss"),
        )

    return LogFormat(name="--pattern", marks=(compiled,), read=read)
