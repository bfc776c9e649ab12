"""Pieces of the page as HTML: what is put in is text, and numbers carry a name by which they can be found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

FINE, WARNED, FAILED, PLAIN = "fine", "warned", "failed", "plain"  # what gives a figure or a banner its colour


def figures(shown: Iterable[Mapping[str, str]]) -> str:
    """Numbers side by side, wrapping where the page is narrow: name (the element's id), label, value, remark, state.

    >>> figures([{"name": "mfu", "label": "MFU", "value": "<1 %", "remark": "", "state": PLAIN}])[26:74]
    '<div class="plain"><dt>MFU</dt><dd><span class="'
    """
    cards = "".join(
        f'<div class="{each["state"]}"><dt>{escape(each["label"])}</dt>'
        f'<dd><span class="learn-number" id="{each["name"]}">{escape(each["value"])}</span>'
        f"<small>{escape(each['remark'])}</small></dd></div>"
        for each in shown
    )
    return f'<dl class="learn-figures">{cards}</dl>'


def worked(lines: Iterable[Mapping[str, str]], title: str) -> str:
    """Equations with the values put in, one line each: name (the result's id), what, formula, values, result."""
    rows = "".join(
        f'<tr><th scope="row">{escape(line["what"])}</th><td>{escape(line["formula"])}</td>'
        f'<td>{escape(line["values"])}</td><td id="{line["name"]}">{escape(line["result"])}</td></tr>'
        for line in lines
    )
    return _framed("learn-table learn-worked", "", ("Quantity", "Formula", "With your values", "Result"), rows, title)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a caption; the first cell of a row is its heading."""
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return _framed("learn-table", f"<caption>{escape(caption)}</caption>", columns, body, caption)


def details(summary: str, inside: str) -> str:
    """What opens on a click, and is open on paper."""
    return f'<details class="learn-details"><summary>{escape(summary)}</summary>{inside}</details>'


def banner(state: str, title: str, text: str, name: str = "") -> str:
    """A sentence that must be seen."""
    return f'<div class="learn-banner {state}"{_identity(name)}><strong>{escape(title)}</strong> {escape(text)}</div>'


def message(sender: str, text: str) -> str:
    """A message of somebody who wants to know."""
    return (
        f'<figure class="learn-message"><figcaption>Message from {escape(sender)}</figcaption>'
        f"<blockquote>{escape(text)}</blockquote></figure>"
    )


def listed(items: Iterable[tuple[str, str]], name: str) -> str:
    """Titled sentences as a list."""
    entries = "".join(f"<li><strong>{escape(title)}.</strong> {escape(text)}</li>" for title, text in items)
    return f'<ul class="learn-list" id="{name}">{entries}</ul>'


def paragraph(text: str, name: str = "") -> str:
    """A paragraph."""
    return f'<p class="learn-text"{_identity(name)}>{escape(text)}</p>'


def _identity(name: str) -> str:
    return f' id="{name}"' if name else ""


def _framed(look: str, caption: str, columns: Sequence[str], rows: str, label: str) -> str:
    """A table in a frame of its own width, which the keyboard can scroll."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    return (
        f'<div class="learn-scroll" role="region" tabindex="0" aria-label="{escape(label)}"><table class="{look}">'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
