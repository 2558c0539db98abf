# SPDX-License-Identifier: Apache-2.0
"""Frames of an upgraded connection, as common/proto_guest.h describes them; integers are little-endian."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple, Protocol

from .errors import ConnectionLost, ProtocolError

FRAME_MAX = 128 * 1024
DATA_MAX = 64 * 1024
STDIN_WINDOW = 256 * 1024

HEADER = struct.Struct("<IBBH")  # length, type, flags, reserved
STARTED = struct.Struct("<QIIQ")  # session, pid, stdin credit, stdin offset
OFFSET = struct.Struct("<Q")  # before the bytes of STDOUT and STDERR
CREDIT = struct.Struct("<II")  # bytes, reserved
SIGNAL = struct.Struct("<II")  # signal, reserved
RESIZE = struct.Struct("<HHI")  # rows, columns, reserved
EXIT = struct.Struct("<BBHi6Q")  # kind, core, step, code; stdout and stderr bytes; usage


class Type(enum.IntEnum):
    STDIN = 0x10
    STDIN_EOF = 0x11
    SIGNAL = 0x12
    RESIZE = 0x13
    KILL = 0x14
    STARTED = 0x50
    STDOUT = 0x51
    STDERR = 0x52
    STDIN_CREDIT = 0x53
    EXIT = 0x54
    HOST_ERROR = 0x70
    HOST_RESULT = 0x71
    HOST_PROGRESS = 0x72
    HOST_EVENT = 0x73


class Frame(NamedTuple):
    type: Type
    payload: bytes


class Reader(Protocol):
    """A blocking stream, whose read comes short at its end only."""

    def read(self, size: int, /) -> bytes: ...


def encode(kind: Type, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind, 0, 0) + payload


def _read_exactly(reader: Reader, size: int) -> bytes:
    data = reader.read(size)
    if len(data) < size:
        raise ConnectionLost("the stream ended within a frame")
    return data


def read(reader: Reader) -> Frame | None:
    """The next one; None at the end of the stream."""
    head = reader.read(HEADER.size)
    if not head:
        return None
    if len(head) < HEADER.size:
        raise ConnectionLost("the stream ended within a frame")
    length, kind, flags, reserved = HEADER.unpack(head)
    if flags or reserved or length > FRAME_MAX:
        raise ProtocolError(f"a malformed frame: {head.hex()}")
    if kind not in Type.__members__.values():
        raise ProtocolError(f"a frame of unknown type {kind:#x}")
    return Frame(Type(kind), _read_exactly(reader, length))


def unpack(layout: struct.Struct, frame: Frame) -> tuple[int, ...]:
    if len(frame.payload) != layout.size:
        raise ProtocolError(f"{frame.type.name} of {len(frame.payload)} bytes")
    return layout.unpack(frame.payload)
