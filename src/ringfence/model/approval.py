"""A question to a person, and the answer."""

from __future__ import annotations

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Literal

    from ringfence.model.capabilities import Capabilities
    from ringfence.model.decision import Decision

    AnswerKind = Literal["once", "session", "deny"]
    Approver = Callable[["Request"], "Answer | Awaitable[Answer]"]


class Request(Value):
    """What is asked: the exact command, why, and what a yes would give it; `wait` is how long it stands."""

    session: str
    command: str
    argv: tuple[str, ...]
    cwd: str
    workspace: str
    decision: Decision
    wanted: Capabilities
    beyond: tuple[str, ...]
    wait: float = 120.0


class Answer(Value):
    """Yes once, yes for the session, or no; `reason` reaches whoever asked for the command."""

    kind: AnswerKind
    reason: str = ""
    by: str = ""

    def _normalise(self) -> None:
        if self.kind not in {"once", "session", "deny"}:
            msg = f"an answer is once, session or deny, not {self.kind!r}"
            raise ValueError(msg)

    @classmethod
    def once(cls, reason: str = "") -> Answer:
        """Allow this one command."""
        return cls("once", reason)

    @classmethod
    def session(cls, reason: str = "") -> Answer:
        """Allow this and whatever wants no more, until the session ends."""
        return cls("session", reason)

    @classmethod
    def deny(cls, reason: str = "") -> Answer:
        """Refuse."""
        return cls("deny", reason)
