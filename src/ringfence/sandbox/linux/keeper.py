"""Stands between us and a command that has no PID namespace: starts it, and sees all of it end.

It runs outside the confinement, in an interpreter of its own, and is told everything by one message
on a pipe. Whatever the command starts becomes its child at the latest when its own parent ends, so
nothing escapes it. The pipe then carries signals for the command; its end means that the command is
to be killed, or that we are dead, which is the same.

Where Landlock knows scopes, the keeper puts itself into a domain that signals do not leave, and the
command into another one below it: so the keeper can kill all there is in its own domain, and the
command cannot touch the keeper. Elsewhere the filter keeps the command from both signalling the keeper
and leaving its process group.
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

from ringfence.sandbox.linux.stage import become, restrict, restrict_signals

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
    us, scoped = os.getpid(), bool(job["scoped"])
    if scoped:
        _scope_signals()
    child = os.fork()
    if child == 0:
        os.close(control)
        os.close(status)
        _run(job, us)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    _attend(child, control)
    ended = kill_all(child, scoped=scoped)
    os.write(status, b"%d\n" % (ended or 0))


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
        for kind, ceiling in job["ceilings"]:
            resource.setrlimit(kind, (ceiling, ceiling))
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # whoever runs out of memory is the command, not its keeper
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


def _attend(child: int, control: int) -> None:
    """Wait until the command has ended or is to be killed, and pass on what comes through the pipe.

    Orphans that end meanwhile are reaped. The command itself is not: its process group keeps its number.
    """
    watched = os.pidfd_open(child)
    orphans, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    for fd in (watched, control, orphans):
        poll.register(fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if watched in ready:
            return
        if orphans in ready:
            os.read(orphans, 4096)
            _reap_orphans(child)
        if control not in ready:
            continue
        numbers = os.read(control, 64)
        if not numbers or signal.SIGKILL in numbers:
            return
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, number)


def _reap_orphans(child: int) -> None:
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or ended.si_pid == child:
            return
        os.waitpid(ended.si_pid, 0)


def _scope_signals() -> None:
    """Enter a domain that restricts nothing but signals, and make sure that they do not leave it.

    Everything that the user runs would be killed otherwise.
    """
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    restrict_signals()
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    os._exit(STAGE_FAILED)


def kill_all(child: int, *, scoped: bool) -> int | None:
    """Kill and reap everything that the command started, and return how it ended itself, if it is told here.

    One call kills all of it at once, however fast it multiplies: the kernel lets nothing fork meanwhile.
    Which processes those are is told by the domain that this process has put itself into, or by the
    process group that they cannot leave.
    """
    ended: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            with contextlib.suppress(ProcessLookupError):
                if scoped:
                    os.kill(-1, signal.SIGKILL)
                else:
                    os.killpg(child, signal.SIGKILL)
            pid, status = os.waitpid(-1, 0)
            if pid == child:
                ended = status
    return ended


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
