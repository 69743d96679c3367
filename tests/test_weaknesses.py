"""Weaknesses of earlier systems, each by its number: here they must not be.

X are findings from running those systems, W what their documents admit. Named are those that concern
confinement on Linux; where a backend matters, all that confine are tried.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ringfence import Capabilities, Config, Fence, Limits, Network, SandboxUnavailable, UnsupportedPolicy
from ringfence.sandbox.linux import cgroups, keeper, landlock, seccomp, warm
from ringfence.testing import FakeApprover


@pytest.fixture(params=["bubblewrap", "landlock"])
def fence(request):
    with Fence(Config(backend=request.param), approver=FakeApprover()) as fence:
        yield fence


@pytest.fixture
def outside(tmp_path):
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "file").write_text("precious")
    return directory


def test_x1_w1_reads_outside_are_refused(session, outside):
    assert "precious" not in session.run(["cat", str(outside / "file")]).stdout


def test_x2_truncate_outside_is_refused(session, outside):
    session.run(["truncate", "--size", "0", str(outside / "file")])
    caps = session.capabilities.with_read(outside)
    session.run(["truncate", "--size", "0", str(outside / "file")], capabilities=caps)
    assert (outside / "file").read_text() == "precious"


def test_x2_landlock_too_old_to_refuse_it_is_not_used(monkeypatch):
    for version, available in ((0, False), (1, False), (2, False), (3, True)):
        monkeypatch.setattr(landlock, "version", lambda version=version: version)
        with Fence(Config(backend="landlock")) as fence:
            assert fence.registry.get("landlock").probe().available is available


def test_x3_chmod_and_utime_outside_are_refused_or_reported(session, outside):
    caps = session.capabilities.with_read(outside)
    before = os.stat(outside / "file")
    out = session.run(f"chmod 777 {outside}/file; touch -d @0 {outside}/file", capabilities=caps)
    after = os.stat(outside / "file")
    changed = (before.st_mode, before.st_mtime_ns) != (after.st_mode, after.st_mtime_ns)
    assert changed == ("metadata" in {m.guarantee for m in out.enforcement.missing})


def test_x4_w3_the_memory_ceiling_is_kept(session, monkeypatch):
    for available in (cgroups.available, lambda table, own: {}):
        monkeypatch.setattr(cgroups, "available", available)
        caps = session.capabilities.with_limits(Limits(memory_mb=200))
        out = session.run(["python3", "-c", "print(len(bytearray(400 * 2**20)))"], capabilities=caps)
        assert out.exit_code != 0
        assert "memory" in out.enforcement.limits


def test_x5_dev_null_and_mktemp_work(session):
    out = session.run('echo x > /dev/null && f=$(mktemp) && echo y > "$f" && cat "$f" /dev/null')
    assert out.stdout == "y\n", out.stderr


def test_x6_a_grandchild_does_not_survive_the_timeout(session, workspace):
    text = "(setsid sh -c 'while :; do date +%N > beat; sleep 0.02; done' > /dev/null 2>&1 &) ; sleep 30"
    assert session.run(text, timeout=0.5).timed_out
    first = (workspace / "beat").read_text()
    time.sleep(0.2)
    assert (workspace / "beat").read_text() == first


def test_x6_nor_the_end_of_its_command(session, workspace):
    session.run("(setsid sh -c 'while :; do date +%N > beat; sleep 0.02; done' > /dev/null 2>&1 &) ; sleep 0.2").check()
    first = (workspace / "beat").read_text()
    time.sleep(0.2)
    assert (workspace / "beat").read_text() == first


def test_x9_a_restriction_that_fails_runs_nothing(workspace, monkeypatch):
    """The kernel refuses the filter: the command must not start without it."""
    broken = seccomp.program(seccomp.Profile())[:-8]  # it does not end in an answer
    monkeypatch.setattr(seccomp, "program", lambda profile: broken)
    for backend in ("bubblewrap", "landlock"):
        with Fence(Config(backend=backend)) as fence, fence.session(workspace=workspace) as session:
            with pytest.raises(SandboxUnavailable):
                session.run("touch ran")
    assert list(workspace.iterdir()) == []


def test_x9_landlock_that_fails_runs_nothing(workspace, monkeypatch):
    monkeypatch.setattr(landlock, "version", lambda: 99)
    working = warm._source()
    one_shot = Config(backend="bubblewrap", require=("landlock",), warm=False)
    for config in (Config(backend="landlock"), one_shot, Config(backend="bubblewrap")):
        with Fence(config) as fence, fence.session(workspace=workspace) as session:
            monkeypatch.setattr(landlock, "_source", broken_stage)
            monkeypatch.setattr("ringfence.sandbox.linux.landlock_only._START", BROKEN_KEEPER)
            monkeypatch.setattr(warm, "_source", lambda: working.replace(*BREAK))
            with pytest.raises(SandboxUnavailable):
                session.run("touch ran")
    assert list(workspace.iterdir()) == []


BROKEN_KEEPER = (
    "import sys; sys.path.insert(0, sys.argv[3]); from ringfence.sandbox.linux import keeper, stage;"
    " stage.handled = lambda version: 1 << 60; keeper.main(int(sys.argv[1]), int(sys.argv[2]))"
)


BREAK = ("def handled(version: int) -> int:", "def handled(version: int) -> int:\n    return 1 << 60")


def broken_stage():
    with open(os.path.join(os.path.dirname(keeper.__file__), "stage.py"), encoding="utf-8") as file:
        return file.read().replace(*BREAK)


def test_x13_a_path_is_compared_by_component(fence, tmp_path):
    for name in ("proj", "project-evil"):
        (tmp_path / name).mkdir()
    with fence.session(workspace=tmp_path / "proj") as session:
        caps = Capabilities(write=[tmp_path / "project-evil"])
        assert not caps.is_within(session.capabilities)
        session.run(["touch", str(tmp_path / "project-evil" / "new")])
    assert list((tmp_path / "project-evil").iterdir()) == []


def test_x17_a_workspace_below_tmp_is_there(fence):
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        with open(os.path.join(place, "file"), "w", encoding="utf-8") as file:
            file.write("there")
        with fence.session(workspace=place) as session:
            assert session.run("cat file; touch made").stdout == "there"
        assert os.path.exists(os.path.join(place, "made"))


def test_x18_the_filter_checks_the_architecture():
    code = seccomp.program(seccomp.Profile(), "x86_64")
    assert code[:8] == b"\x20\0\0\0\4\0\0\0"  # the first thing it loads


def test_x18_output_is_bounded(session):
    out = session.run("head -c 5000000 /dev/zero")
    assert out.truncated
    assert len(out.stdout_bytes) < 2**21


def test_x20_clone3_does_not_exist_inside(session):
    code = "import ctypes; l = ctypes.CDLL(None, use_errno=True); l.syscall(435, 0, 0); print(ctypes.get_errno())"
    assert session.run(["python3", "-c", code]).stdout == "38\n"
    outside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outside.stdout == "22\n"


def test_x20_one_ceiling_for_both_streams(workspace):
    with Fence(Config(max_output=100_000)) as fence, fence.session(workspace=workspace) as session:
        out = session.run("head -c 90000 /dev/zero; head -c 90000 /dev/zero >&2")
    assert len(out.stdout_bytes) + len(out.stderr_bytes) <= 100_200


def test_w2_w23_w33_there_is_no_network_unless_granted(session):
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.connect(('192.0.2.1', 9))\n"
        "print('reached', s.getsockname())"
    )
    assert "reached" not in session.run(["python3", "-c", code]).stdout
    caps = session.capabilities.with_network(Network.all())
    assert session.run(["python3", "-c", code.replace("192.0.2.1", "127.0.0.1")], capabilities=caps).stdout != ""


def test_w3_w42_cpu_files_and_tasks_have_ceilings(session):
    caps = session.capabilities.with_limits(Limits(cpu_seconds=1, file_size_mb=1, open_files=64, tasks=50))
    applied = session.run("head -c 3000000 /dev/zero > big; ulimit -n", capabilities=caps)
    assert applied.stdout == "64\n"
    assert {"cpu", "file_size", "open_files"} <= set(applied.enforcement.limits)
    assert session.run("while :; do :; done", capabilities=caps, timeout=30).signal in {9, 24}


def test_w4_w25_without_a_way_to_confine_nothing_runs(workspace, monkeypatch):
    monkeypatch.setattr(landlock, "version", lambda: 2)
    monkeypatch.setattr("ringfence.sandbox.linux.bubblewrap._TRUSTED", ())
    monkeypatch.setattr("ringfence.sandbox.linux.bubblewrap._from_wheel", lambda: None)
    with Fence() as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(SandboxUnavailable, match="no backend"):
            session.run("touch ran")
    assert list(workspace.iterdir()) == []


def test_w5_chroot_and_ptrace_are_refused(session):
    code = (
        "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\n"
        "print(l.chroot(b'.'), ctypes.get_errno(), l.ptrace(0, 0, 0, 0), ctypes.get_errno())"
    )
    assert session.run(["python3", "-c", code]).stdout == "-1 1 -1 1\n"


def test_w18_w19_w20_auto_is_never_the_host():
    with Fence() as fence:
        confining = [n for n in fence.registry.names() if fence.registry.priority(n) > 0]
        assert confining
        assert all(fence.registry.get(name).confines for name in confining)
        assert "host" not in confining


def test_w29_w30_allowed_means_confined(session):
    """The most harmless command runs behind the same fence."""
    out = session.run(["true"])
    assert out.decision.verdict == "allow"
    assert out.enforcement.confined


def test_w34_the_home_is_not_readable(session, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "diary").write_text("precious")
    monkeypatch.setenv("HOME", str(home))
    with Fence() as fence, fence.session(workspace=session.workspace) as other:
        assert "precious" not in other.run(["cat", str(home / "diary")]).stdout


def test_w35_the_session_bus_is_out_of_reach(workspace, monkeypatch):
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    with Fence() as fence, fence.session(workspace=workspace) as session:
        assert session.run("env | grep -E 'DBUS|XDG_RUNTIME'; ls /run/user").stdout == ""


def test_w39_shared_memory_works_under_bubblewrap(workspace):
    with Fence(Config(backend="bubblewrap")) as fence, fence.session(workspace=workspace) as session:
        code = "import multiprocessing as m; l = m.Lock(); print(l.acquire())"
        assert session.run(["python3", "-c", code]).stdout == "True\n"


def test_w40_a_store_of_its_own_is_visible_where_there_is_one():
    from ringfence.sandbox import tables

    assert {"/nix", "/gnu"} <= set(tables.SYSTEM)


def test_w43_abstract_sockets_are_out_of_reach_with_the_hosts_network(session):
    import socket

    name = f"ringfence-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + name)
        listening.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('reached')"
        control = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert control.stdout == "reached\n"
        caps = session.capabilities.with_network(Network.all())
        assert session.run(["python3", "-c", code], capabilities=caps).stdout == ""


def test_w44_w48_chosen_hosts_are_refused_where_they_cannot_be_kept(session):
    caps = session.capabilities.with_network(Network.to_hosts(["example.com"]))
    with pytest.raises(UnsupportedPolicy, match="chosen hosts"):
        session.run("true", capabilities=caps)


def test_w46_whoever_has_no_session_gets_an_error(fence):
    from ringfence import Command, SessionError

    with pytest.raises(SessionError):
        fence.execute(Command.of("true"))


def test_w47_what_cannot_be_cleaned_up_is_tried_again(fence, workspace):
    """A killed process leaves its scratch; the next session of that user removes it."""
    code = (
        "import os, signal, sys\nfrom ringfence import Fence, Config\n"
        f"fence = Fence(Config(backend={fence.config.backend!r}))\n"
        f"session = fence.session(workspace={str(workspace)!r})\n"
        "session.run('touch /tmp/left $TMPDIR/left; true')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    shelf = os.path.join(fence.places.state, "scratch")
    left = [n for n in os.listdir(shelf) if n.startswith("run-") and "." not in n and "%" not in n]
    assert left
    with fence.session(workspace=workspace) as session:
        session.run("true").check()
        assert not set(left) & set(os.listdir(shelf))
