"""Text of others, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Show control characters instead of sending them to the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode("ascii") for c in text)
