"""The local server: one process, a tab per path, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InputError
from optimizer.page.guard import TOKEN, Guard
from optimizer.page.half_open import closing_half_open
from optimizer.page.routes import routes
from optimizer.page.tabs import tabs_of
from optimizer.page.workers import Workers

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HOST = "127.0.0.1"
PATIENCE = 2  # for open requests when the server ends [s]


def serve(port: int, *, browser: bool, learn_out: Path | None, store: str = "") -> None:
    """Serve every tab on a port, 0 for a free one, and print the address with its token.

    Raises InputError when the port is taken.
    """
    from uvicorn import Config

    listening = _bound(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{port}/?{TOKEN}={token}"
    workers = Workers()
    config = Config(
        guarded(token, port, workers, learn_out.absolute() if learn_out else None, store),
        log_level="critical",
        ws="none",
        timeout_graceful_shutdown=PATIENCE,
        lifespan="off",
        http=closing_half_open(),
    )
    server = _server(config, workers)
    workers.warm()
    print(f"{address}\nOpen it in a browser on this machine; Ctrl-C ends the server.", flush=True)
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with listening:
        server.run(sockets=[listening])


def guarded(token: str, port: int, workers: Workers, sheet: Path | None = None, store: str = "") -> ASGIApp:
    """Every tab behind the guard, as an ASGI application; `sheet` gathers what students answer, `store` has batches."""
    from starlette.applications import Starlette

    tabs = tabs_of(sheet, store)
    return Guard(Starlette(routes=routes(tabs, workers)), token, port, tuple(f"/{tab.name}" for tab in tabs))


def _bound(port: int) -> socket.socket:
    # asyncio has connections send at once where a socket names its protocol; else bodies wait 40 ms behind headers.
    listening = socket.socket(proto=socket.IPPROTO_TCP)
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
            workers.end()

    return Ending(config)
