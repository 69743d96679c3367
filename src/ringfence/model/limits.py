"""How much a command may use; `None` is unlimited."""

from __future__ import annotations

from ringfence.model.value import Value

MAX_TIMEOUT = 1800.0


class Limits(Value):
    """Ceilings of one command and everything it starts."""

    timeout: float | None = None
    memory_mb: int | None = None
    tasks: int | None = None
    open_files: int | None = None
    cpu_seconds: int | None = None
    file_size_mb: int | None = None
    scratch_mb: int | None = None

    def _normalise(self) -> None:
        for name in type(self)._fields:
            value = getattr(self, name)
            if value is None:
                continue
            # `value <= 0` alone would let NaN through.
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                msg = f"{name} is a number above zero, not {value!r}"
                raise ValueError(msg)
            # Infinity and figures beyond any machine would overflow in the kernel's interfaces.
            self._put(name, min(value, 2**40))

    @classmethod
    def strict(cls) -> Limits:
        """Tight ones, for commands that should need little: 512 MiB, a minute of CPU, 100 tasks, files of 100 MiB."""
        return cls(memory_mb=512, cpu_seconds=60, tasks=100, open_files=1024, file_size_mb=100, scratch_mb=512)

    def is_within(self, other: Limits) -> bool:
        """Tell whether each ceiling is at most the other's; unlimited fits only under unlimited."""
        return all(_at_most(getattr(self, n), getattr(other, n)) for n in type(self)._fields)

    def tightened(self, other: Limits) -> Limits:
        """Return the lower of both for each ceiling."""
        named = {n: _lower(getattr(self, n), getattr(other, n)) for n in type(self)._fields}
        return self.replace(**named)


def _at_most(ours: float | None, theirs: float | None) -> bool:
    return theirs is None or (ours is not None and ours <= theirs)


def _lower(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)
