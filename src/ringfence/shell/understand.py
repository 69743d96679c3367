"""Step 2 of a command's way. Reading a command only ever decides whether to ask or to refuse."""

from __future__ import annotations

from ringfence.model.decision import Reason
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.command import Command
    from ringfence.model.decision import Risk


class Understanding(Value):
    """What is known about a command before it runs."""

    risk: Risk
    reasons: tuple[Reason, ...] = ()


def understand(command: Command) -> Understanding:
    """Say what `command` is about to do.

    Commands are not read yet, so each one is of unknown risk: confined like all, refused for nothing.
    """
    kind = "shell text" if command.text is not None else "a program with arguments"
    return Understanding("unknown", (Reason("not-read", f"the command is {kind} and was not analysed"),))
