"""The local server: one process, a room per path, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError
from optimizer.page.guard import LARGEST_BODY, TOKEN, App, Guard
from optimizer.page.plan.workers import Workers
from optimizer.page.rooms import LEARN, lab_file, rooms

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
PATIENCE = 2  # for open requests when the server ends [s]
SESSION_S = 600  # that a visitor who lost the connection finds the lab as it was [s]


def serve(port: int, *, browser: bool, learn_out: Path | None) -> None:
    """Serve every room on a port, 0 for a free one, and print the address with its token.

    Raises InputError when the port is taken.
    """
    from uvicorn import Config

    listening = _bound(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{port}/?{TOKEN}={token}"
    workers = Workers()
    meta = {"learn_out": str(learn_out.absolute()) if learn_out else ""}
    config = Config(
        guarded(token, port, meta, workers),
        log_level="critical",
        ws_max_size=LARGEST_BODY,
        timeout_graceful_shutdown=PATIENCE,
        lifespan="off",
    )
    server = _server(config, workers)
    workers.warm()
    print(f"{address}\nOpen it in a browser on this machine; Ctrl-C ends the server.", flush=True)
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with listening:
        server.run(sockets=[listening])


def guarded(token: str, port: int, meta: Mapping[str, str], workers: Workers) -> App:
    """Every room behind the guard, as an ASGI application."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    from optimizer.page.plan.routes import plan_room

    lab = lab_file()
    routes = [Route("/", _entrance()), Mount("/plan", plan_room(workers))]
    routes += [Mount("/", _lab(lab))] if lab else []
    return Guard(Starlette(routes=routes), token, port, tuple(room.path for room in rooms()), meta)


def _lab(file: Path) -> Any:
    """The Learn room: a marimo app, one session to a visitor."""
    import marimo

    builder = marimo.create_asgi_app(quiet=True, include_code=False, session_ttl=SESSION_S)
    return builder.with_app(path=LEARN.path, root=str(file)).build()


def _entrance() -> Any:
    from starlette.responses import HTMLResponse

    from optimizer.reports.render.html import filled

    text = filled("optimizer.page", "entrance.html", rooms=rooms())

    async def entrance(_request: Request) -> Response:
        return HTMLResponse(text)

    return entrance


def _bound(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(128)  # so that whoever reads the address may open it at once
    except OSError as error:
        listening.close()
        raise InputError(f"--port {port}: {error.strerror}; leave --port out for a free one") from error
    return listening


def _server(config: Any, workers: Workers) -> Any:
    """A server for which a signal is the usual end, with exit code 0."""
    from uvicorn import Server

    class Ending(Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            # A session of the lab waits for its visitor in a thread of its own, which nothing else ends.
            workers.end()
            sys.stdout.flush()
            os._exit(0)

    return Ending(config)
