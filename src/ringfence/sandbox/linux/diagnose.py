"""Why bubblewrap does not work here, and the exact way to change that."""

from __future__ import annotations

import os

from ringfence.model.value import Value
from ringfence.sandbox.backend import Availability

_INSTALL = (
    ("apt-get", "sudo apt-get install bubblewrap"),
    ("dnf", "sudo dnf install bubblewrap"),
    ("yum", "sudo yum install bubblewrap"),
    ("pacman", "sudo pacman -S bubblewrap"),
    ("zypper", "sudo zypper install bubblewrap"),
    ("apk", "sudo apk add bubblewrap"),
    ("nix-env", "nix-env -iA nixpkgs.bubblewrap"),
)
_APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
_CLONE = "kernel.unprivileged_userns_clone"
_MAX = "user.max_user_namespaces"


class Kernel(Value):
    """The settings that decide about user namespaces, and whether this is a container."""

    apparmor_restricts: bool = False
    clone_forbidden: bool = False
    none_allowed: bool = False
    container: str = ""
    as_root: bool = False


def kernel() -> Kernel:
    """Read them from this machine."""
    return Kernel(
        apparmor_restricts=_sysctl(_APPARMOR) == "1",
        clone_forbidden=_sysctl(_CLONE) == "0",
        none_allowed=_sysctl(_MAX) == "0",
        container=_container(),
        as_root=os.geteuid() == 0,
    )


def _sysctl(name: str) -> str:
    try:
        with open("/proc/sys/" + name.replace(".", "/"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _container() -> str:
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/.dockerenv"):
        return "docker"
    return os.environ.get("container", "")  # noqa: SIM112  # systemd spells it so


def not_installed() -> Availability:
    """Say how to install bubblewrap with this machine's package manager."""
    import shutil

    fix = next((command for tool, command in _INSTALL if shutil.which(tool)), "")
    return Availability(
        available=False,
        reason="not-installed",
        message="bubblewrap is not installed in a system directory",
        fix=fix or "install the package bubblewrap, or: pip install 'ringfence[bubblewrap]'",
    )


def explain(words: str, facts: Kernel) -> Availability:
    """Turn bubblewrap's own words about a failed set-up into a reason, a sentence and a fix."""
    detail = words.strip().removeprefix("bwrap: ") or "bubblewrap ended without a word"
    said = detail.lower()
    if "unknown option" in said:
        return _no("too-old", "this bubblewrap is too old", "install bubblewrap 0.8 or newer", detail)
    if "no space left" in said and "namespace" not in said:
        return _no("disk-full", "no space is left on the disk", "free some space", detail)
    if "mount proc" in said:
        return _no(
            "masked-proc",
            "a new /proc may not be mounted here" + _inside(facts),
            _container_fix(facts) or "unmount what covers parts of /proc",
            detail,
        )
    if "namespace" in said or "uid map" in said or "gid map" in said or "loopback" in said or "make / slave" in said:
        return _refused(facts, detail)
    return _no("failed", f"bubblewrap could not set the sandbox up: {detail}", "see `ringfence status`", detail)


def _refused(facts: Kernel, detail: str) -> Availability:
    if facts.none_allowed:
        return _no("namespaces-forbidden", f"{_MAX} is 0", f"sudo sysctl -w {_MAX}=15000", detail)
    if facts.clone_forbidden and not facts.as_root:
        return _no("namespaces-forbidden", f"{_CLONE} is 0", f"sudo sysctl -w {_CLONE}=1", detail)
    if facts.apparmor_restricts and not facts.as_root:
        return _no(
            "namespaces-forbidden",
            "AppArmor restricts user namespaces to programs with a profile",
            "install a profile for /usr/bin/bwrap that has `userns,` (docs/security-model.md),"
            f" or: sudo sysctl -w {_APPARMOR}=0",
            detail,
        )
    message = "the kernel refuses new namespaces" + _inside(facts)
    return _no("namespaces-forbidden", message, _container_fix(facts) or f"check {_MAX} and {_CLONE}", detail)


def _inside(facts: Kernel) -> str:
    return f" inside this {facts.container} container" if facts.container else ""


def _container_fix(facts: Kernel) -> str:
    if not facts.container:
        return ""
    return (
        "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        " --security-opt systempaths=unconfined"
    )


def _no(reason: str, message: str, fix: str, detail: str) -> Availability:
    return Availability(available=False, reason=reason, message=message, fix=fix, detail=detail)
