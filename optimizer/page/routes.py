"""What every tab answers to: its page, its views, what can be taken away; and the script and look of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import OptimizerError
from optimizer.page.task import PageTask, TabQuestion
from optimizer.page.workers import Gone, Workers
from optimizer.reports.render.html import filled

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

PACKAGE = "optimizer.page"
WAIT = 1.5  # for the answer before a page is shown without it [s]
STATIC = {**dict.fromkeys(("tab.js", "page.js", "learn.js"), "text/javascript"), "page.css": "text/css"}
TYPES = {"json": "application/json", "html": "text/html", "csv": "text/csv", "zip": "application/zip"}
Pairs = Sequence[tuple[str, str]]  # of an address


@dataclass(frozen=True, kw_only=True)
class Tab:
    """What is served at a path."""

    name: str  # its path
    title: str  # in the header
    about: str  # a sentence: what is done there
    package: str  # whose templates it has
    # the question of an address or a form; raises InputError for what cannot be used
    asked: Callable[[Pairs], TabQuestion]
    # what its template needs besides: of the address, the question and what is answered
    shown: Callable[[Pairs, Any, Mapping[str, Any]], Mapping[str, Any]]
    opening: tuple[str, ...] = ()  # the views that answer a changed question, each more complete than the one before
    later: tuple[str, ...] = ()  # views that are asked for by themselves
    taken: Sequence[str] = ()  # files to take away
    ahead: tuple[PageTask, ...] = ()  # what is worked out when the page is opened, while nobody waits for anything else
    template: str = ""  # its page, in the templates of `package`; `{name}.html` without it

    @property
    def place(self) -> str:
        """Where it is."""
        return f"/{self.name}/"


def routes(tabs: Sequence[Tab], workers: Workers) -> list[BaseRoute]:
    """The routes of these tabs, each at its path."""
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Mount, Route

    async def static(request: Request) -> Response:
        """Script and look of the tabs."""
        name = request.path_params["name"]
        if name == "favicon.ico":  # a report that is looked at names none, and a browser asks
            return Response(status_code=204)
        if name not in STATIC:
            places = ", ".join(tab.place for tab in tabs)
            return PlainTextResponse(f"404: the tabs are {places}.", status_code=404)
        return Response(filled(PACKAGE, name), media_type=STATIC[name], headers={"cache-control": "no-cache"})

    mounts = [Mount(f"/{tab.name}", routes=_of_tab(tab, tabs, workers)) for tab in tabs]
    return [*mounts, Route("/{name:path}", static)]


def _of_tab(tab: Tab, tabs: Sequence[Tab], workers: Workers) -> list[BaseRoute]:
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def opened(request: Request) -> Response:
        """The whole page, with its answer where that takes a moment only."""
        pairs = request.query_params.multi_items()
        workers.ahead(tab.ahead)
        question, problem, answer = tab.asked(()), "", dict[str, Any]()
        try:
            question = tab.asked(pairs)
            async with asyncio.timeout(WAIT):
                for view in tab.opening:
                    if not answer or answer["pending"]:
                        answer = await workers.result(PageTask(view=view, asked=question), request.is_disconnected)
        except (TimeoutError, Gone):
            pass
        except OptimizerError as error:
            problem = str(error)
        values = {"tab": tab, "tabs": tabs, "asked": question, "answer": answer, "problem": problem}
        return HTMLResponse(
            filled(tab.package, tab.template or f"{tab.name}.html", **values, **tab.shown(pairs, question, answer))
        )

    async def result(request: Request, view: str, **task: Any) -> Any:
        """What a view shows of the question in the address, or the response that says why not."""
        try:
            asks = tab.asked(request.query_params.multi_items())
            whole = workers.known(PageTask(view=tab.opening[-1], asked=asks)) if view in tab.opening[:-1] else None
            return whole or await workers.result(PageTask(view=view, asked=asks, **task), request.is_disconnected)
        except Gone:
            return PlainTextResponse("", status_code=499)
        except OptimizerError as error:
            refused = 200 if view in (*tab.opening, *tab.later) else 422  # for browsers log what is no 200
            return JSONResponse({"problem": str(error)}, status_code=refused if error.exit_code == 2 else 500)

    async def viewed(request: Request) -> Response:
        """One view, as JSON; of what a visitor sent with it nothing is remembered."""
        view = request.path_params["view"]
        if view not in (*tab.opening, *tab.later):
            return PlainTextResponse("no such view", status_code=404)
        body = await request.body()
        values = await result(request, view, body=body, passing=bool(body))
        return values if isinstance(values, Response) else JSONResponse(values)

    async def downloaded(request: Request) -> Response:
        """A file to take away."""
        name = request.url.path.rpartition("/")[2]
        content = await result(request, name, passing=True)
        if isinstance(content, Response):
            return content
        named = tab.asked(request.query_params.multi_items()).name
        ending = name.rpartition(".")[2]
        how = "inline" if ending == "html" else "attachment"  # a page may be looked at as well
        headers = {"content-disposition": f'{how}; filename="{named}-{name}"'}
        return Response(content, media_type=TYPES[ending], headers=headers)

    return [
        Route("/", opened),
        Route("/view/{view}", viewed, methods=["GET", "POST"]),
        *(Route(f"/{name}", downloaded) for name in tab.taken),
    ]
