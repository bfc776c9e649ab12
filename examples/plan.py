"""Plan from Python: `python examples/plan.py`. `mypy --strict` accepts it: the package tells its types."""

from optimizer import Answer, Certificate, Estimate, InputError, Plan, plan


def told(answer: Answer) -> str:
    """What a program of yours may want of an answer."""
    best: Plan | None = answer.plan
    estimate: Estimate | None = answer.estimate
    certificate: Certificate | None = answer.certificate
    name = f"{answer.job.model.name} on {answer.job.gpus:,} GPUs: {answer.status}"
    if best is None or estimate is None or certificate is None:
        return f"{name}, " + "; ".join(clash.reason for clash in answer.conflict)
    other = f", {answer.alternatives[0].slower:.1%} before the next" if answer.alternatives else ""
    return f"{name}, {best.summary()}, {estimate.step_time:.2f} s, gap {certificate.gap:.2%}{other}"


if __name__ == "__main__":
    for gpus in (8, 16):
        try:
            print(told(plan(model="llama3-8b", gpus=gpus, trials=0, fix={"pp": 1}, oom_risk="5%")))
        except InputError as problem:
            print(problem)
