"""The enclosures of one session: lent to one command at a time, kept warm in between, and closed in the end."""

from __future__ import annotations

import _thread
import contextlib
import os
import time

from ringfence.errors import RingfenceError, SandboxUnavailable
from ringfence.sandbox.backend import StaleEnclosure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.sandbox.backend import Backend, Enclosure, Launch, Running
    from ringfence.sandbox.plan import Plan

_MOST_IDLE = 4
_IDLE_SECONDS = 60.0
_TRIES = 4


class Leases:
    """What is idle, by plan. A command takes one that fits, or opens its own."""

    def __init__(self) -> None:
        self._idle: list[tuple[Plan, Enclosure, float]] = []
        self._lock = _thread.allocate_lock()
        self._closed = False
        self._sweeping = False
        self._warming = 0
        self._pid = os.getpid()

    def start(self, backend: Backend, plan: Plan, launch: Launch) -> tuple[Enclosure, Running]:
        """Start a command in an enclosure of that plan.

        Raises:
            RingfenceError: it did not start.
        """
        for _ in range(_TRIES):
            enclosure = self._take(backend, plan)
            try:
                return enclosure, enclosure.run(launch)
            except StaleEnclosure:
                enclosure.close()
            except BaseException:
                self.give_back(plan, enclosure)
                raise
        raise SandboxUnavailable(
            "one enclosure after another went away before the command could start",
            hint="see `ringfence status`; something on this machine ends them",
            reason="gone",
        )

    def _after_fork(self) -> None:
        """Start anew in a forked child: the enclosures are its parent's, and so are the threads."""
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]

    def _take(self, backend: Backend, plan: Plan) -> Enclosure:
        self._after_fork()
        if plan.warm:
            while self._warming:
                # One is on its way; it was begun earlier, so waiting for it is shorter than another start.
                time.sleep(0.0005)
            while enclosure := self._pop(plan):
                if enclosure.reusable:
                    return enclosure
                enclosure.close()
        return backend.open(plan)

    def _pop(self, plan: Plan) -> Enclosure | None:
        with self._lock:
            for index, (known, enclosure, _) in enumerate(self._idle):
                if known == plan:
                    del self._idle[index]
                    return enclosure
        return None

    def give_back(self, plan: Plan, enclosure: Enclosure) -> None:
        """Keep an enclosure for the next command, if it is good for one."""
        self._after_fork()
        if not enclosure.reusable:
            enclosure.close()
            return
        with self._lock:
            surplus = [enclosure]
            if not self._closed:
                self._idle.append((plan, enclosure, time.monotonic()))
                surplus = [old for _, old, _ in self._idle[:-_MOST_IDLE]]
                self._idle = self._idle[-_MOST_IDLE:]
                if not self._sweeping:
                    self._sweeping = True
                    _thread.start_new_thread(self._sweep, ())
        for old in surplus:
            old.close()

    def warm_up(self, make: Callable[[], tuple[Plan, Enclosure] | None]) -> None:
        """Open an enclosure on another thread, without waiting for it; what fails there is said by the next start."""
        self._warming += 1

        def run() -> None:
            try:
                with contextlib.suppress(RingfenceError, OSError):
                    made = make()
                    if made is not None:
                        self.give_back(*made)
            finally:
                self._warming -= 1

        try:
            _thread.start_new_thread(run, ())
        except BaseException:
            self._warming -= 1
            raise

    def _sweep(self) -> None:
        """Close what nobody has used for a while."""
        while True:
            time.sleep(_IDLE_SECONDS / 4)
            limit = time.monotonic() - _IDLE_SECONDS
            with self._lock:
                stale = [enclosure for _, enclosure, since in self._idle if since < limit]
                self._idle = [entry for entry in self._idle if entry[2] >= limit]
                if not self._idle:
                    self._sweeping = False
            for enclosure in stale:
                enclosure.close()
            if not self._sweeping:
                return

    def close(self) -> None:
        """Close them all, and what is on its way."""
        self._after_fork()
        with self._lock:
            self._closed = True
        while self._warming:
            time.sleep(0.0005)
        with self._lock:
            idle, self._idle = self._idle, []
        for _, enclosure, _ in idle:
            enclosure.close()
