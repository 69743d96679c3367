"""Reading the kernel's mount table and comparing it with a plan."""

from __future__ import annotations

from ringfence.model.paths import is_below
from ringfence.model.value import Value
from ringfence.sandbox.plan import deepest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    for line in table.split("\n"):
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


class Expected:
    """The mount table that a plan leads to, on a host with this table of its own."""

    def __init__(self, plan: Iterable[Mount], host: Sequence[Mounted]) -> None:
        self._wanted = {m.target: m for m in plan if m.kind != "link"}
        # What is mounted on the host below a source comes along with it.
        self._brought = {
            _moved(below.point, mount)
            for mount in self._wanted.values()
            if mount.kind == "bind"
            for below in host
            if below.point != mount.source and is_below(below.point, mount.source)
        }

    def differences(self, actual: Iterable[Mounted]) -> list[str]:
        """Name every way in which a mount table is not the expected one; empty means equal."""
        there = {m.point: m for m in actual}
        wrong = [f"{target} is not mounted" for target in self._wanted if target not in there]
        return wrong or [text for mounted in there.values() for text in self._wrong_with(mounted)]

    def _wrong_with(self, mounted: Mounted) -> Iterator[str]:
        point = mounted.point
        mount = self._wanted.get(point)
        if mount is not None:
            if mount.kind in {"tmpfs", "proc"} and mounted.fstype != mount.kind:
                yield f"{point} is {mounted.fstype}, not {mount.kind}"
            may_write = mount.writable
        elif point in _DEVICES:
            may_write = True
        elif point in self._brought:
            around = deepest(point, self._wanted.values())
            may_write = around is not None and around.writable
        elif point == "/" or point in _PROC:
            may_write = False
        else:
            yield f"{point} is mounted and should not be"
            return
        if not may_write and not mounted.read_only:
            yield f"{point} is writable and must not be"


def _moved(point: str, mount: Mount) -> str:
    return point if mount.source == "/" else mount.target + point[len(mount.source) :]
