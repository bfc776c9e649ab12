"""The report on a batch: how it went, by family; what could not be planned, and why; the jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.base.units import seconds
from optimizer.reports.report import Report, Table, columns, notes, section

FAMILIES = columns(
    "family | jobs [text] | planned [text] | infeasible [text] | failed [text] | tokens/$ [text] | at ~ | "
    "tokens/J [text] | its MFU [text]"
)
JOBS = columns(
    "model ~ | cluster ~ | GPUs [text] | batch [text] | seq [text] | tokens/$ [text] | MFU [text] | step [text] | "
    "plan, or why there is none ~"
)
SOLVED = ("optimal", "feasible")
SCHEMA_VERSION = 1
REASONS = 12  # listed at most
LONGEST = 150  # characters of a reason


def batch_report(name: str, wholes: Sequence[Mapping[str, Any]], *, rows: int) -> Report:
    """The summary, then up to `rows` jobs."""
    whole = summary(name, wholes)
    counts = ", ".join(f"{count:,} {status}" for status, count in whole["statuses"].items())
    more = len(wholes) - rows
    return Report(
        title=f"{name}: {len(wholes):,} jobs" + (f", {counts}" if counts else ""),
        sections=(
            section("By model family", Table(FAMILIES, family_rows(whole["families"]))),
            notes("Infeasible, by clashing rules", _listed(whole["infeasible"])),
            notes("Failed, by reason", _listed(whole["failures"])),
            section(
                "Jobs",
                Table(JOBS, [_job(each) for each in wholes[:rows]]),
                f"{more:,} more; --rows or --export shows them, --where chooses" if rows and more > 0 else "",
            ),
        ),
    )


def summary(name: str, wholes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and best figures as plain values."""
    families: dict[str, list[Mapping[str, Any]]] = {}
    for whole in wholes:
        families.setdefault(whole["job"].get("family") or "other", []).append(whole)
    return {
        "schema_version": SCHEMA_VERSION,
        "study": name,
        "jobs": len(wholes),
        "statuses": dict(sorted(Counter(whole["status"] for whole in wholes).items())),
        "families": {family: _family(members) for family, members in families.items()},
        "infeasible": _reasons("infeasible", wholes),
        "failures": _reasons("failed", wholes),
    }


def _family(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    solved = [whole for whole in members if whole["status"] in SOLVED]
    best = max(solved, key=lambda whole: whole["estimate"]["mfu"], default=None)
    priced = [whole for whole in solved if whole["costs"]["tokens_per_usd"] is not None]
    thrifty = max(priced, key=lambda whole: whole["costs"]["tokens_per_usd"], default=None)
    cheapest = min((cost for whole in solved if (cost := whole["costs"]["usd_per_mtoken"]) is not None), default=None)
    return {
        "jobs": len(members),
        "planned": len(solved),
        "infeasible": sum(whole["status"] == "infeasible" for whole in members),
        "failed": sum(whole["status"] == "failed" for whole in members),
        "best_mfu": best["estimate"]["mfu"] if best else None,
        "best_at": _at(best),
        "most_tokens_per_usd": thrifty["costs"]["tokens_per_usd"] if thrifty else None,
        "most_tokens_at": _at(thrifty),
        "mfu_there": shown["estimate"]["mfu"] if (shown := thrifty or best) else None,
        "tokens_per_joule": thrifty["costs"]["tokens_per_joule"] if thrifty else None,
        "cheapest_usd_per_mtoken": cheapest,
    }


def _at(whole: Mapping[str, Any] | None) -> str | None:
    """Model and machines of a job."""
    return f"{whole['job']['model']}, {whole['job']['gpus']:,} x {whole['job']['device']}" if whole else None


def _reasons(status: str, wholes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Number of jobs by reason, most frequent first."""
    return dict(Counter(_reason(whole) for whole in wholes if whole["status"] == status).most_common())


def _reason(whole: Mapping[str, Any]) -> str:
    if whole["status"] == "infeasible":
        return " + ".join(sorted(clash["rule"] for clash in whole["conflict"])) or "no plan"
    return str(whole["error"])


def _listed(reasons: Mapping[str, int]) -> list[str]:
    lines = [f"{count:,} x {_short(reason)}" for reason, count in reasons.items()]
    return lines if len(lines) <= REASONS else [*lines[:REASONS], f"and {len(lines) - REASONS:,} other reasons"]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def family_rows(families: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each family, under FAMILIES."""
    return [
        (
            family,
            *(f"{best[key]:,}" for key in ("jobs", "planned", "infeasible", "failed")),
            "" if best["most_tokens_per_usd"] is None else f"{best['most_tokens_per_usd']:,.0f}",
            best["most_tokens_at"] or best["best_at"] or "",
            "" if best["tokens_per_joule"] is None else f"{best['tokens_per_joule']:.2f}",
            "" if best["mfu_there"] is None else f"{best['mfu_there']:.1%}",
        )
        for family, best in families.items()
    ]


def _job(whole: Mapping[str, Any]) -> tuple[str, ...]:
    """A job, under JOBS."""
    job, estimate, tokens = whole["job"], whole["estimate"], whole["costs"]["tokens_per_usd"]
    sizes = ("" if job[key] is None else f"{job[key]:,}" for key in ("gpus", "global_batch", "seq_len"))
    rates = (f"{estimate['mfu']:.1%}", seconds(estimate["step_time_s"])) if estimate else ("", "")
    outcome = plan_text(whole["plan"]) if whole["plan"] else _short(f"{whole['status']}: {_reason(whole)}")
    return (str(job["model"]), str(job["cluster"]), *sizes, f"{tokens:,.0f}" if tokens else "", *rates, outcome)


def plan_text(plan: Mapping[str, Any]) -> str:
    """A plan in one line, as Plan.summary writes it."""
    from optimizer.job.plan import Plan

    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in plan.items()}
    return Plan(**values).summary()
