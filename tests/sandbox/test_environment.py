from __future__ import annotations

import pytest

from ringfence import ConfigError
from ringfence.sandbox import environment


def test_only_listed_names_pass():
    inherited = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "x", "MY_TOKEN": "y", "SSH_AUTH_SOCK": "/s"}
    env = environment.build(inherited, {}, home="/home/u")
    assert env == {"PATH": "/bin", "LC_ALL": "C", "LANG": "C.UTF-8", "HOME": "/home/u", "RINGFENCE": "1"}


def test_the_caller_adds_names_and_values():
    env = environment.build({"FOO": "1", "BAR": "2"}, {"BAZ": "3"}, home="/h", passed=("FOO",))
    assert env["FOO"] == "1"
    assert env["BAZ"] == "3"
    assert "BAR" not in env


@pytest.mark.parametrize(
    "name", ["HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS"]
)
def test_the_forbidden_never_pass(name):
    assert environment.build({name: "x"}, {}, home="/h", passed=(name,)).get(name) != "x"
    with pytest.raises(ConfigError, match=name):
        environment.build({}, {name: "x"}, home="/h")


def test_there_is_always_a_path_and_a_home():
    env = environment.build({"HOME": "/elsewhere"}, {}, home="/h")
    assert "/usr/bin" in env["PATH"]
    assert env["HOME"] == "/h"
