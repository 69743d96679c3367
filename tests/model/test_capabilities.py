from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence import Capabilities, Limits, Network

names = st.sampled_from(["a", "b", "ab", "a-b", "..", ".", "a.b"])
paths = st.lists(names, max_size=4).map(lambda parts: "/" + "/".join(parts))
hosts = st.sampled_from(
    ["example.com", "a.example.com", "*.example.com", "b.a.example.com", "*.a.example.com", "x.org"]
)
networks = st.one_of(st.just(Network.none()), st.just(Network.all()), st.lists(hosts, max_size=3).map(Network.to_hosts))
ceilings = st.one_of(st.none(), st.integers(1, 4))
capabilities = st.builds(
    Capabilities,
    read=st.lists(paths, max_size=3).map(tuple),
    write=st.lists(paths, max_size=3).map(tuple),
    reveal=st.lists(paths, max_size=2).map(tuple),
    network=networks,
    publish=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    spawn=st.booleans(),
    debug=st.booleans(),
    limits=st.builds(Limits, memory_mb=ceilings, timeout=ceilings),
)


@given(capabilities)
def test_within_is_reflexive(caps):
    assert caps.is_within(caps)
    assert caps.beyond(caps) == ()


@given(capabilities, capabilities)
def test_within_is_antisymmetric(a, b):
    if a.is_within(b) and b.is_within(a):
        assert a == b
        assert hash(a) == hash(b)


@given(capabilities, capabilities, capabilities)
def test_within_is_transitive(a, b, c):
    if a.is_within(b) and b.is_within(c):
        assert a.is_within(c)


@given(capabilities, capabilities)
def test_what_is_not_within_is_named(a, b):
    assert a.is_within(b) == (a.beyond(b) == ())


@given(capabilities)
def test_strict_is_within_everything_that_is_unlimited(caps):
    unlimited = caps.with_limits(Limits())
    assert Capabilities.strict().is_within(unlimited)


@pytest.mark.parametrize(
    ("inner", "outer", "within"),
    [
        ("/ws/../etc", "/ws", False),
        ("/ws/./x", "/ws", True),
        ("/ws-evil", "/ws", False),
        ("/ws/", "/ws", True),
        ("/ws", "/ws/", True),
        ("//ws", "/ws", True),
        ("/ws/a/../../ws/b", "/ws", True),
        ("/", "/ws", False),
        ("/ws", "/", True),
    ],
)
def test_paths_are_compared_by_component(inner, outer, within):
    assert Capabilities(write=(inner,)).is_within(Capabilities(write=(outer,))) is within
    assert Capabilities(read=(inner,)).is_within(Capabilities(write=(outer,))) is within


def test_a_readable_tree_is_not_writable():
    assert not Capabilities(write=("/ws",)).is_within(Capabilities(read=("/ws",)))


@pytest.mark.parametrize("bad", ["ws", "", "./x", "/a\0b"])
def test_a_path_must_be_absolute(bad):
    with pytest.raises(ValueError, match="absolute"):
        Capabilities(read=(bad,))


def test_order_and_repetition_do_not_matter():
    assert Capabilities(read=("/b", "/a", "/a/c")) == Capabilities(read=("/a", "/b"))


def test_unlimited_is_not_within_limited():
    limited = Capabilities(limits=Limits(memory_mb=512))
    assert not Capabilities().is_within(limited)
    assert Capabilities(limits=Limits(memory_mb=511)).is_within(limited)
    assert not Capabilities(limits=Limits(memory_mb=513)).is_within(limited)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), "5", True])
def test_limits_are_numbers_above_zero(bad):
    with pytest.raises(ValueError, match="above zero"):
        Limits(memory_mb=bad)


def test_limits_saturate():
    assert Limits(timeout=float("inf")).timeout == 2**40


def test_tiers_are_ordered():
    tiers = [Capabilities.for_tier(t, "/ws") for t in ("read-only", "workspace-write", "full-access")]
    assert tiers[0].is_within(tiers[1])
    assert tiers[1].is_within(tiers[2])
    assert not tiers[2].is_within(tiers[1])
    assert tiers[0].network == tiers[1].network == Network.none()


def test_an_unknown_tier_is_refused():
    with pytest.raises(ValueError, match="tier is one of"):
        Capabilities.for_tier("root", "/ws")


def test_narrowing_helpers_narrow():
    caps = Capabilities.for_tier("full-access", "/ws")
    for narrower in (caps.without_spawn(), caps.without_network(), caps.without_write()):
        assert narrower.is_within(caps)
        assert not caps.is_within(narrower)
