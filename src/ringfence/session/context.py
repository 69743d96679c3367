"""The session that code runs in, for tools whose signature does not carry it."""

from __future__ import annotations

from contextvars import ContextVar

from ringfence.errors import SessionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import Token

_current: ContextVar[str | None] = ContextVar("ringfence_session", default=None)


def current_session() -> str | None:
    """Return the id of the session around the caller, if there is one."""
    return _current.get()


def enter(session_id: str) -> Token[str | None]:
    """Make `session_id` the current session; undo it with `leave`."""
    return _current.set(session_id)


def leave(token: Token[str | None]) -> None:
    """Go back to the session before."""
    _current.reset(token)


def require(explicit: str | None) -> str:
    """Return the explicit session id, else the current one.

    Raises:
        SessionError: there is neither.
    """
    session_id = explicit if explicit is not None else _current.get()
    if session_id is None:
        raise SessionError(
            "no session: the command names none and there is none around it",
            hint="run it inside `with fence.session(…)`, or pass Command(session=…)",
        )
    return session_id
