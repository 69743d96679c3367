"""Opening what a plan mounts, so that nothing a command planted can choose what that is."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from ringfence.errors import SandboxUnavailable
from ringfence.sandbox.layout import HELD
from ringfence.sandbox.linux.openat import make_beneath, open_beneath, open_exact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ringfence.sandbox.plan import Mount, Plan


@contextlib.contextmanager
def opened(plan: Plan) -> Iterator[dict[str, int]]:
    """Open the source of every mount by target, and close them all at the end.

    Mount points that are missing in a private home or /tmp are made. Points in the user's own
    directories must be there.

    Raises:
        SandboxUnavailable: a source is gone or unreadable, or a link stands where none may.
    """
    mounts = {m.target: m for m in plan.mounts}
    fds: dict[str, int] = {}
    try:
        for mount in plan.mounts:
            try:
                _open(mount, mounts, fds)
            except FileNotFoundError as error:
                if not mount.optional:
                    raise _explained(mount, error) from error
            except OSError as error:
                raise _explained(mount, error) from error
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


def _open(mount: Mount, mounts: Mapping[str, Mount], fds: dict[str, int]) -> None:
    around = mounts.get(mount.around)
    if mount.kind == "mask":
        fds[mount.target] = os.open("/dev/null", os.O_RDONLY)
    elif mount.kind == "bind":
        if around and mount.why == HELD and not around.is_real:
            fds[mount.target] = make_beneath(fds[around.target], _below(mount.target, around.target), is_dir=True)
            return
        if around and mount.within:
            # `within` is the source of the outermost writable mount; `around` lies in it and is open.
            fds[mount.target] = open_beneath(fds[around.target], _below(mount.source, around.source))
        else:
            fds[mount.target] = open_exact(mount.source)
            if mount.writable and not mount.is_real:
                # A command may have closed its private home or /tmp to itself, and to the next one.
                os.chmod(f"/proc/self/fd/{fds[mount.target]}", 0o700)
    if around is None or mount.kind == "link":
        return
    is_dir = mount.kind != "mask"
    if mount.kind == "bind":
        is_dir = stat.S_ISDIR(os.fstat(fds[mount.target]).st_mode)
    point = _below(mount.target, around.target)
    if around.is_real:
        os.close(open_beneath(fds[around.target], point))
    else:
        os.close(make_beneath(fds[around.target], point, is_dir=is_dir))


def _below(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/")


def _explained(mount: Mount, error: OSError) -> SandboxUnavailable:
    if error.errno in {errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.EEXIST}:
        return SandboxUnavailable(
            f"something at or above {mount.target} is a link or not a directory, and may not be mounted over",
            hint="a command may have planted it: look at it, remove it, and run again",
            reason="tampered",
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return SandboxUnavailable(
            f"no space is left for {error.filename or mount.source}", hint="free some space", reason="disk-full"
        )
    return SandboxUnavailable(
        f"{mount.source or mount.target} ({mount.why}) cannot be opened: {error.strerror}",
        hint="check that it exists and that you may read it",
        reason="unreadable",
    )
