"""Starting one program with exactly the descriptors it is given."""

from __future__ import annotations

import _thread
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from queue import SimpleQueue
    from typing import ClassVar, Self, TypeVar

    T = TypeVar("T")

_STANDARD = 3
# Python ignores SIGPIPE and SIGXFSZ; a command must not inherit that, nor anything a host program set.
_SIGNALS = tuple(n for n in range(1, 65) if n not in {9, 19, 32, 33})


class _FirstUse:
    """Lets one thread at a time make what the others then share; a forked child starts anew."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = _thread.allocate_lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


FIRST_USE = _FirstUse()


def pipe() -> tuple[int, int]:
    """Make a pipe whose ends are never 0, 1 or 2, even where the caller has closed those."""
    ends = os.pipe()
    return lifted(ends[0]), lifted(ends[1])


def lifted(fd: int) -> int:
    """Move a descriptor out of the range of the standard ones."""
    if fd >= _STANDARD:
        return fd
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD)
    os.close(fd)
    return high


def spawn(
    path: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    standard: tuple[int, int, int],
    keep: Iterable[int] = (),
    cwd: str | None = None,
    within: AbstractContextManager[None] | None = None,
) -> int:
    """Start `path` in a process group of its own and return its process id.

    It gets `standard` as 0, 1, 2, the descriptors in `keep` under their own numbers, and no others.
    `within` is entered by the thread that starts it, for that moment.
    """

    def begin() -> int:
        if within is None:
            return start(path, argv, env=env, standard=standard, keep=keep, cwd=cwd)
        with within:
            return start(path, argv, env=env, standard=standard, keep=keep, cwd=cwd)

    return on_lasting_thread(begin)


def start(
    path: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    standard: tuple[int, int, int],
    keep: Iterable[int] = (),
    cwd: str | None = None,
) -> int:
    """Do what `spawn` does on the calling thread, with its identity and namespaces."""
    kept = set(keep)
    actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(standard)]
    # Duplicating a descriptor onto itself in the child clears its close-on-exec flag there alone.
    actions += [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in kept]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable() if fd not in kept]
    if cwd is not None:
        argv = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"', cwd, path, *argv[1:])
        path = "/bin/sh"
    return os.posix_spawn(
        path,
        list(argv),
        env,
        file_actions=actions,
        setpgroup=0,
        setsigmask=(),
        setsigdef=_SIGNALS,
    )


def _inheritable() -> list[int]:
    """Find descriptors that other code in this process left open for children."""
    found = []
    for name in os.listdir("/proc/thread-self/fd"):
        fd = int(name)
        try:
            if fd >= _STANDARD and os.get_inheritable(fd):
                found.append(fd)
        except OSError:
            continue  # it was the listing's own
    return found


def on_lasting_thread(call: Callable[[], T]) -> T:
    """Run `call` on a thread that lives as long as this process.

    The kernel's "kill me when my parent dies" follows the thread that started a program, not its
    process: a command started by a worker thread would die with that thread.
    """
    if _thread.get_native_id() == os.getpid():  # the first thread of a process has its number
        return call()
    return Starter.current().call(call)


class Starter:
    """One thread that starts programs for all the others."""

    _instance: ClassVar[Self | None] = None

    def __init__(self) -> None:
        # The low-level modules: `threading` and `queue` take 6 ms to import.
        import _queue

        self._pid = os.getpid()
        self._calls: SimpleQueue[Callable[[], None]] = _queue.SimpleQueue()
        _thread.start_new_thread(self._serve, ())

    @classmethod
    def current(cls) -> Self:
        """Return this process's own: after a fork the thread is not there any more."""
        with FIRST_USE:
            # Looked up in the class's own body: a subclass must not find its parent's.
            starter: Self | None = cls.__dict__.get("_instance")
            if starter is None or starter._pid != os.getpid():
                starter = cls._instance = cls()
            return starter

    def _serve(self) -> None:
        while True:
            self._calls.get()()

    def later(self, call: Callable[[], None]) -> None:
        """Run `call` there some time soon; it must not fail."""
        self._calls.put(call)

    def call(self, call: Callable[[], T]) -> T:
        """Run `call` there and return what it returns."""
        done = _thread.allocate_lock()
        done.acquire()
        result: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(call())
            except BaseException as error:  # noqa: BLE001  # raised again in the calling thread
                failure.append(error)
            finally:
                done.release()

        self._calls.put(run)
        done.acquire()
        if failure:
            raise failure[0]
        return result[0]
