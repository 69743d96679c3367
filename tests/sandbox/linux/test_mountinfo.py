from __future__ import annotations

import pytest

from ringfence.sandbox.linux.mountinfo import Expected, Mounted, parse
from ringfence.sandbox.plan import Mount

PLAN = (
    Mount("/usr", "bind", "/usr"),
    Mount("/bin", "link", "usr/bin"),
    Mount("/tmp", "tmpfs", writable=True),
    Mount("/ws", "bind", "/host/ws", writable=True),
    Mount("/ws/.venv", "bind", "/host/ws/.venv"),
    Mount("/proc", "proc", writable=True),
    Mount("/etc/shadow", "mask"),
)
HOST = [Mounted("/", False, "ext4"), Mounted("/usr/share", False, "ext4"), Mounted("/host/ws/data", False, "nfs")]
GOOD = [
    Mounted("/", True, "tmpfs"),
    Mounted("/usr", True, "ext4"),
    Mounted("/usr/share", True, "ext4"),
    Mounted("/tmp", False, "tmpfs"),
    Mounted("/ws", False, "ext4"),
    Mounted("/ws/data", False, "nfs"),
    Mounted("/ws/.venv", True, "ext4"),
    Mounted("/proc", False, "proc"),
    Mounted("/proc/irq", True, "proc"),
    Mounted("/dev/null", False, "devtmpfs"),
    Mounted("/etc/shadow", True, "tmpfs"),
]


def test_the_expected_table_is_equal():
    assert Expected(PLAN, HOST).differences(GOOD) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (GOOD[:-1], "/etc/shadow is not mounted"),
        ([*GOOD, Mounted("/home", True, "ext4")], "/home is mounted and should not be"),
        ([Mounted("/", False, "tmpfs"), *GOOD[1:]], "/ is writable"),
        ([m.replace(read_only=False) if m.point == "/usr" else m for m in GOOD], "/usr is writable"),
        ([m.replace(read_only=False) if m.point == "/usr/share" else m for m in GOOD], "/usr/share is writable"),
        ([m.replace(read_only=False) if m.point == "/ws/.venv" else m for m in GOOD], "/ws/.venv is writable"),
        ([m.replace(read_only=False) if m.point == "/proc/irq" else m for m in GOOD], "/proc/irq is writable"),
        ([m.replace(fstype="ext4") if m.point == "/tmp" else m for m in GOOD], "/tmp is ext4"),
        ([m.replace(point="/etc") if m.point == "/ws/.venv" else m for m in GOOD], "/ws/.venv is not mounted"),
    ],
)
def test_every_difference_is_named(changed, words):
    assert words in "; ".join(Expected(PLAN, HOST).differences(changed))


def test_the_kernels_escapes_are_read():
    line = "66 65 254:0 /a /with\\040space\\012line\\134slash ro,nosuid - ext4 /dev/vda rw\n"
    assert parse(line) == [Mounted("/with space\nline\\slash", True, "ext4")]
    optional = "66 65 254:0 / /x rw,nosuid shared:1 master:2 - tmpfs tmpfs rw\nrubbish\n"
    assert parse(optional) == [Mounted("/x", False, "tmpfs")]
