"""Taking a command's way to its end: in the calling thread, or in an event loop.

A way is a generator that hands out a `Request` where somebody must be asked and a `Pump` where
something must be waited for.
"""

from __future__ import annotations

from ringfence.approval import gate
from ringfence.model.approval import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import AsyncIterator, Callable, Generator, Iterator
    from threading import Timer
    from typing import Literal, Self, TypeVar

    from ringfence.model.approval import Answer, Approver
    from ringfence.model.output import Output
    from ringfence.sandbox.capture import Pump, Streams

    Way = Generator[Request | Pump, Answer | None, Output]
    T = TypeVar("T")
    Chunk = tuple[Literal["stdout", "stderr"], bytes]


def finish(way: Way, approver: Approver | None, wait: float) -> Output:
    """Go all the way."""
    need = _advance(way, None)
    while not isinstance(need, _Done):
        answer = None
        try:
            if isinstance(need, Request):
                answer = gate.ask(approver, need, wait)
            else:
                need.run()
        except BaseException as error:
            way.throw(error)
            raise
        need = _advance(way, answer)
    return need.output


async def finish_async(way: Way, approver: Approver | None, wait: float) -> Output:
    """Go all the way without blocking the loop; cancelling kills the command."""
    need = await _advance_async(way, None)
    while not isinstance(need, _Done):
        if isinstance(need, Request):
            need = await _advance_async(way, await gate.ask_async(approver, need, wait))
        else:
            try:
                while not need.done:
                    await _step(need)
            except BaseException as error:
                await _stop(need, way, error)
                raise
            need = await _advance_async(way, None)
    return need.output


class _Streaming:
    """What both kinds of streams have."""

    def __init__(self, way: Way, streams: Streams, approver: Approver | None, wait: float) -> None:
        self._way = way
        self._approver = approver
        self._wait = wait
        self._started: Pump | None = None
        self._output: Output | None = None
        self._timer: Timer | TimerHandle | None = None
        self._chunks: list[Chunk] = []
        streams.out_sink = lambda data: self._chunks.append(("stdout", data))
        streams.err_sink = lambda data: self._chunks.append(("stderr", data))

    def cancel(self) -> None:
        """Kill the command, from any thread."""
        self._pump.kill()

    def signal(self, number: int) -> None:
        """Pass a signal on to the command."""
        self._pump.signal(number)

    @property
    def output(self) -> Output:
        """What came of it; only after the `with` block."""
        if self._output is None:
            msg = "the output is there after the `with` block"
            raise RuntimeError(msg)
        return self._output

    @property
    def _pump(self) -> Pump:
        if self._started is None:
            msg = "the stream has not been entered: use `with`"
            raise RuntimeError(msg)
        return self._started

    def _drain(self) -> list[Chunk]:
        taken = self._chunks[:]
        self._chunks.clear()
        return taken

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Stream(_Streaming):
    """A running command: iterate over its chunks, then look at `output`. Leaving early kills it."""

    def __enter__(self) -> Self:
        need = _advance(self._way, None)
        if isinstance(need, Request):
            need = _advance(self._way, gate.ask(self._approver, need, self._wait))
        self._started = pump = _a_pump(need)
        if pump.timeout is not None:
            # A consumer that takes its time must not stop the clock.
            import threading

            self._timer = timer = threading.Timer(pump.timeout, pump.expire)
            timer.daemon = True
            timer.start()
        return self

    def __iter__(self) -> Iterator[Chunk]:
        pump = self._pump
        while not pump.done:
            try:
                pump.step(pump.patience())
            except BaseException:
                pump.abandon()
                raise
            yield from self._drain()

    def __exit__(self, *_: object) -> None:
        self._stop_clock()
        self._pump.abandon()
        self._output = _a_result(_advance(self._way, None))


class AsyncStream(_Streaming):
    """The same for an event loop."""

    async def __aenter__(self) -> Self:
        need = await _advance_async(self._way, None)
        if isinstance(need, Request):
            answer = await gate.ask_async(self._approver, need, self._wait)
            need = await _advance_async(self._way, answer)
        self._started = pump = _a_pump(need)
        if pump.timeout is not None:
            import asyncio

            self._timer = asyncio.get_running_loop().call_later(pump.timeout, pump.expire)
        return self

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while not self._pump.done:
            await _step(self._pump)
            for chunk in self._drain():
                yield chunk

    async def __aexit__(self, *_exception: object) -> None:
        self._stop_clock()
        _, cancelled = await _surely(self._pump.abandon)
        self._output = _a_result(await _advance_async(self._way, None))
        if cancelled is not None:
            raise cancelled


class _Done:
    """The end of a way."""

    def __init__(self, output: Output) -> None:
        self.output = output


def _advance(way: Way, value: Answer | None) -> Request | Pump | _Done:
    try:
        return way.send(value)
    except StopIteration as end:
        return _Done(end.value)


async def _advance_async(way: Way, value: Answer | None) -> Request | Pump | _Done:
    """Advance on a worker thread, since starting a sandbox takes milliseconds.

    A cancellation that arrives meanwhile waits for the start, and then takes it back: otherwise the
    command would run on with nobody to wait for it.
    """
    need, cancelled = await _surely(lambda: _advance(way, value))
    if cancelled is not None:
        if isinstance(need, (_Done, Request)):
            way.close()
        else:
            await _stop(need, way, cancelled)
        raise cancelled
    return need


async def _surely(call: Callable[[], T]) -> tuple[T, BaseException | None]:
    """Run `call` on a worker thread to its end, however often this is cancelled meanwhile.

    Returns its result and the cancellation, if there was one, for the caller to act on.
    """
    import asyncio

    calling = asyncio.ensure_future(asyncio.to_thread(call))
    cancelled: BaseException | None = None
    while not calling.done():
        try:
            await asyncio.shield(calling)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:  # noqa: BLE001  # its own; `result` raises it below
            break
    return calling.result(), cancelled


async def _step(pump: Pump) -> None:
    """Wait in the event loop until the pump has something to do, and let it."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    patience = pump.patience()
    timer = None if patience is None else loop.call_later(patience, wake)
    loop.add_reader(pump.fileno(), wake)
    try:
        await ready
    finally:
        loop.remove_reader(pump.fileno())
        if timer is not None:
            timer.cancel()
    pump.step(0)


async def _stop(pump: Pump, way: Way, error: BaseException) -> None:
    import contextlib

    await _surely(pump.abandon)
    with contextlib.suppress(BaseException):  # the way raises `error` again once it has recorded it
        way.throw(error)


def _a_pump(need: Request | Pump | _Done) -> Pump:
    if isinstance(need, (Request, _Done)):
        msg = "a way asks once and then runs"
        raise TypeError(msg)
    return need


def _a_result(need: Request | Pump | _Done) -> Output:
    if not isinstance(need, _Done):
        msg = "a way ends after its command"
        raise TypeError(msg)
    return need.output
