"""What a failed command was refused, as far as its own words and the plan agree.

Programs report a refusal in the system's words. Those alone prove nothing: a program may print them for
reasons of its own. So a message counts only where it names something that the plan really refuses, and
even then it is marked as inferred.
"""

from __future__ import annotations

import os

from ringfence.model.output import Denial
from ringfence.model.paths import is_below
from ringfence.sandbox.plan import deepest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.sandbox.plan import Mount, Plan

_MAX_TEXT = 64 * 1024
_MAX_DENIALS = 5
_READ_ONLY = "Read-only file system"
_DENIED = ("Permission denied", "Operation not permitted")
_ABSENT = "No such file or directory"
_QUOTES = "'\"`‘’"  # noqa: RUF001  # those of GNU tools among them
_MAX_PATH = 4096
# What programs say when a system call was refused to them: words of one line, the call, and what to do.
_CALLS = (
    (("ptrace", "not permitted"), "ptrace", "tracing is a grant: --debug"),
    (("PTRACE", "not permitted"), "ptrace", "tracing is a grant: --debug"),
    (("perf_event_open",), "perf_event_open", "performance counters belong to the whole machine; measure outside"),
    (("No permission to enable", "event"), "perf_event_open", "performance counters belong to the machine"),
    (("No usable sandbox",), "unshare", "start it with --no-sandbox: Ringfence is around it"),
    (("without --no-sandbox",), "unshare", "start it with --no-sandbox: Ringfence is around it"),
    (("Failed to move to new namespace",), "unshare", "start it with --no-sandbox: Ringfence is around it"),
    (("unshare", "not permitted"), "unshare", "containers do not nest here; run them outside"),
    (("namespace", "not permitted"), "unshare", "containers do not nest here; run them outside"),
    (("userns", "not permitted"), "unshare", "containers do not nest here; run them outside"),
    (("mount", "not permitted"), "mount", "nothing is mounted inside; mount it outside and grant the place"),
    (("io_uring", "not implemented"), "io_uring_setup", "it is not there inside; programs do without it"),
    (("keyctl", "not permitted"), "keyctl", "the kernel's keys are out of reach; use a file or a variable"),
)
_NO_FORK = ("fork: Operation not permitted", "fork: retry: Operation not permitted", "Cannot fork")
_NO_FAMILY = "Address family not supported by protocol"
_NETWORK = (
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Could not resolve host",
    "Name or service not known",
    "getaddrinfo EAI_AGAIN",
)


def infer(plan: Plan, *, cwd: str, stderr: str) -> tuple[Denial, ...]:
    """Return what the plan refused of what a failed command complained about."""
    found: dict[Denial, None] = {}
    text = stderr[-_MAX_TEXT:]
    for denial in (*_files(plan, cwd, text), *_network(plan, text), *_calls(plan, text)):
        found[denial] = None
        if len(found) == _MAX_DENIALS:
            break
    return tuple(found)


def _files(plan: Plan, cwd: str, text: str) -> Iterator[Denial]:
    for line in text.split("\n"):
        for word in (_READ_ONLY, *_DENIED, _ABSENT):
            if word in line:
                for name in (_named_before(line, word), _named_after(line, word)):
                    path = os.path.normpath(os.path.join(cwd, os.path.expanduser(name))) if name else ""
                    denial = _about(plan, path, word) if path else None
                    if denial is not None:
                        yield denial


def _named_before(line: str, word: str) -> str:
    """Take `/x` out of `cat: /x: WORD` and of `cannot create file '/x': WORD`."""
    at = line.find(f": {word}")
    before = line[max(0, at - _MAX_PATH) : at] if at > 0 else ""
    if before and before[-1] in _QUOTES:
        before = before[:-1]
        return before[max(before.rfind(quote) for quote in _QUOTES) + 1 :]
    return before.rpartition(": ")[2].strip()


def _named_after(line: str, word: str) -> str:
    """Take `/x` out of `[Errno 30] WORD: '/x'`."""
    _, found, after = line.partition(f"{word}: ")
    if not found or not after or after[0] not in _QUOTES:
        return ""
    rest = after[1:_MAX_PATH]
    ends = [at for at in (rest.find(quote) for quote in _QUOTES) if at >= 0]
    return rest[: min(ends)] if ends else ""


def _about(plan: Plan, path: str, word: str) -> Denial | None:
    mount = deepest(path, plan.mounts)
    if "mounts" not in plan.layers:
        return _ruled_out(plan, path, mount) if word in _DENIED else None
    if mount is not None and mount.why == "hidden":
        return _denial("read", path, "hidden", f"ask for it: --read {path}")
    if word == _READ_ONLY and (mount is None or not mount.writable):
        where = path if mount is None or mount.target == "/" else os.path.dirname(path)
        return _denial("write", path, "read-only", f"write inside {plan.workspace}, or ask: --write {where}")
    if word == _ABSENT and mount is None and not _is_parent(plan, path):
        return _denial("read", path, "not-visible", f"only parts of the machine are visible; ask: --read {path}")
    return None


def _ruled_out(plan: Plan, path: str, mount: Mount | None) -> Denial | None:
    """Tell what Landlock refused: it answers as the file's own mode would, which then has to allow it."""
    wanted = os.R_OK if mount is None else os.W_OK
    there = path if os.path.lexists(path) else os.path.dirname(path)
    if (mount is not None and mount.writable) or not os.access(there, wanted):
        return None
    if mount is not None:
        hint = f"write inside {plan.workspace}, or ask: --write {os.path.dirname(path)}"
        return Denial("landlock", "write", path, rule="read-only", hint=hint, evidence="inferred")
    if there != path and is_below(path, "/tmp"):  # noqa: S108  # the host's, which is out of reach
        hint = "use the directory that TMPDIR names"
        return Denial("landlock", "write", path, rule="not-visible", hint=hint, evidence="inferred")
    hint = f"only parts of the machine are visible; ask: --read {path}"
    return Denial("landlock", "read", path, rule="not-visible", hint=hint, evidence="inferred")


def _is_parent(plan: Plan, path: str) -> bool:
    return any(is_below(mount.target, path) for mount in plan.mounts)


def _denial(operation: str, path: str, rule: str, hint: str) -> Denial:
    return Denial("mounts", operation, path, rule=rule, hint=hint, evidence="inferred")


def _network(plan: Plan, text: str) -> Iterator[Denial]:
    if plan.network.kind == "none":
        layer = "network-namespace" if "network-namespace" in plan.layers else "seccomp"
        for words in _NETWORK if layer != "seccomp" else (*_NETWORK, _NO_FAMILY):
            if words in text:
                hint = "there is no network inside; ask for it: --net all"
                yield Denial(layer, "connect", "", rule="no-network", hint=hint, evidence="inferred")
                return


def _calls(plan: Plan, text: str) -> Iterator[Denial]:
    if "seccomp" not in plan.layers:
        return
    if not plan.spawn and any(words in text for words in _NO_FORK):
        hint = "it may start no processes; ask for them with spawn"
        yield Denial("seccomp", "call", "fork", rule="spawn", hint=hint, evidence="inferred")
    for line in text.split("\n"):
        for words, call, hint in _CALLS:
            if all(word in line for word in words) and not (plan.debug and call == "ptrace"):
                yield Denial("seccomp", "call", call, rule="refused", hint=hint, evidence="inferred")
                break
