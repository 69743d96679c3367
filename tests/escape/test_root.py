"""Started by root: the command does not act as the host's root, and files stay root's on the disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from ringfence import Fence
from ringfence.sandbox.linux import bubblewrap, idmap

pytestmark = pytest.mark.as_root


@pytest.fixture(params=["inside", "control"])
def arm(request, monkeypatch):
    """The control arm takes this one step away: the command then acts as root."""
    if request.param == "control":
        monkeypatch.setattr("ringfence.sandbox.lookout.can_drop_root", lambda paths: False)
    return request.param


@pytest.fixture
def secret():
    """A file that root alone may read, of which no list knows."""
    path = "/etc/ringfence-test-secret"
    with open(path, "w", encoding="utf-8") as file:
        file.write("a secret")
    os.chmod(path, 0o600)
    yield path
    os.unlink(path)


def test_root_only_files_of_the_system(workspace, arm, secret):
    with Fence() as fence, fence.session(workspace=workspace) as session:
        out = session.run(["cat", secret])
    assert (out.stdout == "a secret") == (arm == "control")


def test_device_nodes_of_the_host(workspace, arm):
    """The mode is set to what it is: in the control arm this reaches the host's own node."""
    with Fence() as fence, fence.session(workspace=workspace) as session:
        out = session.run("chmod 666 /dev/full")
    assert (out.exit_code == 0) == (arm == "control")


def test_what_the_host_sees_is_an_unprivileged_user(workspace, arm):
    with Fence() as fence, fence.session(workspace=workspace) as session:
        seconds = f"30.{os.getpid()}"
        with session.stream(f"echo ready; sleep {seconds}") as stream:
            next(iter(stream))
            found = subprocess.run(
                ["pgrep", "-f", f"^sleep {seconds}$"], capture_output=True, text=True, check=False
            ).stdout
            owners = {os.stat(f"/proc/{pid}").st_uid for pid in found.split()}
    assert owners == ({0} if arm == "control" else {idmap.UID})


def test_it_is_reported(workspace, arm):
    with Fence() as fence, fence.session(workspace=workspace) as session:
        enforcement = session.run("true").enforcement
    missing = {m.guarantee for m in enforcement.missing}
    assert ("no-root" in missing) == (arm == "control")
    assert ("unprivileged-user" in enforcement.layers) == (arm == "inside")


def test_files_stay_roots_on_the_disk(session, workspace):
    (workspace / "private").write_text("root's own")
    (workspace / "private").chmod(0o600)
    out = session.run(
        "cat private; id -u; touch made ~/made /tmp/made; mkdir dir; stat -c %u made; echo x > /dev/stdout"
    )
    assert out.stdout == "root's own0\n0\nx\n", out.stderr
    assert (workspace / "made").stat().st_uid == 0
    assert (workspace / "dir").stat().st_uid == 0
    assert session.run("chown 1 made").exit_code != 0


def test_files_of_others_stay_theirs(session, workspace):
    (workspace / "theirs").write_text("readable")
    os.chown(workspace / "theirs", 1234, 1234)
    (workspace / "theirs").chmod(0o644)
    out = session.run("cat theirs; echo x >> theirs")
    assert out.stdout == "readable"
    assert out.exit_code == 1
    assert (workspace / "theirs").stat().st_uid == 1234


def test_grants_are_handed_over_too(workspace, tmp_path):
    from ringfence.testing import FakeApprover

    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "file").write_text("granted")
    (other / "file").chmod(0o600)
    with Fence(approver=FakeApprover()) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.with_read(other)
        assert session.run(["cat", str(other / "file")], capabilities=caps).stdout == "granted"


def test_a_file_system_without_idmapping_is_reported(tmp_path):
    """ramfs cannot be shown with other owners; then root's own files are masked by name, and it is said."""
    place = tmp_path / "ram"
    place.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", place], check=True)
    try:
        with Fence() as fence, fence.session(workspace=place) as session:
            out = session.run("cat /etc/shadow; touch file")
        assert "no-root" in {m.guarantee for m in out.enforcement.missing}
        assert out.stdout == ""
        assert (place / "file").exists()
        assert not bubblewrap.can_drop_root((str(place),))
    finally:
        subprocess.run(["umount", place], check=True)


def test_requiring_it_refuses_where_it_cannot_be(tmp_path):
    from ringfence import Config, UnsupportedPolicy

    place = tmp_path / "ram"
    place.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", place], check=True)
    try:
        with Fence(Config(require=("no-root",))) as fence, fence.session(workspace=place) as session:
            with pytest.raises(UnsupportedPolicy, match="no-root"):
                session.run("true")
    finally:
        subprocess.run(["umount", place], check=True)


def test_the_host_process_stays_as_it_was(session):
    before = (os.getresuid(), os.getresgid(), os.getgroups(), mounts())
    for _ in range(5):
        session.run("true").check()
    assert (os.getresuid(), os.getresgid(), os.getgroups(), mounts()) == before
    with open("/proc/self/status", encoding="ascii") as file:
        assert "\nUid:\t0\t0\t0\t0\n" in file.read()


def test_nothing_is_left_staged(session):
    for _ in range(5):
        session.run("true").check()
    tasks = [t for t in os.listdir("/proc/self/task") if "ringfence" in read(f"/proc/self/task/{t}/mountinfo")]
    assert tasks
    for task in tasks:
        assert re.findall(r" /mnt/[0-9]+/", read(f"/proc/self/task/{task}/mountinfo")) == []


def test_a_toolchain_that_only_root_can_reach_runs(session):
    """Here `python3` may be a shim below root's home, which nobody else may enter."""
    assert session.run(["python3", "-c", "print(6 * 7)"]).stdout == "42\n"


def mounts():
    return read("/proc/self/mountinfo")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_the_kernel_is_not_configured_from_inside(workspace, arm):
    with Fence() as fence, fence.session(workspace=workspace) as session:
        out = session.run("cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern")
    assert out.exit_code != 0


def test_a_grant_around_roots_own_files_still_masks_them(workspace):
    """A granted place is handed over with root's files readable; those that are known stay masked."""
    from ringfence.testing import FakeApprover

    with Fence(approver=FakeApprover("session")) as fence, fence.session(workspace=workspace) as session:
        for caps in (session.capabilities.with_read("/"), session.capabilities.with_write("/etc")):
            out = session.run(
                "cat /etc/shadow; test -w /etc/shadow && echo writable; cat /etc/hostname", capabilities=caps
            )
            assert "unprivileged-user" in out.enforcement.layers
            assert "root:" not in out.stdout
            assert "writable" not in out.stdout


FIRST_USES = """
import os, sys, threading
import ringfence

def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""

with ringfence.Fence() as fence, fence.session(workspace=sys.argv[1]) as session:
    barrier = threading.Barrier(12)

    def run():
        barrier.wait()
        session.run("true").check()

    threads = [threading.Thread(target=run) for _ in range(12)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    users = [fd for fd in os.listdir("/proc/self/fd") if link(f"/proc/self/fd/{fd}").startswith("user:")]
    spaces = {link(f"/proc/self/task/{task}/ns/mnt") for task in os.listdir("/proc/self/task")}
    print(len(users), len(spaces))
"""


def test_first_uses_at_once_share_one_thread(workspace):
    command = [sys.executable, "-c", FIRST_USES, str(workspace)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.stdout == "1 2\n", out.stderr


def test_what_the_host_unmounts_is_not_held(session, tmp_path):
    session.run("true").check()
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    subprocess.run(["umount", place], check=True)
    for task in os.listdir("/proc/self/task"):
        assert str(place) not in read(f"/proc/self/task/{task}/mountinfo")


def test_mounts_in_the_workspace_are_handed_over(workspace):
    inner = workspace / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", inner], check=True)
    try:
        with Fence() as fence, fence.session(workspace=workspace) as session:
            session.run("touch inner/made").check()
        assert (inner / "made").stat().st_uid == 0
    finally:
        subprocess.run(["umount", inner], check=True)
