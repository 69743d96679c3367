"""`ringfence.run`: one call, one command, nothing left behind."""

from __future__ import annotations

from ringfence.fence import Fence
from ringfence.model.command import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ringfence.config.config import Config
    from ringfence.model.approval import Approver
    from ringfence.model.capabilities import Capabilities
    from ringfence.model.output import Output


def run(
    command: str | Sequence[str],
    *,
    workspace: str | os.PathLike[str] | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | str | None = None,
    capabilities: Capabilities | None = None,
    timeout: float | None = None,
    approver: Approver | None = None,
    config: Config | None = None,
) -> Output:
    """Run one command confined and return its output; a string is shell text, a list is argv.

    Without a workspace it works in an empty directory that is gone afterwards.

    Raises:
        Denied: it was refused.
        SandboxUnavailable: it could not be confined.
    """
    with Fence(config, approver=approver) as fence:
        state = fence.sessions.open(None, workspace, single_use=True)
        return fence.execute(
            Command.of(
                command,
                session=state.id,
                cwd=cwd,
                env=env or {},
                stdin=stdin.encode() if isinstance(stdin, str) else stdin,
                capabilities=capabilities,
                timeout=timeout,
            )
        )
