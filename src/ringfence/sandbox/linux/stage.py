"""Runs inside the sandbox, as the command's own process, just before it becomes the command.

It is handed to an isolated interpreter as text, so that nothing of this package has to be visible
inside: only the standard library's smallest parts may be used, and only `main` matters. Arguments: the
Landlock version, how many writable paths follow, those paths, and the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH_BENEATH = 1
_READ = 0b1101  # execute, read a file, list a directory
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # execute, write, read, truncate, control a device
_SCOPED = 0b11  # abstract sockets, signals
_TCP = 0b11  # listen, connect
_KNOWS_NETWORK, _KNOWS_SCOPES = 4, 6  # the versions since which the description is longer


def handled(version: int) -> int:
    """Return every right on files that a version knows."""
    newer = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
    return (1 << 13) - 1 | sum(right for since, right in newer if version >= since)


def attributes(version: int, *, tcp: bool = True) -> bytes:
    """Return the ruleset's description, as long as that version takes it; `tcp` says what is left open."""
    whole = struct.pack("=QQQ", handled(version), 0 if tcp else _TCP, _SCOPED)
    return whole[: 24 if version >= _KNOWS_SCOPES else 16 if version >= _KNOWS_NETWORK else 8]


def restrict_signals() -> None:
    """Let no signal of this process, and of what it starts, leave their domain; since version 6."""
    _apply(struct.pack("=QQQ", 0, 0, _SCOPED & ~1), [])


def restrict(version: int, readable: list[str], writable: list[str], *, tcp: bool = True) -> None:
    """Allow reading below `readable` and all below `writable`, for this process and what it starts."""
    rights_of = [*((path, _READ) for path in readable), *((path, handled(version)) for path in writable)]
    _apply(attributes(version, tcp=tcp), [(path, rights & handled(version)) for path, rights in rights_of])


def _apply(described: bytes, rights_of: list[tuple[str, int]]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    rules = call(_CREATE, ctypes.c_char_p(described), ctypes.c_size_t(len(described)), ctypes.c_uint(0))
    for path, rights in rights_of:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = rights if os.path.isdir(path) else rights & _OF_FILES
        rule = struct.pack("=Qi", allowed, fd)
        call(_ADD, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint(0))
        os.close(fd)
    call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint(0))
    os.close(rules)


def main(arguments: list[str]) -> None:
    """Restrict this process and become the command."""
    version, count = int(arguments[0]), int(arguments[1])
    writable, command = arguments[2 : 2 + count], arguments[2 + count :]
    try:
        restrict(version, ["/"], writable)
    except OSError as error:
        sys.stderr.write(f"ringfence-stage: Landlock could not be applied: {error}\n")
        sys.exit(125)
    # The interpreter may have added a variable for its own sake.
    with open("/proc/self/environ", "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0") if entry)
        env = {name: value for name, _, value in pairs}
    become([os.fsencode(word) for word in command], env)


def become(command: list[bytes], env: dict[bytes, bytes]) -> None:
    """Become the command; whoever cannot be found or executed ends with 127."""
    # The interpreter ignores these.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # `os.execvpe` would import something first, from files that are out of reach by now.
    found = (
        [command[0]]
        if b"/" in command[0]
        else [(d or b".") + b"/" + command[0] for d in env.get(b"PATH", b"").split(b":")]
    )
    reason = "there is no such program"
    for program in found:
        try:
            os.execve(program, command, env)  # noqa: S606  # what we are for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = error.strerror or str(error)
    sys.stderr.write(f"ringfence: {os.fsdecode(command[0])}: {reason}\n")
    sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
