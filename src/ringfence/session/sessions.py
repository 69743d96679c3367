"""The sessions of one Fence: made once, shared by every thread, gone with it."""

from __future__ import annotations

import _thread
import contextlib
import os
import time

from ringfence.errors import SessionError
from ringfence.sandbox.leases import Leases
from ringfence.session import home, workspace
from ringfence.session.places import private_directory
from ringfence.session.shelf import EPHEMERAL, Shelf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from ringfence.model.capabilities import Capabilities
    from ringfence.session.places import Places

    class Cancellable(Protocol):
        """A running command as its session sees it."""

        def kill(self) -> None:
            """Kill its whole tree."""

        def expire(self) -> None:
            """End it as its timeout does."""

        def signal(self, number: int) -> None:
            """Pass a signal on to it."""


_CLOSE_SECONDS = 6.0


class SessionState:
    """What one session has: its directories, its baseline, and what was granted on top."""

    def __init__(
        self,
        session_id: str,
        *,
        workspace: str,
        baseline: Capabilities,
        private_home: str | None,
        scratch: str | None,
        warm: bool,
        undo: contextlib.ExitStack,
    ) -> None:
        self.id = session_id
        self.workspace = workspace
        self.baseline = baseline
        self.private_home = private_home
        self.scratch = scratch
        self.closed = False
        self.users = 0
        self.undo = undo
        self.warm = warm
        self.leases = Leases()
        self._granted: frozenset[Capabilities] = frozenset()
        self._lock = _thread.allocate_lock()
        self._running: set[Cancellable] = set()

    @property
    def granted(self) -> frozenset[Capabilities]:
        """The elevations that were approved for the rest of the session."""
        return self._granted

    def grant(self, capabilities: Capabilities) -> None:
        """Remember an approved elevation."""
        with self._lock:
            self._granted |= {capabilities}

    @contextlib.contextmanager
    def running(self, command: Cancellable) -> Iterator[None]:
        """Keep a command at hand while it runs."""
        with self._lock:
            if self.closed:
                msg = f"the session {self.id} is closed"
                raise SessionError(msg, hint="open a new one")
            self._running.add(command)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(command)

    def commands(self) -> list[Cancellable]:
        """Return what runs now."""
        # Copying a set is atomic, and a signal handler that calls this may not wait for a lock.
        return list(self._running)

    def cancel(self) -> None:
        """Kill every command that runs in this session; from any thread."""
        for command in self.commands():
            command.kill()

    def close(self) -> None:
        """Kill what runs, wait for its end, and remove what belonged to this session alone."""
        with self._lock:
            self.closed = True
        self.cancel()
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._running and time.monotonic() < deadline:
            time.sleep(0.005)
        self.leases.close()
        self.undo.close()


class Sessions:
    """The open sessions by their ids; opened once, and closed with their last user."""

    def __init__(self, places: Places, baseline: Callable[[str], Capabilities]) -> None:
        self._places = places
        self._baseline = baseline
        self._open: dict[str, SessionState] = {}
        self._lock = _thread.allocate_lock()

    def get(self, session_id: str) -> SessionState:
        """Return the open session of that id.

        Raises:
            SessionError: there is none.
        """
        state = self._open.get(session_id)
        if state is None:
            msg = f"there is no open session {session_id!r}"
            raise SessionError(msg, hint=f"open it first: fence.session({session_id!r})")
        return state

    def open(
        self, session_id: str | None, directory: str | os.PathLike[str] | None, *, single_use: bool = False
    ) -> SessionState:
        """Open a session.

        Without an id it is ephemeral: what it leaves is removed when it closes. `single_use` says that
        one command is all there will be, so that its /tmp can live in memory.

        Raises:
            SessionError: the workspace cannot be used, or the session is open on another one.
        """
        with self._lock:
            state = self._open.get(session_id) if session_id is not None else None
            if state is None:
                state = self._make(session_id, directory, single_use=single_use)
                self._open[state.id] = state
            elif directory is not None and workspace.check(directory, self._places) != state.workspace:
                msg = f"the session {session_id} is open on {state.workspace}"
                raise SessionError(msg, hint="use another id, or close it first")
            state.users += 1
            return state

    def _make(
        self, session_id: str | None, directory: str | os.PathLike[str] | None, *, single_use: bool
    ) -> SessionState:
        root = private_directory(self._places.state)
        ephemeral = session_id is None
        name = EPHEMERAL + os.urandom(8).hex() if session_id is None else workspace.directory_name(session_id)
        with contextlib.ExitStack() as undo:
            if directory is None:
                shelf = Shelf(os.path.join(root, "workspaces"), keep=True)
                place = _take(shelf, name, undo, remove=ephemeral)
            else:
                place = workspace.check(directory, self._places)
            private_home: str | None = None
            if not (ephemeral and directory is None):
                private_home = home.private_home(self._places, workspace.name_of(place))
            scratch: str | None = None
            if not single_use:
                shelf = Shelf(os.path.join(root, "scratch"), keep=False)
                # A session may work in several places over time; its /tmp goes with the place.
                suffix = "" if ephemeral else "-" + workspace.directory_name(place)[:16]
                scratch = _take(shelf, name + suffix, undo, remove=ephemeral)
            return SessionState(
                name if session_id is None else session_id,
                workspace=place,
                baseline=self._baseline(place),
                private_home=private_home,
                scratch=scratch,
                warm=not single_use,
                undo=undo.pop_all(),
            )

    def settle(self, state: SessionState) -> None:
        """Give a session a home and a /tmp on disk, for a backend that cannot keep them in memory."""
        with self._lock:
            shelf = Shelf(os.path.join(self._places.state, "scratch"), keep=False)
            if state.private_home is None:
                state.private_home = _take(shelf, EPHEMERAL + os.urandom(8).hex(), state.undo, remove=True)
            if state.scratch is None:
                state.scratch = _take(shelf, EPHEMERAL + os.urandom(8).hex(), state.undo, remove=True)

    def close(self, session_id: str) -> None:
        """Close one session, if nobody else has it open."""
        with self._lock:
            state = self._open.get(session_id)
            if state is None:
                return
            state.users -= 1
            if state.users > 0:
                return
            del self._open[session_id]
        state.close()

    def close_all(self) -> None:
        """Close all of them."""
        while self._open:
            self.close(next(iter(self._open)))


def _take(shelf: Shelf, name: str, undo: contextlib.ExitStack, *, remove: bool) -> str:
    """Take a directory from a shelf until `undo`; sweep what others left there."""
    shelf.sweep()
    path, lock = shelf.take(name)
    if remove:
        undo.callback(shelf.remove, name, lock)
    else:
        undo.callback(os.close, lock)
    return path
