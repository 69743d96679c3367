from __future__ import annotations

import hashlib
import json
import os
import threading

import pytest

from ringfence import Command, Fence, SessionError, current_session
from ringfence.session import workspace as workspaces
from ringfence.session.shelf import remove_tree
from ringfence.testing import FakeBackend, fake_registry


@pytest.fixture
def fence():
    with Fence(registry=fake_registry(FakeBackend())) as fence:
        yield fence


def test_a_private_workspace_is_named_by_the_session_id(fence):
    odd = "agent/7 «ü»\n"
    expected = hashlib.sha256(json.dumps(odd).encode()).digest()[:16].hex()
    place = os.path.join(fence.places.state, "workspaces", expected)
    assert not os.path.exists(place)
    with fence.session(odd) as session:
        session.run("true")
        assert fence.sessions.get(odd).workspace == place
    assert os.path.isdir(place)
    assert os.stat(place).st_mode & 0o777 == 0o700


def test_concurrent_first_calls_share_one_session(fence):
    barrier = threading.Barrier(8)
    found = []

    def get():
        barrier.wait()
        found.append(fence.sessions.open("same", None))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(state) for state in found}) == 1


def test_without_a_session_a_command_is_an_error(fence):
    with pytest.raises(SessionError, match="no session"):
        fence.execute(Command.of("true"))


def test_the_current_session_is_used_and_an_explicit_one_wins(fence, workspace):
    assert current_session() is None
    with fence.session("outer", workspace) as session:
        assert current_session() == "outer" == session.id
        fence.execute(Command.of("true"))
        with fence.session("other"):
            fence.execute(Command.of("true", session="outer"))
        with pytest.raises(SessionError, match=r"no open session 'typo'"):
            fence.execute(Command.of("true", session="typo"))
        with fence.session("inner"):
            assert current_session() == "inner"
        assert current_session() == "outer"
    assert current_session() is None


def test_an_ephemeral_session_leaves_nothing(fence):
    with fence.session() as session:
        place = session.workspace
        session.run("true")
        assert os.path.isdir(place)
    assert not os.path.exists(place)
    assert os.listdir(os.path.join(fence.places.state, "scratch")) == []


def test_a_closed_session_runs_nothing(fence, workspace):
    session = fence.session("s", workspace)
    state = fence.sessions.get("s")
    session.close()
    assert state.closed
    with pytest.raises(SessionError, match="closed"):
        session.run("true")


def test_a_session_stays_on_its_workspace(fence, workspace, tmp_path):
    fence.session("s", workspace)
    with pytest.raises(SessionError, match="is open on"):
        fence.session("s", tmp_path)


def test_idle_scratch_is_reclaimed_after_a_week(fence, workspace):
    fence.session("old", workspace).close()
    shelf = os.path.join(fence.places.state, "scratch")
    entry, lock = sorted(os.listdir(shelf))
    os.utime(os.path.join(shelf, entry), (0, 0))  # what a command can do to its own /tmp
    fence.session("new", workspace).close()
    assert entry in os.listdir(shelf)
    os.utime(os.path.join(shelf, lock), (0, 0))
    with fence.session("old", workspace):
        fence.session("new", workspace).close()
        assert entry in os.listdir(shelf)
        os.utime(os.path.join(shelf, lock), (0, 0))
    fence.session("new", workspace).close()
    assert entry not in os.listdir(shelf)


def test_a_private_workspace_is_never_reclaimed(fence):
    """It holds somebody's work; only what has no session's name goes."""
    with fence.session("mine") as session:
        place = session.workspace
        with open(os.path.join(place, "work"), "w", encoding="utf-8") as file:
            file.write("precious")
    os.utime(place + ".lock", (0, 0))
    os.utime(place, (0, 0))
    with fence.session("other"), fence.session():
        pass
    with open(os.path.join(place, "work"), encoding="utf-8") as file:
        assert file.read() == "precious"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/tmp",
        "/home",
        "/etc",
        "/usr",
        "/proc/self",
        "/dev",
        "/var",
        "/run",
        "/lib",
        "/usr/lib",
        "/usr/local/bin",
        "/var/lib",
        "/var/log",
    ],
)
def test_system_directories_are_no_workspace(fence, path):
    with pytest.raises(SessionError, match="too much"):
        fence.session(workspace=path)


def test_a_home_is_no_workspace(fence):
    home = os.path.expanduser("~")
    for path in (home, os.path.dirname(home)):
        if path != "/":
            with pytest.raises(SessionError, match="too much"):
                fence.session(workspace=path)


def test_our_own_directories_are_no_workspace(fence, own_state):
    os.makedirs(fence.places.config)
    for path in (fence.places.config, fence.places.state, own_state, own_state / "state"):
        os.makedirs(path, exist_ok=True)
        with pytest.raises(SessionError, match="Ringfence's own"):
            fence.session(workspace=path)


def test_a_workspace_must_be_a_directory(fence, tmp_path):
    with pytest.raises(SessionError, match="does not exist"):
        fence.session(workspace=tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="not a directory"):
        fence.session(workspace=tmp_path / "file")


def test_the_project_around_is_the_git_work_tree(fence, workspace):
    (workspace / ".git").mkdir()
    inner = workspace / "a" / "b"
    inner.mkdir(parents=True)
    assert workspaces.project_around(str(inner), fence.places) == str(workspace)
    (workspace / ".git").rmdir()
    assert workspaces.project_around(str(inner), fence.places) == str(inner)


def test_cwd_is_contained_by_component_after_links(workspace, tmp_path):
    root = str(workspace)
    (workspace / "sub").mkdir()
    (tmp_path / "workspace-evil").mkdir()
    (workspace / "out").symlink_to(tmp_path)
    (workspace / "dangling").symlink_to(tmp_path / "nothing")
    (workspace / "in").symlink_to(workspace / "sub")
    assert workspaces.inside(None, root) == root
    assert workspaces.inside("sub", root) == root + "/sub"
    assert workspaces.inside("in", root) == root + "/sub"
    for outside in ("..", "out", "dangling", "missing", root + "-evil", "/", "sub/../.."):
        assert workspaces.inside(outside, root) is None


def test_state_directories_are_private(fence, workspace):
    fence.session("s", workspace)
    for directory, _, _ in os.walk(fence.places.state):
        assert os.stat(directory).st_mode & 0o077 == 0


def test_a_home_belongs_to_the_workspace_and_outlives_sessions(fence, workspace, tmp_path):
    with fence.session("a", workspace):
        first = fence.sessions.get("a").private_home
    with fence.session("b", workspace):
        assert fence.sessions.get("b").private_home == first
    other = tmp_path / "other"
    other.mkdir()
    with fence.session("c", other):
        assert fence.sessions.get("c").private_home != first


def test_paths_never_share_a_home_by_accident():
    names = [workspaces.name_of(p) for p in ("/a/b", "/a%2Fb", "/a%b", "/a%25b", "/" + "x" * 300, "/" + "x" * 301)]
    assert len(set(names)) == len(names)
    assert all("/" not in n and len(n) <= 200 for n in names)


def test_trees_that_resist_are_removed(tmp_path):
    root = tmp_path / "tree"
    (root / "closed" / "inner").mkdir(parents=True)
    (root / "closed" / "inner" / "file").write_text("")
    deep = str(root)
    here = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (root / "closed" / "inner").chmod(0)
    (root / "closed").chmod(0)
    remove_tree(str(root))
    assert not root.exists()
