"""Ringfence: the boundary between an AI agent and an operating system.

import ringfence

out = ringfence.run("pytest -q", workspace=".")
print(out.exit_code, out.stdout, out.enforcement)
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.config.config import Config
    from ringfence.drive import AsyncStream, Stream
    from ringfence.errors import (
        CommandError,
        CommandFailed,
        CommandTimeout,
        ConfigError,
        Denied,
        ProgramNotFound,
        RingfenceError,
        SandboxUnavailable,
        SessionError,
        UnsupportedPolicy,
    )
    from ringfence.fence import AsyncFence, Fence
    from ringfence.model.approval import Answer, Request
    from ringfence.model.capabilities import Capabilities
    from ringfence.model.command import Command
    from ringfence.model.decision import Decision, Reason
    from ringfence.model.limits import Limits
    from ringfence.model.network import Network
    from ringfence.model.output import Denial, Enforcement, Missing, Output
    from ringfence.model.record import Record
    from ringfence.oneshot import run
    from ringfence.sandbox.registry import Registry
    from ringfence.session.context import current_session
    from ringfence.session.handles import AsyncSession, Session

# Where each public name lives. They are imported when first used: `ringfence run` needs few of them.
_HOMES = {
    "Answer": "ringfence.model.approval",
    "AsyncFence": "ringfence.fence",
    "AsyncSession": "ringfence.session.handles",
    "AsyncStream": "ringfence.drive",
    "Capabilities": "ringfence.model.capabilities",
    "Command": "ringfence.model.command",
    "CommandError": "ringfence.errors",
    "CommandFailed": "ringfence.errors",
    "CommandTimeout": "ringfence.errors",
    "Config": "ringfence.config.config",
    "ConfigError": "ringfence.errors",
    "Decision": "ringfence.model.decision",
    "Denial": "ringfence.model.output",
    "Denied": "ringfence.errors",
    "Enforcement": "ringfence.model.output",
    "Fence": "ringfence.fence",
    "Limits": "ringfence.model.limits",
    "Missing": "ringfence.model.output",
    "Network": "ringfence.model.network",
    "Output": "ringfence.model.output",
    "ProgramNotFound": "ringfence.errors",
    "Reason": "ringfence.model.decision",
    "Record": "ringfence.model.record",
    "Registry": "ringfence.sandbox.registry",
    "Request": "ringfence.model.approval",
    "RingfenceError": "ringfence.errors",
    "SandboxUnavailable": "ringfence.errors",
    "Session": "ringfence.session.handles",
    "SessionError": "ringfence.errors",
    "Stream": "ringfence.drive",
    "UnsupportedPolicy": "ringfence.errors",
    "current_session": "ringfence.session.context",
    "run": "ringfence.oneshot",
}
__all__ = [
    "Answer",
    "AsyncFence",
    "AsyncSession",
    "AsyncStream",
    "Capabilities",
    "Command",
    "CommandError",
    "CommandFailed",
    "CommandTimeout",
    "Config",
    "ConfigError",
    "Decision",
    "Denial",
    "Denied",
    "Enforcement",
    "Fence",
    "Limits",
    "Missing",
    "Network",
    "Output",
    "ProgramNotFound",
    "Reason",
    "Record",
    "Registry",
    "Request",
    "RingfenceError",
    "SandboxUnavailable",
    "Session",
    "SessionError",
    "Stream",
    "UnsupportedPolicy",
    "current_session",
    "run",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module 'ringfence' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
