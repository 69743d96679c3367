"""What the command line takes."""

from __future__ import annotations

import argparse
import os

from ringfence import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_PORT = 65535
_RUN_EXAMPLES = """\
examples:
  ringfence run -- pytest -q                     run a program in this project
  ringfence run -c 'make && make test | tee log' run shell text
  ringfence run --timeout 30 --memory 2048 -- npm test
  ringfence run --ask --net all -- pip download requests
  ringfence run --json -c 'ls -la' | jq .enforcement

exit codes: the command's own (128+N after signal N); 124 timed out, 125 Ringfence could not run it,
126 refused, 127 no such program, 130 interrupted, 2 usage. --status-fd tells them apart.
"""
_CHECK_EXAMPLES = """\
examples:
  ringfence check -c 'curl example.com | sh'     the decision, every reason, and the plan
  ringfence check --write /srv/data -- make install
  ringfence check --stdin --json < commands.txt  one answer a line

exit codes: 0 runs unasked, 3 is asked first, 4 is refused.
"""
_STATUS_EXAMPLES = """\
examples:
  ringfence status                               what each backend keeps on this machine
  ringfence status --json | jq '.backends[0]'
"""


def _formatter(prog: str) -> argparse.HelpFormatter:
    # Given no width, argparse imports shutil to measure the terminal, for every option it adds.
    return argparse.RawDescriptionHelpFormatter(prog, width=100, max_help_position=32)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="ringfence",
        description="Run a command that you do not trust: confined by the kernel, and on the record.",
        epilog="try: ringfence run -- ls -la     ringfence status     ringfence run --help",
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"ringfence {__version__}")
    # Without `prog` here argparse formats a usage line to find it, and imports shutil for that.
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="ringfence")

    run = _sub(commands, "run", "run a command confined", _RUN_EXAMPLES)
    _session_options(run)
    run.add_argument("--timeout", type=_positive, metavar="S", help="kill it after S seconds")
    run.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="set, or pass on, a variable")
    run.add_argument("--env-file", action="append", default=[], metavar="F", help="set the NAME=VALUE lines of a file")
    run.add_argument("-n", "--no-stdin", action="store_true", help="give it no input")
    asking = run.add_mutually_exclusive_group()
    asking.add_argument("--ask", action="store_true", help="ask on the terminal for what goes beyond the baseline")
    asking.add_argument("--no-input", action="store_true", help="never ask: what would be asked is refused")
    run.add_argument("--json", action="store_true", help="capture, and print one JSON object")
    run.add_argument("--status-fd", type=_descriptor, metavar="N", help="write how it ended to descriptor N")
    _command(run)

    check = _sub(commands, "check", "show the decision and the plan; run nothing", _CHECK_EXAMPLES)
    _session_options(check)
    check.add_argument("--stdin", action="store_true", help="read many commands, one a line")
    check.add_argument("-0", "--null", action="store_true", help="with --stdin: separated by NUL bytes")
    check.add_argument("--json", action="store_true", help="print JSON, one object a command")
    _command(check)

    status = _sub(commands, "status", "show what is guaranteed on this machine", _STATUS_EXAMPLES)
    status.add_argument("--json", action="store_true", help="print one JSON object")

    completion = _sub(commands, "completion", "print a completion script", "example:\n  ringfence completion bash\n")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return top


def _sub(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, examples: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=examples,
        formatter_class=_formatter,
        allow_abbrev=False,
    )


def _session_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--session", metavar="ID", help="the session it belongs to; its /tmp stays for the next command")
    sub.add_argument("--workspace", metavar="DIR", help="where it may write (default: the git project around here)")
    sub.add_argument("--cwd", metavar="DIR", help="where it starts, inside the workspace")
    sub.add_argument("--tier", choices=("read-only", "workspace-write", "full-access"), help="the baseline")
    sub.add_argument("--read", action="append", default=[], metavar="P", help="let it read P too")
    sub.add_argument("--write", action="append", default=[], metavar="P", help="let it write P too")
    sub.add_argument("--net", metavar="none|all|HOST[,HOST…]", help="the network it may reach")
    sub.add_argument(
        "--publish", action="append", default=[], type=_port, metavar="PORT", help="open a port of it here"
    )
    sub.add_argument("--debug", action="store_true", help="let it trace its own processes (gdb, strace, sanitizers)")
    sub.add_argument("--no-spawn", action="store_true", help="let it start no further process")
    sub.add_argument(
        "--memory", type=_count, metavar="MB", help="a memory ceiling (for all of it, or for each process: see status)"
    )
    sub.add_argument("--backend", metavar="NAME", help="confine with this backend (default: the strongest)")


def _command(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-c", dest="text", metavar="TEXT", help="shell text instead of a program")
    sub.add_argument("argv", nargs=argparse.REMAINDER, metavar="PROGRAM ARG…", help="the program and its arguments")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; a mistake ends with exit code 2."""
    top = parser()
    options = top.parse_args(arguments)
    if options.command in {"run", "check"}:
        if options.argv[:1] == ["--"]:
            options.argv = options.argv[1:]
        sources = bool(options.argv) + (options.text is not None) + bool(getattr(options, "stdin", False))
        if sources != 1:
            what = "a program, -c TEXT or --stdin" if options.command == "check" else "a program or -c TEXT"
            top.error(f"{options.command} takes {what}, and one of them: see ringfence {options.command} --help")
    return options


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("a number of seconds above zero")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("a whole number above zero")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 < value <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"a port from 1 to {_MAX_PORT}")
    return value


def _descriptor(text: str) -> int:
    fd = int(text)
    try:
        os.fstat(fd)
    except (OSError, OverflowError):
        raise argparse.ArgumentTypeError(f"descriptor {fd} is not open") from None
    return fd
