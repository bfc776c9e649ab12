"""Who may come in: this machine alone, with the token, from the server's own pages, with requests of bounded size."""

from __future__ import annotations

import hmac
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from optimizer.base.units import is_count

TOKEN = "access_token"
HOSTS = ("127.0.0.1", "localhost")
LARGEST_BODY = 8 * 2**20  # of a request [B]: a log that is uploaded travels in base64
# The tabs need nothing from outside, and no script but those that the server has.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'self'",
        "base-uri 'none'",
    )
)


class Guard:
    """An ASGI application around another one, which sees no request without the token.

    Attributes:
        app: the other one.
        token: comes once in the address, ?access_token=..., and then from a cookie of this port.
        tabs: paths that are served with a slash at their end; "/" leads to the first.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, tabs: tuple[str, ...]) -> None:
        self.app, self.token, self.tabs = app, token, tabs
        self.cookie = f"optimize-page-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        asked, answer = HTTPConnection(scope), None
        length = asked.headers.get("content-length", "0")
        if not _is_here(asked.headers):
            answer = _refused(403, "this server answers on 127.0.0.1 and localhost alone.")
        elif not self._is_known(asked):
            answer = _refused(
                401, "open the address that `optimize page` printed, with its access_token; then this one."
            )
        elif not is_count(length) or int(length) > LARGEST_BODY:
            answer = _refused(413, f"more than {LARGEST_BODY >> 20} MiB.")
        elif scope["type"] == "http" and (scope["path"] in ("/", *self.tabs) or TOKEN in asked.query_params):
            answer = self._redirected(asked)
        if answer is not None:
            await answer(scope, receive, send)
        else:
            await self.app(scope, _bounded(receive), _dressed(send))

    def _is_known(self, asked: HTTPConnection) -> bool:
        given = [*asked.query_params.getlist(TOKEN), asked.cookies.get(self.cookie, "")]
        return any(hmac.compare_digest(value.encode(), self.token.encode()) for value in given)

    def _redirected(self, asked: HTTPConnection) -> Response:
        """To the same address without the token, which a person may then copy; the cookie remembers it."""
        path = self.tabs[0] if asked.scope["path"] == "/" else asked.scope["path"]
        path += "/" if path in self.tabs else ""
        rest = urlencode([(name, value) for name, value in asked.query_params.multi_items() if name != TOKEN])
        headers = {
            "location": f"/{quote(path.lstrip('/'))}" + (f"?{rest}" if rest else ""),
            "set-cookie": f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict",
            "referrer-policy": "no-referrer",
        }
        return Response(status_code=303, headers=headers)


def _dressed(send: Send) -> Send:
    """The sender that adds what keeps every page to this machine."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = POLICY
            headers["referrer-policy"] = "no-referrer"
            headers["x-content-type-options"] = "nosniff"
        await send(message)

    return dressed


def _is_here(headers: Headers) -> bool:
    """Whether the host asked for is this machine, and the page that asks, if it says, is one of ours.

    A name that somebody points at 127.0.0.1 is not.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in HOSTS and (origin is None or urlsplit(origin).netloc == host)
    except ValueError:  # an open bracket
        return False


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{status}: {why}\n", status, {"referrer-policy": "no-referrer"})


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
