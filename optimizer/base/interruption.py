"""The end that a person or a machine asks for: Ctrl-C, a closed terminal, a batch system that is about to kill."""

from __future__ import annotations

import signal
import threading
from types import FrameType

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # those of them that this system has are handled
SHELLS = 128  # what shells add to the number of a signal for an exit code
INTERRUPTED = 130  # SHELLS and the number of SIGINT


class Stop:
    """A handler of signals: remembers the first one and raises KeyboardInterrupt, as Python does for Ctrl-C alone."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Called by Python in the main thread."""
        self.number = self.number or number
        raise KeyboardInterrupt

    def listen(self) -> None:
        """Handle SIGINT, SIGTERM and SIGHUP, where this thread may, unless they are ignored as nohup does."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _numbers():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)

    def forget(self) -> None:
        """Leave the rest to the system, as at the end of a program, when nothing of ours may run any more."""
        for number in _numbers():
            if signal.getsignal(number) is self:
                signal.signal(number, signal.SIG_DFL)


def start_server() -> None:
    """Start the process that workers are forked from, if it does not run, so that it does not hear Ctrl-C.

    That reaches every process of a terminal, and would end the server's imports with a traceback.
    """
    from multiprocessing.forkserver import ensure_running
    from multiprocessing.resource_tracker import ensure_running as track

    track()  # which would unblock the signal again behind itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def asked() -> int:
    """The exit code of a program that was asked to end, 0 where nobody asked.

    >>> asked()
    0
    """
    handlers = [signal.getsignal(number) for number in _numbers()]  # what a shell starts with & ignores SIGINT
    stopped = [handler.number for handler in handlers if isinstance(handler, Stop) and handler.number]
    return SHELLS + stopped[0] if stopped else 0


def _numbers() -> list[int]:
    return [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
