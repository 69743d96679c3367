"""The sandbox's own first process: whoever decides what it does decides when it dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from ringfence import Config, Fence
from ringfence.sandbox import layout

# Makes PID 1 forget that it dies with its parent, by writing code into its memory where it waits.
INJECT = """
import os, sys
with open("/proc/1/syscall") as file:
    counter = int(file.read().split()[-1], 16)
code = bytes.fromhex("b89d000000bf0100000031f631d20f05" "b8220000000f05ebf7")
memory = os.open("/proc/1/mem", os.O_RDWR)
os.pwrite(memory, code, counter)
print("injected", flush=True)
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os._exit(0)
os.wait()
"""


@pytest.fixture(params=["inside", "control"])
def arm(request, monkeypatch):
    """The control arm shows /proc/1, as bubblewrap does by itself."""
    if request.param == "control":
        real = layout._View._add

        def add(self, mount):
            if mount.target != "/proc/1":
                real(self, mount)

        monkeypatch.setattr(layout._View, "_add", add)
    return request.param


def test_it_is_not_there(workspace, arm):
    with Fence(Config(warm=False)) as fence, fence.session(workspace=workspace) as session:
        out = session.run(
            "test -e /proc/1/mem && echo there; test -e /proc/1/exe && echo there; ls -d /proc/self/../1/mem"
        )
    assert ("there" in out.stdout) == (arm == "control")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the injected code is x86-64")
def test_its_memory_cannot_be_written(workspace, arm):
    (workspace / "inject.py").write_text(INJECT)
    with Fence(Config(warm=False)) as fence, fence.session(workspace=workspace) as session:
        out = session.run("python3 inject.py", timeout=5)
    assert ("injected" in out.stdout) == (arm == "control"), out.stderr


def test_the_process_list_still_works(session):
    out = session.run("ps ax -o pid,comm > list; grep -c bash list")
    assert out.stdout == "1\n", out.stderr


def test_a_killed_ringfence_takes_its_command_along(workspace):
    (workspace / "inject.py").write_text(INJECT)
    text = "python3 inject.py; while :; do date +%N > tick; sleep 0.02; done"
    code = f"import ringfence; ringfence.run({text!r}, workspace={str(workspace)!r})"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 20
    while not (workspace / "tick").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(0.4)
    stamp = (workspace / "tick").read_text()
    time.sleep(0.4)
    assert (workspace / "tick").read_text() == stamp


def test_the_users_keys_are_not_listed(session):
    with open("/proc/keys", encoding="ascii") as file:
        file.read()
    assert session.run("cat /proc/keys").exit_code != 0
