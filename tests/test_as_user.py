"""Everything once more as an ordinary user, at the same time: see `as_user.py`."""

from __future__ import annotations

import pytest

import as_user


@pytest.mark.as_root
@pytest.mark.timeout(900)
def test_the_suite_passes_as_an_ordinary_user():
    code, printed = as_user.result()
    assert code == 0, printed[-8000:]
    assert " passed" in printed
    last = printed.splitlines()[-1]
    assert not [word for word in ("skipped", "failed", "error") if word in last], last
