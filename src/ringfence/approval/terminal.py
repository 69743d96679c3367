"""Asking on the controlling terminal, apart from the command's own input and output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import termios
import time

from ringfence.model.approval import Answer
from ringfence.model.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.approval import Request

_STANDARD = (0, 1, 2)
_TURN_SECONDS = 0.05
_NOBODY = Answer("deny", "there is no terminal to ask on", by="nobody")
_SILENCE = Answer("deny", "nobody answered in time", by="timeout")


class TerminalApprover:
    """Shows what will run and what it wants, and takes a word from the terminal.

    One question at a time: an answer that is typed for one card must not reach another, whoever asks.
    """

    def __call__(self, request: Request) -> Answer:
        """Ask; no terminal and no answer in time are a no."""
        deadline = time.monotonic() + request.wait
        try:
            fd = os.open(_terminal(), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return _NOBODY
        try:
            return _asked(fd, request, deadline) if _is_our_turn(fd, deadline) else _SILENCE
        finally:
            os.close(fd)


def _terminal() -> str:
    """Name the terminal itself: `/dev/tty` is one file for all of them, and locks would be as well."""
    for fd in _STANDARD:
        with contextlib.suppress(OSError):
            return os.ttyname(fd)
    return "/dev/tty"


def _is_our_turn(fd: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_TURN_SECONDS)
        else:
            return True


def _asked(fd: int, request: Request, deadline: float) -> Answer:
    # What was typed before the question was shown is no answer to it.
    termios.tcflush(fd, termios.TCIFLUSH)
    os.write(fd, _card(request).encode("utf-8", "replace"))
    ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
    if not ready:
        os.write(fd, b"\nringfence: nobody answered, so it is refused\n")
        return _SILENCE
    reply = os.read(fd, 1024).decode("utf-8", "replace").strip().lower()
    if reply in {"y", "yes", "o", "once"}:
        return Answer("once", by="terminal")
    if reply in {"s", "session"}:
        return Answer("session", by="terminal")
    return Answer("deny", "refused at the terminal", by="terminal")


def _card(request: Request) -> str:
    wants = "".join(f"\n    + {printable(name)}" for name in request.beyond)
    why = request.decision.reasons[0].text if request.decision.reasons else ""
    return (
        f"\nringfence: may this run?\n"
        f"    {printable(request.command)}\n"
        f"  in  {printable(request.cwd)}\n"
        f"  why {printable(why)}{wants}\n"
        f"  [y] once  [s] for this session  [n] no: "
    )
