"""Refusals in a form that a model can act on, and none where the plan refused nothing."""

from __future__ import annotations

import os

import pytest

from ringfence import Command, Config, Fence
from ringfence.sandbox.denials import infer


@pytest.mark.parametrize(
    ("text", "operation", "subject"),
    [
        ("echo x > /usr/bin/new", "write", "/usr/bin/new"),
        ("cp /bin/true /usr/bin/new", "write", "/usr/bin/new"),
        ("touch /etc/new", "write", "/etc/new"),
        ("cd /usr && touch share/new", "write", None),
        ("python3 -c \"open('/usr/new', 'w')\"", "write", "/usr/new"),
        ("cat /srv/data/file", "read", "/srv/data/file"),
        ("python3 -c \"open('/srv/file')\"", "read", "/srv/file"),
        ("python3 -c \"import urllib.request as u; u.urlopen('http://example.com')\"", "connect", ""),
    ],
)
def test_refusals_are_recognised(session, text, operation, subject):
    out = session.run(text)
    assert out.exit_code != 0
    assert [d.operation for d in out.denials] == [operation] if subject is not None else True
    for denial in out.denials:
        assert denial.evidence == "inferred"
        assert "--" in denial.hint
        if subject:
            assert denial.subject == subject


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("strace true", "ptrace"),
        ("gdb -batch -ex run --args /bin/true 2>&1 | grep -i ptrace >&2; exit 1", "ptrace"),
        ("unshare -U true", "unshare"),
        ("unshare --mount true", "unshare"),
        ("chromium --headless --dump-dom about:blank", "unshare"),
    ],
)
def test_refused_calls_are_recognised(session, text, call):
    out = session.run(text, timeout=60)
    assert out.exit_code != 0
    assert call in [d.subject for d in out.denials], out.stderr
    assert {(d.layer, d.operation, d.evidence) for d in out.denials} == {("seccomp", "call", "inferred")}


def test_no_processes_names_the_grant(session):
    out = session.run("ls | cat", capabilities=session.capabilities.without_spawn())
    assert [(d.subject, d.rule) for d in out.denials] == [("fork", "spawn")]


def test_landlock_alone_names_what_it_refused(workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (workspace / "closed").write_text("x")
    with Fence(Config(backend="landlock")) as fence, fence.session(workspace=workspace) as session:
        (read,) = session.run(["cat", str(outside / "file")]).denials
        assert (read.layer, read.operation, read.rule) == ("landlock", "read", "not-visible")
        assert f"--read {outside}/file" in read.hint
        (tmp,) = session.run(f"touch /tmp/ringfence-none-{os.getpid()}").denials
        assert "TMPDIR" in tmp.hint
        (network,) = session.run(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"]).denials
        assert (network.layer, network.operation) == ("seccomp", "connect")
        for text in ("cat missing", "echo 'x: Permission denied' >&2; exit 1", "echo 'Permission denied' >&2; exit 1"):
            assert session.run(text).denials == ()


@pytest.mark.as_user  # root's own rights are not limited by a file's mode
def test_a_files_own_mode_is_not_taken_for_landlock(workspace):
    with Fence(Config(backend="landlock")) as fence, fence.session(workspace=workspace) as session:
        assert session.run("cat /etc/shadow").denials == ()
        assert session.run("touch /usr/new").denials == ()
        assert session.run("touch closed; chmod 0 closed; cat closed").denials == ()


def test_a_hidden_secret_names_the_grant(session, workspace):
    (workspace / ".env").write_text("x")
    (denial,) = session.run("cat .env").denials
    assert (denial.operation, denial.rule, denial.subject) == ("read", "hidden", str(workspace / ".env"))
    assert f"--read {workspace}/.env" in denial.hint


@pytest.mark.parametrize(
    "text",
    [
        "echo 'permission denied'; echo 'Permission denied' >&2; exit 1",
        "echo 'login: Permission denied (publickey).' >&2; exit 255",
        "touch x; chmod 0 x; echo './x: Permission denied' >&2; exit 1",
        "cat missing",
        "cat ./sub/missing /tmp/missing ~/missing",
        "ls /usr/missing",
        "echo 'error: /usr/lib is fine' >&2; exit 2",
        "echo '/usr/x: Read-only file system' >&2; exit 0",
        "nonesuch",
        "exit 3",
        "echo 'mount: not permitted by the caterer' >&2; exit 0",
        "echo 'chown: x: Operation not permitted' >&2; exit 1",
    ],
)
def test_other_failures_are_not_misread(session, text):
    assert session.run(text).denials == ()


def test_they_reach_json_and_are_bounded(cli):
    import json

    out = cli("run", "--json", "-c", "for i in $(seq 50); do touch /usr/$i; done")
    denials = json.loads(out.stdout)["denials"]
    assert len(denials) == 5
    assert denials[0]["layer"] == "mounts"


@pytest.mark.parametrize(
    "line",
    ["a a: 'b " * 9000, "'" * 65000, ": " * 32000, "x: Permission denied " * 3000, "Permission denied: '" * 3000],
)
def test_hostile_words_take_no_time(fence, session, line):
    plan = fence.check(Command.of("true", session=session.id)).plan
    for text in (line, line + ": Permission denied", (line + "\n") * 3):
        assert infer(plan, cwd=session.workspace, stderr=text) == ()
