"""What a command may reach, and the order in which one reach contains another."""

from __future__ import annotations

from ringfence.model.limits import Limits
from ringfence.model.network import Network
from ringfence.model.paths import covered, normal, outermost
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from typing import Literal

    Tier = Literal["read-only", "workspace-write", "full-access"]

TIERS: Sequence[Tier] = ("read-only", "workspace-write", "full-access")
_MAX_PORT = 65535


class Capabilities(Value):
    """A command's reach beyond the system directories, which everybody may read.

    `read` and `write` are roots of trees; what is writable is readable too. `reveal` names what would be
    hidden below them, such as a workspace's `.env`. The constructor brings everything into one canonical
    form, so two values that allow the same are equal.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    reveal: tuple[str, ...] = ()
    network: Network = Network()
    sockets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    publish: tuple[int, ...] = ()
    spawn: bool = False
    debug: bool = False
    limits: Limits = Limits()

    def _normalise(self) -> None:
        write = outermost(self.write)
        self._put("write", write)
        self._put("read", tuple(p for p in outermost(self.read) if not covered(p, write)))
        self._put("reveal", outermost(self.reveal))
        self._put("sockets", tuple(sorted({normal(p) for p in self.sockets})))
        self._put("devices", tuple(sorted({normal(p) for p in self.devices})))
        for port in self.publish:
            if not 0 < port <= _MAX_PORT:
                msg = f"not a port: {port!r}"
                raise ValueError(msg)
        self._put("publish", tuple(sorted(set(self.publish))))

    @classmethod
    def strict(cls) -> Capabilities:
        """The least there is: no path, no network, no new processes."""
        return cls()

    @classmethod
    def for_tier(cls, tier: str, workspace: str) -> Capabilities:
        """The named baseline for a workspace.

        Raises:
            ValueError: there is no such tier.
        """
        if tier == "read-only":
            return cls(read=(workspace,), spawn=True)
        if tier == "workspace-write":
            return cls(write=(workspace,), spawn=True)
        if tier == "full-access":
            return cls(write=("/",), network=Network.all(), spawn=True, debug=True)
        msg = f"tier is one of {', '.join(TIERS)}, not {tier!r}"
        raise ValueError(msg)

    def is_within(self, other: Capabilities) -> bool:
        """Tell whether `other` allows everything that this one allows."""
        if self is other:
            return True
        readable = (*other.read, *other.write)
        return (
            all(covered(path, readable) for path in self.read)
            and all(covered(path, other.write) for path in self.write)
            and all(covered(path, other.reveal) for path in self.reveal)
            and self.network.is_within(other.network)
            and set(self.sockets) <= set(other.sockets)
            and set(self.devices) <= set(other.devices)
            and set(self.publish) <= set(other.publish)
            and self.spawn <= other.spawn
            and self.debug <= other.debug
            and self.limits.is_within(other.limits)
        )

    def beyond(self, other: Capabilities) -> tuple[str, ...]:
        """Name, for a person, what this one allows and `other` does not."""
        readable = (*other.read, *other.write)
        names = [f"read {p}" for p in self.read if not covered(p, readable)]
        names += [f"write {p}" for p in self.write if not covered(p, other.write)]
        names += [f"see the hidden {p}" for p in self.reveal if not covered(p, other.reveal)]
        if not self.network.is_within(other.network):
            names.append(f"network {self.network}")
        names += [f"socket {p}" for p in self.sockets if p not in other.sockets]
        names += [f"device {p}" for p in self.devices if p not in other.devices]
        names += [f"publish port {p}" for p in self.publish if p not in other.publish]
        names += [flag for flag in ("spawn", "debug") if getattr(self, flag) > getattr(other, flag)]
        for name in Limits._fields:
            ours, theirs = getattr(self.limits, name), getattr(other.limits, name)
            if theirs is not None and (ours is None or ours > theirs):
                names.append(f"{name} {'unlimited' if ours is None else ours}, above {theirs}")
        return tuple(names)

    def with_read(self, *paths: str | os.PathLike[str]) -> Capabilities:
        """Return these and the right to read `paths`, also where they would be hidden."""
        named = tuple(map(normal, paths))
        hidden = tuple(p for p in named if covered(p, (*self.read, *self.write)))
        return self.replace(read=(*self.read, *named), reveal=(*self.reveal, *hidden))

    def with_write(self, *paths: str | os.PathLike[str]) -> Capabilities:
        """Return these and the right to read and write `paths`."""
        return self.replace(write=(*self.write, *map(normal, paths)))

    def with_network(self, network: Network | str) -> Capabilities:
        """Return these with another network policy."""
        parsed = Network.parse(network) if isinstance(network, str) else network
        return self.replace(network=parsed)

    def with_limits(self, limits: Limits) -> Capabilities:
        """Return these with other ceilings."""
        return self.replace(limits=limits)

    def without_spawn(self) -> Capabilities:
        """Return these without the right to start further processes."""
        return self.replace(spawn=False)

    def without_network(self) -> Capabilities:
        """Return these with loopback only."""
        return self.replace(network=Network.none())

    def without_write(self, paths: Iterable[str] | None = None) -> Capabilities:
        """Return these with `paths` (all by default) readable instead of writable."""
        dropped = self.write if paths is None else outermost(paths)
        return self.replace(
            write=tuple(p for p in self.write if not covered(p, dropped)),
            read=(*self.read, *(p for p in self.write if covered(p, dropped))),
        )
