"""Paths as values: normal form and containment by component, without touching the file system."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def normal(path: str | os.PathLike[str]) -> str:
    """Return an absolute path without `.`, `..`, doubled or trailing slashes.

    Raises:
        ValueError: the path is relative, empty or has a NUL byte.
    """
    text = os.fspath(path)
    if not text.startswith("/") or "\0" in text:
        msg = f"not an absolute path: {text!r}"
        raise ValueError(msg)
    # POSIX lets a leading `//` stand, and so does normpath; for us it is the root like any other.
    return os.path.normpath("/" + text.lstrip("/"))


def is_below(path: str, root: str) -> bool:
    """Tell whether `path` is `root` or lies under it; both in normal form."""
    return root in (path, "/") or path.startswith(root + "/")


def covered(path: str, roots: Iterable[str]) -> bool:
    """Tell whether one of `roots` contains `path`."""
    return any(is_below(path, root) for root in roots)


def parents(path: str, root: str) -> list[str]:
    """List the directories strictly between `root` and `path`, shallowest first."""
    between: list[str] = []
    parent = os.path.dirname(path)
    while parent != root and is_below(parent, root) and parent != "/":
        between.append(parent)
        parent = os.path.dirname(parent)
    return between[::-1]


def outermost(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Normalise, sort, and drop every path that another one of them contains."""
    kept: list[str] = []
    for path in sorted({normal(p) for p in paths}):
        if not covered(path, kept):
            kept.append(path)
    return tuple(kept)


def by_depth(path: str) -> tuple[int, str]:
    """Sort key that puts a directory before everything below it."""
    return (0 if path == "/" else path.count("/"), path)
