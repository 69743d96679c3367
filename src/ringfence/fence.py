"""Fence and AsyncFence: where the six steps meet.

`_way` is the way of a command, from top to bottom. It is written once, as a generator that hands out
the two things that take time, asking a person and waiting for the command; `drive.py` does them in
the calling thread for `Fence` and in the event loop for `AsyncFence`.
"""

from __future__ import annotations

import os
import time

from ringfence import drive
from ringfence.config.load import defaults, for_workspace, under_ceilings
from ringfence.errors import Denied, SandboxUnavailable, SessionError, UnsupportedPolicy
from ringfence.ledger.recorder import LoggingRecorder
from ringfence.model.approval import Answer, Request
from ringfence.model.capabilities import Capabilities
from ringfence.model.command import Command
from ringfence.model.decision import Reason
from ringfence.model.paths import covered
from ringfence.model.record import Record
from ringfence.outcome import Checked, cwd_problem, denied, existing, output_of, timeout_of, under_ceilings_of
from ringfence.policy.engine import decide
from ringfence.sandbox import environment
from ringfence.sandbox.backend import Launch, PlanRequest
from ringfence.sandbox.capture import Pump, Streams
from ringfence.sandbox.layout import TMP
from ringfence.sandbox.linux import points
from ringfence.sandbox.lookout import Lookout
from ringfence.sandbox.registry import Registry
from ringfence.sandbox.survey import installation
from ringfence.session import workspace
from ringfence.session.context import current_session, require
from ringfence.session.handles import AsyncSession, Session
from ringfence.session.places import places
from ringfence.session.sessions import Sessions
from ringfence.shell.understand import understand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Self

    from ringfence.config.config import Config
    from ringfence.model.approval import Approver
    from ringfence.model.decision import Decision
    from ringfence.model.output import Output
    from ringfence.model.record import Event, Recorder
    from ringfence.sandbox.backend import Backend, Enclosure
    from ringfence.sandbox.plan import Plan
    from ringfence.session.sessions import SessionState


class _Core:
    """What both doors share: the composed parts and the six steps."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        approver: Approver | None = None,
        recorder: Recorder | None = None,
        registry: Registry | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._env = dict(os.environ if env is None else env)
        self.places = places(self._env)
        self.config = under_ceilings(config or defaults(self.places), self.places, self._env)
        self.registry = registry or Registry()
        self.approver = approver
        self._recorder: Recorder = recorder or LoggingRecorder()
        self._memory = os.path.join(self.places.state, "backend")
        self._configs: dict[str, Config] = {}
        self._environments: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Mapping[str, str]] = {}
        self._lookout = Lookout(home=self.places.home, path=self._env.get("PATH", ""), own=self.places.own)
        self._plans: list[tuple[PlanRequest, Backend, Plan]] = []
        self.sessions = Sessions(
            self.places, lambda place: self._resolved(self.config_for(place).baseline(place), place)
        )

    def config_for(self, place: str) -> Config:
        """Return the configuration under the ceiling that a workspace sets for itself.

        Read once for each workspace: what a command writes there later narrows the next Fence.
        """
        if place not in self._configs:
            self._configs[place] = for_workspace(self.config, place, self.places)
        return self._configs[place]

    def check(self, command: Command) -> Checked:
        """Take a command through steps 1 to 3.

        Raises:
            Denied: its working directory is not in the workspace.
            RingfenceError: the session, the configuration or the backend cannot be used.
        """
        try:
            return self._check(command)
        except OSError as error:
            raise _not_started(error) from error

    def _check(self, command: Command) -> Checked:
        # 1: resolve
        state = self.sessions.get(require(command.session))
        config = self.config_for(state.workspace)
        backend = self.registry.choose(config.backend if config.enabled else "disabled", memory=self._memory)
        if backend.confines and not backend.mounts:
            self.sessions.settle(state)
        cwd = workspace.inside(command.cwd, state.workspace)
        wanted, notes = existing(self._wanted(command, state, backend))

        # 2: understand
        understanding = understand(command)

        # 3: decide
        ceiling, source = under_ceilings_of(config, wanted, state.workspace)
        decision = decide(
            understanding,
            wanted=wanted,
            baseline=state.baseline,
            granted=state.granted,
            ceiling=ceiling,
            ceiling_source=source,
            confined=backend.confines,
        )
        if cwd is None:
            reason = Reason("cwd", cwd_problem(command.cwd, state.workspace))
            raise denied(command, decision.with_verdict("deny", reason), layer="capability")
        # A directory on the host's disk has no ceiling; one in memory has, and lasts as long as its enclosure.
        scratch = None if wanted.limits.scratch_mb and backend.mounts else state.scratch
        request = PlanRequest(
            workspace=state.workspace,
            capabilities=wanted,
            survey=self._lookout.look(
                wanted, workspace=state.workspace, hidden=config.hidden, private=(state.private_home, scratch)
            ),
            private_home=state.private_home,
            scratch=scratch,
            held=(
                *points.remembered(self.places.home, state.private_home),
                *points.remembered(TMP, scratch),
            ),
            required=config.required if backend.confines else config.require,
            warm=(state.warm and config.warm) or command.terminal is not None,
        )
        return Checked(state, config, backend, cwd, wanted, decision, self._plan(backend, request), notes)

    def _prepare(self, state: SessionState) -> SessionState:
        """Open an enclosure for a session's first command before there is one, on another thread."""

        def make() -> tuple[Plan, Enclosure] | None:
            checked = self.check(Command.of(["true"], session=state.id))
            return (checked.plan, checked.backend.open(checked.plan)) if checked.plan.warm else None

        if state.warm and state.users == 1 and self.config_for(state.workspace).warm:
            state.leases.warm_up(make)
        return state

    def _plan(self, backend: Backend, request: PlanRequest) -> Plan:
        """Return the plan for a request, remembered from the last commands: they mostly want the same."""
        for known, made_by, plan in self._plans:
            if made_by is backend and known == request:
                return plan
        plan = backend.plan(request)
        self._plans = [(request, backend, plan), *self._plans[:7]]
        return plan

    def _way(self, command: Command, streams: Streams, *, limited: bool = True) -> drive.Way:
        """Take one command all the way; `limited` says whether the default timeout applies."""
        try:
            # 1 to 3: resolve, understand, decide
            checked = self.check(command)
            decision = checked.decision
            self._record("decision", command, decision.as_dict())

            # 4: ask
            if decision.verdict == "ask":
                decision = yield from self._ask(checked, command)
            if decision.verdict != "allow":
                raise denied(command, decision, layer="policy")

            # 5: confine and run
            try:
                enclosure, pump = self._start(checked, command, streams, limited=limited)
            except SandboxUnavailable as error:
                if error.reason != "changed":
                    raise
                # Another command has added mount points meanwhile, which are to be held as well.
                checked = checked.replace(plan=self.check(command).plan)
                enclosure, pump = self._start(checked, command, streams, limited=limited)
            try:
                with checked.state.running(pump):
                    yield pump
            finally:
                pump.abandon()
                checked.state.leases.give_back(checked.plan, enclosure)
            output = output_of(pump, streams, checked, decision)
        except BaseException as error:
            if isinstance(error, SandboxUnavailable):
                self.registry.forget(self._memory)
            event: Event = "refusal" if isinstance(error, Denied) else "failure"
            self._record(event, command, {"error": type(error).__name__, "message": str(error)})
            raise

        # 6: record
        try:
            self._record("run", command, output.summary())
        except Exception as error:  # noqa: BLE001  # it has run: its output is not lost for a broken recorder
            output = output.replace(notes=(*output.notes, f"the run could not be recorded: {error}"))
        return output

    def _start(self, checked: Checked, command: Command, streams: Streams, *, limited: bool) -> tuple[Enclosure, Pump]:
        config = checked.config
        self.places.make(checked.wanted.write)
        streams.limit(config.max_output)
        launch = Launch(
            argv=command.exec_argv,
            cwd=checked.cwd,
            env=environment.build(
                self._inherited(config), {**config.environment_set, **command.env}, home=self.places.home
            ),
            stdin=streams.stdin is not None,
            terminal=command.terminal,
        )
        if command.terminal and not checked.plan.warm:
            hint = "run it without a terminal, or with bubblewrap and the right to start processes"
            raise UnsupportedPolicy(checked.backend.name, "a terminal", "it has none to give", hint=hint)
        try:
            enclosure, running = checked.state.leases.start(checked.backend, checked.plan, launch)
        except OSError as error:
            raise _not_started(error) from error
        try:
            return enclosure, Pump(running, streams, timeout_of(command, checked.wanted, config, limited=limited))
        except BaseException:
            running.discard()
            checked.state.leases.give_back(checked.plan, enclosure)
            raise

    def _inherited(self, config: Config) -> Mapping[str, str]:
        """Return what commands get of our own environment; worked out once for each way to choose."""
        key = (config.environment_inherit, config.environment_exclude, config.environment_pass)
        if key not in self._environments:
            inherit, exclude, passed = key
            self._environments[key] = environment.inherited(self._env, inherit=inherit, exclude=exclude, passed=passed)
        return self._environments[key]

    def _ask(self, checked: Checked, command: Command) -> Generator[Request | Pump, Answer | None, Decision]:
        state, decision = checked.state, checked.decision
        beyond = checked.wanted.beyond(state.baseline)
        if not checked.backend.confines:
            beyond = ("no confinement at all: everything you may do",)
        request = Request(
            session=state.id,
            command=str(command),
            argv=command.exec_argv,
            cwd=checked.cwd,
            workspace=state.workspace,
            decision=decision,
            wanted=checked.wanted,
            beyond=beyond,
            wait=self.config.approval_wait,
        )
        self._record("question", command, {"beyond": list(beyond)})
        answer = (yield request) or Answer.deny("no answer")
        self._record("answer", command, {"answer": answer.kind, "reason": answer.reason, "by": answer.by})
        if answer.kind == "session" and checked.backend.confines:
            state.grant(checked.wanted)
            self._record("grant", command, {"granted": list(beyond)})
        if answer.kind in {"once", "session"}:
            return decision.with_verdict("allow", Reason("answer", f"allowed: {answer.kind}"))
        text = f"refused: {answer.reason}" if answer.reason else "refused"
        return decision.with_verdict("deny", Reason("answer", text))

    def _wanted(self, command: Command, state: SessionState, backend: Backend) -> Capabilities:
        """Return what a command is to have, as far as the fence can tell."""
        if not backend.confines:
            return Capabilities.for_tier("full-access", state.workspace)
        return state.baseline if command.capabilities is None else self._resolved(command.capabilities, state.workspace)

    def _resolved(self, wanted: Capabilities, place: str) -> Capabilities:
        """Follow links in paths now, so that what is compared is what is mounted.

        Raises:
            SessionError: a link lies where commands can make one, or the path leads to our own files.
        """

        def follow(path: str, *, write: bool = False) -> str:
            real, link = workspace.resolve(path, self.places)
            if link:
                msg = f"{link} is a link inside a workspace, where a command may have put it: {path} is not granted"
                raise SessionError(msg, hint="name the place itself, or remove the link")
            own = (*self.places.own, *(installation() if write else ()))
            if real != place and covered(real, own):
                msg = f"{real} belongs to Ringfence itself, and is never granted"
                raise SessionError(msg, hint="leave it out")
            return real

        return wanted.replace(
            read=tuple(follow(path) for path in wanted.read),
            write=tuple(follow(path, write=True) for path in wanted.write),
            reveal=tuple(follow(path) for path in wanted.reveal),
        )

    def _record(self, event: Event, command: Command, details: Mapping[str, object]) -> None:
        session = command.session or current_session() or ""
        self._recorder.record(Record(event, time.time(), session, command, details))


def _not_started(error: OSError) -> SandboxUnavailable:
    msg = f"the command could not be started: {error.strerror or error}"
    return SandboxUnavailable(msg, hint="see `ringfence status`", reason="failed")


class Fence(_Core):
    """The configured engine; a program creates one and opens sessions on it. Needs no event loop."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, id: str | None = None, workspace: str | os.PathLike[str] | None = None) -> Session:  # noqa: A002  # the contract's name
        """Open a session: with an id it can be found again, without one it leaves nothing behind.

        Raises:
            SessionError: the workspace cannot be used.
        """
        return Session(self._prepare(self.sessions.open(id, workspace)), self)

    def execute(self, command: Command) -> Output:
        """Take one command all the way and return what came of it.

        Raises:
            Denied: it was refused.
            SandboxUnavailable: it could not be confined.
            RingfenceError: anything else that kept it from running.
        """
        return drive.finish(self._way(command, Streams(command.stdin)), self.approver, self.config.approval_wait)

    def stream(self, command: Command, *, feed: int | None = None, limited: bool = True) -> drive.Stream:
        """Start a command whose output is read while it runs; `feed` is a descriptor to take its input from."""
        streams = Streams(command.stdin if feed is None else feed)
        way = self._way(command, streams, limited=limited)
        return drive.Stream(way, streams, self.approver, self.config.approval_wait)

    def relay(self, command: Command, streams: Streams, *, limited: bool) -> Output:
        """Take one command all the way with streams of the caller's, with or without the default timeout."""
        return drive.finish(self._way(command, streams, limited=limited), self.approver, self.config.approval_wait)

    def close(self) -> None:
        """Kill what runs and close every session."""
        self.sessions.close_all()


class AsyncFence(_Core):
    """The same engine for an event loop: the same names, awaited."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def session(self, id: str | None = None, workspace: str | os.PathLike[str] | None = None) -> AsyncSession:  # noqa: A002  # the contract's name
        """Open a session; see `Fence.session`."""
        return AsyncSession(self._prepare(self.sessions.open(id, workspace)), self)

    async def execute(self, command: Command) -> Output:
        """Take one command all the way; see `Fence.execute`. Cancelling kills its whole tree."""
        way = self._way(command, Streams(command.stdin))
        return await drive.finish_async(way, self.approver, self.config.approval_wait)

    def stream(self, command: Command) -> drive.AsyncStream:
        """Start a command whose output is read while it runs."""
        streams = Streams(command.stdin)
        return drive.AsyncStream(self._way(command, streams), streams, self.approver, self.config.approval_wait)

    async def close(self) -> None:
        """Kill what runs and close every session."""
        import asyncio

        await asyncio.to_thread(self.sessions.close_all)
