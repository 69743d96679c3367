"""Using up what the machine has: processes, memory, disk, descriptors, names of files."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

import ringfence
from ringfence import Config, Fence, Limits, SandboxUnavailable
from ringfence.sandbox.linux import landlock

FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 30"
MANY = "for i in $(seq 300); do sleep 0.2 & done; wait"
CHAINS = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* Processes that live for microseconds each: by the time one is seen, it is its grandchild. */
int main(int count, char **words) {
    time_t end = time(0) + atoi(words[1]);
    if (fork()) return 0;
    setsid();
    for (int i = 0; i < 6; i++) if (fork() == 0) break;
    int beat = open("beat", O_CREAT | O_WRONLY, 0600);
    for (unsigned long turn = 0; time(0) < end; turn++) {
        if (turn % 64 == 0) pwrite(beat, &turn, sizeof turn, 0);
        if (syscall(SYS_clone, 17, 0, 0, 0, 0) > 0) _exit(0);
        setsid();
    }
    return count == 0;
}
"""
EATERS = """
import os, sys, time
for _ in range(100):
    if os.fork() == 0:
        os.setsid()
        kept = bytearray(1_500_000)
        while True:
            open("beat", "w").write(str(time.monotonic_ns()))
            time.sleep(0.01)
time.sleep(30)
"""
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


def is_beating(workspace):
    before = (workspace / "beat").read_bytes()
    time.sleep(0.2)
    return (workspace / "beat").read_bytes() != before


@pytest.fixture
def chains(workspace):
    (workspace / "chains.c").write_text(CHAINS)
    subprocess.run(["gcc", "-O2", "-o", "chains", "chains.c"], cwd=workspace, check=True, capture_output=True)


def test_control_chains_of_processes_outlive_whoever_started_them(workspace, chains):
    run = subprocess.Popen("./chains 2; sleep 30", cwd=workspace, shell=True, start_new_session=True)  # noqa: S602
    time.sleep(0.3)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert is_beating(workspace)
    time.sleep(2)


@pytest.mark.parametrize("version", [4, 7])
def test_chains_of_processes_end_with_their_command(session, workspace, chains, monkeypatch, version):
    """Also where Landlock knows no scopes, and the process group tells what belongs to a command."""
    monkeypatch.setattr(landlock, "version", lambda: version)
    out = session.run("./chains 20; sleep 30", timeout=0.5)
    assert out.timed_out
    assert not is_beating(workspace)
    assert session.run("./chains 20").exit_code == 0
    assert not is_beating(workspace)


@pytest.mark.as_root  # whoever keeps the command is in its group
def test_running_out_of_memory_takes_no_keeper(session, workspace):
    out = session.run(["python3", "-c", EATERS], capabilities=limited(session, memory_mb=96), timeout=8)
    assert [d.operation for d in out.denials] == ["memory"]
    assert not is_beating(workspace)


@pytest.mark.as_root
def test_what_a_killed_keeper_leaves_is_killed_with_its_group(workspace):
    with Fence(Config(backend="landlock")) as fence, fence.session(workspace=workspace) as session:
        text = "while :; do date +%N > beat; sleep 0.02; done"
        stream = session.stream(text)
        stream.__enter__()
        while not (workspace / "beat").exists():
            time.sleep(0.02)
        os.kill(next(pid for pid in children(os.getpid()) if "keeper" in command_line(pid)), signal.SIGKILL)
        list(stream)
        with pytest.raises(SandboxUnavailable, match="keeps the command"):
            stream.__exit__()
    assert not is_beating(workspace)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def command_line(pid):
    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
        return file.read()


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


def test_a_sessions_tmp_has_a_ceiling_where_one_is_asked_for(workspace):
    text = "head -c 50000000 /dev/zero > /tmp/big && echo written"
    with Fence(Config(backend="bubblewrap")) as fence, fence.session(workspace=workspace) as session:
        assert session.run(text).stdout == "written\n"
        small = limited(session, scratch_mb=10)
        assert "No space left" in session.run(text, capabilities=small).stderr
        session.run("rm /tmp/big; echo kept > /tmp/file", capabilities=small).check()
        assert session.run("cat /tmp/file", capabilities=small).stdout == "kept\n"


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
