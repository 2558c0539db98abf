# SPDX-License-Identifier: Apache-2.0
"""A command that is followed as it runs, and the events of the daemon."""

from __future__ import annotations

import json
from collections import deque
from typing import Callable, Iterable, Iterator, Literal, NamedTuple

from . import frames
from .answers import Event
from .errors import ConnectionLost, ProtocolError
from .frames import Type
from .result import Result
from .transport import Channel


class Output(NamedTuple):
    """Some bytes, and where the first of them stands in all that the command wrote to that stream."""

    stream: Literal["stdout", "stderr"]
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Stream:
    """Iterate for its output; then result is there. A with statement leaves the command at its end: that goes
    on, or is killed, as on_detach says. Iterate, wait and write in one thread; the rest may be called from any.
    """

    def __init__(self, channel: Channel, window: int | None) -> None:
        """window: bytes of stdin that may be sent at once; None: as STARTED says."""
        self.result: Result | None = None
        self.pid: int | None = None  # in the guest, once it has started
        self.stdin_offset = 0  # bytes of stdin that it has been given
        self.stdout_offset = self.stderr_offset = 0  # where to go on, when attaching again
        self._channel = channel
        self._window = window
        self._ahead: deque[Output] = deque()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Output]:
        while self._ahead or self._read():
            while self._ahead:
                yield self._ahead.popleft()

    def wait(
        self,
        stdin: Iterable[bytes] | None = None,
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> Result:
        """To its end. Output without a callback is in the result, all of it. stdin is sent as it is wanted, and
        then ended."""
        kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        take = {"stdout": on_stdout or kept["stdout"].append, "stderr": on_stderr or kept["stderr"].append}

        def deliver() -> None:
            while self._ahead:
                output = self._ahead.popleft()
                take[output.stream](output.data)

        if stdin is not None:
            for data in stdin:
                self._write(data, deliver)
            self.close_stdin()
        deliver()
        while self._read():
            deliver()
        assert self.result
        return self.result.with_output(b"".join(kept["stdout"]), b"".join(kept["stderr"]))

    def write(self, data: bytes) -> None:
        """To its stdin (stdin=True). Waits until it is taken; output that comes meanwhile is kept for who
        iterates. What a command that has ended does not take is dropped."""
        self._write(data, lambda: None)

    def close_stdin(self) -> None:
        self._channel.write(Type.STDIN_EOF)

    def signal(self, number: int) -> None:
        """To its process group."""
        self._channel.write(Type.SIGNAL, frames.SIGNAL.pack(number, 0))

    def kill(self) -> None:
        """All that it started."""
        self._channel.write(Type.KILL)

    def resize(self, rows: int, cols: int) -> None:
        """Its terminal (tty)."""
        self._channel.write(Type.RESIZE, frames.RESIZE.pack(rows, cols, 0))

    def close(self) -> None:
        self._channel.close()

    def _write(self, data: bytes, arrived: Callable[[], None]) -> None:
        rest = memoryview(data)
        while rest:
            while not self._window:
                if not self._read():
                    return
                arrived()
            part = rest[: min(self._window, frames.DATA_MAX)]
            self._channel.write(Type.STDIN, bytes(part))
            self._window -= len(part)
            self.stdin_offset += len(part)
            rest = rest[len(part) :]

    def _read(self) -> bool:
        """One frame. False: there is none after the last."""
        if self.result:
            return False
        frame = self._channel.read()
        if frame is None:
            raise ConnectionLost("the stream ended without a result")
        if frame.type in (Type.STDOUT, Type.STDERR):
            self._take_output(frame)
        elif frame.type == Type.STARTED:
            _, self.pid, window, offset = frames.unpack(frames.STARTED, frame)
            if self._window is None:
                self._window, self.stdin_offset = window, offset
        elif frame.type == Type.STDIN_CREDIT:
            self._window = (self._window or 0) + frames.unpack(frames.CREDIT, frame)[0]
        elif frame.type == Type.EXIT:
            self.result = Result.of_exit(frame)
        else:
            raise ProtocolError(f"a frame {frame.type.name}, which is not of a command")
        return True

    def _take_output(self, frame: frames.Frame) -> None:
        if len(frame.payload) <= frames.OFFSET.size:
            raise ProtocolError(f"{frame.type.name} of {len(frame.payload)} bytes")
        (offset,) = frames.OFFSET.unpack_from(frame.payload)
        data = frame.payload[frames.OFFSET.size :]
        if frame.type == Type.STDOUT:
            output = Output("stdout", offset, data)
            self.stdout_offset = output.end
        else:
            output = Output("stderr", offset, data)
            self.stderr_offset = output.end
        self._ahead.append(output)


class Events:
    """What happens from now on; iterating waits for it. close, from any thread or a with statement, ends that."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._closed = False

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            frame = None if self._closed else self._channel.read()
        except ConnectionLost:
            if not self._closed:
                raise
            frame = None
        if frame is None:
            if self._closed:
                raise StopIteration
            raise ConnectionLost("the events ended")
        if frame.type != Type.HOST_EVENT:
            raise ProtocolError(f"a frame {frame.type.name}, which is no event")
        event: Event = json.loads(frame.payload)
        return event

    def close(self) -> None:
        self._closed = True
        self._channel.close()
