"""Refusals in a form that a model can act on, and none where the plan refused nothing."""

from __future__ import annotations

import pytest

from ringfence import Command
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
