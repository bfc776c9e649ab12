"""Who may come in: this machine alone, with the token, from the server's own pages, with requests of bounded size."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN = "access_token"
HOSTS = ("127.0.0.1", "localhost")
LARGEST_BODY = 8 * 2**20  # of a request [B]: a log that is uploaded travels in base64
# The tabs need nothing from outside; marimo starts inline scripts and workers of its own.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "connect-src 'self' data: blob: ws://127.0.0.1:{port} ws://localhost:{port}",
        "frame-src 'self' data: blob:",
        "frame-ancestors 'none'",
        "form-action 'self'",
        "base-uri 'self'",
        "object-src 'none'",
    )
)
REFUSED = "401: open the address that `optimize page` printed; it carries the access_token.\n"


class Guard:
    """An ASGI application around another one, which sees no request without the token.

    Attributes:
        app: the other one.
        token: comes once in the address, ?access_token=..., and then from a cookie of this port.
        tabs: paths that are served with a slash at their end.
        meta: what the tabs may read of how the server was started, as `mo.app_meta().request.meta`.
    """

    def __init__(self, app: App, token: str, port: int, tabs: tuple[str, ...], meta: Mapping[str, str]) -> None:
        self.app, self.token, self.tabs, self.meta = app, token, tabs, dict(meta)
        self.cookie = f"optimize-page-{port}"
        self.policy = POLICY.replace("{port}", str(port))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not self._is_here(headers):
            await self._refuse(scope, send, 403, "403: this server answers on 127.0.0.1 and localhost alone.\n")
        elif not self._is_known(headers, query):
            await self._refuse(scope, send, 401, REFUSED)
        elif not (length := headers.get("content-length", "0")).isdecimal() or int(length) > LARGEST_BODY:
            await self._refuse(scope, send, 413, f"413: more than {LARGEST_BODY >> 20} MiB.\n")
        elif scope["type"] == "http" and (scope["path"] in self.tabs or any(name == TOKEN for name, _ in query)):
            await self._redirect(scope, query, send)
        else:
            scope["meta"] = self.meta
            await self.app(scope, _bounded(receive), self._dressed(send))

    def _is_here(self, headers: Mapping[str, str]) -> bool:
        """Whether the host asked for is this machine, and the page that asks, if it says, is one of ours.

        A name that somebody points at 127.0.0.1 is not.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        name = urlsplit(f"//{host}").hostname or ""
        return name in HOSTS and (origin is None or urlsplit(origin).netloc == host)

    def _is_known(self, headers: Mapping[str, str], query: list[tuple[str, str]]) -> bool:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            morsel = None
        given = [*(value for name, value in query if name == TOKEN), *([morsel.value] if morsel else [])]
        return any(hmac.compare_digest(value.encode(), self.token.encode()) for value in given)

    async def _redirect(self, scope: Scope, query: list[tuple[str, str]], send: Send) -> None:
        """To the same address without the token, which a person may then copy; the cookie remembers it."""
        path = scope["path"] + ("/" if scope["path"] in self.tabs else "")
        rest = urlencode([(name, value) for name, value in query if name != TOKEN])
        headers = [
            (b"location", (path.replace("//", "/") + (f"?{rest}" if rest else "")).encode("latin-1")),
            (b"set-cookie", f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict".encode()),
        ]
        await _answer(send, 303, b"", headers)

    async def _refuse(self, scope: Scope, send: Send, status: int, text: str) -> None:
        if scope["type"] == "http":
            await _answer(send, status, text.encode(), [(b"content-type", b"text/plain; charset=utf-8")])
        elif "websocket.http.response" in scope.get("extensions", {}):
            await send({"type": "websocket.http.response.start", "status": status, "headers": []})
            await send({"type": "websocket.http.response.body", "body": text.encode()})
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": text.strip()})

    def _dressed(self, send: Send) -> Send:
        """The sender that adds what keeps every page to this machine."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = {
                    b"content-security-policy": self.policy.encode(),
                    b"referrer-policy": b"no-referrer",
                    b"x-content-type-options": b"nosniff",
                }
                others = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
                message = {**message, "headers": [*others, *ours.items()]}
            await send(message)

        return dressed


def _bounded(receive: Receive) -> Receive:
    """The receiver that takes no more than LARGEST_BODY of a body of unknown length."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > LARGEST_BODY:
                return {"type": "http.disconnect"}
        return message

    return bounded


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode()), (b"referrer-policy", b"no-referrer")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
