"""Each step of the confinement by itself: how to leave it out, and which attacks then succeed.

`REST_ON` is what was found by trying every attack with each step left out; `test_steps.py` tries
those again. As a script, `python tests/escape/steps.py [--as-root] [STEP …]`, this tries all of them;
with `--as-root` as it is where root cannot become somebody else. docs/security-model.md has the table.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from world import World, names

from ringfence import Config, Fence
from ringfence.sandbox import environment, layout
from ringfence.sandbox.linux import bubblewrap, landlock, landlock_only, mountinfo, seccomp
from ringfence.sandbox.plan import Mount
from ringfence.testing import FakeApprover

AS_ROOT = "--as-root"


def flag(*flags):
    """Leave options of bubblewrap out."""

    def off(patch):
        real = bubblewrap.arguments

        def arguments(*positional, **named):
            args = real(*positional, **named)
            for name in flags:
                while name in args:
                    at = args.index(name)
                    del args[at : at + (2 if name in {"--cap-drop", "--remount-ro", "--hostname"} else 1)]
            return args

        patch.setattr(bubblewrap, "arguments", arguments)

    return off


def mount(*targets):
    """Leave mounts out."""

    def off(patch):
        real = layout._View._add
        patch.setattr(layout._View, "_add", lambda view, m: None if m.target in targets else real(view, m))

    return off


def unnoticed(patch):
    """Let more be mounted, and more be writable, than the plan says."""
    real = mountinfo.Expected.differences

    def differences(expected, actual):
        return [d for d in real(expected, actual) if "should not be" not in d and "is writable" not in d]

    patch.setattr(mountinfo.Expected, "differences", differences)


def writable_frame(patch):
    """Leave /, /dev and what covers others writable; the check of the mounts would notice, and goes too."""
    flag("--remount-ro")(patch)
    unnoticed(patch)


def whole_view(patch):
    """Show the machine as it is, read-only, instead of a view that was built."""
    patch.setenv("PATH", "/usr/bin:/bin")
    real = layout._View.show_system

    patch.setattr(layout._View, "add_var_tmp", lambda view: None)

    def show_system(view):
        real(view)
        view.mounts = {target: m for target, m in view.mounts.items() if m.kind != "link"}
        view._add(Mount("/", "bind", "/", why="system"))

    patch.setattr(layout._View, "show_system", show_system)
    unnoticed(patch)


def nothing_private(patch):
    patch.setattr(layout._View, "show_private", lambda view: None)
    whole_view(patch)


def no_masks(patch):
    patch.setattr(layout._View, "hide", lambda view: None)


def no_guard(patch):
    patch.setattr(layout._View, "guard", lambda view: None)


def whole_environment(patch):
    patch.setattr(environment, "inherited", lambda env, **_: dict(env))


def sockets_stay(patch):
    patch.setattr("ringfence.sandbox.lookout.host_sockets", lambda roots: ())


def keep_root(patch):
    patch.setattr("ringfence.sandbox.lookout.can_drop_root", lambda paths: False)


def no_filter(patch):
    patch.setattr(seccomp, "program", lambda profile: b"\x06\0\0\0\0\0\xff\x7f")  # allow


def no_second_layer(patch):
    patch.setattr(landlock, "version", lambda: 0)


def in_keeper(code):
    """Change something in the keeper, which is a process of its own."""
    start = (
        "import sys; sys.path.insert(0, sys.argv[3]); from ringfence.sandbox.linux import keeper;"
        f" {code}; keeper.main(int(sys.argv[1]), int(sys.argv[2]))"
    )
    return lambda patch: patch.setattr(landlock_only, "_START", start)


BUBBLEWRAP = {
    "PID namespace": flag("--unshare-pid"),
    "IPC namespace": flag("--unshare-ipc"),
    "network namespace": flag("--unshare-net"),
    "UTS namespace": flag("--unshare-uts", "--hostname"),
    "cgroup namespace": flag("--unshare-cgroup-try"),
    "no further user namespaces": flag("--disable-userns"),
    "no capabilities": flag("--cap-drop"),
    "session of its own": flag("--new-session"),
    "built file view": whole_view,
    "private home and /tmp": nothing_private,
    "read-only /, /dev and masks": writable_frame,
    "/proc/sys read-only": mount("/proc/sys"),
    "/proc/1 covered": mount("/proc/1"),
    "/proc/keys hidden": mount("/proc/keys"),
    "hidden files": no_masks,
    "host sockets hidden": sockets_stay,
    "Ringfence itself read-only": no_guard,
    "environment by list": whole_environment,
    "system call filter": no_filter,
    "unprivileged user for root": keep_root,
    "Landlock with the host's network": no_second_layer,
}
LANDLOCK = {
    "Landlock": in_keeper("keeper.restrict = lambda *a, **k: None"),
    "system call filter": no_filter,
    "no capabilities": in_keeper("keeper._drop_capabilities = lambda: None"),
    "keeper": in_keeper("keeper.kill_all = lambda child, scoped: 0"),
    "session of its own": in_keeper("keeper.os.setsid = lambda: None"),
    "environment by list": whole_environment,
}


# By user: "any", "root", "user", or "as root" where root cannot become somebody else.
REST_ON = {
    ("bubblewrap", "PID namespace"): {
        "any": "victims-cmdline parents-memory limit-what-keeps-us outlive-what-keeps-us",
        "user": "kill-the-victim kill-by-descriptor signal-by-io pin-the-victim",
    },
    ("bubblewrap", "IPC namespace"): {"any": "attach-shared-memory take-a-message open-a-message-queue"},
    ("bubblewrap", "network namespace"): {
        "any": "connect-to-an-abstract-socket connect-to-the-hosts-loopback datagram-to-the-hosts-loopback"
    },
    ("bubblewrap", "no capabilities"): {"as root": "capabilities"},
    ("bubblewrap", "built file view"): {"user": "read-the-home", "as root": "read-the-home"},
    ("bubblewrap", "private home and /tmp"): {"user": "read-the-home"},
    ("bubblewrap", "read-only /, /dev and masks"): {"root": "make-a-file-among-devices"},
    ("bubblewrap", "/proc/sys read-only"): {"as root": "set-core-pattern set-swappiness"},
    ("bubblewrap", "/proc/1 covered"): {"any": "parents-memory parents-descriptors"},
    ("bubblewrap", "/proc/keys hidden"): {"user": "read-keys", "as root": "read-keys"},
    ("bubblewrap", "hidden files"): {"any": "read-a-hidden-file move-a-hidden-file", "as root": "read-shadow"},
    ("bubblewrap", "host sockets hidden"): {"any": "connect-to-a-socket-in-the-workspace"},
    ("bubblewrap", "environment by list"): {"any": "environment-secrets"},
    ("bubblewrap", "system call filter"): {
        "any": "trace-a-child slow-what-keeps-us netlink-audit vsock io-uring add-a-key user-faults"
        " another-personality plant-a-set-id-file set-id-by-fchmodat2 set-id-in-memory"
    },
    ("bubblewrap", "unprivileged user for root"): {"root": "act-as-root change-a-device read-slabinfo"},
    ("bubblewrap", "Landlock with the host's network"): {"any": "connect-to-an-abstract-socket"},
    ("landlock", "Landlock"): {"any": "create truncate-outside hard-link read read-the-home our-configuration"},
    ("landlock", "system call filter"): {
        "any": "connect-to-a-socket-file datagram-from-a-pair attach-shared-memory limit-the-victim io-uring"
    },
    ("landlock", "no capabilities"): {"root": "capabilities become-somebody-else"},
    ("landlock", "keeper"): {"user": "outlive-what-keeps-us"},  # root has a control group, which is emptied too
    ("landlock", "environment by list"): {"any": "environment-secrets"},
}
# No attack of ours depends on these alone.
JUSTIFIED = {
    (
        "bubblewrap",
        "UTS namespace",
    ): "the filter refuses to set names too; it hides the machine's own",
    ("bubblewrap", "cgroup namespace"): "groups cannot be reached anyway; it hides where the command's lies",
    ("bubblewrap", "no further user namespaces"): "the filter refuses them too; one of both could have a gap",
    ("bubblewrap", "session of its own"): "tested on a terminal, in test_steps.py",
    ("bubblewrap", "Ringfence itself read-only"): "needs an installation in the workspace: test_steering.py",
    ("landlock", "session of its own"): "as above; the device for it is not granted either",
}


def fence_with(backend: str) -> Fence:
    """One start for each command: a first process of our own would be another step, and needs some of these."""
    return Fence(Config(backend=backend, warm=False), approver=FakeApprover("session"))


def find(backend: str, step: str) -> list[str]:
    """Name the attacks that succeed with one step left out and fail with it."""
    off = (BUBBLEWRAP if backend == "bubblewrap" else LANDLOCK)[step]
    network = "all" if "host's network" in step else ""
    tried = names("sockets") if network else names()
    return [n for n in tried if try_without(off, backend, n, network) and not succeeds(backend, n, network)]


@cache
def succeeds(backend: str, name: str, network: str) -> str:
    """Try an attack with every step in place; some succeed under Landlock alone, and are reported."""
    return try_without(lambda patch: None, backend, name, network)


def try_without(off, backend: str, name: str, network: str = "") -> str:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", f"{base}/state")
        patch.setenv("XDG_CONFIG_HOME", f"{base}/config")
        world = World(Path(base), patch)
        try:
            if AS_ROOT in sys.argv:
                keep_root(patch)
            off(patch)
            return world.try_inside(name, fence=fence_with(backend), network=network)
        except Exception as error:  # noqa: BLE001  # without this step nothing starts at all
            return f"error: {error}" if os.environ.get("SHOW") else ""
        finally:
            world.close()


if __name__ == "__main__":
    chosen = [word for word in sys.argv[1:] if word != AS_ROOT]
    for backend, steps in (("bubblewrap", BUBBLEWRAP), ("landlock", LANDLOCK)):
        for step in steps:
            if not chosen or step in chosen:
                print(f"{backend:<11} {step:<36} {', '.join(find(backend, step)) or '-'}", flush=True)
