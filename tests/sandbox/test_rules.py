"""What may be read and written where nothing can be mounted: rules that only add."""

from __future__ import annotations

import os

import pytest

from ringfence import Capabilities, Config, Fence, UnsupportedPolicy
from ringfence.sandbox.backend import PlanRequest
from ringfence.sandbox.rules import allow, carve
from ringfence.sandbox.survey import Place, Survey
from ringfence.testing import FakeApprover


@pytest.fixture
def tree(tmp_path):
    for name in ("a/one", "a/hidden/key", "b/two", "a/deep/er/hidden/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "hidden")
    return tmp_path


def test_what_is_hidden_is_left_out_by_naming_its_neighbours(tree):
    hidden = [f"{tree}/a/hidden", f"{tree}/a/deep/er/hidden"]
    assert carve(str(tree), hidden) == [f"{tree}/a/one", f"{tree}/b"]
    assert carve(f"{tree}/b", hidden) == [f"{tree}/b"]
    assert carve(f"{tree}/a/hidden", hidden) == []
    assert carve(f"{tree}/a/hidden/key", hidden) == []
    assert carve(str(tree), []) == [str(tree)]


def request(tree, **capabilities):
    survey = Survey(home=f"{tree}/home", as_root=False, hidden=(Place(f"{tree}/a/hidden", "dir", f"{tree}/a/hidden"),))
    return PlanRequest(workspace=f"{tree}/b", capabilities=Capabilities(**capabilities), survey=survey)


def paths(rules, *, writable):
    return {m.target for m in rules.mounts if m.writable is writable and m.why in {"granted", "workspace"}}


def test_a_grant_on_the_hidden_place_itself_shows_it(tree):
    assert f"{tree}/a/hidden" not in paths(allow(request(tree, read=[f"{tree}/a"])), writable=False)
    assert f"{tree}/a/hidden" in paths(allow(request(tree, read=[f"{tree}/a/hidden"])), writable=False)


def test_what_cannot_be_hidden_is_named(tree):
    rules = allow(request(tree, write=[f"{tree}/a"]))
    assert rules.exposed == (f"{tree}/a/hidden",)
    assert allow(request(tree, write=[f"{tree}/b"])).exposed == ()


def test_writing_around_our_own_files_is_refused(tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    with Fence(Config(backend="landlock"), approver=FakeApprover()) as fence:
        with fence.session(workspace=home / "project") as session:
            with pytest.raises(UnsupportedPolicy, match="hide"):
                session.run("true", capabilities=session.capabilities.with_write(home))
            with pytest.raises(UnsupportedPolicy, match="hide"):
                session.run("true", capabilities=Capabilities.for_tier("full-access", str(home / "project")))


def test_a_workspace_around_our_own_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ringfence.sandbox.survey.installation", lambda: (str(tmp_path / "project" / ".venv"),))
    (tmp_path / "project" / ".venv").mkdir(parents=True)
    with Fence(Config(backend="landlock")) as fence, fence.session(workspace=tmp_path / "project") as session:
        with pytest.raises(UnsupportedPolicy, match="own code"):
            session.run("true")
    with Fence(Config(backend="bubblewrap")) as fence, fence.session(workspace=tmp_path / "project") as session:
        assert session.run("touch fine .venv/new").stderr.startswith("touch: cannot touch '.venv/new'")


def test_what_vanishes_meanwhile_is_no_error(tmp_path, monkeypatch):
    """A neighbour of something hidden may be anybody's, and come and go."""
    shown = tmp_path / "shown"
    (shown / "secret").mkdir(parents=True)
    (shown / "stays").write_text("stays")
    (shown / "goes").write_text("goes")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with Fence(Config(backend="landlock"), approver=FakeApprover("session")) as fence:
        with fence.session(workspace=workspace) as session:
            monkeypatch.setattr(
                "ringfence.sandbox.lookout.host_sockets",
                lambda roots: (str(shown / "secret"),) if len(roots) > 1 else (),
            )
            caps = session.capabilities.with_read(shown)
            assert session.run(f"cat {shown}/stays {shown}/goes", capabilities=caps).stdout == "staysgoes"
            os.unlink(shown / "goes")
            assert session.run(f"cat {shown}/stays", capabilities=caps).stdout == "stays"
            assert session.run(f"ls {shown}/secret", capabilities=caps).exit_code != 0
