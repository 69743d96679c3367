from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

RINGFENCE = [sys.executable, "-P", "-m", "ringfence"]


def test_it_is_transparent(cli):
    out = cli("run", "-c", "cat; echo err >&2; exit 7", input="in\n")
    assert (out.returncode, out.stdout) == (7, "in\n")
    assert out.stderr.splitlines()[0] == "err"


def test_a_program_gets_its_own_options(cli):
    assert cli("run", "--", "echo", "--json", "-c").stdout == "--json -c\n"
    assert cli("run", "echo", "--timeout", "3").stdout == "--timeout 3\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-c", "exit 0"], 0),
        (["-c", "exit 255"], 255),
        (["-c", "kill -TERM $$"], 143),
        (["--timeout", "0.3", "-c", "sleep 50"], 124),
        (["--backend", "magic", "-c", "true"], 125),
        (["--backend", "disabled", "-c", "true"], 125),
        (["--net", "all", "-c", "true"], 126),
        (["--write", "/etc", "-c", "true"], 126),
        (["--tier", "full-access", "-c", "true"], 126),
        (["--backend", "host", "-c", "true"], 126),
        (["--cwd", "/", "-c", "true"], 126),
        (["--", "nonesuch"], 127),
        (["--net", "example.com", "-c", "true"], 125),
        (["--no-spawn", "-c", "exit 5"], 5),
        (["--no-spawn", "-c", "ls; ls"], 254),
        (["--publish", "3000", "-c", "true"], 125),
        (["--read", "/nonexistent", "-c", "true"], 125),
        (["--env", "LD_PRELOAD=x", "-c", "true"], 125),
        (["--workspace", "/", "-c", "true"], 125),
        (["--workspace", "/nonexistent", "-c", "true"], 125),
        (["--net", "**", "-c", "true"], 125),
        ([], 2),
        (["-c", "true", "--", "true"], 2),
        (["--timeout", "-1", "-c", "true"], 2),
        (["--memory", "0", "-c", "true"], 2),
        (["--status-fd", "77", "-c", "true"], 2),
        (["--nonsense"], 2),
        (["--time", "3", "-c", "true"], 2),
    ],
)
def test_exit_codes(cli, arguments, code):
    out = cli("run", *arguments)
    assert out.returncode == code, out.stderr
    if code in {124, 125, 126, 127}:
        assert out.stderr.startswith("ringfence: ") or "\nringfence: " in out.stderr
        assert "Traceback" not in out.stderr


def test_json_has_the_documented_shape(cli):
    out = cli("run", "--json", "-c", "printf '\\377x'; echo e >&2; exit 3")
    fields = json.loads(out.stdout)
    assert out.returncode == fields["exit_code"] == 3
    assert fields["signal"] is None
    assert fields["stdout"] == "\ufffdx"
    assert fields["stdout_base64"] == "/3g="
    assert fields["stderr"] == "e\n"
    assert "stderr_base64" not in fields
    assert fields["timed_out"] is False
    assert fields["truncated"] is False
    assert fields["duration_ms"] > 0
    assert fields["decision"]["verdict"] == "allow"
    assert fields["decision"]["risk"] == "unknown"
    assert fields["decision"]["reasons"][0]["factor"] == "baseline"
    assert fields["enforcement"]["backend"] == "bubblewrap"
    assert set(fields["enforcement"]) == {"backend", "confined", "layers", "limits", "missing"}
    assert fields["denials"] == []


def test_json_tells_a_refusal(cli):
    out = cli("run", "--json", "--net", "all", "-c", "true")
    fields = json.loads(out.stdout)
    assert out.returncode == 126
    assert fields["error"]["kind"] == "Denied"
    assert fields["decision"]["verdict"] == "deny"
    assert fields["denials"][0]["layer"] == "policy"
    assert out.stderr == ""


def test_json_truncates_in_the_middle(cli):
    fields = json.loads(cli("run", "--json", "-c", "head -c 2000000 /dev/zero | tr '\\0' 'é'").stdout)
    assert fields["truncated"]
    assert fields["stdout_dropped_bytes"] > 1_000_000
    assert "bytes dropped" in fields["stdout"]
    assert len(fields["stdout"]) < 2**20


def test_the_status_descriptor_tells_our_ends_from_the_commands(cli):
    def outcome(*arguments):
        read, write = os.pipe()
        cli("run", "--status-fd", str(write), *arguments, pass_fds=[write])
        os.close(write)
        with open(read, encoding="utf-8") as file:
            return json.loads(file.read())

    assert outcome("-c", "exit 124") == {"outcome": "exited", "exit_code": 124, "signal": None}
    assert outcome("--timeout", "0.2", "-c", "sleep 9")["outcome"] == "timed-out"
    assert outcome("--net", "all", "-c", "true")["outcome"] == "refused"
    assert outcome("--", "nonesuch")["outcome"] == "failed"
    assert outcome("-c", "kill -9 $$")["signal"] == 9


def test_variables(cli, tmp_path):
    (tmp_path / "env").write_text("# comment\nA=1\nexport B='two words'\n\nC=\"q\"\n")
    out = cli(
        "run",
        "--env-file",
        str(tmp_path / "env"),
        "--env",
        "D=4",
        "--env",
        "E",
        "-c",
        "echo $A $B $C $D $E $F",
        env={**os.environ, "E": "5", "F": "6"},
    )
    assert out.stdout == "1 two words q 4 5\n"
    (tmp_path / "bad").write_text("no equals sign\n")
    bad = cli("run", "--env-file", str(tmp_path / "bad"), "-c", "true")
    assert bad.returncode == 125
    assert "line 1" in bad.stderr
    assert cli("run", "--env-file", "/nonexistent", "-c", "true").returncode == 125


def test_a_session_keeps_its_tmp_and_without_one_it_is_gone(cli):
    cli("run", "--session", "s", "-c", "echo kept > /tmp/file")
    assert cli("run", "--session", "s", "-c", "cat /tmp/file").stdout == "kept\n"
    assert cli("run", "--session", "t", "-c", "cat /tmp/file").returncode == 1
    cli("run", "-c", "echo lost > /tmp/file")
    assert cli("run", "-c", "cat /tmp/file").returncode == 1


def test_the_default_workspace_is_the_project_around(cli, workspace):
    (workspace / ".git").mkdir()
    inner = workspace / "a" / "b"
    inner.mkdir(parents=True)
    out = cli("run", "-c", "pwd; touch ../../top", cwd=inner)
    assert out.stdout == f"{inner}\n"
    assert (workspace / "top").exists()


def test_elsewhere_the_command_starts_in_the_workspace(cli, workspace, tmp_path):
    assert cli("run", "--workspace", str(workspace), "-c", "pwd", cwd=tmp_path).stdout == f"{workspace}\n"


def test_tiers(cli, workspace):
    assert cli("run", "--tier", "read-only", "-c", "touch x").returncode == 1
    assert cli("run", "--tier", "workspace-write", "-c", "touch x").returncode == 0


def test_a_memory_ceiling_holds(cli):
    eater = "python3 -c 'x = bytearray(400 * 2**20); print(len(x))'"
    assert cli("run", "-c", eater).returncode == 0
    out = cli("run", "--json", "--memory", "200", "-c", eater)
    assert json.loads(out.stdout)["enforcement"]["limits"]["memory"].startswith("200 MiB")
    assert out.returncode in {1, 137}  # told by Python where each process has its ceiling, else by the kernel
    assert "MemoryError" in out.stdout or '"operation": "memory"' in out.stdout


def test_missing_guarantees_are_named_once(cli):
    assert "not guaranteed here" in cli("run", "-c", "true").stderr
    assert cli("run", "-c", "true").stderr == ""


def test_output_into_a_closed_pipe_ends_the_command(workspace):
    started = time.monotonic()
    out = subprocess.run(
        ["bash", "-c", '"$@" | head -1', "x", *RINGFENCE, "run", "-c", "yes"],
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    assert out.stdout == b"y\n"
    assert time.monotonic() - started < 20


def test_a_timeout_holds_while_nobody_reads_our_output(workspace):
    process = subprocess.Popen(
        [
            *RINGFENCE,
            "run",
            "--timeout",
            "1",
            "-c",
            "yes > /dev/stderr & while :; do date +%N > tick; yes | head -c 200000; done",
        ],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(2.5)
    stamp = (workspace / "tick").read_text()
    time.sleep(0.5)
    assert (workspace / "tick").read_text() == stamp
    process.communicate(timeout=20)
    assert process.returncode == 124


def running(workspace, text):
    process = subprocess.Popen(
        [*RINGFENCE, "run", "-c", text],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_reach_the_command(workspace, number, code):
    process = running(workspace, "echo ready; exec sleep 100")
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code


def test_a_command_may_end_gracefully(workspace):
    process = running(workspace, "trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.1; done")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (5, "bye\n")


def test_a_second_interrupt_kills(workspace):
    process = running(workspace, "trap '' INT TERM; echo ready; while :; do sleep 0.1; done")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 137


def test_nothing_survives_our_own_death(workspace):
    process = running(
        workspace, "(while :; do date +%N > tick; sleep 0.02; done) & setsid sleep 77 & echo ready; sleep 100"
    )
    process.kill()
    process.communicate(timeout=20)
    time.sleep(0.5)
    stamp = (workspace / "tick").read_text()
    time.sleep(0.3)
    assert (workspace / "tick").read_text() == stamp


def test_the_whole_tree_dies_with_the_timeout(cli):
    sleep = f"sleep 1234.{os.getpid()}"
    out = cli("run", "--timeout", "1", "-c", f"{sleep} & setsid {sleep} & disown; {sleep}")
    assert out.returncode == 124
    assert subprocess.run(["pgrep", "-f", sleep], capture_output=True, check=False).stdout == b""


def test_closed_standard_descriptors(workspace):
    for closing in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        text = " ".join([*(f"'{a}'" for a in RINGFENCE), "run", "-c", "'cat; echo hi; exit 6'", closing])
        assert (
            subprocess.run(["bash", "-c", text], cwd=workspace, check=False, capture_output=True, input=b"").returncode
            == 6
        )


def test_a_file_and_nothing_as_stdin(cli, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 3_000_000)
    with (tmp_path / "big").open("rb") as file:
        assert cli("run", "-c", "wc -c", stdin=file).stdout.strip() == "3000000"
    with (tmp_path / "big").open("rb") as file:
        assert cli("run", "-n", "-c", "wc -c", stdin=file).stdout.strip() == "0"
        assert file.tell() == 0


def test_many_interrupts_at_once_do_not_hang(workspace):
    for _ in range(6):
        process = running(workspace, "trap '' INT; echo ready; while :; do sleep 0.05; done")
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            for _ in range(3):
                process.send_signal(signal.SIGINT)
            time.sleep(0.0002)
        process.communicate(timeout=20)
        assert process.returncode in {137, 130, -signal.SIGINT}  # the last one may meet us on our way out


def test_ignored_signals_stay_ignored(workspace):
    text = f"trap '' HUP; exec '{sys.executable}' -P -m ringfence run -c 'echo ready; sleep 1; exit 4'"
    process = subprocess.Popen(
        ["bash", "-c", text], cwd=workspace, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=20)
    assert process.returncode == 4


def test_a_stalled_reader_does_not_hold_a_timeout_or_a_signal_up(workspace):
    for act, code in ((None, 124), (signal.SIGTERM, 143)):
        read, write = os.pipe()
        started = time.monotonic()
        arguments = ["--timeout", "1"] if act is None else []
        process = subprocess.Popen(
            [*RINGFENCE, "run", *arguments, "-c", "yes"],
            cwd=workspace,
            stdout=write,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        time.sleep(1.2)
        if act is not None:
            process.send_signal(act)
            process.send_signal(act)
        assert process.wait(timeout=20) in {code, 137}
        assert time.monotonic() - started < 10
        os.close(read)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_slow_reader_gets_everything(workspace, kind):
    import socket

    if kind == "pipe":
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
    else:
        left, right = socket.socketpair()
        ours, theirs = left.detach(), right.detach()
    process = subprocess.Popen(
        [*RINGFENCE, "run", "-c", "seq 200000"],
        cwd=workspace,
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    data = b""
    while chunk := os.read(ours, 20000):
        data += chunk
        time.sleep(0.001)
    os.close(ours)
    _, errors = process.communicate(timeout=30)
    assert data == b"".join(b"%d\n" % n for n in range(1, 200001))
    assert b"Traceback" not in errors
    assert process.returncode == 0


@pytest.mark.parametrize(
    "command", [["status"], ["check", "-c", "x"], ["run", "--json", "-c", "x"], ["run", "--", "nonesuch"]]
)
def test_closed_output_is_no_traceback(workspace, command):
    words = " ".join(f"'{w}'" for w in [*RINGFENCE, *command])
    out = subprocess.run(["bash", "-c", f"{words} >&- 2>log"], cwd=workspace, check=False, stdin=subprocess.DEVNULL)
    assert "Traceback" not in (workspace / "log").read_text()
    assert out.returncode == (127 if "nonesuch" in command else out.returncode)


@pytest.mark.parametrize("seconds", ["2200000", "1e10", "inf"])
def test_any_timeout_is_taken(cli, seconds):
    assert cli("run", "--timeout", seconds, "-c", "exit 3").returncode == 3


def test_a_timeout_ceiling_holds_for_everything(cli, workspace):
    (workspace / "ringfence.toml").write_text("timeout = 1\n")
    assert cli("run", "-c", "sleep 9").returncode == 124
    assert cli("run", "--timeout", "8", "-c", "sleep 9").returncode == 124


def test_wrong_options_say_so(cli, tmp_path):
    (tmp_path / "env").write_text("1 x=2\n")
    for arguments, words in (
        (["--env", "HOME=/x"], "HOME"),
        (["--env", "NOT_SET_ANYWHERE"], "no such variable"),
        (["--env-file", str(tmp_path / "env")], "line 1"),
        (["--cwd", "nodir"], "does not exist"),
    ):
        out = cli("run", *arguments, "-c", "true")
        assert out.returncode in {125, 126}
        assert words in out.stderr
    assert cli("run", "--publish", "99999", "-c", "true").returncode == 2
    assert cli("run", "--status-fd", "99999999999999", "-c", "true").returncode == 2


def test_names_with_odd_line_breaks(tmp_path, cli):
    for name in ("a\rb", "a\x0bb", "a\x0cb", "a\x1cb", "a\u2028b", "a\x85b"):
        place = tmp_path / name
        place.mkdir()
        assert cli("run", "-c", "exit 3", cwd=place).returncode == 3


@pytest.mark.as_root  # to mount a small file system
def test_a_full_disk_under_our_own_output_is_said(workspace, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", small], check=True)
    try:
        with (small / "log").open("wb") as log:
            out = subprocess.run(
                [*RINGFENCE, "run", "-c", "head -c 3000000 /dev/zero"],
                cwd=workspace,
                stdout=log,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                check=False,
            )
        assert "could not be written: No space left" in out.stderr
        assert "Traceback" not in out.stderr
        assert (small / "log").stat().st_size > 0
    finally:
        subprocess.run(["umount", small], check=True)
