"""Which backends there are, and which one is used."""

from __future__ import annotations

from ringfence.errors import ConfigError, SandboxUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.sandbox.backend import Backend

ENTRY_POINTS = "ringfence.backends"


def _bubblewrap() -> Backend:
    from ringfence.sandbox.linux.bubblewrap import Bubblewrap

    return Bubblewrap()


def _host() -> Backend:
    from ringfence.sandbox.host import Host

    return Host()


def _disabled() -> Backend:
    from ringfence.sandbox.disabled import Disabled

    return Disabled()


# Strongest first; 0 is never chosen by `auto`.
_BUILT_IN: tuple[tuple[str, int, Callable[[], Backend]], ...] = (
    ("bubblewrap", 100, _bubblewrap),
    ("host", 0, _host),
    ("disabled", 0, _disabled),
)


class Registry:
    """The backends of one Fence: made when first needed, highest priority first."""

    def __init__(self) -> None:
        self._makers = {name: (priority, make) for name, priority, make in _BUILT_IN}
        self._made: dict[str, Backend] = {}

    def register(self, name: str, make: Callable[[], Backend], *, priority: int = 50) -> None:
        """Add a backend or replace one; priority 0 keeps it out of `auto`."""
        self._makers[name] = (priority, make)
        self._made.pop(name, None)

    def remove(self, name: str) -> None:
        """Take a backend out, so that nothing chooses it."""
        self._makers.pop(name, None)
        self._made.pop(name, None)

    def names(self) -> list[str]:
        """Name all of them, strongest first."""
        return sorted(self._makers, key=lambda name: (-self._makers[name][0], name))

    def priority(self, name: str) -> int:
        """Return a backend's place in the order."""
        return self._makers[name][0]

    def get(self, name: str) -> Backend:
        """Return the backend of that name.

        Raises:
            ConfigError: there is none.
        """
        if name not in self._made:
            if name not in self._makers:
                self.discover()
            if name not in self._makers:
                msg = f"there is no backend {name!r}"
                raise ConfigError(msg, hint=f"use auto or one of: {', '.join(self.names())}")
            self._made[name] = self._makers[name][1]()
        return self._made[name]

    def discover(self) -> None:
        """Look for backends that other packages bring; 45 ms, so only where one may be meant."""
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINTS):
            if point.name not in self._makers:
                self.register(point.name, point.load())

    def choose(self, wanted: str = "auto") -> Backend:
        """Return the backend to use: the named one, or the strongest that confines here.

        The strongest is taken unprobed when it is the only one: starting it is the probe.

        Raises:
            SandboxUnavailable: none of them works here.
            ConfigError: there is no backend of that name.
        """
        if wanted != "auto":
            return self.get(wanted)
        candidates = [name for name in self.names() if self._makers[name][0] > 0]
        if len(candidates) == 1:
            return self.get(candidates[0])
        reasons = []
        for name in candidates:
            backend = self.get(name)
            answer = backend.probe()
            if answer.available:
                return backend
            reasons.append((name, answer))
        raise SandboxUnavailable(
            "no backend can confine commands here: " + "; ".join(f"{n}: {a.message}" for n, a in reasons),
            hint=next((a.fix for _, a in reasons if a.fix), "see `ringfence status`"),
            reason="none-available",
        )
