"""The answer as JSON, the contract with other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.answer.keys import ExplainedKeys

if TYPE_CHECKING:
    from optimizer.answer.answer import Answer
    from optimizer.objectives.step.explain import TermExplanation
    from optimizer.search.why.comparison import Comparison
    from optimizer.search.why.robustness import Robustness


def json_text(
    answer: Answer,
    assumed: Sequence[str] = (),
    terms: Sequence[TermExplanation] = (),
    comparison: Comparison | None = None,
    steady: Robustness | None = None,
) -> str:
    """`Answer.to_dict()` with the assumptions of the command line and, if asked for, every term's origin, the
    comparison with another plan, and how sure it is that the best is the fastest.

    Indented, strict JSON without NaN or Infinity.
    """
    document = {**answer.to_dict(), "assumptions": list(assumed)}
    if terms:
        document["explain"] = [ExplainedKeys.of(term) for term in terms]
    if comparison:
        document["why_not"] = comparison.to_dict()
    if steady:
        document["robust"] = steady.to_dict()
    return json.dumps(document, indent=2, allow_nan=False)
