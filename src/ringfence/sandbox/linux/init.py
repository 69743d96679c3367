"""The first process of a warm enclosure: starts one command at a time, and sees all of it end.

It is handed to an isolated interpreter as text and becomes PID 1 of the sandbox, where every layer is put
onto it once; what it starts inherits them. Whoever asks is outside, at the other end of a socket that no
command has. Arguments: the descriptor of that socket, the Landlock version (0 for none), how many
writable paths follow, and those paths. `stage.py` stands before this text.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself brings `enum` along
import _socket
import ctypes
import marshal
import posix
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringfence.sandbox.linux.stage import restrict  # noqa: TC004  # its text stands before this one

# What is said: the number of the request, what it is about, and a value. All that the outside reads.
SAID = struct.Struct("=III")
READY, STARTED, REFUSED, ENDED = 1, 2, 3, 4
MAX_REQUEST = 64 * 1024
_CLOEXEC = 0x40000000  # MSG_CMSG_CLOEXEC
_DESCRIPTORS = 4
_SIGNALS = [n for n in range(1, 65) if n not in {9, 19, 32, 33}]
_PR_SET_DUMPABLE = 4
_WINDOW_SIZE = 0x5414
_KILL = 9
_NOT_A_PROGRAM = 8  # ENOEXEC


class Init:
    """The loop, and the command that runs now."""

    def __init__(self, control: int) -> None:
        self._socket = _socket.socket(fileno=control)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def say(self, number: int, what: int, value: int, fds: bytes = b"") -> None:
        """Tell the outside; whoever is not there any more ends us."""
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)] if fds else []
        try:
            self._socket.sendmsg([SAID.pack(number, what, value & 0xFFFFFFFF)], ancillary, _socket.MSG_NOSIGNAL)
        except OSError:
            posix._exit(0)

    def hear(self) -> tuple[list[Any], list[int]]:
        """Wait for a request; nothing at all means that the outside is gone, and we go with it."""
        space = _socket.CMSG_SPACE(4 * _DESCRIPTORS)
        data, ancillary, _, _ = self._socket.recvmsg(MAX_REQUEST, space, _CLOEXEC)
        if not data:
            posix._exit(0)
        fds = [fd for _, _, packed in ancillary for (fd,) in struct.iter_unpack("=i", packed)]
        if data == b"M":
            memory = fds.pop()
            data = _all(memory)
            posix.close(memory)
        return list(marshal.loads(data)), fds  # noqa: S302  # from outside, which is trusted here

    def serve(self) -> None:
        """Run commands, one after another, for ever."""
        self.say(0, READY, 0)
        while True:
            request, fds = self.hear()
            if request[0] == "run":
                self._run(request, fds)

    def _run(self, request: list[Any], fds: list[int]) -> None:
        _, number, argv, cwd, env, size = request
        try:
            posix.chdir(cwd)
            pid = self._start(number, argv, env, size, fds)
            posix.chdir("/")
            if fds:
                posix.close(fds.pop(0))  # so that a command that closes its input is noticed
            self._attend(pid, number)
            _, status = posix.waitpid(pid, 0)
            _end_all()
            self.say(number, ENDED, status)
        except OSError as error:
            self.say(number, REFUSED, error.errno or _NOT_A_PROGRAM)
        finally:
            # Only now: whoever reads the command's output is woken once, by the answer, and not before it.
            for fd in fds:
                posix.close(fd)

    def _start(self, number: int, argv: list[bytes], env: dict[bytes, bytes], size: Any, fds: list[int]) -> int:
        if size is None:
            actions: list[Any] = [(posix.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(fds)]
            return _spawn(argv, env, actions)
        # A terminal of this sandbox's own: the command's session opens it first, so it becomes the session's.
        master = posix.open("/dev/ptmx", posix.O_RDWR | posix.O_NOCTTY | posix.O_CLOEXEC)
        try:
            libc = ctypes.CDLL(None)
            libc.ptsname.restype = ctypes.c_char_p
            libc.grantpt(master)
            libc.unlockpt(master)
            name = libc.ptsname(master)
            rows, columns = size
            libc.ioctl(master, ctypes.c_ulong(_WINDOW_SIZE), ctypes.c_char_p(struct.pack("=HHHH", rows, columns, 0, 0)))
            actions = [(posix.POSIX_SPAWN_OPEN, 0, name, posix.O_RDWR, 0)]
            actions += [(posix.POSIX_SPAWN_DUP2, 0, n) for n in (1, 2)]
            pid = _spawn(argv, env, actions)
            self.say(number, STARTED, 0, struct.pack("=i", master))
        finally:
            posix.close(master)
        return pid

    def _attend(self, pid: int, number: int) -> None:
        """Wait for the command to end, and pass on the signals that arrive for it and no other."""
        process = posix.pidfd_open(pid)
        self._poll.register(process, select.POLLIN)
        while True:
            if any(fd == process for fd, _ in self._poll.poll()):
                break
            request, _ = self.hear()
            if request[:2] == ["signal", number]:
                if request[2] == _KILL:
                    break
                _kill(-pid, request[2])
        self._poll.unregister(process)
        posix.close(process)
        _kill(-1, _KILL)


def _all(fd: int) -> bytes:
    data = b""
    while chunk := posix.pread(fd, 2**20, len(data)):
        data += chunk
    return data


def _spawn(argv: list[bytes], env: dict[bytes, bytes], actions: list[Any]) -> int:
    """Start a program in a session of its own; it is looked for where its own PATH says."""
    name = argv[0]
    found = [name] if b"/" in name else [(d or b".") + b"/" + name for d in env.get(b"PATH", b"").split(b":")]
    reason: OSError = FileNotFoundError(2, "")
    for program in found:
        try:
            return posix.posix_spawn(
                program, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_SIGNALS
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = error
    raise reason


def _kill(pid: int, number: int) -> None:
    try:
        posix.kill(pid, number)
    except OSError:
        return


def _end_all() -> None:
    """Kill everything else in this PID namespace, and wait until it is gone."""
    while True:
        _kill(-1, _KILL)
        try:
            posix.waitpid(-1, 0)
        except ChildProcessError:
            return


def main(arguments: list[str]) -> None:
    """Put the last layers on, and serve."""
    # The interpreter's own handler would let a command interrupt us.
    for number in (2, 13, 25):
        _signal.signal(number, _signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    control, version, count = int(arguments[0]), int(arguments[1]), int(arguments[2])
    # bubblewrap leaves open what it needed itself, and commands must not inherit any of it.
    posix.closerange(3, control)
    posix.closerange(control + 1, 2**20)
    posix.set_inheritable(control, False)
    if version:
        try:
            restrict(version, ["/"], arguments[3 : 3 + count])
        except OSError as error:
            posix.write(2, f"ringfence-stage: Landlock could not be applied: {error}\n".encode())
            posix._exit(125)
    Init(control).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
