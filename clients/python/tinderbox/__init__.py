# SPDX-License-Identifier: Apache-2.0
"""A client of Tinderbox's daemon (host-ctl serve). docs/api.md describes what it speaks; the types of what it
answers are in tinderbox.answers.

    import tinderbox

    with tinderbox.Client().create(ttl_ms=3600_000) as sandbox:
        sandbox.run(["sh", "-c", "echo kept >file"], check=True)
        print(sandbox.run(["cat", "file"]).text)
        for output in sandbox.stream(["make"], cwd="/src"):
            print(output.stream, output.data)
"""

from .client import Client, Command, Fork, Sandbox, new_key, path_of
from .errors import (
    ApiError,
    AttachFailed,
    BuildFailed,
    CommandFailed,
    Conflict,
    ConnectionLost,
    Denied,
    Error,
    Exhausted,
    GuestLost,
    Incomplete,
    Internal,
    Invalid,
    MethodNotAllowed,
    NoDaemon,
    NotFound,
    NotReady,
    ProtocolError,
    RequestTimeout,
    TooLarge,
)
from .result import Result
from .stream import Events, Output, Stream

__all__ = [
    "ApiError",
    "AttachFailed",
    "BuildFailed",
    "Client",
    "Command",
    "CommandFailed",
    "Conflict",
    "ConnectionLost",
    "Denied",
    "Error",
    "Events",
    "Exhausted",
    "Fork",
    "GuestLost",
    "Incomplete",
    "Internal",
    "Invalid",
    "MethodNotAllowed",
    "new_key",
    "NoDaemon",
    "NotFound",
    "NotReady",
    "Output",
    "path_of",
    "ProtocolError",
    "RequestTimeout",
    "Result",
    "Sandbox",
    "Stream",
    "TooLarge",
]
