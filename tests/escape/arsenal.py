"""Attacks, as functions that run where a command runs: inside, or outside for the control arm.

This file is copied into the workspace and run as `python3 arsenal.py NAME WORLD`, so it uses nothing
but the standard library. An attack returns true when it got what it was after; what it changes on
the host is seen there. The world it is given is described in `world.py`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

ATTACKS = {}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ARM = os.uname().machine == "aarch64"


def attack(family, *, guarantee="", only=""):
    """Enter an attack into the table.

    `guarantee` is what keeps it out where a backend may lack it; `only` says for which user it makes
    sense ("root" or "user").
    """

    def enter(function):
        ATTACKS[function.__name__.replace("_", "-")] = (family, guarantee, only, function)
        return function

    return enter


def shell(name, family, text, **options):
    """Enter an attack that is a line of shell; $V is the directory outside, $W the workspace."""

    def run(world):
        env = {**os.environ, "V": world["outside"], "W": os.getcwd(), "MARK": world["sleep"]}
        done = subprocess.run(["/bin/bash", "-c", text], env=env, capture_output=True, text=True, check=False)
        return world["secret"] in done.stdout

    run.__name__ = name
    attack(family, **options)(run)


def call(numbers, *arguments):
    """Make a system call by its number on x86-64 and aarch64; raise what it answers."""
    ctypes.set_errno(0)
    words = [
        a if isinstance(a, (ctypes.c_char_p, ctypes.c_void_p, ctypes.Array)) else ctypes.c_long(a) for a in arguments
    ]
    result = libc.syscall(ctypes.c_long(numbers[ARM]), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# --- writing outside -------------------------------------------------------------------------------

shell("create", "write", "echo pwned > $V/new")
shell("overwrite", "write", "echo pwned > $V/victim")
shell("append", "write", "echo pwned >> $V/victim")
shell("rename", "write", "mv $V/victim $V/gone")
shell("unlink", "write", "rm -f $V/victim")
shell("make_directory", "write", "mkdir $V/new")
shell("write_through_a_link", "write", "ln -s $V link && echo pwned > link/new")
shell("write_to_a_link", "write", "ln -s $V/victim link && echo pwned > link")
shell("dot_dot", "write", "mkdir -p a/b && echo pwned > a/b/../../$(realpath --relative-to=$PWD $V)/new")
shell("proc_self_root", "write", "echo pwned > /proc/self/root$V/new")
shell("proc_1_root", "write", "echo pwned > /proc/1/root$V/new || echo pwned > /proc/self/root$V/new")
shell("proc_self_cwd", "write", "cd $V && echo pwned > /proc/self/cwd/new")
shell("hard_link", "write", "ln $V/victim here && echo pwned > here")
shell("move_in_and_change", "write", "mv $V/victim here && echo pwned > here")
shell("write_a_fifo", "write", "timeout 2 bash -c 'echo pwned > $V/fifo'")
shell("chmod_outside", "metadata", "chmod 777 $V/victim", guarantee="metadata")
shell("utime_outside", "metadata", "touch -d @0 $V/victim", guarantee="metadata")


@attack("metadata", guarantee="metadata")
def xattr_outside(world):
    os.setxattr(world["file"], "user.x", b"pwned")


@attack("metadata", guarantee="metadata")
def names_outside_are_known(world):
    return os.path.exists(world["file"])


@attack("write")
def truncate_outside(world):
    os.truncate(world["file"], 0)


@attack("write")
def open_and_truncate_outside(world):
    os.close(os.open(world["file"], os.O_RDONLY | os.O_TRUNC))


@attack("write")
def write_by_mapping(world):
    with open(world["file"], "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:1] = b"X"


@attack("write")
def reopen_for_writing(world):
    fd = os.open(world["file"], os.O_RDONLY)
    with open(f"/proc/self/fd/{fd}", "w") as file:
        file.write("pwned")


@attack("write")
def exchange(world):
    with open("mine", "w") as file:
        file.write("pwned")
    at = -100
    call((316, 276), at, ctypes.c_char_p(b"mine"), at, ctypes.c_char_p(world["file"].encode()), 2)


@attack("write", only="root")
def open_by_handle(world):
    """The way out of containers that were given too much."""
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount = ctypes.create_string_buffer(4)
    call((303, 264), -100, ctypes.c_char_p(b"/"), handle, mount, 0)
    root = os.open("/", os.O_RDONLY)
    call((304, 265), root, handle, os.O_RDONLY)
    return True


# --- reading outside -------------------------------------------------------------------------------

shell("read", "read", "cat $V/secret")
shell("read_through_a_link", "read", "ln -s $V/secret link && cat link")
shell("read_through_proc_root", "read", "cat /proc/self/root$V/secret")
shell("read_through_cwd", "read", "cd $V && cat secret")
shell("read_by_find", "read", "find $V -name secret -exec cat {} +")
shell("copy_then_read", "read", "cp $V/secret copy; cat copy")
shell("link_then_read", "read", "ln $V/secret linked; cat linked")
shell("read_the_home", "read", "cat $(getent passwd $(id -u) | cut -d: -f6)/.ringfence-test-$MARK")
shell("read_a_credential", "read", "cat ~/.ssh/id_ringfence_test ~/.aws/ringfence-test")
shell("read_a_hidden_file", "read", "cat .env", guarantee="hidden")
shell("move_a_hidden_file", "read", "cp .env copy; cat copy; mv .env e; cat e; mv e .env", guarantee="hidden")


@attack("read")
def list_outside(world):
    return "secret" in os.listdir(world["outside"])


@attack("read", only="root")
def read_shadow(world):
    with open("/etc/shadow") as file:
        return bool(file.read())


@attack("read")
def environment_secrets(world):
    return world["secret"] in str(os.environ)


@attack("own")
def another_sessions_file(world):
    with open(world["other_session"]) as file:
        return world["secret"] in file.read()


@attack("own")
def write_another_sessions_file(world):
    with open(world["other_session"], "a") as file:
        file.write("x")
    return True


@attack("own")
def our_state(world):
    return bool(os.listdir(world["state"]))


@attack("own")
def our_configuration(world):
    with open(os.path.join(world["config"], "config.toml")) as file:
        return bool(file.read())


@attack("own")
def write_our_configuration(world):
    with open(os.path.join(world["config"], "config.toml"), "a") as file:
        file.write("\n")
    return True


@attack("own")
def write_our_package(world):
    with open(os.path.join(world["package"], "planted.py"), "w") as file:
        file.write("")
    os.unlink(os.path.join(world["package"], "planted.py"))
    return True


# --- user namespaces and mounts --------------------------------------------------------------------


def in_namespace(flags, world):
    """Become root of a namespace, and put the directory outside where the workspace's own was."""
    uid, gid = os.getuid(), os.getgid()
    call((272, 97), flags)
    with open("/proc/self/setgroups", "w") as file:
        file.write("deny")
    for name, value in (("uid_map", uid), ("gid_map", gid)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"0 {value} 1")
    return True


@attack("namespaces")
def new_user_namespace(world):
    return in_namespace(0x10000000, world)


@attack("namespaces")
def replace_by_a_mount_of_its_own(world):
    in_namespace(0x10020000, world)
    os.makedirs("a/.git", exist_ok=True)
    os.makedirs("b", exist_ok=True)
    source, target = os.path.abspath("b").encode(), os.path.abspath("a/.git").encode()
    if libc.mount(source, target, None, ctypes.c_ulong(4096), None):
        raise OSError(ctypes.get_errno(), "mount")
    return True


@attack("namespaces")
def clone_into_a_user_namespace(world):
    pid = call((56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


@attack("namespaces")
def clone3_into_a_user_namespace(world):
    arguments = ctypes.create_string_buffer(struct.pack("=8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
    pid = call((435, 435), arguments, 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


@attack("namespaces", only="root")
def enter_the_victims_namespaces(world):
    fd = os.open(f"/proc/{world['victim']}/ns/uts", os.O_RDONLY)
    call((308, 268), fd, 0)
    return True


@attack("namespaces", only="root")
def mount_a_file_system(world):
    os.makedirs("point", exist_ok=True)
    if libc.mount(b"none", os.path.abspath("point").encode(), b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")
    libc.umount2(os.path.abspath("point").encode(), 2)
    return True


@attack("namespaces", only="root")
def mount_by_the_new_calls(world):
    os.close(call((430, 430), ctypes.c_char_p(b"tmpfs"), 0))
    return True


@attack("namespaces", only="root")
def unmount_what_covers(world):
    """Take a cover away; the control arm has one of its own to take."""
    if os.path.ismount("/proc/1"):
        return not libc.umount2(b"/proc/1", 2)
    return mount_a_file_system(world)


@attack("namespaces", only="root")
def change_root(world):
    pid = os.fork()
    if pid == 0:
        os._exit(libc.chroot(b".") and 1)
    return os.waitpid(pid, 0)[1] == 0


# --- /proc and the kernel --------------------------------------------------------------------------


def of_victim(name):
    def run(world):
        with open(f"/proc/{world['victim']}/{name}", "rb") as file:
            return world["secret"].encode() in file.read()

    run.__name__ = f"victims_{name}"
    return run


attack("proc")(of_victim("environ"))
attack("proc", guarantee="processes")(of_victim("cmdline"))


@attack("proc")
def victims_root(world):
    return bool(os.listdir(f"/proc/{world['victim']}/root/"))


@attack("proc")
def victims_cwd(world):
    return "secret" in os.listdir(f"/proc/{world['victim']}/cwd/")


@attack("proc")
def victims_descriptors(world):
    with open(f"/proc/{world['victim']}/fd/0", "rb") as file:
        return world["secret"].encode() in file.read()


@attack("proc")
def victims_memory(world):
    os.close(os.open(f"/proc/{world['victim']}/mem", os.O_RDWR))
    return True


@attack("proc")
def parents_memory(world):
    os.close(os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR))
    return True


@attack("proc")
def parents_environment(world):
    with open(f"/proc/{os.getppid()}/environ", "rb") as file:
        return world["secret"].encode() in file.read()


@attack("proc")
def parents_descriptors(world):
    return bool(os.readlink(f"/proc/{os.getppid()}/fd/0"))


def kernel_setting(path):
    def run(world):
        with open(path) as file:
            value = file.read()
        with open(path, "w") as file:
            file.write(value)
        return True

    run.__name__ = "set_" + path.rpartition("/")[2]
    return run


for _name in ("kernel/core_pattern", "kernel/panic", "vm/swappiness", "kernel/domainname", "net/ipv4/ip_forward"):
    attack("proc", only="root")(kernel_setting(f"/proc/sys/{_name}"))


def kernel_file(path):
    def run(world):
        with open(path, "rb") as file:
            return any(line[:16].strip(b"0 \n") for line in file.read(4096).splitlines())

    run.__name__ = "read_" + path.rpartition("/")[2]
    return run


for _name in ("/proc/kallsyms", "/proc/kcore", "/proc/slabinfo", "/proc/vmallocinfo"):
    if os.path.exists(_name):
        attack("proc", guarantee="no-root", only="root")(kernel_file(_name))
attack("proc", guarantee="processes")(kernel_file("/proc/keys"))


@attack("proc", only="root")
def read_the_kernel_log(world):
    buffer = ctypes.create_string_buffer(4096)
    call((103, 116), 3, buffer, 4096)
    return True


# --- other processes -------------------------------------------------------------------------------


@attack("processes", guarantee="processes")
def kill_the_victim(world):
    os.kill(world["victim"], signal.SIGTERM)


@attack("processes", guarantee="processes")
def kill_the_victims_group(world):
    os.killpg(world["victim"], signal.SIGTERM)


@attack("processes", guarantee="processes")
def kill_by_descriptor(world):
    signal.pidfd_send_signal(os.pidfd_open(world["victim"]), signal.SIGTERM)


@attack("processes", guarantee="processes")
def signal_by_io(world):
    """A descriptor whose owner is the victim sends it the signal of our choice."""
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, world["victim"])
    fcntl.fcntl(ours, 10, signal.SIGTERM)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    theirs.send(b"x")


@attack("processes")
def limit_the_victim(world):
    resource.prlimit(world["victim"], resource.RLIMIT_CORE, (0, 0))
    return True


@attack("processes")
def slow_the_victim(world):
    os.setpriority(os.PRIO_PROCESS, world["victim"], 19)


@attack("processes")
def slow_the_victims_group(world):
    os.setpriority(os.PRIO_PGRP, world["victim"], 19)


@attack("processes")
def pin_the_victim(world):
    os.sched_setaffinity(world["victim"], {min(os.sched_getaffinity(0))})
    return True


@attack("processes")
def starve_the_victims_io(world):
    call((251, 30), 1, world["victim"], 3 << 13)
    return True


@attack("processes")
def trace_the_victim(world):
    call((101, 117), 0x4206, world["victim"], 0, 0)  # PTRACE_SEIZE
    return True


@attack("processes")
def trace_a_child(world):
    """Not an escape by itself, but the way to many; a grant lifts it."""
    pid = os.fork()
    if pid == 0:
        time.sleep(5)
        os._exit(0)
    try:
        call((101, 117), 0x4206, pid, 0, 0)
        return True
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def vm_call(numbers, world):
    buffer = ctypes.create_string_buffer(16)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_size_t * 2)(world["victim_address"], 8)
    return call(numbers, world["victim"], local, 1, remote, 1, 0) == 8


@attack("processes")
def read_the_victims_memory(world):
    return vm_call((310, 270), world)


@attack("processes")
def take_the_victims_descriptor(world):
    call((438, 438), os.pidfd_open(world["victim"]), 0, 0)
    return True


@attack("processes", only="root")
def compare_with_the_victim(world):
    call((312, 272), os.getpid(), world["victim"], 2, 0, 0)
    return True


@attack("first process")
def kill_what_keeps_us(world):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal goes with the one that is killed
    before = os.getppid()
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(before, number)
        time.sleep(0.1)
    return os.getppid() != before


@attack("first process")
def limit_what_keeps_us(world):
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))
    return True


@attack("first process")
def slow_what_keeps_us(world):
    os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)
    return True


@attack("first process")
def reschedule_what_keeps_us(world):
    os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))
    return True


@attack("first process")
def outlive_what_keeps_us(world):
    """Leave a process behind that goes on after the command has ended."""
    if os.fork() == 0:
        os.setsid()
        for fd in (0, 1, 2):
            os.close(fd)
        if os.fork():
            os._exit(0)
        os.execvp("sleep", ["sleep", world["sleep"]])


# --- sockets ---------------------------------------------------------------------------------------


def hear(sock, world):
    sock.settimeout(2)
    return world["secret"].encode() in sock.recv(64)


@attack("sockets")
def connect_to_a_socket_file(world):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(world["stream"])
        return hear(sock, world)


@attack("sockets")
def connect_to_a_socket_in_the_workspace(world):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(world["stream_in_workspace"])
        return hear(sock, world)


@attack("sockets")
def datagram_to_a_socket_file(world):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"pwned", world["datagram"])


@attack("sockets")
def datagram_by_sendmsg(world):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendmsg([b"pwned"], [], 0, world["datagram"])


@attack("sockets")
def datagram_from_a_pair(world):
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.connect(world["datagram"])
    ours.send(b"pwned")


@attack("sockets")
def connect_to_an_abstract_socket(world):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + world["abstract"])
        return hear(sock, world)


@attack("sockets")
def connect_to_the_hosts_loopback(world):
    with socket.create_connection(("127.0.0.1", world["port"]), timeout=2) as sock:
        return hear(sock, world)


@attack("sockets")
def datagram_to_the_hosts_loopback(world):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"pwned", ("127.0.0.1", world["udp"]))


def open_socket(name, family, kind, protocol=0, **options):
    def run(world):
        socket.socket(family, kind, protocol).close()
        return True

    run.__name__ = name
    attack("sockets", **options)(run)


open_socket("netlink_audit", 16, socket.SOCK_RAW, 9)
open_socket("netlink_uevents", 16, socket.SOCK_RAW, 15)
open_socket("vsock", 40, socket.SOCK_STREAM)
open_socket("raw_socket", socket.AF_INET, socket.SOCK_RAW, 1, only="root")
open_socket("packet_socket", 17, socket.SOCK_RAW, 3, only="root")


# --- what the kernel offers besides ----------------------------------------------------------------


@attack("kernel")
def io_uring(world):
    os.close(call((425, 425), 4, ctypes.create_string_buffer(120)))
    return True


@attack("kernel")
def add_a_key(world):
    call((248, 217), ctypes.c_char_p(b"user"), ctypes.c_char_p(b"ringfence-test"), ctypes.c_char_p(b"x"), 1, -2)
    return True


@attack("kernel")
def read_the_users_keys(world):
    call((250, 219), 0, -4, 0)  # the id of the user's own keyring
    return True


@attack("kernel")
def request_a_key(world):
    try:
        call((249, 218), ctypes.c_char_p(b"user"), ctypes.c_char_p(b"ringfence-none"), ctypes.c_char_p(None), 0)
    except OSError as error:
        return error.errno in {errno.ENOKEY, 129, 128}
    return True


@attack("kernel")
def user_faults(world):
    os.close(call((323, 282), 1))
    return True


@attack("kernel", only="root")
def bpf(world):
    os.close(call((321, 280), 0, ctypes.create_string_buffer(struct.pack("=IIII", 2, 4, 8, 1) + bytes(112)), 128))
    return True


@attack("kernel", only="root")
def performance_events(world):
    event = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 128, 0) + bytes(112))
    os.close(call((298, 241), event, 0, -1, -1, 0))
    return True


@attack("kernel")
def change_memory_policy(world):
    call((238, 237), 0, 0, 0)
    return True


@attack("kernel")
def another_personality(world):
    call((135, 92), 0x40000)  # without address space randomisation
    call((135, 92), 0)
    return True


@attack("kernel", only="root")
def set_the_hosts_name(world):
    name = os.uname().nodename.encode()
    call((170, 161), ctypes.c_char_p(name), len(name))
    return True


@attack("kernel", only="root")
def set_the_clock(world):
    """To what it is, give or take a microsecond."""
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))
    return True


# --- inter-process communication -------------------------------------------------------------------


@attack("ipc")
def attach_shared_memory(world):
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(world["shm"], None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return world["secret"].encode() in ctypes.string_at(address, 64)


@attack("ipc")
def take_a_message(world):
    buffer = ctypes.create_string_buffer(72)
    if libc.msgrcv(world["queue"], buffer, 64, 0, 0o4000) < 0:
        raise OSError(ctypes.get_errno(), "msgrcv")
    return world["secret"].encode() in buffer.raw


@attack("ipc")
def open_a_message_queue(world):
    queue = libc.mq_open(world["mqueue"].encode(), os.O_RDONLY)
    if queue < 0:
        raise OSError(ctypes.get_errno(), "mq_open")
    return True


@attack("ipc")
def read_shared_memory_by_name(world):
    with open(world["posix_shm"], "rb") as file:
        return world["secret"].encode() in file.read()


# --- terminals and devices -------------------------------------------------------------------------


@attack("devices")
def write_to_another_terminal(world):
    fd = os.open(world["terminal"], os.O_WRONLY | os.O_NOCTTY)
    os.write(fd, b"pwned")


@attack("devices")
def write_to_the_terminal(world):
    """Needs a controlling terminal, which the control arm has."""
    os.close(os.open("/dev/tty", os.O_RDWR))
    return True


@attack("devices")
def type_into_the_terminal(world):
    """Needs a controlling terminal, which the control arm has."""
    fd = os.open("/dev/tty", os.O_RDWR)
    fcntl.ioctl(fd, 0x5412, b"x")
    return True


@attack("devices", only="root")
def make_a_device(world):
    os.mknod("device", 0o20666, os.makedev(1, 3))
    os.unlink("device")
    return True


@attack("devices", guarantee="metadata", only="root")
def change_a_device(world):
    os.chmod("/dev/full", 0o666)
    return True


@attack("devices", only="root")
def make_a_file_among_devices(world):
    os.close(os.open("/dev/planted", os.O_CREAT | os.O_WRONLY))
    os.unlink("/dev/planted")
    return True


@attack("devices", only="root")
def open_the_kernel_log(world):
    os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    return True


# --- privileges ------------------------------------------------------------------------------------

shell("plant_a_set_id_file", "privileges", "cp /bin/true planted; chmod u+s planted")
shell("install_a_set_id_file", "privileges", "install -m 4755 /bin/true planted")
shell("make_a_set_id_directory", "privileges", "mkdir -m 2775 planted")


@attack("privileges")
def create_a_set_id_file(world):
    os.close(os.open("planted", os.O_CREAT | os.O_WRONLY, 0o4755))


@attack("privileges")
def set_id_by_fchmodat2(world):
    with open("planted", "w"):
        pass
    call((452, 452), -100, ctypes.c_char_p(b"planted"), 0o4755, 0)


@attack("privileges")
def set_id_in_memory(world):
    """A program in memory with a set-user-ID bit, executed by descriptor."""
    fd = os.memfd_create("program", 0)
    os.fchmod(fd, 0o4755)
    return bool(os.fstat(fd).st_mode & 0o4000)


@attack("privileges")
def new_privileges(world):
    with open("/proc/self/status") as file:
        return "\nNoNewPrivs:\t0\n" in file.read()


@attack("privileges", only="root")
def capabilities(world):
    with open("/proc/self/status") as file:
        found = [line.split()[1] for line in file if line.startswith(("CapPrm", "CapEff", "CapBnd"))]
    return any(int(mask, 16) for mask in found[:2])


@attack("privileges", guarantee="no-root", only="root")
def act_as_root(world):
    with open(world["roots"]) as file:
        return world["secret"] in file.read()


@attack("privileges", only="root")
def give_files_away(world):
    with open("given", "w"):
        pass
    os.chown("given", 4711, 4711)
    return True


@attack("privileges", only="root")
def become_somebody_else(world):
    os.setresuid(4711, 4711, 4711)
    return True


def main(name, world):
    """Try one attack and say what came of it."""
    try:
        done = ATTACKS[name][3](world)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"failed: {error}")
        return
    print("succeeded" if done else "done")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
