"""What the trials of a folder decide: the winner, what may still be lost, and whether another trial pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.search.why.next_run import gpu_hours
from optimizer.trial.belief import Belief
from optimizer.trial.choice import Next, loss_left, next_trial, winner
from optimizer.trial.folder import Trials
from optimizer.trial.outcome import Outcome, believed

TOKENS_PER_PARAMETER = 20.0  # of a run of unknown length: Hoffmann et al., arXiv 2203.15556, table 3
HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`winner`: position of the fastest candidate that trained; `loss`: how much longer its step is expected to be than
    the best of all candidates [1]. `next`: the one more trial that pays most, its cost and expected win in GPU-hours.
    """

    trials: Trials
    outcomes: tuple[Outcome, ...]
    belief: Belief
    winner: int | None
    loss: float | None
    next: Next | None
    cost: float
    win: float
    tokens: float
    assumed_tokens: bool

    @property
    def open(self) -> tuple[Outcome, ...]:
        """Trials without a result."""
        return tuple(outcome for outcome in self.outcomes if not outcome.done)

    @property
    def pays(self) -> bool:
        """Whether another trial is expected to save more than it costs."""
        return self.next is not None and self.win > self.cost

    @property
    def breaks_even(self) -> float:
        """Tokens of the run from which on another trial pays [1]; infinite where it is not expected to win anything."""
        return self.tokens * self.cost / self.win if self.win > 0 else float("inf")


def verdict(trials: Trials, seen: Sequence[Outcome], tokens: float | None = None) -> Verdict:
    """What these outcomes decide; with `tokens`, those of the run that is planned."""
    belief = believed(trials.candidates, seen)
    best, tried = winner(belief), [outcome.index for outcome in seen if outcome.done]
    following = next_trial(belief, tried=tried) if tried else None
    job, length = trials.job, tokens or TOKENS_PER_PARAMETER * trials.job.model.active_params
    costs = trials.candidates.costs
    step = float(costs.step_time[0]) if best is None else next(o.seconds or 0.0 for o in seen if o.index == best)
    cost = gpu_hours(trials.job, float(costs.step_time[following.index]), trials.steps) if following else 0.0
    # GPU-hours of the whole run that shorter steps save [h].
    win = max(0.0, following.gain) * (job.gpus * step * length / job.tokens / HOUR) if following else 0.0
    return Verdict(
        trials=trials,
        outcomes=tuple(seen),
        belief=belief,
        winner=best,
        loss=None if best is None else loss_left(belief, best),
        next=following,
        cost=cost,
        win=win,
        tokens=length,
        assumed_tokens=not tokens,
    )
