"""Why there is no plan: the rules that cannot hold together, with numbers, and what to relax."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optimizer.answer.answer import Answer


def conflict_sections(answer: Answer) -> list[RenderableType]:
    """The conflicting rules of an infeasible job, or advice when the time ran out."""
    from rich.table import Table
    from rich.text import Text

    if answer.status != "infeasible":
        return [Text("\nGive the search more time (--time-limit), or pin variables (--fix).")]
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    remedies = {clash.remedy for clash in answer.conflict}
    alike = len(answer.conflict) > 1 and len(remedies) == 1
    for clash in answer.conflict:
        table.add_row(clash.rule, clash.reason)
        if clash.remedy and not alike:
            table.add_row("", clash.remedy)
    heading = "This rule alone cannot hold" if len(answer.conflict) == 1 else "These rules cannot all hold"
    shared = remedies.pop() if alike else ""
    common = [Text(f" {shared[0].upper()}{shared[1:]}.")] if shared else []
    return [Text(f"\n{heading}", style="bold"), table, *common]
