"""What every format of launch files offers: the launch that it says, and how to say another plan in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.scripts.launch import Launch
from optimizer.scripts.megatron_write import FlagChange


class Source(Protocol):
    """Launch files that were read."""

    @property
    def launch(self) -> Launch:
        """What they say."""
        ...

    @property
    def leaves(self) -> Mapping[str, Mapping[str, Any]]:
        """Every value of the files as it is written, by file and by key or flag."""
        ...

    def changes(self, job: Job, before: Plan, after: Plan, turned: Mapping[str, Any]) -> tuple[FlagChange, ...]:
        """What to write otherwise for another plan; `turned` are the software's settings that change."""
        ...

    def edited(self, changes: tuple[FlagChange, ...]) -> Iterator[Mapping[str, bytes]]:
        """The files with the changes made, by path, in each way that there is, the most natural first."""
        ...
