"""`ringfence check`."""

from __future__ import annotations

import json
import sys

from ringfence.cli.session import make_command, make_fence, open_session
from ringfence.errors import Denied, RingfenceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ringfence.fence import Fence
    from ringfence.model.decision import Decision
    from ringfence.sandbox.plan import Plan
    from ringfence.session.sessions import SessionState

_EXIT = {"allow": 0, "ask": 3, "escalate": 3, "deny": 4}


def check(options: argparse.Namespace) -> int:
    """Show what would happen to one command, or to many; the exit code is the strictest one's."""
    with make_fence(options) as fence:
        state = open_session(fence, options)
        if options.stdin:
            strictest = 0
            for text in _texts(null=options.null):
                strictest = max(strictest, _one(fence, state, options, (), text, brief=True))
            return strictest
        return _one(fence, state, options, tuple(options.argv), options.text, brief=False)


def _one(
    fence: Fence,
    state: SessionState,
    options: argparse.Namespace,
    argv: tuple[str, ...],
    text: str | None,
    *,
    brief: bool,
) -> int:
    plan: Plan | None = None
    try:
        checked = fence.check(make_command(options, state, argv=argv, text=text))
        decision, plan = checked.decision, checked.plan
    except Denied as error:
        decision = error.decision
    except RingfenceError as error:
        if not brief:
            raise
        _show({"command": text, "error": error.message}, f"error  {error.message}\t{text}", as_json=options.json)
        return _EXIT["deny"]
    if options.json:
        fields = {"command": text if text is not None else list(argv), **decision.as_dict()}
        if plan is not None and not brief:
            fields["plan"] = plan.as_dict()
        _show(fields, "", as_json=True)
    elif brief:
        _show({}, f"{decision.verdict}\t{decision.risk}\t{text}", as_json=False)
    else:
        _show({}, _readable(decision, plan), as_json=False)
    return _EXIT[decision.verdict]


def _readable(decision: Decision, plan: Plan | None) -> str:
    lines = [f"verdict   {decision.verdict}", f"risk      {decision.risk}"]
    lines += [f"because   {reason.text}  [{reason.factor}]" for reason in decision.reasons]
    return "\n".join([*lines, *([str(plan)] if plan else [])])


def _show(fields: dict[str, object], text: str, *, as_json: bool) -> None:
    sys.stdout.write((json.dumps(fields) if as_json else text) + "\n")
    sys.stdout.flush()


def _texts(*, null: bool) -> Iterator[str]:
    if null:
        yield from filter(None, sys.stdin.read().split("\0"))
    else:
        yield from filter(None, (line.rstrip("\n") for line in sys.stdin))
