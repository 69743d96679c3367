"""`ringfence status`."""

from __future__ import annotations

import json
import os
import sys

from ringfence.errors import RingfenceError
from ringfence.fence import Fence
from ringfence.model.guarantees import GUARANTEES, REQUIRED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from ringfence.sandbox.backend import Availability, Guarantees

_UNAVAILABLE = 125


def status(options: argparse.Namespace) -> int:
    """Show what each backend keeps here, what is missing and how to get it."""
    fence = Fence()
    chosen = _chosen(fence)
    fence.registry.discover()
    rows = []
    for name in fence.registry.names():
        backend = fence.registry.get(name)
        rows.append((name, fence.registry.priority(name), backend.probe(), backend.guarantees()))
    if options.json:
        sys.stdout.write(json.dumps(_fields(fence, rows, chosen)) + "\n")
    else:
        sys.stdout.write(_text(fence, rows, chosen))
    return 0 if chosen else _UNAVAILABLE


def _chosen(fence: Fence) -> str | None:
    """Name the backend that `run` would use, if there is one that works."""
    try:
        backend = fence.registry.choose(fence.config.backend if fence.config.enabled else "disabled")
    except RingfenceError:
        return None
    return backend.name if backend.probe().available else None


def _fields(
    fence: Fence, rows: list[tuple[str, int, Availability, Guarantees]], chosen: str | None
) -> dict[str, object]:
    return {
        "chosen": chosen,
        "state": fence.places.state,
        "config": fence.places.config,
        "backends": [
            {
                "name": name,
                "priority": priority,
                "available": answer.available,
                "reason": answer.reason,
                "message": answer.message,
                "fix": answer.fix,
                "detail": answer.detail,
                "guarantees": list(kept.kept) if answer.available else [],
                "missing": [{"guarantee": m.guarantee, "reason": m.reason, "fix": m.fix} for m in kept.missing],
            }
            for name, priority, answer, kept in rows
        ],
    }


def _text(fence: Fence, rows: list[tuple[str, int, Availability, Guarantees]], chosen: str | None) -> str:
    green, red, dim, plain = _colours()
    lines = []
    for name, _, answer, _ in rows:
        if name == "disabled" and name != chosen:
            continue  # it is there to refuse, and only where it was chosen
        mark = f"{green}works{plain}" if answer.available else f"{red}no{plain}   "
        used = "  <- used" if name == chosen else ""
        lines.append(f"{name:<12} {mark}  {answer.message}{used}")
        if answer.detail:
            lines.append(f"{'':<12} {dim}it said: {answer.detail}{plain}")
        if answer.fix:
            lines.append(f"{'':<12} to fix: {answer.fix}")
    confining = [(name, answer, kept) for name, priority, answer, kept in rows if priority]
    lines += ["", f"{'guarantee':<18}" + "".join(f"{name:<12}" for name, _, _ in confining) + "meaning"]
    for guarantee, meaning in GUARANTEES.items():
        cells = ""
        for _, answer, kept in confining:
            held = answer.available and guarantee in kept.kept
            colour = green if held else red if guarantee in REQUIRED else dim
            cells += f"{colour}{'kept' if held else 'missing':<12}{plain}"
        star = "*" if guarantee in REQUIRED else " "
        lines.append(f"{star}{guarantee:<17}{cells}{dim}{meaning}{plain}")
    lines += ["", "* required: without it no command runs"]
    for name, answer, kept in confining:
        if answer.available and kept.missing:
            lines += ["", f"missing with {name}:"]
            lines += [f"  {m}" for m in kept.missing]
    lines += ["", f"configuration  {fence.places.config}", f"state          {fence.places.state}", ""]
    return "\n".join(lines)


def _colours() -> tuple[str, str, str, str]:
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return "", "", "", ""
    return "\033[32m", "\033[31m", "\033[2m", "\033[0m"
