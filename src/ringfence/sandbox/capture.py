"""Bounded output, timeouts, and killing a whole tree: everything between a start and an end.

`Pump` moves bytes and watches the clock for one running command. All its descriptors hang in one
epoll instance, and that is a descriptor too: the synchronous driver polls it, the asynchronous one
gives it to the event loop, and both call `step`.
"""

from __future__ import annotations

import os
import select
import time

from ringfence.sandbox.tape import Tape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ringfence.sandbox.backend import Exit, Running

    Sink = Callable[[bytes], object]

    class Outlet(Protocol):
        """Somewhere to write to that never makes us wait."""

        def fileno(self) -> int:
            """The descriptor to wait on when it takes no more."""

        def write(self, data: memoryview) -> int:
            """Take as much as goes without waiting, and say how much."""


# Larger pieces would each be mapped and unmapped by the allocator, which costs more than they save.
_CHUNK = 64 * 1024
_TURNS = 16
_REAP_SECONDS = 5.0
_DRAIN_SECONDS = 2.0
_LONGEST_WAIT = 3600.0


class Streams:
    """A command's standard streams as its caller wants them.

    Output is kept on bounded tapes. `out_sink` and `err_sink` are called with each chunk as well;
    `out_outlet` and `err_outlet` get the bytes instead of the tapes, as fast as they take them.
    `stdin` is bytes, a descriptor of ours to read from, or nothing. `control` is a descriptor with
    what to do, on the pump's own thread, when it becomes readable.
    """

    def __init__(
        self,
        stdin: bytes | int | None = None,
        *,
        out_outlet: Outlet | None = None,
        err_outlet: Outlet | None = None,
        control: tuple[int, Callable[[Pump], None]] | None = None,
    ) -> None:
        self.stdin = stdin
        self.out = Tape(0)
        self.err = Tape(0)
        self.out_sink: Sink | None = None
        self.err_sink: Sink | None = None
        self.out_outlet = out_outlet
        self.err_outlet = err_outlet
        self.control = control

    def limit(self, size: int) -> None:
        """Share `size` bytes evenly between both tapes."""
        self.out, self.err = Tape(size // 2), Tape(size // 2)

    def take_out(self, data: bytes) -> None:
        """Keep the next bytes of standard output."""
        self.out.feed(data)
        if self.out_sink is not None:
            self.out_sink(data)

    def take_err(self, data: bytes) -> None:
        """Keep the next bytes of standard error."""
        self.err.feed(data)
        if self.err_sink is not None:
            self.err_sink(data)


class _Output:
    """One output stream on its way from the command to a tape or an outlet."""

    def __init__(self, source: int, take: Sink, outlet: Outlet | None) -> None:
        self.source: int | None = source
        self.take = take
        self.outlet = outlet
        self.pending = memoryview(b"")


class Pump:
    """Moves one command's bytes until it has ended, its tree is dead and its output is read.

    One thread at a time drives it; `kill`, `expire` and `signal` may be called from any other.
    """

    def __init__(self, running: Running, streams: Streams, timeout: float | None = None) -> None:
        self.running = running
        self.timeout = timeout
        self.timed_out = False
        self.killed = False
        self._hurried = False
        self._started = time.monotonic()
        self._ended: float | None = None
        self._deadline = None if timeout is None else self._started + timeout
        self._exit: Exit | None = None
        self._gone = False
        self._control = streams.control
        self._source = streams.stdin if isinstance(streams.stdin, int) else None
        self._source_is_file = False
        self._pending = memoryview(streams.stdin if isinstance(streams.stdin, bytes) else b"")
        self._outputs = [
            _Output(running.stdout, streams.take_out, streams.out_outlet),
            _Output(running.stderr, streams.take_err, streams.err_outlet),
        ]
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        try:
            for output in self._outputs:
                self._watch_source(output)
            self._watch(running.exited, select.EPOLLIN, lambda _: self._command_ended())
            if self._control is not None:
                fd, act = self._control
                self._watch(fd, select.EPOLLIN, lambda _: act(self))
            if running.stdin is not None:
                os.set_blocking(running.stdin, False)
                self._feed_stdin()
        except BaseException:
            self._epoll.close()
            raise

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
        if self._deadline is None:
            return None
        return min(max(0.0, self._deadline - time.monotonic()), _LONGEST_WAIT)

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
            # An earlier one in this round may have closed it.
            act = self._ready.get(fd)
            if act is not None:
                act(events)
        if self._source_is_file and not self._pending:
            self._take_stdin()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._out_of_time()
        if self._gone and not self._outputs:
            self._finish()

    def kill(self) -> None:
        """Kill the command's tree; the pump then comes to its end by itself, within bounds."""
        self.hurry()
        if self._gone:
            return
        if not self.killed:
            self.killed = True
            self._deadline = time.monotonic() + _REAP_SECONDS
        self.running.kill()

    def hurry(self) -> None:
        """Once the command has ended, do not wait for whoever should read the rest of its output."""
        self._hurried = True
        if self._gone and self._deadline is None:
            self._deadline = time.monotonic()

    def expire(self) -> None:
        """End the command as its timeout does."""
        if not self._gone and not self.killed:
            self.timed_out = True
        self.kill()

    def signal(self, number: int) -> None:
        """Pass a signal on to the command."""
        self.running.signal(number)

    def abandon(self) -> None:
        """Kill the command, wait until nothing of it is left, and give up what nobody reads."""
        self.kill()
        while not self.done:
            if self._gone:
                self._drop_outputs()
            self.step(self.patience())

    def _watch(self, fd: int, events: int, act: Callable[[int], None]) -> None:
        self._epoll.register(fd, events)
        self._ready[fd] = act

    def _unwatch(self, fd: int) -> None:
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _watch_source(self, output: _Output) -> None:
        if output.source is not None:
            os.set_blocking(output.source, False)
            self._watch(output.source, select.EPOLLIN, lambda _: self._read(output))

    def _read(self, output: _Output) -> None:
        # A few pieces at a time: a flood need not ask for each one whether it is there.
        for _ in range(_TURNS):
            if output.source is None or output.pending:
                return
            try:
                data = os.read(output.source, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""  # a terminal whose last user has gone
            if not data:
                self._end_output(output)
            elif output.outlet is None:
                output.take(data)
            else:
                output.pending = memoryview(data)
                self._unwatch(output.source)
                self._write(output)
            if len(data) < _CHUNK:
                return

    def _write(self, output: _Output) -> None:
        """Hand on what was read; the next bytes are read when all of it is gone."""
        outlet = output.outlet
        if outlet is None:
            return
        try:
            output.pending = output.pending[outlet.write(output.pending) :]
        except OSError:
            # Whoever reads our output has gone: so has the command's reader, as in any pipeline.
            self._unwatch(outlet.fileno())
            output.pending = memoryview(b"")
            self._end_output(output)
            return
        if output.pending:
            if outlet.fileno() not in self._ready:
                self._watch(outlet.fileno(), select.EPOLLOUT, lambda _: self._write(output))
        else:
            self._unwatch(outlet.fileno())
            if output.source is None:
                self._outputs.remove(output)
            else:
                self._watch_source(output)

    def _end_output(self, output: _Output) -> None:
        if output.source is not None:
            self._unwatch(output.source)
            os.close(output.source)
            output.source = None
        if not output.pending and output in self._outputs:
            self._outputs.remove(output)

    def _drop_outputs(self) -> None:
        for output in list(self._outputs):
            if output.outlet is not None:
                self._unwatch(output.outlet.fileno())
            output.pending = memoryview(b"")
            self._end_output(output)

    def _command_ended(self) -> None:
        self._gone = True
        self._ended = time.monotonic()
        self._unwatch(self.running.exited)
        self._close_stdin()
        if self.running.complete:
            for output in [output for output in self._outputs if output.outlet is None]:
                self._read(output)
                self._end_output(output)
        # Whatever the command left running holds its pipes open, and has no business to go on.
        self.running.kill()
        self._deadline = self._ended + _DRAIN_SECONDS

    def _out_of_time(self) -> None:
        if not self._gone and not self.killed:
            self.expire()
            return
        # Ended and drained as far as it goes, or killed and still not reaped.
        reader_stalls = any(output.pending for output in self._outputs)
        if self._gone and reader_stalls and not self._hurried:
            # All that is left to do is ours, and its reader's: a pipeline waits as long as it takes.
            self._deadline = None
            return
        self._gone = True
        self._drop_outputs()

    def _finish(self) -> None:
        self._close_stdin()
        if self._control is not None:
            self._unwatch(self._control[0])
        self._epoll.close()
        if self._ended is None:
            self._ended = time.monotonic()
        self._exit = self.running.finish()

    def _feed_stdin(self) -> None:
        """Wait for whichever side of standard input is next: the source, or room in the pipe."""
        if self.running.stdin is None:
            return
        if self._pending:
            self._watch(self.running.stdin, select.EPOLLOUT, self._give_stdin)
        elif self._source is None:
            self._close_stdin()
        elif not self._source_is_file:
            try:
                self._watch(self._source, select.EPOLLIN, lambda _: self._take_stdin())
            except PermissionError:
                # A regular file cannot be polled, and never makes anybody wait.
                self._source_is_file = True

    def _take_stdin(self) -> None:
        if self._source is None:
            return
        self._unwatch(self._source)
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            self._feed_stdin()
            return
        except OSError:
            # A directory or a hung-up terminal has nothing to give.
            data = b""
        if not data:
            self._source = None
            self._source_is_file = False
        self._pending = memoryview(data)
        self._feed_stdin()

    def _give_stdin(self, events: int) -> None:
        fd = self.running.stdin
        if fd is None:
            return
        try:
            sent = 0 if events & select.EPOLLERR else os.write(fd, self._pending)
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = 0
        if not sent:
            self._close_stdin()
            return
        self._pending = self._pending[sent:]
        if not self._pending:
            self._unwatch(fd)
            self._feed_stdin()

    def _close_stdin(self) -> None:
        fd, self.running.stdin = self.running.stdin, None
        if self._source is not None:
            self._unwatch(self._source)
        self._source = None
        self._source_is_file = False
        self._pending = memoryview(b"")
        if fd is not None:
            self._unwatch(fd)
            os.close(fd)
