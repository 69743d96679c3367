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
        if inspect.iscoroutinefunction(approver):
            return _checked(await asyncio.wait_for(approver(request), wait))
        return await asyncio.to_thread(ask, approver, request, wait)
    except TimeoutError:
        return _timed_out(wait)
    except Exception as error:  # noqa: BLE001  # whatever an approver raises is a refusal
        return _broken(error)


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
