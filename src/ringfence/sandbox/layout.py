"""Capabilities and workspace in, the file view out: pure, and shared by backends."""

from __future__ import annotations

from ringfence.errors import SessionError
from ringfence.model.paths import by_depth, covered, is_below, parents
from ringfence.sandbox.plan import Mount, deepest
from ringfence.sandbox.tables import PROC_HIDDEN, PROC_READ_ONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.sandbox.backend import PlanRequest
    from ringfence.sandbox.survey import Place

HELD = "held in place"
TMP = "/tmp"  # noqa: S108  # the place inside, which is private
_VAR_TMP = "/var/tmp"  # noqa: S108  # as above
_SHM = "/dev/shm"  # noqa: S108  # as above
_SHM_MB = 1024


def lay_out(request: PlanRequest, *, show: tuple[str, ...] = ()) -> tuple[Mount, ...]:
    """Return the whole file view, shallowest mount first; `show` is what the backend itself needs inside.

    Raises:
        SessionError: the workspace lies inside Ringfence's own installation.
    """
    view = _View(request)
    view.show_system()
    view.show_private()
    view.show_toolchains()
    view.show_granted()
    view.show_tools(show)
    view.hide()
    view.guard()
    view.hold()
    view.add_var_tmp()
    return _held(sorted(view.mounts.values(), key=lambda m: by_depth(m.target)))


class _View:
    """The mounts collected so far, by target; a later one replaces an earlier one at its place."""

    def __init__(self, request: PlanRequest) -> None:
        self.mounts: dict[str, Mount] = {}
        self._request = request
        self._survey = request.survey
        self._caps = request.capabilities
        self._granted = (*self._caps.read, *self._caps.write)
        # A grant on / shows the machine, but only a writable one shows the real home and /tmp.
        self._shown = (*self._caps.write, *(p for p in self._caps.read if p != "/"))

    def _add(self, mount: Mount) -> None:
        self.mounts[mount.target] = mount

    def _around(self, path: str) -> Mount | None:
        return deepest(path, self.mounts.values())

    def show_system(self) -> None:
        if "/" in self._granted:
            self._add(Mount("/", "bind", "/", writable="/" in self._caps.write, why="granted"))
            for place in self._survey.linked if "/" not in self._caps.write else ():
                self._add(Mount(place.path, "bind", place.real, why="system"))
        else:
            for place in (*self._survey.system, *self._survey.linked):
                self._add(Mount(place.path, "link" if place.kind == "link" else "bind", place.real, why="system"))
        self._add(Mount("/proc", "proc", why="of the command alone", writable=True))
        self._add(Mount("/dev", "dev", why="minimal"))
        self._add(Mount(_SHM, "tmpfs", why="in memory", writable=True, size_mb=_SHM_MB))
        # Whoever writes to the memory of the first process decides what it does, and when it dies.
        self._add(Mount("/proc/1", "tmpfs", why="the sandbox's own first process"))
        for path in PROC_HIDDEN:
            self._add(Mount(path, "mask", why="hidden"))
        for path in PROC_READ_ONLY:
            self._add(Mount(path, "bind", path, why="kernel settings"))

    def show_private(self) -> None:
        if not covered(TMP, self._caps.write):
            size = self._caps.limits.scratch_mb
            self._add(_private(TMP, self._request.scratch, "private /tmp", size))
        if not covered(self._survey.home, self._shown):
            self._add(_private(self._survey.home, self._request.private_home, "private home", None))

    def show_toolchains(self) -> None:
        for place in self._survey.toolchains:
            if not covered(place.path, (*self._shown, self._request.workspace)):
                self._add(Mount(place.path, "bind", place.real, why="on PATH"))

    def show_granted(self) -> None:
        workspace = self._request.workspace
        for path in self._caps.read:
            around = self._around(path)
            if path != "/" and not (around and around.is_real and not around.writable):
                self._add(Mount(path, "bind", path, why="granted"))
        for path in self._caps.write:
            if path != "/":
                why = "workspace" if path == workspace else "granted"
                self._add(Mount(path, "bind", path, writable=True, why=why))
        if not covered(workspace, self._caps.write):
            self._add(Mount(workspace, "bind", workspace, why="workspace"))

    def hide(self) -> None:
        survey = self._survey
        for place in (*survey.emptied, *survey.root_only, *survey.hidden):
            around = self._around(place.path)
            if place in survey.root_only and survey.drops_root and around and around.why == "system":
                continue  # its mode protects it; a granted place is handed over with root's files readable
            if place.path not in self._granted and not covered(place.path, self._caps.reveal):
                self._mask(place)
        for place in survey.concealed:
            self._mask(place)

    def _mask(self, place: Place) -> None:
        around = self._around(place.path)
        if around and around.is_real:
            self._add(Mount(place.path, "tmpfs" if place.kind == "dir" else "mask", why="hidden"))

    def guard(self) -> None:
        """Keep commands from changing the code that confines the next one."""
        workspace = self._request.workspace
        for place in self._survey.guarded:
            if is_below(workspace, place.path) and covered(workspace, self._caps.write):
                msg = f"the workspace {workspace} lies inside Ringfence's own installation {place.path}"
                raise SessionError(msg, hint="choose another workspace, or install Ringfence elsewhere")
            around = self._around(place.path)
            if around and around.is_real and around.writable:
                self._add(Mount(place.path, "bind", place.real, why="Ringfence itself"))

    def show_tools(self, paths: tuple[str, ...]) -> None:
        """Show what the start itself needs, where nothing shows it yet."""
        for path in paths:
            around = self._around(path)
            if around is None or not (around.is_real or around.why == "on PATH"):
                self._add(Mount(path, "bind", path, why="Ringfence itself"))

    def hold(self) -> None:
        """Keep what other commands mount over in place as well."""
        for target in self._request.held:
            around = self._around(target)
            # What leads to a mount of this plan is held in any case.
            if any(is_below(mounted, target) for mounted in self.mounts):
                continue
            if around and around.kind == "bind" and not around.is_real:
                source = around.source + target[len(around.target) :]
                self._add(Mount(target, "bind", source, writable=True, why=HELD, within=around.source))

    def add_var_tmp(self) -> None:
        """Make /var/tmp the same as /tmp, or one of its own where something is mounted below it."""
        if covered(_VAR_TMP, self._granted):
            return
        if any(is_below(target, _VAR_TMP) for target in self.mounts):
            self._add(Mount(_VAR_TMP, "tmpfs", why="private /var/tmp", writable=True))
        else:
            self._add(Mount(_VAR_TMP, "link", TMP, why="private /tmp"))


def _private(target: str, source: str | None, why: str, size_mb: int | None) -> Mount:
    if source is None:
        return Mount(target, "tmpfs", why=why, writable=True, size_mb=size_mb)
    return Mount(target, "bind", source, writable=True, why=why)


def _held(mounts: list[Mount]) -> tuple[Mount, ...]:
    """Make every directory between a writable mount and a mount below it a mount of its own.

    A directory that merely contains a mount point can be renamed by the command, and a new one put in
    its place; a mount point cannot.
    """
    laid: dict[str, Mount] = {}
    for mount in mounts:
        around = deepest(mount.target, laid.values())
        if around is None or not around.writable or around.kind != "bind":
            laid[mount.target] = mount
            continue
        root, holder = around.within or around.source, around.target
        for directory in parents(mount.target, around.target):
            source = around.source.rstrip("/") + directory[len(around.target.rstrip("/")) :]
            laid[directory] = Mount(directory, "bind", source, writable=True, why=HELD, within=root, around=holder)
            holder = directory
        in_reach = mount.kind == "bind" and is_below(mount.source, root)
        laid[mount.target] = mount.replace(within=root if in_reach else "", around=holder)
    return tuple(laid.values())
