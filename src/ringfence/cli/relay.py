"""Passing a command's output on to descriptors of ours that others share, without ever waiting for them."""

from __future__ import annotations

import os
import select
import stat

# How much a pipe or terminal takes for certain once it says that it takes something.
_CERTAIN = 4096


class Relay:
    """Writes to a descriptor of ours, as much as goes now.

    Its open file description is shared with whoever started us, so it is not made non-blocking: a pipe
    or terminal is opened once more for ourselves, a socket has a flag for each call, and what allows
    neither is written in pieces that are known to fit. Regular files never make anybody wait.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        mode = os.fstat(fd).st_mode
        self.failure: OSError | None = None
        self._is_file = stat.S_ISREG(mode)
        self._is_socket = stat.S_ISSOCK(mode)
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
        if self._waits:
            try:
                self._fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
                self._waits = False
            except OSError:
                self._poll = select.poll()
                self._poll.register(fd, select.POLLOUT)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._fd

    def write(self, data: memoryview) -> int:
        """Write what goes without waiting."""
        try:
            if self._is_socket:
                import socket

                with socket.socket(fileno=os.dup(self._fd)) as shared:
                    return shared.send(data, socket.MSG_DONTWAIT)
            if self._waits:
                return os.write(self._fd, data[:_CERTAIN]) if self._poll.poll(0) else 0
            if self._is_file:
                # A full disk takes a part of it first, and says so with the next.
                written = 0
                while written < len(data):
                    written += os.write(self._fd, data[written:])
                return written
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.failure = error
            raise
