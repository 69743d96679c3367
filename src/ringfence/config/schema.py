"""What a configuration file may say, and how a wrong one is refused.

The check is our own: `msgspec` takes 35 ms to import, on every `ringfence run` of a user who has a
configuration file.
"""

from __future__ import annotations

import os

from ringfence.errors import ConfigError
from ringfence.model.capabilities import TIERS
from ringfence.model.guarantees import GUARANTEES
from ringfence.model.limits import MAX_TIMEOUT, Limits
from ringfence.model.network import Network
from ringfence.sandbox import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeGuard

    Check = Callable[[object], object]

_MAX_OUTPUT = 2**30
_MAX_LIST = 256
_MAX_SHOWN = 200


def _a_tier(value: object) -> object:
    if not isinstance(value, str) or value not in TIERS:
        raise ValueError("one of " + ", ".join(repr(t) for t in TIERS))
    return value


def _a_bool(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004  # every check raises this one
    return value


def _a_name(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise ValueError("a name in quotes")
    return value


def _seconds(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_TIMEOUT:
        raise ValueError(f"a number of seconds above 0 and up to {MAX_TIMEOUT:.0f}")
    return float(value)


def _bytes(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_OUTPUT:
        raise ValueError(f"a whole number of bytes from 1 to {_MAX_OUTPUT}")
    return value


def _count(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number above 0")
    return value


def _is_list(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) <= _MAX_LIST and all(isinstance(v, str) and v for v in value)


def _passable(value: object) -> object:
    if not _is_list(value) or any(environment.is_forbidden(name) for name in value):
        raise ValueError('a list of names, such as ["A", "B"], none of which is forbidden inside')
    return tuple(value)


def _inheritance(value: object) -> object:
    if value not in {"core", "all", "none"}:
        raise ValueError('"core", "all" or "none"')
    return value


def _patterns(value: object) -> object:
    if not _is_list(value):
        raise ValueError('a list of names, such as ["MY_*", "*_ID"]')
    return tuple(value)


def _paths(value: object) -> object:
    if not _is_list(value) or not all(v.startswith(("/", "~/")) and "\0" not in v for v in value):
        raise ValueError('a list of paths that start with / or ~/, such as ["~/data"]')
    return tuple(value)


def _inner_paths(value: object) -> object:
    if not _is_list(value) or any(v.startswith("/") or ".." in v.split("/") or "\0" in v for v in value):
        raise ValueError('a list of paths inside the workspace, such as [".env", "config/secrets.yml"]')
    return tuple(os.path.normpath(v) for v in value)


def _network(value: object) -> object:
    try:
        if isinstance(value, str):
            return Network.parse(value)
        if _is_list(value):
            return Network.to_hosts(value)
    except ValueError as error:
        raise ValueError(f'"none", "all" or a list of hosts ({error})') from error
    raise ValueError('"none", "all" or a list of hosts')


def _guarantees(value: object) -> object:
    if not _is_list(value) or not all(v in GUARANTEES for v in value):
        raise ValueError("a list of guarantees out of " + ", ".join(GUARANTEES))
    return tuple(value)


def _variables(value: object) -> object:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ValueError('a table of text, such as { NAME = "value" }')
    if any(environment.is_forbidden(name) for name in value):
        raise ValueError("a table of variables, none of which is forbidden inside")
    return value


LIMITS: Mapping[str, Check] = {name: _count for name in Limits._fields if name != "timeout"}
NARROWING: Mapping[str, Check | Mapping[str, Check]] = {
    "tier": _a_tier,
    "enabled": _a_bool,
    "timeout": _seconds,
    "max_timeout": _seconds,
    "max_output": _bytes,
    "hidden": _inner_paths,
    "capabilities": {
        "read": _paths,
        "write": _paths,
        "network": _network,
        "spawn": _a_bool,
    },
    "limits": LIMITS,
    "guarantees": {"require": _guarantees},
}
FULL: Mapping[str, Check | Mapping[str, Check]] = {
    **NARROWING,
    "backend": _a_name,
    "approval_wait": _seconds,
    "warm": _a_bool,
    "environment": {"inherit": _inheritance, "exclude": _patterns, "pass": _passable, "set": _variables},
}


def checked(
    data: Mapping[str, object], schema: Mapping[str, Check | Mapping[str, Check]], source: str
) -> dict[str, Any]:
    """Return the settings with their values converted, in one flat dictionary of `table.key`.

    Raises:
        ConfigError: it names the file, the key and the expected form.
    """
    flat: dict[str, Any] = {}
    for key, value in data.items():
        check = schema.get(key)
        if check is None:
            raise _unknown(key, schema, source)
        if callable(check):
            flat[key] = _convert(key, value, check, source)
            continue
        if not isinstance(value, dict):
            msg = f"{source.removeprefix('ceiling ')}: {key} is a table, not {_shown(value)}"
            raise ConfigError(msg, hint=f"write [{key}] and its keys below")
        for inner, inner_value in value.items():
            if inner not in check:
                raise _unknown(f"{key}.{inner}", {f"{key}.{name}": None for name in check}, source)
            flat[f"{key}.{inner}"] = _convert(f"{key}.{inner}", inner_value, check[inner], source)
    return flat


def _convert(key: str, value: object, check: Check, source: str) -> object:
    try:
        return check(value)
    except ValueError as error:
        msg = f"{source.removeprefix('ceiling ')}: {key} is {error}, not {_shown(value)}"
        raise ConfigError(msg, hint="see docs/configuration.md") from error


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _unknown(key: str, known: Mapping[str, object], source: str) -> ConfigError:
    only_widening = source.startswith("ceiling ") and key.split(".", maxsplit=1)[0] in FULL
    if only_widening:
        return ConfigError(
            f"{source.removeprefix('ceiling ')}: {key} cannot be set here: this place only narrows",
            hint="set it in the user's configuration file",
        )
    import difflib

    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "known keys: " + ", ".join(known)
    return ConfigError(f"{source.removeprefix('ceiling ')}: unknown key {key}", hint=hint)
