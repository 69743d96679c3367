"""Which network a command may reach: none ⊆ hosts ⊆ all."""

from __future__ import annotations

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
_MAX_NAME = 253


def host_pattern(text: str) -> str:
    """Return the canonical form of `name` or `*.suffix`.

    Raises:
        ValueError: it is not a host name, an address or a `*.` in front of a name.
    """
    pattern = text.strip().lower().rstrip(".")
    name = pattern.removeprefix("*.")
    labels = name.split(".")
    if not name or len(name) > _MAX_NAME or not _LETTERS.issuperset(name) or not all(labels):
        msg = f"not a host name or *.suffix: {text!r}"
        raise ValueError(msg)
    return pattern


def host_covers(pattern: str, other: str) -> bool:
    """Tell whether everything that `other` names is named by `pattern`; both canonical.

    `*.example.com` names every host below example.com at any depth, not example.com itself.
    """
    if pattern == other:
        return True
    return pattern.startswith("*.") and other.removeprefix("*").endswith(pattern[1:])


class Network(Value):
    """A network policy; build it with `none`, `to_hosts`, `all` or `parse`."""

    kind: Literal["none", "hosts", "all"] = "none"
    hosts: tuple[str, ...] = ()

    def _normalise(self) -> None:
        if self.kind not in {"none", "hosts", "all"}:
            msg = f"network is none, hosts or all, not {self.kind!r}"
            raise ValueError(msg)
        if self.kind != "hosts" and self.hosts:
            msg = f"network {self.kind} takes no hosts"
            raise ValueError(msg)
        patterns = sorted({host_pattern(h) for h in self.hosts})
        kept = tuple(p for p in patterns if not any(q != p and host_covers(q, p) for q in patterns))
        self._put("hosts", kept)
        if not kept and self.kind == "hosts":
            self._put("kind", "none")

    @classmethod
    def none(cls) -> Network:
        """No network but the command's own loopback."""
        return cls()

    @classmethod
    def all(cls) -> Network:
        """The host's network."""
        return cls(kind="all")

    @classmethod
    def to_hosts(cls, hosts: Iterable[str]) -> Network:
        """Only the named hosts; an empty list is `none`."""
        return cls(kind="hosts", hosts=tuple(hosts))

    @classmethod
    def parse(cls, text: str) -> Network:
        """Read `none`, `all` or `HOST[,HOST…]`."""
        if text in {"none", "all"}:
            return cls(kind=text)  # type: ignore[arg-type]  # narrowed by the set above
        return cls.to_hosts(part for part in text.split(",") if part.strip())

    def is_within(self, other: Network) -> bool:
        """Tell whether `other` allows all that this one allows."""
        if self.kind == "none" or other.kind == "all":
            return True
        if self.kind == "all" or other.kind == "none":
            return False
        return all(any(host_covers(theirs, ours) for theirs in other.hosts) for ours in self.hosts)

    def __str__(self) -> str:
        return ",".join(self.hosts) if self.kind == "hosts" else self.kind
