"""The head and the tail of a stream, in bounded memory."""

from __future__ import annotations

from ringfence.model.output import Captured

_HEAD_SHARE = 0.4
_PIECE = 64 * 1024


class Tape:
    """Keeps the head and the tail of a stream in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._head_limit = int(limit * _HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        # Whole pieces, so that a flood goes by without being copied; small ones are gathered.
        self._tail: list[bytes | bytearray] = []
        self._tail_size = 0
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        last = self._tail[-1] if self._tail else None
        if isinstance(last, bytearray) and len(last) < _PIECE:
            last += data
        else:
            self._tail.append(data if len(data) >= _PIECE else bytearray(data))
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.pop(0))
            if not self._tail:
                return

    def result(self) -> Captured:
        """Return what was kept, cut between characters where something was dropped."""
        whole = b"".join(self._tail)
        head, tail = bytes(self._head), whole[max(0, len(whole) - self._tail_limit) :]
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
