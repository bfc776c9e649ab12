"""What every format of launch files offers: the launch that it says, and how to say another plan in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from optimizer.frameworks.launch import Launch
from optimizer.job.job import Job
from optimizer.job.plan import Plan


@dataclass(frozen=True, kw_only=True)
class FlagChange:
    """One flag before and after: None where it is not given, "" where it has no value."""

    flag: str
    before: str | None
    after: str | None

    def written(self) -> tuple[str, str]:
        """Both as they stand in a script, "-" for nothing.

        >>> FlagChange(flag="--sequence-parallel", before=None, after="").written()
        ('-', '--sequence-parallel')
        """
        before, after = (
            "-" if value is None else f"{self.flag} {value}".strip() for value in (self.before, self.after)
        )
        return before, after


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
