"""Every attack of the arsenal, twice: with nothing to stop it, and inside, under every backend."""

from __future__ import annotations

import pytest
from arsenal import ATTACKS
from world import World, names

from ringfence import Config, Fence
from ringfence.sandbox.linux import landlock
from ringfence.testing import FakeApprover

# Also tried where the directory outside was granted for reading: everything that does not only read it.
# A read-only mount does not stop what is written to a FIFO: docs/security-model.md says so.
READABLE = [n for n in names("write", "metadata") if n not in {"names-outside-are-known", "write-a-fifo"}]


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    yield world
    world.close()


@pytest.fixture(params=["warm", "one-shot", "landlock"])
def fence(request):
    backend = "landlock" if request.param == "landlock" else "bubblewrap"
    config = Config(backend=backend, warm=request.param == "warm")
    return Fence(config, approver=FakeApprover("session"))


@pytest.mark.parametrize("name", names())
def test_control_it_succeeds_when_nothing_stops_it(world, name):
    assert world.try_outside(name)


def holds(world, name, found) -> bool:
    """Tell whether an attack failed, or is one of those that the backend says it does not stop."""
    missing = {m.guarantee for m in world.said.enforcement.missing}
    return not found or ATTACKS[name][1] in missing


@pytest.mark.parametrize("name", names())
def test_it_fails_inside(world, fence, name):
    found = world.try_inside(name, fence=fence)
    assert holds(world, name, found), found


@pytest.mark.parametrize("name", READABLE)
def test_it_fails_where_the_place_may_be_read(world, fence, name):
    found = world.try_inside(name, fence=fence, readable=True)
    assert holds(world, name, found), found


@pytest.mark.parametrize("name", names("write", "sockets"))
def test_it_fails_with_both_file_layers(world, name):
    fence = Fence(Config(backend="bubblewrap", require=("landlock",), warm=False))
    found = world.try_inside(name, fence=fence)
    assert holds(world, name, found), found


@pytest.mark.parametrize("name", names("processes", "first process", "sockets"))
def test_it_fails_where_landlock_knows_no_scopes(world, monkeypatch, name):
    """As on Linux 6.8: what the host's other processes suffer is reported, the keeper is out of reach."""
    monkeypatch.setattr(landlock, "version", lambda: 4)
    found = world.try_inside(name, fence=Fence(Config(backend="landlock")))
    assert holds(world, name, found), found


@pytest.mark.parametrize("name", [n for n in names("sockets") if "loopback" not in n])
def test_it_fails_with_the_hosts_network(world, fence, name):
    found = world.try_inside(name, fence=fence, network="all")
    assert holds(world, name, found), found


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("name", ["write-to-the-terminal", "type-into-the-terminal"])
def test_the_callers_terminal_is_out_of_reach(world, backend, name):
    assert not world.try_from_a_terminal(name, backend)
