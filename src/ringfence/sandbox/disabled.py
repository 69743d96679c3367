"""The disabled backend: every command is an error, on purpose."""

from __future__ import annotations

from ringfence.errors import SandboxUnavailable
from ringfence.sandbox.backend import Availability, Guarantees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.sandbox.backend import Enclosure, PlanRequest
    from ringfence.sandbox.plan import Plan

_MESSAGE = "sandbox disabled: the disabled backend is chosen, so no command runs"


class Disabled:
    """Refuses everything."""

    name = "disabled"
    confines = True
    mounts = True

    def probe(self) -> Availability:
        """It is never available."""
        return Availability(
            available=False, reason="disabled", message=_MESSAGE, fix="set enabled = true, or choose another backend"
        )

    def guarantees(self) -> Guarantees:
        """Nothing runs, so there is nothing to keep."""
        return Guarantees(())

    def plan(self, request: PlanRequest) -> Plan:  # noqa: ARG002  # the seam
        """Refuse.

        Raises:
            SandboxUnavailable: always.
        """
        raise SandboxUnavailable(_MESSAGE, hint="set enabled = true, or choose another backend", reason="disabled")

    def open(self, plan: Plan) -> Enclosure:  # noqa: ARG002  # the seam
        """Refuse.

        Raises:
            SandboxUnavailable: always.
        """
        raise SandboxUnavailable(_MESSAGE, hint="set enabled = true, or choose another backend", reason="disabled")
