"""What a program holds of a session."""

from __future__ import annotations

import contextlib

from ringfence.errors import SessionError
from ringfence.model.command import Command
from ringfence.session import context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextvars import Token
    from typing import Protocol, Self

    from ringfence.drive import AsyncStream, Stream
    from ringfence.jobs import Job
    from ringfence.model.capabilities import Capabilities
    from ringfence.model.output import Output
    from ringfence.session.sessions import Sessions, SessionState

    class Executor(Protocol):
        """The seam that a session needs of a Fence."""

        sessions: Sessions

        def execute(self, command: Command) -> Output:
            """Run one command."""

        def stream(self, command: Command, *, feed: int | None = None, limited: bool = True) -> Stream:
            """Start one command."""

    class AsyncExecutor(Protocol):
        """The seam that a session needs of an AsyncFence."""

        sessions: Sessions

        async def execute(self, command: Command) -> Output:
            """Run one command."""

        def stream(self, command: Command) -> AsyncStream:
            """Start one command."""


_MOST_UNREAD = 2**20


class _Handle:
    """What both kinds of sessions have."""

    def __init__(self, state: SessionState, sessions: Sessions) -> None:
        self._state = state
        self._sessions = sessions
        self._token: Token[str | None] | None = None
        self._closed = False

    @property
    def id(self) -> str:
        """The session's id; an ephemeral one has a name of its own."""
        return self._state.id

    @property
    def workspace(self) -> str:
        """The directory it works in."""
        return self._state.workspace

    @property
    def capabilities(self) -> Capabilities:
        """The baseline that its commands may use unasked."""
        return self._state.baseline

    def cancel(self) -> None:
        """Kill every command that runs in it; from any thread."""
        self._state.cancel()

    def _enter(self) -> None:
        self._token = context.enter(self.id)

    def _leave(self) -> None:
        if self._token is not None:
            # Entered in one thread or task and left in another, there is nothing to go back to.
            with contextlib.suppress(ValueError):
                context.leave(self._token)
            self._token = None

    def _release(self) -> None:
        if not self._closed:
            self._closed = True
            self._sessions.close(self.id)

    def _command(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: bytes | str | None,
        capabilities: Capabilities | None,
        timeout: float | None,
        terminal: tuple[int, int] | None = None,
    ) -> Command:
        if self._closed or self._state.closed:
            msg = f"the session {self.id} is closed"
            raise SessionError(msg, hint="open a new one with fence.session(…)")
        return Command.of(
            command,
            session=self.id,
            cwd=cwd,
            env=env or {},
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            capabilities=capabilities,
            timeout=timeout,
            terminal=terminal,
        )


class Session(_Handle):
    """One agent's run."""

    def __init__(self, state: SessionState, fence: Executor) -> None:
        super().__init__(state, fence.sessions)
        self._fence = fence
        self._jobs: list[Job] = []

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self.close()

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        capabilities: Capabilities | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> Output:
        """Run a command to its end; a string is shell text, a list is a program and its arguments.

        Raises:
            Denied: it was refused.
            SandboxUnavailable: it could not be confined.
        """
        return self._fence.execute(
            self._command(
                command, cwd=cwd, env=env, stdin=stdin, capabilities=capabilities, timeout=timeout, terminal=terminal
            )
        )

    def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        capabilities: Capabilities | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> Job:
        """Start a command in the background; it has no timeout, and ends with the session at the latest.

        Raises:
            Denied: it was refused.
            SandboxUnavailable: it could not be confined.
        """
        import os

        from ringfence.jobs import Job

        asked = self._command(
            command, cwd=cwd, env=env, stdin=None, capabilities=capabilities, timeout=None, terminal=terminal
        )
        feed, stdin = os.pipe()
        try:
            job = Job(str(asked), self._fence.stream(asked, feed=feed, limited=False), (feed, stdin), _MOST_UNREAD)
        except BaseException:
            os.close(feed)
            os.close(stdin)
            raise
        self._jobs = [*self.jobs, job]
        return job

    @property
    def jobs(self) -> list[Job]:
        """The jobs that still run."""
        return [job for job in self._jobs if job.running]

    def stream(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        capabilities: Capabilities | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> Stream:
        """Run a command and read its output meanwhile: `with s.stream(…) as run: for chunk in run`."""
        return self._fence.stream(
            self._command(
                command, cwd=cwd, env=env, stdin=stdin, capabilities=capabilities, timeout=timeout, terminal=terminal
            )
        )

    def close(self) -> None:
        """Kill what runs; an ephemeral session leaves nothing behind."""
        self._release()


class AsyncSession(_Handle):
    """One agent's run, in an event loop."""

    def __init__(self, state: SessionState, fence: AsyncExecutor) -> None:
        super().__init__(state, fence.sessions)
        self._fence = fence

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()
        await self.close()

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        capabilities: Capabilities | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> Output:
        """Run a command to its end; see `Session.run`. Cancelling kills its whole tree."""
        return await self._fence.execute(
            self._command(
                command, cwd=cwd, env=env, stdin=stdin, capabilities=capabilities, timeout=timeout, terminal=terminal
            )
        )

    def stream(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        capabilities: Capabilities | None = None,
        timeout: float | None = None,
        terminal: tuple[int, int] | None = None,
    ) -> AsyncStream:
        """Run a command and read its output meanwhile: `async with s.stream(…) as run: async for …`."""
        return self._fence.stream(
            self._command(
                command, cwd=cwd, env=env, stdin=stdin, capabilities=capabilities, timeout=timeout, terminal=terminal
            )
        )

    async def close(self) -> None:
        """Kill what runs; an ephemeral session leaves nothing behind."""
        import asyncio

        await asyncio.to_thread(self._release)
