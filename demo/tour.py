"""A short live tour: what a confined command can do, what it cannot, and the record of all of it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ringfence
from ringfence import Denied, Fence

COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def title(text: str) -> None:
    print("\n" + paint("1;36", f"── {text} "))


def show(command: str, out: ringfence.Output) -> None:
    print(paint("1", f"$ {command}"))
    for line in (out.stdout + out.stderr).rstrip().splitlines():
        print("  " + line)
    ending = "timed out" if out.timed_out else f"exit {out.exit_code}"
    layers = ", ".join(out.enforcement.layers)
    print(paint("2", f"  [{ending}, {out.duration_ms:.0f} ms, {out.enforcement.backend}: {layers}]"))


class Records(logging.Handler):
    """Collects what Ringfence writes to the logger `ringfence.ledger`."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = record.__dict__["ringfence"]
        result = fields.get("verdict") or fields.get("message") or fields.get("answer")
        result = result or ", ".join(fields.get("beyond", [])) or f"exit {fields.get('exit_code')}"
        if fields.get("timed_out"):
            result = "timed out, tree killed"
        self.lines.append(f"{fields['event']:<9} {fields['command'][:52]:<54} {str(result).splitlines()[0][:60]}")


def main() -> int:
    records = Records()
    logging.getLogger("ringfence.ledger").setLevel(logging.INFO)
    logging.getLogger("ringfence.ledger").addHandler(records)
    with tempfile.TemporaryDirectory(prefix="ringfence-demo-") as base:
        workspace = Path(base, "project")
        workspace.mkdir()
        home = Path(base, "home")
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "id_ed25519").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
        env = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(Path(base, "state"))}
        with Fence(env=env) as fence, fence.session("demo", workspace) as session:
            tour(session, home)
    title("the record of all of it")
    for line in records.lines:
        print("  " + line)
    print()
    return 0


def tour(session: ringfence.Session, home: Path) -> None:
    title("everyday work just runs")
    text = (
        "git init -q . && echo 'print(6 * 7)' > answer.py && git add . && "
        "git -c user.name=Agent -c user.email=agent@example.com commit -qm 'an answer' && "
        "git log --oneline && python3 answer.py"
    )
    show(text, session.run(text))

    title("a write outside the workspace is refused by the kernel")
    for text in ("echo pwned > /usr/bin/pwned", "ln -s /usr/bin out && echo pwned > out/pwned"):
        show(text, session.run(text))

    title("a credential is not there to be read")
    key = home / ".ssh" / "id_ed25519"
    print(paint("2", f"  (on the host: {key} exists: {key.exists()})"))
    show("cat ~/.ssh/id_ed25519", session.run("cat ~/.ssh/id_ed25519"))

    title("more than the session has: asked for, and refused when nobody is there")
    try:
        session.run("curl https://example.com", capabilities=session.capabilities.with_network("all"))
    except Denied as error:
        print(paint("1", "$ curl https://example.com  (with network all)"))
        print("  " + str(error).replace("\n", "\n  "))

    title("a timeout kills the whole tree")
    text = "sleep 4321 & setsid sleep 4321 & disown; echo started; sleep 4321"
    started = time.monotonic()
    show(text, session.run(text, timeout=1))
    left = subprocess.run(["pgrep", "-fc", "^sleep 4321"], capture_output=True, text=True, check=False).stdout.strip()
    print(paint("2", f"  (after {time.monotonic() - started:.1f} s, processes left on the host: {left})"))


if __name__ == "__main__":
    raise SystemExit(main())
