"""Capabilities and workspace in, what may be read and written out: for backends that cannot mount.

Rules only add. So what is hidden inside a readable place is left out by naming its neighbours, and
what would have to be hidden inside a writable place cannot be: that is refused, or reported.
"""

from __future__ import annotations

import os

from ringfence.model.paths import covered, is_below
from ringfence.model.value import Value
from ringfence.sandbox.plan import Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.sandbox.backend import PlanRequest

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OF_THE_SYSTEM = ("/proc",)


class Rules(Value):
    """What may be read and written; `exposed` would have to be hidden, and is not."""

    mounts: tuple[Mount, ...]
    exposed: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()


def allow(request: PlanRequest) -> Rules:
    """Return the rules for a request: every path as it is on the host."""
    survey, caps, workspace = request.survey, request.capabilities, request.workspace
    private = [p for p in (request.private_home, request.scratch) if p]
    secret = [p.path for p in (*survey.root_only, *survey.hidden)]
    hidden = [p for p in secret if p not in (*caps.read, *caps.write) and not covered(p, caps.reveal)]
    own = [p.path for p in survey.concealed]
    mounts = {p.path: Mount(p.path, "link", p.real, why="system") for p in survey.system if p.kind == "link"}

    named = {
        *(p.real for p in (*survey.system, *survey.linked, *survey.toolchains)),
        *caps.read,
        workspace,
        *_OF_THE_SYSTEM,
    }

    def add(paths: Iterable[str], why: str, *, writable: bool = False) -> None:
        for path in paths:
            optional = path not in named and not writable  # a neighbour of something hidden
            mounts[path] = Mount(path, "bind", path, writable=writable, why=why, optional=optional)

    system = [p.real for p in (*survey.system, *survey.linked) if p.kind != "link"]
    if survey.as_root:
        system = [p for p in system if not is_below(p, "/sys")]  # where reading may act, for root
    without = [*hidden, *own]
    add((p for path in system for p in carve(path, without)), "system")
    add(_OF_THE_SYSTEM, "system")
    add((d for d in DEVICES if os.path.exists(d)), "device", writable=True)
    add((p for place in survey.toolchains for p in carve(place.real, without)), "on PATH")
    # A grant on / shows the machine: not the real home, and no terminals.
    beyond = [*without, survey.home, "/dev", "/proc"] if "/" in caps.read else without
    add((p for path in caps.read for p in carve(path, beyond)), "granted")
    # One of ours lies in the state directory, which is hidden otherwise.
    add([workspace] if covered(workspace, own) else carve(workspace, without), "workspace")
    add(caps.write, "granted", writable=True)
    if covered(workspace, caps.write):
        add((workspace,), "workspace", writable=True)
    add(private, "private", writable=True)
    writable = (*caps.write, *private)
    return Rules(
        mounts=tuple(mounts.values()),
        exposed=tuple(p for p in without if covered(p, writable) and not covered(p, private)),
        unguarded=tuple(
            p.path
            for p in survey.guarded
            if covered(p.path, caps.write) or (is_below(workspace, p.path) and covered(workspace, caps.write))
        ),
    )


def carve(path: str, without: Iterable[str]) -> list[str]:
    """Return `path`, or as much of what lies in it as leaves `without` out."""
    left_out = [p for p in without if is_below(p, path)]
    if covered(path, without):
        return []
    if not left_out or not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for name in _listed(path):
        inner = os.path.join(path, name)
        if not os.path.islink(inner):  # what it leads to has a rule of its own, or none
            found += carve(inner, left_out)
    return found


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
