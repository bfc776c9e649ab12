"""What the Plan room answers to, path by path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


def plan_room() -> Starlette:
    """The room as an ASGI application; it is mounted at its path."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    return Starlette(routes=[Route("/", opened)])


async def opened(_request: Request) -> Response:
    """The whole page."""
    from starlette.responses import HTMLResponse

    from optimizer.reports.page import rendered

    return HTMLResponse(rendered("optimizer.page.plan", "room.html"))
