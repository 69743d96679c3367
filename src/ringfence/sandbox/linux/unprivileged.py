"""Starting a program as an unprivileged user with mounts that only root can make.

One thread does this for the whole process. It has a mount namespace of its own, in which the sources
of a plan are attached; when it starts a program, it takes the unprivileged user's identity for that
moment. The program inherits both, and nothing else in this process notices.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import stat

from ringfence.sandbox.linux import idmap
from ringfence.sandbox.spawn import Starter, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeVar

    T = TypeVar("T")

# Hidden by our own tmpfs, in our own namespace; bubblewrap itself needs /tmp.
_STAGE = "/mnt"
_NEW_MOUNTS = 0x00020000
_SLAVE = 0x4000 | 0x80000  # recursively: what the host mounts and unmounts is seen here, and never the reverse
_PRIVATE = 0x40000
_DETACH = 2
_KEEP = -1
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
# Raw calls: the C library's own would change every thread of the process.
_NUMBERS = {"x86_64": (117, 119, 116), "aarch64": (147, 149, 159)}

_libc = ctypes.CDLL(None, use_errno=True)


def supported() -> bool:
    """Tell whether identities can be changed for one thread on this architecture."""
    return os.uname().machine in _NUMBERS and os.path.isdir(_STAGE)


class Staged:
    """The sources of one plan, attached where the thread's programs can bind them."""

    def __init__(self, thread: RootThread, name: str, paths: Mapping[str, str]) -> None:
        self.paths = paths
        self._thread = thread
        self._name = name

    def spawn(
        self,
        path: str,
        argv: Sequence[str],
        *,
        standard: tuple[int, int, int],
        keep: Iterable[int],
        within: AbstractContextManager[None] | None = None,
    ) -> int:
        """Start a program as the unprivileged user; see `spawn.spawn`."""
        for fd in standard:
            # Through /dev/stdout a program opens its pipe once more, by its owner's rights.
            os.fchown(fd, idmap.UID, idmap.UID)
        kept = tuple(keep)
        return self._thread.as_user(lambda: start(path, argv, env={}, standard=standard, keep=kept), within=within)

    def close(self) -> None:
        """Take the sources away, without waiting for it; what has been mounted from them stays."""
        self._thread.later(lambda: _unstage(self._name, len(self.paths)))


class RootThread(Starter):
    """The thread with a mount namespace of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self.call(_own_namespace)

    def as_user(self, call: Callable[[], T], *, within: AbstractContextManager[None] | None = None) -> T:
        """Run `call` there with the unprivileged user's identity, and within what root has to enter first."""

        def run() -> T:
            with within or contextlib.nullcontext(), _identity():
                return call()

        return self.call(run)

    def stage(self, sources: Mapping[str, int]) -> Staged:
        """Attach copies of `sources`, by target, with root's files as the user's."""
        name = f"{_STAGE}/{next(self._numbers)}"
        with contextlib.ExitStack() as closing:
            trees: dict[str, int] = {}
            for target, fd in sources.items():
                # Copied here: the kernel copies only what lies in the caller's own namespace.
                trees[target] = idmap.clone_mount(fd)
                closing.callback(os.close, trees[target])
            try:
                return Staged(self, name, self.call(lambda: _attach(name, trees)))
            except BaseException:
                self.call(lambda: _unstage(name, len(trees)))
                raise


def _attach(name: str, trees: Mapping[str, int]) -> dict[str, str]:
    os.mkdir(name, 0o755)
    paths: dict[str, str] = {}
    for index, (target, tree) in enumerate(trees.items()):
        paths[target] = path = f"{name}/{index}"
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.mkdir(path, 0o755)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        idmap.attach(tree, path)
    return paths


def _unstage(name: str, count: int) -> None:
    for index in range(count):
        path = f"{name}/{index}"
        _libc.umount2(os.fsencode(path), _DETACH)
        with contextlib.suppress(OSError):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(name)


def _own_namespace() -> None:
    _checked(_libc.unshare(_NEW_MOUNTS))
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_SLAVE), None))
    _checked(_libc.mount(b"ringfence", _STAGE.encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=755"))
    _checked(_libc.mount(None, _STAGE.encode(), None, ctypes.c_ulong(_PRIVATE), None))
    # Ambient capabilities would survive the change of identity, and bubblewrap refuses them.
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def _identity() -> Iterator[None]:
    """Be the unprivileged user on this thread; the saved ids are kept, so that there is a way back."""
    set_users, set_groups, set_list = _NUMBERS[os.uname().machine]
    groups = os.getgroups()
    dumpable = _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)

    def ids(number: int, *values: int) -> None:
        _checked(min(0, _libc.syscall(ctypes.c_long(number), *map(ctypes.c_int, values))))

    def groups_are(values: Sequence[int]) -> None:
        array = (ctypes.c_uint32 * len(values))(*values)
        _checked(_libc.syscall(ctypes.c_long(set_list), ctypes.c_size_t(len(values)), array))

    groups_are(())
    try:
        ids(set_groups, idmap.UID, idmap.UID, _KEEP)
        ids(set_users, idmap.UID, idmap.UID, _KEEP)
        yield
    finally:
        ids(set_users, 0, 0, _KEEP)
        ids(set_groups, 0, 0, _KEEP)
        groups_are(groups)
        # Changing identity has made the whole process undumpable, which is not ours to decide.
        if dumpable == 1:
            _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
