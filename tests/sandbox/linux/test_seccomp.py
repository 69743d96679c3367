"""The system call filter: what the program says, and what the kernel then does."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys

import pytest

from ringfence.sandbox.linux import seccomp
from ringfence.sandbox.linux.seccomp import Profile

ALLOW, KILL = 0x7FFF0000, 0x80000000
PROFILES = [
    Profile(),
    Profile(spawn=False),
    Profile(debug=True),
    Profile(shared=True),
    Profile(shared=True, inet=False, keeper=4711),
]


def refused(errno: int) -> int:
    return 0x00050000 | errno


def evaluate(code: bytes, number: int, arguments=(), architecture=0xC000003E) -> int:
    """Run a classic BPF program over a system call, as the kernel would."""
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *[*arguments, *[0] * 6][:6])
    program = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    accumulator = at = 0
    while True:
        operation, if_true, if_false, value = program[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x25: accumulator > value, 0x45: bool(accumulator & value)}[operation]
            at += if_true if holds else if_false


def number(name: str) -> int:
    found = seccomp.SYSCALLS[name][0]
    assert found is not None
    return found


@pytest.fixture(scope="module")
def default():
    return seccomp.program(Profile(), "x86_64")


def test_every_path_through_every_program_ends_in_an_answer():
    for profile in PROFILES:
        for machine in ("x86_64", "aarch64"):
            code = seccomp.program(profile, machine)
            program = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
            assert len(program) < 4096
            for at, (operation, if_true, if_false, _) in enumerate(program):
                if operation in {0x15, 0x25, 0x45}:
                    assert at + 1 + max(if_true, if_false) < len(program)
            assert program[-1][0] == 0x06


def test_other_architectures_and_x32_are_killed(default):
    assert evaluate(default, 39) == ALLOW
    assert evaluate(default, 39, architecture=0x40000003) == KILL  # i386
    assert evaluate(default, 39, architecture=0xC00000B7) == KILL
    assert evaluate(default, 39 | 0x40000000) == KILL


def test_what_is_newer_than_the_list_does_not_exist(default):
    assert evaluate(default, seccomp.HIGHEST) == ALLOW
    assert evaluate(default, seccomp.HIGHEST + 1) == refused(38)
    assert evaluate(default, 0x3FFFFFFF) == refused(38)


@pytest.mark.parametrize("name", seccomp.REFUSED)
def test_refused_calls(default, name):
    assert evaluate(default, number(name)) == refused(1)


def test_profiles_differ_where_they_should():
    strict = seccomp.program(Profile(spawn=False), "x86_64")
    debug = seccomp.program(Profile(debug=True), "x86_64")
    default = seccomp.program(Profile(), "x86_64")
    for name in seccomp.TRACING:
        assert evaluate(default, number(name)) == refused(1)
        assert evaluate(debug, number(name), [77, 77]) == ALLOW
        assert evaluate(debug, number(name), [1, 1]) == refused(1)
    assert evaluate(debug, number("pidfd_getfd")) == refused(1)
    thread, process = 0x10000 | 0x100, 0x11
    for flags, answers in ((thread, (ALLOW, ALLOW)), (process, (ALLOW, refused(1)))):
        assert (evaluate(default, 56, [flags]), evaluate(strict, 56, [flags])) == answers
    assert evaluate(strict, number("vfork")) == refused(1)
    assert evaluate(default, number("vfork")) == ALLOW
    assert evaluate(debug, number("mount")) == refused(1)


HIGH = 0xDEADBEEF00000000  # the kernel ignores the upper half of these arguments, and so must the filter


@pytest.mark.parametrize("upper", [0, HIGH])
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("clone", [0x10000000], refused(1)),
        ("clone", [0x00020011], refused(1)),
        ("clone", [0x01200011], ALLOW),
        ("unshare", [0x10000000], refused(1)),
        ("unshare", [0x80], refused(1)),
        ("unshare", [0x400], ALLOW),
        ("clone3", [], refused(38)),
        ("openat2", [], refused(38)),
        ("io_uring_setup", [], refused(38)),
        ("ioctl", [0, 0x5412], refused(1)),
        ("ioctl", [0, 0x541C], refused(1)),
        ("ioctl", [0, 0x5413], ALLOW),
        ("prlimit64", [1], refused(22)),
        ("prlimit64", [0, 4, 8], refused(22)),
        ("prlimit64", [0, 7, 8], ALLOW),
        ("fcntl", [3, 1024], refused(1)),
        ("fcntl", [3, 2], ALLOW),
        ("prlimit64", [0], ALLOW),
        ("prlimit64", [77], ALLOW),
        ("setpriority", [0, 1], refused(1)),
        ("setpriority", [2, 0], refused(1)),
        ("setpriority", [0, 0], ALLOW),
        ("sched_setscheduler", [1], refused(1)),
        ("sched_setaffinity", [0], ALLOW),
        ("ioprio_set", [1, 1], refused(1)),
        ("ioprio_set", [1, 0], ALLOW),
        ("chmod", [0, 0o4755], refused(1)),
        ("chmod", [0, 0o2755], refused(1)),
        ("chmod", [0, 0o1777], ALLOW),
        ("fchmodat", [0, 0, 0o6000], refused(1)),
        ("open", [0, 0o100, 0o4755], refused(1)),
        ("open", [0, 0, 0o4755], ALLOW),
        ("openat", [0, 0, 0o20000000, 0o2000], refused(1)),
        ("openat", [0, 0, 0o101, 0o644], ALLOW),
        ("mkdirat", [0, 0, 0o2775], refused(1)),
        ("mknodat", [0, 0, 0o020666], refused(1)),
        ("mknodat", [0, 0, 0o060666], refused(1)),
        ("mknodat", [0, 0, 0o010666], ALLOW),
        ("mknod", [0, 0o104755], refused(1)),
        ("socket", [1, 1], ALLOW),
        ("socket", [1, 0o2004001], ALLOW),
        ("socket", [1, 5], ALLOW),
        ("socket", [1, 2], refused(97)),
        ("socket", [2, 1], ALLOW),
        ("socket", [10, 2], ALLOW),
        ("socket", [2, 3], refused(97)),
        ("socket", [16, 3, 0], ALLOW),
        ("socket", [16, 3, 9], refused(97)),
        ("socket", [40, 1], refused(97)),
        ("socket", [17, 3], refused(97)),
        ("socket", [38, 5], refused(97)),
        ("socketpair", [1, 1], ALLOW),
        ("socketpair", [1, 5], ALLOW),
        ("socketpair", [1, 2], refused(1)),
        ("personality", [0], ALLOW),
        ("personality", [0xFFFFFFFF], ALLOW),
        ("personality", [0x40000], refused(1)),
    ],
)
def test_arguments(default, name, arguments, answer, upper):
    assert evaluate(default, number(name), [a | upper for a in arguments]) == answer


def test_the_numbers_are_the_kernels():
    """Against the headers that this machine's C compiler uses, where they know the call."""
    tables = (
        ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)", 0),
        ("/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)", 1),
    )
    compared = 0
    for path, pattern, column in tables:
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                known = {m[1]: int(m[2]) for m in re.finditer(pattern, file.read())}
            for name, numbers in seccomp.SYSCALLS.items():
                if name in known:
                    assert numbers[column] == known[name], name
                    compared += 1
    if not compared:
        libc = ctypes.CDLL(None, use_errno=True)
        assert (
            libc.syscall(seccomp.SYSCALLS["personality"][0 if os.uname().machine == "x86_64" else 1], 0xFFFFFFFF) >= 0
        )


PROBE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
number, *arguments = map(int, sys.argv[1:])
result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
print(0 if result >= 0 else ctypes.get_errno())
"""

# Calls that reach the kernel without privileges, each with what an unfiltered process gets.
KERNEL = [
    ("ptrace", [0, 0, 0, 0], 1),
    ("personality", [0x40000], 1),
    ("keyctl", [0, -3, 1], 1),
    ("unshare", [0x10000000], 1),
    ("clone3", [0, 0], 38),
    ("io_uring_setup", [1, 0], 38),
    ("openat2", [-100, 0, 0, 0], 38),
    ("socket", [1, 2, 0], 97),
    ("socket", [40, 1, 0], 97),
    ("socket", [16, 3, 15], 97),
    ("userfaultfd", [1], 1),
    ("kcmp", [0, 0, 0, 0, 0], 1),
    ("get_mempolicy", [0, 0, 0, 0, 0], 1),
    ("setpriority", [2, 4711, 19], 1),  # a user who has no processes
]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
@pytest.mark.parametrize(("name", "arguments", "errno"), KERNEL)
def test_the_kernel_refuses_inside_and_not_outside(session, workspace, name, arguments, errno):
    (workspace / "probe.py").write_text(PROBE)
    command = ["python3", "probe.py", str(number(name)), *map(str, arguments)]
    outside = subprocess.run([sys.executable, *command[1:]], cwd=workspace, capture_output=True, text=True, check=True)
    inside = session.run(command).check()
    assert int(inside.stdout) == errno
    assert int(outside.stdout) != errno or name == "unshare"


def test_spawn_off_is_kept_by_the_kernel(session):
    caps = session.capabilities.without_spawn()
    assert session.run("echo builtin; exec id -u", capabilities=caps).stdout.split()[0] == "builtin"
    for text in ("id; id", "(true)", "sleep 0 & wait", "$(id)", "id | cat"):
        out = session.run(text, capabilities=caps)
        assert "fork" in out.stderr
    thread = [
        "python3",
        "-c",
        "import threading; t = threading.Thread(target=print, args=['thread']); t.start(); t.join()",
    ]
    assert session.run(thread, capabilities=session.capabilities).stdout == "thread\n"
    real = os.path.realpath(sys.executable)
    if session.run(["test", "-x", real], capabilities=caps).ok:
        assert session.run([real, *thread[1:]], capabilities=caps).stdout == "thread\n"


def test_debug_is_a_grant(session, workspace):
    from ringfence import Fence
    from ringfence.testing import FakeApprover

    (workspace / "probe.py").write_text(PROBE)
    command = ["python3", "probe.py", str(number("ptrace")), "0", "0", "0", "0"]
    assert session.run(command).stdout == "1\n"
    with Fence(approver=FakeApprover()) as fence, fence.session(workspace=workspace) as other:
        assert other.run(command, capabilities=other.capabilities.replace(debug=True)).stdout == "0\n"


def test_set_id_files_cannot_be_made(session, workspace):
    for text in (
        "touch f && chmod u+s f",
        "install -m 4755 /bin/true g",
        "mkdir -m 2775 d",
        "python3 -c \"import os; os.open('h', os.O_CREAT, 0o4755)\"",
    ):
        subprocess.run(["/bin/bash", "-c", text], cwd=workspace, check=True, capture_output=True)
        made = [p for p in workspace.iterdir() if p.lstat().st_mode & 0o6000]
        assert made, text
        for path in workspace.iterdir():
            subprocess.run(["rm", "-rf", path], check=True)
        session.run(text)
        assert [p for p in workspace.iterdir() if p.lstat().st_mode & 0o6000] == []
        for path in workspace.iterdir():
            subprocess.run(["rm", "-rf", path], check=True)


def test_a_terminals_input_cannot_be_forged(session):
    out = session.run(["python3", "-c", "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"])
    assert "Operation not permitted" in out.stderr
