# SPDX-License-Identifier: Apache-2.0
"""The daemon, its sandboxes, and the commands in them."""

from __future__ import annotations

import base64
import os
import uuid
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Sequence, Unpack, cast
from urllib.parse import quote

from .answers import (
    BuildAnswer,
    Change,
    Changes,
    CommandInfo,
    CommandOptions,
    ForkAnswer,
    ForkOptions,
    Operation,
    OutputPart,
    Receipt,
    RunOptions,
    SandboxInfo,
    SandboxOptions,
    SnapshotAnswer,
    TemplateInfo,
    TemplateOptions,
)
from .errors import ApiError, Denied, NotFound
from .frames import STDIN_WINDOW
from .result import Result, decode
from .stream import Events, Stream
from .transport import Transport

DEFAULT_SOCKET = "/run/tinderbox/host-ctl.sock"
Argv = Sequence[str | bytes]


def new_key() -> str:
    """For one thing that is to be done once."""
    return uuid.uuid4().hex


def _encode(data: bytes) -> str:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"stdin is bytes, not {type(data).__name__}: a str has encode()")
    return base64.b64encode(data).decode()


def _name(what: str, name: str) -> str:
    """An id or name, or anything else that narrows what is asked for: empty it would ask for everything."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a str, not {type(name).__name__}")
    if not name:
        raise ValueError(f"{what} is empty")
    return name


def _segment(what: str, name: str) -> str:
    return quote(_name(what, name), safe="")


def path_of(change: Change) -> bytes:
    """os.fsdecode makes a str of it, as the functions of os do."""
    return base64.b64decode(change["path_b64"]) if "path_b64" in change else change["path"].encode()


def _words(argv: Argv) -> list[bytes]:
    if isinstance(argv, (str, bytes)):
        raise TypeError(
            f"argv is a list of words, not {type(argv).__name__}: "
            'as ["echo", "hi"], or for a line of the shell ["sh", "-c", "echo hi"]'
        )
    words = [os.fsencode(word) for word in argv]
    if not words:
        raise ValueError("argv is empty: its first word is the command")
    return words


def _body(argv: Argv, options: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """argv goes as text where it is UTF-8; a str with bytes that os.fsdecode has escaped is not."""
    words = _words(argv)
    body = {**options, **more}
    try:
        body["argv"] = [word.decode() for word in words]
    except UnicodeDecodeError:
        body["argv_b64"] = [_encode(word) for word in words]
    return body


def _plain(argv: Argv, stdin: bytes | None, options: Mapping[str, Any]) -> dict[str, Any]:
    more = {} if stdin is None else {"stdin_b64": _encode(stdin)}
    return _body(argv, options, **more)


def _streamed(argv: Argv, stdin: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    more = {"stdin_stream": True} if stdin else {}
    return _body(argv, options, **more)


class Client:
    """Holds no connection, and may be used by any number of threads.

    path: of the daemon's socket; default: $TINDERBOX_SOCKET, or where the daemon has it by itself.
    patience: seconds for which what may safely be asked again is asked again (transport.py).
    transport: its call makes any other request of docs/api.md.
    """

    def __init__(self, path: str | None = None, patience: float = 0) -> None:
        path = path or os.environ.get("TINDERBOX_SOCKET") or DEFAULT_SOCKET
        self.transport = Transport(path, patience)

    def run(
        self,
        argv: Argv,
        *,
        stdin: bytes | None = None,
        check: bool = False,
        key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Result:
        """One command in a VM of its own, to its end. stdin: at most 64 KiB; of the output the first and the
        last 512 KiB are kept. key: an idempotency key (new_key)."""
        answer = self.transport.call("POST", "/v1/run", _plain(argv, stdin, options), key=key)
        result = Result.of_answer(answer)
        return result.check() if check else result

    def stream(self, argv: Argv, *, stdin: bool = False, **options: Unpack[RunOptions]) -> Stream:
        """The same, followed as it runs."""
        body = _streamed(argv, stdin, options)
        return Stream(self.transport.upgrade("POST", "/v1/run", body), STDIN_WINDOW)

    def create(self, *, key: str | None = None, **options: Unpack[SandboxOptions]) -> Sandbox:
        """A sandbox. With a with statement it is deleted at its end."""
        info = self.transport.call("POST", "/v1/sandboxes", options, key=key)
        return Sandbox(self.transport, info["id"])

    def sandbox(self, name: str) -> Sandbox:
        """One that is there, by id or name."""
        sandbox = Sandbox(self.transport, name)
        return Sandbox(self.transport, sandbox.info()["id"])

    def sandboxes(
        self,
        *,
        state: str | None = None,
        template: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> list[SandboxInfo]:
        """Those that fit all of these; without state, all but those that are gone."""
        query = {f"metadata.{name}": value for name, value in (metadata or {}).items()}
        query |= {"state": _name("state", state)} if state is not None else {}
        query |= {"template": _name("template", template)} if template is not None else {}
        answer = self.transport.call("GET", "/v1/sandboxes", query=query)
        return cast(list[SandboxInfo], answer["sandboxes"])

    def operation(self, name: str, wait: bool = False) -> Operation:
        """Of what was asked for without waiting (Sandbox.ask). wait: until it is over, or for 30 s."""
        query = {"wait": "true"} if wait else None
        path = f"/v1/operations/{_segment('name', name)}"
        answer = self.transport.call("GET", path, query=query)
        return cast(Operation, answer["operation"])

    def events(self, sandbox: str | None = None) -> Events:
        """Of all sandboxes and their commands, or of one."""
        query = None if sandbox is None else {"sandbox": _name("sandbox", sandbox)}
        return Events(self.transport.upgrade("GET", "/v1/events", query=query))

    def templates(self) -> list[TemplateInfo]:
        return cast(list[TemplateInfo], self.transport.call("GET", "/v1/templates")["templates"])

    def template(self, name: str) -> TemplateInfo:
        return cast(TemplateInfo, self.transport.call("GET", _template(name)))

    def build_template(
        self, name: str, *, key: str | None = None, **options: Unpack[TemplateOptions]
    ) -> BuildAnswer:
        body: dict[str, Any] = {"name": name, **options}
        return cast(BuildAnswer, self.transport.call("POST", "/v1/templates", body, key=key))

    def delete_template(self, name: str) -> None:
        self.transport.call("DELETE", _template(name))

    def pool(self, template: str = "base") -> dict[str, Any]:
        query = {"template": _name("template", template)}
        return cast(dict[str, Any], self.transport.call("GET", "/v1/pool", query=query))

    def set_pool(self, target: int, template: str = "base") -> dict[str, Any]:
        """How many warm VMs are kept from now on."""
        body = {"template": _name("template", template), "target": target}
        return cast(dict[str, Any], self.transport.call("PUT", "/v1/pool", body))


def _template(name: str) -> str:
    return f"/v1/templates/{_segment('name', name)}"


class Sandbox:
    """A VM that stays, with its files. After `with client.create() as sandbox:` it is deleted."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.id = name
        self._transport = transport
        self._path = f"/v1/sandboxes/{_segment('name', name)}"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.delete()
        except NotFound:
            pass  # gone for so long that it is forgotten
        except Exception as failure:
            if error is None:
                raise
            # What went wrong first is what is to be seen.
            error.add_note(f"the sandbox {self.id} may be left: {failure}")

    def info(self) -> SandboxInfo:
        return cast(SandboxInfo, self._transport.call("GET", self._path))

    def pause(self) -> SandboxInfo:
        return cast(SandboxInfo, self._transport.call("POST", f"{self._path}/pause"))

    def resume(self) -> SandboxInfo:
        return cast(SandboxInfo, self._transport.call("POST", f"{self._path}/resume"))

    def suspend(self) -> SandboxInfo:
        """On the disk, without memory of the host's; what runs in it goes on when it is woken."""
        return cast(SandboxInfo, self._transport.call("POST", f"{self._path}/suspend"))

    def wake(self) -> SandboxInfo:
        """Ready again, whether it was paused, suspended or stopped."""
        return cast(SandboxInfo, self._transport.call("POST", f"{self._path}/wake"))

    def fork(self, *, key: str | None = None, **options: Unpack[ForkOptions]) -> Fork:
        """Others that go on from where it is: `count` of them. Each comes about or not on its own."""
        answer: ForkAnswer = self._transport.call("POST", f"{self._path}/fork", dict(options), key=key)
        children = answer["children"]
        return Fork(
            answer["pause_us"],
            [Sandbox(self._transport, child["sandbox"]["id"]) for child in children if "sandbox" in child],
            [ApiError.of(child["error"]) for child in children if "error" in child],
        )

    def snapshot(self, name: str, *, key: str | None = None) -> SnapshotAnswer:
        """A template of that name, of which each sandbox goes on from where this one is; it runs on."""
        body = {"name": _name("name", name)}
        return cast(SnapshotAnswer, self._transport.call("POST", f"{self._path}/snapshot", body, key=key))

    def stop(self, *, discard_files: bool = False) -> SandboxInfo:
        """Switches it off. Without a disk its files are lost: so Conflict, unless that is agreed to."""
        body = {"discard_files": discard_files}
        return cast(SandboxInfo, self._transport.call("POST", f"{self._path}/stop", body))

    def start(self) -> SandboxInfo:
        """One that was stopped, in a new VM: with its files, if these are on a disk."""
        return cast(SandboxInfo, self._transport.call("POST", f"{self._path}/start"))

    def delete(self) -> Receipt:
        """Also of one that is gone: the receipt again."""
        return cast(Receipt, self._transport.call("DELETE", self._path))

    def ask(
        self,
        verb: Literal["pause", "resume", "suspend", "wake", "start", "delete"],
        key: str | None = None,
    ) -> Operation:
        """Does not wait: Client.operation tells how far it is."""
        method, path = ("DELETE", self._path) if verb == "delete" else ("POST", f"{self._path}/{verb}")
        answer = self._transport.call(method, path, query={"wait": "false"}, key=key)
        return cast(Operation, answer["operation"])

    def changes(self) -> list[Change]:
        """What it has added, changed and removed against its template; it has to be ready."""
        found: list[Change] = []
        query: dict[str, str | bytes] = {}
        while True:
            page: Changes = self._transport.call("GET", f"{self._path}/changes", query=query)
            found += page["changes"]
            if not page["more"] or not page["changes"]:
                return found
            query = {"after": path_of(found[-1])}

    def run(
        self,
        argv: Argv,
        *,
        stdin: bytes | None = None,
        check: bool = False,
        key: str | None = None,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """As Client.run. One that is paused or suspended is woken, unless wake=False."""
        body = _plain(argv, stdin, options)
        result = Result.of_answer(self._transport.call("POST", f"{self._path}/run", body, key=key))
        return result.check() if check else result

    def stream(self, argv: Argv, *, stdin: bool = False, **options: Unpack[CommandOptions]) -> Stream:
        """Followed as it runs; killed when we leave, unless on_detach="keep"."""
        body = _streamed(argv, stdin, options)
        return Stream(self._transport.upgrade("POST", f"{self._path}/run", body), STDIN_WINDOW)

    def command(
        self,
        argv: Argv,
        *,
        stdin: bool = False,
        key: str | None = None,
        **options: Unpack[CommandOptions],
    ) -> Command:
        """One that does not run yet: attach starts it. It goes on when we leave, unless on_detach="kill"."""
        body = _streamed(argv, stdin, options)
        answer = self._transport.call("POST", f"{self._path}/commands", body, key=key)
        return Command(self._transport, self._path, answer["id"], answer["attach_token"])

    def find(self, command: str) -> Command:
        """One that is there, by its id."""
        return Command(self._transport, self._path, command, None)

    def commands(self) -> list[CommandInfo]:
        answer = self._transport.call("GET", f"{self._path}/commands")
        return cast(list[CommandInfo], answer["commands"])

    def events(self) -> Events:
        return Events(self._transport.upgrade("GET", "/v1/events", query={"sandbox": self.id}))


@dataclass
class Fork:
    """What came of a fork, and how long the sandbox that was forked stood for it."""

    pause_us: int
    children: list[Sandbox]
    errors: list[ApiError]


class Command:
    """A command in a sandbox. It and its output are known for a while after its end, and the sandbox's."""

    def __init__(self, transport: Transport, sandbox: str, name: str, token: str | None) -> None:
        self.id = name
        self._transport = transport
        self._path = f"{sandbox}/commands/{_segment('name', name)}"
        self._token = token  # of the first attachment

    def attach(self, stdout_offset: int | None = None, stderr_offset: int | None = None) -> Stream:
        """Starts it, or follows it from these offsets on (Stream.stdout_offset); without them, from the oldest
        byte after which nothing is missing. Whoever was attached before is sent away with Conflict."""
        offsets = {"stdout_offset": stdout_offset, "stderr_offset": stderr_offset}
        body = {name: value for name, value in offsets.items() if value is not None}
        token, self._token = self._token, None
        if token:
            try:
                return self._attach({"token": token, **body}, STDIN_WINDOW)
            except Denied:
                pass  # it is older than its minute, or than the daemon
        token = self._transport.call("POST", f"{self._path}/token")["attach_token"]
        return self._attach({"token": token, **body}, None)

    def _attach(self, body: Mapping[str, Any], window: int | None) -> Stream:
        return Stream(self._transport.upgrade("POST", f"{self._path}/attach", body), window)

    def info(self) -> CommandInfo:
        return cast(CommandInfo, self._transport.call("GET", self._path))

    def output(self, stream: Literal["stdout", "stderr"] = "stdout", offset: int = 0) -> bytes:
        """What it has written so far, from there on; Conflict when that is no longer held. How much it writes
        meanwhile does not matter."""
        data, end = b"", None
        while end is None or offset + len(data) < end:
            query = {"stream": stream, "offset": str(offset + len(data))}
            part: OutputPart = self._transport.call("GET", f"{self._path}/output", query=query)
            data += decode(part)
            end = part["bytes"] if end is None else end
        return data

    def signal(self, number: int) -> CommandInfo:
        return cast(CommandInfo, self._transport.call("POST", f"{self._path}/signal", {"signal": number}))

    def kill(self) -> CommandInfo:
        """All that it started."""
        return cast(CommandInfo, self._transport.call("POST", f"{self._path}/kill"))

    def send(self, data: bytes, end: bool = False, key: str | None = None) -> CommandInfo:
        """To its stdin, without being attached: at most 64 KiB, within its window (Exhausted)."""
        body = {"data_b64": _encode(data), "eof": end}
        return cast(CommandInfo, self._transport.call("POST", f"{self._path}/stdin", body, key=key))

    def delete(self) -> None:
        """Forgets one that does not run."""
        self._transport.call("DELETE", self._path)
