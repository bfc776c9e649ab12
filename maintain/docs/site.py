"""The pages of the documentation and what is generated of each: sections, what commands print, schemas."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from maintain.docs import accuracy_page, format_page, model_page, parts_section, schemas, trust_section
from maintain.docs.commands import ROOT, Run, apart, brought, filled
from maintain.docs.marked import replaced
from optimizer.base.errors import InputError

DOCS = ROOT / "docs"
README = "README.md"
SCHEMAS = DOCS / "schemas"
SECTIONS: Mapping[str, Callable[[], list[str]]] = {
    **{page.PAGE: page.sections for page in (accuracy_page, format_page, model_page, parts_section)},
    **dict.fromkeys((README, "index.md"), trust_section.sections),
}


def pages() -> list[str]:
    """Every page of the site, by its path inside of docs/."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def file_of(name: str) -> Path:
    """The file of a page, or of the README, which is made as the pages are."""
    return ROOT / README if name == README else DOCS / name


def with_sections(name: str) -> str:
    """A page with its generated sections as the code has them."""
    text = file_of(name).read_text(encoding="utf-8")
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
    known = [README, *pages()]
    if unknown := set(names) - set(known):
        raise InputError(f"no page {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    schemas.write(SCHEMAS)
    for name in names or known:
        file_of(name).write_text(written(name, apart), encoding="utf-8")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
