"""What is written down about each step."""

from __future__ import annotations

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, Protocol

    from ringfence.model.command import Command

    Event = Literal["decision", "question", "answer", "grant", "run", "refusal", "failure"]

    class Recorder(Protocol):
        """Keeps records; called once for each, in order, from any thread."""

        def record(self, record: Record) -> None:
            """Keep one record."""


class Record(Value):
    """One event of one command."""

    event: Event
    time: float
    session: str
    command: Command
    details: Mapping[str, object] = {}

    def __hash__(self) -> int:
        return hash((self.event, self.time, self.session, self.command))

    def as_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "event": self.event,
            "time": self.time,
            "session": self.session,
            "command": str(self.command),
            **self.details,
        }
