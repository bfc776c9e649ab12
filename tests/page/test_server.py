"""The server: who may come in, and how it begins and ends."""

import http.client
import json
import signal
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.page import command, server
from tests.page.conftest import Served, ended, started

PATHS = (
    "/",
    "/plan",
    "/plan/",
    "/page.js",
    "/plan/view/answer",
    "/plan/answer.json",
    "/fits/",
    "/improve/",
    "/buy/board.html",
    "/learn/",
    "/learn/class.html",
)


def status(
    served: Served, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, str]:
    """Status and body of one request, redirections not followed."""
    where = urllib.parse.urlsplit(served.home)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    try:
        connection.request(method, path, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def cookie(served: Served) -> str:
    return f"optimize-page-{urllib.parse.urlsplit(served.home).port}={served.token}"


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_served(served: Served, path: str) -> None:
    assert status(served, path)[0] == 401
    assert status(served, f"{path}?access_token=wrong")[0] == 401
    assert status(served, path, "POST")[0] == 401
    assert status(served, path, cookie="optimize-page-1=x; a=b")[0] == 401


def test_a_websocket_without_the_token_is_refused(served: Served) -> None:
    handshake = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert status(served, "/learn/ws?session_id=s_1", **handshake)[0] in (401, 403)


def test_the_token_moves_from_the_address_into_a_cookie(served: Served) -> None:
    where = urllib.parse.urlsplit(served.home)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    connection.request("GET", f"/plan?gpus=64&access_token={served.token}")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["location"]) == (303, "/plan/?gpus=64")
    assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    connection.close()
    code, page = status(served, "/plan/?gpus=72&model=llama3-8b", cookie=cookie(served))
    assert (code, 'name="gpus" type="text" inputmode="numeric" autocomplete="off" value="72"' in page) == (200, True)


def test_another_host_or_origin_is_refused(served: Served) -> None:
    known = {"cookie": cookie(served)}
    assert status(served, "/plan/", host="example.org", **known)[0] == 403
    assert status(served, "/improve/view/improve", "POST", b"x", origin="http://example.org", **known)[0] == 403
    assert status(served, "/plan/", origin=served.home, **known)[0] == 200


def test_what_is_sent_is_bounded(served: Served) -> None:
    assert status(served, "/improve/view/improve", "POST", content_length=str(10**9), cookie=cookie(served))[0] == 413
    code, text = status(served, "/improve/view/improve", "POST", b"#" * 3_000_000, cookie=cookie(served))
    assert (code, "3.0 MB were pasted" in json.loads(text)["problem"]) == (200, True)


def test_a_visitor_names_presets_and_not_files(served: Served) -> None:
    assert status(served, "/", cookie=cookie(served))[0] == 303
    for path in ("/buy/view/buy?hardware=./x.toml", "/fits/view/fits?model=/etc/passwd", "/learn/view/panel?act=99"):
        code, text = status(served, path, cookie=cookie(served))
        assert (code, list(json.loads(text))) == (200, ["problem"])
    for question in ("model=/etc/passwd", "cluster=./cluster.toml", "stack=../../x.toml"):
        code, text = status(served, f"/plan/view/answer?{question}", cookie=cookie(served))
        assert (code, "unknown" in json.loads(text)["problem"]) == (200, True)
        assert status(served, f"/plan/answer.json?{question}", cookie=cookie(served))[0] == 422
    assert status(served, "/plan/../../etc/passwd", cookie=cookie(served))[0] == 404


def test_twenty_visitors_get_each_their_own_answer(served: Served) -> None:
    found: dict[int, str] = {}

    def visitor(batch: int) -> None:
        path = f"/plan/view/answer?model=llama3-8b&gpus=64&global_batch={batch}"
        found[batch] = status(served, path, cookie=cookie(served))[1]

    visitors = [threading.Thread(target=visitor, args=(64 * number,)) for number in range(1, 21)]
    for each in visitors:
        each.start()
    for each in visitors:
        each.join()
    assert sorted(found) == [64 * number for number in range(1, 21)]
    assert all(f'global_batch={batch}"' in text for batch, text in found.items())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_and_its_workers(how: int) -> None:
    one = started()
    assert status(one, "/plan/", cookie=cookie(one))[0] == 200
    assert ended(one, how) == 0
    with pytest.raises(ConnectionRefusedError):
        status(one, "/")


def test_its_connections_send_at_once() -> None:
    """asyncio waits for acknowledgements (Nagle) where a socket does not name its protocol: 40 ms between two parts."""
    with server._bound(0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_a_taken_port_is_one_message() -> None:
    if find_spec("starlette") is None:
        pytest.skip("needs starlette")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = CliRunner().invoke(cli, ["page", "--no-browser", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert "leave --port out for a free one" in done.stderr


def test_without_the_extra_one_message_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = CliRunner().invoke(cli, ["page"])
    assert done.exit_code == 2
    assert "pip install 'mfu-optimizer[page]'" in done.stderr


def test_the_file_of_answers_needs_a_folder(tmp_path: Path) -> None:
    if find_spec("starlette") is None:
        pytest.skip("needs starlette")
    done = CliRunner().invoke(cli, ["page", "--learn-out", str(tmp_path / "no" / "answers.csv")])
    assert done.exit_code == 2
    assert "its folder does not exist" in done.stderr


def test_nobody_of_a_few_visitors_loses_a_slider_in_either_tab(served: Served) -> None:
    from tests.page.visitors import learn, plan

    for seen in (plan(served, 4, 2), learn(served, 4, 2)):
        assert seen.lost == 0
        assert seen.cpu > 0


@pytest.mark.parametrize("given", [{"host": "["}, {"origin": "http://["}])
def test_an_open_bracket_is_no_host(served: Served, given: dict[str, str]) -> None:
    assert status(served, "/", cookie=cookie(served), **given)[0] == 403


@pytest.mark.parametrize("path", ["///elsewhere/x", "//elsewhere", "/%5Celsewhere", "/%2F%2Felsewhere"])
def test_nobody_is_sent_elsewhere(served: Served, path: str) -> None:
    where = urllib.parse.urlsplit(served.home)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
    connection.request("GET", f"{path}?access_token={served.token}")
    answer = connection.getresponse()
    assert answer.status == 303
    assert urllib.parse.urlsplit(urllib.parse.urljoin(served.home, answer.headers["location"])).netloc == where.netloc
    assert answer.headers["location"][1] not in "/\\"
    connection.close()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"a=" + b"[" * 100_000])
def test_brackets_without_end_are_refused(served: Served, body: bytes) -> None:
    code, text = status(served, "/improve/view/improve", "POST", body, cookie=cookie(served))
    assert (code, list(json.loads(text))) == (200, ["problem"])
