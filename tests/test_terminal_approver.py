"""Asking on a real terminal: one question at a time, and only what is typed after its card counts."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from ringfence.model.text import printable

PROGRAM = """
import sys, threading, time
import ringfence
from ringfence.approval.terminal import TerminalApprover

with ringfence.Fence(approver=TerminalApprover()) as fence, fence.session(workspace=sys.argv[1]) as session:
    wide = session.capabilities.with_network("all")

    def run(name, pause):
        time.sleep(pause)
        try:
            session.run("echo " + name, capabilities=wide)
            print("RAN", name, flush=True)
        except ringfence.Denied as error:
            print("DENIED", name, error.message, flush=True)

    threads = [threading.Thread(target=run, args=(n, p)) for n, p in (("first", 0), ("second", 0.4))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


class Terminal:
    def __init__(self, argv, cwd=None):
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, cwd=cwd
        )
        os.close(theirs)
        self.seen = ""

    def until(self, words):
        deadline = time.monotonic() + 20
        while words not in self.seen and time.monotonic() < deadline:
            ready, _, _ = select.select([self.ours], [], [], 0.2)
            if ready:
                try:
                    self.seen += os.read(self.ours, 4096).decode()
                except OSError:
                    break
        assert words in self.seen, self.seen

    def type(self, text):
        os.write(self.ours, text.encode())

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal():
    made = []

    def make(argv, cwd=None):
        made.append(Terminal(argv, cwd))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_answer_reaches_the_question_that_is_shown(terminal, workspace):
    screen = terminal([sys.executable, "-c", PROGRAM, str(workspace)])
    screen.until("[n] no:")
    assert "echo first" in screen.seen
    time.sleep(0.8)  # the second one is waiting by now, and shows nothing
    assert "echo second" not in screen.seen
    screen.type("n\n")
    screen.until("DENIED first")
    screen.until("echo second")
    screen.seen = screen.seen.rpartition("may this run?")[2]
    screen.until("[n] no:")
    screen.type("y\n")
    screen.until("RAN second")


def test_what_was_typed_before_is_no_answer(terminal, workspace):
    code = (
        "import sys, time, ringfence; from ringfence.approval.terminal import TerminalApprover\n"
        "print('waiting', flush=True); time.sleep(0.7)\n"
        "config = ringfence.Config(approval_wait=1)\n"
        "with ringfence.Fence(config, approver=TerminalApprover()) as f, f.session(workspace=sys.argv[1]) as s:\n"
        "    try: s.run('true', capabilities=s.capabilities.with_network('all')); print('RAN')\n"
        "    except ringfence.Denied as e: print('DENIED', e.message)\n"
    )
    screen = terminal([sys.executable, "-c", code, str(workspace)])
    screen.until("waiting")
    screen.type("y\n")
    screen.until("DENIED")
    assert "nobody answered" in screen.seen


def test_the_command_line_asks(terminal, workspace):
    screen = terminal(
        [sys.executable, "-P", "-m", "ringfence", "run", "--net", "all", "-c", "echo it-ran"], cwd=workspace
    )
    screen.until("+ network all")
    screen.type("y\n")
    screen.until("it-ran\r\n")


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\u202ex", "\u3164", "a" + " " * 300 + "b", "\x9b31m"])
def test_what_could_deceive_is_shown_as_it_is(text):
    shown = printable(text)
    assert shown != text
    assert all(c.isprintable() for c in shown)
    assert len(shown) < 60
