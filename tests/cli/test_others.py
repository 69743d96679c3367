from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

import ringfence


def test_check_shows_everything_and_runs_nothing(cli, workspace):
    out = cli("check", "-c", "touch x")
    assert out.returncode == 0
    for words in ("verdict   allow", "risk      unknown", "because", f"write  {workspace}", "network   none"):
        assert words in out.stdout
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code"), [(["-c", "x"], 0), (["--net", "all", "-c", "x"], 3), (["--cwd", "/", "--", "x"], 4)]
)
def test_check_exit_codes(cli, arguments, code):
    assert cli("check", *arguments).returncode == code


def test_check_json(cli, workspace):
    fields = json.loads(cli("check", "--json", "--write", "/srv", "--", "make", "install").stdout)
    assert fields["verdict"] == "ask"
    assert fields["command"] == ["make", "install"]
    assert "write /srv" in fields["reasons"][0]["text"]
    assert any(m["target"] == str(workspace) and m["writable"] for m in fields["plan"]["mounts"])


def test_check_many(cli):
    out = cli("check", "--stdin", "--json", input="ls\nrm -rf /\n\n")
    assert [json.loads(line)["command"] for line in out.stdout.splitlines()] == ["ls", "rm -rf /"]
    out = cli("check", "--stdin", "-0", input="echo a\necho b\0ls\0")
    assert len(out.stdout.split("unknown")) == 3


def test_status(cli):
    out = cli("status")
    assert out.returncode == 0, out.stdout
    for words in ("bubblewrap", "works", "<- used", "*writes", "missing with bubblewrap"):
        assert words in out.stdout
    assert "\033" not in out.stdout
    fields = json.loads(cli("status", "--json").stdout)
    assert fields["chosen"] == "bubblewrap"
    assert {b["name"] for b in fields["backends"]} == {"bubblewrap", "landlock", "host", "disabled"}
    assert "writes" in fields["backends"][0]["guarantees"]


def test_completion_scripts_are_valid_and_complete(cli):
    script = cli("completion", "bash").stdout
    for words in ("--workspace", "--status-fd", "read-only workspace-write full-access", "completion"):
        assert words in script
    asked = (
        'COMP_WORDS=(ringfence run --t); COMP_CWORD=2; _ringfence; echo "${COMPREPLY[@]}";'
        'COMP_WORDS=(ringfence st); COMP_CWORD=1; _ringfence; echo "${COMPREPLY[@]}"'
    )
    out = subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, check=True)
    assert out.stdout == "--tier --timeout\nstatus\n"
    for shell in ("zsh", "fish"):
        text = cli("completion", shell).stdout
        assert "ringfence" in text
        assert "timeout" in text
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("command", ["run", "check", "status", "completion"])
def test_help_has_examples(cli, command):
    assert "example" in cli(command, "--help").stdout


def test_version(cli):
    assert cli("--version").stdout == f"ringfence {ringfence.__version__}\n"


def test_run_imports_nothing_it_does_not_need(workspace):
    """Each of these costs milliseconds on every command (docs/decisions.md)."""
    code = (
        "import sys; from ringfence.cli.main import main; main(['run', '-n', '--', 'true']); "
        "print(' '.join(sorted(sys.modules)))"
    )
    run = [sys.executable, "-P", "-c", code]
    subprocess.run(run, cwd=workspace, check=True, capture_output=True)  # the first one makes the home
    out = subprocess.run(run, cwd=workspace, check=True, capture_output=True, text=True)
    loaded = set(out.stdout.split())
    unneeded = {
        "asyncio",
        "dataclasses",
        "inspect",
        "json",
        "logging",
        "pathlib",
        "shutil",
        "subprocess",
        "tempfile",
        "threading",
        "tomllib",
        "typing",
        "hashlib",
        "importlib.metadata",
        "ringfence.oneshot",
        "ringfence.testing",
        "ringfence.sandbox.host",
        "ringfence.approval.terminal",
        "ringfence.config.schema",
    }
    assert "ringfence.sandbox.linux.oneshot" in loaded
    assert loaded & unneeded == set()


def test_public_names_are_pinned():
    for name in ringfence.__all__:
        assert getattr(ringfence, name) is not None
    assert set(ringfence.__all__) == set(ringfence._HOMES)
    assert set(ringfence.__all__) <= set(dir(ringfence))
    with pytest.raises(AttributeError, match="no attribute"):
        ringfence.nonsense  # noqa: B018


def test_our_own_broken_output_is_no_traceback(cli, workspace):
    text = f"'{sys.executable}' -P -m ringfence status | true"
    out = subprocess.run(["bash", "-c", text], cwd=workspace, capture_output=True, text=True, check=False)
    assert "Traceback" not in out.stderr
    assert os.path.isdir(workspace)
