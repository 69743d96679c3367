"""Step 4 of a command's way: ask whoever is there; silence and absence are a no."""

from __future__ import annotations

from ringfence.model.approval import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import NoReturn

    from ringfence.model.approval import Approver, Request

_NOBODY = Answer("deny", "nobody is there to ask", by="nobody")


def ask(approver: Approver | None, request: Request, wait: float) -> Answer:
    """Ask and wait at most `wait` seconds.

    The approver runs on a thread of its own, so that one which never answers costs a refusal, not the
    caller.
    """
    if approver is None:
        return _NOBODY
    import queue
    import threading

    replies: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            replies.put(_plain(approver(request)))
        except BaseException as error:  # noqa: BLE001  # whatever an approver raises is a refusal
            replies.put(error)

    threading.Thread(target=run, name="ringfence-approver", daemon=True).start()
    try:
        reply = replies.get(timeout=wait)
    except queue.Empty:
        return _timed_out(wait)
    return reply if isinstance(reply, Answer) else _broken(reply)


async def ask_async(approver: Approver | None, request: Request, wait: float) -> Answer:
    """Ask without blocking the event loop; `approver` may be a coroutine function or a plain one."""
    if approver is None:
        return _NOBODY
    import asyncio
    import inspect

    try:
        call = approver if inspect.isroutine(approver) else getattr(approver, "__call__", approver)  # noqa: B004  # it may be async
        if inspect.iscoroutinefunction(call):
            return _checked(await asyncio.wait_for(call(request), wait))
        return _checked(await asyncio.wait_for(_on_a_thread(approver, request), wait))
    except TimeoutError:
        return _timed_out(wait)
    except Exception as error:  # noqa: BLE001  # whatever an approver raises is a refusal
        return _broken(error)


async def _on_a_thread(approver: Approver, request: Request) -> Answer:
    """Run a plain approver on a thread of its own: people take long, and a pool would fill up."""
    import asyncio
    import contextlib
    import threading

    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()

    def settle(reply: Answer | BaseException) -> None:
        if not future.done():
            future.set_exception(reply) if isinstance(reply, BaseException) else future.set_result(reply)

    def run() -> None:
        reply: Answer | BaseException
        try:
            reply = _plain(approver(request))
        except Exception as error:  # noqa: BLE001  # whatever an approver raises is a refusal
            reply = error
        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(settle, reply)

    threading.Thread(target=run, name="ringfence-approver", daemon=True).start()
    return await future


def _plain(reply: Answer | Awaitable[Answer]) -> Answer:
    if hasattr(reply, "__await__"):
        import asyncio

        async def settle() -> Answer:
            return await reply

        return asyncio.run(settle())
    return _checked(reply)


def _checked(reply: object) -> Answer:
    if not isinstance(reply, Answer):
        _wrong(reply)
    return reply


def _wrong(reply: object) -> NoReturn:
    msg = f"an approver returns an Answer, not {type(reply).__name__}"
    raise TypeError(msg)


def _timed_out(wait: float) -> Answer:
    return Answer("deny", f"nobody answered within {wait:g} s", by="timeout")


def _broken(error: BaseException) -> Answer:
    return Answer("deny", f"the approver failed: {type(error).__name__}: {error}", by="failure")
