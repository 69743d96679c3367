"""The base of every plain value: frozen, slotted, compared by content.

It does what `dataclass(frozen=True, slots=True)` does for us and no more. `dataclasses` itself
takes 24 ms to import and 0.7 ms for each class, which `ringfence run` would pay on every command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_options: bool) -> Callable[[type], type]:
        """Stand in for the marker that type checkers read; it does nothing at run time."""
        return lambda cls: cls


@dataclass_transform(frozen_default=True, eq_default=True)
class _ValueMeta(type):
    """Turns a class body's annotations into slots, in order, with their defaults kept aside."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]

    def __new__(mcls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _ValueMeta:
        own = tuple(n for n in body.get("__annotations__", {}) if not n.startswith("_"))
        defaults = {n: body.pop(n) for n in own if n in body}
        body["__slots__"] = own
        cls = super().__new__(mcls, name, bases, body)
        inherited = [b for b in bases if isinstance(b, _ValueMeta)]
        cls._fields = (*(f for b in inherited for f in b._fields), *own)
        cls._defaults = {**{k: v for b in inherited for k, v in b._defaults.items()}, **defaults}
        return cls


class Value(metaclass=_ValueMeta):
    """An immutable record whose fields are its annotations."""

    if not TYPE_CHECKING:

        def __init__(self, *args: object, **named: object) -> None:
            cls = type(self)
            fields = cls._fields
            given = {**dict(zip(fields, args, strict=False)), **named} if args else named
            values = {**cls._defaults, **given}
            # Made several times a command: what is wrong is looked for only where something is.
            if len(values) != len(fields) or len(given) != len(args) + len(named):
                raise self._mistake(args, named)
            put = object.__setattr__
            for name in fields:
                put(self, name, values[name])
            self._normalise()

    @classmethod
    def _mistake(cls, args: tuple[object, ...], named: dict[str, object]) -> TypeError:
        """Say what is wrong with a constructor's arguments."""
        fields = cls._fields
        if len(args) > len(fields):
            return TypeError(f"{cls.__name__} takes {len(fields)} values, {len(args)} were given")
        for name in named:
            if name in fields[: len(args)] or name not in fields:
                what = "repeated" if name in fields else "unknown"
                return TypeError(f"{cls.__name__}: {what} field {name!r}")
        missing = next(n for n in fields[len(args) :] if n not in named and n not in cls._defaults)
        return TypeError(f"{cls.__name__}: missing field {missing!r}")

    def _normalise(self) -> None:
        """Bring the fields into their canonical form; a subclass uses `_put` here and nowhere else."""

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"{type(self).__name__} is frozen: use replace({name}=…)"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        msg = f"{type(self).__name__} is frozen"
        raise AttributeError(msg)

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in type(self)._fields)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def __repr__(self) -> str:
        inner = ", ".join(f"{n}={getattr(self, n)!r}" for n in type(self)._fields)
        return f"{type(self).__name__}({inner})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._values()

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        named: dict[str, Any] = {n: getattr(self, n) for n in type(self)._fields}
        return type(self)(**(named | changes))
