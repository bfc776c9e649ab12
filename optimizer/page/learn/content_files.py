"""The lab's content files: acts, questions, charts and equations in TOML, texts in Markdown.

Their blanks are filled with values of the functions of the acts; nothing here knows a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from html import escape

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


def marked_up(text: str) -> str:
    """A text in Markdown as HTML: headings, lists, paragraphs, strong, emphasis and code; markup of its own is text.

    >>> marked_up("# A\\n\\n*b* **c**\\n\\n* d\\n  e\\n* `f`")
    '<h2>A</h2><p><em>b</em> <strong>c</strong></p><ul><li>d e</li><li><code>f</code></li></ul>'
    """
    return "".join(_marked(block) for block in re.split(r"\n{2,}", text))


def _marked(block: str) -> str:
    line = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", " ".join(escape(block).split()))
    line = re.sub(r"\*(\S.*?)\*", r"<em>\1</em>", line)
    line = re.sub(r"`(.+?)`", r"<code>\1</code>", line)
    if heading := re.fullmatch(r"(#+) (.*)", line):
        level = max(2, len(heading[1]))
        return f"<h{level}>{heading[2]}</h{level}>"
    if items := [" ".join(item.split()) for item in re.split(r"^(?:\* |\d\. )", block, flags=re.MULTILINE)[1:]]:
        kind = "ul" if block.startswith("* ") else "ol"
        return f"<{kind}>" + "".join(f"<li>{_marked(item)[3:-4]}</li>" for item in items) + f"</{kind}>"
    return f"<p>{line}</p>"
