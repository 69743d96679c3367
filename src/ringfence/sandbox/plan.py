"""What a backend will make true for a command: a value that can be printed and compared."""

from __future__ import annotations

import os

from ringfence.model.paths import is_below
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from ringfence.model.limits import Limits
    from ringfence.model.network import Network
    from ringfence.model.output import Missing

    Kind = Literal["bind", "tmpfs", "proc", "dev", "link", "mask"]

_MAX_LINKS = 20


class Mount(Value):
    """One thing that is mounted, or one link that is made, in the command's view.

    `around` is the target of the writable mount right around it, where there is one, and `within` the
    source of the outermost such mount: everything below that was written by earlier commands, so
    sources and mount points are opened beneath it and without following links. What is `optional` may be
    gone by the time it is opened.
    """

    target: str
    kind: Kind
    source: str = ""
    writable: bool = False
    why: str = ""
    within: str = ""
    around: str = ""
    optional: bool = False
    size_mb: int | None = None

    @property
    def is_real(self) -> bool:
        """Whether it shows the host's own file of the same name."""
        return self.kind == "bind" and self.source == self.target

    def __str__(self) -> str:
        access = "write" if self.writable else "read "
        if self.kind == "link":
            return f"link   {self.target} -> {self.source}"
        if self.kind == "mask":
            return f"hidden {self.target}"
        origin = f"  from {self.source}" if self.source not in {"", self.target} else ""
        return f"{access}  {self.target}{origin}  ({self.why})"


class Plan(Value):
    """What a backend will make true for a command."""

    backend: str
    workspace: str
    home: str
    mounts: tuple[Mount, ...]
    network: Network
    limits: Limits
    tmp: str = "/tmp"  # noqa: S108  # the place inside, which is private
    spawn: bool = True
    debug: bool = False
    drops_root: bool = False
    landlock: int = 0
    warm: bool = False
    layers: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()

    def __str__(self) -> str:
        lines = [f"backend   {self.backend}", f"layers    {', '.join(self.layers) or 'none'}"]
        lines.append(f"network   {self.network}")
        if not self.spawn:
            lines.append("spawn     no further processes")
        if self.debug:
            lines.append("debug     may trace its own processes")
        lines += [f"missing   {m}" for m in self.missing]
        return "\n".join([*lines, *(f"  {mount}" for mount in self.mounts)])

    def host_path(self, path: str) -> str | None:
        """Tell where the host keeps what `path` names inside; `None` where the host has nothing there."""
        for _ in range(_MAX_LINKS):
            link = next((m for m in self.mounts if m.kind == "link" and is_below(path, m.target)), None)
            if link is None:
                break
            to = os.path.join(os.path.dirname(link.target), link.source)
            path = os.path.normpath(to + path[len(link.target) :])
        mount = deepest(path, self.mounts)
        if mount is None or mount.kind != "bind":
            return None
        return os.path.normpath(mount.source + "/" + path[len(mount.target) :])

    def as_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "backend": self.backend,
            "workspace": self.workspace,
            "home": self.home,
            "network": str(self.network),
            "spawn": self.spawn,
            "debug": self.debug,
            "layers": list(self.layers),
            "missing": [str(m) for m in self.missing],
            "mounts": [
                {
                    "target": m.target,
                    "kind": m.kind,
                    "source": m.source,
                    "writable": m.writable,
                    "why": m.why,
                }
                for m in self.mounts
            ],
        }


def deepest(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that decides about `path`."""
    around = [m for m in mounts if is_below(path, m.target) and m.kind != "link"]
    return max(around, key=lambda m: len(m.target), default=None)
