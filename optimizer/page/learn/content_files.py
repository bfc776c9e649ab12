"""The lab's content files: acts, questions, charts and equations in TOML, texts in Markdown.

Their blanks are filled with values of the functions of the acts; nothing here knows a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from optimizer.base import content
from optimizer.reports.render import html

PACKAGE = "optimizer.page.learn"
piece = partial(html.piece, PACKAGE, "pieces.html")  # a macro of templates/pieces.html


def table(name: str) -> content.Values:
    """A TOML file of the content.

    >>> table("act_1.toml")["message"]["sender"]
    'the lead of training infrastructure'
    """
    return content.content(PACKAGE, f"content/{name}")


def texts(name: str) -> Mapping[str, str]:
    """The texts of a Markdown file of the content, by name.

    >>> texts("lab.md")["header"].splitlines()[0]
    '# The Parallelism Paradox'
    """
    return content.texts(PACKAGE, f"content/{name}")
