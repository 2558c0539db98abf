# SPDX-License-Identifier: Apache-2.0
"""How a command ended, and what it wrote."""

from __future__ import annotations

import base64
import errno
import os
import signal
from dataclasses import dataclass, replace

from . import frames
from .answers import Data, Kind, RunAnswer, Usage
from .errors import CommandFailed, ProtocolError

KINDS: dict[int, Kind] = {
    1: "exited",
    2: "signalled",
    3: "timed_out",
    4: "out_of_memory",
    5: "failed_to_start",
    6: "killed",
}
STEPS = (None, "cgroup", "pipes", "clone", "user", "cwd", "exec")


def decode(data: Data) -> bytes:
    if "data_b64" in data:
        return base64.b64decode(data["data_b64"])
    return data["data"].encode()


@dataclass(frozen=True)
class Result:
    """code is an exit status; signal, errno and step are of the kinds signalled and failed_to_start.

    stdout and stderr are what was kept: without the *_dropped bytes of their middle, and empty where the
    output went to who iterated or to callbacks.
    """

    kind: Kind
    code: int | None
    signal: int | None
    errno: int | None
    step: str | None
    usage: Usage
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    core: bool = False  # signalled, and a core was dumped
    by: str | None = None  # timed_out: "guest" or "host", where that is told
    vm: str | None = None
    command: str | None = None  # its id, of one in a sandbox

    @property
    def ok(self) -> bool:
        return self.kind == "exited" and self.code == 0

    @property
    def status(self) -> int:
        """As a shell tells it, and host-ctl: 128 + signal; 124 timed out; 126 and 127 not started."""
        if self.code is not None:
            return self.code
        if self.signal is not None:
            return 128 + self.signal
        if self.kind == "failed_to_start":
            if self.step == "exec":
                return 127 if self.errno == errno.ENOENT else 126
            return 126 if self.step in ("user", "cwd") else 125
        return 124 if self.kind == "timed_out" else 128 + signal.SIGKILL

    @property
    def text(self) -> str:
        """stdout as UTF-8; what is none becomes U+FFFD."""
        return self.stdout.decode(errors="replace")

    def describe(self) -> str:
        if self.code is not None:
            return f"it exited with {self.code}"
        if self.signal is not None:
            return f"it was ended by signal {self.signal}"
        if self.errno is not None:
            return f"it could not be started: {os.strerror(self.errno)} (step: {self.step})"
        return f"it ended: {self.kind}"

    def check(self) -> Result:
        """Itself, if ok; else raises CommandFailed."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    def with_output(self, stdout: bytes, stderr: bytes) -> Result:
        return replace(self, stdout=stdout, stderr=stderr)

    @staticmethod
    def of_answer(answer: RunAnswer) -> Result:
        result, out, err = answer["result"], answer["stdout"], answer["stderr"]
        return Result(
            kind=result["kind"],
            code=result.get("code"),
            signal=result.get("signal"),
            errno=result.get("errno"),
            step=result.get("step"),
            core=result.get("core", False),
            by=result.get("by"),
            usage=answer["usage"],
            stdout=decode(out),
            stderr=decode(err),
            stdout_dropped=out["dropped"],
            stderr_dropped=err["dropped"],
            vm=answer["vm"],
            command=answer.get("command"),
        )

    @staticmethod
    def of_exit(frame: frames.Frame) -> Result:
        kind, core, step, code, _, _, wall, user, system, rss = frames.unpack(frames.EXIT, frame)
        if kind not in KINDS or step >= len(STEPS):
            raise ProtocolError(f"EXIT of kind {kind}, step {step}")
        name = KINDS[kind]
        return Result(
            kind=name,
            code=code if name == "exited" else None,
            signal=code if name == "signalled" else None,
            errno=code if name == "failed_to_start" else None,
            step=STEPS[step],
            usage={"wall_us": wall, "user_us": user, "system_us": system, "max_rss_kib": rss},
            core=bool(core),
        )
