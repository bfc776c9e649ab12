"""Clients that begin a request and do not go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from optimizer.page.half_open import closing_half_open

WAIT = 0.3
WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """Reads the body, thinks for longer than a client may, and answers."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(2 * WAIT)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def exchanged(parts: list[bytes], pause: float = 0) -> bytes:
    """What comes back for these parts of requests until the server closes."""
    from uvicorn import Config, Server

    async def exchange() -> bytes:
        config = Config(app, port=0, http=closing_half_open(WAIT), lifespan="off", log_level="critical")
        server = Server(config)
        running = asyncio.create_task(server._serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            if reader.at_eof():
                break
            writer.write(part)
            await asyncio.sleep(pause)
        try:
            return await asyncio.wait_for(reader.read(), 5)
        except ConnectionResetError:  # closed with bytes unread
            return b""
        finally:
            writer.close()
            server.should_exit = True
            await running

    with ThreadPoolExecutor(1) as thread:  # the loop of a browser that tests share may run in this one
        return thread.submit(asyncio.run, exchange()).result()


@pytest.mark.parametrize(
    "part",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"],
)
def test_half_a_request_is_closed(part: bytes) -> None:
    assert exchanged([part]) == b""


def test_a_head_that_drips_is_closed() -> None:
    assert exchanged([bytes([letter]) for letter in WHOLE], WAIT / 10) == b""


def test_who_waits_for_an_answer_gets_it_and_the_next_one() -> None:
    last = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert exchanged([WHOLE, last], 3 * WAIT).count(b"ok") == 2


def test_a_body_may_come_slowly() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\n"
    assert exchanged([head, *(b"a",) * 6], WAIT / 2).endswith(b"ok")  # and the answer takes longer than a part
