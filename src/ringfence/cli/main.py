"""The entry point: read the command line, call one command, turn errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from ringfence.cli.parser import parse
from ringfence.errors import RingfenceError
from ringfence.model.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130
_STDERR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ringfence` with these arguments and return its exit code."""
    _open_standard()
    options = parse(arguments)
    try:
        command = getattr(import_module(f"ringfence.cli.{options.command}"), options.command)
        code: int = command(options)
    except RingfenceError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. Nothing more can be said there, also not by the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    else:
        return code


def _open_standard() -> None:
    """Put /dev/null where a standard descriptor is closed, before something else gets its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    # The interpreter has left these out where it found the descriptor closed.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def say(text: str) -> None:
    """Say something about Ringfence itself, on standard error."""
    # Names of files and words of others may hold escape sequences; a terminal must not obey them.
    for line in text.split("\n"):
        sys.stderr.write(f"ringfence: {printable(line)}\n")
    sys.stderr.flush()
