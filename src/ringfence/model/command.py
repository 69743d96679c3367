"""What an agent hands over."""

from __future__ import annotations

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringfence.model.capabilities import Capabilities

SHELL = ("/bin/bash", "--noprofile", "--norc", "-c")

_MAX_SIZE = 2**16


class Command(Value):
    """One command: `argv`, or shell text in `text`; never both.

    `capabilities` is what it wants: `None` is the session's baseline, something narrower is taken as
    it is, something wider is a request. `timeout` is in seconds; `None` leaves it to the capabilities
    and the configuration. `session=None` means the current session. `terminal` is the number of rows and
    columns of a pseudo-terminal of its own, on which standard output and error are one.
    """

    argv: tuple[str, ...] = ()
    text: str | None = None
    session: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = {}
    stdin: bytes | None = None
    capabilities: Capabilities | None = None
    timeout: float | None = None
    terminal: tuple[int, int] | None = None

    def _normalise(self) -> None:
        if (self.text is None) == (not self.argv):
            msg = "a command is either argv or shell text"
            raise ValueError(msg)
        stdin: object = self.stdin
        if stdin is not None and not isinstance(stdin, (bytes, bytearray, memoryview)):
            msg = f"stdin is bytes, not {type(stdin).__name__}"
            raise TypeError(msg)
        timeout: object = self.timeout
        if timeout is not None and (not isinstance(timeout, (int, float)) or not timeout > 0):
            msg = f"timeout is a number of seconds above zero, not {self.timeout!r}"
            raise ValueError(msg)
        if self.terminal is not None and not _is_a_size(self.terminal):
            msg = f"terminal is the number of rows and columns, such as (24, 80), not {self.terminal!r}"
            raise ValueError(msg)
        strings = [*self.argv, self.text or "", self.cwd or "", *self.env, *self.env.values()]
        if not all(isinstance(s, str) for s in strings):
            msg = "argv, text, cwd and environment are strings"
            raise TypeError(msg)
        if any("\0" in s for s in strings) or any(not n or "=" in n for n in self.env):
            msg = "a command has no NUL byte, and a variable's name no '='"
            raise ValueError(msg)
        self._put("argv", tuple(self.argv))
        self._put("stdin", None if stdin is None else bytes(stdin))
        self._put("env", dict(self.env))

    def __hash__(self) -> int:
        return hash((self.argv, self.text, self.session, self.cwd, *sorted(self.env.items())))

    @classmethod
    def of(cls, command: str | Sequence[str], **named: object) -> Command:
        """Take a string as shell text and a sequence as argv."""
        if isinstance(command, str):
            return cls(text=command, **named)  # type: ignore[arg-type]  # checked by the constructor
        return cls(argv=tuple(command), **named)  # type: ignore[arg-type]  # as above

    @property
    def exec_argv(self) -> tuple[str, ...]:
        """The program and arguments that really run."""
        return self.argv if self.text is None else (*SHELL, self.text)

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        import shlex

        return shlex.join(self.argv)


def _is_a_size(value: object) -> bool:
    pair = list(value) if isinstance(value, (tuple, list)) else []
    return [isinstance(n, int) and 0 < n < _MAX_SIZE for n in pair] == [True, True]
