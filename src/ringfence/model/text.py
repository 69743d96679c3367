"""Text of others, made fit for a terminal."""

from __future__ import annotations

# Printable by the book, and invisible on a screen: fillers, joiners and blanks of other scripts.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MANY_SPACES = " " * 8


def printable(text: str) -> str:
    """Show control and invisible characters instead of sending them to the terminal.

    Long runs of spaces are shortened: they could push what follows to where it looks like our own words.
    """
    shown = "".join(
        c if c.isprintable() and c not in _INVISIBLE else c.encode("unicode_escape", "replace").decode("ascii")
        for c in text
    )
    if _MANY_SPACES not in shown:
        return shown
    import re

    return re.sub(f"{_MANY_SPACES}+", " … ", shown)
