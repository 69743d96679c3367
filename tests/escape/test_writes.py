"""Writing outside the workspace, by every route we know.

Each attack runs twice: once with nothing to stop it, where it must succeed, or it would prove
nothing; and once inside, where it must not.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from ringfence import Fence
from ringfence.testing import FakeApprover

# $V is a directory outside the workspace that holds the file `victim`.
WRITES = {
    "create": "echo pwned > $V/new",
    "overwrite": "echo pwned > $V/victim",
    "append": "echo pwned >> $V/victim",
    "truncate": "python3 -c \"import os; os.truncate('$V/victim', 0)\"",
    "chmod": "chmod 777 $V/victim",
    "utime": "touch -d @0 $V/victim",
    "rename": "mv $V/victim $V/gone",
    "unlink": "rm -f $V/victim",
    "mkdir": "mkdir $V/new",
    "symlink in the workspace": "ln -s $V link && echo pwned > link/new",
    "symlink to the file": "ln -s $V/victim link && echo pwned > link",
    "dot dot": "mkdir -p a/b && echo pwned > a/b/../../$(realpath --relative-to=$PWD $V)/new",
    "proc self root": "echo pwned > /proc/self/root$V/new",
    "proc 1 root": "echo pwned > /proc/1/root$V/new || echo pwned > /proc/self/root$V/new",
    "proc self cwd": "cd $V && echo pwned > /proc/self/cwd/new",
    "hard link": "ln $V/victim here && echo pwned > here",
    "double slash": "echo pwned > /$V/new",
    "xattr": "python3 -c \"import os; os.setxattr('$V/victim', 'user.x', b'pwned')\"",
    "a bind mount of its own": (
        "unshare -Ur --mount sh -c 'mount --bind $V $PWD/m && echo pwned > $PWD/m/new' || echo pwned > $V/new"
    ),
}


def state_of(directory):
    """Everything about a tree that an attack could change."""
    found = {}
    for path in sorted([directory, *directory.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
        found[str(path)] = (
            status.st_mode,
            status.st_mtime_ns if path.is_file() else 0,
            status.st_ino,
            content,
            attributes,
        )
    return found


@pytest.fixture
def victim(tmp_path):
    directory = tmp_path / "victim dir".replace(" ", "-")
    directory.mkdir()
    (directory / "victim").write_text("precious")
    return directory


@pytest.mark.parametrize("attack", WRITES)
def test_control_the_attack_works_when_nothing_stops_it(attack, workspace, victim):
    (workspace / "m").mkdir()
    before = state_of(victim)
    env = {**os.environ, "V": str(victim)}
    subprocess.run(["/bin/bash", "-c", WRITES[attack]], cwd=workspace, env=env, check=False, capture_output=True)
    assert state_of(victim) != before


@pytest.mark.parametrize("reach", ["invisible", "readable"])
@pytest.mark.parametrize("attack", WRITES)
def test_it_fails_inside(attack, reach, workspace, victim):
    (workspace / "m").mkdir()
    before = state_of(victim)
    with Fence(approver=FakeApprover()) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.with_read(victim) if reach == "readable" else None
        session.run(WRITES[attack], env={"V": str(victim)}, capabilities=caps)
    assert state_of(victim) == before


@pytest.mark.parametrize("arm", ["control", "inside"])
@pytest.mark.parametrize(
    "text",
    [
        "echo pwned > /proc/self/fd/0/new",
        "cd /proc/self/fd/0 && echo pwned > new",
        "mkdir /dev/fd/0/new",
    ],
)
def test_a_directory_given_as_stdin(cli, workspace, victim, text, arm):
    with open_directory(victim) as fd:
        if arm == "control":
            subprocess.run(["/bin/bash", "-c", text], stdin=fd, check=False, capture_output=True)
        else:
            cli("run", "-c", text, stdin=fd)
    assert (victim / "new").exists() == (arm == "control")


@pytest.mark.parametrize("arm", ["control", "inside"])
def test_a_file_opened_for_reading_is_not_reopened_for_writing(cli, workspace, victim, arm):
    text = "echo pwned > /proc/self/fd/0"
    with (victim / "victim").open() as file:
        if arm == "control":
            subprocess.run(["/bin/bash", "-c", text], stdin=file, check=False, capture_output=True)
        else:
            cli("run", "-c", text, stdin=file)
    assert (victim / "victim").read_text() == ("pwned\n" if arm == "control" else "precious")


@pytest.mark.parametrize("arm", ["control", "inside"])
def test_inherited_descriptors_are_closed(workspace, victim, arm):
    """A caller's descriptor that was left open for children leads nowhere inside."""
    with open_directory(victim) as fd:
        os.set_inheritable(fd, True)
        text = f"echo pwned > /proc/self/fd/{fd}/new"
        if arm == "control":
            subprocess.run(["/bin/bash", "-c", text], pass_fds=[fd], check=False, capture_output=True)
        else:
            with Fence() as fence, fence.session(workspace=workspace) as session:
                session.run(text)
                listing = session.run("ls /proc/self/fd").stdout.split()
                assert listing == ["0", "1", "2", "3"]  # 3 is the listing's own
    assert (victim / "new").exists() == (arm == "control")


def test_only_pipes_of_ours_reach_the_command(cli, workspace):
    out = cli("run", "-c", "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2", stdin=None)
    lines = out.stdout.split()
    assert len(lines) == 3
    assert all(line.startswith("pipe:") for line in lines)


class open_directory:  # noqa: N801  # used like a function
    def __init__(self, path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def test_the_workspace_itself_is_writable(session, workspace):
    """The other side of all of the above: a fence that stops everything would pass those tests."""
    out = session.run(
        "echo a > new && echo b >> new && mkdir d && mv new d/x && ln d/x y && chmod 600 y && rm -r d && cat y"
    )
    assert out.stdout == "a\nb\n", out.stderr
