"""Where Ringfence keeps its own files."""

from __future__ import annotations

import contextlib
import errno
import os

from ringfence.errors import ConfigError, SessionError
from ringfence.model.paths import covered
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


SYSTEM_CONFIG = "/etc/ringfence"
_MODE = 0o700


class Places(Value):
    """The user's home, and our configuration and state below it."""

    home: str
    config: str
    state: str

    @property
    def own(self) -> tuple[str, ...]:
        """What no command may see, and no workspace may contain."""
        return (self.config, self.state, SYSTEM_CONFIG)

    def make(self, writable: tuple[str, ...]) -> None:
        """Make what is missing of these where a command will be able to write around them."""
        for path in self.own:
            if covered(path, writable) and not os.path.lexists(path):
                with contextlib.suppress(PermissionError):  # then the command cannot either
                    os.makedirs(path, mode=0o755 if path == SYSTEM_CONFIG else _MODE)


def places(env: Mapping[str, str]) -> Places:
    """Find them by the XDG rules, on every system."""
    home = env.get("HOME", "")
    if not home.startswith("/"):
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    home = os.path.realpath(home)
    return Places(
        home=home,
        config=os.path.realpath(os.path.join(_base(env, "XDG_CONFIG_HOME", home, ".config"), "ringfence")),
        state=os.path.realpath(os.path.join(_base(env, "XDG_STATE_HOME", home, ".local/state"), "ringfence")),
    )


def _base(env: Mapping[str, str], name: str, home: str, default: str) -> str:
    value = env.get(name, "")
    # The rules say that a relative path is to be ignored.
    return value if value.startswith("/") else os.path.join(home, default)


def private_directory(path: str) -> str:
    """Make a directory of ours, and check that it is ours alone.

    Raises:
        SessionError: it cannot be made, or belongs to somebody else.
    """
    try:
        os.makedirs(path, mode=_MODE, exist_ok=True)
        status = os.lstat(path)
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise SessionError(
            f"cannot make {path}: {error.strerror}",
            hint="free some space on that disk" if full else "check that you may write there, or set XDG_STATE_HOME",
        ) from error
    if status.st_uid != os.geteuid():
        msg = f"{path} belongs to another user"
        raise ConfigError(msg, hint="remove it, or set XDG_STATE_HOME to a directory of your own")
    if status.st_mode & 0o777 != _MODE:
        # Commands can change the mode of a private home or /tmp, and would lock the next one out.
        os.chmod(path, _MODE)
    return path
