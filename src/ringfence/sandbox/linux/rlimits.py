"""Ceilings that the kernel keeps for each process."""

from __future__ import annotations

import resource

from ringfence.sandbox.linux.cgroups import DEFAULT_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from ringfence.model.limits import Limits

_DEFAULT_MEMORY_MB = 4096


def ceilings(
    limits: Limits, *, counted: bool, grouped: Collection[str] = (), beside: int = 0
) -> tuple[list[tuple[int, int]], dict[str, str]]:
    """Return what to set for a process that has not started its command yet, and what to tell about it.

    What our own ceilings already keep lower stays lower. `counted` says whether the kernel counts its
    user's processes: it does not count root's. `grouped` are kept by a control group already, and
    `beside` are the tasks that the kernel counts together with the command's.
    """
    found: list[tuple[int, int]] = []
    told: dict[str, str] = {}

    def put(name: str, kind: int, value: int, unit: str) -> None:
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        found.append((kind, ceiling))
        told[name] = f"{ceiling // (2**20) if unit.startswith('MiB') else ceiling} {unit}".rstrip() + " (rlimit)"

    if "memory" not in grouped:
        memory = int(limits.memory_mb or _DEFAULT_MEMORY_MB) * 2**20
        put("memory", resource.RLIMIT_DATA, memory, "MiB each process")
    if limits.open_files:
        put("open_files", resource.RLIMIT_NOFILE, int(limits.open_files), "files each process")
    if limits.cpu_seconds:
        put("cpu", resource.RLIMIT_CPU, int(limits.cpu_seconds), "s each process")
    if limits.file_size_mb:
        put("file_size", resource.RLIMIT_FSIZE, int(limits.file_size_mb) * 2**20, "MiB each process")
    if counted and "tasks" not in grouped:
        tasks = int(limits.tasks or DEFAULT_TASKS) + beside
        put("tasks", resource.RLIMIT_NPROC, tasks, "with all of the user's" if beside else "")
    # No core dumps. Zero would still feed a handler that the host has set up; one byte feeds none.
    found.append((resource.RLIMIT_CORE, 1))
    return found, told


def apply(pid: int, found: list[tuple[int, int]]) -> None:
    """Lower the ceilings of another process."""
    for kind, ceiling in found:
        resource.prlimit(pid, kind, (ceiling, ceiling))
