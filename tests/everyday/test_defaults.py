"""The limits that hold when nobody sets any leave room for everyday programs, the greedy ones among them."""

from __future__ import annotations

import re

import pytest

from ringfence.sandbox.linux import cgroups

NODE = """
const { Worker } = require('worker_threads');
const kept = [];
for (let i = 0; i < 40; i++) kept.push(Buffer.alloc(10e6, 1));
new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true })
  .on('message', (m) => console.log(m));
"""
JAVA = """
public class Main {
    public static void main(String[] arguments) throws Exception {
        byte[][] kept = new byte[40][];
        for (int i = 0; i < kept.length; i++) kept[i] = new byte[10_000_000];
        Thread thread = new Thread(() -> System.out.println("thread"));
        thread.start();
        thread.join();
    }
}
"""
MAKEFILE = """
SOURCES := $(wildcard *.c)
program: $(SOURCES:.c=.o)
\t$(CC) -o $@ $^
"""


@pytest.fixture(params=["as it comes", "each process"])
def ceiling(request, monkeypatch):
    """Both ways to limit memory: of the command together, and of each process by itself."""
    if request.param == "each process":
        monkeypatch.setattr(cgroups, "available", lambda table, own: {})
    return request.param


def test_a_ceiling_on_memory_holds_by_default(session, ceiling):
    limits = session.run("true").enforcement.limits
    if "cgroup" in limits["memory"]:
        assert limits["memory"] == f"{cgroups.most_memory() // 2**20} MiB together (cgroup v1)"
    else:
        assert limits["memory"] == "4096 MiB each process (rlimit)"
    assert "4096" in limits["tasks"]


def test_node(session, ceiling):
    assert session.run(["node", "-e", NODE]).stdout == "42\n"


def test_java(session, workspace, ceiling):
    (workspace / "Main.java").write_text(JAVA)
    out = session.run(["java", "Main.java"], timeout=120)
    assert out.stdout == "thread\n", out.stderr


def test_a_parallel_build(session, workspace, ceiling):
    (workspace / "Makefile").write_text(MAKEFILE)
    for index in range(24):
        (workspace / f"part{index}.c").write_text(f"int part{index}(void) {{ return {index}; }}\n")
    (workspace / "main.c").write_text(
        '#include <stdio.h>\nint part7(void);\nint main(void) { printf("%d", part7()); }\n'
    )
    out = session.run("make -s -j8 && ./program", timeout=120)
    assert out.stdout == "7", out.stderr


def test_chromium(session, workspace, ceiling):
    """Its own sandbox needs what ours refuses, and is switched off: ours is around it."""
    (workspace / "page.html").write_text("<title>page</title><script>document.title = 6 * 7</script>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    out = session.run(["chromium", *flags, "--dump-dom", f"file://{workspace}/page.html"], timeout=120)
    assert re.search(r"<title>42</title>", out.stdout), out.stderr
