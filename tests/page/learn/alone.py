"""The Learn room on a server of its own, as `optimize page` mounts it: `alone.py SHEET` prints its port."""

import socket
import sys
from importlib.util import find_spec
from typing import Any


def serve(sheet: str) -> None:
    """Serve until the process ends; the room is told of this sheet."""
    import marimo
    import uvicorn

    app = find_spec("optimizer.page.learn.app")
    assert app
    assert app.origin
    inner = marimo.create_asgi_app(quiet=True, include_code=False).with_app(path="/learn", root=app.origin).build()

    async def told(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "meta": {"learn_out": sheet}}, receive, send)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(told, log_level="critical", lifespan="off")).run(sockets=[listening])


if __name__ == "__main__":
    serve(sys.argv[1])
