"""The real bubblewrap on the real kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from ringfence import Command, Config, Fence, SandboxUnavailable, SessionError
from ringfence.sandbox.linux import started
from ringfence.sandbox.linux.bubblewrap import Bubblewrap, arguments
from ringfence.sandbox.linux.openat import make_beneath, open_beneath, open_exact
from ringfence.sandbox.plan import Mount


@pytest.fixture
def fence(recorder):
    """Starts a sandbox for each command: what a test changes about that holds for its next one."""
    with Fence(Config(warm=False), recorder=recorder) as fence:
        yield fence


def test_the_arguments_follow_from_the_plan(fence, session):
    plan = fence.check(Command.of("true", session=session.id)).plan
    args = arguments(plan, {m.target: 100 + i for i, m in enumerate(plan.mounts)}, cwd="/x", env={"A": "b c"})
    text = " ".join(args)
    for words in (
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--disable-userns",
        "--cap-drop ALL",
        "--new-session",
        "--die-with-parent",
        "--setenv A b c",
        "--remount-ro /",
        "--chdir /x",
    ):
        assert words in text
    assert f"--bind-fd {100 + [m.target for m in plan.mounts].index(session.workspace)} {session.workspace}" in text


def test_a_command_starts_only_when_its_mounts_equal_the_plan(fence, session, workspace, monkeypatch):
    """Take something away between plan and start: the command must never have run."""
    real = started.bubblewrap.arguments

    def without_hiding(plan, sources, **named):
        hidden = plan.replace(mounts=tuple(m for m in plan.mounts if m.target != "/etc/ssh"))
        return real(hidden, sources, **named)

    monkeypatch.setattr(started.bubblewrap, "arguments", without_hiding)
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match="/etc/ssh is not mounted") as caught:
        session.run("touch ran")
    assert caught.value.reason == "mounts-differ"
    assert time.monotonic() - began < 5
    assert not (workspace / "ran").exists()


def test_a_writable_mount_that_should_not_be_is_noticed(session, workspace, monkeypatch):
    real = started.bubblewrap.arguments

    def writable(plan, sources, **named):
        return real(
            plan.replace(mounts=tuple(m.replace(writable=True) if m.target == "/usr" else m for m in plan.mounts)),
            sources,
            **named,
        )

    monkeypatch.setattr(started.bubblewrap, "arguments", writable)
    with pytest.raises(SandboxUnavailable, match="/usr is writable"):
        session.run("touch ran")
    assert not (workspace / "ran").exists()


def test_a_bubblewrap_that_fails_is_told_from_a_command_that_fails(session, monkeypatch):
    real = started.bubblewrap.arguments
    monkeypatch.setattr(started.bubblewrap, "arguments", lambda *a, **k: [*real(*a, **k), "--nonsense"])
    with pytest.raises(SandboxUnavailable, match="too old") as caught:
        session.run("true")
    assert caught.value.reason == "too-old"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(SandboxUnavailable):
            session.run("true")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_bubblewrap_that_hangs_is_given_up(workspace, monkeypatch, tmp_path):
    slow = tmp_path / "bwrap"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("ringfence.sandbox.linux.bubblewrap._TRUSTED", (str(slow),))
    monkeypatch.setattr(started, "_SETUP_SECONDS", 0.3)
    monkeypatch.setattr("ringfence.sandbox.linux.bubblewrap._PROBE_SECONDS", 0.3)
    assert Bubblewrap().probe().reason == "failed"
    with Fence(Config(backend="bubblewrap")) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(SandboxUnavailable):
            session.run("true")


def test_the_fenced_side_has_no_privileges(session):
    out = session.run("grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs)' /proc/self/status")
    assert [line.split()[1] for line in out.stdout.splitlines()] == ["0" * 16] * 3 + ["1"]
    assert session.run("unshare -U true").exit_code != 0
    assert session.run("cat /proc/sys/kernel/hostname").stdout == "ringfence\n"


def test_a_workspace_that_vanishes_is_an_error(fence, workspace):
    with fence.session(workspace=workspace) as session:
        session.run("true").check()
        shutil.rmtree(workspace)
        with pytest.raises((SandboxUnavailable, SessionError, Exception), match=r"opened|outside|exist"):
            session.run("true")


@pytest.mark.as_user  # root reads everything
def test_an_unreadable_workspace(fence, workspace):
    workspace.chmod(0)
    try:
        with pytest.raises(SessionError, match="cannot be read"):
            fence.session(workspace=workspace)
    finally:
        workspace.chmod(0o700)


@pytest.mark.as_root  # to mount a small file system
def test_a_full_disk_is_a_message(tmp_path, workspace):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=6", "tmpfs", small], check=True)
    try:
        code = (
            "import ringfence\n"
            f"try: ringfence.run('true', workspace={str(workspace)!r})\n"
            "except ringfence.RingfenceError as e: print(type(e).__name__, e)"
        )
        for number in range(6):
            try:
                (small / f"f{number}").write_text("")
            except OSError:
                break
        env = {**os.environ, "XDG_STATE_HOME": str(small)}
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert "No space left" in out.stdout, out.stderr
        assert "free some space" in out.stdout
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_gibibyte_of_output_does_not_grow_us(workspace):
    code = (
        "import resource, ringfence\n"
        f"ringfence.run('true', workspace={str(workspace)!r})\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"o = ringfence.run('head -c 1073741824 /dev/zero', workspace={str(workspace)!r})\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(o.out.dropped, after - before)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    dropped, grown_kib = map(int, out.stdout.split())
    assert dropped >= 2**30 - 2**19
    assert grown_kib < 6 * 1024


def test_concurrent_commands_of_one_session_do_not_meet(session):
    outputs = []

    def work(number):
        out = session.run(f"sleep 0.1; echo {number}; ls /proc | grep -c '^[0-9]'").stdout.split()
        outputs.append((int(out[0]), int(out[1]) <= 4))  # bubblewrap's init, bash, ls and grep

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outputs) == [(n, True) for n in range(6)]


def test_opening_never_follows_links(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.close(open_exact(str(tmp_path / "real")))
    for path in ("link", "link/x"):
        with pytest.raises(OSError, match=r"symbolic links|No such"):
            open_exact(str(tmp_path / path))
    root = open_exact(str(tmp_path))
    try:
        for path in ("link", "../" + tmp_path.name, "/etc", "link/x"):
            with pytest.raises(OSError, match=r"symbolic|cross-device|No such"):
                open_beneath(root, path)
        os.close(make_beneath(root, "a/b/c", is_dir=True))
        os.close(make_beneath(root, "a/b/file", is_dir=False))
        assert (tmp_path / "a" / "b" / "c").is_dir()
        assert (tmp_path / "a" / "b" / "file").is_file()
        with pytest.raises(OSError, match="symbolic"):
            make_beneath(root, "link/new", is_dir=True)
        assert list((tmp_path / "real").iterdir()) == []
    finally:
        os.close(root)


def test_a_mount_prints():
    assert str(Mount("/a", "bind", "/b", writable=True, why="w")) == "write  /a  from /b  (w)"
    assert str(Mount("/a", "mask")) == "hidden /a"


def test_sessions_do_not_leak_into_each_other_through_tmp(workspace):
    with Fence() as fence, fence.session("a", workspace) as a, fence.session("b", workspace) as b:
        a.run("echo x > /tmp/f").check()
        assert b.run("cat /tmp/f").exit_code == 1
        assert a.run("cat /tmp/f").ok


def test_killed_while_it_starts_the_command_never_runs_unwatched(workspace):
    """bubblewrap takes the end of our pipe for a go, unless it holds the other end as well."""
    code = (
        f"import ringfence; ringfence.run('while :; do sleep 0.01; done # {workspace}', workspace={str(workspace)!r})"
    )
    for step in range(24):
        process = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(0.04 + step * 0.005)
        process.kill()
        process.wait()
    time.sleep(0.5)
    found = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if str(workspace).encode() in command_line(pid)]
    shells = [pid for pid in found if command_line(pid).startswith(b"/bin/bash")]
    for pid in found:  # what is still held has executed nothing
        os.kill(int(pid), 9)
    assert shells == []


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
