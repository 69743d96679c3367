"""Ceilings for a command as a whole, by control groups where we may make one.

Version 2 where its controllers are delegated to us, else version 1 where its hierarchies are writable.
Moving another process takes the kernel up to 15 ms, but in version 1 a thread moves itself in none: so
whoever starts a program is in the group for that moment, and the program inherits it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import lru_cache

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.limits import Limits

_PREFIX = "ringfence-"
_REMOVE_SECONDS = 2.0
DEFAULT_TASKS = 4096
_MAX_PIDS = 4194304  # more the kernel does not have


class Controller(Value):
    """Where one controller's groups are made, and what its files are called."""

    base: str
    version: int
    limit: str
    events: str = ""


class Group:
    """The control group of one command: a directory for each controller."""

    def __init__(self, paths: dict[str, tuple[str, Controller]], applied: dict[str, str]) -> None:
        self.applied = applied
        self._paths = paths
        self._events = -1

    def __enter__(self) -> None:
        """Move the calling thread in, where that is cheap: what it starts is born in the group."""
        for path, controller in self._paths.values():
            if controller.version == 1:
                _write(os.path.join(path, "tasks"), "0")

    def __exit__(self, *_: object) -> None:
        for controller in (controller for _, controller in self._paths.values()):
            if controller.version == 1:
                _write(os.path.join(controller.base, "tasks"), "0")

    def attach(self, pid: int) -> None:
        """Move a process in that has not started its command yet, where it was not born there."""
        for path in {path for path, controller in self._paths.values() if controller.version != 1}:
            _write(os.path.join(path, "cgroup.procs"), str(pid))

    def out_of_memory_kills(self) -> int:
        """Tell how often the kernel killed something in it for its memory."""
        if self._events < 0 and "memory" in self._paths:
            path, controller = self._paths["memory"]
            with contextlib.suppress(OSError):
                self._events = os.open(os.path.join(path, controller.events), os.O_RDONLY | os.O_CLOEXEC)
        if self._events < 0:
            return 0
        _, found, count = os.pread(self._events, 4096, 0).partition(b"oom_kill ")
        return int(count.split()[0]) if found else 0

    def kill(self) -> None:
        """Kill what is left in it: nothing, unless whoever should have done so was killed first."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        for path in {path for path, _ in self._paths.values()}:
            while (left := _read(os.path.join(path, "cgroup.procs")).split()) and time.monotonic() < deadline:
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.001)

    def remove(self) -> None:
        """Remove it; its processes are dead, but the kernel may take a moment to let go of them."""
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
        deadline = time.monotonic() + _REMOVE_SECONDS
        for path in {path for path, _ in self._paths.values()}:
            while os.path.isdir(path) and time.monotonic() < deadline:
                try:
                    os.rmdir(path)
                except OSError:
                    time.sleep(0.01)
            if os.path.isdir(path):
                _left.add(path)  # somebody has not waited for a child of ours yet; tried again by the next command


_left: set[str] = set()
_TABLE, _OWN = "/proc/self/mountinfo", "/proc/self/cgroup"


def counts_tasks() -> bool:
    """Tell whether tasks have a ceiling by a group even where nobody asked for one."""
    controller = available(_TABLE, _OWN).get("pids")
    return controller is not None and controller.version == 1


def make(limits: Limits, *, counted: bool, table: str = _TABLE, own: str = _OWN) -> Group | None:
    """Make a group with the ceilings that can be kept this way, or none.

    Memory has one where that costs nothing: a command that nobody limited may not take the machine down.
    So have tasks where the kernel does not count them for the user otherwise, which `counted` tells.
    """
    tasks = limits.tasks or (None if counted else DEFAULT_TASKS)
    wanted = {
        "memory": int(limits.memory_mb) * 2**20 if limits.memory_mb else most_memory(),
        "pids": tasks and min(int(tasks), _MAX_PIDS),
    }
    wanted = {name: value for name, value in wanted.items() if value}
    if not wanted:
        return None
    found = {name: c for name, c in available(table, own).items() if name in wanted}
    name = f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
    paths: dict[str, tuple[str, Controller]] = {}
    applied: dict[str, str] = {}
    for kind, controller in found.items():
        asked = limits.memory_mb if kind == "memory" else limits.tasks
        if not asked and controller.version != 1:
            continue  # moving a process in takes too long for what nobody asked for; a limit of each process serves
        _sweep(controller.base)
        path = os.path.join(controller.base, name)
        try:
            os.makedirs(path, exist_ok=True)
            _write(os.path.join(path, controller.limit), str(wanted[kind]))
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(path)
            continue
        paths[kind] = (path, controller)
        applied["memory" if kind == "memory" else "tasks"] = _told(kind, wanted[kind], controller.version)
    return Group(paths, applied) if paths else None


def most_memory() -> int:
    """Return three quarters of the machine's memory, in whole MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4 // 2**20 * 2**20


def _told(kind: str, value: float | None, version: int) -> str:
    amount = f"{int(value or 0) // 2**20} MiB" if kind == "memory" else f"{int(value or 0)}"
    return f"{amount} together (cgroup v{version})"


@lru_cache(maxsize=4)
def available(table: str, own: str) -> dict[str, Controller]:
    """Find where groups may be made for us; looked at once."""
    return controllers(_read(table), _read(own))


def controllers(table: str, own: str) -> dict[str, Controller]:
    """Find where groups for memory and tasks may be made, from the texts of `mountinfo` and `cgroup`."""
    membership = {}
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        membership["unified" if number == "0" else kinds] = path
    found: dict[str, Controller] = {}
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, (fstype, _, options) = before.split(" "), [*after.split(" "), "", "", ""][:3]
        root, point = fields[3], fields[4]
        if fstype == "cgroup2" and "unified" in membership:
            for kind in _delegated(_inside(point, root, membership["unified"])):
                base = _inside(point, root, membership["unified"])
                found[kind] = Controller(base, 2, f"{kind}.max", "memory.events")
        elif fstype == "cgroup":
            for kind in ("memory", "pids"):
                if kind in options.split(",") and kind in membership and kind not in found:
                    limit = "memory.limit_in_bytes" if kind == "memory" else "pids.max"
                    base = _inside(point, root, membership[kind])
                    if os.access(base, os.W_OK):
                        found[kind] = Controller(base, 1, limit, "memory.oom_control")
    return found


def _inside(point: str, root: str, path: str) -> str:
    """Translate a group's path to where its hierarchy is mounted, of which `root` may be a part."""
    below = path[len(root) :] if root != "/" and path.startswith(root) else path
    return os.path.normpath(f"{point}/{below}")


def _delegated(base: str) -> list[str]:
    """Name the controllers whose groups may be made in a group of version 2."""
    if not os.access(base, os.W_OK):
        return []
    try:
        enabled = _read(os.path.join(base, "cgroup.subtree_control")).split()
    except OSError:
        return []
    return [kind for kind in ("memory", "pids") if kind in enabled]


def _sweep(base: str) -> None:
    """Remove the groups of processes that were killed before they could, and our own that did not go."""
    for path in list(_left):
        with contextlib.suppress(OSError):
            os.rmdir(path)
        if not os.path.isdir(path):
            _left.discard(path)
    with contextlib.suppress(OSError):
        for entry in os.listdir(base):
            owner = entry.removeprefix(_PREFIX).partition("-")[0]
            if entry.startswith(_PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(base, entry))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
