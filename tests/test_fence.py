from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
import time

import pytest

from as_user import other_children
from ringfence import (
    Answer,
    Capabilities,
    Command,
    CommandFailed,
    CommandTimeout,
    Config,
    ConfigError,
    Denied,
    Fence,
    Limits,
    Network,
    ProgramNotFound,
    RingfenceError,
    SessionError,
    UnsupportedPolicy,
    run,
)
from ringfence.testing import FakeApprover, FakeBackend, FakeReply, ListRecorder, fake_registry


def test_one_call(workspace):
    out = run("echo out; echo err >&2; exit 3", workspace=workspace)
    assert (out.exit_code, out.stdout, out.stderr) == (3, "out\n", "err\n")
    assert out.enforcement.confined
    assert out.enforcement.backend == "bubblewrap"
    assert "mounts" in out.enforcement.layers
    assert not out.ok
    with pytest.raises(CommandFailed, match="exit code 3"):
        out.check()


def test_one_call_without_a_workspace_leaves_nothing(own_state):
    out = run("pwd; echo x > y").check()
    assert not os.path.exists(out.stdout.strip())


def test_argv_is_not_shell_text(session):
    assert session.run(["echo", "$HOME; ls"]).stdout == "$HOME; ls\n"


def test_the_steps_are_recorded_in_order(session, recorder):
    session.run("true")
    assert recorder.events() == ["decision", "run"]
    record = recorder.records[-1].as_dict()
    assert record["exit_code"] == 0
    assert record["session"] == session.id
    assert record["command"] == "true"
    assert record["enforcement"]["confined"] is True


def test_records_reach_logging(workspace, caplog):
    with caplog.at_level(logging.INFO, logger="ringfence.ledger"):
        run("exit 4", workspace=workspace)
    records = [r.ringfence for r in caplog.records]
    assert [r["event"] for r in records] == ["decision", "run"]
    assert records[-1]["exit_code"] == 4


def test_wider_is_refused_when_nobody_is_there(session, recorder):
    with pytest.raises(Denied) as caught:
        session.run("true", capabilities=session.capabilities.with_network("all"))
    error = caught.value
    assert "nobody is there" in error.message
    assert "do not try it again" in error.hint
    assert error.decision.verdict == "deny"
    assert error.denial.as_dict()["layer"] == "policy"
    assert recorder.events() == ["decision", "question", "answer", "refusal"]


def test_once_is_for_one_command(workspace, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    approver = FakeApprover("once")
    with Fence(approver=approver) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.with_write(other)
        for _ in range(2):
            session.run(["touch", str(other / "x")], capabilities=caps).check()
        assert len(approver.requests) == 2
        assert approver.requests[0].beyond == (f"write {other}",)
        session.run(["touch", str(other / "y")])  # at best into the private /tmp
    assert (other / "x").exists()
    assert not (other / "y").exists()


def test_session_covers_the_same_and_narrower(workspace, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    approver = FakeApprover("session")
    with Fence(approver=approver) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities
        session.run("true", capabilities=caps.with_read(tmp_path / "a"))
        session.run("true", capabilities=caps.with_read(tmp_path / "a"))
        session.run("true", capabilities=caps.with_read(tmp_path / "a" / "b"))
        assert len(approver.requests) == 1
        session.run("true", capabilities=caps.with_write(tmp_path / "a"))
        assert len(approver.requests) == 2


def test_a_granted_link_counts_as_its_target(workspace, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    approver = FakeApprover("deny")
    with Fence(approver=approver) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(Denied):
            session.run("true", capabilities=session.capabilities.with_write(tmp_path / "link"))
        assert approver.requests[0].beyond == (f"write {tmp_path / 'real'}",)


def test_narrower_is_taken_as_it_is(session, workspace):
    out = session.run("touch x", capabilities=session.capabilities.without_write())
    assert out.exit_code == 1
    assert "Read-only" in out.stderr
    assert session.run("touch x").ok


@pytest.mark.parametrize(
    ("approver", "words"),
    [
        (lambda request: Answer.deny("not on Sunday"), "not on Sunday"),
        (lambda request: 1 / 0, "ZeroDivisionError"),
        (lambda request: True, "returns an Answer"),
        (lambda request: time.sleep(5), "nobody answered within 0.2 s"),
    ],
)
def test_every_other_answer_is_a_no(workspace, approver, words):
    with Fence(Config(approval_wait=0.2), approver=approver) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(Denied, match=words):
            session.run("true", capabilities=session.capabilities.with_network("all"))


def test_a_ceiling_refuses_without_asking(workspace):
    (workspace / "ringfence.toml").write_text('[capabilities]\nnetwork = "none"\n')
    approver = FakeApprover("once")
    with Fence(approver=approver) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(Denied, match=r"ringfence\.toml does not allow network all"):
            session.run("true", capabilities=session.capabilities.with_network("all"))
    assert approver.requests == []


def test_cwd_outside_is_refused_before_anything_starts(workspace):
    backend = FakeBackend()
    with Fence(registry=fake_registry(backend)) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(Denied, match="cwd outside workspace root"):
            session.run("true", cwd="/")
        assert backend.launches == []


def test_cwd_and_env_reach_the_command(session, workspace):
    (workspace / "sub").mkdir()
    out = session.run("pwd; echo $FOO", cwd="sub", env={"FOO": "bar"})
    assert out.stdout == f"{workspace}/sub\nbar\n"


def test_a_timeout_is_a_result_with_partial_output(session):
    out = session.run("echo before; sleep 100", timeout=0.5)
    assert out.timed_out
    assert out.exit_code is None
    assert out.stdout == "before\n"
    assert "timeout of 0.5 s" in out.notes[0]
    with pytest.raises(CommandTimeout):
        out.check()


def test_the_most_specific_timeout_wins(workspace):
    with Fence(Config(timeout=0.3)) as fence, fence.session(workspace=workspace) as session:
        assert session.run("sleep 1").timed_out
        caps = session.capabilities.with_limits(Limits(timeout=5))
        assert session.run("sleep 0.5", capabilities=caps).ok
        assert session.run("sleep 1", capabilities=caps, timeout=0.2).timed_out
    with Fence(Config(max_timeout=0.3)) as fence, fence.session(workspace=workspace) as session:
        assert session.run("sleep 1", timeout=100).timed_out


def test_signals_are_apart_from_exit_codes(session):
    out = session.run("kill -TERM $$")
    assert (out.exit_code, out.signal) == (143, 15)
    assert session.run("exit 7").signal is None


def test_a_missing_program_is_an_error(session, workspace):
    with pytest.raises(ProgramNotFound, match="no program nonesuch"):
        session.run(["nonesuch"])
    (workspace / "plain").write_text("")
    with pytest.raises(ProgramNotFound, match="not executable"):
        session.run(["./plain"])
    (workspace / "broken").write_text("#!/no/such/interpreter\n")
    (workspace / "broken").chmod(0o755)
    with pytest.raises(ProgramNotFound, match="could not be executed"):
        session.run(["./broken"])
    assert session.run("nonesuch").exit_code == 127


def test_a_program_that_talks_like_bubblewrap_is_not_misread(session):
    out = session.run("echo 'bwrap: execvp foo: No such file or directory' >&2; exit 1")
    assert out.exit_code == 1


def test_stream(session):
    with session.stream("for i in 1 2 3; do echo $i; sleep 0.1; done; echo e >&2; exit 2") as stream:
        chunks = list(stream)
    assert b"".join(data for name, data in chunks if name == "stdout") == b"1\n2\n3\n"
    assert len(chunks) > 2
    assert stream.output.exit_code == 2
    assert stream.output.stdout == "1\n2\n3\n"


def test_a_stream_left_early_kills_its_command(session, recorder):
    started = time.monotonic()
    with session.stream("echo a; sleep 100") as stream:
        for _ in stream:
            break
    assert time.monotonic() - started < 5
    assert stream.output.signal == 9
    assert recorder.events()[-1] == "run"


def test_a_stream_that_raises_is_cleaned_up(session):
    def fail(_chunk):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), session.stream("echo a; sleep 100") as stream:
        any(map(fail, stream))
    assert stream.output.signal == 9


def test_cancel_from_another_thread(session):
    timer = threading.Timer(0.4, session.cancel)
    timer.start()
    out = session.run("sleep 100")
    timer.join()
    assert out.signal == 9
    assert not out.timed_out


def test_commands_of_a_short_lived_thread_live_on(session):
    """--die-with-parent follows the thread that started bwrap, which here is gone at once."""
    streams = []

    def start():
        stream = session.stream("sleep 0.5; echo done")
        stream.__enter__()
        streams.append(stream)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert b"".join(data for _, data in streams[0]) == b"done\n"
    streams[0].__exit__(None, None, None)
    assert streams[0].output.ok


def test_many_threads_at_once(session):
    results = []

    def work(number):
        results.append(session.run(f"echo {number}").stdout.strip() == str(number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 12


@pytest.mark.parametrize("warm", [True, False])
def test_no_descriptor_and_no_child_is_left(workspace, warm):
    def count():
        return len(os.listdir("/proc/self/fd"))

    with Fence(Config(warm=warm)) as fence:
        with fence.session(workspace=workspace) as session:
            session.run("true")
            before = count()
            for _ in range(20):
                session.run("true")
                session.run("sleep 5", timeout=0.05)
                with pytest.raises(ProgramNotFound):
                    session.run(["nonesuch"])
            assert count() == before
        assert other_children() == []


def test_other_code_may_reap_our_child(session):
    """A program with a general wait() takes the exit status; bubblewrap reports it on a pipe as well."""
    stop = threading.Event()

    def reap():
        while not stop.is_set():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.001)

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        assert [session.run("exit 5").exit_code for _ in range(5)] == [5] * 5
    finally:
        stop.set()
        thread.join()


def test_a_forked_child_can_use_the_fence(session):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = session.run("exit 6").exit_code
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6


def test_the_fake_backend_serves_users_tests(workspace):
    backend = FakeBackend({"make test": FakeReply(b"ok\n", b"warn\n", 2)})
    recorder = ListRecorder()
    with Fence(registry=fake_registry(backend), recorder=recorder) as fence:
        with fence.session("s", workspace) as session:
            out = session.run("make test", stdin=b"x", env={"A": "1"})
    assert (out.exit_code, out.stdout, out.stderr) == (2, "ok\n", "warn\n")
    assert backend.launches[0].env["A"] == "1"
    assert recorder.events() == ["decision", "run"]


def test_a_check_runs_nothing(fence, session, workspace):
    checked = fence.check(Command.of("touch x", session=session.id))
    assert checked.decision.verdict == "allow"
    assert str(workspace) in str(checked.plan)
    assert list(workspace.iterdir()) == []
    wide = session.capabilities.with_network(Network.all())
    assert fence.check(Command.of("x", session=session.id, capabilities=wide)).decision.verdict == "ask"


def test_read_only_home_grant_hides_credentials(tmp_path, workspace):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    (home / ".netrc").write_text("secret")
    (home / "notes").write_text("hello")
    env = {**os.environ, "HOME": str(home)}
    with Fence(approver=FakeApprover(), env=env) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.with_read(home)
        assert session.run("cat ~/notes", capabilities=caps).stdout == "hello"
        out = session.run("cat ~/.ssh/id ~/.netrc; ls -A ~/.ssh", capabilities=caps)
        assert "secret" not in out.stdout + out.stderr
        assert session.run(f"touch {home}/x", capabilities=caps).exit_code == 1


@pytest.fixture
def system_config_as_it_was():
    """Full access makes /etc/ringfence, so that a command cannot; take it away again."""
    existed = os.path.isdir("/etc/ringfence")
    yield
    if not existed and os.path.isdir("/etc/ringfence"):
        os.rmdir("/etc/ringfence")


def test_full_access_by_approval_still_hides_our_state(workspace, tmp_path, system_config_as_it_was):
    victim = tmp_path / "outside"
    victim.mkdir()
    with Fence(approver=FakeApprover()) as fence, fence.session(workspace=workspace) as session:
        caps = Capabilities.for_tier("full-access", str(workspace))
        out = session.run(f"touch {victim}/x && ls -A {fence.places.state}", capabilities=caps)
        assert out.ok, out.stderr
        assert out.stdout == ""
        assert (victim / "x").exists()


def test_only_a_clear_yes_is_a_yes(workspace):
    for kind in ("no", "denied", "", "DENY", None, "yes"):
        with pytest.raises(ValueError, match="once, session or deny"):
            Answer(kind)


def test_ceilings_hold_for_a_configuration_made_by_a_program(workspace, monkeypatch):
    monkeypatch.setenv("RINGFENCE_TIER", "read-only")
    with Fence(Config(tier="full-access")) as fence, fence.session(workspace=workspace) as session:
        assert session.capabilities.write == ()
    assert run("touch x", workspace=workspace, config=Config()).exit_code == 1


def test_the_host_is_no_way_around_a_ceiling(workspace, monkeypatch):
    approver = FakeApprover("once")
    with Fence(Config(backend="host"), approver=approver) as fence, fence.session(workspace=workspace) as session:
        session.run("true")
        assert approver.requests[0].beyond == ("no confinement at all: everything you may do",)
    monkeypatch.setenv("RINGFENCE_TIER", "read-only")
    with Fence(Config(backend="host"), approver=approver) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(Denied, match="the environment does not allow"):
            session.run("touch x")
    monkeypatch.delenv("RINGFENCE_TIER")
    required = Config(backend="host", require=("writes",))
    with Fence(required, approver=approver) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(UnsupportedPolicy, match="writes"):
            session.run("true")
    assert list(workspace.iterdir()) == []


def test_our_configuration_cannot_be_made_where_there_is_none(tmp_path, workspace, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "HOME": str(home)}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        del env[name]
    with Fence(approver=FakeApprover(), env=env) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.with_write(home)
        session.run(
            "mkdir -p ~/.config/ringfence; echo 'tier = \"full-access\"' > ~/.config/ringfence/config.toml",
            capabilities=caps,
        )
        session.run(
            "mv ~/.config ~/x; mkdir -p ~/.config/ringfence; touch ~/.config/ringfence/config.toml", capabilities=caps
        )
    assert Fence(env=env).config.tier == "workspace-write"
    assert not (home / ".config" / "ringfence" / "config.toml").exists()


def test_credentials_that_appear_later_are_hidden(tmp_path, workspace):
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "HOME": str(home)}
    with Fence(approver=FakeApprover("session"), env=env) as fence, fence.session(workspace=workspace) as session:
        caps = session.capabilities.with_read(home)
        session.run("true", capabilities=caps).check()
        (home / ".aws").mkdir()
        (home / ".aws" / "credentials").write_text("a secret")
        assert "a secret" not in session.run("cat ~/.aws/credentials", capabilities=caps).stdout


def test_a_start_that_fails_leaves_nothing_running(workspace, monkeypatch):
    from ringfence.sandbox.linux import started

    real = os.pidfd_open
    calls = []

    def late(pid, flags=0):
        calls.append(pid)
        if len(calls) == 1:
            time.sleep(0.05)
            raise KeyboardInterrupt
        return real(pid, flags)

    monkeypatch.setattr(started.os, "pidfd_open", late)
    with Fence(Config(warm=False)) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run("touch ran; sleep 5")
    time.sleep(0.3)
    assert not (workspace / "ran").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(calls[0], 0)


def test_input_is_bytes(session):
    assert session.run("cat", stdin=bytearray(b"abc")).stdout == "abc"
    with pytest.raises(TypeError, match="stdin is bytes"):
        session.run("cat", stdin=0)
    with pytest.raises(ValueError, match="timeout"):
        session.run("true", timeout="5")


def test_the_clock_runs_while_a_consumer_sleeps(session, workspace):
    with session.stream("echo a; sleep 1; touch late", timeout=0.3) as stream:
        time.sleep(1.6)
        assert [data for _, data in stream] == [b"a\n"]
    assert stream.output.timed_out
    assert not (workspace / "late").exists()


def test_a_session_opened_twice_closes_with_the_last(fence, workspace):
    with fence.session("s", workspace) as outer:
        with fence.session("s", workspace) as inner:
            inner.run("true").check()
        outer.run("true").check()
        with pytest.raises(SessionError, match="closed"):
            inner.run("true")


def test_a_session_may_be_left_in_another_thread(fence, workspace):
    session = fence.session("s", workspace)
    contextvars.copy_context().run(session.__enter__)
    thread = threading.Thread(target=session.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with pytest.raises(SessionError, match="no open session"):
        fence.sessions.get("s")


def test_a_broken_recorder_stops_a_start_and_keeps_an_output(workspace):
    class Broken:
        def __init__(self, event):
            self.event = event

        def record(self, record):
            if record.event == self.event:
                raise OSError("disk on fire")

    with Fence(recorder=Broken("decision")) as fence, fence.session(workspace=workspace) as session:
        with pytest.raises(OSError, match="fire"):
            session.run("touch ran")
    assert not (workspace / "ran").exists()
    with Fence(recorder=Broken("run")) as fence, fence.session(workspace=workspace) as session:
        out = session.run("echo hi")
    assert out.stdout == "hi\n"
    assert "fire" in out.notes[0]


def test_what_cannot_start_is_recorded_and_typed(session, recorder):
    with pytest.raises(RingfenceError):
        session.run(["/bin/echo", "x" * 3_000_000])
    assert recorder.events()[-1] == "failure"


def test_errors_survive_pickling(session):
    import pickle

    with pytest.raises(Denied) as caught:
        session.run("true", capabilities=session.capabilities.with_network("all"))
    for error in (caught.value, ConfigError("a", hint="b"), UnsupportedPolicy("x", "y", "z")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
        assert (type(copy), str(copy), copy.__dict__.keys()) == (type(error), str(error), error.__dict__.keys())


def test_a_write_grant_on_var_starts(workspace):
    with Fence(approver=FakeApprover()) as fence, fence.session(workspace=workspace) as session:
        assert session.run("ls /var/tmp", capabilities=session.capabilities.with_read("/var")).ok


def test_a_granted_path_that_has_vanished_is_left_out_and_said(workspace):
    config = Config(read=("/nonexistent/data",), write=("/nonexistent/other",))
    with Fence(config) as fence, fence.session(workspace=workspace) as session:
        out = session.run("echo hi")
    assert out.stdout == "hi\n"
    assert [note.split(": ")[1] for note in out.notes] == ["/nonexistent/data", "/nonexistent/other"]
