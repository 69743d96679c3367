"""What confinement can promise, by name.

A missing required one refuses the command; a missing preferred one is reported with every result.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRED: Mapping[str, str] = {
    "writes": "no write outside what was granted",
    "credentials": "no read of the home or of another session's files",
    "network": "no network beyond what was granted",
    "kill": "every process of a command ends with it",
}
PREFERRED: Mapping[str, str] = {
    "home": "a private home that belongs to the workspace",
    "tmp": "a private /tmp",
    "loopback": "loopback works under network none",
    "mounts-checked": "the mounts are compared with the plan before the command starts",
    "no-root": "a command started by root does not act as the host's root",
    "syscalls": "system calls that commands never need are refused",
    "hidden": "what configuration hides in the workspace cannot be read",
    "metadata": "no change of modes, times and attributes outside",
    "processes": "other processes can be neither seen nor signalled",
    "landlock": "a second file layer below the mounts",
    "protected": "changes to git hooks, editor and agent settings are held for a person",
    "limit-memory": "a memory ceiling",
    "limit-tasks": "a ceiling on processes and threads",
    "limit-open-files": "a ceiling on open files",
    "limit-cpu": "a ceiling on CPU time",
    "limit-file-size": "a ceiling on the size of a file",
    "limit-scratch": "a ceiling on /tmp",
}
GUARANTEES: Mapping[str, str] = {**REQUIRED, **PREFERRED}
