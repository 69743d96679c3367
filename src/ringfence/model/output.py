"""What comes back from a command."""

from __future__ import annotations

from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from ringfence.model.decision import Decision


class Denial(Value):
    """A refusal in a form that a program or a model can act on."""

    layer: str
    operation: str
    subject: str = ""
    rule: str = ""
    hint: str = ""
    evidence: Literal["observed", "inferred"] = "observed"

    def as_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {name: getattr(self, name) for name in type(self)._fields}


class Missing(Value):
    """A guarantee that was wanted and is not given, why, and how to get it."""

    guarantee: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.reason}" + (f" ({self.fix})" if self.fix else "")


class Enforcement(Value):
    """Which backend ran a command, what was really on, and what was missing."""

    backend: str
    confined: bool
    layers: tuple[str, ...] = ()
    limits: Mapping[str, str] = {}
    missing: tuple[Missing, ...] = ()

    def __hash__(self) -> int:
        return hash((self.backend, self.confined, self.layers, self.missing, *sorted(self.limits.items())))

    def as_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "backend": self.backend,
            "confined": self.confined,
            "layers": list(self.layers),
            "limits": dict(self.limits),
            "missing": [{"guarantee": m.guarantee, "reason": m.reason, "fix": m.fix} for m in self.missing],
        }


class Captured(Value):
    """One stream as it was kept: its head and tail, and how many bytes between them were dropped."""

    head: bytes = b""
    tail: bytes = b""
    dropped: int = 0

    @property
    def data(self) -> bytes:
        """The kept bytes, with a line that says what is missing where something is."""
        if not self.dropped:
            return self.head + self.tail
        return b"%s\n[... %d bytes dropped ...]\n%s" % (self.head, self.dropped, self.tail)


class Output(Value):
    """A finished command. `exit_code` is 128+N after signal N, and `None` only after a timeout."""

    exit_code: int | None
    signal: int | None
    out: Captured
    err: Captured
    timed_out: bool
    duration_ms: float
    decision: Decision
    enforcement: Enforcement
    denials: tuple[Denial, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output as it was kept."""
        return self.out.data

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error as it was kept."""
        return self.err.data

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.out.data.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 are replaced."""
        return self.err.data.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        """Whether bytes of either stream were dropped."""
        return bool(self.out.dropped or self.err.dropped)

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out

    def check(self) -> Output:
        """Return this output, or raise.

        Raises:
            CommandTimeout: the command ran out of time.
            CommandFailed: it ended with another exit code than 0.
        """
        from ringfence.errors import CommandFailed, CommandTimeout

        if self.timed_out:
            raise CommandTimeout(self)
        if self.exit_code:
            raise CommandFailed(self)
        return self

    def summary(self) -> dict[str, object]:
        """How it ended and what was on, without what it printed."""
        return {
            "exit_code": self.exit_code,
            "signal": self.signal,
            "timed_out": self.timed_out,
            "truncated": self.truncated,
            "duration_ms": round(self.duration_ms, 3),
            "enforcement": self.enforcement.as_dict(),
        }

    def as_dict(self) -> dict[str, object]:
        """The JSON form; bytes that UTF-8 cannot show stand beside their text in base64."""
        return {
            "exit_code": self.exit_code,
            "signal": self.signal,
            **_stream("stdout", self.out.data),
            **_stream("stderr", self.err.data),
            "timed_out": self.timed_out,
            "truncated": self.truncated,
            "stdout_dropped_bytes": self.out.dropped,
            "stderr_dropped_bytes": self.err.dropped,
            "duration_ms": round(self.duration_ms, 3),
            "decision": self.decision.as_dict(),
            "enforcement": self.enforcement.as_dict(),
            "denials": [d.as_dict() for d in self.denials],
            "notes": list(self.notes),
        }


def _stream(name: str, data: bytes) -> dict[str, object]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {
            name: data.decode("utf-8", "replace"),
            f"{name}_base64": base64.b64encode(data).decode("ascii"),
        }
