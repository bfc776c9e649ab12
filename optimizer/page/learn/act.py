"""An act: its content file, and the functions that compute the numbers which the content leaves blank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from optimizer.page.learn import content_files, markup
from optimizer.page.learn.chart import Chart, Numbers, chart_of
from optimizer.page.learn.content_files import Values, filled_in, value_of
from optimizer.page.learn.question import Question, question_of


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What an act shows with the reader's choices.

    Attributes:
        values: what the blanks of its parts and charts name.
        charts: the numbers of each chart by its name, worked out when it is drawn.
        tables: caption, columns and rows of tables whose columns depend on the job.
    """

    values: Values
    charts: Mapping[str, Callable[[], Numbers]]
    tables: Mapping[str, Callable[[], tuple[str, Sequence[str], Sequence[Sequence[str]]]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act of the lab.

    Attributes:
        number: names its content: act_1.toml and act_1.md.
        facts: the values that its questions and slips name.
        shown: what it shows for values of its controls, by their names, and the `context`.
    """

    number: int
    facts: Callable[[], Values]
    shown: Callable[[Values], Shown]

    @property
    def content(self) -> Values:
        """What its file says."""
        return content_files.table(f"act_{self.number}.toml")

    def text(self, name: str) -> str:
        """One of its texts, in Markdown."""
        return content_files.texts(f"act_{self.number}.md")[name]

    def question(self, name: str) -> Question:
        """One of its questions."""
        found = next(each for each in self.content["question"] if each["name"] == name)
        return question_of(found, self.content["roman"], self.facts())

    @property
    def questions(self) -> tuple[Question, ...]:
        """All of them; the first is the prediction that opens the act."""
        return tuple(self.question(each["name"]) for each in self.content["question"])

    @property
    def slips(self) -> tuple[tuple[str, str], ...]:
        """What is wrong with the document behind it: a title and a sentence each, with the numbers."""
        return tuple((each["title"], filled_in(each["text"], self.facts())) for each in self.content["slip"])

    def control(self, name: str) -> Values:
        """What its file says of a control."""
        found: Values = next(each for each in self.content["control"] if each["name"] == name)
        return found

    def chart(self, name: str, shown: Shown) -> Chart:
        """One of its charts."""
        look = next(each for each in self.content["chart"] if each["name"] == name)
        return chart_of(look, shown.charts[name](), shown.values)

    def html(self, name: str, shown: Shown) -> str:
        """One of its parts, of which what has a condition is shown where it holds; or a table."""
        if name in shown.tables:
            return markup.table(*shown.tables[name]())
        part, values = self.content["parts"][name], shown.values
        banners, figures, paragraphs, lines = (
            [each for each in part.get(kind, ()) if "when" not in each or value_of(each["when"], values)]
            for kind in ("banner", "figure", "paragraph", "line")
        )
        pieces = [markup.banner(**_filled(each, values, "state", "title", "text", "name")) for each in banners]
        pieces += [markup.figures(figure_of(each, values) for each in figures)] if figures else []
        pieces += [markup.paragraph(**_filled(each, values, "text", "name")) for each in paragraphs]
        pieces += [markup.worked((_filled(each, values, *each) for each in lines), part["title"])] if lines else []
        return "".join(pieces)


def figure_of(figure: Values, values: Values) -> dict[str, str]:
    """A figure with its grade: the first of `at_least` or `at_most` whose bound the value `of` keeps to.

    >>> graded = {"of": "mfu", "at_least": [[0.4, "fine"], [0, "failed"]]}
    >>> figure_of({"name": "n", "label": "MFU", "value": "{mfu}", **graded}, {"mfu": 0.3})["state"]
    'failed'
    """
    state, remark = markup.PLAIN, figure.get("remark", "")
    if "of" in figure:
        value = value_of(figure["of"], values)
        lower, upper = figure.get("at_least", ()), figure.get("at_most", ())
        kept = [each for each in lower if value >= each[0]] or [each for each in upper if value <= each[0]]
        state, remark = kept[0][1], kept[0][2] if len(kept[0]) > 2 else remark
    return {**_filled(figure, values, "name", "label", "value"), "remark": filled_in(remark, values), "state": state}


def _filled(entry: Values, values: Values, *names: str) -> dict[str, str]:
    return {name: filled_in(entry[name], values) for name in names}
