r"""For tests of programs that use Ringfence: a backend and an approver that do as they are told.

    backend = FakeBackend(replies={"make test": FakeReply(stdout=b"ok\n")})
    with Fence(registry=fake_registry(backend), approver=FakeApprover("once")) as fence: ...

Nothing is executed and nothing is confined.
"""

from __future__ import annotations

import os

from ringfence.model.approval import Answer
from ringfence.model.guarantees import GUARANTEES
from ringfence.model.value import Value
from ringfence.sandbox.backend import Availability, Exit, Guarantees
from ringfence.sandbox.plan import Plan
from ringfence.sandbox.registry import Registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.model.approval import AnswerKind, Request
    from ringfence.model.record import Record
    from ringfence.sandbox.backend import Launch, PlanRequest

__all__ = ["FakeApprover", "FakeBackend", "FakeReply", "ListRecorder", "fake_registry"]

_PIPE_BYTES = 65536


class FakeReply(Value):
    """What a fake command prints and how it ends; up to 64 KiB a stream."""

    stdout: bytes = b""
    stderr: bytes = b""
    code: int = 0
    signal: int | None = None


class FakeApprover:
    """Gives the same answer to every question, and keeps the questions."""

    def __init__(self, kind: AnswerKind = "once", reason: str = "") -> None:
        self.answer = Answer(kind, reason, by="test")
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        """Answer."""
        self.requests.append(request)
        return self.answer


class ListRecorder:
    """Keeps records in a list."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        """Keep one record."""
        self.records.append(record)

    def events(self) -> list[str]:
        """Name what was recorded, in order."""
        return [record.event for record in self.records]


class FakeBackend:
    """Pretends to confine; `launches` is what it was asked to run, `plans` what it planned."""

    name = "fake"
    mounts = True
    reusable = False

    def __init__(
        self,
        replies: Mapping[str, FakeReply] | None = None,
        *,
        confines: bool = True,
        missing: tuple[str, ...] = (),
        unavailable: str = "",
    ) -> None:
        self.confines = confines
        self.launches: list[Launch] = []
        self.plans: list[Plan] = []
        self._replies = dict(replies or {})
        self._missing = missing
        self._unavailable = unavailable

    def probe(self) -> Availability:
        """Available, unless told otherwise."""
        return Availability(available=not self._unavailable, reason=self._unavailable, message="a fake")

    def guarantees(self) -> Guarantees:
        """All of them, on paper."""
        return Guarantees(tuple(g for g in GUARANTEES if g not in self._missing))

    def plan(self, request: PlanRequest) -> Plan:
        """Plan nothing in particular."""
        plan = Plan(
            backend=self.name,
            workspace=request.workspace,
            home=request.survey.home,
            mounts=(),
            network=request.capabilities.network,
            limits=request.capabilities.limits,
        )
        self.plans.append(plan)
        return plan

    def open(self, plan: Plan) -> FakeBackend:  # noqa: ARG002  # the seam
        """Return itself."""
        return self

    def run(self, launch: Launch) -> FakeRun:
        """Look the reply up by the shell text or the joined arguments."""
        self.launches.append(launch)
        key = launch.argv[-1] if launch.argv[0].endswith("bash") else " ".join(launch.argv)
        return FakeRun(self._replies.get(key, FakeReply()), wants_stdin=launch.stdin)

    def close(self) -> None:
        """There is nothing to close."""


class FakeRun:
    """A command that has already ended."""

    complete = False

    def __init__(self, reply: FakeReply, *, wants_stdin: bool) -> None:
        self.limits: Mapping[str, str] = {}
        self._reply = reply
        self.stdout = _full_pipe(reply.stdout)
        self.stderr = _full_pipe(reply.stderr)
        self._input, stdin = os.pipe()
        self.stdin: int | None = stdin if wants_stdin else None
        if not wants_stdin:
            os.close(stdin)
        self.exited = _full_pipe(b"\0")

    def kill(self) -> None:
        """It is over already."""

    def signal(self, number: int) -> None:
        """It is over already."""

    def discard(self) -> None:
        """Give everything back."""
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        self.finish()

    def finish(self) -> Exit:
        """Tell how it was told to end."""
        os.close(self._input)
        os.close(self.exited)
        return Exit(self._reply.code, self._reply.signal)


def _full_pipe(data: bytes) -> int:
    if len(data) > _PIPE_BYTES:
        msg = f"a fake reply holds up to {_PIPE_BYTES} bytes a stream"
        raise ValueError(msg)
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return read


def fake_registry(backend: FakeBackend) -> Registry:
    """Return a registry in which `auto` means this backend and nothing real is left."""
    registry = Registry()
    for name in ("bubblewrap", "landlock"):
        registry.remove(name)
    registry.register(backend.name, lambda: backend, priority=100)
    return registry
