"""Pages of HTML from templates: what is put in is text, unless it is marked as markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Filters = Mapping[str, Callable[..., Any]]


def rendered(package: str, template: str, filters: Filters | None = None, **values: Any) -> str:
    """A template in the folder `templates` of a package, filled in; a name that it lacks is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    return environment.get_template(template).render(**values)
