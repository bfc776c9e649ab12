"""What the Plan room answers to, path by path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import OptimizerError
from optimizer.page.plan.form import form_values
from optimizer.page.plan.question import PlanQuestion, asked
from optimizer.page.plan.workers import Gone, PageTask, Workers
from optimizer.reports.render.html import filled

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PACKAGE = "optimizer.page.plan"
WAIT = 1.5  # for the answer before a page is shown without it [s]
SCRIPTS = {"room.js": "text/javascript", "room.css": "text/css"}
DOWNLOADS = {"answer.json": "application/json", "report.html": "text/html", "launch.zip": "application/zip"}
LATER = {
    "mine": "Mine against the best, term by term",
    "map": "TP × PP: the best step time in each cell",
    "pipeline": "The pipeline, pass by pass",
    "scaling": "MFU against GPUs",
    "sensitivity": "What more of each input buys",
    "runs": "The nearest measured runs",
}


def plan_room(workers: Workers) -> Starlette:
    """The room as an ASGI application; it is mounted at its path."""
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def opened(request: Request) -> Response:
        """The whole page, with its answer where that takes a moment only."""
        pairs = request.query_params.multi_items()
        question, problem = _question(pairs)
        found: dict[str, Any] = {}
        if not problem:
            try:
                async with asyncio.timeout(WAIT):
                    for view in ("answer", "proven"):
                        if not found or found["pending"]:
                            found = await workers.result(PageTask(view=view, asked=question), request.is_disconnected)
            except (TimeoutError, Gone):
                pass
            except OptimizerError as error:
                problem = str(error)
        shown = [value for name, value in pairs if name == "show"]
        values = form_values(question, found.get("values"), found.get("steps"))
        page = filled(
            PACKAGE,
            "room.html",
            asked=question,
            found=found,
            problem=problem,
            later={name: (title, name in shown) for name, title in LATER.items()},
            form=values,
        )
        return HTMLResponse(page)

    async def told(request: Request, task: PageTask) -> Any:
        """The result of a task, or the response that says why there is none."""
        try:
            return await workers.result(task, request.is_disconnected)
        except Gone:
            return PlainTextResponse("", status_code=499)
        except OptimizerError as error:
            return JSONResponse({"problem": str(error)}, status_code=422 if error.exit_code == 2 else 500)

    async def viewed(request: Request) -> Response:
        """One view of the question in the address, as JSON."""
        view = request.path_params["view"]
        if view not in ("answer", "proven", *LATER):
            return PlainTextResponse("no such view", status_code=404)
        question, problem = _question(request.query_params.multi_items())
        if problem:
            return JSONResponse({"problem": problem}, status_code=422)
        proven = workers.found(PageTask(view="proven", asked=question)) if view == "answer" else None
        found = proven or await told(request, PageTask(view=view, asked=question))
        return found if isinstance(found, Response) else JSONResponse(found)

    async def pasted(request: Request) -> Response:
        """What a visitor pasted, read but never run."""
        question, _ = _question(request.query_params.multi_items())
        found = await told(request, PageTask(view="paste", asked=question, body=await request.body(), passing=True))
        return found if isinstance(found, Response) else JSONResponse(found)

    async def taken(request: Request) -> Response:
        """A file to keep."""
        name = request.url.path.rpartition("/")[2]
        question, problem = _question(request.query_params.multi_items())
        if problem:
            return JSONResponse({"problem": problem}, status_code=422)
        found = await told(request, PageTask(view=name, asked=question, passing=True))
        if isinstance(found, Response):
            return found
        file = f"{question.model}-{question.gpus}-{name}"
        headers = {"content-disposition": f'attachment; filename="{file}"'}
        return Response(found, media_type=DOWNLOADS[name], headers=headers)

    return Starlette(
        routes=[
            Route("/", opened),
            Route("/view/paste", pasted, methods=["POST"]),
            Route("/view/{view}", viewed),
            *(Route(f"/{name}", taken) for name in DOWNLOADS),
            Route("/{name:path}", _static),
        ]
    )


def _question(pairs: list[tuple[str, str]]) -> tuple[PlanQuestion, str]:
    """The question, and what is wrong with it."""
    try:
        return asked(pairs), ""
    except OptimizerError as error:
        return PlanQuestion(), str(error)


async def _static(request: Request) -> Response:
    """Script and look of the room."""
    from starlette.responses import PlainTextResponse, Response

    name = request.path_params["name"]
    if name not in SCRIPTS:
        return PlainTextResponse("404: the rooms are /plan/ and /learn/.", status_code=404)
    return Response(filled(PACKAGE, name), media_type=SCRIPTS[name], headers={"cache-control": "no-cache"})
