"""The sessions of one Fence: made once, shared by every thread, gone with it."""

from __future__ import annotations

import _thread
import contextlib
import os
import time

from ringfence.errors import SessionError
from ringfence.session import home, workspace
from ringfence.session.places import private_directory

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


_IDLE_SECONDS = 7 * 24 * 3600


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
        remove: tuple[str, ...],
    ) -> None:
        self.id = session_id
        self.workspace = workspace
        self.baseline = baseline
        self.private_home = private_home
        self.scratch = scratch
        self.closed = False
        self._remove = remove
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
        """Kill what runs, and remove what belonged to this session alone."""
        with self._lock:
            self.closed = True
        self.cancel()
        for path in self._remove:
            remove_tree(path)


class Sessions:
    """Finds a session by its id, making it on first use."""

    def __init__(self, places: Places, baseline: Callable[[str], Capabilities]) -> None:
        self._places = places
        self._baseline = baseline
        self._open: dict[str, SessionState] = {}
        self._lock = _thread.allocate_lock()

    def get(self, session_id: str) -> SessionState:
        """Return the open session of that id; a new one gets a private workspace."""
        # Reading a dict is atomic; only making a session needs the lock, and looks again inside it.
        return self._open.get(session_id) or self.open(session_id, None)

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
            return state

    def _make(
        self, session_id: str | None, directory: str | os.PathLike[str] | None, *, single_use: bool
    ) -> SessionState:
        root = private_directory(self._places.state)
        name = "run-" + os.urandom(8).hex() if session_id is None else workspace.directory_name(session_id)
        remove: list[str] = []
        private_home: str | None = None
        if directory is None:
            place = private_directory(os.path.join(private_directory(os.path.join(root, "workspaces")), name))
            if session_id is None:
                remove.append(place)
        else:
            place = workspace.check(directory, self._places)
        if session_id is not None or directory is not None:
            private_home = home.private_home(self._places, workspace.name_of(place))
        scratch: str | None = None
        if not single_use:
            shelf = private_directory(os.path.join(root, "scratch"))
            _sweep(shelf)
            # A session may work in several places over time; its /tmp goes with the place.
            suffix = "" if session_id is None else "-" + workspace.directory_name(place)[:16]
            scratch = private_directory(os.path.join(shelf, name + suffix))
            os.utime(scratch)
            if session_id is None:
                remove.append(scratch)
        return SessionState(
            name if session_id is None else session_id,
            workspace=place,
            baseline=self._baseline(place),
            private_home=private_home,
            scratch=scratch,
            remove=tuple(remove),
        )

    def close(self, session_id: str) -> None:
        """Close one session."""
        with self._lock:
            state = self._open.pop(session_id, None)
        if state:
            state.close()

    def close_all(self) -> None:
        """Close all of them."""
        for session_id in list(self._open):
            self.close(session_id)


def _sweep(shelf: str) -> None:
    """Remove scratch directories that no session used for a week."""
    limit = time.time() - _IDLE_SECONDS
    for entry in os.scandir(shelf):
        if entry.stat(follow_symlinks=False).st_mtime < limit:
            remove_tree(entry.path)


def remove_tree(path: str) -> None:
    """Remove a directory of ours that dead commands wrote into; what resists stays and is no error."""
    import shutil

    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        # A command may have closed its directories, or nested thousands of them; these two cope.
        import subprocess

        for tool in (("/bin/chmod", "-R", "u+rwx"), ("/bin/rm", "-rf")):
            subprocess.run([*tool, "--", path], check=False, capture_output=True, stdin=subprocess.DEVNULL)
