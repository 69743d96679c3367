"""Landlock as a second layer below the mounts: which version there is, and how a command starts under it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.sandbox.plan import Plan

_SYS_CREATE_RULESET = 444
_VERSION = 1
_NEWEST = 7
_SYSTEM_PYTHON = "/usr/bin/python3"
# Nodes in /dev are written to, and so are files about a process in /proc; the mounts say which.
_ALWAYS = ("/dev", "/proc")


@lru_cache(maxsize=1)
def version() -> int:
    """Return the newest version that the kernel and we know; 0 where there is none, or no way to use it."""
    if not interpreter():
        return 0
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    found: int = libc.syscall(
        ctypes.c_long(_SYS_CREATE_RULESET), ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint(_VERSION)
    )
    return max(0, min(found, _NEWEST))


def interpreter() -> str:
    """Return the interpreter that runs the stage inside: the one that runs us, without its environment.

    A program that carries its own interpreter has none to offer; the system's may serve.
    """
    for path in (sys.executable, _SYSTEM_PYTHON):
        real = os.path.realpath(path) if path and os.path.isabs(path) else ""
        if os.path.basename(real).startswith("python") and os.path.isfile(real) and os.access(real, os.X_OK):
            return real
    return ""


def shown() -> tuple[str, ...]:
    """Return what must be visible for it: the file itself, its library, and never a whole prefix.

    A prefix may be the user's home.
    """
    path = interpreter()
    if path != os.path.realpath(sys.executable or ""):
        return ()  # the system's, which is visible with the system
    library = os.path.dirname(os.path.realpath(os.__file__))
    above = os.path.dirname(library)
    shared = [os.path.join(above, n) for n in os.listdir(above) if n.startswith("libpython") and ".so" in n]
    return (path, library, *(os.path.realpath(p) for p in shared))


def writable(plan: Plan) -> list[str]:
    """Return the roots of what the plan lets a command write."""
    return [*_ALWAYS, *(m.target for m in plan.mounts if m.writable and m.kind in {"bind", "tmpfs"})]


def staged(plan: Plan, argv: tuple[str, ...]) -> list[str]:
    """Return what starts `argv` inside by way of the stage."""
    paths = writable(plan)
    return [interpreter(), "-I", "-S", "-c", _source(), str(plan.landlock), str(len(paths)), *paths, *argv]


@lru_cache(maxsize=1)
def _source() -> str:
    with open(os.path.join(os.path.dirname(__file__), "stage.py"), encoding="utf-8") as file:
        return file.read()
