"""The seam between the steps of a command and whatever confines it."""

from __future__ import annotations

from ringfence.model.guarantees import REQUIRED
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from ringfence.model.capabilities import Capabilities
    from ringfence.model.output import Missing
    from ringfence.sandbox.plan import Plan
    from ringfence.sandbox.survey import Survey


class Availability(Value):
    """Whether a backend works here; if not, a stable word for why, a sentence, and the exact fix."""

    available: bool
    reason: str = ""
    message: str = ""
    fix: str = ""
    detail: str = ""


class Guarantees(Value):
    """What a backend keeps on this machine, and what it does not."""

    kept: tuple[str, ...]
    missing: tuple[Missing, ...] = ()


class StaleEnclosure(Exception):  # no error to anybody: another enclosure does it
    """An enclosure that was kept warm is not good any more; the command has not been started."""


class PlanRequest(Value):
    """Everything a plan depends on, as values.

    `private_home` and `scratch` are directories of ours; `None` asks for one in memory that is gone
    with the command. `held` are paths inside them that stay mount points whatever else is mounted.
    `warm` says that many commands may follow each other in one enclosure.
    """

    workspace: str
    capabilities: Capabilities
    survey: Survey
    private_home: str | None = None
    scratch: str | None = None
    held: tuple[str, ...] = ()
    required: tuple[str, ...] = tuple(REQUIRED)
    warm: bool = False


class Launch(Value):
    """One command for an enclosure, with its whole environment.

    `terminal` is the number of rows and columns of a pseudo-terminal of its own, where one is wanted.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdin: bool = False
    terminal: tuple[int, int] | None = None

    def __hash__(self) -> int:
        return hash((self.argv, self.cwd, *sorted(self.env.items())))


class Exit(Value):
    """How a command ended. `failure` is set when it never started, with the launcher's own words.

    `out_of_memory` says that the kernel killed something of it at its memory ceiling. `broken` says that
    its sandbox ended before it, and `lost` that whoever had to end it is gone, so that it may still run.
    """

    code: int | None
    signal: int | None = None
    failure: str | None = None
    out_of_memory: bool = False
    broken: bool = False
    lost: bool = False


if TYPE_CHECKING:

    class Running(Protocol):
        """A started command as descriptors; whoever drives it reads, waits and closes."""

        stdin: int | None
        stdout: int
        stderr: int
        exited: int
        limits: Mapping[str, str]
        complete: bool  # once `exited` is readable, all output is in the pipes, whether or not they have ended

        def kill(self) -> None:
            """Kill every process of the command; safe to call from any thread, any number of times."""

        def signal(self, number: int) -> None:
            """Pass a signal on to the command, as a terminal would."""

        def discard(self) -> None:
            """Kill it, and give everything back, without asking how it ended; instead of `finish`."""

        def finish(self) -> Exit:
            """Reap what is left, and tell how the command ended. Called once, after `exited` is readable."""

    class Enclosure(Protocol):
        """A live confined place."""

        @property
        def reusable(self) -> bool:
            """Whether another command may run in it, now that none does."""

        def run(self, launch: Launch) -> Running:
            """Start one command."""

        def close(self) -> None:
            """Kill what runs and leave nothing behind."""

    class Backend(Protocol):
        """A way to confine."""

        name: str
        confines: bool
        mounts: bool  # whether it can show a directory at another place, or one that is in memory only

        def probe(self) -> Availability:
            """Say whether it works here; really tried, cached."""

        def guarantees(self) -> Guarantees:
            """Say what it keeps on this machine."""

        def plan(self, request: PlanRequest) -> Plan:
            """Compute what it will make true, without touching the system.

            Raises:
                UnsupportedPolicy: something asked for cannot be kept.
            """

        def open(self, plan: Plan) -> Enclosure:
            """Make a place for commands."""
