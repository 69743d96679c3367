"""The host backend: no confinement at all. Never chosen by itself, always labelled, always asked."""

from __future__ import annotations

import contextlib
import os
import select
import signal

from ringfence.errors import ProgramNotFound, UnsupportedPolicy
from ringfence.model.guarantees import GUARANTEES
from ringfence.model.output import Missing
from ringfence.sandbox.backend import Availability, Exit, Guarantees
from ringfence.sandbox.plan import Plan
from ringfence.sandbox.spawn import pipe, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.sandbox.backend import Launch, PlanRequest

_REAP_MS = 5000


class Host:
    """Runs commands as the user, with everything the user may do."""

    name = "host"
    confines = False
    mounts = False

    def probe(self) -> Availability:
        """It always works; that is what is wrong with it."""
        return Availability(available=True, message="no confinement: commands run as you")

    def guarantees(self) -> Guarantees:
        """Nothing."""
        return Guarantees((), tuple(Missing(name, "the host backend does not confine") for name in GUARANTEES))

    def plan(self, request: PlanRequest) -> Plan:
        """Say plainly that nothing is confined.

        Raises:
            UnsupportedPolicy: the configuration requires a guarantee.
        """
        for name in request.required:
            raise UnsupportedPolicy(self.name, f"the required guarantee {name!r}", "it does not confine")
        return Plan(
            backend=self.name,
            workspace=request.workspace,
            home=request.survey.home,
            mounts=(),
            network=request.capabilities.network.all(),
            limits=request.capabilities.limits,
            missing=self.guarantees().missing,
        )

    def open(self, plan: Plan) -> HostPlace:
        """Return the host."""
        return HostPlace(plan)


class HostPlace:
    """The user's own machine."""

    reusable = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def run(self, launch: Launch) -> HostRun:
        """Start a command in a process group of its own.

        Raises:
            ProgramNotFound: there is no such program.
        """
        import shutil

        program = shutil.which(os.path.join(launch.cwd, launch.argv[0]) if "/" in launch.argv[0] else launch.argv[0])
        if program is None:
            msg = f"there is no program {launch.argv[0]}"
            raise ProgramNotFound(msg, hint="check its name and PATH")
        stdin_read, stdin_write = pipe()
        stdout_read, stdout_write = pipe()
        stderr_read, stderr_write = pipe()
        try:
            pid = spawn(
                program, launch.argv, env=launch.env, standard=(stdin_read, stdout_write, stderr_write), cwd=launch.cwd
            )
        except BaseException:
            for fd in (stdin_write, stdout_read, stderr_read):
                os.close(fd)
            raise
        finally:
            for fd in (stdin_read, stdout_write, stderr_write):
                os.close(fd)
        if not launch.stdin:
            os.close(stdin_write)
        return HostRun(pid, stdin_write if launch.stdin else None, stdout_read, stderr_read)

    def close(self) -> None:
        """There is nothing to close."""


class HostRun:
    """A process group on the host; a process that leaves the group is out of reach, which is reported."""

    limits: Mapping[str, str] = {}
    complete = False

    def __init__(self, pid: int, stdin: int | None, stdout: int, stderr: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.exited = os.pidfd_open(pid)
        self._pid = pid
        self._over = False

    def kill(self) -> None:
        """Kill the process group."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Signal the process group."""
        if not self._over:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def discard(self) -> None:
        """Kill it, and give everything back, without asking how it ended."""
        self.kill()
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        self.finish()

    def finish(self) -> Exit:
        """Reap the command."""
        poll = select.poll()
        poll.register(self.exited, select.POLLIN)
        poll.poll(_REAP_MS)
        self._over = True
        try:
            _, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return Exit(None, failure="its exit status was taken by other code in this process")
        finally:
            os.close(self.exited)
        code = os.waitstatus_to_exitcode(status)
        return Exit(code) if code >= 0 else Exit(128 - code, -code)
