"""What works in a terminal works inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest

from ringfence import Fence, run


def both(session, text, stdin=None):
    """Run shell text inside, and outside on the same kind of shell."""
    inside = session.run(text, stdin=stdin)
    outside = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-c", text], input=stdin, capture_output=True, check=False
    )
    return inside, outside


@pytest.mark.parametrize(
    "text",
    [
        "echo x >/dev/null && echo ok",
        "echo out >/dev/stdout; echo err >/dev/stderr",
        "set -o pipefail; false | true; echo $?",
        "set -o pipefail; printf 'b\\na\\n' | sort | head -1",
        "cat <<EOF\n$((1+2)) here\nEOF",
        "cat <<'EOF' | tr a-z A-Z\nquoted $x\nEOF",
        "exit 42",
        "kill -9 $$",
        "kill -PIPE $$",
        "sh -c 'kill -TERM $$'; echo $?",
        "yes | head -3",
        "printf '\\377\\376binary\\0nul'",
        "diff <(echo a) <(echo b)",
        "trap 'echo bye' EXIT; echo hi",
        "exec 3>&1; echo to3 >&3",
        "ulimit -c",
        "umask",
        "echo $((2**40)) ${#PATH}",
        "test -t 0; echo $?; test -w /dev/null; echo $?",
        "(sleep 0.1; echo late) & wait",
        "nproc",
        "id -u",
        "date +%Z",
        "getent passwd root",
        "echo 'no newline at end' | od -c | tail -2",
    ],
)
def test_it_behaves_as_in_a_terminal(session, text):
    inside, outside = both(session, text)
    assert inside.stdout_bytes == outside.stdout
    assert inside.stderr_bytes == outside.stderr
    expected = outside.returncode if outside.returncode >= 0 else 128 - outside.returncode
    assert inside.exit_code == expected
    assert inside.signal == (-outside.returncode if outside.returncode < 0 else None)


def test_mktemp_and_tmp_survive_between_commands(session):
    path = session.run("mktemp").check().stdout.strip()
    assert path.startswith("/tmp/")
    assert not os.path.exists(path)
    assert session.run(f"test -f {path} && echo there").stdout == "there\n"
    assert session.run("d=$(mktemp -d) && touch $d/x && mktemp -p /var/tmp && mktemp -p /dev/shm").ok


def test_200_kib_of_stdin(session):
    assert session.run("wc -c", stdin=b"x" * 200 * 1024).stdout.strip() == str(200 * 1024)


def test_stdin_that_nobody_reads(session):
    assert session.run("true", stdin=b"x" * 10_000_000).ok
    assert session.run("cat").stdout == ""


def test_binary_output_is_exact(session):
    every = bytes(range(256)) * 40
    out = session.run("cat", stdin=every)
    assert out.stdout_bytes == every


def test_a_server_on_loopback_with_a_client(session, workspace):
    (workspace / "hello.txt").write_text("hello over loopback")
    out = session.run(
        "python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & "
        "for i in $(seq 50); do "
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8765/hello.txt\").read().decode())'"
        " 2>/dev/null && exit 0; sleep 0.1; done; exit 1",
        timeout=60,
    )
    assert out.stdout == "hello over loopback\n", out.stderr


def test_git_init_and_commit(session, workspace):
    out = session.run(
        "git init -q . && echo a > a && git add a && git -c user.name=A -c user.email=a@example.com commit -qm first"
        " && git log --format=%s && git status --short"
    )
    assert out.stdout == "first\n", out.stderr
    host = subprocess.run(
        ["git", "-C", workspace, "log", "--format=%s %an"], capture_output=True, text=True, check=True
    )
    assert host.stdout == "first A\n"


def test_the_users_git_identity_is_there(tmp_path, workspace):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        '[user]\n\tname = "Ann \\"Q\\" Other"\n\temail = ann@example.com\n[alias]\n\tx = !touch /tmp/x\n'
    )
    env = {**os.environ, "HOME": str(home)}
    with Fence(env=env) as fence, fence.session(workspace=workspace) as session:
        out = session.run("git config --global --list")
    assert out.stdout == 'user.name=Ann "Q" Other\nuser.email=ann@example.com\n'


@pytest.mark.parametrize(
    "name", ["plain", "with space", "new\nline", "ünïcödé", "a'b\"c", "-dash", "dollar$x", "co:mma,=", "back\\slash"]
)
def test_any_name_of_a_workspace(tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    out = run('pwd; echo x > "$PWD/file"', workspace=place)
    assert out.stdout == f"{place}\n", out.stderr
    assert (place / "file").read_text() == "x\n"


def test_a_workspace_below_the_home(tmp_path):
    home = tmp_path / "home"
    place = home / "code" / "project"
    place.mkdir(parents=True)
    (home / "code" / "other").write_text("private")
    env = {**os.environ, "HOME": str(home)}
    with Fence(env=env) as fence, fence.session(workspace=place) as session:
        out = session.run("echo x > f; ls ~ ~/code; cat ~/code/other; echo $HOME; touch ~/.cache-test")
        assert out.stdout == f"{home}:\ncode\n\n{home}/code:\nproject\n{home}\n"
        assert session.run("test -e ~/.cache-test").ok
    assert (place / "f").exists()
    assert not (home / ".cache-test").exists()


def test_a_workspace_reached_through_a_symlink(tmp_path, workspace):
    link = tmp_path / "link"
    link.symlink_to(workspace)
    out = run("pwd; touch x", workspace=link)
    assert out.stdout == f"{workspace}\n"
    assert (workspace / "x").exists()


def test_a_workspace_on_another_file_system():
    place = "/dev/shm/ringfence-test-workspace"
    shutil.rmtree(place, ignore_errors=True)
    os.mkdir(place)
    try:
        # /dev is no place for a workspace, wherever it lies
        from ringfence import SessionError

        with pytest.raises(SessionError, match="too much"):
            run("true", workspace=place)
    finally:
        os.rmdir(place)


def test_programs_below_the_home_run_and_the_rest_is_invisible(tmp_path, workspace):
    home = tmp_path / "home"
    for directory in (".local/bin", ".pyenv/shims", ".pyenv/versions", "tools/bin", ".ssh"):
        (home / directory).mkdir(parents=True)
    for name in (".local/bin/mine", "tools/bin/other", ".pyenv/shims/shim"):
        (home / name).write_text("#!/bin/sh\necho ran $0\n")
        (home / name).chmod(0o755)
    (home / ".pyenv/versions/data").write_text("needed by the shim")
    (home / "tools/secret").write_text("not on PATH")
    path = f"{home}/.local/bin:{home}/.pyenv/shims:{home}/tools/bin:{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(home), "PATH": path}
    with Fence(env=env) as fence, fence.session(workspace=workspace) as session:
        assert session.run(["mine"]).stdout == f"ran {home}/.local/bin/mine\n"
        assert session.run("shim && other && cat ~/.pyenv/versions/data").ok
        assert session.run(f"ls -A {home}").stdout.split() == [".local", ".pyenv", "tools"]
        assert session.run("cat ~/tools/secret").exit_code == 1
        assert session.run("echo x > ~/.local/bin/mine").exit_code == 1
        assert session.run("echo x > ~/.local/new && cat ~/.local/new").ok


def test_the_users_own_python_runs_inside(session):
    """Here `python3` may be a shim below the home directory."""
    out = session.run("python3 -c 'import sys, ssl, sqlite3; print(sys.version_info >= (3, 9))'")
    assert out.stdout == "True\n", out.stderr
    assert session.run(["python3", "-c", "print(1)"]).stdout == "1\n"


def test_background_processes_end_with_their_command(session, workspace):
    out = session.run("(while :; do date +%N > tick; sleep 0.02; done) & sleep 0.3; echo done", timeout=10)
    assert out.stdout == "done\n"
    assert out.duration_ms < 5000
    stamp = (workspace / "tick").read_text()
    time.sleep(0.2)
    assert (workspace / "tick").read_text() == stamp


def test_what_is_written_belongs_to_the_user(session, workspace):
    session.run("touch f; mkdir d").check()
    for name in ("f", "d"):
        assert (workspace / name).stat().st_uid == os.geteuid()
