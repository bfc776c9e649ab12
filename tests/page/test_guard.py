"""Who comes in, told request by request: no server is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("starlette")

from optimizer.page.guard import LARGEST_BODY, POLICY, Guard

HERE = {"host": "127.0.0.1:8000", "cookie": "optimize-page-8000=secret"}


def answered(path: str, query: str, headers: dict[str, str], kind: str = "http", body: Iterable[int] = ()) -> Any:
    """The status with which a request comes back and its headers, and the messages that the application got."""
    sent: list[Any] = []
    got: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.append(scope["type"])
        got.extend([(await receive())["type"] for _ in body])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    parts = iter(body)

    async def receive() -> Any:
        return {"type": "http.request", "body": bytes(next(parts))}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": "GET", "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(Guard(app, "secret", 8000, ("/plan", "/learn"))(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, got


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "example.org"}, 403),
        ({"host": ""}, 403),
        ({"host": "["}, 403),
        ({"origin": "http://127.0.0.1:8000"}, 200),
        ({"origin": "http://127.0.0.1:8001"}, 403),
        ({"origin": "http://["}, 403),
        ({"cookie": ""}, 401),
        ({"cookie": "optimize-page-8000=secre"}, 401),
        ({"cookie": "optimize-page-8001=secret"}, 401),
        ({"content-length": f"{LARGEST_BODY}"}, 200),
        ({"content-length": f"{LARGEST_BODY + 1}"}, 413),
        ({"content-length": "-1"}, 413),
    ],
)
def test_a_request_is_let_in_or_told_why_not(changes: dict[str, str], status: int) -> None:
    found, headers, got = answered("/plan/", "", HERE | changes)
    assert (found, got) == (status, ["http"] if status == 200 else [])
    assert headers["referrer-policy"] == "no-referrer"
    dressed = (headers.get("content-security-policy"), headers.get("x-content-type-options"))
    assert dressed == ((POLICY, "nosniff") if status == 200 else (None, None))


@pytest.mark.parametrize(
    ("path", "query", "place"),
    [
        ("/", "", "/plan/"),
        ("/learn", "a=b", "/learn/?a=b"),
        ("/plan/", "access_token=secret&a=b&a=c", "/plan/?a=b&a=c"),
        ("//example.org", "access_token=secret", "/example.org"),
    ],
)
def test_addresses_lose_their_token_and_tabs_get_their_slash(path: str, query: str, place: str) -> None:
    """The cookie, which lets in from then on, is no script's to read, and goes to no other site."""
    status, headers, got = answered(path, query, HERE)
    assert (status, headers["location"], got) == (303, place, [])
    assert headers["set-cookie"] == "optimize-page-8000=secret; Path=/; HttpOnly; SameSite=Strict"


def test_a_socket_stays_where_it_is_and_what_is_no_request_passes() -> None:
    assert answered("/plan/", "access_token=secret", {"host": "localhost"}, "websocket")[2] == ["websocket"]
    assert answered("/plan/", "access_token=x", {"host": "localhost"}, "websocket")[0] == 401
    assert answered("", "", {}, "lifespan")[2] == ["lifespan"]


@pytest.mark.parametrize(("last", "heard"), [(1, "http.request"), (2, "http.disconnect")])
def test_a_body_of_unknown_length_ends_where_it_is_too_long(last: int, heard: str) -> None:
    got = answered("/plan/", "", HERE, body=(LARGEST_BODY - 1, last))[2]
    assert got == ["http", "http.request", heard]
