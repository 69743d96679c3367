"""What attacks aim at: everything an untrusted command might want, made for one test and gone after it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from arsenal import ATTACKS

from ringfence import Capabilities, Fence
from ringfence.session.places import places
from ringfence.testing import FakeApprover

ARSENAL = Path(__file__).with_name("arsenal.py")
SECRET = "a-secret-of-the-host"
# A shim for many interpreters takes longer than most attacks.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else "python3"
IS_ROOT = os.geteuid() == 0
_libc = ctypes.CDLL(None, use_errno=True)


def names(*families: str) -> list[str]:
    """Name the attacks that make sense for this user, of some families or of all."""
    users = {"", "root" if IS_ROOT else "user"}
    return [n for n, (family, _, only, _) in ATTACKS.items() if only in users and (not families or family in families)]


class World:
    """The host as an attack finds it, and the signs that one got through."""

    def __init__(self, base: Path, monkeypatch) -> None:
        self._undo = contextlib.ExitStack()
        self.workspace = base / "workspace"
        self.outside = base / "outside"
        self.home = base / "home"
        for path in (self.workspace, self.outside, self.home / ".ssh", self.home / ".aws"):
            path.mkdir(parents=True)
        shutil.copy(ARSENAL, self.workspace)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("A_TOKEN", SECRET)
        (self.home / ".ssh" / "id_ringfence_test").write_text(SECRET)
        (self.home / ".aws" / "ringfence-test").write_text(SECRET)
        (self.workspace / ".env").write_text(SECRET)
        (self.outside / "victim").write_text("precious")
        (self.outside / "secret").write_text(SECRET)
        # Other runs may be under way, and some attacks look for a process by this.
        self._sleep = f"{os.getpid()}.{time.monotonic_ns() % 10**9}"
        self._file(Path(os.path.expanduser(f"~{_user()}"), f".ringfence-test-{self._sleep}"))
        roots = Path(f"/etc/ringfence-test-{self._sleep}")
        if IS_ROOT:
            self._file(roots).chmod(0o600)
        ours = places(os.environ)
        os.makedirs(ours.config, exist_ok=True)
        Path(ours.config, "config.toml").write_text("# ours\n")
        other = Path(ours.state, "workspaces", "another", "file")
        other.parent.mkdir(parents=True)
        for path in (ours.state, other.parents[1], other.parent):
            os.chmod(path, 0o700)
        other.write_text(SECRET)
        self.facts: dict[str, object] = {
            "secret": SECRET,
            "outside": str(self.outside),
            "file": str(self.outside / "victim"),
            "roots": str(roots),
            "state": ours.state,
            "config": ours.config,
            "other_session": str(other),
            "package": os.path.dirname(os.path.realpath(sys.modules["ringfence"].__file__ or "")),
            "sleep": self._sleep,
        }
        self._make_victim()
        self._make_sockets()
        self._make_ipc()
        self._make_terminal()
        self._make_fifo()
        self._before = _state_of(self.outside)

    def close(self) -> None:
        """Take all of it away."""
        for pid in self._sleepers():
            os.kill(pid, signal.SIGKILL)
        self._undo.close()

    def _file(self, path: Path) -> Path:
        path.write_text(SECRET)
        self._undo.callback(path.unlink)
        return path

    def _make_victim(self) -> None:
        with (self.outside / "secret").open() as stdin:
            self._victim = subprocess.Popen(
                ["/bin/sh", "-c", "while :; do sleep 300; done", SECRET],
                stdin=stdin,
                cwd=self.outside,
                start_new_session=True,
            )
        self._undo.callback(self._end_victim)
        deadline = time.monotonic() + 5
        while not (address := _first_address(self._victim.pid)) and time.monotonic() < deadline:
            time.sleep(0.001)
        self.facts |= {"victim": self._victim.pid, "victim_address": address}

    def _end_victim(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._victim.pid, signal.SIGKILL)
        self._victim.wait()

    def _serve(self, listening: socket.socket) -> None:
        """Tell the secret to whoever connects."""
        listening.listen()
        self._undo.callback(listening.close)
        self._undo.callback(lambda: contextlib.suppress(OSError).__enter__() or listening.shutdown(socket.SHUT_RDWR))

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(SECRET.encode())

        threading.Thread(target=serve, daemon=True).start()

    def _listen(self, family: int, address: object, kind: int = socket.SOCK_STREAM) -> socket.socket:
        listening = socket.socket(family, kind)
        listening.bind(address)
        return listening

    def _make_sockets(self) -> None:
        stream, inner = self.outside / "stream", self.workspace / "host.sock"
        abstract = f"ringfence-test-{self._sleep}"
        for address in (str(stream), str(inner), "\0" + abstract):
            self._serve(self._listen(socket.AF_UNIX, address))
        tcp = self._listen(socket.AF_INET, ("127.0.0.1", 0))
        self._serve(tcp)
        self._datagrams = [
            self._listen(socket.AF_UNIX, str(self.outside / "datagram"), socket.SOCK_DGRAM),
            self._listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM),
        ]
        for sock in self._datagrams:
            sock.setblocking(False)
            self._undo.callback(sock.close)
        self.facts |= {
            "stream": str(stream),
            "stream_in_workspace": str(inner),
            "abstract": abstract,
            "datagram": str(self.outside / "datagram"),
            "port": tcp.getsockname()[1],
            "udp": self._datagrams[1].getsockname()[1],
        }

    def _make_ipc(self) -> None:
        shm = _libc.shmget(0, 4096, 0o1666)
        _libc.shmat.restype = ctypes.c_void_p
        address = _libc.shmat(shm, None, 0)
        ctypes.memmove(address, SECRET.encode(), len(SECRET))
        _libc.shmdt(ctypes.c_void_p(address))
        self._undo.callback(_libc.shmctl, shm, 0, None)
        queue = _libc.msgget(0, 0o1666)
        _libc.msgsnd(queue, (1).to_bytes(8, sys.byteorder) + SECRET.encode(), len(SECRET), 0)
        self._undo.callback(_libc.msgctl, queue, 0, None)
        name = f"/ringfence-test-{self._sleep}"
        opened = _libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o644, None)
        assert min(shm, queue, opened) >= 0
        self._undo.callback(_libc.mq_unlink, name.encode())
        self._undo.callback(_libc.mq_close, opened)
        posix = self._file(Path("/dev/shm" + name))
        self.facts |= {"shm": shm, "queue": queue, "mqueue": name, "posix_shm": str(posix)}

    def _make_terminal(self) -> None:
        self._terminal, slave = pty.openpty()
        self._undo.callback(os.close, self._terminal)
        self._undo.callback(os.close, slave)
        self.facts["terminal"] = os.ttyname(slave)

    def _make_fifo(self) -> None:
        os.mkfifo(self.outside / "fifo")
        self._fifo = os.open(self.outside / "fifo", os.O_RDWR | os.O_NONBLOCK)
        self._undo.callback(os.close, self._fifo)

    def _sleepers(self) -> list[int]:
        found = subprocess.run(["pgrep", "-f", f"^sleep {self._sleep}$"], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def signs(self) -> list[str]:
        """Name what an attack has left on the host."""
        found = []
        if _state_of(self.outside) != self._before:
            found.append("files changed")
        time.sleep(0)
        if self._victim.poll() is not None:
            found.append("the victim is dead")
        elif os.getpriority(os.PRIO_PROCESS, self._victim.pid) != os.getpriority(os.PRIO_PROCESS, 0):
            found.append("the victim is slowed")
        readable, _, _ = select.select([self._fifo, self._terminal, *self._datagrams], [], [], 0)
        if readable:
            found.append("something was said")
        if any(p.lstat().st_mode & 0o6000 for p in self.workspace.rglob("*")):
            found.append("a set-id file")
        if self._sleepers():
            found.append("a process goes on")
        return found

    def outcome(self, printed: str) -> str:
        """Return what shows that an attack succeeded; empty where nothing does."""
        return ", ".join([*(["it says so"] if "succeeded" in printed else []), *self.signs()])

    def try_outside(self, name: str) -> str:
        """Run an attack with nothing to stop it, below a shell that is its parent, on a terminal of its own."""
        self._on_a_terminal(sys.executable, ARSENAL.name, name, json.dumps(self.facts))
        for _ in range(100):  # an attack that killed its parent goes on for a moment
            said = (self.workspace / "said").read_text()
            if said or self.signs():
                break
            time.sleep(0.01)
        return self.outcome(said)

    def try_from_a_terminal(self, name: str, backend: str) -> str:
        """Run an attack by the command line, which has a terminal that the command must not get."""
        run = [sys.executable, "-P", "-m", "ringfence", "run", "--backend", backend, "--"]
        self._on_a_terminal(*run, PYTHON, ARSENAL.name, name, json.dumps(self.facts))
        said = (self.workspace / "said").read_text()
        assert "failed" in said or "succeeded" in said or "done" in said, said
        return self.outcome(said)

    def _on_a_terminal(self, *argv: str) -> None:
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.workspace)
            os.execv("/bin/sh", ["/bin/sh", "-c", '"$@" > said 2>&1; true', "sh", *argv])
        with contextlib.suppress(OSError):
            while os.read(terminal, 4096):
                pass
        os.close(terminal)
        os.waitpid(pid, 0)
        time.sleep(0.01)

    def try_inside(self, name: str, *, fence: Fence | None = None, readable: bool = False, network: str = "") -> str:
        """Run an attack as a command; return what shows that it succeeded."""
        with fence or Fence(approver=FakeApprover("session")) as engine:
            with engine.session(workspace=self.workspace) as session:
                caps: Capabilities = session.capabilities
                if readable:
                    caps = caps.with_read(self.outside)
                if network:
                    caps = caps.with_network(network)
                argv = [PYTHON, ARSENAL.name, name, json.dumps(self.facts)]
                self.said = session.run(argv, capabilities=caps, timeout=20)
        return self.outcome(self.said.stdout)


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _first_address(pid: int) -> int:
    """Find readable memory of a process that runs its own program by now."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        for line in file:
            if " rw-p " in line and ("dash" in line or "sh" in line or "busybox" in line):
                return int(line.split("-")[0], 16)
    return 0


def _state_of(directory: Path) -> dict[str, object]:
    """Everything about a tree that an attack could change."""
    found: dict[str, object] = {}
    for path in sorted([directory, *directory.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        times = status.st_mtime_ns if path.is_file() else 0
        found[str(path)] = (status.st_mode, times, status.st_ino, content, tuple(os.listxattr(path)))
    return found
