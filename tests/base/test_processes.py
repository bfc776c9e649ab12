"""How processes begin: as forks of one that was there first, where the system can."""

from __future__ import annotations

from unittest import mock

import pytest

from optimizer.base import processes


def test_processes_are_copies_where_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ["spawn", "forkserver"]
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: methods)
    assert processes.context_of([]).get_start_method() == "forkserver"
    methods.remove("forkserver")
    assert processes.context_of([]).get_start_method() == "spawn"


@pytest.mark.parametrize(("method", "servers"), [("forkserver", ["server"]), ("spawn", [])])
def test_what_is_forked_from_begins_first(method: str, servers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(processes, "start_server", lambda: order.append("server"))
    context = mock.Mock(get_start_method=lambda: method)
    context.Process.return_value.start = lambda: order.append("process")
    assert processes.begun(context, print, 1, 2) is context.Process.return_value
    context.Process.assert_called_once_with(target=print, args=(1, 2), daemon=True)
    assert order == [*servers, "process"]
