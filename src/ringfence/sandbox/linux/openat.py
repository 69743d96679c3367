"""Opening files so that nothing planted on the way can redirect it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os

from ringfence.sandbox.spawn import lifted

_SYS_OPENAT2 = 437  # the same on every architecture
_AT_FDCWD = -100
_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    fd: int = _libc.syscall(
        ctypes.c_long(_SYS_OPENAT2),
        ctypes.c_int(directory),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return lifted(fd)


def open_exact(path: str, flags: int = os.O_PATH) -> int:
    """Open an absolute path in which no component is a link.

    Raises:
        OSError: ELOOP where one is.
    """
    return _openat2(_AT_FDCWD, path, flags, _NO_SYMLINKS | _NO_MAGICLINKS)


def open_beneath(directory: int, path: str, flags: int = os.O_PATH) -> int:
    """Open a relative path that stays below `directory` and has no link in it.

    Raises:
        OSError: ELOOP or EXDEV where it would leave.
    """
    return _openat2(directory, path, flags, _NO_SYMLINKS | _NO_MAGICLINKS | _BENEATH)


def _make(name: str, directory: int, *, is_dir: bool) -> None:
    if is_dir:
        os.mkdir(name, 0o700, dir_fd=directory)
    else:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        os.close(os.open(name, flags, 0o600, dir_fd=directory))


def make_beneath(directory: int, path: str, *, is_dir: bool) -> int:
    """Open `path` below `directory`, creating its directories, or an empty file at its end, where missing.

    Raises:
        OSError: something on the way is a link, or not a directory.
    """
    at = os.dup(directory)
    parts = path.split("/")
    try:
        for index, part in enumerate(parts):
            want_dir = is_dir or index < len(parts) - 1
            try:
                below = open_beneath(at, part, os.O_PATH | (os.O_DIRECTORY if want_dir else 0))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                with contextlib.suppress(FileExistsError):  # another command's start was faster
                    _make(part, at, is_dir=want_dir)
                below = open_beneath(at, part, os.O_PATH | (os.O_DIRECTORY if want_dir else 0))
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at
