"""Measure Ringfence against bare tools, in one run on one machine, and print a table of ratios.

`python benchmarks/run.py` prints it; `--write` puts it into README.md as well. Times depend on the
machine and its mood, so what counts are the ratios between things that were measured in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast
from unittest import mock

import ringfence
from ringfence.sandbox import lookout
from ringfence.sandbox.linux import bubblewrap, cgroups, seccomp, started
from ringfence.sandbox.linux.sources import opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringfence.sandbox.linux.warm import Warm

REPOSITORY = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
FLOOD_MIB = 512


def measure(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Call each in turn, `rounds` times, and return the median milliseconds of each."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, taken in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            taken.append((time.perf_counter() - started) * 1000)
    return [statistics.median(taken) for taken in times]


def row(what: str, ours: float, theirs: float, against: str, goal: str) -> tuple[str, ...]:
    return (what, f"{ours:.1f} ms", f"{theirs:.1f} ms ({against})", f"**{ours / theirs:.2f} ×**", goal)


def library(workspace: str, rounds: int) -> tuple[str, ...]:
    """One-shot commands from Python against bwrap with the very same mounts."""
    with ringfence.Fence(ringfence.Config.load(warm=False)) as fence, fence.session(workspace=workspace) as session:
        session.run("true").check()
        plan = fence.check(ringfence.Command.of("true", session=session.id)).plan

        def bare() -> None:
            with opened(plan) as sources:
                env = {"PATH": os.environ["PATH"]}
                args = bubblewrap.arguments(plan, sources, cwd=workspace, env=env)
                shell = ["/bin/bash", "--noprofile", "--norc", "-c", "true"]
                subprocess.run(
                    [bubblewrap.find(), *args, "--", *shell],
                    pass_fds=list(sources.values()),
                    capture_output=True,
                    check=True,
                )

        ours, theirs = measure(rounds, lambda: session.run("true"), bare)
    return row(
        "`session.run('true')`, one-shot", ours, theirs, f"bare `bwrap`, same {len(plan.mounts)} mounts", "≤ 1.6 ×"
    )


def warm(workspace: str, rounds: int) -> list[tuple[str, ...]]:
    """Commands in a warm enclosure against bare ones: one after another, and eight at a time."""
    bare = ["/bin/bash", "-c", "true"]
    ours: list[float] = []
    theirs: list[float] = []
    with ringfence.Fence() as fence, fence.session(workspace=workspace) as session:
        session.run("true").check()
        for _ in range(rounds * 5):
            for taken, call in (
                (ours, lambda: session.run("true")),
                (theirs, lambda: subprocess.run(bare, capture_output=True, check=True)),
            ):
                started = time.perf_counter()
                call()
                taken.append((time.perf_counter() - started) * 1000)
        (enclosure,) = [enclosure for _, enclosure, _ in fence.sessions.get(session.id).leases._idle]
        memory = private_memory(cast("Warm", enclosure)._sandbox.init_pid)
    names = ("median", "95th percentile")
    pairs = [(statistics.median(t), statistics.quantiles(t, n=20)[18]) for t in (ours, theirs)]
    rows = [
        row(f"`session.run('true')`, warm, {name}", a, b, "`subprocess.run`", "≤ 1.2 ×")
        for name, a, b in zip(names, *pairs, strict=True)
    ]
    many = 400
    inside, outside = asyncio.run(eight_at_a_time(workspace, many))
    rows.append(row(f"… {many} of them, 8 at a time, async", inside, outside, "bare, the same way", "≤ 1.25 ×"))
    rows.append(("an idle enclosure's private memory", f"{memory:.1f} MiB", "", "", "≤ 12 MiB"))
    return rows


def private_memory(pid: int) -> float:
    """Return the MiB that a process shares with no other; what it says itself is covered inside, not here."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")) / 1024


async def eight_at_a_time(workspace: str, many: int) -> tuple[float, float]:
    """Return the milliseconds that many commands took, inside and bare, with eight of them under way."""

    async def through(call: Callable[[], Awaitable[object]]) -> float:
        gate = asyncio.Semaphore(8)

        async def one() -> None:
            async with gate:
                await call()

        await asyncio.gather(*(one() for _ in range(16)))
        started = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(many)))
        return (time.perf_counter() - started) * 1000

    async def bare() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("/bin/bash", "-c", "true", stdout=pipe, stderr=pipe)
        await process.communicate()

    async with ringfence.AsyncFence() as fence, fence.session(workspace=workspace) as session:
        inside = await through(lambda: session.run("true"))
    return inside, await through(bare)


def first_command(workspace: str, rounds: int) -> list[tuple[str, ...]]:
    """The first command of a session: at once, and after the enclosure had time to open."""
    tiny = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--", "true"]

    def cold() -> None:
        with ringfence.Fence() as fence, fence.session(workspace=workspace) as session:
            session.run("true")

    ours, theirs = measure(rounds, cold, lambda: subprocess.run([bubblewrap.find(), *tiny], check=True))
    prepared: list[float] = []
    later: list[float] = []
    with ringfence.Fence() as fence:
        for _ in range(rounds):
            with fence.session(workspace=workspace) as session:
                time.sleep(0.15)
                for taken in (prepared, later):
                    started = time.perf_counter()
                    session.run("true")
                    taken.append((time.perf_counter() - started) * 1000)
    return [
        row("a session for one command, all of it", ours, theirs, "a small bare `bwrap`", "≤ 4.5 ×"),
        row(
            "first command of a session, prepared",
            statistics.median(prepared),
            statistics.median(later),
            "the second",
            "≤ 1.2 ×",
        ),
    ]


def layers(workspace: str, rounds: int) -> list[tuple[str, ...]]:
    """What each layer adds to a one-shot: the same command with it and without."""
    config = ringfence.Config.load(warm=False)
    off: dict[str, contextlib.AbstractContextManager[object]] = {
        "the system call filter": mock.patch.object(seccomp, "supported", return_value=False),
        "the memory ceiling": mock.patch.object(cgroups, "make", return_value=None),
    }
    if os.geteuid() != 0:
        off["the check of the mounts"] = mock.patch.object(started.Sandbox, "_check_mounts", return_value=None)
    else:  # what is handed over as another user's is gone before an unchecked start has bound it
        off["another user than root"] = mock.patch.object(lookout, "can_drop_root", return_value=False)
    with contextlib.ExitStack() as stack:

        def session_of(config: ringfence.Config) -> ringfence.Session:
            fence = stack.enter_context(ringfence.Fence(config))
            return stack.enter_context(fence.session(workspace=workspace))

        plain = session_of(config)
        layered = session_of(config.replace(require=("landlock",)))
        alone = session_of(config.replace(backend="landlock"))
        without = {name: session_of(config) for name in off}

        def run_without(name: str) -> None:
            with off[name]:
                without[name].run("true").check()

        calls: list[Callable[[], object]] = [lambda name=name: run_without(name) for name in off]  # type: ignore[misc]
        both, single, base, *rest = measure(
            rounds, lambda: layered.run("true"), lambda: alone.run("true"), lambda: plain.run("true"), *calls
        )
    rows = [
        row(f"… what {name} adds", base, taken, "without", "reported") for name, taken in zip(off, rest, strict=True)
    ]
    rows.append(row("… what Landlock adds, where required", both, base, "without", "reported"))
    rows.append(row("… the `landlock` backend", single, base, "bubblewrap", "reported"))
    return rows


def command_line(workspace: str, rounds: int) -> tuple[str, ...]:
    """`ringfence run -- true` against an empty interpreter and a small bwrap after each other."""
    program = Path(sys.executable).with_name("ringfence")
    # As installed, with compiled modules; a variable of the caller's may forbid writing them.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    tiny = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--", "true"]

    def run(*argv: str) -> None:
        subprocess.run(argv, cwd=workspace, env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def floor() -> None:
        run(sys.executable, "-c", "pass")
        run(bubblewrap.find(), *tiny)

    run(str(program), "run", "--", "true")
    ours, theirs = measure(rounds, lambda: run(str(program), "run", "--", "true"), floor)
    return row("`ringfence run -- true`", ours, theirs, "`python -c pass` + a small `bwrap`", "≤ 4 ×")


def file_work(workspace: str) -> list[tuple[str, ...]]:
    """File-heavy work inside against the same outside."""
    make = "git init -q . && for d in $(seq 500); do mkdir d$d && for f in $(seq 100); do echo $f > d$d/$f; done; done"
    subprocess.run(["/bin/bash", "-c", f"{make} && git add -A"], cwd=workspace, check=True, capture_output=True)
    build = Path(workspace, "build")
    build.mkdir()
    for number in range(30):
        body = "".join(f"int f{number}_{i}(int x) {{ return x * {i} + f{number}_{i}(x - 1); }}\n" for i in range(200))
        Path(build, f"part{number}.c").write_text(f"#include <stdio.h>\n#include <stdlib.h>\n{body}")
    Path(build, "Makefile").write_text("all: $(patsubst %.c,%.o,$(wildcard *.c))\n")
    work = (
        ("`find /usr/share`", "find /usr/share -xdev > /dev/null; true", "≤ 1.15 ×"),
        ("`git status`, 50,000 files", "git status --short > /dev/null", "≤ 1.15 ×"),
        ("`grep -r` in `/usr/include`", "grep -r ringfence /usr/include; true", "≤ 1.3 ×"),
        ("`make -j2`, 30 files of C", "cd build && make -s -B -j2 CFLAGS=-O2 > /dev/null", "≤ 1.05 ×"),
    )
    rows = []
    with ringfence.Fence() as fence, fence.session(workspace=workspace) as session:
        for what, text, goal in work:

            def bare(text: str = text) -> None:
                subprocess.run(["/bin/bash", "-c", text], cwd=workspace, check=True, capture_output=True)

            def inside(text: str = text) -> None:
                session.run(text).check()

            ours, theirs = measure(7, inside, bare)
            rows.append(row(what, ours, theirs, "bare", goal))
    return rows


def flood(workspace: str) -> tuple[str, ...]:
    """A flood of output, captured in bounded memory, against a plain pipe to a Python reader."""
    text = f"head -c {FLOOD_MIB}M /dev/zero"

    def plain() -> None:
        with subprocess.Popen(["/bin/sh", "-c", text], stdout=subprocess.PIPE) as process:
            while process.stdout is not None and os.read(process.stdout.fileno(), 65536):
                pass

    with ringfence.Fence() as fence, fence.session(workspace=workspace) as session:
        ours, theirs = measure(3, lambda: session.run(text), plain)
    return row(f"{FLOOD_MIB} MiB of output, captured", ours, theirs, "pipe to a Python reader", "≤ 1.2 ×")


def imports(workspace: str) -> str:
    """The dearest imports of `ringfence run`, by the interpreter's own account."""
    out = subprocess.run(
        [sys.executable, "-X", "importtime", "-P", "-m", "ringfence", "run", "--", "true"],
        cwd=workspace,
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    rows = [
        line.removeprefix("import time:").split("|")
        for line in out.stderr.splitlines()
        if line.startswith("import time:")
    ]
    timed = sorted(((int(r[0]), r[2].strip()) for r in rows if r[0].strip().isdigit()), reverse=True)
    total = sum(t for t, _ in timed) / 1000
    dearest = ", ".join(f"{name} {t / 1000:.1f}" for t, name in timed[:8])
    return f"`run` imports {len(timed)} modules in {total:.0f} ms (with -X importtime); the dearest, in ms: {dearest}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="update the table in README.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as base:
        os.environ["XDG_STATE_HOME"] = str(Path(base, "state"))
        workspace = str(Path(base, "workspace"))
        os.mkdir(workspace)
        rows = [*warm(workspace, options.rounds), *first_command(workspace, options.rounds // 2)]
        rows += [library(workspace, options.rounds), *layers(workspace, options.rounds)]
        rows += [command_line(workspace, options.rounds), *file_work(workspace), flood(workspace)]
        print(imports(workspace), file=sys.stderr)
    header = ("what", "Ringfence", "against", "ratio", "goal")
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ("---",) * len(header), *rows)]
    table = "\n".join(lines)
    print(table)
    if options.write:
        readme = REPOSITORY / "README.md"
        before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
