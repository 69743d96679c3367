"""Step 3 of a command's way: allow, ask, escalate or deny, and why."""

from __future__ import annotations

from ringfence.model.decision import Decision, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.model.capabilities import Capabilities
    from ringfence.shell.understand import Understanding


def decide(
    understanding: Understanding,
    *,
    wanted: Capabilities,
    baseline: Capabilities,
    granted: Iterable[Capabilities],
    ceiling: Capabilities,
    ceiling_source: str,
    confined: bool,
) -> Decision:
    """Compare what a command wants with what its session has.

    `ceiling` is as much of `wanted` as the narrowing places leave. What lies above it is refused
    without a question, what lies above the baseline is asked for, everything else runs.
    """

    def decision(verdict: str, factor: str, text: str, elevation: Capabilities | None = None) -> Decision:
        reasons = (Reason(factor, text), *understanding.reasons)
        return Decision(verdict, understanding.risk, reasons, elevation)  # type: ignore[arg-type]  # literals below

    if not wanted.is_within(ceiling):
        above = ", ".join(wanted.beyond(ceiling)) or "what it wants"
        return decision("deny", "ceiling", f"{ceiling_source} does not allow {above}")
    if not confined:
        return decision("ask", "unconfined", "the host backend runs it without confinement", wanted)
    if wanted.is_within(baseline):
        return decision("allow", "baseline", "it stays within the session's baseline")
    if any(wanted.is_within(grant) for grant in granted):
        return decision("allow", "granted", "it stays within what was granted for this session")
    beyond = ", ".join(wanted.beyond(baseline))
    return decision("ask", "beyond-baseline", f"it wants more than the session has: {beyond}", wanted)
