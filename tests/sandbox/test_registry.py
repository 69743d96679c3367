from __future__ import annotations

import pytest

from ringfence import Command, Config, ConfigError, Denied, Fence, Registry, SandboxUnavailable
from ringfence.sandbox.registry import ENTRY_POINTS
from ringfence.testing import FakeApprover, FakeBackend, fake_registry


def test_auto_never_ends_at_host_or_disabled():
    registry = Registry()
    registry.remove("bubblewrap")
    registry.remove("landlock")
    with pytest.raises(SandboxUnavailable, match="no backend"):
        registry.choose("auto")


def test_the_strongest_available_one_is_chosen():
    registry = fake_registry(FakeBackend())
    weak, strong = FakeBackend(), FakeBackend(unavailable="broken")
    registry.register("weak", lambda: weak, priority=10)
    registry.register("strong", lambda: strong, priority=200)
    assert registry.choose().name == "fake"
    assert registry.names()[0] == "strong"
    registry.remove("fake")
    assert registry.choose() is weak


def test_an_unknown_backend_is_an_error_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"(?s)no backend 'magic'.*bubblewrap"):
        Registry().choose("magic")


def test_registering_again_replaces():
    registry = fake_registry(FakeBackend())
    first = registry.get("fake")
    second = FakeBackend()
    registry.register("fake", lambda: second)
    assert registry.get("fake") is second is not first


def test_other_packages_bring_backends(tmp_path, monkeypatch):
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nother = other_backend:Other\n")
    (tmp_path / "other_backend.py").write_text(
        "from ringfence.testing import FakeBackend\nclass Other(FakeBackend):\n    name = 'other'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert Registry().get("other").name == "other"


def test_disabled_is_an_error_on_every_call(workspace):
    with Fence(Config(enabled=False)) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(SandboxUnavailable, match="sandbox disabled") as caught:
            session.run("true")
        assert caught.value.reason == "disabled"


def test_host_is_labelled_and_asked_each_time(workspace):
    approver = FakeApprover("session")
    config = Config(backend="host")
    with Fence(config, approver=approver) as fence, fence.session(workspace=workspace) as session:
        out = session.run("echo $RINGFENCE; pwd; exit 3")
        assert out.exit_code == 3
        assert out.stdout.splitlines()[1] == str(workspace)
        assert out.enforcement.confined is False
        assert out.enforcement.backend == "host"
        assert {m.guarantee for m in out.enforcement.missing} >= {"writes", "network"}
        session.run("true")
        assert len(approver.requests) == 2
    with Fence(config) as fence, fence.session(workspace=workspace) as session, pytest.raises(Denied):
        session.run("true")


def test_host_kills_its_group_and_tells_signals(workspace):
    with Fence(Config(backend="host"), approver=FakeApprover()) as fence, fence.session(workspace=workspace) as s:
        out = s.run("sleep 100 & sleep 100", timeout=0.3)
        assert out.timed_out
        assert s.run("kill -9 $$").signal == 9
        assert s.run("cat", stdin=b"abc").stdout == "abc"


def test_a_required_guarantee_that_is_missing_refuses(workspace):
    from ringfence import UnsupportedPolicy

    with Fence(Config(require=("protected",))) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(UnsupportedPolicy, match="protected"):
            session.run("true")


def test_what_the_backend_cannot_keep_is_refused(fence, session):
    from ringfence import Network, UnsupportedPolicy

    for caps in (
        session.capabilities.with_network(Network.to_hosts(["example.com"])),
        session.capabilities.replace(publish=(3000,)),
        session.capabilities.replace(sockets=("/run/x",)),
        session.capabilities.replace(devices=("/dev/kvm",)),
    ):
        with pytest.raises(UnsupportedPolicy):
            fence.execute(Command.of("true", session=session.id, capabilities=caps))
