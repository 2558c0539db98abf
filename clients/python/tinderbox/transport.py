# SPDX-License-Identifier: Apache-2.0
"""Requests over the daemon's socket, each on a connection of its own, and what may be asked again.

Without being told twice a request is repeated, within `patience` seconds, only if that is safe: nobody
listened, so that not a byte was sent; the daemon says that it has had no effect (retryable); or the
connection was lost, but the request is one that is done once however often it comes: a GET, PUT or DELETE, or
a POST with an idempotency key.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import Any, Mapping, NamedTuple
from urllib.parse import urlencode

from . import frames
from .errors import ApiError, ConnectionLost, Error, NoDaemon, ProtocolError

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two tries; each is twice the one before
UPGRADE = {"Connection": "Upgrade", "Upgrade": "tinderbox-frames"}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self._path)
        except OSError as error:
            self.close()
            raise NoDaemon(f"{self._path}: {error.strerror}") from error


class Channel:
    """An upgraded connection. One thread reads; any may write."""

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        self._socket = sock
        self._response = response  # has read some of what follows its head, and closes it when it goes
        self._lock = threading.Lock()

    def read(self) -> frames.Frame | None:
        """The next frame; None at the end. HOST_ERROR is raised."""
        try:
            frame = frames.read(self._response.fp)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if frame and frame.type == frames.Type.HOST_ERROR:
            raise ApiError.of(json.loads(frame.payload)["error"])
        return frame

    def write(self, kind: frames.Type, payload: bytes = b"") -> None:
        """What cannot be sent because the daemon has ended the stream is dropped: its last frame says why."""
        with self._lock:
            try:
                self._socket.sendall(frames.encode(kind, payload))
            except (BrokenPipeError, ConnectionResetError):
                pass
            except OSError as error:
                raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        """Also while another thread reads, who then is at the end."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()


class _Request(NamedTuple):
    method: str
    path: str
    body: Mapping[str, Any] | None
    query: Mapping[str, str | bytes] | None
    headers: dict[str, str]

    def send(self, connection: _UnixConnection) -> http.client.HTTPResponse:
        text = json.dumps(self.body).encode() if self.body is not None else None
        target = f"{self.path}?{urlencode(self.query)}" if self.query else self.path
        try:
            try:
                connection.request(self.method, target, text, self.headers)
            except BrokenPipeError:
                pass  # refused before the end of the body: the answer says why
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionLost(f"{self.method} {self.path}: {error!r}") from error


class Transport:
    def __init__(self, path: str, patience: float) -> None:
        self.path = path
        self.patience = patience

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str | bytes] | None = None,
        key: str | None = None,
    ) -> Any:
        """The JSON of an answer of 2xx, or its text; every other is raised."""
        request = _Request(method, path, body, query, {} if key is None else {"Idempotency-Key": key})
        safe = method != "POST" or key is not None
        deadline, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            connection = _UnixConnection(self.path)
            try:
                return self._take(request, request.send(connection))
            except (ApiError, ConnectionLost, NoDaemon) as error:
                if not _may_repeat(error, safe) or time.monotonic() + pause > deadline:
                    raise
            finally:
                connection.close()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def upgrade(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Channel:
        """Is not repeated: a stream has no key."""
        request = _Request(method, path, body, query, UPGRADE)
        connection = _UnixConnection(self.path)
        response = request.send(connection)
        if response.status == http.HTTPStatus.SWITCHING_PROTOCOLS:
            return Channel(connection.sock, response)
        try:
            self._take(request, response)
        finally:
            connection.close()
        raise ProtocolError(f"{method} {path} is not upgraded, but answered {response.status}")

    def answered(self, method: str, path: str, status: int, answer: Any) -> None:
        """For who wants to see each answer."""

    def _take(self, request: _Request, response: http.client.HTTPResponse) -> Any:
        name = f"{request.method} {request.path}"
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(f"{name}: {error!r}") from error
        if not (response.getheader("Content-Type") or "").startswith("application/json"):
            if response.status != http.HTTPStatus.OK:
                raise ProtocolError(f"{name}: {response.status} {response.reason}")
            return text.decode()
        answer = json.loads(text)
        self.answered(request.method, request.path, response.status, answer)
        if response.status >= http.HTTPStatus.BAD_REQUEST and "error" in answer:
            raise ApiError.of(answer["error"])
        return answer


def _may_repeat(error: Error, safe: bool) -> bool:
    if isinstance(error, ApiError):
        return error.retryable
    return safe or isinstance(error, NoDaemon)
