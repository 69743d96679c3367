"""Stands between us and a command that has no PID namespace: starts it, and sees all of it end.

It runs outside the confinement, in an interpreter of its own, and is told everything by one message
on a pipe. Whatever the command starts becomes its child at the latest when its own parent ends, so
nothing escapes it. The pipe then carries signals for the command; its end means that the command is
to be killed, or that we are dead, which is the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import marshal
import os
import resource
import select
import signal
import struct
import sys

from ringfence.sandbox.linux.stage import become, restrict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

STAGE_FAILED = 125
_LENGTH = struct.Struct("=I")
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 22, 38, 24, 36
_PR_SET_PDEATHSIG, _PR_CAP_AMBIENT, _CLEAR_ALL, _FILTER = 1, 47, 4, 2
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def message(job: Mapping[str, object]) -> bytes:
    """Return a job as it goes through the pipe."""
    data = marshal.dumps(dict(job))
    return _LENGTH.pack(len(data)) + data


def main(control: int, status: int) -> None:
    """Do one job; how the command ended is the last thing that is written to `status`."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    header = _exactly(control, _LENGTH.size)
    data = _exactly(control, _LENGTH.unpack(header)[0]) if len(header) == _LENGTH.size else b""
    if not data:
        return  # whoever wanted something is dead
    job = marshal.loads(data)  # noqa: S302  # from our own parent, over a pipe that nobody else has
    us = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(control)
        os.close(status)
        _run(job, us)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    ended = _attend(child, control)
    killed = kill_all()
    os.write(status, b"%d\n" % (killed[child] if ended is None else ended))


def _exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count and (chunk := os.read(fd, count - len(data))):
        data += chunk
    return data


def _run(job: dict[str, Any], keeper: int) -> None:
    """Confine this process and become the command."""
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(STAGE_FAILED)
        os.chdir(job["cwd"])
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _drop_capabilities()
        readable, writable = ([f"/proc/self/fd/{fd}" for fd in job[name]] for name in ("readable", "writable"))
        restrict(job["landlock"], readable, writable, tcp=job["tcp"])
        os.closerange(3, 2**20)
        _filter(job["filter"])
    except BaseException as error:  # noqa: BLE001  # whatever it was: nothing runs unconfined
        sys.stderr.write(f"ringfence-stage: the confinement could not be applied: {error}\n")
        sys.stderr.flush()
        os._exit(STAGE_FAILED)
    try:
        become(job["argv"], job["env"])
    finally:
        sys.stderr.flush()
        os._exit(127)


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _drop_capabilities() -> None:
    """Keep none, whoever we are; without new privileges, no program brings them back."""
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    for number in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # refused where we may not, or it is not there
    header = struct.pack("=Ii", 0x20080522, 0)
    number = _SYS_CAPSET[os.uname().machine]
    _checked(_libc.syscall(ctypes.c_long(number), ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _filter(code: bytes) -> None:
    program = _Program(len(code) // 8, code)
    _checked(_libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0))


def _attend(child: int, control: int) -> int | None:
    """Wait for the command, and pass on what comes through the pipe; `None` says that it is to be killed."""
    watched = os.pidfd_open(child)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(control, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if watched in ready:
            return os.waitpid(child, 0)[1]
        numbers = os.read(control, 64)
        if not numbers or signal.SIGKILL in numbers:
            return None
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, number)


def kill_all() -> dict[int, int]:
    """Kill and reap everything below this process, and return how its children ended.

    It may multiply meanwhile, so all of it is stopped before the first is killed.
    """
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        _reap(ended, os.WNOHANG)
        seen: set[int] = set()
        while found := _below(os.getpid()) - seen:
            for pid in found:
                _stop(pid, found | seen)
            seen |= found
        while True:
            alive = _below(os.getpid())
            for pid in alive:
                _signal(pid, signal.SIGKILL, alive)
            _reap(ended, 0)
    return ended


def _reap(ended: dict[int, int], options: int) -> None:
    """Take note of the children that have ended, after waiting for one where `options` do not forbid it."""
    pid, status = os.waitpid(-1, options)
    while pid:
        ended[pid] = status
        pid, status = os.waitpid(-1, os.WNOHANG)


def _stop(pid: int, below: set[int]) -> None:
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
    _signal(pid, signal.SIGSTOP, below)


def _signal(pid: int, number: int, below: set[int]) -> None:
    """Signal a process by descriptor, once it is certain that its number still means what it meant."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if _parent(pid) in below | {os.getpid()}:
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)


def _below(root: int) -> set[int]:
    """Return every living process whose ancestor is `root`."""
    parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found: set[int] = set()
    layer = {root}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer} - found
        found |= layer
    return found


def _parent(pid: int) -> int:
    """Return a process's parent; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
