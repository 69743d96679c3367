"""Commands in the background: started, read from and written to while they run, and ended with their session."""

from __future__ import annotations

import os
import signal
import threading

from ringfence.errors import RingfenceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from ringfence.drive import Stream
    from ringfence.model.output import Output

_GRACE_SECONDS = 5.0


class Job:
    """A running command. It has no timeout, keeps its enclosure, and dies with its session."""

    def __init__(self, command: str, stream: Stream, pipe: tuple[int, int], most: int) -> None:
        """Run `stream` on a thread, with the input that comes through `pipe`.

        What nobody has read yet is kept up to `most` bytes, the newest of it.
        """
        self.command = command
        self.dropped = 0
        self._stream = stream
        self._feed, self._stdin = pipe
        self._most = most
        self._unread = bytearray()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        stream.__enter__()
        threading.Thread(target=self._follow, name="ringfence-job", daemon=True).start()

    def _follow(self) -> None:
        try:
            for _, chunk in self._stream:
                with self._lock:
                    self._unread += chunk
                    surplus = len(self._unread) - self._most
                    if surplus > 0:
                        del self._unread[:surplus]
                        self.dropped += surplus
            self._stream.__exit__()
        except BaseException as error:  # noqa: BLE001  # raised again by `wait`
            self._failure = error
        finally:
            self.close_stdin()
            os.close(self._feed)
            self._ended.set()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.is_set()

    def read(self) -> bytes:
        """Return what it has printed since the last time, on both streams as it came."""
        with self._lock:
            data = bytes(self._unread)
            self._unread.clear()
        return data

    def write(self, data: bytes | str) -> None:
        """Give it input.

        Raises:
            BrokenPipeError: it takes none any more.
        """
        left = memoryview(data.encode() if isinstance(data, str) else data)
        while left:
            if self._stdin < 0:
                raise BrokenPipeError
            left = left[os.write(self._stdin, left) :]

    def close_stdin(self) -> None:
        """Tell it that there is no more input."""
        with self._lock:
            fd, self._stdin = self._stdin, -1
        if fd >= 0:
            os.close(fd)

    def signal(self, number: int) -> None:
        """Signal its process group."""
        if self.running:
            self._stream.signal(number)

    def stop(self, grace: float = _GRACE_SECONDS) -> Output:
        """Ask it to end, kill it when it does not, and return what came of it."""
        self.signal(signal.SIGTERM)
        if not self._ended.wait(grace):
            self._stream.cancel()
        return self.wait()

    def wait(self, timeout: float | None = None) -> Output:
        """Wait for its end.

        Raises:
            TimeoutError: it has not ended in time.
            RingfenceError: it could not be run to its end.
        """
        if not self._ended.wait(timeout):
            msg = f"{self.command} still runs"
            raise TimeoutError(msg)
        if self._failure is not None:
            if isinstance(self._failure, RingfenceError):
                raise self._failure
            msg = f"the job failed: {self._failure}"
            raise RingfenceError(msg) from self._failure
        return self._stream.output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
