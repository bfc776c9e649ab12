"""The Learn room on a server of its own, as `optimize page` mounts it: `alone.py SHEET` prints its port."""

import socket
import sys
from typing import Any

import marimo
import uvicorn

from optimizer.page.learn import app

inner = marimo.create_asgi_app(quiet=True, include_code=False).with_app(path="/learn", root=app.__file__).build()


async def told(scope: Any, receive: Any, send: Any) -> None:
    """The room with what the server tells it."""
    await inner({**scope, "meta": {"learn_out": sys.argv[1]}}, receive, send)


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(told, log_level="critical", lifespan="off")).run(sockets=[listening])
