"""Using up what the machine has: processes, memory, disk, descriptors, names of files."""

from __future__ import annotations

import os
import time

import pytest

import ringfence
from ringfence import Config, Fence, Limits

FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 30"
MANY = "for i in $(seq 300); do sleep 0.2 & done; wait"
DESCRIPTORS = "kept = [open('/dev/null') for _ in range(900)]; print(len(kept))"
NAMES = """
import os
os.mkdir('/dev/shm/d')
for number in range(400_000):
    os.mkdir(f'/dev/shm/d/{number}')
print('made')
"""


@pytest.fixture(params=["bubblewrap", "landlock"])
def session(request, workspace):
    with Fence(Config(backend=request.param)) as fence, fence.session(workspace=workspace) as session:
        yield session


def limited(session, **limits):
    return session.capabilities.with_limits(Limits(**limits))


def test_a_fork_bomb_ends_with_its_command(session):
    """The mark in its environment is how its processes are found, whatever they call themselves."""
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    out = session.run(FORK_BOMB, capabilities=limited(session, tasks=150), timeout=2, env={"MARK": mark})
    assert out.timed_out
    assert marked(mark) == []
    assert session.run("echo fine").stdout == "fine\n"


def marked(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def test_processes_have_a_ceiling(session):
    assert session.run(MANY).stderr == ""
    out = session.run(MANY, capabilities=limited(session, tasks=60))
    if "limit-tasks" in {m.guarantee for m in out.enforcement.missing} and "tasks" not in out.enforcement.limits:
        return  # reported: the kernel does not count root's, and there is no group to count them
    assert "fork" in out.stderr


def test_descriptors_have_a_ceiling(session):
    out = session.run(["python3", "-c", DESCRIPTORS])
    assert out.stdout == "900\n", out.stderr
    out = session.run(["python3", "-c", DESCRIPTORS], capabilities=limited(session, open_files=256))
    assert "Too many open files" in out.stderr


def test_a_single_commands_tmp_has_a_ceiling(workspace):
    caps = ringfence.Capabilities.for_tier("workspace-write", str(workspace))
    text = "head -c 50000000 /dev/zero > /tmp/big && echo written"
    config = Config(backend="bubblewrap")
    assert ringfence.run(text, workspace=workspace, config=config, capabilities=caps).stdout == "written\n"
    small = caps.with_limits(Limits(scratch_mb=10))
    out = ringfence.run(text, workspace=workspace, config=config, capabilities=small)
    assert "No space left" in out.stderr
    assert out.stdout == ""


def test_shared_memory_has_a_ceiling_of_its_own(workspace):
    with Fence(Config(backend="bubblewrap")) as fence, fence.session(workspace=workspace) as session:
        out = session.run("head -c 1200000000 /dev/zero > /dev/shm/big")
    assert "No space left" in out.stderr


@pytest.mark.as_root  # names in memory are paid for by the group that an ordinary user mostly cannot make
def test_names_of_files_are_paid_for_by_the_memory_ceiling(workspace):
    with Fence(Config(backend="bubblewrap")) as fence, fence.session(workspace=workspace) as session:
        assert session.run(["python3", "-c", NAMES], timeout=120).stdout == "made\n"
        out = session.run(["python3", "-c", NAMES], timeout=120, capabilities=limited(session, memory_mb=100))
    assert out.stdout == ""
    assert [d.operation for d in out.denials] == ["memory"]
