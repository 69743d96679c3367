"""What this machine has: looked at once, so that planning is a function of values."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from functools import lru_cache

from ringfence.model.paths import covered, is_below, normal
from ringfence.model.value import Value
from ringfence.sandbox import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Place(Value):
    """An existing path: a directory, a file, or a link with its literal target."""

    path: str
    kind: str = "dir"
    real: str = ""


class Survey(Value):
    """The facts that a plan is made from."""

    home: str
    as_root: bool
    drops_root: bool = False
    system: tuple[Place, ...] = ()
    linked: tuple[Place, ...] = ()
    toolchains: tuple[Place, ...] = ()
    hidden: tuple[Place, ...] = ()
    root_only: tuple[Place, ...] = ()
    emptied: tuple[Place, ...] = ()
    guarded: tuple[Place, ...] = ()
    concealed: tuple[Place, ...] = ()


def look(*, home: str, path: str, own: tuple[str, ...]) -> Survey:
    """Look at the machine: `path` is the caller's PATH, `own` are our configuration and state."""
    as_root = os.geteuid() == 0
    return Survey(
        home=home,
        as_root=as_root,
        system=_places((*tables.SYSTEM, *tables.MACHINE)),
        linked=_linked(),
        toolchains=_toolchains(home, path, own),
        root_only=_places(tables.ROOT_ONLY) if as_root else (),
        emptied=_places(tables.EMPTIED),
        guarded=_places(dict.fromkeys(installation())),
    )


def to_hide(
    survey: Survey,
    own: tuple[str, ...],
    *,
    secrets: tuple[str, ...],
    shown: tuple[str, ...],
    writable: tuple[str, ...],
    sockets: tuple[str, ...] = (),
) -> Survey:
    """Add what must be hidden at this moment: credentials may have appeared since the last command.

    `secrets` are files in the workspace; a link there was put by a command or leads to what is not shown,
    and is left alone. Directories of ours are hidden before they exist where a command could make them,
    for us to read. `sockets` are those of the host in places that are `shown`.
    """
    inside = tuple(Place(p, "file", p) for p in secrets if os.path.isfile(p) and os.path.realpath(p) == p)
    hidden = (*_places(in_view(survey.home, shown)), *inside)
    absent = (p for p in own if not os.path.lexists(p) and covered(p, writable) and _can_make(p))
    if "/" not in writable:
        sockets = tuple(p for p in sockets if "/" not in shown or not covered(p, tables.SOCKETS))
        hidden += (*(_places(tables.SOCKETS) if "/" in shown else ()), *(Place(p, "file", p) for p in sockets))
    concealed = (*_places(own), *(Place(p, "dir", p) for p in absent))
    return survey.replace(hidden=hidden, concealed=concealed)


@lru_cache(maxsize=16)
def in_view(home: str, shown: tuple[str, ...]) -> tuple[str, ...]:
    """Name what must be hidden of a home, as far as something around it is shown."""
    return tuple(p for p in (os.path.join(home, name) for name in tables.HIDDEN) if covered(p, shown))


def host_sockets(roots: tuple[str, ...], *, table: str = "/proc/net/unix") -> tuple[str, ...]:
    """Find the sockets that programs of the host listen on below `roots`; those of commands are not in the table."""
    found: dict[str, None] = {}
    try:
        with open(table, "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:
        return ()
    for line in lines[1:]:
        name = line.split(maxsplit=7)[7:]
        if not name or name[0].startswith("@"):
            continue
        # One that was bound by a relative name is looked for right below each root.
        candidates = [name[0]] if name[0].startswith("/") else [os.path.join(root, name[0]) for root in roots]
        for path in candidates:
            real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if covered(real, roots) and _is_socket(real):
                found[real] = None
    return tuple(found)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _can_make(path: str) -> bool:
    above = os.path.dirname(path)
    return os.access(above, os.W_OK) if os.path.isdir(above) else above != path and _can_make(above)


def installation() -> tuple[str, ...]:
    """Name where our code and its interpreter lie: read-only inside, wherever that is.

    The package's parent counts as well: a module planted beside the package would be imported.
    """
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    library = os.path.dirname(os.path.realpath(os.__file__))
    prefixes = {os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)} - {"/", "/usr", "/usr/local"}
    return (os.path.dirname(package), library, *sorted(prefixes))


def _place(path: str) -> Place | None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        real = os.path.realpath(path)
        if covered(real, tables.SYSTEM):
            return Place(path, "link", os.readlink(path))
        return Place(path, "dir" if os.path.isdir(real) else "file", real) if os.path.exists(real) else None
    return Place(path, "dir" if stat.S_ISDIR(mode) else "file", path)


def _places(paths: Iterable[str]) -> tuple[Place, ...]:
    return tuple(place for place in map(_place, paths) if place)


def _linked() -> tuple[Place, ...]:
    """Find the files behind links from /etc that lie outside the directories shown anyway."""
    found: dict[str, Place] = {}
    for path in tables.LINKED:
        real = os.path.realpath(path)
        shown = covered(real, (*tables.SYSTEM, "/proc", "/dev"))
        if os.path.islink(path) and not shown and os.path.isfile(real):
            found[real] = Place(real, "file", real)
    return tuple(found.values())


def _toolchains(home: str, path: str, own: tuple[str, ...]) -> tuple[Place, ...]:
    """Find what has to be shown so that the programs on `path` run.

    A directory on PATH may lie where commands can write, and then its links were chosen by them. So a
    link is followed only for the known toolchains right below the home, and never to a place that is
    hidden or ours.
    """
    hidden = (*(os.path.join(home, name) for name in tables.HIDDEN), *own)
    found: dict[str, Place] = {}
    for entry in path.split(os.pathsep):
        if not entry.startswith("/") or covered(normal(entry), (*tables.SYSTEM, "/proc", "/sys", "/dev", "/run")):
            continue
        for root, may_link in _roots(normal(entry), home):
            real = os.path.realpath(root)
            secret = covered(real, hidden) or any(is_below(h, real) for h in hidden)
            if os.path.isdir(real) and (may_link or real == root) and not secret and not is_below(home, real):
                found[root] = Place(root, "dir", real)
    return tuple(p for p in found.values() if not covered(p.path, [q for q in found if q != p.path]))


def _roots(entry: str, home: str) -> list[tuple[str, bool]]:
    """Name the directories that an entry of PATH needs, and whether each may be a link."""
    known = _known(entry, home)
    if known:
        return known
    above = os.path.dirname(entry)
    if os.path.basename(entry) == "bin" and os.path.isfile(os.path.join(above, "pyvenv.cfg")):
        interpreter = os.path.realpath(os.path.join(entry, "python3"))
        return [(above, False), *_known(interpreter, home)]
    return [(entry, False)]


def _known(path: str, home: str) -> list[tuple[str, bool]]:
    """Name the toolchain that `path` belongs to, and its companions.

    PATH may point below the user's own home while HOME says another.
    """
    for base in (home, os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)):
        for name in tables.TOOLCHAINS:
            if is_below(path, os.path.join(base, name)):
                return [(os.path.join(base, n), True) for n in (name, *tables.COMPANIONS.get(name, ()))]
    return []
