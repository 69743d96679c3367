from __future__ import annotations

import os

import pytest

from ringfence import Capabilities, ConfigError, Network
from ringfence.config.load import defaults, for_workspace, under_ceilings
from ringfence.session.places import Places


@pytest.fixture
def where(tmp_path):
    home = tmp_path / "home"
    (home / ".config" / "ringfence").mkdir(parents=True)
    return Places(str(home), str(home / ".config" / "ringfence"), str(home / ".local" / "state" / "ringfence"))


@pytest.fixture
def read(where, tmp_path):
    """Load a configuration out of the given texts."""

    def read(user="", system="", managed=None, env=None, workspace=None):
        (tmp_path / "system.toml").write_text(system)
        user_file = os.path.join(where.config, "config.toml")
        with open(user_file, "w", encoding="utf-8") as file:
            file.write(user)
        managed_file = tmp_path / "managed.toml"
        if managed is not None:
            managed_file.write_text(managed)
            managed_file.chmod(0o644)
        config = defaults(where, system=str(tmp_path / "system.toml"))
        config = under_ceilings(config, where, env or {}, managed=str(managed_file))
        if workspace is not None:
            place = tmp_path / "ws"
            place.mkdir(exist_ok=True)
            (place / "ringfence.toml").write_text(workspace)
            config = for_workspace(config, str(place), where)
        return config

    return read


as_root = pytest.mark.as_root  # managed.toml must belong to root


def test_defaults(read):
    config = read()
    assert (config.tier, config.backend, config.timeout, config.max_output) == ("workspace-write", "auto", 60, 2**20)
    assert config.baseline("/ws") == Capabilities.for_tier("workspace-write", "/ws")


def test_the_user_widens_what_the_system_says(read, where):
    config = read(
        system='timeout = 10\n[capabilities]\nread = ["/srv"]\n',
        user='timeout = 20\n[capabilities]\nread = ["~/data"]\nnetwork = "all"\n[environment]\npass = ["FOO"]\n',
    )
    assert config.timeout == 20
    assert config.read == ("/srv", where.home + "/data")
    assert config.baseline("/ws").network == Network.all()
    assert config.environment_pass == ("FOO",)


@pytest.mark.parametrize(
    ("text", "key", "form"),
    [
        ("tier = 'root'", "tier", "'read-only'"),
        ("timeout = 'long'", "timeout", "seconds"),
        ("timeout = 0", "timeout", "seconds"),
        ("timeout = 100000", "timeout", "1800"),
        ("enabled = 1", "enabled", "true or false"),
        ("[capabilities]\nread = ['data']", "capabilities.read", "start with /"),
        ("[capabilities]\nnetwork = ['*']", "capabilities.network", "hosts"),
        ("[limits]\nmemory_mb = -1", "limits.memory_mb", "above 0"),
        ("[guarantees]\nrequire = ['magic']", "guarantees.require", "guarantees"),
        ("limits = 3", "limits", "table"),
        ("[environment]\nset = { A = 1 }", "environment.set", "text"),
    ],
)
def test_a_wrong_value_names_file_key_and_form(read, where, text, key, form):
    with pytest.raises(ConfigError) as caught:
        read(user=text)
    message = str(caught.value)
    assert os.path.join(where.config, "config.toml") in message
    assert key in message
    assert form in message


def test_an_unknown_key_is_an_error_with_a_suggestion(read):
    with pytest.raises(ConfigError, match=r"unknown key tmeout.*\n.*did you mean timeout"):
        read(user="tmeout = 3")
    with pytest.raises(ConfigError, match=r"unknown key limits\.memory\b"):
        read(user="[limits]\nmemory = 3")


def test_broken_toml_is_an_error_with_its_line(read):
    with pytest.raises(ConfigError, match="line 2"):
        read(user="timeout = 3\nwhat is this")


def test_binary_rubbish_and_directories_are_errors(read, where):
    path = os.path.join(where.config, "config.toml")
    with open(path, "wb") as file:
        file.write(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        defaults(where)
    os.unlink(path)
    os.mkdir(path)
    with pytest.raises(ConfigError, match=r"regular file|Is a directory"):
        defaults(where)


@as_root
def test_managed_only_narrows(read):
    config = read(
        user='[capabilities]\nnetwork = "all"\nwrite = ["/srv"]\n', managed='[capabilities]\nnetwork = "none"\n'
    )
    assert config.baseline("/ws").network == Network.none()
    assert config.baseline("/ws").write == ("/srv", "/ws")
    wide = read(managed='tier = "full-access"\n[capabilities]\nnetwork = "all"\nread = ["/"]\n')
    assert wide.baseline("/ws") == Capabilities.for_tier("workspace-write", "/ws")


@as_root
def test_managed_must_belong_to_root(read, tmp_path, where):
    read(managed="timeout = 5")
    (tmp_path / "managed.toml").chmod(0o666)
    with pytest.raises(ConfigError, match="root alone"):
        under_ceilings(defaults(where), where, {}, managed=str(tmp_path / "managed.toml"))


@as_root
@pytest.mark.parametrize("text", ["backend = 'host'", "approval_wait = 1", "[environment]\npass = ['X']"])
def test_what_widens_is_no_business_of_managed(read, text):
    with pytest.raises(ConfigError, match="only narrows"):
        read(managed=text)


@pytest.mark.parametrize("text", ["backend = 'host'", "[environment]\nset = { A = 'b' }"])
def test_what_widens_is_no_business_of_a_workspace(read, text):
    with pytest.raises(ConfigError, match="only narrows"):
        read(workspace=text)


def test_a_workspace_file_only_narrows(read, tmp_path):
    place = str(tmp_path / "ws")
    config = read(workspace='tier = "full-access"\ntimeout = 1800\n[capabilities]\nwrite = ["/"]\nnetwork = "all"\n')
    assert config.baseline(place) == Capabilities.for_tier("workspace-write", place)
    assert config.timeout == 60
    config = read(workspace='tier = "read-only"\ntimeout = 5\n[limits]\nmemory_mb = 100\n')
    assert config.baseline(place).write == ()
    assert config.baseline(place).read == (place,)
    assert config.baseline(place).limits.memory_mb == 100
    assert config.timeout == 5


def test_a_workspace_file_that_is_a_link_or_a_pipe_is_refused(read, tmp_path, where):
    config = read(workspace="")
    place = tmp_path / "ws"
    (place / "ringfence.toml").unlink()
    (place / "ringfence.toml").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="cannot be read"):
        for_workspace(config, str(place), where)
    (place / "ringfence.toml").unlink()
    os.mkfifo(place / "ringfence.toml")
    with pytest.raises(ConfigError, match="regular file"):
        for_workspace(config, str(place), where)


def test_variables_only_narrow(read):
    assert read(env={"RINGFENCE_NETWORK": "all"}).baseline("/ws").network == Network.none()
    assert read(env={"RINGFENCE_TIER": "full-access"}).tier == "workspace-write"
    assert read(env={"RINGFENCE_TIER": "read-only"}).baseline("/ws").write == ()
    assert read(env={"RINGFENCE_TIMEOUT": "7"}).timeout == 7
    assert read(env={"RINGFENCE_ENABLED": "0"}).enabled is False
    assert read(env={"RINGFENCE_MEMORY_MB": "64"}).limits.memory_mb == 64
    assert read(env={"RINGFENCE": "1"}) == read()


@pytest.mark.parametrize(
    ("name", "value"), [("RINGFENCE_TIMEOUT", "soon"), ("RINGFENCE_FOO", "1"), ("RINGFENCE_TIER", "")]
)
def test_a_wrong_variable_is_an_error(read, name, value):
    with pytest.raises(ConfigError, match=name):
        read(env={name: value})


def test_requirements_only_grow(read):
    config = read(user="[guarantees]\nrequire = ['protected']", env={})
    assert {"writes", "protected"} <= set(config.required)


def test_hosts_meet(read):
    config = read(
        user='[capabilities]\nnetwork = ["*.example.com", "a.org"]',
        workspace='[capabilities]\nnetwork = ["x.example.com", "b.org"]',
    )
    assert config.baseline("/ws").network == Network.to_hosts(["x.example.com"])
