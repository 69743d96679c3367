"""Which directory a session works in, and which ones it never may."""

from __future__ import annotations

import os

from ringfence.errors import SessionError
from ringfence.model.paths import covered, is_below
from ringfence.sandbox.tables import HIDDEN
from ringfence.session.home import has_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.session.places import Places

_MAX_NAME = 200
_MAX_LINKS = 40
_NEVER = ("/", "/home", "/tmp", "/var", "/var/tmp", "/var/lib", "/opt", "/srv", "/mnt", "/media")  # noqa: S108  # refused
_NEVER_BELOW = (
    *("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64"),
    *("/var/log", "/var/spool", "/var/cache", "/var/mail", "/var/backups", "/var/lib/dpkg", "/var/lib/systemd"),
)
_SOURCES = ("/usr/src", "/usr/local/src")


def directory_name(session_id: str) -> str:
    """Return a directory name for any session id: 32 hexadecimal characters."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps(session_id).encode()).digest()[:16].hex()


def name_of(path: str) -> str:
    """Return a directory name for a path: readable, or a digest where that would be too long."""
    name = path.strip("/").replace("%", "%25").replace("/", "%2F")
    return name if len(os.fsencode(name)) <= _MAX_NAME else directory_name(path)


def check(path: str | os.PathLike[str], places: Places) -> str:
    """Return the real path of a directory that may be a workspace.

    Raises:
        SessionError: it is none, cannot be used, or is too much to hand over.
    """
    given = os.path.abspath(os.path.expanduser(os.fspath(path)))
    real, planted = resolve(given, places)
    if planted:
        msg = f"{planted} is a link inside another workspace, where a command may have put it"
        raise SessionError(msg, hint=f"name the directory it leads to, if that is what you mean: {real}")
    if not os.path.isdir(real):
        what = "is not a directory" if os.path.exists(real) else "does not exist"
        msg = f"the workspace {given} {what}"
        raise SessionError(msg, hint="make it first, or name another one with --workspace")
    a_home = is_below(places.home, real) or _is_a_home(real)
    of_the_system = covered(real, _NEVER_BELOW) and (real in _SOURCES or not covered(real, _SOURCES))
    if a_home or of_the_system or real in _NEVER:
        why = "is or contains a home" if a_home else "belongs to the system"
        msg = f"{real} {why}: too much to be a workspace"
        raise SessionError(msg, hint="choose the directory of one project, with --workspace DIR")
    if covered(real, [os.path.join(places.home, name) for name in HIDDEN]):
        msg = f"{real} holds credentials or private data, which no command may see"
        raise SessionError(msg, hint="choose the directory of a project")
    for own in places.own:
        inside = is_below(real, own) and not is_below(real, os.path.join(places.state, "workspaces"))
        if is_below(own, real) or inside:
            msg = f"{real} holds Ringfence's own {own}, or lies in it"
            raise SessionError(msg, hint="choose another directory")
    if not os.access(real, os.R_OK | os.X_OK):
        msg = f"the workspace {real} cannot be read"
        raise SessionError(msg, hint="check its owner and mode")
    return real


def _is_a_home(real: str) -> bool:
    import pwd

    if os.path.dirname(real) in {"/home", "/Users"}:
        return True
    return any(real == entry.pw_dir for entry in pwd.getpwall() if entry.pw_dir != "/")


def was_used(directory: str, places: Places) -> bool:
    """Tell whether a directory was ever a workspace."""
    return has_home(places, name_of(directory))


def resolve(given: str, places: Places) -> tuple[str, str | None]:
    """Follow the links in an absolute path; return where it leads, and the first link that a command may have made.

    Such a link lies in a directory that was a workspace. Both answers come from one walk: whoever swaps
    something on the way meanwhile gets a path that names it, and opening that follows no link.

    Raises:
        SessionError: there are too many links.
    """
    at, used, planted = "/", False, None
    left = given.split("/")[::-1]
    links = 0
    while left:
        part = left.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        path = os.path.join(at, part)
        try:
            target = os.readlink(path)
        except OSError:  # it is none, or it is not there
            at = path
            used = used or was_used(at, places)
            continue
        links += 1
        if links > _MAX_LINKS:
            msg = f"{given} goes through too many links"
            raise SessionError(msg, hint="name the place itself")
        planted = planted or (path if used else None)
        at = "/" if target.startswith("/") else at
        left += target.split("/")[::-1]
    return at, planted


def project_around(cwd: str, places: Places) -> str:
    """Return the git work tree around `cwd` where it may be a workspace, else `cwd` itself.

    Nothing of the repository is read: its mere outline decides, and only if it is the user's own.
    """
    directory = os.path.realpath(cwd)
    found = directory
    while directory != os.path.dirname(directory):
        is_tree = os.path.lexists(os.path.join(directory, ".git")) and os.stat(directory).st_uid == os.geteuid()
        # A directory that was a workspace stays one: a command there could remove its `.git`, and the
        # next one would be handed the repository around it.
        if is_tree or was_used(directory, places):
            found = directory
            break
        directory = os.path.dirname(directory)
    try:
        return check(found, places)
    except SessionError:
        return check(cwd, places)


def inside(cwd: str | None, workspace: str) -> str | None:
    """Return the real working directory for a command, or `None` if it is not in the workspace."""
    if cwd is None:
        return workspace
    real = os.path.realpath(os.path.join(workspace, cwd))
    return real if is_below(real, workspace) and os.path.isdir(real) else None
