"""From options to a fence, a session and a command: what `run` and `check` share."""

from __future__ import annotations

import os

from ringfence.config.load import defaults
from ringfence.errors import ConfigError, SessionError
from ringfence.fence import Fence
from ringfence.model.capabilities import Capabilities
from ringfence.model.command import Command
from ringfence.model.network import Network
from ringfence.model.paths import is_below
from ringfence.session.places import places
from ringfence.session.workspace import project_around, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from ringfence.model.approval import Approver
    from ringfence.session.sessions import SessionState


def make_fence(options: argparse.Namespace, approver: Approver | None = None) -> Fence:
    """Compose a fence from the configuration files and the options."""
    config = defaults(places(os.environ))
    if options.backend:
        config = config.replace(backend=options.backend)
    return Fence(config, approver=approver)


def open_session(fence: Fence, options: argparse.Namespace) -> SessionState:
    """Open the session that the options name, on the project around the current directory by default."""
    place = options.workspace
    if place is None:
        here = _current_directory()
        shown = os.environ.get("PWD", "")
        if shown.startswith("/") and os.path.realpath(shown) == os.path.realpath(here):
            # The way that the user sees: a link on it may have been made by a command.
            here = shown
        _, link = resolve(here, fence.places)
        if link:
            msg = f"you are here through {link}, a link inside a workspace, where a command may have put it"
            raise SessionError(msg, hint=f"go there by its own name, if you mean it: cd {os.path.realpath(here)}")
        place = project_around(here, fence.places)
    state = fence.sessions.open(options.session, place, single_use=options.session is None)
    state.warm = False  # one command is all that this process will run
    return state


def make_command(
    options: argparse.Namespace,
    state: SessionState,
    *,
    argv: tuple[str, ...] = (),
    text: str | None = None,
    env: dict[str, str] | None = None,
) -> Command:
    """Build the command; its working directory is where the user stands, if that is in the workspace."""
    cwd = options.cwd
    if cwd is None:
        here = os.path.realpath(_current_directory())
        cwd = here if is_below(here, state.workspace) else state.workspace
    try:
        return Command(
            argv=argv,
            text=text,
            session=state.id,
            cwd=os.path.abspath(cwd) if options.cwd else cwd,
            env=env or {},
            capabilities=wanted(options, state),
            timeout=getattr(options, "timeout", None),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def wanted(options: argparse.Namespace, state: SessionState) -> Capabilities | None:
    """Return what the options ask for; `None` is the baseline as it is."""
    caps = state.baseline
    try:
        if options.tier:
            caps = Capabilities.for_tier(options.tier, state.workspace).with_limits(caps.limits)
        caps = caps.with_read(*map(_existing, options.read)).with_write(*map(_existing, options.write))
        if options.net:
            caps = caps.with_network(Network.parse(options.net))
        if options.publish:
            caps = caps.replace(publish=(*caps.publish, *options.publish))
        if options.debug:
            caps = caps.replace(debug=True)
        if options.no_spawn:
            caps = caps.without_spawn()
        if options.memory:
            caps = caps.with_limits(caps.limits.replace(memory_mb=options.memory))
    except ValueError as error:
        raise ConfigError(str(error), hint="see ringfence run --help") from error
    return None if caps == state.baseline else caps


def _existing(path: str) -> str:
    real = os.path.realpath(os.path.expanduser(path))
    if not os.path.exists(real):
        msg = f"{path} does not exist"
        raise ConfigError(msg, hint="grant an existing path, or the directory that will hold it")
    return real


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise SessionError("the current directory is gone", hint="change to one that exists") from None
