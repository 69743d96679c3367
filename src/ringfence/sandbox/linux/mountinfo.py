"""Reading the kernel's mount table and comparing it with a plan."""

from __future__ import annotations

from ringfence.model.paths import is_below
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringfence.sandbox.plan import Mount

# What bubblewrap itself puts below /dev and /proc, besides what the plan names.
_DEVICES = frozenset(f"/dev/{n}" for n in ("null", "zero", "full", "random", "urandom", "tty", "pts", "console"))
_PROC = frozenset(f"/proc/{n}" for n in ("sys", "sysrq-trigger", "irq", "bus"))


class Mounted(Value):
    """One line of a mount table."""

    point: str
    read_only: bool
    fstype: str


def parse(table: str) -> list[Mounted]:
    """Read the text of a `mountinfo` file."""
    found = []
    for line in table.splitlines():
        fields = line.split(" ")
        if "-" not in fields:
            continue
        kind = fields[fields.index("-") + 1]
        found.append(Mounted(_unescape(fields[4]), "ro" in fields[5].split(","), kind))
    return found


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def differences(plan: Iterable[Mount], actual: Sequence[Mounted], host: Sequence[Mounted]) -> list[str]:
    """Name every way in which `actual` is not what `plan` says; empty means equal.

    `host` is the host's own table: what is mounted there below a source comes along with it.
    """
    wanted = {m.target: m for m in plan if m.kind != "link"}
    there = {m.point: m for m in actual}
    wrong = [f"{target} is not mounted" for target in wanted if target not in there]
    brought = {
        _moved(below.point, mount)
        for mount in wanted.values()
        if mount.kind == "bind"
        for below in host
        if below.point != mount.source and is_below(below.point, mount.source)
    }
    for point, mounted in there.items():
        mount = wanted.get(point)
        if mount is not None:
            if not mount.writable and not mounted.read_only:
                wrong.append(f"{point} is writable and must not be")
            if mount.kind in {"tmpfs", "proc"} and mounted.fstype != mount.kind:
                wrong.append(f"{point} is {mounted.fstype}, not {mount.kind}")
        elif point == "/":
            if not mounted.read_only:
                wrong.append("/ is writable and must not be")
        elif point in brought:
            around = max((m for m in wanted.values() if is_below(point, m.target)), key=lambda m: len(m.target))
            if not around.writable and not mounted.read_only:
                wrong.append(f"{point} is writable and must not be")
        elif point not in _DEVICES and point not in _PROC:
            wrong.append(f"{point} is mounted and should not be")
    return wrong


def _moved(point: str, mount: Mount) -> str:
    if mount.source == "/":
        return point
    return mount.target + point[len(mount.source) :]
