"""Mount points in private homes and /tmp that every command holds in place.

bubblewrap finds a mount's target by its path. A command that does not hold a directory could rename
it, and put a link in its place, while another command is being set up there. So the points of a
private directory are remembered beside it, every command mounts all of them, and a new one is added
only while no command runs that does not know it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from functools import lru_cache

from ringfence.errors import SandboxUnavailable
from ringfence.model.paths import covered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.sandbox.plan import Plan

# The directory beside it is named after a path, in which a `%` is always followed by digits.
_SUFFIX = "%points"
_MAX_BYTES = 2**16
_WAIT_SECONDS = 10.0


def remembered(target: str, source: str | None) -> tuple[str, ...]:
    """Return the points of the private directory `source`, as paths below `target`."""
    if source is None:
        return ()
    try:
        status = os.stat(source + _SUFFIX)
    except FileNotFoundError:
        return ()
    return _remembered(target, source, (status.st_ino, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=64)
def _remembered(target: str, source: str, version: tuple[int, ...]) -> tuple[str, ...]:  # noqa: ARG001  # what is cached
    with contextlib.suppress(FileNotFoundError), open(source + _SUFFIX, "rb") as file:
        return tuple(target + point for point in sorted(_split(file.read(_MAX_BYTES))))
    return ()


class Claim:
    """The points of a plan, held while a command runs."""

    def __init__(self, plan: Plan) -> None:
        """Hold them.

        Raises:
            SandboxUnavailable: commands run that do not hold them, or a point was added meanwhile.
        """
        self._held: list[tuple[int, str, set[str]]] = []
        try:
            for source, points in _points(plan).items():
                fd = os.open(source + _SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._held.append((fd, source, points))
                fcntl.flock(fd, fcntl.LOCK_SH)
                if not points <= _known(fd):
                    _add(fd, points)
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        for fd, source, points in self._held:
            # What lies below a point of ours is out of reach, and need not be held as well.
            known = _known(fd)
            if known != points and any(not covered(point, points) for point in known):
                raise SandboxUnavailable(
                    f"the mounts of {source} changed while the command was prepared",
                    hint="run it again",
                    reason="changed",
                )

    def pause(self) -> None:
        """Let others add points: nothing runs that could move one."""
        for fd, _, _ in self._held:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def resume(self) -> bool:
        """Hold them again; tell whether nobody has added one meanwhile."""
        try:
            for fd, _, _ in self._held:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._check()
        except (BlockingIOError, SandboxUnavailable):
            return False
        return True

    def close(self) -> None:
        """Let go of them."""
        for fd, _, _ in self._held:
            os.close(fd)
        self._held = []


def _points(plan: Plan) -> dict[str, set[str]]:
    """Return the directories that are mounted over in each private directory, as paths below it."""
    private = [m for m in plan.mounts if m.kind == "bind" and m.writable and not m.is_real and not m.within]
    found: dict[str, set[str]] = {m.source: set() for m in private}
    roots = {m.target: m for m in private}
    for mount in plan.mounts:
        # What surrounds a mount comes before it, and belongs to the same private directory.
        root = roots.get(mount.around)
        if root is not None and mount.kind in {"bind", "tmpfs"}:
            found[root.source].add(mount.target[len(root.target) :])
            if mount.within == root.source:
                roots[mount.target] = root
    return found


def _split(data: bytes) -> set[str]:
    return {os.fsdecode(name) for name in data.split(b"\0") if name}


def _known(fd: int) -> set[str]:
    return _split(os.pread(fd, _MAX_BYTES, 0))


def _add(fd: int, points: set[str]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise SandboxUnavailable(
                    "another command runs in this workspace that was started with another PATH or other grants",
                    hint="wait for it to end, or stop it",
                    reason="busy",
                ) from None
            time.sleep(0.01)
    data = b"\0".join(os.fsencode(point) for point in sorted(points | _known(fd)))
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)
    fcntl.flock(fd, fcntl.LOCK_SH)
