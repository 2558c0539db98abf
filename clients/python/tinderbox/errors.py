# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. A command that ran and failed is a Result, not an error (but see check)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypedDict

if TYPE_CHECKING:
    from .result import Result


class Detail(TypedDict, total=False):
    """Of which VM an error tells, and how that VM ended."""

    vm: str
    cause: str


class ErrorInfo(TypedDict):
    """The error object of the API."""

    code: str
    message: str
    retryable: bool
    detail: Detail | None


class Error(Exception):
    """The base of all."""


class NoDaemon(Error):
    """Nothing listens on the socket, or we may not use it: not a byte was sent."""


class ConnectionLost(Error):
    """The connection ended before the answer did: what was asked for may have been done, or go on."""


class ProtocolError(Error):
    """What came is not what the daemon's protocol allows."""


class CommandFailed(Error):
    """A result that was to be checked is not that of a command which exited with 0."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.describe())
        self.result = result


class ApiError(Error):
    """The daemon's error. Each code has a class below; one that is not known here is of this one.

    retryable: the same request, unchanged, may succeed later, and this one has had no effect.
    """

    code: ClassVar[str] = ""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(f"{info['code']}: {info['message']}")
        self.info = info
        self.message = info["message"]
        self.retryable = info["retryable"]
        self.detail: Detail = info["detail"] or {}

    @staticmethod
    def of(info: ErrorInfo) -> ApiError:
        for kind in ApiError.__subclasses__():
            if kind.code == info["code"]:
                return kind(info)
        return ApiError(info)


class Invalid(ApiError):
    """The request, or a frame, is wrong; the message names the field."""

    code = "invalid"


class Denied(ApiError):
    code = "denied"


class NotFound(ApiError):
    code = "not_found"


class MethodNotAllowed(ApiError):
    code = "method_not_allowed"


class RequestTimeout(ApiError):
    """The request did not arrive in time."""

    code = "request_timeout"


class Conflict(ApiError):
    """The thing's state does not allow it, or an idempotency key is that of another request."""

    code = "conflict"


class TooLarge(ApiError):
    code = "too_large"


class BuildFailed(ApiError):
    code = "build_failed"


class Exhausted(ApiError):
    """The host has no room, or a queue is full: later, perhaps."""

    code = "exhausted"


class Internal(ApiError):
    code = "internal"


class AttachFailed(ApiError):
    """The command was not started."""

    code = "attach_failed"


class Incomplete(ApiError):
    """There is no result: the command may have run."""

    code = "incomplete"


class GuestLost(ApiError):
    """The VM died under the command; detail says how."""

    code = "guest_lost"


class NotReady(ApiError):
    code = "not_ready"
