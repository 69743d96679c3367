"""Which backends there are, and which one is used."""

from __future__ import annotations

import contextlib
import os

from ringfence.errors import ConfigError, SandboxUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.sandbox.backend import Availability, Backend

ENTRY_POINTS = "ringfence.backends"


def _bubblewrap() -> Backend:
    from ringfence.sandbox.linux.bubblewrap import Bubblewrap

    return Bubblewrap()


def _landlock() -> Backend:
    from ringfence.sandbox.linux.landlock_only import Landlock

    return Landlock()


def _host() -> Backend:
    from ringfence.sandbox.host import Host

    return Host()


def _disabled() -> Backend:
    from ringfence.sandbox.disabled import Disabled

    return Disabled()


# Strongest first; 0 is never chosen by `auto`.
_BUILT_IN: tuple[tuple[str, int, Callable[[], Backend]], ...] = (
    ("bubblewrap", 100, _bubblewrap),
    ("landlock", 80, _landlock),
    ("host", 0, _host),
    ("disabled", 0, _disabled),
)


class Registry:
    """The backends of one Fence: made when first needed, highest priority first."""

    def __init__(self) -> None:
        self._makers = {name: (priority, make) for name, priority, make in _BUILT_IN}
        self._made: dict[str, Backend] = {}
        self._chosen: Backend | None = None

    def register(self, name: str, make: Callable[[], Backend], *, priority: int = 50) -> None:
        """Add a backend or replace one; priority 0 keeps it out of `auto`."""
        self._makers[name] = (priority, make)
        self._made.pop(name, None)
        self._chosen = None

    def remove(self, name: str) -> None:
        """Take a backend out, so that nothing chooses it."""
        self._makers.pop(name, None)
        self._made.pop(name, None)
        self._chosen = None

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

    def choose(self, wanted: str = "auto", *, memory: str = "") -> Backend:
        """Return the backend to use: the named one, or the strongest that confines here.

        Trying the strongest costs as much as a command, so that it worked is remembered in the file
        `memory` until the machine starts anew. That one did not work is never remembered.

        Raises:
            SandboxUnavailable: none of them works here.
            ConfigError: there is no backend of that name.
        """
        if wanted != "auto":
            return self.get(wanted)
        if self._chosen is not None:
            return self._chosen
        reasons: list[tuple[str, Availability]] = []
        for name in self.names():
            if self._makers[name][0] <= 0:
                continue
            backend = self.get(name)
            if not reasons and memory and _read(memory) == _here(name):
                self._chosen = backend
                return backend
            answer = backend.probe()
            if answer.available:
                if not reasons and memory:
                    _write(memory, _here(name))
                self._chosen = backend
                return backend
            reasons.append((name, answer))
        raise SandboxUnavailable(
            "no backend can confine commands here: " + "; ".join(f"{n}: {a.message}" for n, a in reasons),
            hint=next((a.fix for _, a in reasons if a.fix), "see `ringfence status`"),
            reason="none-available",
        )

    def forget(self, memory: str) -> None:
        """Try anew next time: what was thought to work did not."""
        self._chosen = None
        with contextlib.suppress(OSError):
            os.unlink(memory)


def _here(name: str) -> str:
    """Say what was found to work, and where: a container may share its state with the machine around it."""
    with contextlib.suppress(OSError):
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "user")]
        return " ".join([name, _read("/proc/sys/kernel/random/boot_id").strip(), *spaces, str(os.geteuid())])
    return f"{name} nowhere"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(4096)
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
        file.write(text)
