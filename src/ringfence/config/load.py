"""Reading configuration from where it may stand."""

from __future__ import annotations

import contextlib
import os
import stat

from ringfence.config.config import Ceiling, Config
from ringfence.errors import ConfigError
from ringfence.model.limits import Limits
from ringfence.session.places import SYSTEM_CONFIG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ringfence.session.places import Places

SYSTEM_FILE = SYSTEM_CONFIG + "/config.toml"
MANAGED_FILE = SYSTEM_CONFIG + "/managed.toml"
WORKSPACE_FILE = "ringfence.toml"
# Commands can write the workspace's file, and parsing hostile TOML takes time and memory that grow with
# its square: it is small, and its keys are few and short.
_MAX_BYTES = 2**16
_MAX_DOTS = 100
_VARIABLES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "RINGFENCE_TIER": ("tier", str),
    "RINGFENCE_ENABLED": ("enabled", lambda text: {"0": False, "1": True}.get(text, text)),
    "RINGFENCE_TIMEOUT": ("timeout", float),
    "RINGFENCE_MAX_OUTPUT": ("max_output", int),
    "RINGFENCE_NETWORK": ("capabilities.network", str),
    "RINGFENCE_MEMORY_MB": ("limits.memory_mb", int),
}


def defaults(places: Places, *, system: str = SYSTEM_FILE) -> Config:
    """Return what the machine's and the user's configuration files say.

    Raises:
        ConfigError: a file is broken; nothing is ever skipped.
    """
    config = Config()
    for path in (system, os.path.join(places.config, "config.toml")):
        text = _text(path)
        if text is not None:
            config = _widened(config, _flat(text, path, ceiling=False), places)
    return config


def under_ceilings(config: Config, places: Places, env: Mapping[str, str], *, managed: str = MANAGED_FILE) -> Config:
    """Return `config`, whoever made it, under the ceilings that hold everywhere.

    Raises:
        ConfigError: the managed file or a variable is broken.
    """
    text = _text(managed, owner=0)
    if text is not None:
        config = config.narrowed(_ceiling(_flat(text, managed, ceiling=True), managed, places))
    variables = _from_variables(env)
    if variables:
        config = config.narrowed(_ceiling(variables, "the environment", places))
    return config


def for_workspace(config: Config, workspace: str, places: Places) -> Config:
    """Return `config` under the ceiling that the workspace's own file sets, if it has one."""
    path = os.path.join(workspace, WORKSPACE_FILE)
    text = _text(path, follow=False)
    if text is None:
        return config
    return config.narrowed(_ceiling(_flat(text, path, ceiling=True), path, places))


def _text(path: str, *, owner: int | None = None, follow: bool = True) -> str | None:
    """Read a small regular file; a command may have put something else in a workspace file's place."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(msg, hint="make it a readable regular file, or remove it") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            msg = f"{path} is not a regular file"
            raise ConfigError(msg, hint="make it one, or remove it")
        if owner is not None and (status.st_uid != owner or status.st_mode & 0o022):
            msg = f"{path} must belong to root and be writable by root alone"
            raise ConfigError(msg, hint=f"sudo chown root:root {path} && sudo chmod 644 {path}")
        data = b""
        while len(data) <= _MAX_BYTES and (chunk := os.read(fd, _MAX_BYTES)):
            data += chunk
    finally:
        os.close(fd)
    if len(data) > _MAX_BYTES:
        msg = f"{path} is larger than a configuration may be"
        raise ConfigError(msg, hint="keep it below 64 KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text: {error}"
        raise ConfigError(msg, hint="save it as UTF-8") from error


def _flat(text: str, path: str, *, ceiling: bool) -> dict[str, Any]:
    import tomllib

    from ringfence.config import schema

    # Not `splitlines`, which knows more line ends than TOML does.
    if max(line.count(".") for line in text.split("\n")) > _MAX_DOTS:
        msg = f"{path} has a line with more than {_MAX_DOTS} dots"
        raise ConfigError(msg, hint="break it up")
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not valid TOML: {error}"
        raise ConfigError(msg, hint="correct that place in the file") from error
    if ceiling:
        return schema.checked(data, schema.NARROWING, "ceiling " + path)
    return schema.checked(data, schema.FULL, path)


def _from_variables(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in env.items():
        if not name.startswith("RINGFENCE_"):
            continue
        if name not in _VARIABLES:
            msg = f"unknown variable {name}"
            raise ConfigError(msg, hint="known ones: " + ", ".join(_VARIABLES))
        from ringfence.config import schema

        key, convert = _VARIABLES[name]
        table, _, inner = key.rpartition(".")
        value: object = text
        with contextlib.suppress(ValueError):  # the check below says what is wrong with it
            value = convert(text)
        data = {table: {inner: value}} if table else {inner: value}
        found |= schema.checked(data, schema.NARROWING, f"the variable {name}")
    return found


def _widened(config: Config, flat: Mapping[str, Any], places: Places) -> Config:
    named = _fields(flat, places)
    if "environment.inherit" in flat:
        named["environment_inherit"] = flat["environment.inherit"]
    if "environment.exclude" in flat:
        named["environment_exclude"] = (*config.environment_exclude, *flat["environment.exclude"])
    if "environment.pass" in flat:
        named["environment_pass"] = (*config.environment_pass, *flat["environment.pass"])
    if "environment.set" in flat:
        named["environment_set"] = {**config.environment_set, **flat["environment.set"]}
    if "read" in named:
        named["read"] = (*config.read, *named["read"])
    if "write" in named:
        named["write"] = (*config.write, *named["write"])
    if "limits" in named:
        named["limits"] = config.limits.replace(**_limits(flat))
    return config.replace(**named)


def _ceiling(flat: Mapping[str, Any], source: str, places: Places) -> Ceiling:
    return Ceiling(source=source, **_fields(flat, places))


def _fields(flat: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """Translate checked settings into the fields that Config and Ceiling share."""
    named: dict[str, Any] = {k: v for k, v in flat.items() if "." not in k}
    for key in ("read", "write"):
        if f"capabilities.{key}" in flat:
            named[key] = tuple(_expanded(p, places) for p in flat[f"capabilities.{key}"])
    for key in ("network", "spawn"):
        if f"capabilities.{key}" in flat:
            named[key] = flat[f"capabilities.{key}"]
    if "guarantees.require" in flat:
        named["require"] = flat["guarantees.require"]
    limits = _limits(flat)
    if limits:
        named["limits"] = Limits(**limits)
    return named


def _limits(flat: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix("limits."): v for k, v in flat.items() if k.startswith("limits.")}


def _expanded(path: str, places: Places) -> str:
    # Links are followed when a session opens, where it is known which of them a command may have made.
    return os.path.normpath(places.home + path[1:] if path.startswith("~/") else path)
