"""How the model works: every term of an estimate with the formula that is executed, its source and a worked number."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from optimizer.base.units import show
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import PARAMETERS
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD
from optimizer.objectives.step.explain import TermExplanation, Value, explain
from optimizer.objectives.step.flops import CONVENTIONS, model_flops
from optimizer.objectives.step.formula import BYTES, SECONDS, Formula, Term, is_expression
from optimizer.objectives.step.memory_terms import MEMORY_TERMS
from optimizer.objectives.step.time_terms import TIME_TERMS
from optimizer.search.plan.planner import plan as planned

PAGE = "how-the-model-works.md"
DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan of a job, from which worked numbers are taken, and its terms."""

    title: str
    job: Job
    plan: Plan
    knobs: Knobs
    terms: Mapping[str, TermExplanation]


@dataclass(frozen=True, kw_only=True)
class PageQuestion:
    """A job by the names of its presets; without a plan the best one is searched for."""

    title: str
    model: str
    gpus: int
    seq_len: int
    global_batch: int
    stack: str = "megatron-core"
    plan: Plan | None = None
    knobs: Knobs = field(default_factory=Knobs)

    def answered(self) -> Case:
        """The plan and its terms."""
        job = Job(
            model=load_model(self.model),
            cluster=load_cluster("dgx-h100"),
            stack=load_stack(self.stack),
            gpus=self.gpus,
            seq_len=self.seq_len,
            global_batch=self.global_batch,
        )
        plan, knobs = self.plan, self.knobs
        if plan is None:
            answer = planned(job, trials=0)
            plan, knobs = answer.plan or Plan(), answer.knobs
        terms = {f"{term.name} [{term.unit}]": term for term in explain(job, plan, knobs)}
        return Case(title=self.title, job=job, plan=plan, knobs=knobs, terms=terms)


# A term is worked out for the first of these in which it is above zero.
QUESTIONS = (
    PageQuestion(title="A", model="gpt3", gpus=1024, seq_len=2048, global_batch=1536),
    PageQuestion(
        title="B",
        model="mixtral-8x7b",
        gpus=64,
        seq_len=8192,
        global_batch=512,
        plan=Plan(tp=2, ep=8, dp=32, num_microbatches=16, sequence_parallel=True, zero_stage=1, dispatcher="alltoall"),
    ),
    PageQuestion(
        title="C",
        model="llama3-8b",
        gpus=64,
        seq_len=8192,
        global_batch=64,
        stack="torchtitan-2024",
        plan=Plan(
            tp=2,
            cp=4,
            dp=8,
            num_microbatches=8,
            sequence_parallel=True,
            zero_stage=1,
            recompute="none",
            activation_offload=50,
        ),
    ),
)


@cache
def cases() -> tuple[Case, ...]:
    """The plans that the page works with."""
    return tuple(question.answered() for question in QUESTIONS)


def sections() -> list[str]:
    """Every generated section of the page, between the lines that mark it."""
    return [
        _section("plans", _plans()),
        _section("seconds", _terms(TIME_TERMS.values(), SECONDS)),
        _section("bytes", _terms(MEMORY_TERMS.values(), BYTES)),
        _section("mfu", _mfu()),
    ]


def _section(name: str, lines: Iterable[str]) -> str:
    return "\n".join([f"<!-- {name}: start -->", "", *lines, "", f"<!-- {name}: end -->"])


def _plans() -> list[str]:
    lines = ["| plan | job | stack | degrees |", "|---|---|---|---|"]
    for case in cases():
        job = case.job
        what = (
            f"{job.model.title or job.model.name}, {job.gpus:,} {job.cluster.device.name}, "
            f"{job.global_batch:,} sequences of {job.seq_len:,} tokens"
        )
        lines.append(f"| {case.title} | {what} | {job.stack.name} | {case.plan.summary()} |")
    return lines


def _terms(terms: Iterable[Term], unit: str) -> list[str]:
    """Terms under the formula that they share, in the order of their first one."""
    lines: list[str] = []
    by_formula: dict[str, list[Term]] = {}
    for term in terms:
        by_formula.setdefault(term.formula.name, []).append(term)
    for several in by_formula.values():
        formula = several[0].formula
        alone = len(several) == 1
        lines += [f"### {several[0].label if alone else ', '.join(term.label for term in several)}", ""]
        lines += [*_formula(formula), ""]
        for term in several:
            if not alone:
                lines += [f"#### {term.label}", ""]
            lines += [*_worked(term, unit), ""]
    return lines[:-1]


def _formula(formula: Formula) -> list[str]:
    lines = ["```python", f"{formula.name} = {formula.text}", "```", "", formula.about]
    if formula.source:
        lines += ["", f"Source: {formula.source}"]
    return lines


def _worked(term: Term, unit: str) -> list[str]:
    """A worked number, what of the stack enters it, and the formulas behind its inputs."""
    key = f"{term.name} [{unit}]"
    case, explanation = next(
        (case, case.terms[key]) for case in cases() if key in case.terms and case.terms[key].value > 0
    )
    tuples = [value for value in explanation.values.values() if isinstance(value, tuple)]
    rows = f" (rows: {', '.join(_rows(case.job, len(tuples[0])))})" if tuples else ""
    lines = [f"`{term.name}` of plan {case.title}{rows}:"]
    lines += ["", "```text", f"{substituted(explanation)}", f"= {_number(explanation.value)} {unit}", "```"]
    if term.parameters:
        lines += ["", "| parameter of the stack | value | unit | what it is |", "|---|---|---|---|"]
        lines += [_parameter(case.job, name) for name in term.parameters]
    for kernel in term.kernels:
        lines += ["", *_kernel(kernel)]
    return lines


def _rows(job: Job, count: int) -> list[str]:
    """What the rows of an array stand for: every kind of layer, those before the head, or the head alone."""
    kinds = [EMBEDDING, DENSE, *(["MoE"] if job.model.experts else []), HEAD]
    return [HEAD] if count == 1 else kinds[:count]


def substituted(explanation: TermExplanation) -> str:
    """The formula with numbers for its names.

    >>> numbers = {"x": 2.0, "y": 3.0}
    >>> substituted(TermExplanation(name="a", value=6.0, unit="s", formula="x * y", values=numbers, about=""))
    '2 * 3'
    """
    tree = ast.parse(explanation.formula, mode="eval")
    text = ast.unparse(_Numbers(explanation.values).visit(tree))
    return text.replace("'", "")


class _Numbers(ast.NodeTransformer):
    """Names replaced by their numbers."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A number, or a list of one for each kind of layer."""
        value = self.values.get(node.id)
        if value is None:
            return node
        numbers = value if isinstance(value, tuple) else (value,)
        text = ", ".join(_number(number) for number in numbers)
        return ast.Name(id=f"[{text}]" if isinstance(value, tuple) else text)


def _number(value: float) -> str:
    return f"{value:.{DIGITS}g}"


def _parameter(job: Job, name: str) -> str:
    parameter, stack = PARAMETERS[name], job.stack
    origin = "fitted" if name in stack.parameters else ("fixed" if name in stack.fixed else "default")
    return f"| `{name}` | {stack[name]:.4g} ({origin}) | {parameter.unit} | {parameter.meaning} |"


def _kernel(function: Callable[..., object]) -> list[str]:
    """A formula behind an input: its expression where it is one, what it says of itself, source and doctest."""
    formula = Formula(function=function)
    place = inspect.getmodule(function)
    where = place.__name__.replace(".", "/") + ".py" if place else ""
    first, *rest = _paragraphs(function)
    lines = [f"`{formula.name}` (`{where}`): {first}", *(line for text in rest for line in ("", text))]
    if is_expression(function):
        lines += ["", "```python", f"{formula.name} = {formula.text}", "```"]
    if formula.source:
        lines += ["", f"Source: {formula.source}"]
    if example := _doctest(function):
        lines += ["", "```pycon", *example, "```"]
    return lines


def _paragraphs(function: Callable[..., object]) -> list[str]:
    """What a docstring says before its source and its example; lines that are indented are formulas."""
    text = re.split(r"^(?:Source:|>>>)", inspect.getdoc(function) or "", maxsplit=1, flags=re.MULTILINE)[0]
    texts = []
    for part in text.strip().split("\n\n"):
        formulas = all(line.startswith("    ") for line in part.splitlines())
        texts.append(f"```text\n{inspect.cleandoc(part)}\n```" if formulas else " ".join(part.split()))
    return texts


def _doctest(function: Callable[..., object]) -> list[str]:
    """The example in a docstring, without what is imported for it."""
    text = inspect.getdoc(function) or ""
    match = re.search(r"^>>> .*", text, re.MULTILINE | re.DOTALL)
    return match[0].rstrip().splitlines() if match else []


def _mfu() -> list[str]:
    """MFU of the first plan by every convention, worked out."""
    case = cases()[0]
    job = case.job
    step = sum(term.value for term in case.terms.values() if term.unit == SECONDS)
    peak, tokens = job.cluster.device.peak(job.dtype), float(job.seq_len * job.global_batch)
    lines = [
        f"Plan {case.title} takes {_number(step)} s on {job.gpus:,} GPUs of {show(peak, 'FLOP/s', 4)} "
        f"({job.dtype}, dense):",
        "",
        "| convention | FLOP of a step | MFU |",
        "|---|---|---|",
    ]
    for convention in CONVENTIONS:
        flops = model_flops(job.model, job.seq_len, tokens, convention)
        share = flops / (step * job.gpus * peak)
        worked = f"{flops:.4g} / ({step:.4g} x {job.gpus} x {peak:.4g}) = {share:.1%}"
        lines.append(f"| {convention} | {flops:.4g} | {worked} |")
    formula = Formula(function=model_flops)
    return [*lines, "", formula.about, "", f"Source: {formula.source}"]
