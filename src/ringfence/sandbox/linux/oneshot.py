"""One `bwrap` for one command."""

from __future__ import annotations

import contextlib
import os

from ringfence.sandbox.backend import Exit
from ringfence.sandbox.linux import landlock
from ringfence.sandbox.linux.started import Sandbox, require_program
from ringfence.sandbox.spawn import pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.sandbox.backend import Launch
    from ringfence.sandbox.plan import Plan

_MAX_SIGNAL = 64
_SIGNALLED = 128


class OneShot:
    """An enclosure that lives for one command at a time."""

    reusable = False

    def __init__(self, plan: Plan, bwrap: str) -> None:
        self.plan = plan
        self._bwrap = bwrap

    def run(self, launch: Launch) -> OneShotRun:
        """Start a command; it has not executed an instruction before its mounts equal the plan.

        Raises:
            ProgramNotFound: the program does not exist inside.
            SandboxUnavailable: bubblewrap failed, or made something else than the plan says.
        """
        require_program(self.plan, launch)
        sandbox = Sandbox(self.plan, self._bwrap)
        argv = landlock.staged(self.plan, launch.argv) if self.plan.landlock else launch.argv
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

            def ends(*, we_read: bool) -> tuple[int, int]:
                read, write = pipe()
                (ours if we_read else theirs).callback(os.close, read)
                (theirs if we_read else ours).callback(os.close, write)
                return read, write

            stdin_read, stdin_write = ends(we_read=False)
            stdout_read, stdout_write = ends(we_read=True)
            stderr_read, stderr_write = ends(we_read=True)
            standard = (stdin_read, stdout_write, stderr_write)
            sandbox.start(argv, cwd=launch.cwd, env=launch.env, standard=standard)
            ours.pop_all()
        if not launch.stdin:
            os.close(stdin_write)
        run = OneShotRun(sandbox, stdin_write if launch.stdin else None, stdout_read, stderr_read)
        try:
            sandbox.release(stderr_read)
            run.limits = sandbox.limits
        except BaseException:
            run.discard()
            raise
        return run

    def close(self) -> None:
        """Nothing outlives a command here."""


class OneShotRun:
    """A started command."""

    complete = False

    def __init__(self, sandbox: Sandbox, stdin: int | None, stdout: int, stderr: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.exited = sandbox.monitor
        self.limits: Mapping[str, str] = {}
        self._sandbox = sandbox
        self.kill = sandbox.kill
        self.signal = sandbox.signal

    def finish(self) -> Exit:
        """Wait until no process is left, and tell how the command ended."""
        sandbox = self._sandbox
        sandbox.end()
        out_of_memory = sandbox.group is not None and sandbox.group.out_of_memory_kills() > 0
        sandbox.close()
        _, reported, code = sandbox.said.partition(b'"exit-code":')
        if not reported:
            return Exit(None, failure="the command could not be executed")
        value = int(code.split(b"}")[0])
        # bubblewrap passes a signal on as 128+N, which a program may also choose as its exit code.
        by_signal = _SIGNALLED < value <= _SIGNALLED + _MAX_SIGNAL
        return Exit(value, value - _SIGNALLED if by_signal else None, out_of_memory=out_of_memory)

    def discard(self) -> None:
        """Kill it, and give everything back, without asking how it ended."""
        self._sandbox.end()
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        self._sandbox.close()
