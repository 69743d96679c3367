"""`ringfence run`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from ringfence.cli.main import say
from ringfence.cli.relay import Relay
from ringfence.cli.session import make_command, make_fence, open_session
from ringfence.errors import ConfigError, Denied, RingfenceError
from ringfence.sandbox.capture import Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Self

    from ringfence.model.approval import Approver
    from ringfence.model.output import Missing, Output
    from ringfence.sandbox.capture import Pump
    from ringfence.session.sessions import SessionState

_TIMED_OUT = 124


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
        with _Signals(state) as signals:
            streams = Streams(stdin, control=(signals.fileno(), signals.pass_on))
            relays = () if options.json else (Relay(1), Relay(2))
            if relays:
                streams.out_outlet, streams.err_outlet = relays
            output = fence.relay(command, streams, limited=options.json)
        for relay in relays:
            if relay.failure is not None and not isinstance(relay.failure, BrokenPipeError):
                say(f"the command's output could not be written: {relay.failure.strerror}")
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
                if not equals or not name.strip().isidentifier():
                    msg = f"{path}, line {number}: expected NAME=VALUE"
                    raise ConfigError(msg)
                env[name.strip()] = _unquoted(value.strip())
    for item in options.env:
        name, equals, value = item.partition("=")
        if equals:
            env[name] = value
        elif name in os.environ:
            env[name] = os.environ[name]
        else:
            msg = f"--env {item}: there is no such variable to pass on"
            raise ConfigError(msg, hint="set it, or write --env NAME=VALUE")
    return env


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


class _Signals:
    """Passes Ctrl-C and its kin on to the command; a second one kills it.

    The handlers do next to nothing: Python writes each signal's number to a pipe, and the pump that
    waits for the command reads it there, where nothing else is half done.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._asked = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def __enter__(self) -> Self:
        # What our caller has told us to ignore, as `nohup` does, stays ignored.
        heard = [n for n in self._NUMBERS if signal.getsignal(n) != signal.SIG_IGN]
        self._before = {n: signal.signal(n, self._heard) for n in heard}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _heard(self, _number: int, _frame: object) -> None:
        if not self._state.commands():
            raise KeyboardInterrupt

    def pass_on(self, pump: Pump) -> None:
        """Act on the signals that came."""
        for number in os.read(self._read, 64):
            if self._asked:
                pump.kill()
            pump.signal(number)
            pump.hurry()
            self._asked = True


def _refusal(error: RingfenceError) -> dict[str, object]:
    fields: dict[str, object] = {
        "error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint},
        "exit_code": None,
        "signal": None,
        "stdout": "",
        "stderr": "",
        "timed_out": False,
        "truncated": False,
        "duration_ms": 0.0,
        "decision": None,
        "enforcement": None,
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
