"""The environment of a command: an allowlist, what the caller sets, and nothing else."""

from __future__ import annotations

from ringfence.errors import ConfigError
from ringfence.sandbox.tables import DEFAULT_PATH, ENVIRONMENT, FORBIDDEN_ENVIRONMENT, SECRET_ENVIRONMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Tell whether a variable is named by one of `patterns`: `NAME`, or with a `*` at its start, its end or both."""
    return any(_matches(name, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    middle = pattern.strip("*")
    if pattern.startswith("*"):
        return middle in name if pattern.endswith("*") else name.endswith(middle)
    return name.startswith(middle) if pattern.endswith("*") else name == pattern


def is_forbidden(name: str) -> bool:
    """Tell whether a variable is never set inside, or only by us."""
    return name == "HOME" or matches(name, FORBIDDEN_ENVIRONMENT)


def inherited(
    env: Mapping[str, str], *, inherit: str = "core", exclude: Iterable[str] = (), passed: Iterable[str] = ()
) -> dict[str, str]:
    """Return what a command gets of its caller's environment.

    `inherit` takes what every program needs ("core"), "all" but what looks like a secret, or "none";
    always the names in `passed`, and never those in `exclude`.
    """
    taken = {"core": ENVIRONMENT, "all": ("*",), "none": ()}[inherit]
    left_out = (*exclude, *SECRET_ENVIRONMENT) if inherit == "all" else tuple(exclude)
    also = tuple(passed)
    return {
        name: value
        for name, value in env.items()
        if ((matches(name, taken) and not matches(name, left_out)) or matches(name, also)) and not is_forbidden(name)
    }


def build(base: Mapping[str, str], wanted: Mapping[str, str], *, home: str) -> dict[str, str]:
    """Return the complete environment of a command: what it inherits, and `wanted` on top.

    Raises:
        ConfigError: `wanted` names a variable that is never set.
    """
    env = dict(base)
    for name, value in wanted.items():
        if is_forbidden(name):
            msg = f"the variable {name} is not set from outside: it steers a loader, an interpreter or a host socket"
            raise ConfigError(msg, hint=f"set it within the command itself: -c '{name}=… program'")
        env[name] = value
    env.setdefault("PATH", DEFAULT_PATH)
    env.setdefault("LANG", "C.UTF-8")
    env["HOME"] = home
    env["RINGFENCE"] = "1"
    return env
