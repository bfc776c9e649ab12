"""Figures of plotly as HTML: with names as texts, the same bytes every time.

plotly takes tags and links in its titles, labels and hover texts for markup; only the few that our own labels are made
of are left.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Our own tags: no attribute but a style of words and numbers, which can name no address.
_OURS = re.compile(r"<(?!(?:br|/?b|/?span|/?extra|(?:b|span) style='[-\w:;#,. ]*')>)")


def figure_fragment(figure: Figure, name: str, config: dict[str, Any]) -> str:
    """A figure as a part of a page that has plotly, of this id."""
    from plotly.io import to_html

    drawn = texts_only(figure.to_plotly_json())
    config = {"typesetMath": False, **config}  # a name with two $ is no formula
    html: str = to_html(drawn, full_html=False, include_plotlyjs=False, config=config, div_id=name, validate=False)
    return html


def texts_only(value: Any) -> Any:
    """A figure's content with every tag that is not ours as text.

    >>> texts_only(["<b>x</b><br>", "<a href='x'>", "<span style='background:url(x)'>"])
    ['<b>x</b><br>', "&lt;a href='x'>", "&lt;span style='background:url(x)'>"]
    """
    if isinstance(value, str):
        return _OURS.sub("&lt;", value)
    if isinstance(value, dict):
        return {name: texts_only(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [texts_only(item) for item in value]
    texts = getattr(getattr(value, "dtype", None), "kind", "") in ("O", "U")
    return texts_only(value.tolist()) if texts else value
