"""What is nobody's business inside, as it looks from there; how to get at it: `arsenal.py`."""

from __future__ import annotations

import os
import subprocess

import pytest

from ringfence import Fence


def test_another_sessions_workspace_is_invisible(fence):
    with fence.session("a") as a, fence.session("b") as b:
        a.run("echo secret > file").check()
        path = os.path.join(a.workspace, "file")
        with open(path, encoding="utf-8") as file:
            assert file.read() == "secret\n"
        shelf = os.path.dirname(a.workspace)
        assert os.path.basename(a.workspace) in os.listdir(shelf)
        assert b.run(["ls", shelf]).stdout == os.path.basename(b.workspace) + "\n"
        for text in (f"cat {path}", f"cat /proc/1/root{path}", f"ls {fence.places.state}/homes", f"echo x > {path}"):
            out = b.run(text)
            assert out.exit_code != 0
            assert "secret" not in out.stdout
        assert a.run("cat file").stdout == "secret\n"


def test_our_own_state_and_configuration_are_invisible(session, fence):
    os.makedirs(fence.places.config, exist_ok=True)
    for path in (fence.places.config, fence.places.state):
        assert os.path.isdir(path)
        assert session.run(["ls", path]).exit_code != 0


def test_other_processes_are_invisible(session):
    sleeper = subprocess.Popen(["sleep", "30"])
    try:
        assert subprocess.run(["kill", "-0", str(sleeper.pid)], check=False).returncode == 0
        assert session.run(f"kill -0 {sleeper.pid}").exit_code != 0
        assert session.run(f"cat /proc/{sleeper.pid}/cmdline").exit_code != 0
    finally:
        sleeper.kill()
        sleeper.wait()


def test_secrets_in_the_environment_do_not_pass(workspace, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "a secret")
    assert "a secret" in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    with Fence() as fence, fence.session(workspace=workspace) as session:
        out = session.run("env; cat /proc/*/environ | tr '\\0' '\\n'")
    assert "a secret" not in out.stdout


def test_the_command_is_not_on_our_command_line(session):
    """Environment values travel by descriptor: a process list shows none of them."""
    with session.stream("sleep 5", env={"PASSWORD": "hunter2"}) as stream:
        listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        stream.cancel()
        list(stream)
    assert "bwrap" in listing
    assert "hunter2" not in listing


@pytest.mark.parametrize(
    "path", ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"]
)
def test_kernel_settings_are_read_only(session, path):
    out = session.run(f"echo 1 > {path}")
    assert out.exit_code != 0


def test_no_network_by_default(session):
    out = session.run("cat /proc/net/dev")
    names = [line.split(":")[0].strip() for line in out.stdout.splitlines()[2:]]
    assert names == ["lo"]


def test_secrets_in_the_workspace_are_hidden_unless_granted(workspace):
    from ringfence.testing import FakeApprover

    (workspace / ".env").write_text("PASSWORD=a secret")
    (workspace / "config").mkdir()
    (workspace / "config" / "key").write_text("a secret")
    (workspace / "ringfence.toml").write_text('hidden = ["config/key"]')
    with Fence(approver=FakeApprover("session")) as fence, fence.session(workspace=workspace) as session:
        for text in ("cat .env", "cat config/key", "cp .env copy; cat copy", "mv .env e; cat e", "ln .env l; cat l"):
            out = session.run(text)
            assert "a secret" not in out.stdout
            assert out.exit_code != 0
        assert "Permission denied" in session.run("cat .env").stderr
        assert session.run("mv config c2").exit_code != 0
        caps = session.capabilities.with_read(workspace / ".env")
        assert session.run("cat .env", capabilities=caps).stdout == "PASSWORD=a secret"
        assert session.run("cat .env").exit_code != 0
    assert (workspace / ".env").read_text() == "PASSWORD=a secret"
    assert not (workspace / "copy").exists() or (workspace / "copy").read_text() == ""
