"""The report on a validation: predicted against measured, the errors of every group, memory, choice of plans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from statistics import fmean, median
from typing import Any

from optimizer.calibration.groups import BY, device_name, gathered, model_name, source_name
from optimizer.calibration.scores import Errors, Verdicts
from optimizer.calibration.validation import PricedRun, Score, Validation, suspicion, worst
from optimizer.job.method import FULL
from optimizer.objectives.step.interval import LEVEL
from optimizer.reports.charts.chart import Chart, figure, points
from optimizer.reports.charts.palette import GREY, PALETTE
from optimizer.reports.render.json import json_text
from optimizer.reports.report import Record, Report, Section, Table, Value, cell, columns, notes, section

TITLES = {**dict(zip(BY, BY, strict=True)), "stack": "software stack"}
TIMES = (
    "runs [1] | MAPE [%] | median [%] | 90th pct [%] | bias [%] | in 90% interval [%] | fit/OOM [%] | regret [%] | "
    "memory [%]"
)
TIME_COLUMNS = columns(TIMES)
GIVEN = columns("software, device, model ~ | runs [1] | without [%] | given [%] | in 90% interval [%]")
WORST = columns("run ~ | measured [s] | predicted [s] | error [%] | suspected reason ~")
LEGEND = (
    "Errors are predicted / measured − 1; fit/OOM is the balanced accuracy of the verdict on memory; regret is how "
    "much longer than the best measured plan the one ranked first takes; memory is the mean error of peaks."
)
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
MOST_ROWS, MOST_NAMES = 20, 4  # of a table on the screen, and of a list
MOST_POINTS = 5_000  # in the plot
MARGIN = 0.2  # the dashed lines of the plot: 20 % too fast, 20 % too slow
NAMED, SOME = re.compile(r"'[^']*'"), "…"  # what a reason quotes from its row, and what stands for it where rows differ


def validation_report(validation: Validation, file: str) -> Report:
    """Predicted against measured step time; errors by source, stack, device and model; memory; the worst rows.

    Args:
        validation: Every row of the file with its prediction.
        file: What the runs were read from.
    """
    overall = validation.overall
    rows = [(row.run.id, row.run.step_time, row.step_time, row.error, suspicion(row)) for row in worst(validation.rows)]
    groups = [each for by, name in TITLES.items() for each in _groups(validation, by, name)]
    return Report(
        title=headline(validation),
        subject=(f"Predicted against measured: {file}",),
        note="Predicted by mfu-optimizer; the dotted lines and the groups say how far it is off.",
        conclusion=(coverage_line(overall) if overall else "", doubtful_line(validation)),
        sections=(
            section("Step time", *([scatter(validation)] if overall and overall.time else []), on="page"),
            section("What the columns say", LEGEND if groups else "", on="page"),
            *given_section(validation),
            *groups,
            notes("Memory", memory_lines(overall) if overall else ()),
            notes("Choice of plans", choice_lines(overall) if overall else ()),
            section("Farthest from their measurement", Table(WORST, rows)),
            notes("Rows that cannot be priced", refusals(validation)),
        ),
    )


def _groups(validation: Validation, by: str, name: str) -> list[Section]:
    """The scores of every group, the one of most runs first; the screen has the first ones.

    Nothing of methods where all rows train everything.
    """
    if by == "method" and [score.name for score in validation.by(by)] == [FULL]:
        return []
    scores = sorted(validation.by(by), key=lambda score: -score.rows)
    heads, rows = columns(f"{name} ~ | {TIMES}"), [(score.name, *time_cells(score)) for score in scores]
    if len(scores) <= MOST_ROWS:
        return [section(f"By {name}", Table(heads, rows))]
    few = f"By {name}, the {MOST_ROWS} with most rows of {len(scores)}"
    return [
        section(few, Table(heads, rows[:MOST_ROWS]), on="screen"),
        section(f"By {name}", Table(heads, rows), on="page"),
    ]


def given_section(validation: Validation) -> list[Section]:
    """What the given runs change, for each software, device and model; nothing without such runs."""
    if not validation.given:
        return []
    timed = [row for row in validation.rows if row.clean and row.ratio and row.without]
    groups = gathered(timed, lambda row: f"{row.run.stack_name}, {device_name(row.run)}, {model_name(row.run)}")
    rows: list[tuple[str, int, float, float, float]] = []
    for name, some in groups.items():
        errors = [abs((time or 0.0) / (row.run.step_time or 1.0) - 1.0) for row in some for time in (row.without,)]
        given = [abs(row.error) for row in some]
        covered = [row.interval.low <= (row.run.step_time or 0.0) <= row.interval.high for row in some if row.interval]
        rows.append((str(name), len(some), fmean(errors), fmean(given), fmean(covered)))
    rows.sort(key=lambda row: -row[1])
    means = [fmean(column) for column in list(zip(*rows, strict=True))[2:]] if rows else []
    mean: list[Sequence[Value]] = [(f"mean of {len(rows):,} groups", sum(row[1] for row in rows), *means)]
    title = f"Given {validation.given:,} run{'s' * (validation.given != 1)}: mean error of each group's other runs"
    return [section(title, Table(GIVEN, [*(mean if rows else []), *rows[:MOST_ROWS]]))]


def time_cells(score: Score) -> list[Value]:
    """The cells of TIME_COLUMNS for one group."""
    figures: Sequence[Value] = astuple(score.time) if score.time else [None] * 5
    regret = score.choice.mean_regret if score.choice else None
    memory = score.memory.mape if score.memory else None
    return [*figures, score.coverage, score.verdicts.balanced_accuracy, regret, memory]


def headline(validation: Validation) -> str:
    """How far step times are off, in one line."""
    overall = validation.overall
    if overall is None or overall.time is None:
        return "No clean row has a measured step time to compare with"
    time = overall.time
    return f"Step time of {time.runs:,} runs: MAPE {time.mape:.1%}, median {time.median:.1%}, bias {time.bias:+.1%}"


def coverage_line(score: Score) -> str:
    """How often the interval covered the measurement."""
    if score.coverage is None or score.time is None:
        return ""
    return (
        f"{score.coverage:.1%} of the measured times lie in their {LEVEL:.0%} interval; {score.extrapolated:,} of "
        f"{score.time.runs:,} are extrapolated from what their stack was fitted to."
    )


def doubtful_line(validation: Validation) -> str:
    """Rows that do not count, and why."""
    parts = []
    if validation.doubtful:
        parts.append(
            f"{validation.doubtful:,} rows that their source doubts (column quality) or that name no micro_batch are "
            "priced but not counted"
        )
    if validation.refused:
        parts.append(f"{validation.refused:,} rows cannot be priced")
    return "; ".join(parts) + "." if parts else ""


def memory_lines(score: Score) -> list[str]:
    """Errors of memory by kind, and whether runs fit."""
    lines = [
        f"{kind} memory of {errors.runs:,} runs: {_errors(errors)}"
        for kind, errors in (("Allocated", score.allocated), ("Reserved", score.reserved))
        if errors
    ]
    if score.memory_coverage is not None:
        lines.append(f"{score.memory_coverage:.1%} of the measured peaks lie in their {LEVEL:.0%} interval.")
    return [*lines, *verdict_lines(score.verdicts)]


def verdict_lines(verdicts: Verdicts) -> list[str]:
    """Which runs fitted, and which were predicted to."""
    if not verdicts.runs:
        return []
    fits = verdicts.fits_predicted_fits + verdicts.fits_predicted_oom
    failed = verdicts.oom_predicted_fits + verdicts.oom_predicted_oom
    lines = [f"Of {_runs(fits)} that fitted, {_were(verdicts.fits_predicted_oom)} predicted to run out of memory."]
    if failed:
        lines.append(f"Of {_runs(failed)} out of memory, {_were(verdicts.oom_predicted_fits)} predicted to fit.")
        lines.append(f"Balanced accuracy {verdicts.balanced_accuracy:.1%}.")
    return lines


def _runs(count: int) -> str:
    return f"{count:,} run{'s' * (count != 1)}"


def _were(count: int) -> str:
    return f"{count:,} {'was' if count == 1 else 'were'}"


def choice_lines(score: Score) -> list[str]:
    """How good the first choice among measured plans is."""
    choice = score.choice
    if choice is None:
        return []
    groups = f"{choice.groups:,} group{'s' * (choice.groups != 1)}"
    lines = [
        f"In {groups} of runs that differ only in the plan, the one ranked first takes {choice.mean_regret:.1%} longer "
        f"than the best measured one on average, {choice.worst_regret:.1%} at worst."
    ]
    if choice.rank_correlation is not None:
        lines.append(f"Mean rank correlation of predicted and measured times: {choice.rank_correlation:.2f}.")
    return lines


def _errors(errors: Errors) -> str:
    return f"MAPE {errors.mape:.1%}, median {errors.median:.1%}, bias {errors.bias:+.1%}"


def refusals(validation: Validation) -> list[str]:
    """The reasons for refusal with their counts, the most frequent first, and what each names that rows differ in."""
    named: dict[str, list[str]] = {}
    for row in validation.rows:
        if row.run.refused:
            named.setdefault(NAMED.sub(SOME, row.run.refused), []).extend(NAMED.findall(row.run.refused) or [""])
    lines = []
    for reason, names in sorted(named.items(), key=lambda item: -len(item[1])):
        distinct = [name for name in dict.fromkeys(names) if name]
        count = len(names) // max(1, reason.count(SOME))
        if len(distinct) == reason.count(SOME):
            for name in distinct:
                reason = reason.replace(SOME, name, 1)
            distinct = []
        shown = ", ".join(distinct[:MOST_NAMES]) + (", ..." if len(distinct) > MOST_NAMES else "")
        lines.append(f"{count:,} × {reason}" + (f": {shown}" if distinct else ""))
    return lines


def scatter(validation: Validation) -> Chart:
    """Predicted over measured step time, one colour and symbol per stack, on logarithmic axes."""
    timed = [row for row in validation.rows if row.clean and row.ratio]
    named = gathered(timed, lambda row: row.run.stack_name)
    stacks = sorted(((str(name), rows) for name, rows in named.items()), key=lambda item: -len(item[1]))
    marks = [
        _points(drawn(rows, len(timed)), f"{name} ({len(rows):,})", index) for index, (name, rows) in enumerate(stacks)
    ]
    within = sum(abs(row.error) <= MARGIN for row in timed)
    shown = f" Every {step}th run is drawn." if (step := -(-len(timed) // MOST_POINTS)) > 1 else ""
    axis = {"type": "log", "exponentformat": "SI", "ticksuffix": "s"}
    return Chart(
        name="runs",
        title="Predicted over measured step time",
        words=f"{within:,} of {len(timed):,} runs lie between the dotted lines, {MARGIN:.0%} too slow and {MARGIN:.0%} "
        f"too fast; on the solid line prediction equals measurement.{shown}",
        figure=figure(
            560,
            *marks,
            *_guides([row.run.step_time or 1.0 for row in timed]),
            xaxis={**axis, "title": {"text": "measured step time"}},
            yaxis={**axis, "title": {"text": "predicted step time"}},
        ),
        columns=("software stack", "runs", "median error", "within 20%"),
        rows=tuple(_stack_row(name, [row.error for row in rows]) for name, rows in stacks),
    )


def _stack_row(name: str, errors: Sequence[float]) -> tuple[str, ...]:
    within = sum(abs(error) <= MARGIN for error in errors) / len(errors)
    return (name, f"{len(errors):,}", f"{median(map(abs, errors)):.1%}", f"{within:.0%}")


def drawn(rows: Sequence[PricedRun], of: int) -> Sequence[PricedRun]:
    """Those of the rows that the plot shows: all, or every so many by their error where there are too many to draw."""
    step = -(-of // MOST_POINTS)
    return rows if step <= 1 else sorted(rows, key=lambda row: row.error)[::step]


def _points(rows: Sequence[PricedRun], name: str, index: int) -> Mapping[str, Any]:
    """The runs of one stack, in the colour and with the symbol of its place."""
    return points(
        [row.run.step_time or 0.0 for row in rows],
        [row.step_time for row in rows],
        PALETTE[index % len(PALETTE)],
        name=name,
        text=[_pointer_text(row) for row in rows],
        marker={"size": 6, "opacity": 0.65, "symbol": SYMBOLS[(index // len(PALETTE)) % len(SYMBOLS)]},
    )


def _pointer_text(row: PricedRun) -> str:
    """What a pointer over a run shows."""
    of, plan = row.run.row, f"{row.run.plan.summary()}, " if row.run.plan else ""
    times = f"measured {cell(row.run.step_time, 's')}, predicted {cell(row.step_time, 's')}"
    machines = f"{of.get('gpus', '')} × {of.get('gpu', '')}"
    return f"{row.run.id}: {of.get('model', '')}, {machines}, {plan}{times}, error {row.error:+.1%}"


def _guides(measured: Sequence[float]) -> list[Mapping[str, Any]]:
    """The diagonal and the lines of MARGIN on either side."""
    ends = [min(measured) / 1.5, max(measured) * 1.5] if measured else []
    return [
        points(ends, [end * factor for end in ends], GREY, "lines", line={"width": 1, "dash": dash}, showlegend=False)
        for factor, dash in ((1.0, "solid"), (1.0 + MARGIN, "dot"), (1.0 - MARGIN, "dot"))
        if ends
    ]


def validation_json(validation: Validation) -> str:
    """schema_version, the scores of every group, and one entry per row of the file in its order."""
    groups = []
    for score in validation.scores:
        verdicts = asdict(score.verdicts) | {"balanced_accuracy": score.verdicts.balanced_accuracy}
        groups.append(asdict(score) | {"verdicts": verdicts})
    return json_text({"groups": groups, "rows": [row_record(row) for row in validation.rows]})


def row_record(row: PricedRun) -> dict[str, Any]:
    """What was predicted for one row; nulls and the reason in `refused` where it could not be priced."""
    return {
        "id": row.run.id,
        "predicted_step_time_s": row.step_time,
        "low_s": row.interval.low if row.interval else None,
        "high_s": row.interval.high if row.interval else None,
        "predicted_reserved_bytes": row.reserved,
        "predicted_allocated_bytes": row.allocated,
        "fits": row.fits,
        "refused": row.run.refused or None,
    }


def validation_record(row: PricedRun) -> Record:
    """A row with its group, measurement, prediction, error and suspected reason."""
    run = row.run
    return {
        **row_record(row),
        "source": source_name(run),
        "stack": run.stack_name,
        "device": device_name(run),
        "model": model_name(run),
        "measured_step_time_s": run.step_time,
        "error": row.ratio - 1.0 if row.ratio else None,
        "interval_kind": row.interval.kind if row.interval else None,
        "measured_memory_bytes": run.memory,
        "memory_kind": run.memory_kind,
        "status": run.row.get("status", ""),
        "quality": run.row.get("quality", ""),
        "assumed": "; ".join(run.assumed),
        "suspected": suspicion(row) if row.step_time else "",
    }
