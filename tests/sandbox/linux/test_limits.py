"""Ceilings, by control group where one can be made, else for each process."""

from __future__ import annotations

import os

import pytest

from ringfence import Limits
from ringfence.sandbox.linux import cgroups

EATER = "python3 -c 'x = bytearray(400 * 2**20); print(len(x))'"
# Each of them is small; together they are not.
FOUR_EATERS = (
    "for i in 1 2 3 4; do python3 -c 'x = bytearray(120 * 2**20); import time; time.sleep(2)' & done; wait; echo end"
)


def limited(session, **limits):
    return session.capabilities.with_limits(Limits(**limits))


@pytest.fixture(params=["cgroup", "rlimit"])
def how(request, monkeypatch):
    if request.param == "rlimit":
        monkeypatch.setattr(cgroups, "available", lambda table, own: {})
    elif not cgroups.controllers(cgroups._read("/proc/self/mountinfo"), cgroups._read("/proc/self/cgroup")):
        # Where nobody may make a group, the other way is all there is, and is what both arms test.
        return "rlimit"
    return request.param


def test_memory(session, how):
    assert session.run(EATER).ok
    out = session.run(EATER, capabilities=limited(session, memory_mb=200))
    assert out.exit_code != 0
    assert how in out.enforcement.limits["memory"]
    if how == "cgroup":
        assert [d.operation for d in out.denials] == ["memory"]
        assert out.denials[0].evidence == "observed"
    else:
        assert "MemoryError" in out.stderr


def test_a_kill_by_memory_is_told_from_others(session, how):
    caps = limited(session, memory_mb=200)
    assert session.run("kill -9 $$", capabilities=caps).denials == ()
    assert session.run("exit 137", capabilities=caps).denials == ()


@pytest.mark.as_root  # an ordinary user has no group of his own on most machines
def test_many_processes_share_one_ceiling(session):
    assert session.run(FOUR_EATERS).stdout == "end\n"
    out = session.run(FOUR_EATERS, capabilities=limited(session, memory_mb=250))
    assert [d.operation for d in out.denials] == ["memory"]


def test_tasks(session, how):
    text = "for i in $(seq 60); do sleep 1 & done; wait; echo end"
    assert session.run(text).stdout == "end\n"
    out = session.run(text, capabilities=limited(session, tasks=20))
    assert "fork" in out.stderr


def test_files(session):
    out = session.run("head -c 3000000 /dev/zero > big; ls -l big", capabilities=limited(session, file_size_mb=1))
    assert "1048576" in out.stdout
    out = session.run(
        "exec 3< /etc/passwd 4< /etc/passwd 5< /etc/passwd; ulimit -n", capabilities=limited(session, open_files=64)
    )
    assert out.stdout == "64\n"


def test_cpu_time(session):
    out = session.run("while :; do :; done", capabilities=limited(session, cpu_seconds=1), timeout=30)
    assert not out.timed_out
    assert out.signal in {9, 24}


def test_no_group_is_left_behind(fence, workspace):
    found = cgroups.controllers(cgroups._read("/proc/self/mountinfo"), cgroups._read("/proc/self/cgroup"))
    with fence.session(workspace=workspace) as session:
        session.run("true", capabilities=limited(session, memory_mb=200, tasks=50))
        session.run("sleep 9", capabilities=limited(session, memory_mb=200, tasks=50), timeout=0.2)
    for controller in found.values():
        assert [n for n in os.listdir(controller.base) if n.startswith(f"ringfence-{os.getpid()}-")] == []


@pytest.mark.as_root
def test_what_a_killed_process_left_is_swept(session):
    found = cgroups.controllers(cgroups._read("/proc/self/mountinfo"), cgroups._read("/proc/self/cgroup"))
    if "memory" in found:
        stale = os.path.join(found["memory"].base, "ringfence-4194300-dead")
        os.mkdir(stale)
        session.run("true", capabilities=limited(session, memory_mb=200))
        assert not os.path.exists(stale)


def test_hierarchies_are_found_in_the_kernels_tables(tmp_path):
    for name in ("mem/user/one", "pids/user/one", "unified/user/one"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "unified/user/one/cgroup.subtree_control").write_text("cpu memory pids\n")
    one = (
        f"30 20 0:26 / {tmp_path}/mem rw - cgroup cgroup rw,memory\n"
        f"31 20 0:27 /user {tmp_path}/pids/user rw - cgroup cgroup rw,pids\n"
    )
    two = f"32 20 0:28 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
    own = "4:memory:/user/one\n3:pids:/user/one\n0::/user/one\n"
    found = cgroups.controllers(one, own)
    assert (found["memory"].base, found["memory"].version) == (f"{tmp_path}/mem/user/one", 1)
    assert found["pids"].base == f"{tmp_path}/pids/user/one"
    found = cgroups.controllers(two, own)
    assert found["memory"] == cgroups.Controller(f"{tmp_path}/unified/user/one", 2, "memory.max", "memory.events")
    (tmp_path / "unified/user/one/cgroup.subtree_control").write_text("\n")
    assert cgroups.controllers(two, own) == {}
    assert cgroups.controllers("", "") == {}


def test_absurd_ceilings_leave_no_group(fence, workspace):
    found = cgroups.controllers(cgroups._read("/proc/self/mountinfo"), cgroups._read("/proc/self/cgroup"))
    with fence.session(workspace=workspace) as session:
        assert session.run("echo hi", capabilities=limited(session, tasks=2**40, memory_mb=2**40)).stdout == "hi\n"
    for controller in found.values():
        assert [n for n in os.listdir(controller.base) if n.startswith(f"ringfence-{os.getpid()}-")] == []
