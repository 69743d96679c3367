"""Writing outside the workspace through what the caller has open; by itself: `arsenal.py`."""

from __future__ import annotations

import os
import subprocess

import pytest

from ringfence import Fence


@pytest.fixture
def victim(tmp_path):
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "victim").write_text("precious")
    return directory


@pytest.mark.parametrize("arm", ["control", "inside"])
@pytest.mark.parametrize(
    "text",
    [
        "echo pwned > /proc/self/fd/0/new",
        "cd /proc/self/fd/0 && echo pwned > new",
        "mkdir /dev/fd/0/new",
    ],
)
def test_a_directory_given_as_stdin(cli, workspace, victim, text, arm):
    with open_directory(victim) as fd:
        if arm == "control":
            subprocess.run(["/bin/bash", "-c", text], stdin=fd, check=False, capture_output=True)
        else:
            cli("run", "-c", text, stdin=fd)
    assert (victim / "new").exists() == (arm == "control")


@pytest.mark.parametrize("arm", ["control", "inside"])
def test_a_file_opened_for_reading_is_not_reopened_for_writing(cli, workspace, victim, arm):
    text = "echo pwned > /proc/self/fd/0"
    with (victim / "victim").open() as file:
        if arm == "control":
            subprocess.run(["/bin/bash", "-c", text], stdin=file, check=False, capture_output=True)
        else:
            cli("run", "-c", text, stdin=file)
    assert (victim / "victim").read_text() == ("pwned\n" if arm == "control" else "precious")


@pytest.mark.parametrize("arm", ["control", "inside"])
def test_inherited_descriptors_are_closed(workspace, victim, arm):
    """A caller's descriptor that was left open for children leads nowhere inside."""
    with open_directory(victim) as fd:
        os.set_inheritable(fd, True)
        text = f"echo pwned > /proc/self/fd/{fd}/new"
        if arm == "control":
            subprocess.run(["/bin/bash", "-c", text], pass_fds=[fd], check=False, capture_output=True)
        else:
            with Fence() as fence, fence.session(workspace=workspace) as session:
                session.run(text)
                listing = session.run("ls /proc/self/fd").stdout.split()
                assert listing == ["0", "1", "2", "3"]  # 3 is the listing's own
    assert (victim / "new").exists() == (arm == "control")


def test_only_pipes_of_ours_reach_the_command(cli, workspace):
    out = cli("run", "-c", "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2", stdin=None)
    lines = out.stdout.split()
    assert len(lines) == 3
    assert all(line.startswith("pipe:") for line in lines)


class open_directory:  # noqa: N801  # used like a function
    def __init__(self, path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def test_the_workspace_itself_is_writable(session, workspace):
    """The other side of all of the above: a fence that stops everything would pass those tests."""
    out = session.run(
        "echo a > new && echo b >> new && mkdir d && mv new d/x && ln d/x y && chmod 600 y && rm -r d && cat y"
    )
    assert out.stdout == "a\nb\n", out.stderr
