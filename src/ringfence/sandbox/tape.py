"""The head and the tail of a stream, in bounded memory."""

from __future__ import annotations

from ringfence.model.output import Captured

_HEAD_SHARE = 0.4


class Tape:
    """Keeps the head and the tail of a stream in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._head_limit = int(limit * _HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trimming only past twice the limit makes the copying linear in the bytes that went by.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit or None]

    def result(self) -> Captured:
        """Return what was kept, cut between characters where something was dropped."""
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit or len(self._tail) :])
        if len(head) + len(tail) == self._total:
            return Captured(head, tail)
        head, tail = _whole_end(head), _whole_start(tail)
        return Captured(head, tail, self._total - len(head) - len(tail))


# A UTF-8 character starts with anything but these, and its first byte says how long it is.
_CONTINUATION = range(0x80, 0xC0)
_LENGTHS = ((0xF0, 4), (0xE0, 3), (0xC0, 2))


def _whole_end(data: bytes) -> bytes:
    """Drop an unfinished UTF-8 character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte not in _CONTINUATION:
            length = next((n for start, n in _LENGTHS if byte >= start), 1)
            return data[:-back] if length > back else data
    return data


def _whole_start(data: bytes) -> bytes:
    """Drop the rest of a UTF-8 character at the start."""
    skip = 0
    while skip < min(3, len(data)) and data[skip] in _CONTINUATION:
        skip += 1
    return data[skip:]
