"""Directories of ours that commands write into: made, kept from others while in use, and removed.

Whatever lies in them was put there by commands, so they are only ever walked by descriptor and never
through a link, and how long they were idle is told by a lock file beside them, not by their own times.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from ringfence.session.places import private_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

EPHEMERAL = "run-"
_LOCK = ".lock"
# What lies beside a directory and goes with it; the second is written by `sandbox/linux/points.py`.
BESIDE = (_LOCK, "%points")
_IDLE_SECONDS = 7 * 24 * 3600


class Shelf:
    """A directory of directories, each with a lock that its users share."""

    def __init__(self, path: str, *, keep: bool) -> None:
        """`keep` says that what has a session's name is somebody's work, however long it lies there."""
        self.path = private_directory(path)
        self._keep = keep

    def take(self, name: str) -> tuple[str, int]:
        """Make the directory `name`, and return its path and the lock that keeps it from being swept."""
        lock = os.open(os.path.join(self.path, name + _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(lock)
        return private_directory(os.path.join(self.path, name)), lock

    def remove(self, name: str, lock: int) -> None:
        """Remove a directory whose only user we are."""
        path = os.path.join(self.path, name)
        remove_tree(path)
        # What resisted keeps its lock, and is tried again by the next sweep.
        for suffix in () if os.path.lexists(path) else BESIDE:
            with contextlib.suppress(OSError):
                os.unlink(path + suffix)
        os.close(lock)

    def sweep(self) -> None:
        """Remove what nobody uses: ephemeral directories at once, and others after a week unless they are kept."""
        limit = time.time() - _IDLE_SECONDS
        for entry in os.listdir(self.path):
            name = entry.removesuffix(_LOCK)
            if entry == name:
                continue
            # Whatever vanishes meanwhile is swept by another process.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                path = os.path.join(self.path, entry)
                idle = not self._keep and os.stat(path).st_mtime < limit
                if name.startswith(EPHEMERAL) or idle:
                    lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        os.close(lock)
                        raise
                    self.remove(name, lock)


def remove_tree(path: str) -> None:
    """Remove a tree that dead commands wrote; what resists stays and is no error.

    Directories that lie deeper are moved up before they are looked into: however deep a command
    nested them, only one is open at a time.
    """
    with contextlib.suppress(OSError):
        root = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _empty(root)
        finally:
            os.close(root)
        os.rmdir(path)


def _empty(root: int) -> None:
    moved = 0
    for _ in range(10_000_000):
        names = list(_names(root))
        if not names:
            return
        for name in names:
            if not _unlinked(root, name):
                moved = _flattened(root, name, moved)


def _flattened(root: int, name: str, moved: int) -> int:
    """Move the directories in `name` up to `root`, remove its files, and then itself."""
    inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    try:
        for child in _names(inner):
            if not _unlinked(inner, child):
                # A directory that is closed to us cannot be moved either.
                _open_up(inner, child)
                moved += 1
                # A name that no command can have put in the way.
                os.rename(child, f"{moved:x}.{os.urandom(12).hex()}", src_dir_fd=inner, dst_dir_fd=root)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=root)
    return moved


def _names(directory: int) -> Iterator[str]:
    """List a directory, giving ourselves the right to do so first."""
    os.chmod(f"/proc/self/fd/{directory}", 0o700)
    with os.scandir(f"/proc/self/fd/{directory}") as entries:
        yield from [entry.name for entry in entries]


def _open_up(directory: int, name: str) -> None:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def _unlinked(directory: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=directory)
    except (IsADirectoryError, PermissionError):
        return False
    return True
