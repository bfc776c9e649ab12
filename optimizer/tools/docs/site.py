"""The pages of the documentation and what is generated of each: sections, what commands print, schemas."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from optimizer.errors import InputError
from optimizer.tools.docs import format_page, model_page, schemas, trust_section
from optimizer.tools.docs.commands import ROOT, Run, apart, brought, filled
from optimizer.tools.readme import replaced

DOCS = ROOT / "docs"
SCHEMAS = DOCS / "schemas"
SECTIONS: Mapping[str, Callable[[], list[str]]] = {
    page.PAGE: page.sections for page in (model_page, format_page, trust_section)
}


def pages() -> list[str]:
    """Every page, by its path inside of docs/."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def with_sections(name: str) -> str:
    """A page with its generated sections as the code has them."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for block in SECTIONS[name]() if name in SECTIONS else ():
        text = replaced(text, block)
    return text


def written(name: str, run: Run) -> str:
    """A page with everything generated anew, its commands run in a folder of their own."""
    with TemporaryDirectory() as folder, _inside(Path(folder)):
        brought(Path(folder))
        return filled(with_sections(name), run)


def rewrite(names: Sequence[str] = ()) -> None:
    """Write pages, by default all, and the schemas.

    Raises InputError for a page that is not there, and outside of a checkout.
    """
    if not DOCS.is_dir():
        raise InputError(f"{DOCS} is no folder: run this in a checkout")
    if unknown := set(names) - set(pages()):
        raise InputError(f"no page {', '.join(sorted(unknown))}; known: {', '.join(pages())}")
    schemas.write(SCHEMAS)
    for name in names or pages():
        (DOCS / name).write_text(written(name, apart), encoding="utf-8")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
