"""`ringfence run`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from ringfence.cli.main import say
from ringfence.cli.session import make_command, make_fence, open_session
from ringfence.errors import ConfigError, Denied, RingfenceError
from ringfence.sandbox.capture import Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ringfence.model.approval import Approver
    from ringfence.model.output import Missing, Output
    from ringfence.sandbox.capture import Sink
    from ringfence.session.sessions import SessionState

_TIMED_OUT = 124
_GRACE_SECONDS = 5.0


def run(options: argparse.Namespace) -> int:
    """Run one command and return the exit code that `ringfence` ends with."""
    try:
        output = _run(options)
    except RingfenceError as error:
        _report(options, {"outcome": "refused" if isinstance(error, Denied) else "failed", "error": error.message})
        if not options.json:
            raise
        _print(_refusal(error))
        return error.exit_code
    code = _TIMED_OUT if output.timed_out else output.exit_code
    outcome = "timed-out" if output.timed_out else "signalled" if output.signal else "exited"
    _report(options, {"outcome": outcome, "exit_code": output.exit_code, "signal": output.signal})
    if options.json:
        _print(output.as_dict())
    else:
        for note in output.notes:
            say(note)
    return 0 if code is None else code


def _run(options: argparse.Namespace) -> Output:
    with make_fence(options, _approver(options)) as fence:
        state = open_session(fence, options)
        command = make_command(options, state, argv=tuple(options.argv), text=options.text, env=_environment(options))
        stdin = None if options.no_stdin else 0
        streams = Streams(stdin) if options.json else Streams(stdin, out_sink=_to(1), err_sink=_to(2), keep=False)
        with _signals_passed_on(state, command.timeout):
            output = fence.relay(command, streams, limited=options.json)
        if not options.json and options.backend != "host":
            _tell_once(output.enforcement.missing, fence.places.state)
        return output


def _approver(options: argparse.Namespace) -> Approver | None:
    """Ask on the terminal where there is one to ask on, unless told otherwise."""
    interactive = sys.stderr is not None and sys.stderr.isatty() and sys.stdin is not None and sys.stdin.isatty()
    if options.no_input or not (options.ask or interactive):
        return None
    from ringfence.approval.terminal import TerminalApprover

    return TerminalApprover()


def _environment(options: argparse.Namespace) -> dict[str, str]:
    env: dict[str, str] = {}
    for path in options.env_file:
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the environment file {path}: {error}") from error
        for number, line in enumerate(lines, 1):
            if line and not line.startswith("#"):
                name, equals, value = line.removeprefix("export ").partition("=")
                if not equals:
                    msg = f"{path}, line {number}: expected NAME=VALUE"
                    raise ConfigError(msg)
                env[name.strip()] = _unquoted(value.strip())
    for item in options.env:
        name, equals, value = item.partition("=")
        if equals:
            env[name] = value
        elif name in os.environ:
            env[name] = os.environ[name]
    return env


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


@contextlib.contextmanager
def _signals_passed_on(state: SessionState, timeout: float | None) -> Iterator[None]:
    """Pass Ctrl-C and its kin on to the command; a second one, or five seconds, kills it.

    The timeout is set as an alarm as well: while our own output blocks, nothing else watches it.
    """
    asked = [False]

    def pass_on(number: int, _frame: object) -> None:
        running = state.commands()
        if not running:
            raise KeyboardInterrupt
        if asked[0]:
            state.cancel()
            return
        asked[0] = True
        for command in running:
            command.signal(number)
        signal.setitimer(signal.ITIMER_REAL, _GRACE_SECONDS)

    def alarm(_number: int, _frame: object) -> None:
        for command in state.commands():
            command.kill() if asked[0] else command.expire()

    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT), pass_on)
    before = {n: signal.signal(n, handler) for n, handler in {**handlers, signal.SIGALRM: alarm}.items()}
    if timeout is not None:
        signal.setitimer(signal.ITIMER_REAL, min(timeout, 2**31) + 0.01)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _to(fd: int) -> Sink:
    """Return a sink that writes all of it to a descriptor of ours."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    return write


def _refusal(error: RingfenceError) -> dict[str, object]:
    fields: dict[str, object] = {
        "error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint},
        "exit_code": None,
        "denials": [],
    }
    if isinstance(error, Denied):
        fields |= {"decision": error.decision.as_dict(), "denials": [error.denial.as_dict()]}
    return fields


def _print(fields: dict[str, object]) -> None:
    import json

    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _report(options: argparse.Namespace, fields: dict[str, object]) -> None:
    if options.status_fd is not None:
        import json

        with contextlib.suppress(OSError):
            os.write(options.status_fd, json.dumps(fields).encode() + b"\n")


def _tell_once(missing: tuple[Missing, ...], state: str) -> None:
    """Name missing guarantees on standard error, until they have been named on this machine once."""
    if not missing:
        return
    names = ", ".join(m.guarantee for m in missing)
    marker = os.path.join(state, "told-missing")
    with contextlib.suppress(OSError), open(marker, encoding="utf-8") as file:
        if file.read() == names:
            return
    say(f"not guaranteed here: {names} (details: ringfence status; said once)")
    with contextlib.suppress(OSError), open(marker, "w", encoding="utf-8") as file:
        file.write(names)
