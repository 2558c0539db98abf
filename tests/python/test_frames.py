# SPDX-License-Identifier: Apache-2.0
"""The codec of frames, and results made of them, without a daemon."""

from __future__ import annotations

import io
import re
import struct
import unittest

import tinderbox
from tinderbox import frames
from tinderbox.frames import Type
from tinderbox.result import KINDS, STEPS, Result


def header(length: int, kind: int, flags: int = 0, reserved: int = 0) -> bytes:
    return struct.pack("<IBBH", length, kind, flags, reserved)


def exit_frame(kind: int, code: int = 0, step: int = 0) -> frames.Frame:
    return frames.Frame(Type.EXIT, frames.EXIT.pack(kind, 0, step, code, 1, 2, 3, 4, 5, 6))


class Frames(unittest.TestCase):
    def test_round_trip(self) -> None:
        for payload in (b"", b"x", bytes(frames.FRAME_MAX)):
            reader = io.BytesIO(frames.encode(Type.STDIN, payload) + frames.encode(Type.KILL))
            self.assertEqual(frames.read(reader), (Type.STDIN, payload))
            self.assertEqual(frames.read(reader), (Type.KILL, b""))
            self.assertIsNone(frames.read(reader))

    def test_bytes(self) -> None:
        self.assertEqual(frames.encode(Type.STDIN, b"ab"), b"\x02\0\0\0\x10\0\0\0ab")
        self.assertEqual(frames.SIGNAL.pack(15, 0), b"\x0f\0\0\0\0\0\0\0")
        self.assertEqual(frames.RESIZE.pack(24, 80, 0), b"\x18\0\x50\0\0\0\0\0")

    def test_ends_within_a_frame(self) -> None:
        whole = frames.encode(Type.STDOUT, b"0123456789")
        for cut in range(1, len(whole)):
            with self.assertRaisesRegex(tinderbox.ConnectionLost, "within a frame"):
                frames.read(io.BytesIO(whole[:cut]))

    def test_malformed(self) -> None:
        for head in (header(0, 0x51, 1), header(0, 0x51, 0, 1), header(frames.FRAME_MAX + 1, 0x51)):
            with self.assertRaisesRegex(tinderbox.ProtocolError, "a malformed frame: "):
                frames.read(io.BytesIO(head))
        with self.assertRaisesRegex(tinderbox.ProtocolError, "a frame of unknown type 0x6f"):
            frames.read(io.BytesIO(header(0, 0x6F)))

    def test_wrong_sizes(self) -> None:
        with self.assertRaisesRegex(tinderbox.ProtocolError, "STARTED of 3 bytes"):
            frames.unpack(frames.STARTED, frames.Frame(Type.STARTED, b"abc"))

    def test_as_the_header_has_them(self) -> None:
        """Types, sizes and limits of common/proto_guest.h."""
        with open("common/proto_guest.h", encoding="utf-8") as file:
            text = file.read()
        for kind in Type:
            self.assertRegex(text, rf"AGENT_{kind.name} = {kind.value:#04x},")
        for name, layout in (
            ("frame_header", frames.HEADER),
            ("started", frames.STARTED),
            ("output", frames.OFFSET),
            ("credit", frames.CREDIT),
            ("signal", frames.SIGNAL),
            ("resize", frames.RESIZE),
            ("exit", frames.EXIT),
        ):
            size = "AGENT_FRAME_HEADER" if name == "frame_header" else layout.size
            self.assertIn(f"sizeof(struct agent_{name}) == {size},", text)
        self.assertIn(f"AGENT_FRAME_HEADER = {frames.HEADER.size},", text)
        for name, value in (("FRAME_MAX", 128), ("DATA_MAX", 64), ("STDIN_WINDOW", 256)):
            self.assertIn(f"AGENT_{name} = {value} * 1024,", text)
            self.assertEqual(getattr(frames, name), value * 1024)
        steps = re.findall(r"AGENT_STEP_([A-Z]+) = (\d+)", text)
        self.assertEqual([(name.lower(), int(n)) for name, n in steps[1:]], [(s, i) for i, s in enumerate(STEPS) if s])
        for number, kind_name in KINDS.items():
            self.assertRegex(text, rf"AGENT_{kind_name.upper()} = {number},")


class Results(unittest.TestCase):
    def test_status_as_of_a_shell(self) -> None:
        for frame, status, words in (
            (exit_frame(1, 0), 0, "it exited with 0"),
            (exit_frame(1, 255), 255, "it exited with 255"),
            (exit_frame(2, 9), 137, "it was ended by signal 9"),
            (exit_frame(3), 124, "it ended: timed_out"),
            (exit_frame(4, 9), 137, "it ended: out_of_memory"),
            (exit_frame(5, 2, 6), 127, "it could not be started: No such file or directory (step: exec)"),
            (exit_frame(5, 13, 6), 126, "it could not be started: Permission denied (step: exec)"),
            (exit_frame(5, 2, 4), 126, "it could not be started: No such file or directory (step: user)"),
            (exit_frame(5, 12, 3), 125, "it could not be started: Cannot allocate memory (step: clone)"),
            (exit_frame(6), 137, "it ended: killed"),
        ):
            result = Result.of_exit(frame)
            self.assertEqual((result.status, result.describe()), (status, words))
            self.assertEqual(result.ok, status == 0)

    def test_check(self) -> None:
        self.assertTrue(Result.of_exit(exit_frame(1, 0)).check().ok)
        with self.assertRaisesRegex(tinderbox.CommandFailed, "^it exited with 3$") as caught:
            Result.of_exit(exit_frame(1, 3)).check()
        self.assertEqual(caught.exception.result.code, 3)

    def test_usage(self) -> None:
        usage = {"wall_us": 3, "user_us": 4, "system_us": 5, "max_rss_kib": 6}
        self.assertEqual(Result.of_exit(exit_frame(1)).usage, usage)

    def test_unknown(self) -> None:
        for frame in (exit_frame(0), exit_frame(7), exit_frame(5, 2, 7)):
            with self.assertRaisesRegex(tinderbox.ProtocolError, "EXIT of kind"):
                Result.of_exit(frame)
