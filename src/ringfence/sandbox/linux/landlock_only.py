"""The landlock backend: no namespaces and no helper program, for machines that refuse both.

Landlock says what may be opened, the system call filter what may be asked of the kernel, and a keeper
outside sees every process of a command end. What that cannot do is in `guarantees`.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal

from ringfence.errors import SandboxUnavailable, UnsupportedPolicy
from ringfence.model.output import Missing
from ringfence.model.paths import is_below
from ringfence.sandbox.backend import Availability, Exit, Guarantees
from ringfence.sandbox.linux import cgroups, keeper, landlock, rlimits, seccomp
from ringfence.sandbox.linux.sources import opened
from ringfence.sandbox.linux.started import require_program
from ringfence.sandbox.plan import Plan
from ringfence.sandbox.rules import allow
from ringfence.sandbox.spawn import pipe, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.sandbox.backend import Launch, PlanRequest

# Older ones let a command empty files that it may only read.
_OLDEST = 3
_SCOPES_SIGNALS = 6
_REAP_MS = 5000
_START = (
    "import sys; sys.path.insert(0, sys.argv[3]); from ringfence.sandbox.linux.keeper import main;"
    " main(int(sys.argv[1]), int(sys.argv[2]))"
)
_NOT_YET = {"sockets": "granting host sockets", "devices": "granting devices", "publish": "publishing ports"}


class Landlock:
    """Confinement by what a process can do to itself."""

    name = "landlock"
    confines = True
    mounts = False

    def probe(self) -> Availability:
        """Ask the kernel."""
        version = landlock.version()
        if not seccomp.supported():
            return Availability(
                available=False, reason="architecture", message="there is no system call filter for this architecture"
            )
        if version >= _OLDEST:
            return Availability(available=True, message=f"version {version}, without namespaces")
        if version:
            return Availability(
                available=False,
                reason="too-old",
                message=f"the kernel's Landlock has version {version}; {_OLDEST} is needed",
                fix="use Linux 6.2 or newer",
            )
        return Availability(
            available=False,
            reason="not-in-kernel",
            message="this kernel has no Landlock",
            fix="boot with landlock among the lsm= modules",
        )

    def guarantees(self) -> Guarantees:
        """What stays without namespaces, and what does not."""
        kept = ["writes", "credentials", "network", "kill", "home", "syscalls", "landlock"]
        kept += ["limit-memory", "limit-open-files", "limit-cpu", "limit-file-size"]
        missing = [Missing(name, reason, _USE_BUBBLEWRAP) for name, reason in _MISSING.items()]
        if landlock.version() < _SCOPES_SIGNALS:
            reason = "other processes are listed with their command lines, and yours can be signalled"
            missing.append(Missing("processes", reason, "use Linux 6.12 or newer, or bubblewrap"))
        else:
            missing.append(Missing("processes", "other processes are listed, with their command lines"))
        if os.geteuid() == 0:
            missing.append(
                Missing("no-root", "a command acts as the host's root, without its capabilities", _USE_BUBBLEWRAP)
            )
        if os.geteuid() != 0 or cgroups.counts_tasks():
            kept.append("limit-tasks")
        else:
            missing.append(Missing("limit-tasks", "the kernel does not count root's processes"))
        return Guarantees(tuple(kept), tuple(missing))

    def plan(self, request: PlanRequest) -> Plan:
        """Turn the request into rules, and refuse what cannot be kept.

        Raises:
            UnsupportedPolicy: a required guarantee is missing, or something granted cannot be given.
        """
        caps = request.capabilities
        if caps.network.kind == "hosts":
            self._refuse("network to chosen hosts", "it has no filtering proxy", "use --net none or --net all")
        for field, what in _NOT_YET.items():
            if getattr(caps, field):
                self._refuse(what, "it has no way to do so", f"leave {field} empty")
        guarantees = self.guarantees()
        rules = allow(request)
        for path in rules.exposed:
            if not is_below(path, request.workspace):
                self._refuse(f"writing around {path}", "it cannot hide what lies inside a writable place", _NARROWER)
        for path in rules.unguarded:
            why = "it cannot protect Ringfence's own code there"
            self._refuse(f"writing around {path}", why, "install Ringfence elsewhere, or use bubblewrap")
        for name in request.required:
            if name not in guarantees.kept:
                why = next((m.reason for m in guarantees.missing if m.guarantee == name), "it is unknown here")
                self._refuse(f"the required guarantee {name!r}", why, "see `ringfence status`")
        missing = [m for m in guarantees.missing if m.guarantee != "hidden" or rules.exposed]
        return Plan(
            backend=self.name,
            workspace=request.workspace,
            home=request.private_home or "",
            tmp=request.scratch or "",
            mounts=rules.mounts,
            network=caps.network,
            limits=caps.limits,
            spawn=caps.spawn,
            debug=caps.debug,
            landlock=landlock.version(),
            layers=("no-new-privileges", "no-capabilities", f"landlock-{landlock.version()}", "seccomp"),
            missing=tuple(missing),
        )

    def _refuse(self, feature: str, reason: str, hint: str) -> None:
        raise UnsupportedPolicy(self.name, feature, reason, hint=hint)

    def open(self, plan: Plan) -> Rules:
        """Return a place that starts one keeper for each command."""
        return Rules(plan)


_USE_BUBBLEWRAP = "install bubblewrap, and allow user namespaces"
_NARROWER = "ask for a narrower place"
_MISSING = {
    "loopback": "under network none there are no internet sockets at all",
    "tmp": "TMPDIR names a private directory; /tmp itself is out of reach",
    "mounts-checked": "there are no mounts",
    "metadata": "modes, times and attributes of your files outside can be changed, and their names tested",
    "hidden": "what is hidden in the workspace can be read",
    "protected": "a command's changes to git hooks and editor settings reach the host at once",
    "limit-scratch": "TMPDIR is on a disk without a ceiling",
}


class Rules:
    """An enclosure that exists only as rules."""

    reusable = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def run(self, launch: Launch) -> KeptRun:
        """Start a command by way of its keeper.

        Raises:
            ProgramNotFound: the program does not exist inside.
            SandboxUnavailable: what may be read or written cannot be opened.
        """
        plan = self.plan
        require_program(plan, launch)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

            def ends(*, we_read: bool) -> tuple[int, int]:
                read, write = pipe()
                (ours if we_read else theirs).callback(os.close, read)
                (theirs if we_read else ours).callback(os.close, write)
                return read, write

            sources = theirs.enter_context(opened(plan))
            for place in filter(None, (plan.home, plan.tmp)):
                # A command may have closed it to itself, and to the next one.
                os.chmod(f"/proc/self/fd/{sources[place]}", 0o700)
            stdin_read, stdin_write = ends(we_read=False)
            stdout_read, stdout_write = ends(we_read=True)
            stderr_read, stderr_write = ends(we_read=True)
            status_read, status_write = ends(we_read=True)
            control_read, control_write = ends(we_read=False)
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
            argv = (landlock.interpreter(), "-I", "-S", "-c", _START, str(control_read), str(status_write), root)
            standard = (stdin_read, stdout_write, stderr_write)
            keep = (control_read, status_write, *sources.values())
            group = cgroups.make(plan.limits, counted=os.geteuid() != 0)
            try:
                pid = spawn(argv[0], argv, env={}, standard=standard, keep=keep, within=group)
            except BaseException:
                if group is not None:
                    group.remove()
                raise
            try:
                exited = os.pidfd_open(pid)
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            run = KeptRun(
                pid,
                stdin=stdin_write if launch.stdin else None,
                stdout=stdout_read,
                stderr=stderr_read,
                exited=exited,
                status=status_read,
                control=control_write,
                group=group,
            )
            ours.pop_all()
            if not launch.stdin:
                os.close(stdin_write)
            try:
                run.release({**self._job(launch, sources, pid), "ceilings": run.limit(plan)})
            except BaseException:
                run.discard()
                raise
        return run

    def _job(self, launch: Launch, sources: Mapping[str, int], pid: int) -> Mapping[str, object]:
        plan = self.plan
        inet = plan.network.kind == "all"
        profile = seccomp.Profile(
            spawn=plan.spawn,
            debug=plan.debug,
            shared=True,
            inet=inet,
            keeper=pid if plan.landlock < _SCOPES_SIGNALS else 0,
        )
        writable = [m.target for m in plan.mounts if m.kind == "bind" and m.writable]
        env = {**launch.env, "HOME": plan.home, "TMPDIR": plan.tmp}
        return {
            "argv": [os.fsencode(word) for word in launch.argv],
            "cwd": launch.cwd,
            "env": {os.fsencode(name): os.fsencode(value) for name, value in env.items() if value},
            "landlock": plan.landlock,
            "tcp": inet,
            "readable": [fd for target, fd in sources.items() if target not in writable],
            "writable": [sources[target] for target in writable],
            "filter": seccomp.program(profile),
            "scoped": plan.landlock >= _SCOPES_SIGNALS,
        }

    def close(self) -> None:
        """Nothing outlives a command here."""


class KeptRun:
    """A command with its keeper."""

    complete = False

    def __init__(
        self,
        pid: int,
        *,
        stdin: int | None,
        stdout: int,
        stderr: int,
        exited: int,
        status: int,
        control: int,
        group: cgroups.Group | None,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.exited = exited
        self.limits: Mapping[str, str] = {}
        self._pid = pid
        self._status = status
        self._control = control
        self._group = group
        self._lock = _thread.allocate_lock()

    def limit(self, plan: Plan) -> list[tuple[int, int]]:
        """Return the ceilings for the command; a group holds its keeper as well."""
        grouped: Mapping[str, str] = {}
        if self._group is not None:
            self._group.attach(self._pid)
            grouped = self._group.applied
        beside = 0 if "tasks" in grouped else _tasks_of_user()
        found, single = rlimits.ceilings(plan.limits, counted=os.geteuid() != 0, grouped=grouped, beside=beside)
        self.limits = {**single, **grouped}
        return found

    def release(self, job: Mapping[str, object]) -> None:
        """Hand the job over."""
        data = keeper.message(job)
        try:
            while data:
                data = data[os.write(self._control, data) :]
        except BrokenPipeError:
            raise SandboxUnavailable(
                "the process that keeps the command ended before it began",
                hint="see `ringfence status`",
                reason="failed",
            ) from None

    def kill(self) -> None:
        """Have everything of the command killed."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Have the command's process group signalled."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            if self._control >= 0:
                os.write(self._control, bytes([number]))

    def discard(self) -> None:
        """Kill it, and give everything back, without asking how it ended."""
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        self.finish()

    def finish(self) -> Exit:
        """Wait until no process is left, and tell how the command ended."""
        with self._lock:
            os.close(self._control)
            self._control = -1
        poll = select.poll()
        poll.register(self.exited, select.POLLIN)
        poll.poll(_REAP_MS)
        with contextlib.suppress(ChildProcessError):  # other code in this process may wait for any child
            os.waitpid(self._pid, os.WNOHANG)
        os.set_blocking(self._status, False)
        said = b""
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._status, 64)
        out_of_memory = self._group is not None and self._group.out_of_memory_kills() > 0
        if self._group is not None:
            self._group.kill()
            self._group.remove()
        os.close(self.exited)
        os.close(self._status)
        if not said:
            return Exit(None, failure="the process that keeps the command was killed, or could not end it", lost=True)
        code = os.waitstatus_to_exitcode(int(said))
        if code < 0:
            return Exit(128 - code, -code, out_of_memory=out_of_memory)
        return Exit(code, out_of_memory=out_of_memory)


def _tasks_of_user() -> int:
    """Count the user's processes and threads, which the kernel counts together with the command's."""
    user, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += os.stat(f"/proc/{name}/task").st_nlink - 2
    return count
