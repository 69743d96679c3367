"""Looking at the machine before each command, and remembering what need not be looked at again."""

from __future__ import annotations

import os
import stat
import time

from ringfence.sandbox.linux.bubblewrap import can_drop_root
from ringfence.sandbox.survey import host_sockets, in_view, look, to_hide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.capabilities import Capabilities
    from ringfence.sandbox.survey import Survey

_SOCKETS_SECONDS = 1.0
_MOST_REMEMBERED = 64


class Lookout:
    """One Fence's view of the machine: its toolchains once, what must be hidden every time."""

    def __init__(self, *, home: str, path: str, own: tuple[str, ...]) -> None:
        """`path` is the caller's PATH, `own` are our configuration and state."""
        self._home = home
        self._path = path
        self._own = own
        self._base: Survey | None = None
        self._sockets: tuple[tuple[str, ...], float, tuple[str, ...]] = ((), 0.0, ())
        self._surveys: dict[object, Survey] = {}

    def look(
        self, wanted: Capabilities, *, workspace: str, hidden: tuple[str, ...], private: tuple[str | None, ...]
    ) -> Survey:
        """Return the facts for a plan: `hidden` are names in the workspace, `private` our own directories for it.

        Where everything that could matter is as it was, so is the answer.
        """
        secrets = [f"{workspace}/{name}" for name in hidden]
        shown = (workspace, *wanted.read, *wanted.write)
        sockets = self._host_sockets(shown)
        kinds = tuple(map(_kind, (*secrets, *self._own, *in_view(self._home, shown))))
        key = (wanted.read, wanted.write, private, workspace, hidden, sockets, kinds)
        survey = self._surveys.get(key)
        if survey is None:
            if len(self._surveys) >= _MOST_REMEMBERED:
                self._surveys.clear()
            survey = self._surveys[key] = self._survey(wanted, workspace, private, tuple(secrets), shown, sockets)
        return survey

    def _survey(  # noqa: PLR0917  # what `look` has worked out
        self,
        wanted: Capabilities,
        workspace: str,
        private: tuple[str | None, ...],
        secrets: tuple[str, ...],
        shown: tuple[str, ...],
        sockets: tuple[str, ...],
    ) -> Survey:
        if self._base is None:
            self._base = look(home=self._home, path=self._path, own=self._own)
        survey = to_hide(self._base, self._own, secrets=secrets, shown=shown, writable=wanted.write, sockets=sockets)
        if not survey.as_root or "/" in wanted.write:
            return survey
        tools = (place.real for place in survey.toolchains)
        given = (workspace, *private, *wanted.read, *wanted.write, *tools)
        return survey.replace(drops_root=can_drop_root(tuple(path for path in given if path)))

    def _host_sockets(self, shown: tuple[str, ...]) -> tuple[str, ...]:
        """Find the host's sockets in what is shown, at most once a second: the kernel takes its time to list them."""
        now = time.monotonic()
        if self._sockets[0] != shown or now - self._sockets[1] > _SOCKETS_SECONDS:
            self._sockets = (shown, now, host_sockets(shown))
        return self._sockets[2]


def _kind(path: str) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0
