"""Mounts that show root's files as an unprivileged user's, for commands that root starts.

A user namespace does not take root's power over files away: what acts as uid 0 inside acts as uid 0
outside wherever permissions are checked. So a command that root starts runs under a user id that
belongs to nobody, and what it is given is mounted so that root's files appear as that user's. On the
disk they stay root's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

from ringfence.sandbox.spawn import FIRST_USE, lifted, pipe

# Belongs to nobody: above what accounts, containers and services are given.
UID = 0x70000000

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442  # the same on every architecture
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_CLONE, _CLOEXEC = 1, 0o2000000
_IDMAP = 0x00100000
_MOVE_FROM_FD = 4
_UNSHARE = "/usr/bin/unshare"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_namespace: list[int] = []
_by_device: dict[int, bool] = {}


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def clone_mount(fd: int) -> int:
    """Return a detached copy of what `fd` shows, with root's files as the unprivileged user's.

    Raises:
        OSError: the file system cannot.
    """
    mapping = _mapping()
    flags = _CLONE | _CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
    tree = lifted(_call(_SYS_OPEN_TREE, ctypes.c_int(fd), ctypes.c_char_p(b""), ctypes.c_uint(flags)))
    try:
        try:
            _map(tree, mapping, _AT_EMPTY_PATH | _AT_RECURSIVE)
        except OSError:
            # Something mounted below it cannot be shown this way; it keeps its owners.
            _map(tree, mapping, _AT_EMPTY_PATH)
    except BaseException:
        os.close(tree)
        raise
    return tree


def _map(tree: int, mapping: int, flags: int) -> None:
    attributes = struct.pack("=QQQQ", _IDMAP, 0, 0, mapping)
    _call(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(tree),
        ctypes.c_char_p(b""),
        ctypes.c_uint(flags),
        ctypes.c_char_p(attributes),
        ctypes.c_size_t(len(attributes)),
    )


def attach(tree: int, path: str) -> None:
    """Attach a detached mount in the calling thread's mount namespace."""
    _call(
        _SYS_MOVE_MOUNT,
        ctypes.c_int(tree),
        ctypes.c_char_p(b""),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_uint(_MOVE_FROM_FD),
    )


def supported(paths: tuple[str, ...]) -> bool:
    """Tell whether each of these lies on a file system that can be shown this way; tried once for each."""
    for path in paths:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # whoever mounts it will say so
        try:
            device = os.fstat(fd).st_dev
            if device not in _by_device:
                _by_device[device] = _tried(fd)
        finally:
            os.close(fd)
        if not _by_device[device]:
            return False
    return True


def _tried(fd: int) -> bool:
    try:
        os.close(clone_mount(fd))
    except OSError:
        return False
    return True


def _mapping() -> int:
    """Return a user namespace in which root is the unprivileged user, and everybody else is himself."""
    with FIRST_USE:
        if not _namespace:
            _namespace.append(_make_mapping())
        return _namespace[0]


def _make_mapping() -> int:
    their_input, our_output = pipe()
    our_input, their_output = pipe()
    with contextlib.ExitStack() as closing:
        for fd in (our_output, our_input):
            closing.callback(os.close, fd)
        try:
            # A process must be in the namespace while its maps are written, and may then end.
            pid = os.posix_spawn(
                _UNSHARE,
                [_UNSHARE, "--user", "/bin/sh", "-c", "echo; read _"],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, their_input, 0), (os.POSIX_SPAWN_DUP2, their_output, 1)],
            )
        finally:
            os.close(their_input)
            os.close(their_output)
        try:
            if os.read(our_input, 1) != b"\n":
                raise OSError(0, "no user namespace could be made")
            for kind in ("uid_map", "gid_map"):
                with open(f"/proc/{pid}/{kind}", "w", encoding="ascii") as file:
                    file.write(f"0 {UID} 1\n1 1 {UID - 1}\n")
            return lifted(os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))
        finally:
            closing.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
