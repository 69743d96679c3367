"""Ceilings that the kernel keeps for each process."""

from __future__ import annotations

import resource

from ringfence.sandbox.linux.cgroups import DEFAULT_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from ringfence.model.limits import Limits

_DEFAULT_MEMORY_MB = 4096


def apply(pid: int, limits: Limits, *, counted: bool, grouped: Collection[str] = (), beside: int = 0) -> dict[str, str]:
    """Lower the ceilings of a process that has not started its command yet; say what was applied.

    What the caller's own ceilings already keep lower stays lower. `counted` says whether the kernel
    counts its user's processes: it does not count root's. `grouped` are kept by a control group already,
    and `beside` are the tasks that the kernel counts together with the command's.
    """
    applied: dict[str, str] = {}

    def put(name: str, kind: int, value: int, unit: str) -> None:
        _, hard = resource.prlimit(pid, kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, kind, (ceiling, ceiling))
        applied[name] = f"{ceiling // (2**20) if unit == 'MiB' else ceiling} {unit} each process (rlimit)"

    if "memory" not in grouped:
        put("memory", resource.RLIMIT_DATA, int(limits.memory_mb or _DEFAULT_MEMORY_MB) * 2**20, "MiB")
    if limits.open_files:
        put("open_files", resource.RLIMIT_NOFILE, int(limits.open_files), "files")
    if limits.cpu_seconds:
        put("cpu", resource.RLIMIT_CPU, int(limits.cpu_seconds), "s")
    if limits.file_size_mb:
        put("file_size", resource.RLIMIT_FSIZE, int(limits.file_size_mb) * 2**20, "MiB")
    if counted and "tasks" not in grouped:
        _, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
        tasks = int(limits.tasks or DEFAULT_TASKS) + beside
        tasks = tasks if hard == resource.RLIM_INFINITY else min(tasks, hard)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (tasks, tasks))
        applied["tasks"] = f"{tasks} (rlimit)" if not beside else f"{tasks} with all of the user's (rlimit)"
    # No core dumps. Zero would still feed a handler that the host has set up; one byte feeds none.
    resource.prlimit(pid, resource.RLIMIT_CORE, (1, 1))
    return applied
