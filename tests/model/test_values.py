from __future__ import annotations

import copy
import pickle

import pytest

from ringfence import Command, Decision, Limits, Reason
from ringfence.model.output import Captured
from ringfence.model.value import Value


class Point(Value):
    x: int
    y: int = 2


class Point3(Point):
    z: int = 3


def test_values_are_frozen_compared_and_hashed_by_content():
    point = Point(1)
    assert point == Point(1, 2) != Point(1, 3)
    assert hash(point) == hash(Point(x=1, y=2))
    assert repr(point) == "Point(x=1, y=2)"
    assert Point3(1) != Point(1)
    assert Point3(1, z=9).z == 9
    with pytest.raises(AttributeError, match="frozen"):
        point.x = 5
    with pytest.raises(AttributeError):
        del point.x
    with pytest.raises(AttributeError):
        point.other = 1


def test_values_are_copied_and_pickled():
    point = Point3(1, 5)
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point  # noqa: S301  # our own bytes
    assert point.replace(y=7) == Point3(1, 7)


@pytest.mark.parametrize("call", [Point, lambda: Point(1, 2, 3), lambda: Point(1, q=2), lambda: Point(1, x=1)])
def test_wrong_fields_are_type_errors(call):
    with pytest.raises(TypeError, match="Point"):
        call()


def test_a_command_is_text_or_argv():
    assert Command.of("ls -la").exec_argv == ("/bin/bash", "--noprofile", "--norc", "-c", "ls -la")
    assert Command.of(["ls", "a b"]).exec_argv == ("ls", "a b")
    assert str(Command.of(["ls", "a b"])) == "ls 'a b'"
    for bad in ({}, {"argv": ("a",), "text": "a"}, {"argv": ("a\0b",)}, {"text": "a", "timeout": 0}):
        with pytest.raises(ValueError, match=r"command|timeout"):
            Command(**bad)
    with pytest.raises(ValueError, match="name"):
        Command.of("x", env={"A=B": "c"})


def test_a_decision_settled_otherwise_keeps_its_reasons():
    decision = Decision("ask", "caution", (Reason("a", "b"),))
    denied = decision.with_verdict("deny", Reason("c", "d"))
    assert denied.verdict == "deny"
    assert [r.factor for r in denied.reasons] == ["c", "a"]


def test_captured_says_what_is_missing():
    assert Captured(b"ab", b"cd").data == b"abcd"
    assert Captured(b"ab", b"cd", 7).data == b"ab\n[... 7 bytes dropped ...]\ncd"


def test_limits_tighten():
    assert Limits(memory_mb=5).tightened(Limits(memory_mb=3, tasks=2)) == Limits(memory_mb=3, tasks=2)
