"""Enclosures that stay warm: one command after another behind the same fence, and what goes wrong with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from as_user import other_children
from ringfence import Command, Config, Fence, SandboxUnavailable
from ringfence.sandbox import leases
from ringfence.sandbox.linux import warm
from ringfence.testing import FakeApprover


def idle(fence, session):
    return [enclosure for _, enclosure, _ in fence.sessions.get(session.id).leases._idle]


def settled(fence, session):
    """Wait for what was begun without being asked for, and return it."""
    session.run("true").check()
    (enclosure,) = idle(fence, session)
    return enclosure


def test_commands_follow_each_other_in_one_enclosure(fence, session):
    first = settled(fence, session)
    namespaces = {session.run("readlink /proc/self/ns/pid").stdout for _ in range(5)}
    assert len(namespaces) == 1
    assert idle(fence, session) == [first]


def test_nothing_of_a_command_is_left_for_the_next(fence, session):
    settled(fence, session)
    session.run("cd /tmp; export X=1; umask 0; ulimit -n 77; (setsid sleep 600 > /dev/null 2>&1 &)").check()
    out = session.run("pwd; echo ${X-unset}; umask; ulimit -n; pgrep -c sleep")
    directory, variable, mask, files, sleepers = out.stdout.split()
    assert (directory, variable, sleepers) == (session.workspace, "unset", "0")
    assert mask != "0000"
    assert files != "77"


def test_how_a_command_ended_is_exact(session):
    killed, chosen = session.run("kill -9 $$"), session.run("exit 137")
    assert (killed.exit_code, killed.signal) == (137, 9)
    assert (chosen.exit_code, chosen.signal) == (137, None)


def test_parallel_commands_have_enclosures_of_their_own(fence, session):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(session.run("readlink /proc/self/ns/pid; sleep 0.3").stdout))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 6
    assert len(idle(fence, session)) <= leases._MOST_IDLE


def test_another_plan_is_another_enclosure(workspace):
    with Fence(approver=FakeApprover("session")) as fence, fence.session(workspace=workspace) as session:
        inside = session.run("readlink /proc/self/ns/net").stdout
        wider = session.run("readlink /proc/self/ns/net", capabilities=session.capabilities.with_network("all")).stdout
        assert wider.strip() == os.readlink("/proc/self/ns/net")
        assert session.run("readlink /proc/self/ns/net").stdout == inside


def test_a_secret_that_appears_is_hidden_from_the_next_command(session, workspace):
    assert session.run("ls -a").ok
    (workspace / ".env").write_text("a secret")
    assert "a secret" not in session.run("cat .env").stdout


def test_a_secret_that_the_host_replaces_stays_hidden(fence, session, workspace):
    """Renaming over a file takes the mount on it away; the enclosure is then not used again."""
    (workspace / ".env").write_text("old secret")
    settled_with_secret = session.run("cat .env")
    assert settled_with_secret.exit_code != 0
    (workspace / "new").write_text("new secret")
    os.rename(workspace / "new", workspace / ".env")
    assert "new secret" not in session.run("cat .env").stdout


def test_an_enclosure_whose_first_process_died_is_replaced(fence, session):
    enclosure = settled(fence, session)
    os.kill(enclosure._sandbox.init_pid, signal.SIGKILL)
    time.sleep(0.05)
    assert session.run("echo fine").stdout == "fine\n"
    assert enclosure not in idle(fence, session)


def test_a_first_process_that_dies_meanwhile_is_a_typed_error(fence, session):
    enclosure = settled(fence, session)
    stream = session.stream("sleep 30")
    stream.__enter__()
    os.kill(enclosure._sandbox.init_pid, signal.SIGKILL)
    list(stream)
    with pytest.raises(SandboxUnavailable):
        stream.__exit__()
    assert session.run("echo fine").stdout == "fine\n"


def test_a_first_process_that_is_stopped_does_not_hold_us(fence, session, monkeypatch):
    monkeypatch.setattr(warm, "REAP_MS", 300)
    enclosure = settled(fence, session)
    with session.stream("sleep 30", timeout=0.3) as stream:
        os.kill(enclosure._sandbox.init_pid, signal.SIGSTOP)
        list(stream)
    assert stream.output.timed_out
    assert session.run("echo fine").stdout == "fine\n"


@pytest.mark.parametrize("answer", [b"x", b"x" * 12, b"x" * 4000, warm.SAID.pack(9999, warm.ENDED, 0)])
def test_a_wrong_answer_ends_the_enclosure(fence, session, monkeypatch, answer):
    """What could come from inside if a command ever took the first process over."""
    enclosure = settled(fence, session)
    ours, theirs = warm._socket.socketpair(warm._socket.AF_UNIX, warm._socket.SOCK_SEQPACKET)
    real, enclosure._control = enclosure._control, ours
    theirs.send(answer)
    with pytest.raises(SandboxUnavailable):
        session.run("echo fine").check()
    assert enclosure not in idle(fence, session)
    assert session.run("echo fine").stdout == "fine\n"
    for end in (real, theirs):
        end.close()


def test_large_requests_arrive_whole(session):
    long = "x" * 300_000
    script = "import os, sys; print(len(os.environ['LONG']), len(sys.argv))"
    env = {f"LONG{n}": long[:100_000] for n in range(5)} | {"LONG": long[:120_000]}
    out = session.run(["python3", "-c", script, *["word"] * 5000], env=env)
    assert out.stdout == "120000 5001\n", out.stderr


def test_a_signal_for_an_earlier_command_reaches_no_later_one(fence, session):
    enclosure = settled(fence, session)
    with session.stream("sleep 0.5; echo whole") as stream:
        enclosure.signal(enclosure._numbers - 1, signal.SIGKILL)
        chunks = list(stream)
    assert (b"whole\n") in [chunk for _, chunk in chunks]


def test_a_forked_child_has_enclosures_of_its_own(fence, session):
    settled(fence, session)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, session.run("readlink /proc/self/ns/pid").stdout.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child = os.read(read, 200).decode()
    os.close(read)
    os.close(write)
    assert child.startswith("pid:")
    assert session.run("readlink /proc/self/ns/pid").stdout != child


def test_nothing_survives_the_death_of_its_process(workspace):
    code = (
        "import os, signal\nfrom ringfence import Fence\n"
        f"session = Fence().session(workspace={str(workspace)!r})\n"
        "session.run('true')\n"
        "stream = session.stream('while :; do date +%N > beat; sleep 0.02; done')\nstream.__enter__()\n"
        "import time; time.sleep(0.3)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    time.sleep(0.1)
    first = (workspace / "beat").read_text()
    time.sleep(0.2)
    assert (workspace / "beat").read_text() == first


def test_many_sessions_leave_nothing(workspace):
    def count():
        return len(os.listdir("/proc/self/fd"))

    with Fence() as fence:
        with fence.session(workspace=workspace) as session:
            session.run("true").check()
        before = count()
        for _ in range(25):
            with fence.session(workspace=workspace) as session:
                session.run("true").check()
        assert count() == before
    assert other_children() == []


def test_no_descriptors_left_is_a_typed_error(session):
    import resource

    session.run("true").check()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no new descriptor has a number as low as that
    try:
        with pytest.raises(SandboxUnavailable, match="Too many open files"):
            session.run("true")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert session.run("echo fine").stdout == "fine\n"


def test_idle_enclosures_are_closed_after_a_while(workspace, monkeypatch):
    monkeypatch.setattr(leases, "_IDLE_SECONDS", 0.4)
    with Fence() as fence, fence.session(workspace=workspace) as session:
        session.run("true").check()
        deadline = time.monotonic() + 10
        while idle(fence, session) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert idle(fence, session) == []
        assert session.run("echo fine").stdout == "fine\n"


def test_it_can_be_switched_off(workspace):
    with Fence(Config(warm=False)) as fence, fence.session(workspace=workspace) as session:
        assert not fence.check(Command.of("true", session=session.id)).plan.warm
        one, two = (session.run("readlink /proc/self/ns/pid").stdout for _ in range(2))
        assert idle(fence, session) == []
        assert one
        assert two
