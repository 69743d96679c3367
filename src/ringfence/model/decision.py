"""What was decided about a command, and why."""

from __future__ import annotations

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ringfence.model.capabilities import Capabilities

    Verdict = Literal["allow", "ask", "escalate", "deny"]
    Risk = Literal["safe", "caution", "dangerous", "unknown", "blocked"]


class Reason(Value):
    """One reason behind a decision: the factor or rule, and a sentence for a person."""

    factor: str
    text: str


class Decision(Value):
    """A verdict with everything behind it; `elevation` is what a yes would add."""

    verdict: Verdict
    risk: Risk = "unknown"
    reasons: tuple[Reason, ...] = ()
    elevation: Capabilities | None = None

    def with_verdict(self, verdict: Verdict, reason: Reason) -> Decision:
        """Return this decision settled another way, the new reason first."""
        return self.replace(verdict=verdict, reasons=(reason, *self.reasons))

    def as_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "verdict": self.verdict,
            "risk": self.risk,
            "reasons": [{"factor": r.factor, "text": r.text} for r in self.reasons],
        }
