"""From what was found out and what happened to what a caller gets: functions of values."""

from __future__ import annotations

import os

from ringfence.errors import Denied, ProgramNotFound, SandboxUnavailable
from ringfence.model.limits import MAX_TIMEOUT
from ringfence.model.output import Denial, Enforcement, Output
from ringfence.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.config.config import Config
    from ringfence.model.capabilities import Capabilities
    from ringfence.model.command import Command
    from ringfence.model.decision import Decision
    from ringfence.model.output import Captured
    from ringfence.sandbox.backend import Backend, Exit
    from ringfence.sandbox.capture import Pump, Streams
    from ringfence.sandbox.plan import Plan
    from ringfence.session.sessions import SessionState

_ADVICE = (
    "do not try it again unchanged: ask for less, work inside the workspace,"
    " or have a person allow it (ringfence run --ask, Fence(approver=…), or the configuration)"
)
_STAGE_FAILED = 125
_CEILING_ADVICE = "do not try it again: whoever set that limit is the only one who can raise it"


class Checked(Value):
    """What steps 1 to 3 found out about a command: nothing has been asked or started."""

    state: SessionState
    config: Config
    backend: Backend
    cwd: str
    wanted: Capabilities
    decision: Decision
    plan: Plan
    notes: tuple[str, ...] = ()


def under_ceilings_of(config: Config, wanted: Capabilities, place: str) -> tuple[Capabilities, str]:
    """Return what every ceiling leaves of `wanted`, and which one took something away."""
    left, source = wanted, "a ceiling"
    for ceiling in config.ceilings:
        narrowed = ceiling.narrow(left, place)
        if narrowed != left:
            left, source = narrowed, ceiling.source
    return left, source


def existing(wanted: Capabilities) -> tuple[Capabilities, tuple[str, ...]]:
    """Leave out paths that are not there, and say so: that only ever takes something away."""
    absent = [path for path in (*wanted.read, *wanted.write) if not os.path.lexists(path)]
    if not absent:
        return wanted, ()
    left = wanted.replace(
        read=tuple(p for p in wanted.read if p not in absent), write=tuple(p for p in wanted.write if p not in absent)
    )
    return left, tuple(f"left out, because it does not exist: {path}" for path in absent)


def cwd_problem(cwd: str | None, place: str) -> str:
    """Say why a working directory cannot be used."""
    path = os.path.join(place, cwd or "")
    if not os.path.isdir(path):
        return f"the working directory {path} does not exist"
    return f"cwd outside workspace root: {cwd} is not in {place}"


def denied(command: Command, decision: Decision, *, layer: str) -> Denied:
    """Return the refusal of a command, with what to do instead."""
    reason = decision.reasons[0]
    hint = _CEILING_ADVICE if reason.factor == "ceiling" else _ADVICE
    denial = Denial(layer=layer, operation="run", subject=str(command), rule=reason.factor, hint=hint)
    return Denied(reason.text, hint=hint, decision=decision, denial=denial)


def timeout_of(command: Command, wanted: Capabilities, config: Config, *, limited: bool) -> float | None:
    """Return the most specific timeout, within the maximum."""
    if limited:
        return min(command.timeout or wanted.limits.timeout or config.timeout, config.max_timeout)
    asked = command.timeout or wanted.limits.timeout
    # Without the default timeout the built-in maximum does not hold either; a configured one does.
    most = config.max_timeout if config.max_timeout < MAX_TIMEOUT else None
    return most if asked is None else asked if most is None else min(asked, most)


def output_of(pump: Pump, streams: Streams, checked: Checked, decision: Decision) -> Output:
    """Return what came of a finished command.

    Raises:
        ProgramNotFound: it was never executed.
        SandboxUnavailable: its last layer could not be applied.
    """
    end, out, err = pump.exit, streams.out.result(), streams.err.result()
    if end.code == _STAGE_FAILED and err.head.startswith(b"ringfence-stage: "):
        msg = err.data.decode("utf-8", "replace").strip().removeprefix("ringfence-stage: ")
        raise SandboxUnavailable(msg, hint="see `ringfence status`", reason="landlock")
    if end.lost:
        raise SandboxUnavailable(f"{end.failure}", hint="look for processes that it left", reason="lost")
    if end.broken and not pump.killed:
        raise SandboxUnavailable(f"{end.failure}", hint="run it again", reason="gone")
    if end.failure is not None and not pump.killed:
        words = err.data.decode("utf-8", "replace").strip()
        if words.startswith("bwrap: ") and "execvp" not in words:
            raise SandboxUnavailable(
                f"bubblewrap could not finish: {words}", hint="see `ringfence status`", reason="failed"
            )
        raise ProgramNotFound(f"{end.failure}: {words}" if words else end.failure)
    notes = checked.notes
    if pump.timed_out:
        notes = (*notes, f"killed by its timeout of {pump.timeout:g} s; a longer one can be asked for")
    return Output(
        exit_code=None if pump.timed_out else end.code,
        signal=9 if pump.timed_out else end.signal,
        out=out,
        err=err,
        timed_out=pump.timed_out,
        duration_ms=pump.duration * 1000,
        decision=decision,
        enforcement=Enforcement(
            backend=checked.backend.name,
            confined=checked.backend.confines,
            layers=checked.plan.layers,
            limits=pump.running.limits,
            missing=checked.plan.missing,
        ),
        denials=_denials(checked, err, end, pump.running.limits.get("memory", "")),
        notes=notes,
    )


def _denials(checked: Checked, err: Captured, end: Exit, most: str) -> tuple[Denial, ...]:
    observed: tuple[Denial, ...] = ()
    if end.out_of_memory:
        observed = (Denial("limits", "memory", most, rule="memory", hint="use less, or ask for more: --memory MB"),)
    if not end.code or not checked.backend.confines or not (err.head or err.tail):
        return observed
    from ringfence.sandbox.denials import infer

    return (*observed, *infer(checked.plan, cwd=checked.cwd, stderr=err.data.decode("utf-8", "replace")))
