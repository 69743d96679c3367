"""One `bwrap` for one command: start it, hold it, check it, let it go, reap it."""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import time

from ringfence.errors import ProgramNotFound, SandboxUnavailable
from ringfence.model.value import Value
from ringfence.sandbox.backend import Exit
from ringfence.sandbox.linux import bubblewrap, cgroups, diagnose, landlock, mountinfo, points, rlimits, seccomp
from ringfence.sandbox.linux.sources import opened
from ringfence.sandbox.linux.unprivileged import RootThread
from ringfence.sandbox.spawn import lifted, pipe, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.sandbox.backend import Launch
    from ringfence.sandbox.linux.unprivileged import Staged
    from ringfence.sandbox.plan import Plan

_SETUP_SECONDS = 10.0
_SELECT_LIMIT = 1024
_LULL_SECONDS = 0.0004
_SETTLE_SECONDS = 2.0
_REAP_MS = 5000
_MAX_SIGNAL = 64
_SIGNALLED = 128
_OF_THE_SYSTEM = ("system", "kernel settings")


class OneShot:
    """An enclosure that lives for one command at a time."""

    def __init__(self, plan: Plan, bwrap: str) -> None:
        self._plan = plan
        self._bwrap = bwrap

    def run(self, launch: Launch) -> OneShotRun:
        """Start a command; it has not executed an instruction before its mounts equal the plan.

        Raises:
            ProgramNotFound: the program does not exist inside.
            SandboxUnavailable: bubblewrap failed, or made something else than the plan says.
        """
        require_program(self._plan, launch)
        locks = points.claim(self._plan)
        group: cgroups.Group | None = None
        try:
            with opened(self._plan) as sources:
                group = cgroups.make(self._plan.limits, counted=_counted(self._plan))
                run = OneShotRun(self._start(launch, sources, group), self._plan, locks, group)
        except BaseException:
            for lock in locks:
                os.close(lock)
            if group is not None:
                group.remove()
            raise
        try:
            run.release()
        except BaseException:
            run.discard()
            raise
        return run

    def _start(self, launch: Launch, sources: Mapping[str, int], group: cgroups.Group | None) -> _Started:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            staged = self._stage(sources) if self._plan.drops_root else None
            if staged is not None:
                ours.callback(staged.close)
            origins: dict[str, int | str] = {**sources, **(staged.paths if staged else {})}
            args = bubblewrap.arguments(self._plan, origins, cwd=launch.cwd, env=launch.env)

            def ends(*, we_read: bool) -> tuple[int, int]:
                read, write = pipe()
                (ours if we_read else theirs).callback(os.close, read)
                (theirs if we_read else ours).callback(os.close, write)
                return read, write

            stdin_read, stdin_write = ends(we_read=False)
            stdout_read, stdout_write = ends(we_read=True)
            stderr_read, stderr_write = ends(we_read=True)
            status_read, status_write = ends(we_read=True)
            block_read, block_write = ends(we_read=False)
            filters: tuple[str, ...] = ()
            if "seccomp" in self._plan.layers:
                filter_fd = _memory_file(seccomp.program(self._profile()))
                theirs.callback(os.close, filter_fd)
                filters = ("--seccomp", str(filter_fd))
            listing = _memory_file(os.fsencode("\0".join([*args, *filters, ""])))
            theirs.callback(os.close, listing)
            argv = [
                "bwrap",
                *("--json-status-fd", str(status_write)),
                *("--block-fd", str(block_read)),
                # bubblewrap takes the end of `block` for a go. It holds the other end as well, so that
                # our death is not one.
                *("--sync-fd", str(block_write)),
                *("--args", str(listing)),
                "--",
                *(landlock.staged(self._plan, launch.argv) if self._plan.landlock else launch.argv),
            ]
            standard = (stdin_read, stdout_write, stderr_write)
            keep = [status_write, block_read, block_write, listing, *map(int, filters[1:])]
            keep += [fd for target, fd in sources.items() if origins[target] == fd]
            if staged is None:
                pid = spawn(self._bwrap, argv, env={}, standard=standard, keep=keep, within=group)
            else:
                pid = staged.spawn(self._bwrap, argv, standard=standard, keep=keep, within=group)
            try:
                monitor = os.pidfd_open(pid)
            except BaseException:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            ours.pop_all()
        if not launch.stdin:
            os.close(stdin_write)
        return _Started(
            pid=pid,
            monitor=monitor,
            stdin=stdin_write if launch.stdin else None,
            stdout=stdout_read,
            stderr=stderr_read,
            status=status_read,
            block=block_write,
            staged=staged,
        )

    def _profile(self) -> seccomp.Profile:
        return seccomp.Profile(spawn=self._plan.spawn, debug=self._plan.debug)

    def _stage(self, sources: Mapping[str, int]) -> Staged:
        """Show what the command is given as the unprivileged user's; the system stays root's."""
        given = [m.target for m in self._plan.mounts if m.kind == "bind" and m.why not in _OF_THE_SYSTEM]
        return RootThread.current().stage({target: sources[target] for target in given})

    def close(self) -> None:
        """Nothing outlives a command here."""


class _Started(Value):
    """A bubblewrap that was started: its process and our ends of its pipes."""

    pid: int
    monitor: int
    stdin: int | None
    stdout: int
    stderr: int
    status: int
    block: int
    staged: Staged | None


class OneShotRun:
    """A started command: first held, then released, at the end reaped."""

    def __init__(self, started: _Started, plan: Plan, locks: list[int], group: cgroups.Group | None) -> None:
        self.stdin = started.stdin
        self.stdout = started.stdout
        self.stderr = started.stderr
        self.exited = started.monitor
        self.limits: Mapping[str, str] = {}
        self._pid = started.pid
        self._status = started.status
        self._block = started.block
        self._staged = started.staged
        self._plan = plan
        self._locks = locks
        self._group = group
        self._said = b""
        self._init_pid = 0
        self._init = -1
        self._lock = _thread.allocate_lock()
        self._over = False

    def release(self) -> None:
        """Wait for the sandbox to stand, compare it with the plan, and let the command go."""
        self._init_pid = self._await_init()
        self._init = os.pidfd_open(self._init_pid)
        self._check_mounts()
        self.limits = self._limit()
        os.write(self._block, b"\0")
        os.close(self._block)
        self._block = -1
        self._unstage()

    def _limit(self) -> Mapping[str, str]:
        pid, limits = self._init_pid, self._plan.limits
        grouped: Mapping[str, str] = {}
        if self._group is not None:
            self._group.attach(pid)
            grouped = self._group.applied
        found, single = rlimits.ceilings(limits, counted=_counted(self._plan), grouped=grouped)
        if self._plan.drops_root:
            # A user may lower his own processes' ceilings; root needs a capability that containers lack.
            RootThread.current().as_user(lambda: rlimits.apply(pid, found))
        else:
            rlimits.apply(pid, found)
        return {**single, **grouped}

    def _unstage(self) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.close()

    def _await_init(self) -> int:
        """Return the process id of the sandbox's first process, as bubblewrap reports it."""
        deadline = time.monotonic() + _SETUP_SECONDS
        while b"\n" not in self._said.partition(b'"child-pid"')[2]:
            ready = _wait(self._status, max(0, int((deadline - time.monotonic()) * 1000)))
            chunk = os.read(self._status, 4096) if ready else b""
            if not chunk:
                raise self._failed()
            self._said += chunk
        return int(self._said.partition(b'"child-pid":')[2].split(b",")[0].strip(b" }\n"))

    def _check_mounts(self) -> None:
        """Hold the command until its mount table equals the plan.

        The table is complete some milliseconds after the process appears. The kernel reports each
        change through `poll`: a short silence is worth a look, and a long one with a difference means
        that the difference will stay.
        """
        table = f"/proc/{self._init_pid}/mountinfo"
        expected = mountinfo.Expected(self._plan.mounts, mountinfo.parse(_read("/proc/self/mountinfo")))
        deadline = time.monotonic() + _SETUP_SECONDS
        try:
            watch = _Watch(table, self.exited)
        except OSError:
            raise self._failed() from None
        with watch:
            while True:
                while watch.wait(_LULL_SECONDS) and not watch.ended:
                    pass
                try:
                    text = _read(table)
                except OSError:
                    raise self._failed() from None
                wrong = expected.differences(mountinfo.parse(text))
                if not wrong:
                    return
                silent = not watch.wait(_SETTLE_SECONDS)
                if watch.ended:
                    raise self._failed()
                if silent or time.monotonic() > deadline:
                    raise SandboxUnavailable(
                        "the sandbox's mounts are not what the plan says: " + "; ".join(wrong[:5]),
                        hint="something changed while it was set up; run it again, and see `ringfence check`",
                        reason="mounts-differ",
                    )

    def _failed(self) -> SandboxUnavailable:
        """Say why bubblewrap ended before the command started, in its own words."""
        os.set_blocking(self.stderr, False)
        words = b""
        with contextlib.suppress(OSError):
            _wait(self.exited, _REAP_MS)
            words = os.read(self.stderr, 65536)
        answer = diagnose.explain(words.decode("utf-8", "replace"), diagnose.kernel())
        return SandboxUnavailable(answer.message, hint=answer.fix, reason=answer.reason)

    def kill(self) -> None:
        """Kill the sandbox's first process: the kernel then kills every other one in it."""
        self._send(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Signal the command's process group, as a terminal would."""
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._over and self._init >= 0 and not _wait(self._init, 0):
                # The first process leads the group; the kernel spares it what it does not handle.
                os.killpg(self._init_pid, number)

    def _send(self, number: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._over and self._init >= 0:
                signal.pidfd_send_signal(self._init, number)

    def finish(self) -> Exit:
        """Wait until no process is left, and tell how the command ended."""
        self.kill()
        if not _wait(self._init, _REAP_MS) or not _wait(self.exited, _REAP_MS):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.exited, signal.SIGKILL)
        os.set_blocking(self._status, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._status, 4096):
                self._said += chunk
        self._reap()
        out_of_memory = self._group is not None and self._group.ran_out_of_memory()
        self._close()
        _, reported, code = self._said.partition(b'"exit-code":')
        if not reported:
            return Exit(None, failure="the command could not be executed")
        value = int(code.split(b"}")[0])
        # bubblewrap passes a signal on as 128+N, which a program may also choose as its exit code.
        by_signal = _SIGNALLED < value <= _SIGNALLED + _MAX_SIGNAL
        return Exit(value, value - _SIGNALLED if by_signal else None, out_of_memory=out_of_memory)

    def discard(self) -> None:
        """Kill it, and give everything back, without asking how it ended."""
        self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if self._init >= 0:
            _wait(self._init, _REAP_MS)
        _wait(self.exited, _REAP_MS)
        self._reap()
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        self._close()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # other code in this process may wait for any child
            os.waitpid(self._pid, os.WNOHANG)

    def _close(self) -> None:
        self._unstage()
        if self._group is not None:
            self._group.remove()
        with self._lock:
            self._over = True
            for fd in (self.exited, self._init, self._status, self._block, *self._locks):
                if fd >= 0:
                    os.close(fd)


class _Watch:
    """Waits for a change of a mount table, or for the end of a process."""

    def __init__(self, table: str, process: int) -> None:
        self._table = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
        self._process = process
        self.ended = False

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._table)

    def wait(self, seconds: float) -> bool:
        """Tell whether something happened in time."""
        # `select` because it knows fractions of a millisecond; its limit of 1024 descriptors is met below.
        if max(self._table, self._process) >= _SELECT_LIMIT:
            return self._wait_by_poll(seconds)
        ended, _, changed = select.select([self._process], [], [self._table], seconds)
        self.ended = bool(ended)
        return bool(ended or changed)

    def _wait_by_poll(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._table, select.POLLPRI)
        poll.register(self._process, select.POLLIN)
        events = poll.poll(max(1, int(seconds * 1000)))
        self.ended = any(fd == self._process for fd, _ in events)
        return bool(events)


def _counted(plan: Plan) -> bool:
    """Tell whether the kernel counts the processes of the command's user: it does not count root's."""
    return plan.drops_root or os.geteuid() != 0


def require_program(plan: Plan, launch: Launch) -> None:
    """Tell a program that is not there from one that fails.

    Raises:
        ProgramNotFound: the plan shows none of that name, or it cannot be executed.
    """
    name = launch.argv[0]
    if "/" in name:
        candidates = [os.path.normpath(os.path.join(launch.cwd, name))]
    else:
        directories = launch.env.get("PATH", "").split(os.pathsep)
        candidates = [os.path.join(launch.cwd, d, name) for d in directories]
    found = [p for p in (plan.host_path(os.path.normpath(c)) for c in candidates) if p and os.path.isfile(p)]
    if any(os.access(p, os.X_OK) for p in found):
        return
    if found:
        msg, hint = f"{name} is there but not executable", f"chmod +x {found[0]}, or name its interpreter"
    else:
        msg, hint = f"there is no program {name} inside", "see what is visible with: ringfence check -- " + name
    raise ProgramNotFound(msg, hint=hint)


def _memory_file(data: bytes) -> int:
    fd = lifted(os.memfd_create("ringfence", os.MFD_CLOEXEC))
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return os.fsdecode(file.read())


def _wait(fd: int, milliseconds: int) -> bool:
    """Tell whether a process has ended, or a pipe has something to read, waiting at most so long."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))
