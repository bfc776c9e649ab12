"""The answer as JSON, the contract with other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.answer.keys import ExplainedKeys

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.objectives.step.explain import TermExplanation
    from optimizer.reports.plan_tiles import Budget
    from optimizer.search.why.comparison import Comparison
    from optimizer.search.why.robustness import Robustness


def json_text(
    answer: Answer,
    assumed: Sequence[str] = (),
    terms: Sequence[TermExplanation] = (),
    comparison: Comparison | None = None,
    steady: Robustness | None = None,
    budget: Budget | None = None,
) -> str:
    """`Answer.to_dict()` with the assumptions of the command line and, if asked for, every term's origin, the
    comparison with another plan, how sure it is that the best is the fastest, and a whole run's seconds and dollars.

    Indented, strict JSON without NaN or Infinity.
    """
    document = {**answer.to_dict(), "assumptions": list(assumed)}
    if terms:
        document["explain"] = [ExplainedKeys.of(term) for term in terms]
    if comparison:
        document["why_not"] = comparison.to_dict()
    if steady:
        document["robust"] = steady.to_dict()
    if budget and answer.estimate:
        wall, cost = budget.charged(budget.tokens / answer.job.tokens * answer.estimate.step_time)
        document["run"] = {"tokens": budget.tokens, "wall_s": wall, "cost_usd": cost, "price": budget.price}
    return json.dumps(document, indent=2, allow_nan=False)
