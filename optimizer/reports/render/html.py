"""A report as a page of HTML. What templates are filled with is text unless it is marked as markup.

Every page has a content security policy that lets exactly its own scripts run, by their hashes, and lets it fetch
nothing. Source: W3C, "Content Security Policy Level 3", sections 2.3.1 and 6.7.3.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from hashlib import sha256
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.base.names import terminal_text
from optimizer.reports.charts.chart import numeric

if TYPE_CHECKING:
    from jinja2 import Environment

    from optimizer.reports.report import Report

POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
SHARED = "optimizer.reports"
_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<text>.*?)</script", re.DOTALL | re.IGNORECASE)
_CHARSET = '<meta charset="utf-8">\n'


def report_page(report: Report, folded: int = 1000) -> str:
    """A report as a whole page that needs nothing else; nothing in it is fetched or run.

    Sections from the one numbered `folded` on are opened by a click, and printed if they are open.
    """
    return rendered(SHARED, "sections.html", report=report, folded=folded)


def rendered(package: str, template: str, **values: Any) -> str:
    """A whole page from a template, filled in and secured, so that it may be opened from anywhere."""
    return secured(terminal_text(filled(package, template, **values)))


def filled(package: str, template: str, **values: Any) -> str:
    """A template in the folder `templates` of a package, filled in; a name that it lacks is an error.

    It may include and import those of the package above, and of optimizer.reports, which all pages share.
    """
    return _environment(package).get_template(template).render(**values)


def piece(package: str, template: str, macro: str, *values: Any, **others: Any) -> str:
    """What one macro of a template makes of its values."""
    return str(getattr(_environment(package).get_template(template).module, macro)(*values, **others))


@cache
def _environment(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader(name, "templates")
                for name in dict.fromkeys((package, package.rpartition(".")[0], SHARED))
                if (Path(str(import_module(name).__file__)).parent / "templates").is_dir()
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["numeric"] = numeric
    return environment


def secured(html: str) -> str:
    r"""A page with the policy of its own scripts, right behind the line that names its character set.

    >>> "script-src 'sha256-" in secured('<head>\n<meta charset="utf-8">\n</head><script>draw()</script>')
    True
    """
    before, charset, after = html.partition(_CHARSET)
    if not charset or "Content-Security-Policy" in before + after[:1000]:
        raise ValueError("a page needs one line with its character set, and no policy yet")
    texts = [script["text"] for script in _SCRIPT.finditer(after) if "application/json" not in script["attributes"]]
    policy = POLICY.format(scripts=" ".join(dict.fromkeys(f"'{source_hash(text)}'" for text in texts)) or "'none'")
    return f'{before}{charset}<meta http-equiv="Content-Security-Policy" content="{policy}">\n{after}'


def source_hash(script: str) -> str:
    """The hash by which a content security policy allows one script.

    >>> source_hash("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return "sha256-" + base64.b64encode(sha256(script.encode()).digest()).decode()


def marked_up(text: str) -> str:
    r"""A text in Markdown as HTML: headings, lists, paragraphs, strong, emphasis and code; markup of its own is text.

    >>> marked_up("# A\n\n*b* **c**\n\n* d\n  e\n* `f`")
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
