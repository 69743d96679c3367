"""One started `bwrap`: held until it is what the plan says, then let go, and in the end reaped.

A one-shot and a warm enclosure are both one of these; they differ in what runs inside.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import time

from ringfence.errors import ProgramNotFound, SandboxUnavailable
from ringfence.sandbox.linux import bubblewrap, cgroups, diagnose, mountinfo, points, rlimits, seccomp
from ringfence.sandbox.linux.sources import opened
from ringfence.sandbox.linux.unprivileged import RootThread
from ringfence.sandbox.spawn import lifted, pipe, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringfence.sandbox.backend import Launch
    from ringfence.sandbox.linux.unprivileged import Staged
    from ringfence.sandbox.plan import Plan

_SETUP_SECONDS = 10.0
_SELECT_LIMIT = 1024
_LULL_SECONDS = 0.0004
_SETTLE_SECONDS = 2.0
REAP_MS = 5000
_OF_THE_SYSTEM = ("system", "kernel settings")


class Sandbox:
    """A started bubblewrap and everything that goes with it: its group, its locks, its pipes."""

    def __init__(self, plan: Plan, bwrap: str) -> None:
        self.limits: Mapping[str, str] = {}
        self.init_pid = 0
        self.said = b""
        self.group: cgroups.Group | None = None
        self.monitor = -1
        self._plan = plan
        self._bwrap = bwrap
        self._pid = 0
        self._init = -1
        self._status = -1
        self._block = -1
        self._staged: Staged | None = None
        self._claim: points.Claim | None = None
        self._lock = _thread.allocate_lock()
        self._over = False

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        standard: tuple[int, int, int],
        keep: Sequence[int] = (),
        options: Sequence[str] = (),
    ) -> None:
        """Start `argv` inside; it executes nothing before `release`.

        `standard` become its standard descriptors, and `keep` stay open under their own numbers.

        Raises:
            SandboxUnavailable: a source is gone, a link stands where none may, or other commands are in the way.
        """
        self._claim = points.Claim(self._plan)
        try:
            with opened(self._plan) as sources:
                self.group = cgroups.make(self._plan.limits, counted=_counted(self._plan))
                self._spawn(argv, sources, cwd=cwd, env=env, standard=standard, keep=keep, options=options)
        except BaseException:
            self.close()
            raise

    def _spawn(
        self,
        argv: Sequence[str],
        sources: Mapping[str, int],
        *,
        cwd: str,
        env: Mapping[str, str],
        standard: tuple[int, int, int],
        keep: Sequence[int],
        options: Sequence[str],
    ) -> None:
        plan = self._plan
        origins: dict[str, int | str] = {**sources}
        if plan.drops_root:
            # What the command is given is shown as the unprivileged user's; the system stays root's.
            given = [m.target for m in plan.mounts if m.kind == "bind" and m.why not in _OF_THE_SYSTEM]
            self._staged = RootThread.current().stage({target: sources[target] for target in given})
            origins |= self._staged.paths
        with contextlib.ExitStack() as theirs:
            self._status, status_write = pipe()
            theirs.callback(os.close, status_write)
            block_read, self._block = pipe()
            theirs.callback(os.close, block_read)
            args = [*bubblewrap.arguments(plan, origins, cwd=cwd, env=env), *options]
            kept = [*keep, status_write, block_read, self._block]
            if "seccomp" in plan.layers:
                kept.append(_memory_file(seccomp.program(seccomp.Profile(spawn=plan.spawn, debug=plan.debug))))
                theirs.callback(os.close, kept[-1])
                args += ["--seccomp", str(kept[-1])]
            kept.append(_memory_file(os.fsencode("\0".join([*args, ""]))))
            theirs.callback(os.close, kept[-1])
            whole = [
                "bwrap",
                *("--json-status-fd", str(status_write)),
                *("--block-fd", str(block_read)),
                # bubblewrap takes the end of `block` for a go. It holds the other end as well, so that
                # our death is not one.
                *("--sync-fd", str(self._block)),
                *("--args", str(kept[-1])),
                "--",
                *argv,
            ]
            kept += [fd for target, fd in sources.items() if origins[target] == fd]
            if self._staged is None:
                self._pid = spawn(self._bwrap, whole, env={}, standard=standard, keep=kept, within=self.group)
            else:
                self._pid = self._staged.spawn(self._bwrap, whole, standard=standard, keep=kept, within=self.group)
            try:
                self.monitor = os.pidfd_open(self._pid)
            except BaseException:
                os.killpg(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                raise

    def release(self, stderr: int) -> None:
        """Wait for the sandbox to stand, compare it with the plan, and let it go.

        `stderr` is where bubblewrap's own words can be read, should it fail.

        Raises:
            SandboxUnavailable: bubblewrap failed, or made something else than the plan says.
        """
        self.init_pid = self._await_init(stderr)
        self._init = os.pidfd_open(self.init_pid)
        self._check_mounts(stderr)
        self.limits = self._limit()
        os.write(self._block, b"\0")
        os.close(self._block)
        self._block = -1
        self._unstage()

    def _limit(self) -> Mapping[str, str]:
        pid = self.init_pid
        grouped: Mapping[str, str] = {}
        if self.group is not None:
            self.group.attach(pid)
            grouped = self.group.applied
        found, single = rlimits.ceilings(self._plan.limits, counted=_counted(self._plan), grouped=grouped)
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

    def _await_init(self, stderr: int) -> int:
        """Return the process id of the sandbox's first process, as bubblewrap reports it."""
        deadline = time.monotonic() + _SETUP_SECONDS
        while b"\n" not in self.said.partition(b'"child-pid"')[2]:
            ready = wait(self._status, max(0, int((deadline - time.monotonic()) * 1000)))
            chunk = os.read(self._status, 4096) if ready else b""
            if not chunk:
                raise self._failed(stderr)
            self.said += chunk
        return int(self.said.partition(b'"child-pid":')[2].split(b",")[0].strip(b" }\n"))

    def _check_mounts(self, stderr: int) -> None:
        """Hold the command until its mount table equals the plan.

        The table is complete some milliseconds after the process appears. The kernel reports each
        change through `poll`: a short silence is worth a look, and a long one with a difference means
        that the difference will stay.
        """
        table = f"/proc/{self.init_pid}/mountinfo"
        expected = mountinfo.Expected(self._plan.mounts, mountinfo.parse(_read("/proc/self/mountinfo")))
        deadline = time.monotonic() + _SETUP_SECONDS
        try:
            watch = _Watch(table, self.monitor)
        except OSError:
            raise self._failed(stderr) from None
        with watch:
            while True:
                while watch.wait(_LULL_SECONDS) and not watch.ended:
                    pass
                try:
                    text = _read(table)
                except OSError:
                    raise self._failed(stderr) from None
                wrong = expected.differences(mountinfo.parse(text))
                if not wrong:
                    return
                silent = not watch.wait(_SETTLE_SECONDS)
                if watch.ended:
                    raise self._failed(stderr)
                if silent or time.monotonic() > deadline:
                    raise SandboxUnavailable(
                        "the sandbox's mounts are not what the plan says: " + "; ".join(wrong[:5]),
                        hint="something changed while it was set up; run it again, and see `ringfence check`",
                        reason="mounts-differ",
                    )

    def _failed(self, stderr: int) -> SandboxUnavailable:
        """Say why bubblewrap ended before the command started, in its own words."""
        os.set_blocking(stderr, False)
        words = b""
        with contextlib.suppress(OSError):
            wait(self.monitor, REAP_MS)
            words = os.read(stderr, 65536)
        answer = diagnose.explain(words.decode("utf-8", "replace"), diagnose.kernel())
        return SandboxUnavailable(answer.message, hint=answer.fix, reason=answer.reason)

    @property
    def is_alive(self) -> bool:
        """Whether its first process runs."""
        return self._init >= 0 and not wait(self._init, 0)

    def kill(self) -> None:
        """Kill the first process: the kernel then kills every other one in the sandbox."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._over and self._init >= 0:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Signal the first process's group, as a terminal would."""
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._over and self.is_alive:
                # The first process leads the group; the kernel spares it what it does not handle.
                os.killpg(self.init_pid, number)

    def end(self) -> None:
        """Kill it, wait until no process is left, and read the last that bubblewrap said."""
        if self._over:
            return
        self.kill()
        if self._init < 0 and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
        ended = self._init < 0 or wait(self._init, REAP_MS)
        if self.monitor >= 0 and not (ended and wait(self.monitor, REAP_MS)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.monitor, signal.SIGKILL)
        if self._status >= 0:
            os.set_blocking(self._status, False)
            with contextlib.suppress(BlockingIOError):
                while chunk := os.read(self._status, 4096):
                    self.said += chunk
        if self._pid:
            with contextlib.suppress(ChildProcessError):  # other code in this process may wait for any child
                os.waitpid(self._pid, os.WNOHANG)

    def close(self) -> None:
        """Give everything back; it has ended."""
        self._unstage()
        if self.group is not None:
            self.group.remove()
        with self._lock:
            if self._over:
                return
            self._over = True
            for fd in (self.monitor, self._init, self._status, self._block):
                if fd >= 0:
                    os.close(fd)
            if self._claim is not None:
                self._claim.close()

    def pause(self) -> None:
        """Let others add mount points: no command runs inside that could move one."""
        if self._claim is not None:
            self._claim.pause()

    def resume(self) -> bool:
        """Hold the mount points again; tell whether nobody has added one meanwhile."""
        return self._claim is not None and self._claim.resume()


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
    raise not_found(name, found[0] if found else "")


def not_found(name: str, there: str = "") -> ProgramNotFound:
    """Return the error for a program that is not inside, or is `there` and cannot be executed."""
    if there:
        return ProgramNotFound(f"{name} is there but not executable", hint=f"chmod +x {there}, or name its interpreter")
    return ProgramNotFound(
        f"there is no program {name} inside", hint="see what is visible with: ringfence check -- " + name
    )


def _memory_file(data: bytes) -> int:
    fd = lifted(os.memfd_create("ringfence", os.MFD_CLOEXEC))
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return os.fsdecode(file.read())


def wait(fd: int, milliseconds: int) -> bool:
    """Tell whether a process has ended, or a pipe has something to read, waiting at most so long."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))
