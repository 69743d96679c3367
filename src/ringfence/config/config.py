"""The typed configuration, and the ceilings that only narrow it."""

from __future__ import annotations

from ringfence.model.capabilities import TIERS, Capabilities
from ringfence.model.guarantees import REQUIRED
from ringfence.model.limits import MAX_TIMEOUT, Limits
from ringfence.model.network import Network, host_covers
from ringfence.model.paths import is_below
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Config(Value):
    """Everything that steers a Fence. Built in, then files, then arguments: each may widen the last."""

    tier: str = "workspace-write"
    backend: str = "auto"
    enabled: bool = True
    timeout: float = 60.0
    max_timeout: float = MAX_TIMEOUT
    max_output: int = 2**20
    approval_wait: float = 120.0
    warm: bool = True
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: Network | None = None
    spawn: bool = True
    limits: Limits = Limits()
    require: tuple[str, ...] = ()
    hidden: tuple[str, ...] = (".env", ".env.local", ".env.production")
    environment_inherit: str = "core"
    environment_exclude: tuple[str, ...] = ()
    environment_pass: tuple[str, ...] = ()
    environment_set: Mapping[str, str] = {}
    ceilings: tuple[Ceiling, ...] = ()

    def __hash__(self) -> int:
        return hash((self.tier, self.backend, self.read, self.write, self.ceilings))

    @property
    def required(self) -> tuple[str, ...]:
        """The guarantees without which no command starts."""
        return tuple(dict.fromkeys((*REQUIRED, *self.require)))

    def baseline(self, workspace: str) -> Capabilities:
        """Return what a session on `workspace` may do unasked, within every ceiling."""
        caps = Capabilities.for_tier(self.tier, workspace)
        caps = caps.replace(
            read=(*caps.read, *self.read),
            write=(*caps.write, *self.write),
            network=self.network or caps.network,
            spawn=self.spawn and caps.spawn,
            limits=self.limits,
        )
        for ceiling in self.ceilings:
            caps = ceiling.narrow(caps, workspace)
        return caps

    @classmethod
    def load(cls, **changes: object) -> Config:
        """Return what the configuration files say, with some settings changed by the program."""
        import os

        from ringfence.config.load import defaults
        from ringfence.session.places import places

        return defaults(places(os.environ)).replace(**changes)

    def narrowed(self, ceiling: Ceiling) -> Config:
        """Return this configuration under one more ceiling."""
        return self.replace(
            tier=min(self.tier, ceiling.tier or self.tier, key=_tier_order),
            enabled=self.enabled and ceiling.enabled,
            timeout=min(self.timeout, ceiling.timeout, ceiling.max_timeout),
            max_timeout=min(self.max_timeout, ceiling.timeout, ceiling.max_timeout),
            max_output=min(self.max_output, ceiling.max_output),
            limits=self.limits.tightened(ceiling.limits),
            require=tuple(dict.fromkeys((*self.require, *ceiling.require))),
            hidden=tuple(dict.fromkeys((*self.hidden, *ceiling.hidden))),
            ceilings=(*self.ceilings, ceiling),
        )


class Ceiling(Value):
    """What one narrowing place says; `None` says nothing."""

    source: str
    tier: str | None = None
    enabled: bool = True
    timeout: float = MAX_TIMEOUT
    max_timeout: float = MAX_TIMEOUT
    max_output: int = 2**30
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    network: Network | None = None
    spawn: bool = True
    limits: Limits = Limits()
    require: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def narrow(self, caps: Capabilities, workspace: str) -> Capabilities:
        """Return as much of `caps` as this ceiling leaves; the workspace itself stays visible."""
        write, network = caps.write, caps.network
        if self.tier in {"read-only", "workspace-write"}:
            write = () if self.tier == "read-only" else _common(write, (workspace,))
            network = Network.none()
            caps = caps.replace(debug=False, reveal=(), sockets=(), devices=(), publish=())
        lost = tuple(p for p in caps.write if p not in write)
        if self.write is not None:
            write = _common(write, (*self.write, workspace))
        read: tuple[str, ...] = (*caps.read, *(workspace for path in lost if is_below(workspace, path)))
        if self.read is not None:
            read = _common(read, (*self.read, workspace))
        if self.network is not None:
            network = _common_network(network, self.network)
        return caps.replace(
            read=read,
            write=write,
            network=network,
            spawn=caps.spawn and self.spawn,
            limits=caps.limits.tightened(self.limits),
        )


def _tier_order(tier: str) -> int:
    return [str(t) for t in TIERS].index(tier)


def _common(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths that both trees contain."""
    kept = [a for a in ours if any(is_below(a, b) for b in theirs)]
    kept += [b for b in theirs if any(is_below(b, a) for a in ours)]
    return tuple(dict.fromkeys(kept))


def _common_network(ours: Network, theirs: Network) -> Network:
    if ours.is_within(theirs):
        return ours
    if theirs.is_within(ours):
        return theirs
    hosts = [a for a in ours.hosts if any(host_covers(b, a) for b in theirs.hosts)]
    hosts += [b for b in theirs.hosts if any(host_covers(a, b) for a in ours.hosts)]
    return Network.to_hosts(hosts)
