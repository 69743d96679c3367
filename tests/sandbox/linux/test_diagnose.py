from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ringfence import Config, Fence, SandboxUnavailable
from ringfence.sandbox.linux import bubblewrap, diagnose
from ringfence.sandbox.linux.bubblewrap import Bubblewrap
from ringfence.sandbox.linux.diagnose import Kernel, explain

NO_NAMESPACE = "bwrap: No permissions to create new namespace, likely because the kernel does not allow it"


@pytest.mark.parametrize(
    ("words", "facts", "reason", "fix"),
    [
        (NO_NAMESPACE, Kernel(none_allowed=True), "namespaces-forbidden", "user.max_user_namespaces=15000"),
        (NO_NAMESPACE, Kernel(clone_forbidden=True), "namespaces-forbidden", "kernel.unprivileged_userns_clone=1"),
        (
            "bwrap: setting up uid map: Permission denied",
            Kernel(apparmor_restricts=True),
            "namespaces-forbidden",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            Kernel(apparmor_restricts=True),
            "namespaces-forbidden",
            "profile",
        ),
        (NO_NAMESPACE, Kernel(container="docker"), "namespaces-forbidden", "--security-opt seccomp=unconfined"),
        (
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
            Kernel(container="podman"),
            "masked-proc",
            "systempaths=unconfined",
        ),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", Kernel(), "masked-proc", "/proc"),
        ("bwrap: Unknown option --disable-userns", Kernel(), "too-old", "0.8"),
        ("bwrap: Can't mkdir /newroot/x: No space left on device", Kernel(), "disk-full", "space"),
        ("", Kernel(), "failed", "status"),
    ],
)
def test_each_failure_has_its_reason_and_its_fix(words, facts, reason, fix):
    answer = explain(words, facts)
    assert not answer.available
    assert answer.reason == reason
    assert fix in answer.fix
    assert answer.message


def test_the_probe_really_tries_and_is_kept(monkeypatch):
    backend = Bubblewrap()
    assert backend.probe().available
    monkeypatch.setattr(bubblewrap, "_TRUSTED", ("/nonexistent",))
    assert backend.probe().available
    monkeypatch.setattr(bubblewrap, "_from_wheel", lambda: None)
    answer = Bubblewrap().probe()
    assert answer.reason == "not-installed"
    assert "bubblewrap" in answer.fix


@pytest.fixture
def session(workspace):
    """Bubblewrap or nothing: the other backend would step in, and so would an enclosure that is open already."""
    with Fence(Config(backend="bubblewrap", warm=False)) as fence, fence.session(workspace=workspace) as session:
        yield session


def test_missing_is_refused_with_the_next_step(monkeypatch, session):
    monkeypatch.setattr(bubblewrap, "_TRUSTED", ("/nonexistent",))
    monkeypatch.setattr(bubblewrap, "_from_wheel", lambda: None)
    with pytest.raises(SandboxUnavailable, match="not installed") as caught:
        session.run("true")
    assert caught.value.reason == "not-installed"
    assert "bubblewrap" in caught.value.hint


@pytest.mark.parametrize("how", ["writable", "inside"])
def test_a_binary_that_others_can_change_is_refused(monkeypatch, session, workspace, tmp_path, how):
    path = (workspace if how == "inside" else tmp_path) / "bwrap"
    shutil.copyfile("/usr/bin/bwrap", path)
    path.chmod(0o777 if how == "writable" else 0o755)
    monkeypatch.setattr(bubblewrap, "_TRUSTED", (str(path),))
    with pytest.raises(SandboxUnavailable) as caught:
        session.run("true")
    assert caught.value.reason == "untrusted"


def refused(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the kernel really refuses new user namespaces: in one that allows no more."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )


def test_refused_namespaces_are_told_from_a_missing_program(workspace):
    code = (
        "import ringfence\n"
        f"try: ringfence.run('true', workspace={str(workspace)!r}, config=ringfence.Config(backend='bubblewrap'))\n"
        "except ringfence.SandboxUnavailable as e: print(e.reason, '|', e.hint)"
    )
    out = refused(code)
    assert out.stdout == "namespaces-forbidden | sudo sysctl -w user.max_user_namespaces=15000\n", out.stderr


def test_the_other_backend_steps_in_and_says_what_is_missing(workspace):
    code = (
        "import ringfence\n"
        f"out = ringfence.run('echo confined > made; cat /proc/self/status', workspace={str(workspace)!r})\n"
        "print(out.enforcement.backend, out.enforcement.confined, *(m.guarantee for m in out.enforcement.missing))\n"
        "print('NoNewPrivs:\t1' in out.stdout)"
    )
    out = refused(code)
    first, second = out.stdout.splitlines()
    assert first.startswith("landlock True "), out.stderr
    assert {"loopback", "metadata", "processes", "protected"} <= set(first.split())
    assert second == "True"
    assert (workspace / "made").read_text() == "confined\n"


def test_status_says_why_and_what_is_used_instead():
    out = refused("from ringfence.cli.main import main; raise SystemExit(main(['status']))")
    assert out.returncode == 0, out.stderr
    assert "to fix: sudo sysctl -w user.max_user_namespaces=15000" in out.stdout
    assert next(line for line in out.stdout.splitlines() if line.startswith("landlock")).endswith("<- used")


def test_a_required_guarantee_keeps_it_from_stepping_in(workspace):
    code = (
        "import ringfence\n"
        "config = ringfence.Config(require=('metadata',))\n"
        f"try: ringfence.run('touch made', workspace={str(workspace)!r}, config=config)\n"
        "except ringfence.UnsupportedPolicy as e: print(e)"
    )
    assert "'metadata'" in refused(code).stdout
    assert list(workspace.iterdir()) == []


def test_inside_a_flatpak_the_way_out_is_named(monkeypatch, session):
    real = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda p: p == "/.flatpak-info" or real(p))
    with pytest.raises(SandboxUnavailable, match="Flatpak") as caught:
        session.run("true")
    assert "flatpak-spawn --host ringfence" in caught.value.hint


def test_this_machine_is_read(monkeypatch):
    facts = diagnose.kernel()
    assert facts.as_root == (os.geteuid() == 0)
    monkeypatch.setenv("container", "oci")
    assert diagnose._container() in {"docker", "podman", "oci"}


@pytest.mark.parametrize(
    ("tools", "command"), [(["dnf"], "dnf install"), (["pacman"], "pacman -S"), ([], "pip install")]
)
def test_the_fix_names_this_machines_package_manager(monkeypatch, tools, command):
    monkeypatch.setattr(shutil, "which", lambda name: name if name in tools else None)
    assert command in diagnose.not_installed().fix


@pytest.mark.as_root  # to take the program away, in a mount namespace of its own
def test_the_command_line_without_bubblewrap(workspace):
    script = 'mount --bind /dev/null /usr/bin/bwrap && exec "$@"'
    run = [sys.executable, "-P", "-m", "ringfence"]
    out = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *run, "run", "--backend", "bubblewrap", "--", "touch", "ran"],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 125
    assert "bubblewrap is not installed" in out.stderr
    assert "install" in out.stderr.splitlines()[-1]
    assert list(workspace.iterdir()) == []
