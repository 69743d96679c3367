"""What tests share: workspaces, a state of their own, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import as_user
from ringfence import Fence
from ringfence.testing import ListRecorder

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(config, items):
    """Leave out what is meant for the other kind of user; `test_as_user.py` brings those runs together."""
    other = "as_user" if os.geteuid() == 0 else "as_root"
    left_out = [item for item in items if item.get_closest_marker(other)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session):
    """Begin the other user's run now: there is more than one core, and it takes as long as this one."""
    if not session.config.option.collectonly and any(item.name == as_user.TEST for item in session.items):
        as_user.start()


def pytest_unconfigure(config):
    as_user.clean()


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """Keep tests away from the user's own configuration and state."""
    base = tmp_path_factory.mktemp("xdg")
    monkeypatch.setenv("XDG_STATE_HOME", str(base / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base / "config"))
    for name in list(os.environ):
        if name.startswith("RINGFENCE"):
            monkeypatch.delenv(name)
    return base


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def recorder():
    return ListRecorder()


@pytest.fixture
def fence(recorder):
    with Fence(recorder=recorder) as fence:
        yield fence


@pytest.fixture
def session(fence, workspace):
    with fence.session(workspace=workspace) as session:
        yield session


@pytest.fixture
def cli(workspace):
    """Run `ringfence` as a user would, from the workspace."""

    def run(*arguments: str, **options):
        options.setdefault("cwd", workspace)
        options.setdefault("stdin", subprocess.DEVNULL if "input" not in options else None)
        if options["stdin"] is None:
            del options["stdin"]
        return subprocess.run(
            [sys.executable, "-P", "-m", "ringfence", *arguments],
            capture_output=True,
            text=options.pop("text", True),
            check=False,
            timeout=60,
            **options,
        )

    return run
