"""The second file layer, and the scope that keeps the host's abstract sockets out of reach."""

from __future__ import annotations

import os
import socket
import struct
import threading

import pytest

from ringfence import Config, Fence, SandboxUnavailable, UnsupportedPolicy
from ringfence.model.paths import is_below
from ringfence.sandbox.linux import landlock, stage
from ringfence.testing import FakeApprover

REQUIRED = Config(require=("landlock",), warm=False)


@pytest.fixture
def layered(workspace):
    with Fence(REQUIRED, approver=FakeApprover("session")) as fence, fence.session(workspace=workspace) as session:
        yield session


def test_this_kernel_has_it():
    assert landlock.version() >= 1


def test_it_is_on_where_required_and_reported(layered, session):
    out = layered.run("true").check()
    assert f"landlock-{landlock.version()}" in out.enforcement.layers
    assert "landlock" not in {m.guarantee for m in out.enforcement.missing}
    assert f"landlock-{landlock.version()}" in session.run("true").enforcement.layers  # an enclosure that stays warm
    with Fence(Config(warm=False)) as fence, fence.session(workspace=session.workspace) as other:
        assert "landlock" in {m.guarantee for m in other.run("true").enforcement.missing}


@pytest.mark.parametrize(
    "text",
    [
        "echo x > f && mkdir d && mv f d/ && ln d/f g && rm -r d && cat g",
        "mktemp; touch ~/x /dev/shm/x; echo x > /dev/null; echo y > /dev/stdout",
        "yes | head -2; kill -TERM $$",
        "python3 -c 'print(6 * 7)'; git init -q . && git status --short | head -1",
        "env | grep -c LC_CTYPE; ulimit -c; exec 3< /etc/passwd; head -c 4 <&3",
        "sleep 5 & kill $!; wait $!; echo $?",
    ],
)
def test_everyday_work_is_the_same_under_it(layered, session, workspace, text):
    one = session.run(text)
    session.run("rm -rf * .git")
    two = layered.run(text)
    session.run("rm -rf * .git")
    strip = str.splitlines if "mktemp" not in text else lambda out: out.splitlines()[1:]
    assert (one.exit_code, strip(one.stdout), one.signal) == (two.exit_code, strip(two.stdout), two.signal), two.stderr


def test_it_holds_where_a_mount_would_let_through(layered, workspace, monkeypatch):
    """Take the workspace out of Landlock's rules: the mount is writable, the layer below is not."""
    assert layered.run("touch a").ok
    real = landlock.writable
    monkeypatch.setattr(landlock, "writable", lambda plan: [p for p in real(plan) if not is_below(plan.workspace, p)])
    out = layered.run("touch b; echo x > a")
    assert "Permission denied" in out.stderr
    assert not (workspace / "b").exists()


def test_a_stage_that_fails_is_no_command_that_ran(layered, workspace, monkeypatch):
    real = landlock.writable
    monkeypatch.setattr(landlock, "writable", lambda plan: [*real(plan), "/nonexistent"])
    with pytest.raises(SandboxUnavailable) as caught:
        layered.run("touch ran")
    assert caught.value.reason == "landlock"
    assert not (workspace / "ran").exists()


def test_without_it_requiring_it_refuses(workspace, monkeypatch):
    monkeypatch.setattr(landlock, "version", lambda: 0)
    with Fence(REQUIRED) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(UnsupportedPolicy, match="landlock"):
            session.run("true")


@pytest.mark.parametrize("older", range(1, landlock.version() + 1))
def test_older_versions_work(workspace, monkeypatch, older):
    monkeypatch.setattr(landlock, "version", lambda: older)
    with Fence(REQUIRED) as fence, fence.session(workspace=workspace) as session:
        out = session.run("echo x > f; truncate -s 0 f; mkdir d; mv f d/; touch /usr/x; ls d")
    assert out.stdout == "f\n"
    assert f"landlock-{older}" in out.enforcement.layers


def test_the_rights_of_each_version():
    assert [stage.handled(v).bit_length() for v in (1, 2, 3, 4, 5, 6)] == [13, 14, 15, 15, 16, 16]
    assert [len(stage.attributes(v)) for v in (1, 3, 4, 5, 6, 7)] == [8, 8, 16, 16, 24, 24]
    assert struct.unpack("=QQQ", stage.attributes(6))[2] == 3


@pytest.mark.parametrize("arm", ["inside", "control"])
def test_abstract_sockets_of_the_host_under_its_network(workspace, monkeypatch, arm):
    """With the host's network namespace, abstract sockets are shared, unless they are scoped."""
    if landlock.version() < 6:
        pytest.fail("this kernel cannot scope abstract sockets")
    if arm == "control":
        monkeypatch.setattr(landlock, "version", lambda: 0)
    name = f"\0ringfence-test-{os.getpid()}"
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen(1)
        server.settimeout(3)

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                return
            with connection:
                heard.append(connection.recv(16))

        thread = threading.Thread(target=serve)
        thread.start()
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({name!r}); s.send(b'hello')"
        with Fence(approver=FakeApprover()) as fence, fence.session(workspace=workspace) as session:
            session.run(["python3", "-c", code], capabilities=session.capabilities.with_network("all"))
        thread.join()
    assert heard == ([b"hello"] if arm == "control" else [])


def test_only_the_interpreters_own_files_are_shown(monkeypatch, tmp_path):
    """An interpreter may lie in the home itself: its prefix is then the home."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    python = home / "bin" / "python3"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setattr(landlock.sys, "executable", str(python))
    assert landlock.interpreter() == str(python)
    assert all(not is_below(str(home), path) for path in landlock.shown())
    for odd in ("", None, "relative/python3"):
        monkeypatch.setattr(landlock.sys, "executable", odd)
        assert landlock.interpreter() in {"", os.path.realpath("/usr/bin/python3")}
        assert landlock.shown() == ()


def test_the_home_stays_private_under_it(workspace, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "diary").write_text("a secret")
    with Fence(REQUIRED, env={**os.environ, "HOME": str(home)}) as fence, fence.session(workspace=workspace) as session:
        out = session.run("cat ~/diary; touch ~/made && echo made")
    assert out.stdout == "made\n"
