"""Steering the next start: links and files that an earlier command left where Ringfence will look."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from ringfence import Config, ConfigError, Denied, Fence, SandboxUnavailable, SessionError
from ringfence.session.workspace import check as check_workspace
from ringfence.testing import FakeApprover


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a toolchain on PATH two levels deep, so that a mount point lies in the private home."""
    home = tmp_path / "home"
    (home / ".local" / "bin").mkdir(parents=True)
    (home / "secret").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.local/bin:{os.environ['PATH']}")
    return home


@pytest.fixture
def below_tmp():
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    yield place
    shutil.rmtree(place)


def private_home(session, fence):
    return fence.sessions.get(session.id).private_home


def test_a_link_planted_in_the_private_home(home, workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    with Fence() as fence, fence.session("a", workspace) as session:
        session.run("true").check()
        # Inside, the directory is held in place, so it cannot even be moved away.
        assert session.run(f"mv ~/.local ~/x && ln -s {outside} ~/.local").exit_code == 1
        # Even if something managed to plant it, the next start refuses it.
        planted = os.path.join(private_home(session, fence), ".local")
        shutil.rmtree(planted)
        os.symlink(outside, planted)
        with pytest.raises(SandboxUnavailable, match="link") as caught:
            session.run("true")
        assert caught.value.reason == "tampered"
    assert list(outside.iterdir()) == []


def test_a_link_planted_in_the_private_tmp(below_tmp):
    """The workspace lies below /tmp, so its parents are directories of the private /tmp."""
    tmp_path = below_tmp
    place = tmp_path / "deep" / "workspace"
    place.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    with Fence() as fence, fence.session("a", place) as session:
        assert session.run(f"mv {tmp_path} /tmp/moved").exit_code == 1
        scratch = fence.sessions.get("a").scratch
        planted = os.path.join(scratch, os.path.relpath(tmp_path, "/tmp"), "deep")
        assert os.path.isdir(planted)
        shutil.rmtree(planted)
        os.symlink(outside, planted)
        with pytest.raises(SandboxUnavailable) as caught:
            session.run("true")
        assert caught.value.reason == "tampered"
    assert list(outside.iterdir()) == []


def test_a_link_planted_in_the_workspace(tmp_path, workspace):
    """A directory that Ringfence mounts inside the workspace is swapped for a link to the outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "data").mkdir()
    with Fence() as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.without_write().with_write(workspace / "data")
        session.run("touch data/x", capabilities=caps).check()
        session.run(f"rm -r data && ln -s {outside} data").check()
        with pytest.raises(SessionError, match="a command may have put it"):
            session.run("touch data/y", capabilities=caps)
    assert list(outside.iterdir()) == []


def test_the_workspace_itself_swapped_for_a_link(tmp_path):
    """Another session that may write the parent replaces the workspace between two commands."""
    parent = tmp_path / "parent"
    place = parent / "workspace"
    place.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    with Fence() as fence, fence.session("inner", place) as inner, fence.session("outer", parent) as outer:
        inner.run("touch a").check()
        outer.run(f"mv workspace gone && ln -s {outside} workspace").check()
        with pytest.raises((SandboxUnavailable, Denied)):
            inner.run("touch b")
    assert list(outside.iterdir()) == []


def test_a_swap_while_it_starts_is_noticed_or_harmless(tmp_path):
    parent = tmp_path / "parent"
    place = parent / "workspace"
    place.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(place, parent / "gone")
            os.symlink(outside, place)
            time.sleep(0.0005)
            os.unlink(place)
            os.rename(parent / "gone", place)
            time.sleep(0.0005)

    thread = threading.Thread(target=swap)
    ran = 0
    with Fence() as fence:
        session = fence.session("s", place)
        thread.start()
        try:
            for _ in range(40):
                try:
                    ran += session.run("echo x > mark").exit_code == 0
                except (SandboxUnavailable, Denied, SessionError):
                    continue
        finally:
            stop.set()
            thread.join()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("arm", ["control", "inside"])
def test_a_bwrap_planted_in_the_workspace(cli, workspace, arm):
    fake = workspace / "bwrap"
    fake.write_text("#!/bin/sh\ntouch pwned\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{workspace}:{os.environ['PATH']}"}
    if arm == "control":
        subprocess.run(["bwrap", "true"], env=env, cwd=workspace, check=False)
    else:
        out = cli("run", "--", "true", env=env)
        assert out.returncode == 0, out.stderr
    assert (workspace / "pwned").exists() == (arm == "control")


def test_a_workspace_cannot_widen_itself(cli, workspace):
    (workspace / "ringfence.toml").write_text('backend = "host"\n')
    out = cli("run", "--", "true")
    assert out.returncode == 125
    assert "only narrows" in out.stderr


def test_variables_cannot_widen(cli, workspace):
    out = cli("run", "--json", "--", "true", env={**os.environ, "RINGFENCE_TIER": "full-access"})
    assert '"confined": true' in out.stdout
    assert cli("run", "--", "true", env={**os.environ, "RINGFENCE_BACKEND": "host"}).returncode == 125


def test_configuration_inside_the_workspace_is_refused(cli, workspace):
    """A `.envrc` can point XDG_CONFIG_HOME into the workspace; what lies there was written by commands."""
    (workspace / "ringfence").mkdir()
    (workspace / "ringfence" / "config.toml").write_text('[capabilities]\nnetwork = "all"\n')
    out = cli("run", "--", "true", env={**os.environ, "XDG_CONFIG_HOME": str(workspace)})
    assert out.returncode == 125
    assert "Ringfence's own" in out.stderr


def test_ringfence_installed_in_the_workspace_stays_as_it_is(tmp_path):
    """The installation is read-only inside, also where it lies in the workspace's own environment."""
    place = tmp_path / "project"
    shutil.copytree(os.path.dirname(sys.modules["ringfence"].__file__), place / "env" / "lib" / "ringfence")
    code = (
        "import ringfence; assert 'project/env' in ringfence.__file__;"
        "o = ringfence.run('echo evil >> env/lib/ringfence/__init__.py; echo evil > env/lib/sitecustomize.py;"
        " mv env env2; mv env/lib env/lib2; echo fine > file', workspace='.'); print(o.stderr)"
    )
    before = (place / "env" / "lib" / "ringfence" / "__init__.py").read_bytes()
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place / "env" / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    assert (place / "file").read_text() == "fine\n"
    assert (place / "env" / "lib" / "ringfence" / "__init__.py").read_bytes() == before
    assert not (place / "env" / "lib" / "sitecustomize.py").exists()


def test_a_broken_workspace_file_stops_everything(fence, workspace):
    (workspace / "ringfence.toml").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"ringfence\.toml"):
        fence.session(workspace=workspace)


def test_links_on_path_lead_nowhere_private(home, tmp_path, monkeypatch):
    """A directory on PATH lies in a workspace, where an earlier command made it a link."""
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("a secret")
    other = home / "other"
    other.mkdir()
    (other / "file").write_text("a secret")
    project, second = home / "project", home / "second"
    (project / "bin").mkdir(parents=True)
    second.mkdir()
    monkeypatch.setenv("PATH", f"{project}/bin:{os.environ['PATH']}")
    for target in (home / ".ssh", other, home, tmp_path / "xdg"):
        with Fence() as fence, fence.session(workspace=project) as session:
            session.run(f"rm -rf bin; ln -s {target} bin").check()
        with Fence() as fence, fence.session(workspace=second) as session:
            assert "a secret" not in session.run(f"cat {project}/bin/* {project}/bin/.ssh/*").stdout


def test_a_planted_environment_shows_nothing_more(home, monkeypatch):
    other = home / "other" / "src"
    other.mkdir(parents=True)
    (other / "main.c").write_text("a secret")
    project = home / "project"
    (project / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{project}/bin:{os.environ['PATH']}")
    with Fence() as fence, fence.session(workspace=project) as session:
        session.run(f"touch pyvenv.cfg; ln -sfn {other}/main.c bin/python3").check()
    with Fence() as fence, fence.session(workspace=project) as session:
        assert "a secret" not in session.run(f"cat {other}/main.c; ls -R ~").stdout


def test_a_workspace_stays_one_without_its_git_directory(cli, workspace):
    """Removing `.git` must not hand over the repository around it."""
    inner = workspace / "inner"
    inner.mkdir()
    (workspace / ".git").mkdir()
    (inner / ".git").mkdir()
    cli("run", "-c", "mv .git gone", cwd=inner)
    cli("run", "-c", "echo escaped > ../escaped", cwd=inner)
    assert not (inner / ".git").exists()
    assert not (workspace / "escaped").exists()


def test_a_link_in_a_workspace_does_not_choose_another(cli, workspace, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    cli("run", "-c", f"ln -s {other} sub")
    out = cli("run", "--workspace", "sub", "-c", "touch planted")
    assert out.returncode == 125
    assert str(other) in out.stderr
    assert list(other.iterdir()) == []


def test_removing_a_session_never_follows_its_links(workspace, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    (victim / "file").chmod(0o400)
    with Fence() as fence, fence.session(workspace=workspace) as session:
        session.run(
            f"ln -s {victim} /tmp/a; mkdir /tmp/d; ln -s {victim}/file /tmp/d/f; chmod 0 /tmp/d; chmod 0 /tmp"
        ).check()
    assert (victim / "file").read_text() == "precious"
    assert (victim / "file").stat().st_mode & 0o777 == 0o400


def test_a_locked_home_does_not_lock_the_next_command_out(session):
    session.run("chmod 0 ~ /tmp")
    assert session.run("touch ~/x /tmp/x").ok


def test_mount_points_are_held_by_commands_that_do_not_need_them(home, workspace):
    """Two PATHs, one home: the one that does not need ~/.local still cannot swap it for a link."""
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    with Fence() as fence, fence.session("a", workspace) as session:
        session.run("true").check()
    with Fence(env=env) as fence, fence.session("b", workspace) as session:
        out = session.run("mv ~/.local ~/gone")
        assert out.exit_code == 1
        assert "busy" in out.stderr


def test_new_mount_points_wait_for_commands_that_do_not_hold_them(home, workspace):
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    with Fence(Config(warm=False), env=env) as plain, Fence(Config(warm=False)) as fence:
        first = plain.session("a", workspace)
        second = fence.session("b", workspace)
        with first.stream("echo ready; sleep 0.7; echo done") as stream:
            chunks = iter(stream)
            next(chunks)
            started = time.monotonic()
            answer: list[bool] = []
            thread = threading.Thread(target=lambda: answer.append(second.run("test -d ~/.local/bin").ok))
            thread.start()
            for _ in chunks:
                pass
            assert answer == []
        thread.join()
        assert answer == [True]
        assert time.monotonic() - started > 0.5


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 20000 + " = 1",
        "x = " + "[" * 5000,
        "timeout = " + "9" * 5000,
        "tier = [1]",
        "tier = {}",
        '[capabilities]\nread = ["/a\\u0000b"]',
        "[capabilities]\nnetwork = [" + '"a.example.com",' * 1000 + "]",
        "# \x1b]0;title\x07",
        "\x1b[31m = 1",
        "x" * 100_000,
        "timeout = 0x" + "f" * 5000,
        ".".join((["a"] * 90 + ['"\x85"']) * 100) + " = 1",
    ],
)
def test_a_hostile_workspace_file_is_refused_quickly_and_quietly(cli, workspace, text):
    (workspace / "ringfence.toml").write_text(text)
    out = cli("run", "-c", "true")
    assert out.returncode == 125
    assert "ringfence.toml" in out.stderr
    assert "Traceback" not in out.stderr
    assert "\x1b" not in out.stderr


def test_a_link_at_a_configured_path_is_not_followed(home, own_state, workspace):
    """The user's configuration grants a place inside a workspace; a command makes it a link to another."""
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("a secret")
    project = home / "project"
    (project / "docs").mkdir(parents=True)
    (own_state / "config" / "ringfence").mkdir(parents=True)
    (own_state / "config" / "ringfence" / "config.toml").write_text('[capabilities]\nread = ["~/project/docs"]\n')
    with Fence() as fence, fence.session(workspace=project) as session:
        session.run("rm -r docs; ln -s ~/.ssh docs").check()
    with Fence() as fence:
        with pytest.raises(SessionError, match="not granted"):
            fence.session(workspace=workspace)


def test_going_through_a_planted_link_does_not_choose_a_workspace(cli, workspace, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    cli("run", "-c", f"ln -s {other} build")
    out = cli(
        "run", "-c", "touch planted", cwd=workspace / "build", env={**os.environ, "PWD": str(workspace / "build")}
    )
    assert out.returncode == 125
    assert "a link inside a workspace" in out.stderr
    assert list(other.iterdir()) == []


def test_a_credential_store_is_no_workspace(home, fence):
    (home / ".ssh").mkdir()
    with Fence() as own, pytest.raises(SessionError, match="credentials"):
        own.session(workspace=home / ".ssh")


def test_a_tree_that_resists_removal_is_tried_again(workspace):
    with Fence() as fence:
        with fence.session() as session:
            place = session.workspace
            session.run("mkdir -p a/b c/d; for i in 1 2 3; do mkdir -p $i.removed-by-ringfence/x/y; done").check()
        assert not os.path.exists(place)
        assert [n for n in os.listdir(os.path.dirname(place)) if n.startswith("run-")] == []


def test_workspaces_with_similar_names_do_not_meet(tmp_path):
    for name in ("ws.points", "ws", "ws%points", "ws.lock"):
        (tmp_path / name).mkdir()
        with Fence() as fence, fence.session(workspace=tmp_path / name) as session:
            session.run("true").check()


FLIP = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
end = time.monotonic() + float(sys.argv[1])
print("ready", flush=True)
while time.monotonic() < end:
    libc.renameat2(-100, b"sub", -100, b"link", 2)
"""


def test_a_link_that_comes_and_goes_chooses_no_workspace(workspace, tmp_path):
    """A directory and a link swap their names for as long as sessions are opened there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "sub").mkdir()
    (workspace / "link").symlink_to(outside)
    with Fence() as fence, fence.session(workspace=workspace) as session:
        session.run("true").check()
        command = [sys.executable, "-c", FLIP, "3"]
        chosen = set()
        with subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE) as flipper:
            assert flipper.stdout.readline() == b"ready\n"
            while flipper.poll() is None:
                try:
                    chosen.add(check_workspace(workspace / "sub", fence.places))
                except SessionError as error:
                    chosen.add(type(error).__name__)
    assert chosen <= {str(workspace / "sub"), "SessionError"}
    assert len(chosen) == 2


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_our_own_files_are_never_granted(workspace, backend):
    places_of = Fence().places
    os.makedirs(places_of.config, exist_ok=True)
    config = os.path.join(places_of.config, "config.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("# ours\n")
    package = os.path.dirname(os.path.abspath(sys.modules["ringfence"].__file__))
    with Fence(Config(backend=backend), approver=FakeApprover()) as fence:
        with fence.session(workspace=workspace) as session:
            inside = os.path.join(fence.places.state, "homes")
            for path in (config, fence.places.config, inside, package, os.path.join(package, "sandbox")):
                with pytest.raises(SessionError, match="never granted"):
                    session.run("true", capabilities=session.capabilities.with_write(path))
            for path in (config, inside):
                with pytest.raises(SessionError, match="never granted"):
                    session.run("true", capabilities=session.capabilities.with_read(path))
