# SPDX-License-Identifier: Apache-2.0
"""Objects of the API, with its own names and units; docs/api.md says what each field means."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from .errors import ErrorInfo

Kind = Literal["exited", "signalled", "timed_out", "out_of_memory", "failed_to_start", "killed"]
SandboxState = Literal[
    "creating",
    "ready",
    "pausing",
    "paused",
    "resuming",
    "copying",
    "suspending",
    "suspended",
    "waking",
    "stopping",
    "stopped",
    "starting",
    "deleting",
    "gone",
    "failed",
]


Action = Literal["kill", "pause", "suspend"]


class Idle(TypedDict):
    after_ms: int
    action: Action


class Terminal(TypedDict):
    rows: int
    cols: int


class CommonOptions(TypedDict, total=False):
    env: dict[str, str]
    cwd: str
    user: str
    timeout_ms: int
    memory_max: int
    pids_max: int


class RunOptions(CommonOptions, total=False):
    """Of a command in a VM of its own."""

    template: str


class CommandOptions(CommonOptions, total=False):
    """Of a command in a sandbox."""

    tty: Terminal
    on_detach: Literal["keep", "kill"]
    wake: bool
    output_max: int


class SandboxSettings(TypedDict, total=False):
    """Of a sandbox, whatever it is made of."""

    name: str
    metadata: dict[str, str]
    env: dict[str, str]
    ttl_ms: int
    ttl_action: Action
    idle: Idle
    memory_max: int
    cpu_max: int
    pids_max: int


class SandboxOptions(SandboxSettings, total=False):
    template: str
    mem: str
    cpus: int


class ForkOptions(SandboxSettings, total=False):
    """What is not named is as of the sandbox that is forked."""

    count: int


class TemplateOptions(TypedDict, total=False):
    image: str
    mem: str
    cpus: int
    disk: str
    run: list[str]


class Usage(TypedDict):
    wall_us: int
    user_us: int
    system_us: int
    max_rss_kib: int


class ResultInfo(TypedDict):
    kind: Kind
    code: NotRequired[int]
    signal: NotRequired[int]
    core: NotRequired[bool]
    by: NotRequired[Literal["guest", "host"]]
    errno: NotRequired[int]
    error: NotRequired[str]
    step: NotRequired[str]


class Data(TypedDict):
    """Bytes: as data where they are UTF-8."""

    data: NotRequired[str]
    data_b64: NotRequired[str]


class OutputInfo(Data):
    bytes: int
    dropped: int
    head_bytes: NotRequired[int]


class Timing(TypedDict):
    queued_us: int
    first_byte_us: int | None
    total_us: int


class RunAnswer(TypedDict):
    result: ResultInfo
    stdout: OutputInfo
    stderr: OutputInfo
    usage: Usage
    timing: Timing
    vm: str
    warm: bool
    sandbox: NotRequired[str]
    command: NotRequired[str]


class Removed(TypedDict):
    vm: str | None
    cgroup: str | None
    files: int
    bytes: int


class Receipt(TypedDict):
    removed: Removed
    verified: bool


FileType = Literal[
    "file", "directory", "symlink", "fifo", "socket", "char_device", "block_device", "unknown"
]


class Change(TypedDict):
    """Bytes of a path: as path where they are UTF-8. What was removed has no more than its type."""

    kind: Literal["added", "changed", "removed"]
    path: NotRequired[str]
    path_b64: NotRequired[str]
    type: FileType
    mode: NotRequired[int]
    uid: NotRequired[int]
    gid: NotRequired[int]
    size: NotRequired[int]
    modified_ms: NotRequired[int]


class Changes(TypedDict):
    changes: list[Change]
    more: bool
    skipped: int


class SandboxInfo(TypedDict):
    id: str
    name: str | None
    state: SandboxState
    reason: str | None
    template: str
    metadata: dict[str, str]
    env: list[str]
    created_ms: int
    ttl_ms: int | None
    ttl_action: Action
    expires_ms: int | None
    idle: Idle | None
    mem: str | None
    cpus: int | None
    memory_max: int | None
    cpu_max: int | None
    pids_max: int | None
    vm: str | None
    warm: bool
    cold: bool
    receipt: Receipt | None


class ForkChild(TypedDict):
    """One of the two."""

    sandbox: NotRequired[SandboxInfo]
    error: NotRequired[ErrorInfo]


class ForkAnswer(TypedDict):
    pause_us: int
    children: list[ForkChild]


class StreamInfo(TypedDict):
    bytes: int
    held: int
    lost: int | None
    oldest: int


class CommandInfo(TypedDict):
    id: str
    sandbox: str
    state: Literal["created", "starting", "running", "ended"]
    argv0: str
    on_detach: Literal["keep", "kill"]
    attached: bool
    stdout: StreamInfo
    stderr: StreamInfo
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    result: ResultInfo | None
    usage: Usage | None
    error: ErrorInfo | None


class OutputPart(Data):
    offset: int
    next_offset: int
    bytes: int
    ended: bool


class Operation(TypedDict):
    id: str
    kind: Literal["create", "pause", "resume", "suspend", "wake", "stop", "start", "delete"]
    state: Literal["running", "done", "failed"]
    sandbox: str
    error: ErrorInfo | None


class TemplateInfo(TypedDict):
    """One whose files cannot be used has the last five and its name only."""

    name: str
    format: NotRequired[int]
    generation: NotRequired[str]
    created_ms: NotRequired[int]
    build_ms: NotRequired[int]
    boots: NotRequired[bool]
    state_bytes: NotRequired[int]
    memory_bytes: NotRequired[int]
    inputs: NotRequired[dict[str, Any]]
    snapshot: NotRequired[dict[str, Any]]
    working_set: NotRequired[dict[str, int]]
    state: Literal["ready", "stored", "loading", "damaged"]
    reason: str | None
    loaded: bool
    vms: int


class SnapshotAnswer(TypedDict):
    pause_us: int
    template: TemplateInfo


class BuildAnswer(TypedDict):
    template: TemplateInfo
    stdout: OutputInfo
    stderr: OutputInfo


class Event(TypedDict):
    """event tells which of the others are there: "sandbox", "command", "template" or "lost"."""

    event: Literal["sandbox", "command", "template", "lost"]
    seq: NotRequired[int]
    time_ms: NotRequired[int]
    sandbox: NotRequired[str]
    state: NotRequired[str]
    before: NotRequired[str]
    reason: NotRequired[str | None]
    command: NotRequired[str]
    result: NotRequired[str | None]
    template: NotRequired[str]
    count: NotRequired[int]
