from __future__ import annotations

import pytest

from ringfence import Network


def test_none_hosts_all_are_ordered():
    hosts = Network.to_hosts(["example.com"])
    assert Network.none().is_within(hosts)
    assert hosts.is_within(Network.all())
    assert not hosts.is_within(Network.none())
    assert not Network.all().is_within(hosts)


@pytest.mark.parametrize(
    ("inner", "outer", "within"),
    [
        ("a.example.com", "*.example.com", True),
        ("b.a.example.com", "*.example.com", True),
        ("example.com", "*.example.com", False),
        ("*.a.example.com", "*.example.com", True),
        ("*.example.com", "a.example.com", False),
        ("badexample.com", "*.example.com", False),
        ("EXAMPLE.com.", "example.com", True),
    ],
)
def test_host_patterns(inner, outer, within):
    assert Network.to_hosts([inner]).is_within(Network.to_hosts([outer])) is within


@pytest.mark.parametrize("bad", ["*", "*.", "", "a b", "http://x", "a..b", "exa*mple.com", "x" * 300])
def test_what_is_no_host_is_refused(bad):
    with pytest.raises(ValueError, match="host"):
        Network.to_hosts([bad])


def test_parse():
    assert Network.parse("none") == Network.none()
    assert Network.parse("all") == Network.all()
    assert Network.parse("a.example.com, b.example.com").hosts == ("a.example.com", "b.example.com")
    assert Network.to_hosts([]) == Network.none()
