"""Asking on the controlling terminal, apart from the command's own input and output."""

from __future__ import annotations

import os
import termios

from ringfence.model.approval import Answer
from ringfence.model.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.approval import Request


class TerminalApprover:
    """Shows what will run and what it wants, and takes a word from /dev/tty."""

    def __call__(self, request: Request) -> Answer:
        """Ask; no terminal is a no."""
        try:
            # Opened by hand: a buffered text file cannot be both read and written on a terminal.
            fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return Answer("deny", "there is no terminal to ask on", by="nobody")
        try:
            # What was typed before the question was shown is no answer to it.
            termios.tcflush(fd, termios.TCIFLUSH)
            os.write(fd, _card(request).encode("utf-8", "replace"))
            reply = os.read(fd, 1024).decode("utf-8", "replace").strip().lower()
        finally:
            os.close(fd)
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
