from __future__ import annotations

import pytest

from ringfence import ConfigError
from ringfence.sandbox import environment


def test_only_listed_names_pass():
    inherited = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "x", "MY_TOKEN": "y", "SSH_AUTH_SOCK": "/s"}
    env = environment.build(environment.inherited(inherited), {}, home="/home/u")
    assert env == {"PATH": "/bin", "LC_ALL": "C", "LANG": "C.UTF-8", "HOME": "/home/u", "RINGFENCE": "1"}


def test_the_caller_adds_names_and_values():
    env = environment.build(environment.inherited({"FOO": "1", "BAR": "2"}, passed=("FOO",)), {"BAZ": "3"}, home="/h")
    assert env["FOO"] == "1"
    assert env["BAZ"] == "3"
    assert "BAR" not in env


def test_how_much_is_inherited_is_a_setting():
    inherited = {"PATH": "/bin", "EDITOR": "vi", "PROJECT": "x", "MY_TOKEN": "y", "AWS_REGION": "z", "LD_PRELOAD": "e"}

    def names(**options):
        return set(environment.inherited(inherited, **options)) - {"PATH"}

    assert names() == {"EDITOR"}
    assert names(inherit="none") == set()
    assert names(inherit="all") == {"EDITOR", "PROJECT"}
    assert names(inherit="all", exclude=("PRO*",)) == {"EDITOR"}
    assert names(exclude=("EDITOR",)) == set()
    assert names(inherit="none", passed=("MY_TOKEN",)) == {"MY_TOKEN"}
    assert "PATH" not in environment.inherited(inherited, inherit="none")


@pytest.mark.parametrize(
    ("name", "pattern", "matched"),
    [
        ("LC_ALL", "LC_*", True),
        ("XLC_ALL", "LC_*", False),
        ("SSH_ASKPASS", "*_ASKPASS", True),
        ("SSH_ASKPASS_REQUIRE", "*_ASKPASS", False),
        ("MY_TOKEN_2", "*TOKEN*", True),
        ("PATH", "PATH", True),
        ("PATHX", "PATH", False),
        ("ANY", "*", True),
    ],
)
def test_patterns(name, pattern, matched):
    assert environment.matches(name, (pattern,)) is matched


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS"),
        *("SSH_ASKPASS", "GPG_TTY", "MAVEN_OPTS", "GIT_SSH_COMMAND", "NPM_CONFIG_PREFIX", "NODE_OPTIONS"),
        *("GLIBC_TUNABLES", "DOTNET_STARTUP_HOOKS", "PYTHONBREAKPOINT", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY"),
    ],
)
def test_the_forbidden_never_pass(name):
    assert environment.inherited({name: "x"}, passed=(name,)) == {}
    with pytest.raises(ConfigError, match=name):
        environment.build({}, {name: "x"}, home="/h")


def test_there_is_always_a_path_and_a_home():
    env = environment.build(environment.inherited({"HOME": "/elsewhere"}), {}, home="/h")
    assert "/usr/bin" in env["PATH"]
    assert env["HOME"] == "/h"
