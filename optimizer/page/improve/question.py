"""What is asked on the Improve tab, and its address: with files that are not too large, the whole question."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from optimizer.base.errors import InputError
from optimizer.base.units import is_count
from optimizer.frameworks.files import LARGEST
from optimizer.page.improve.files import Named, given, is_log, packable
from optimizer.page.plan.own_files import MOST_PACKED, packed, unpacked
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.question import asked as plan_asked

CHOSEN = ("model", "cluster", "gpus")  # what a visitor says besides the files


@dataclass(frozen=True, kw_only=True)
class LaunchQuestion:
    """Files, and what is said besides them; "" leaves it to them."""

    files: tuple[Named, ...] = ()
    model: str = ""
    cluster: str = ""
    gpus: str = ""
    plan: str = ""  # the address of the question on the Plan tab, which a model or a cluster of one's own goes into

    @property
    def searched(self) -> LaunchQuestion:
        """All of it."""
        return self

    @property
    def name(self) -> str:
        """The first file's."""
        return self.files[0][0] if self.files else "launch"

    @property
    def packed(self) -> str:
        """The files as they stand in the address, "" where there are none or they are too large for one."""
        text = packed(packable(self.files)) if self.files else ""
        return text if len(text) <= MOST_PACKED else ""

    def before(self) -> PlanQuestion:
        """The question on the Plan tab."""
        return plan_asked(parse_qsl(self.plan))

    def flags(self) -> str:
        r"""The command that gives the same answer.

        >>> LaunchQuestion(files=(("run.sh", b""), ("run.log", b"")), cluster="dgx-h100").flags()
        'optimize read run.log --script run.sh --cluster dgx-h100\noptimize improve run.sh --cluster dgx-h100'
        """
        logs = [name for name, data in self.files if is_log(name, data)]
        others = [name for name, data in self.files if not is_log(name, data)]
        options = [(f"--{name}", value) for name in CHOSEN if (value := getattr(self, name))]
        of_reading = [("--script", name) for name in others] + [
            each for each in options if others and each[0] != "--gpus"
        ]
        commands = [("read", logs, of_reading)] * bool(logs) + [("improve", others, options)] * bool(others or not logs)
        return "\n".join(
            shlex.join(["optimize", command, *names, *(word for each in given for word in each)])
            for command, names, given in commands
        )

    def address(self) -> str:
        """The question as the part of an address after "?"."""
        pairs = [(name, value) for name in (*CHOSEN, "plan") if (value := getattr(self, name))]
        return urlencode([*pairs, ("files", text)] if (text := self.packed) else pairs)


def asked(pairs: Sequence[tuple[str, str]]) -> LaunchQuestion:
    """The question of an address or a form. Raises InputError for what cannot be used.

    >>> asked([("gpus", "64"), ("cluster", "dgx-h100")]).address()
    'cluster=dgx-h100&gpus=64'
    """
    last = {name: value.strip() for name, value in pairs if value.strip()}
    chosen = {name: last.get(name, "") for name in (*CHOSEN, "plan")}
    if chosen["gpus"] and not (is_count(chosen["gpus"]) and int(chosen["gpus"])):
        raise InputError(f"GPUs must be a whole number above zero, but got {chosen['gpus'][:40]!r}")
    plan_asked([(name, chosen[name]) for name in ("model", "cluster") if chosen[name]])  # names that there are
    files = given(unpacked("pasted", last["files"], LARGEST).encode()) if "files" in last else ()
    return LaunchQuestion(**chosen, files=tuple(files))
