"""Steering the next start: links and files that an earlier command left where Ringfence will look."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from ringfence import ConfigError, Denied, Fence, SandboxUnavailable, SessionError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a toolchain on PATH two levels deep, so that a mount point lies in the private home."""
    home = tmp_path / "home"
    (home / ".local" / "bin").mkdir(parents=True)
    (home / "secret").write_text("private")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.local/bin:{os.environ['PATH']}")
    return home


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


def test_a_link_planted_in_the_private_tmp(tmp_path):
    """The workspace lies below /tmp, so its parents are directories of the private /tmp."""
    place = tmp_path / "deep" / "workspace"
    place.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    with Fence() as fence, fence.session("a", place) as session:
        first = "/" + "/".join(str(tmp_path).strip("/").split("/")[:2])
        assert session.run(f"mv {first} /tmp/moved").exit_code == 1
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
        with pytest.raises(Denied):
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
