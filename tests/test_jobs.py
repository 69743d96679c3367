"""Commands in the background, and commands on a terminal."""

from __future__ import annotations

import signal
import time

import pytest

from ringfence import Config, Fence, ProgramNotFound, SessionError, UnsupportedPolicy


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_is_read_written_and_waited_for(session):
    job = session.start("while read line; do echo got $line; done; exit 4")
    assert session.jobs == [job]
    job.write("one\n")
    seen = b""
    deadline = time.monotonic() + 10
    while b"got one" not in seen and time.monotonic() < deadline:
        seen += job.read()
    assert session.run("echo meanwhile").stdout == "meanwhile\n"
    job.write("two\n")
    job.close_stdin()
    output = job.wait(10)
    assert output.exit_code == 4
    assert output.stdout == "got one\ngot two\n"
    assert session.jobs == []
    with pytest.raises(BrokenPipeError):
        job.write("more")


def test_a_job_is_signalled_and_stopped(session):
    job = session.start("trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: b"ready" in job.read())
    assert job.stop().exit_code == 3
    deaf = session.start("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: b"ready" in deaf.read())
    assert deaf.stop(grace=0.2).signal == signal.SIGKILL
    with pytest.raises(TimeoutError), session.start("sleep 30") as job:
        job.wait(0.05)
    assert not job.running


def test_jobs_die_with_their_session(fence, workspace):
    with fence.session(workspace=workspace) as session:
        job = session.start("while :; do date +%N > beat; sleep 0.02; done")
        until((workspace / "beat").exists)
    until(lambda: not job.running)
    first = (workspace / "beat").read_text()
    time.sleep(0.2)
    assert (workspace / "beat").read_text() == first
    with pytest.raises(SessionError):
        session.start("true")


def test_what_nobody_reads_is_bounded(session, monkeypatch):
    monkeypatch.setattr("ringfence.session.handles._MOST_UNREAD", 10_000)
    job = session.start("seq 100000")
    job.wait(20)
    kept = job.read()
    assert len(kept) == 10_000
    assert kept.endswith(b"100000\n")
    assert job.dropped > 500_000


def test_a_job_that_cannot_start_says_so(session):
    job = session.start(["nonesuch"])
    with pytest.raises(ProgramNotFound):
        job.wait(10)


def test_a_terminal_on_request(session):
    out = session.run("tty; stty size; test -t 0 && test -t 1 && echo yes; echo x > /dev/tty", terminal=(33, 101))
    lines = out.stdout.replace("\r", "").split("\n")
    assert lines == ["/dev/pts/0", "33 101", "yes", "x", ""], out
    assert session.run("tty; test -t 1 || echo no").stdout == "not a tty\nno\n"


def test_a_terminal_takes_keys(session):
    job = session.start("read line; echo got $line; sleep 30", terminal=(24, 80))
    job.write("keys\n")
    seen = b""
    deadline = time.monotonic() + 10
    while b"got keys" not in seen and time.monotonic() < deadline:
        seen += job.read()
    job.write(b"\x03")  # as Ctrl-C
    assert job.wait(10).signal == signal.SIGINT


def test_a_terminal_where_there_is_none_is_refused(workspace):
    with Fence(Config(backend="landlock")) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(UnsupportedPolicy, match="terminal"):
            session.run("true", terminal=(24, 80))


@pytest.mark.parametrize("size", [(0, 80), (24,), "24x80", (24, 2**16)])
def test_a_wrong_size_is_an_error(session, size):
    with pytest.raises(ValueError, match="rows and columns"):
        session.run("true", terminal=size)
