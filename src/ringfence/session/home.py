"""The private home of a workspace, and the few settings of the user's that go into it."""

from __future__ import annotations

import contextlib
import os

from ringfence.session.places import private_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.session.places import Places

# Settings that name or format, never ones that run something.
_GIT_KEYS = (
    "user.name",
    "user.email",
    "init.defaultbranch",
    "core.autocrlf",
    "core.eol",
    "core.quotepath",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "merge.conflictstyle",
    "color.ui",
)
_GIT = "/usr/bin/git"


def private_home(places: Places, name: str) -> str:
    """Return the private home of that name, made on first use."""
    shelf = private_directory(os.path.join(private_directory(places.state), "homes"))
    path = os.path.join(shelf, name)
    is_new = not os.path.isdir(path)
    private_directory(path)
    if is_new:
        _give_git_settings(path, places)
    return path


def has_home(places: Places, name: str) -> bool:
    """Tell whether a workspace of that name was ever used."""
    return os.path.isdir(os.path.join(places.state, "homes", name))


def _give_git_settings(home: str, places: Places) -> None:
    """Copy the listed git settings, so that commits inside carry the user's name."""
    settings = _git_settings(places)
    if not settings:
        return
    # The home was made a moment ago and no command has seen it: nothing can be planted there yet.
    with contextlib.suppress(OSError):
        fd = os.open(os.path.join(home, ".gitconfig"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write("".join(_git_line(key, value) for key, value in settings.items()))


def _git_line(key: str, value: str) -> str:
    section, _, name = key.partition(".")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'[{section}]\n\t{name} = "{escaped}"\n'


def _git_settings(places: Places) -> dict[str, str]:
    """Ask git for the user's own settings, away from any repository."""
    config = os.path.join(places.home, ".gitconfig")
    xdg = os.path.join(os.path.dirname(places.config), "git", "config")
    if not (os.path.exists(config) or os.path.exists(xdg)) or not os.access(_GIT, os.X_OK):
        return {}
    import subprocess

    ended = subprocess.run(
        [_GIT, "config", "--global", "--includes", "--list", "-z"],
        cwd="/",
        env={"HOME": places.home, "XDG_CONFIG_HOME": os.path.dirname(places.config), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    pairs = (entry.partition("\n") for entry in ended.stdout.decode("utf-8", "replace").split("\0") if entry)
    return {key: value for key, _, value in pairs if key in _GIT_KEYS}
