"""A system call filter: what commands never need, refused by the kernel.

The rules are data; the generator turns them into the classic BPF program that seccomp loads. It has
one block for each system call it knows something about, and every block ends in an answer. What is
not listed is allowed, what did not exist when the list was made does not exist inside.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache

from ringfence.model.value import Value

EPERM, EINVAL, ENOSYS, EAFNOSUPPORT = 1, 22, 38, 97

# Numbers by architecture: x86-64, and the generic table that aarch64 uses.
SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, None),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "finit_module": (313, 273),
    "fork": (57, None),
    "fcntl": (72, 25),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "get_mempolicy": (239, 236),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "nfsservctl": (180, 42),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpgid": (109, 154),
    "setpriority": (141, 140),
    "setrlimit": (160, 164),
    "setsid": (112, 157),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vfork": (58, None),
    "vhangup": (153, 58),
}
HIGHEST = 468  # the next one, file_setattr of Linux 6.17, changes attributes outside

# Refused whatever their arguments: mounts, other processes, the kernel's own affairs, keys, clocks.
REFUSED = (
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "setns", "open_by_handle_at"),
    *("process_madvise", "pidfd_getfd", "bpf", "perf_event_open", "userfaultfd", "fanotify_init", "lookup_dcookie"),
    *("keyctl", "add_key", "request_key"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *("query_module", "get_kernel_syms", "nfsservctl", "_sysctl", "sysfs", "ustat", "uselib", "modify_ldt"),
    *("acct", "quotactl", "quotactl_fd", "reboot", "swapon", "swapoff", "syslog", "vhangup", "ioperm", "iopl"),
    *("clock_adjtime", "clock_settime", "adjtimex", "settimeofday", "sethostname", "setdomainname"),
    *("get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "mbind", "move_pages", "migrate_pages"),
)
# A debugger needs these, and a `debug` grant gives them.
TRACING = ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp")
# Said not to exist, because programs then fall back to calls whose arguments can be checked.
ABSENT = (
    *("clone3", "openat2", "fchmodat2"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
)
# Refused with `spawn` off, besides `clone` for anything but a thread.
SPAWNING = ("fork", "vfork")
# Refused where the host's IPC namespace is shared: whatever its user has there.
SHARED_IPC = (
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)


class Test(Value):
    """Whether the low 32 bits of an argument, masked, are (or are not) a value.

    Nearly every argument that is looked at is an `int`, a mode or a flag word: the kernel itself ignores
    the upper half, so a filter that compared it could be walked past. `upper` is for pointers.
    """

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    equal: bool = True
    upper: bool = False


def _some(argument: int, bits: int) -> Test:
    return Test(argument, 0, bits, equal=False)


def _is(argument: int, value: int, mask: int = 0xFFFFFFFF) -> Test:
    return Test(argument, value, mask)


def _not(argument: int, value: int, mask: int = 0xFFFFFFFF) -> Test:
    return Test(argument, value, mask, equal=False)


_NEW_NAMESPACES = 0x7E020080  # user, mount, pid, net, ipc, uts, cgroup and time
_THREAD = 0x00010000
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000  # O_CREAT and O_TMPFILE
_TYPE, _CHAR, _BLOCK = 0o170000, 0o020000, 0o060000
_INJECT, _LINUX_CONSOLE, _DISCIPLINE = 0x5412, 0x541C, 0x5423  # TIOCSTI, TIOCLINUX, TIOCSETD
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQPACKET, _KIND = 1, 2, 5, 0xF
_CORE = 4  # RLIMIT_CORE
_SET_LEASE = 1024  # F_SETLEASE, which makes whoever opens the file wait
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
_PID_1 = 1


def _nodes(argument: int) -> tuple[tuple[Test, ...], ...]:
    return (
        (_some(argument, _SET_ID),),
        (_is(argument, _CHAR, _TYPE),),
        (_is(argument, _BLOCK, _TYPE),),
    )


_SET_CORE = (
    (_is(1, _CORE), _not(2, 0)),
    (_is(1, _CORE), Test(2, 0, equal=False, upper=True)),
)

# Refused when one of the alternatives holds, and an alternative holds when all its tests do.
CONDITIONS: dict[str, tuple[tuple[Test, ...], ...]] = {
    "clone": ((_some(0, _NEW_NAMESPACES),),),
    "unshare": ((_some(0, _NEW_NAMESPACES),),),
    "ioctl": ((_is(1, _INJECT),), (_is(1, _LINUX_CONSOLE),), (_is(1, _DISCIPLINE),)),
    "prlimit64": ((_is(0, _PID_1),), *_SET_CORE),
    # One byte keeps every handler of the host from being fed; none would not.
    "setrlimit": ((_is(0, _CORE),),),
    "fcntl": ((_is(1, _SET_LEASE),),),
    "sched_setscheduler": ((_is(0, _PID_1),),),
    "sched_setparam": ((_is(0, _PID_1),),),
    "sched_setattr": ((_is(0, _PID_1),),),
    "sched_setaffinity": ((_is(0, _PID_1),),),
    "setpriority": ((_not(0, 0),), (_is(1, _PID_1),)),
    "ioprio_set": ((_not(0, 1),), (_is(1, _PID_1),)),
    "chmod": ((_some(1, _SET_ID),),),
    "fchmod": ((_some(1, _SET_ID),),),
    "fchmodat": ((_some(2, _SET_ID),),),
    "creat": ((_some(1, _SET_ID),),),
    "open": ((_some(1, _CREATES), _some(2, _SET_ID)),),
    "openat": ((_some(2, _CREATES), _some(3, _SET_ID)),),
    "mkdir": ((_some(1, _SET_ID),),),
    "mkdirat": ((_some(2, _SET_ID),),),
    "mknod": _nodes(1),
    "mknodat": _nodes(2),
    "socket": (
        tuple(_not(0, family) for family in (_UNIX, _INET, _INET6, _NETLINK)),
        (_is(0, _UNIX), _not(1, _STREAM, _KIND), _not(1, _SEQPACKET, _KIND)),
        (_is(0, _INET), _not(1, _STREAM, _KIND), _not(1, _DATAGRAM, _KIND)),
        (_is(0, _INET6), _not(1, _STREAM, _KIND), _not(1, _DATAGRAM, _KIND)),
        (_is(0, _NETLINK), _not(2, 0)),
    ),
    "socketpair": ((_not(0, _UNIX),), (_not(1, _STREAM, _KIND), _not(1, _SEQPACKET, _KIND))),
    "personality": (tuple(_not(0, allowed) for allowed in _PERSONALITIES),),
}
# Where namespaces are shared: limits and priorities of nobody but the caller, no socket of the host.
SHARED: dict[str, tuple[tuple[Test, ...], ...]] = {
    "prlimit64": ((_not(0, 0),), *_SET_CORE),
    "sched_setscheduler": ((_not(0, 0),),),
    "sched_setparam": ((_not(0, 0),),),
    "sched_setattr": ((_not(0, 0),),),
    "sched_setaffinity": ((_not(0, 0),),),
    "setpriority": ((_not(0, 0),), (_not(1, 0),)),
    "ioprio_set": ((_not(0, 1),), (_not(1, 0),)),
    # The kernel lets a process connect to every socket that its user may write to, whatever Landlock says.
    "socket": ((_is(0, _UNIX),), *CONDITIONS["socket"]),
}
NO_INET = ((_is(0, _INET),), (_is(0, _INET6),))
# With `debug`: never the sandbox's own first process.
TRACED: dict[str, tuple[tuple[Test, ...], ...]] = {
    "ptrace": ((_is(1, _PID_1),),),
    "process_vm_readv": ((_is(0, _PID_1),),),
    "process_vm_writev": ((_is(0, _PID_1),),),
    "kcmp": ((_is(0, _PID_1),), (_is(1, _PID_1),)),
}
# Some programs insist on setting their own core limit, and take this answer for an old kernel's.
_ANSWERS = {"socket": EAFNOSUPPORT, "prlimit64": EINVAL, "setrlimit": EINVAL}
# Said to be done, and not done: a command whose keeper ends it by its process group stays in that group.
PRETENDED = ("setsid", "setpgid")
_SET_OWNER, _SET_OWNER_EX = 8, 15  # of fcntl: whom a signal about a descriptor goes to
_SOCKET_OWNERS = ((_is(1, 0x8901),), (_is(1, 0x8902),))  # FIOSETOWN, SIOCSPGRP


def _keeping(pid: int) -> dict[str, tuple[tuple[Test, ...], ...]]:
    """Keep every signal away from one process, and from the group that it leads."""
    itself = (_is(0, pid),)
    return {
        "kill": (itself, (_is(0, -pid & 0xFFFFFFFF),), (_is(0, 0xFFFFFFFF),)),
        "tkill": (itself,),
        "tgkill": (itself,),
        "rt_sigqueueinfo": (itself,),
        "rt_tgsigqueueinfo": (itself,),
        "fcntl": (*CONDITIONS["fcntl"], (_is(1, _SET_OWNER),), (_is(1, _SET_OWNER_EX),)),
    }


_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000
_LOAD, _AND, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

Instruction = tuple[int, int, int, int]


class Profile(Value):
    """What a filter depends on.

    `shared` says that the command has no namespaces of its own, `inet` whether it may have internet
    sockets, and `keeper` is a process outside that it must not signal, where nothing else keeps it, and
    that ends it by its process group.
    """

    spawn: bool = True
    debug: bool = False
    shared: bool = False
    inet: bool = True
    keeper: int = 0


def supported(machine: str | None = None) -> bool:
    """Tell whether there is a filter for this machine's architecture."""
    return (machine or os.uname().machine) in _ARCHITECTURES


@lru_cache(maxsize=16)
def program(profile: Profile, machine: str | None = None) -> bytes:
    """Return the filter as the kernel takes it."""
    column, architecture = _ARCHITECTURES[machine or os.uname().machine]
    blocks: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_SET, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL if column == 0 else _ERRNO | ENOSYS),
        (_JUMP_ABOVE, 0, 1, HIGHEST),
        (_RETURN, 0, 0, _ERRNO | ENOSYS),
    ]
    for name, answer in _rules(profile).items():
        number = SYSCALLS[name][column]
        if number is not None:
            blocks += [(_JUMP_EQUAL, 0, len(answer), number), *answer]
    blocks.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in blocks)


def answers(profile: Profile) -> dict[str, tuple[int, tuple[tuple[Test, ...], ...]]]:
    """Return what is refused: by name, the error, and when; no alternatives mean always."""
    refused = [*REFUSED, *(() if profile.debug else TRACING), *(() if profile.spawn else SPAWNING)]
    absent = list(ABSENT)
    pretended: tuple[str, ...] = ()
    conditions = {**CONDITIONS, **(TRACED if profile.debug else {})}
    if profile.shared:
        refused += SHARED_IPC
        conditions |= SHARED
    if not profile.inet:
        conditions["socket"] += NO_INET
    if profile.keeper:
        absent.append("pidfd_send_signal")
        conditions |= _keeping(profile.keeper)
        conditions["ioctl"] = CONDITIONS["ioctl"] + _SOCKET_OWNERS
        pretended = PRETENDED
    if profile.debug:
        del conditions["personality"]
    if not profile.spawn:
        conditions["clone"] += ((_is(0, 0, _THREAD),),)
    return {
        **dict.fromkeys(refused, (EPERM, ())),
        **dict.fromkeys(absent, (ENOSYS, ())),
        **dict.fromkeys(pretended, (0, ())),
        **{name: (_ANSWERS.get(name, EPERM), alternatives) for name, alternatives in conditions.items()},
    }


def _rules(profile: Profile) -> dict[str, list[Instruction]]:
    return {
        name: _conditional(alternatives, _ERRNO | error) if alternatives else [(_RETURN, 0, 0, _ERRNO | error)]
        for name, (error, alternatives) in answers(profile).items()
    }


def _conditional(alternatives: tuple[tuple[Test, ...], ...], answer: int) -> list[Instruction]:
    code: list[Instruction] = []
    for tests in alternatives:
        left = 3 * len(tests) + 1
        for test in tests:
            left -= 3
            # Where a test fails, the rest of this alternative and its answer are jumped over.
            jumps = (0, left) if test.equal else (left, 0)
            code += [
                (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * test.argument + (4 if test.upper else 0)),
                (_AND, 0, 0, test.mask),
                (_JUMP_EQUAL, *jumps, test.value),
            ]
        code.append((_RETURN, 0, 0, answer))
    return [*code, (_RETURN, 0, 0, _ALLOW)]
