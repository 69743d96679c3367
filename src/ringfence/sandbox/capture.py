"""Bounded output, timeouts, and killing a whole tree: everything between a start and an end.

`Pump` moves bytes and watches the clock for one running command. All its descriptors hang in one
epoll instance, and that is a descriptor too: the synchronous driver polls it, the asynchronous one
gives it to the event loop, and both call `step`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time

from ringfence.model.output import Captured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.sandbox.backend import Exit, Running

    Sink = Callable[[bytes], object]

_CHUNK = 256 * 1024
_REAP_SECONDS = 5.0
_DRAIN_SECONDS = 2.0
_HEAD_SHARE = 0.4


class Tape:
    """Keeps the head and the tail of a stream in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._head_limit = int(limit * _HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trimming only past twice the limit makes the copying linear in the bytes that went by.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit or None]

    def result(self) -> Captured:
        """Return what was kept, cut between characters where something was dropped."""
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit or len(self._tail) :])
        if len(head) + len(tail) == self._total:
            return Captured(head, tail)
        head, tail = _whole_end(head), _whole_start(tail)
        return Captured(head, tail, self._total - len(head) - len(tail))


# A UTF-8 character starts with anything but these, and its first byte says how long it is.
_CONTINUATION = range(0x80, 0xC0)
_LENGTHS = ((0xF0, 4), (0xE0, 3), (0xC0, 2))


def _whole_end(data: bytes) -> bytes:
    """Drop an unfinished UTF-8 character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte not in _CONTINUATION:
            length = next((n for start, n in _LENGTHS if byte >= start), 1)
            return data[:-back] if length > back else data
    return data


def _whole_start(data: bytes) -> bytes:
    """Drop the rest of a UTF-8 character at the start."""
    skip = 0
    while skip < min(3, len(data)) and data[skip] in _CONTINUATION:
        skip += 1
    return data[skip:]


class Streams:
    """A command's standard streams as its caller wants them.

    Output is kept on bounded tapes; `out_sink` and `err_sink` take each chunk as it comes, instead of
    the tapes where `keep` is off. `stdin` is bytes, a descriptor to read from, or nothing.
    """

    def __init__(
        self,
        stdin: bytes | int | None = None,
        *,
        out_sink: Sink | None = None,
        err_sink: Sink | None = None,
        keep: bool = True,
    ) -> None:
        self.stdin = stdin
        self.out_sink = out_sink
        self.err_sink = err_sink
        self.out = Tape(0)
        self.err = Tape(0)
        self._keep = keep

    def limit(self, size: int) -> None:
        """Share `size` bytes evenly between both tapes."""
        if self._keep:
            self.out, self.err = Tape(size // 2), Tape(size // 2)

    def take(self, data: bytes, tape: Tape, sink: Sink | None) -> None:
        """Put the next bytes of a stream where they belong."""
        if self._keep:
            tape.feed(data)
        if sink is not None:
            sink(data)


class Pump:
    """Moves one command's bytes until it has ended, its tree is dead and its output is read."""

    def __init__(self, running: Running, streams: Streams, timeout: float | None = None) -> None:
        self.running = running
        self.timed_out = False
        self.killed = False
        self._started = time.monotonic()
        self._ended: float | None = None
        self._deadline = None if timeout is None else self._started + timeout
        self._epoll = select.epoll()
        self._sinks: dict[int, Sink] = {
            running.stdout: lambda data: streams.take(data, streams.out, streams.out_sink),
            running.stderr: lambda data: streams.take(data, streams.err, streams.err_sink),
        }
        self._exit: Exit | None = None
        self._gone = False
        self._source = streams.stdin if isinstance(streams.stdin, int) else None
        self._source_is_file = False
        self._pending = memoryview(streams.stdin if isinstance(streams.stdin, bytes) else b"")
        for fd in self._sinks:
            os.set_blocking(fd, False)
            self._epoll.register(fd, select.EPOLLIN)
        self._epoll.register(running.exited, select.EPOLLIN)
        if running.stdin is not None:
            os.set_blocking(running.stdin, False)
            self._feed_stdin()

    @property
    def duration(self) -> float:
        """Seconds from the start to the command's end."""
        return (time.monotonic() if self._ended is None else self._ended) - self._started

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self._exit is not None

    @property
    def exit(self) -> Exit:
        """How the command ended; only once `done`."""
        if self._exit is None:
            msg = "the command has not ended"
            raise RuntimeError(msg)
        return self._exit

    def fileno(self) -> int:
        """The descriptor that becomes readable when `step` has something to do."""
        return self._epoll.fileno()

    def patience(self) -> float | None:
        """How long to wait for `fileno` before calling `step` anyway."""
        if self._source_is_file and not self._pending:
            return 0.0
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def run(self) -> Exit:
        """Drive it to the end, synchronously; whatever interrupts this kills the command."""
        try:
            while not self.done:
                self.step(self.patience())
        except BaseException:
            self.abandon()
            raise
        return self.exit

    def step(self, timeout: float | None = 0.0) -> None:
        """Wait up to `timeout` seconds, then move whatever is ready."""
        for fd, events in self._epoll.poll(-1 if timeout is None else timeout):
            if fd in self._sinks:
                self._read(fd)
            elif fd == self.running.exited:
                self._command_ended()
            elif fd == self._source:
                self._take_stdin()
            elif fd == self.running.stdin:
                self._give_stdin(broken=bool(events & select.EPOLLERR))
        if self._source_is_file and not self._pending:
            self._take_stdin()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._out_of_time()
        if self._gone and not self._sinks:
            self._finish()

    def kill(self) -> None:
        """Kill the command's tree; the pump then comes to its end by itself, within bounds."""
        if self._gone:
            return
        if not self.killed:
            self.killed = True
            self._deadline = time.monotonic() + _REAP_SECONDS
        self.running.kill()

    def signal(self, number: int) -> None:
        """Pass a signal on to the command."""
        self.running.signal(number)

    def expire(self) -> None:
        """End the command as its timeout does."""
        self.timed_out = not self._gone
        self.kill()

    def abandon(self) -> None:
        """Kill the command and wait until nothing of it is left."""
        self.kill()
        while not self.done:
            self.step(self.patience())

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close_output(fd)
            return
        try:
            self._sinks[fd](data)
        except BrokenPipeError:
            # Whoever reads our output has gone: so has the command's reader, as in any pipeline.
            self._close_output(fd)

    def _close_output(self, fd: int) -> None:
        self._epoll.unregister(fd)
        del self._sinks[fd]
        os.close(fd)

    def _command_ended(self) -> None:
        self._gone = True
        self._ended = time.monotonic()
        self._epoll.unregister(self.running.exited)
        self._close_stdin()
        # Whatever the command left running holds its pipes open, and has no business to go on.
        self.running.kill()
        self._deadline = self._ended + _DRAIN_SECONDS

    def _out_of_time(self) -> None:
        if self._gone or self.killed:
            # Ended, or killed and still not reaped: nothing more is waited for.
            self._gone = True
            for fd in list(self._sinks):
                self._close_output(fd)
        else:
            self.expire()

    def _finish(self) -> None:
        self._close_stdin()
        self._epoll.close()
        if self._ended is None:
            self._ended = time.monotonic()
        self._exit = self.running.finish()

    def _feed_stdin(self) -> None:
        """Wait for whichever side of standard input is next: the source, or room in the pipe."""
        if self.running.stdin is None:
            return
        if self._pending:
            self._epoll.register(self.running.stdin, select.EPOLLOUT)
        elif self._source is None:
            self._close_stdin()
        elif not self._source_is_file:
            try:
                self._epoll.register(self._source, select.EPOLLIN)
            except OSError as error:
                if error.errno != errno.EPERM:
                    raise
                # A regular file cannot be polled, and never makes anybody wait.
                self._source_is_file = True

    def _take_stdin(self) -> None:
        if self._source is None or self.running.stdin is None:
            return
        if not self._source_is_file:
            self._epoll.unregister(self._source)
        try:
            data = os.read(self._source, _CHUNK)
        except OSError:
            # A directory or a hung-up terminal has nothing to give.
            data = b""
        if not data:
            self._source = None
            self._source_is_file = False
        self._pending = memoryview(data)
        self._feed_stdin()

    def _give_stdin(self, *, broken: bool) -> None:
        fd = self.running.stdin
        if fd is None:
            return
        try:
            sent = 0 if broken else os.write(fd, self._pending)
        except BlockingIOError:
            return
        except BrokenPipeError:
            broken = True
        if broken:
            self._close_stdin()
            return
        self._pending = self._pending[sent:]
        if not self._pending:
            self._epoll.unregister(fd)
            self._feed_stdin()

    def _close_stdin(self) -> None:
        fd, self.running.stdin = self.running.stdin, None
        if self._source is not None and not self._source_is_file:
            with contextlib.suppress(OSError):  # it is registered only while nothing is pending
                self._epoll.unregister(self._source)
        self._source = None
        self._source_is_file = False
        self._pending = memoryview(b"")
        if fd is not None:
            # Closing the only descriptor of a pipe end takes it out of the epoll set as well.
            os.close(fd)
