"""A sandbox that stays: our own first process inside starts one command after another.

What runs inside is hostile once a command has run. So the first process is told everything and
believed nothing: its answers have one length and a few values, and a wrong one ends the enclosure.
"""

from __future__ import annotations

import _socket
import _thread
import contextlib
import errno
import marshal
import os
import select
import sys
from functools import lru_cache

from ringfence.errors import SandboxUnavailable
from ringfence.sandbox.backend import Exit, StaleEnclosure
from ringfence.sandbox.linux import idmap, landlock
from ringfence.sandbox.linux.init import ENDED, MAX_REQUEST, READY, REFUSED, SAID, STARTED
from ringfence.sandbox.linux.started import REAP_MS, Sandbox, wait
from ringfence.sandbox.spawn import lifted, pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.sandbox.backend import Launch
    from ringfence.sandbox.plan import Plan

_START_MS = 10_000
_KILL = 9
_SMALL = MAX_REQUEST - 4096
_FLAGS = _socket.MSG_CMSG_CLOEXEC | _socket.MSG_DONTWAIT
# The first process's own CPU time counts against a ceiling that is meant for commands.
_MOST_UNDER_A_CPU_CEILING = 200


class Warm:
    """An enclosure for one command at a time, again and again."""

    def __init__(self, plan: Plan, bwrap: str) -> None:
        self.plan = plan
        self.limits: Mapping[str, str] = {}
        self._sandbox = Sandbox(plan, bwrap)
        self._table = -1
        self._places: dict[str, tuple[int, int, int]] = {}
        self._numbers = 0
        self._retired = False
        self._ooms = 0
        self._lock = _thread.allocate_lock()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._control = _socket.socket(fileno=lifted(ours.detach()))
        try:
            self._start(theirs)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()

    def _start(self, theirs: _socket.socket) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        words, stderr = pipe()
        inside = lifted(os.dup(theirs.fileno()))
        try:
            paths = landlock.writable(self.plan)
            argv = [landlock.interpreter(), "-I", "-S", "-c", _source(), str(inside), str(self.plan.landlock)]
            argv += [str(len(paths)), *paths]
            self._sandbox.start(
                argv, cwd="/", env={}, standard=(null, null, stderr), keep=(inside,), options=("--as-pid-1",)
            )
            theirs.close()
            os.close(inside)
            inside = -1
            os.close(stderr)
            stderr = -1
            self._sandbox.release(words)
            self._table = os.open(f"/proc/{self._sandbox.init_pid}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._await_ready(words)
        finally:
            for fd in (null, words, stderr, inside):
                if fd >= 0:
                    os.close(fd)
        self.limits = self._sandbox.limits
        for mount in self.plan.mounts:
            if mount.kind == "bind" and mount.writable and not mount.within:
                found = os.lstat(mount.source)
                self._places[mount.source] = (found.st_dev, found.st_ino, 0 if mount.is_real else 0o700)
        self._sandbox.pause()

    def _await_ready(self, words: int) -> None:
        said = self._hear(_START_MS)
        if said != (0, READY, 0):
            os.set_blocking(words, False)
            text = b""
            with contextlib.suppress(OSError):
                text = os.read(words, 65536)
            told = text.decode("utf-8", "replace").strip()[-500:] or "it said nothing"
            by_landlock = told.startswith("ringfence-stage: ")
            raise SandboxUnavailable(
                f"the first process of the sandbox did not start: {told.removeprefix('ringfence-stage: ')}",
                hint="see `ringfence status`; warm = false does without it",
                reason="landlock" if by_landlock else "init",
            )

    @property
    def reusable(self) -> bool:
        """Whether another command may run in it: it lives, and shows what it showed."""
        return not self._retired and self._sandbox.is_alive and not self._mounts_changed() and self._is_in_place()

    def _is_in_place(self) -> bool:
        """Tell whether what commands write to still lies where the plan says, and is open to them.

        A mount goes on showing a directory that somebody has moved away.
        """
        for path, (device, number, mode) in self._places.items():
            try:
                found = os.lstat(path)
            except OSError:
                return False
            if (found.st_dev, found.st_ino) != (device, number):
                return False
            if mode and found.st_mode & 0o777 != mode:
                os.chmod(path, mode)  # a command has closed its own home or /tmp
        return True

    def _mounts_changed(self) -> bool:
        """Ask the kernel; the host may have replaced a file that something was mounted on."""
        poll = select.poll()
        poll.register(self._table, select.POLLPRI)
        if poll.poll(0):
            self._retired = True
        return self._retired

    def run(self, launch: Launch) -> WarmRun:
        """Start a command.

        Raises:
            StaleEnclosure: it is gone, or other commands are in its way.
            SandboxUnavailable: it does not give a terminal.
        """
        if not self._sandbox.resume():
            self._retired = True
            raise StaleEnclosure
        self._numbers += 1
        if self.plan.limits.cpu_seconds and self._numbers >= _MOST_UNDER_A_CPU_CEILING:
            self._retired = True
        if self._sandbox.group is not None:
            self._ooms = self._sandbox.group.out_of_memory_kills()
        return self._run_on_terminal(launch) if launch.terminal else self._run_on_pipes(launch)

    def _run_on_pipes(self, launch: Launch) -> WarmRun:
        fds: list[int] = []
        try:
            for _ in range(3):
                fds += pipe()
            stdin_read, stdin_write, stdout_read, stdout_write, stderr_read, stderr_write = fds
            standard = (stdin_read, stdout_write, stderr_write)
            if self.plan.drops_root:
                for fd in standard:
                    # Through /dev/stdout a program opens its pipe once more, by its owner's rights.
                    os.fchown(fd, idmap.UID, idmap.UID)
            self._ask(launch, standard)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        for fd in standard if launch.stdin else (*standard, stdin_write):
            os.close(fd)
        stdin = stdin_write if launch.stdin else None
        return WarmRun(self, self._numbers, launch.argv[0], stdin, stdout_read, stderr_read)

    def _run_on_terminal(self, launch: Launch) -> WarmRun:
        self._ask(launch, ())
        retired, self._retired = self._retired, True  # until it has answered as it should
        wait(self._control.fileno(), _START_MS)
        data, ancillary, _, _ = self._control.recvmsg(SAID.size + 1, _socket.CMSG_SPACE(4), _FLAGS)
        fds = [int.from_bytes(packed[:4], sys.byteorder) for _, _, packed in ancillary]
        if len(data) != SAID.size or SAID.unpack(data)[:2] != (self._numbers, STARTED) or len(fds) != 1:
            for fd in fds:
                os.close(fd)
            raise SandboxUnavailable(
                "the sandbox gives no terminal", hint="run it without one, or try again", reason="terminal"
            )
        self._retired = retired
        master = lifted(fds[0])
        os.set_blocking(master, False)
        silent, nobody = pipe()
        os.close(nobody)
        return WarmRun(self, self._numbers, launch.argv[0], os.dup(master) if launch.stdin else None, master, silent)

    def _ask(self, launch: Launch, fds: tuple[int, ...]) -> None:
        request = marshal.dumps(
            (
                "run",
                self._numbers,
                [_encoded(word) for word in launch.argv],
                _encoded(launch.cwd),
                {_encoded(name): _encoded(value) for name, value in launch.env.items()},
                launch.terminal,
            )
        )
        try:
            if len(request) <= _SMALL:
                self._tell(request, fds)
            else:
                self._tell_by_memory(request, fds)
        except OSError:
            # Nothing of it has arrived.
            self._retired = True
            raise StaleEnclosure from None

    def _tell_by_memory(self, request: bytes, fds: tuple[int, ...]) -> None:
        memory = os.memfd_create("ringfence", os.MFD_CLOEXEC)
        try:
            left = memoryview(request)
            while left:
                left = left[os.write(memory, left) :]
            self._tell(b"M", (*fds, memory))
        finally:
            os.close(memory)

    def _tell(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if fds else []
        self._control.sendmsg([data], ancillary, _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT)

    def signal(self, command: int, number: int) -> None:
        """Have a command signalled, if it still is the one that runs."""
        with self._lock:
            try:
                self._tell(marshal.dumps(("signal", command, int(number))))
            except OSError:
                # It takes nothing more: whatever it does, it no longer does what it is for.
                self._retired = True
                self._sandbox.kill()

    def fileno(self) -> int:
        """The descriptor that is readable when the command has ended."""
        return self._control.fileno()

    def _hear(self, milliseconds: int) -> tuple[int, int, int] | None:
        """Return what the first process says in time; nothing where that is not one of its words."""
        if not wait(self._control.fileno(), milliseconds):
            return None
        try:
            data = self._control.recv(SAID.size + 1, _socket.MSG_DONTWAIT)
        except OSError:
            return None
        return SAID.unpack(data) if len(data) == SAID.size else None

    def ended(self, number: int, program: str) -> Exit:
        """Return how command `number` ended; a wrong word, or none in time, ends the enclosure."""
        said = self._hear(REAP_MS)
        if said is None or said[0] != number or said[1] not in {ENDED, REFUSED}:
            self._retired = True
            self._sandbox.end()
            return Exit(None, failure="the sandbox ended before its command did", broken=True)
        self._sandbox.pause()
        self._mounts_changed()
        if said[1] == REFUSED:
            return Exit(None, failure=_refusal(program, said[2]))
        group = self._sandbox.group
        out_of_memory = group is not None and group.out_of_memory_kills() > self._ooms
        code = os.waitstatus_to_exitcode(said[2] & 0xFFFF)
        if code < 0:
            return Exit(128 - code, -code, out_of_memory=out_of_memory)
        return Exit(code, out_of_memory=out_of_memory)

    def close(self) -> None:
        """Kill what runs and leave nothing behind."""
        self._retired = True
        self._sandbox.end()
        self._sandbox.close()
        if self._table >= 0:
            os.close(self._table)
            self._table = -1
        self._control.close()


class WarmRun:
    """One command in a warm enclosure."""

    complete = True

    def __init__(  # noqa: PLR0917  # three descriptors, and whose they are
        self, enclosure: Warm, number: int, program: str, stdin: int | None, stdout: int, stderr: int
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.exited = enclosure.fileno()
        self.limits = enclosure.limits
        self._enclosure = enclosure
        self._number = number
        self._program = program
        self._over = False

    def kill(self) -> None:
        """Have everything of it killed."""
        self.signal(_KILL)

    def signal(self, number: int) -> None:
        """Have its process group signalled."""
        if not self._over and not wait(self.exited, 0):
            self._enclosure.signal(self._number, number)

    def finish(self) -> Exit:
        """Tell how it ended."""
        self.kill()
        ended = self._enclosure.ended(self._number, self._program)
        self._over = True
        return ended

    def discard(self) -> None:
        """Kill it, and give everything back, without asking how it ended."""
        self.finish()
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


def _refusal(program: str, number: int) -> str:
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return f"there is no program {program} inside, or what it needs to run could not be executed"
    if number == errno.EACCES:
        return f"{program} is there but not executable"
    return f"{program} could not be started: {os.strerror(number) if number in errno.errorcode else 'no reason given'}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@lru_cache(maxsize=1)
def _source() -> str:
    """Return what the first process runs: the stage's text, without its own beginning, and the init's."""
    here = os.path.dirname(__file__)
    texts = []
    for name in ("stage.py", "init.py"):
        with open(os.path.join(here, name), encoding="utf-8") as file:
            texts.append(file.read())
    stage = texts[0].partition('if __name__ == "__main__":')[0]
    return stage + texts[1].replace("from __future__ import annotations\n", "", 1)
