"""Everything that Ringfence raises.

RingfenceError
├── Denied              policy, a person or a capability says no; nothing ran
├── SandboxUnavailable  no backend can confine the command here; nothing ran
├── UnsupportedPolicy   the backend cannot keep something that was asked of it; nothing ran
├── ConfigError         a configuration file, variable or argument is wrong
├── SessionError        the session or its workspace cannot be used
├── ProgramNotFound     the command's program does not exist inside
└── CommandError        a command ran, and the caller asked for raising
    ├── CommandFailed   it ended with another exit code than 0
    └── CommandTimeout  it ran out of time

Each says what happened, to what, and what to do now. `exit_code` is how `ringfence` ends with it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.decision import Decision
    from ringfence.model.output import Denial, Output


class RingfenceError(Exception):
    """The base of all of them; `hint` is the next step, where there is one."""

    exit_code = 125

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from `args`, which does not fit constructors with named parameters.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(cls: type[RingfenceError], args: tuple[object, ...], state: dict[str, object]) -> RingfenceError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class Denied(RingfenceError):
    """The command was refused before it started."""

    exit_code = 126

    def __init__(self, message: str, *, hint: str = "", decision: Decision, denial: Denial) -> None:
        super().__init__(message, hint=hint)
        self.decision = decision
        self.denial = denial


class SandboxUnavailable(RingfenceError):
    """Confinement could not be set up; `reason` is a stable word for it, such as `not-installed`."""

    def __init__(self, message: str, *, hint: str = "", reason: str) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class UnsupportedPolicy(RingfenceError):
    """A backend cannot enforce `feature`; it is never weakened in silence."""

    def __init__(self, backend: str, feature: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"the {backend} backend cannot enforce {feature}: {reason}", hint=hint)
        self.backend = backend
        self.feature = feature
        self.reason = reason


class ConfigError(RingfenceError):
    """A setting is unknown, of the wrong type, or not the setter's to make."""


class SessionError(RingfenceError):
    """A session or a workspace cannot be used."""


class ProgramNotFound(RingfenceError):
    """The program is not there, or not executable, inside the fence."""

    exit_code = 127


class CommandError(RingfenceError):
    """A finished command that the caller wanted as an exception; `output` has all of it."""

    def __init__(self, message: str, output: Output) -> None:
        super().__init__(message)
        self.output = output


class CommandFailed(CommandError):
    """The command ended with another exit code than 0."""

    def __init__(self, output: Output) -> None:
        by = f"signal {output.signal}" if output.signal else f"exit code {output.exit_code}"
        super().__init__(f"the command ended with {by}", output)


class CommandTimeout(CommandError):
    """The command ran out of time; its partial output is in `output`."""

    exit_code = 124

    def __init__(self, output: Output) -> None:
        super().__init__(f"the command was killed after {output.duration_ms / 1000:.1f} s", output)
