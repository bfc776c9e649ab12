"""An act: its content file, its questions, and the functions of the numbers that the content leaves blank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from optimizer.base.content import Values, filled_in, value_of
from optimizer.base.errors import InputError
from optimizer.page.learn.chart import ChartNumbers, chart_of
from optimizer.page.learn.content_files import piece, table, texts
from optimizer.reports.charts.chart import Chart

PREDICTION = "prediction"
PLAIN = "plain"  # the look of a figure or a banner that is neither good nor bad


@dataclass(frozen=True, kw_only=True)
class AnswerChoice:
    """One choice."""

    key: str  # its letter
    text: str  # what it says
    reveal: Callable[[], str]  # what is shown once it is taken; called then, as its numbers may take work

    @property
    def label(self) -> str:
        """The letter and the text, as a button shows them."""
        return f"{self.key}. {self.text}"


@dataclass(frozen=True, kw_only=True)
class ActQuestion:
    """A question of an act; exactly one choice, `right`, is right.

    >>> ask = question_of({"name": "q", "kind": PREDICTION, "text": "{n}?", "right": "A", "choice": [
    ...     {"key": "A", "text": "yes", "reveal": "so"}, {"key": "B", "text": "no", "reveal": "{n}"}]}, "I", {"n": 2})
    >>> ask.text, ask.options, ask.choice("B").reveal(), ask.is_right("B")
    ('2?', {'A. yes': 'A', 'B. no': 'B'}, '2', False)
    """

    name: str  # its identity in ledgers
    act: str  # the act's Roman number
    kind: str  # prediction or reflection
    text: str  # what is asked
    right: str  # the letter of the right choice
    choices: tuple[AnswerChoice, ...]  # in their order

    @property
    def options(self) -> Mapping[str, str]:
        """Letters by label."""
        return {choice.label: choice.key for choice in self.choices}

    def choice(self, key: str) -> AnswerChoice:
        """The choice of this letter. Raises InputError for another."""
        letters = {choice.key: choice for choice in self.choices}
        if key not in letters:
            raise InputError(f"{self.name} has no choice {key!r}; use one of {', '.join(letters)}")
        return letters[key]

    def is_right(self, key: str) -> bool:
        """Whether this letter is the right one."""
        return self.choice(key).key == self.right


def question_of(content: Values, act: str, facts: Values) -> ActQuestion:
    """The question that an entry of an act's [[question]] describes, its blanks filled in with these facts."""
    choices = tuple(
        AnswerChoice(
            key=each["key"],
            text=filled_in(each["text"], facts),
            reveal=lambda template=each["reveal"]: filled_in(template, facts),  # type: ignore[misc]
        )
        for each in content["choice"]
    )
    plain = {name: content[name] for name in ("name", "kind", "right")}
    return ActQuestion(**plain, act=act, text=filled_in(content["text"], facts), choices=choices)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What an act shows with the reader's choices."""

    values: Values  # what the blanks of its parts and charts name
    # the numbers of each chart by its name, worked out when it is drawn; or the chart of a study, as it is
    charts: Mapping[str, Callable[[], ChartNumbers | Chart]]
    # caption, columns and rows of tables whose columns depend on the job
    tables: Mapping[str, Callable[[], tuple[str, Sequence[str], Sequence[Sequence[str]]]]] = field(default_factory=dict)


def usual(_context: str, _pasted: str) -> Mapping[str, Values]:
    """Controls as their file has them."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act of the lab."""

    number: int  # names its content: act_1.toml and act_1.md
    facts: Callable[[], Values]  # the values that its questions and slips name
    shown: Callable[[Values], Shown]  # what it shows for values of its controls, by their names, and the `context`
    # what its controls have of the context and of a text that the reader pasted, by their names
    controls: Callable[[str, str], Mapping[str, Values]]

    @property
    def content(self) -> Values:
        """What its file says."""
        return table(f"act_{self.number}.toml")

    def text(self, name: str) -> str:
        """One of its texts, in Markdown."""
        return texts(f"act_{self.number}.md")[name]

    def named(self, kind: str, name: str) -> Values:
        """What its file says of a question, a control or a chart."""
        entries: Sequence[Values] = self.content[kind]
        return next(each for each in entries if each["name"] == name)

    def question(self, name: str) -> ActQuestion:
        """One of its questions. Raises InputError for another."""
        if name not in (names := [each["name"] for each in self.content["question"]]):
            raise InputError(f"act {self.number} has no question {name[:40]!r}; it has {', '.join(names)}")
        return question_of(self.named("question", name), self.content["roman"], self.facts())

    @property
    def questions(self) -> tuple[ActQuestion, ...]:
        """All of them; the first is the prediction that opens the act."""
        return tuple(self.question(each["name"]) for each in self.content["question"])

    @property
    def slips(self) -> tuple[tuple[str, str], ...]:
        """What is wrong with the document behind it: a title and a sentence each, with the numbers."""
        return tuple((each["title"], filled_in(each["text"], self.facts())) for each in self.content["slip"])

    def chart(self, name: str, shown: Shown) -> Chart:
        """One of its charts."""
        numbers = shown.charts[name]()
        if isinstance(numbers, Chart):
            return replace(numbers, name=name)
        return chart_of(self.named("chart", name), numbers, shown.values)

    def html(self, name: str, shown: Shown) -> str:
        """One of its parts, of which what has a condition is shown where it holds; or a table."""
        if name in shown.tables:
            return piece("table", *shown.tables[name]())
        part, values = self.content["parts"][name], shown.values
        banners, figures, paragraphs, lines = (
            [each for each in part.get(kind, ()) if "when" not in each or value_of(each["when"], values)]
            for kind in ("banner", "figure", "paragraph", "line")
        )
        return piece(
            "part",
            [_filled(each, values, "state", "title", "text", "name") for each in banners],
            [figure_of(each, values) for each in figures],
            [_filled(each, values, "text", "name") for each in paragraphs],
            [_filled(each, values, *each) for each in lines],
            part.get("title", ""),
        )


def figure_of(figure: Values, values: Values) -> dict[str, str]:
    """A figure with its grade: the first of `at_least` or `at_most` whose bound the value `of` satisfies.

    >>> graded = {"of": "mfu", "at_least": [[0.4, "fine"], [0, "failed"]]}
    >>> figure_of({"name": "n", "label": "MFU", "value": "{mfu}", **graded}, {"mfu": 0.3})["state"]
    'failed'
    """
    state, remark = PLAIN, figure.get("remark", "")
    if "of" in figure:
        value = value_of(figure["of"], values)
        grades = [each for each in figure.get("at_least", ()) if value >= each[0]]
        grades += [each for each in figure.get("at_most", ()) if value <= each[0]]
        _, state, *remarks = grades[0]
        remark = "".join(remarks) or remark
    return {**_filled(figure, values, "name", "label", "value"), "remark": filled_in(remark, values), "state": state}


def _filled(entry: Values, values: Values, *names: str) -> dict[str, str]:
    return {name: filled_in(entry[name], values) for name in names}
