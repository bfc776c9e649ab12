"""What the predictions are trusted for, in a few lines: errors on the published runs, and who measured them."""

from __future__ import annotations

from maintain.docs.accuracy_page import published
from optimizer.calibration.validation_report import coverage_line, headline

MOST = 3


def sections() -> list[str]:
    """The section, between the lines that mark it."""
    validation = published()
    sources = [score for score in validation.by("source") if score.time]
    sources.sort(key=lambda score: -(score.time.runs if score.time else 0))
    errors = sorted(score.time.mape for score in sources if score.time)
    named = ", ".join(f"{score.name} ({score.time.runs})" for score in sources[:MOST] if score.time)
    lines = [f"* {headline(validation)}."]
    if validation.overall:
        lines.append(f"* {coverage_line(validation.overall)}")
    lines += [
        f"* The runs are of {len(sources)} public sources, the largest {named}; `presets/published.csv` cites each.",
        f"* By source the error is {errors[0]:.1%} to {errors[-1]:.1%}. These runs were also used to fit the stacks; "
        "the interval of a prediction is measured on runs left out of the fit.",
        "* `optimize validate` prints all of this, and with `--runs FILE.csv` the same for your runs.",
    ]
    return ["\n".join(["<!-- trust: start -->", "", *lines, "", "<!-- trust: end -->"])]
