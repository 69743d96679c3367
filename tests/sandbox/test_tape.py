from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.tape import Tape


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 50))
def test_head_tail_and_dropped_add_up(chunks, limit):
    tape = Tape(limit)
    for chunk in chunks:
        tape.feed(chunk)
    whole = b"".join(chunks)
    kept = tape.result()
    assert len(kept.head) + len(kept.tail) + kept.dropped == len(whole)
    assert len(kept.head) + len(kept.tail) <= max(limit, 0)
    assert whole.startswith(kept.head)
    assert whole.endswith(kept.tail)
    assert (kept.dropped == 0) == (kept.data == whole)


@given(st.text(min_size=1, max_size=200), st.integers(1, 60))
def test_valid_text_stays_valid_where_it_is_cut(text, limit):
    tape = Tape(limit)
    tape.feed(text.encode("utf-8", "replace"))
    kept = tape.result()
    kept.data.decode("utf-8")


def test_memory_stays_bounded_while_feeding():
    tape = Tape(1000)
    chunk = os.urandom(600)
    for _ in range(1000):
        tape.feed(chunk)
        assert tape._tail_size <= 600 + 2 * 64 * 1024
    assert tape.result().dropped >= 600_000 - 1000
