# SPDX-License-Identifier: Apache-2.0
"""The client against a real daemon whose guests are played; each answer is held against docs/openapi.json."""

from __future__ import annotations

import os
import socket
import threading
import time
import unittest
import unittest.mock
from typing import Any, Callable, Iterator

import openapi
import tinderbox
from daemon import Daemon
from openapi import checked_client

WAIT_SECONDS = 20


def await_that(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


class WithDaemon(unittest.TestCase):
    daemon: Daemon
    client: tinderbox.Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon("--pool", "2")
        cls.client = checked_client(cls.daemon.socket)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.daemon.stop()


class Runs(WithDaemon):
    def test_output(self) -> None:
        result = self.client.run(["both"])
        self.assertEqual((result.stdout, result.stderr, result.status), (b"out\n", b"err\n", 0))
        self.assertTrue(result.ok)
        self.assertTrue(result.vm and result.vm.startswith("vm-"))
        self.assertEqual(self.client.run(["latin"]).stdout, b"\xe9\xff\0x")

    def test_each_end(self) -> None:
        for argv, kind, status in (
            (["exit", "0"], "exited", 0),
            (["exit", "255"], "exited", 255),
            (["signal", "9"], "signalled", 137),
            (["oom"], "out_of_memory", 137),
            (["timeout"], "timed_out", 124),
            (["no-such-command"], "failed_to_start", 127),
        ):
            plain = self.client.run(argv)
            self.assertEqual((plain.kind, plain.status), (kind, status))
            with self.client.stream(argv) as stream:
                streamed = stream.wait()
            self.assertEqual((streamed.kind, streamed.status, streamed.step), (kind, status, plain.step))

    def test_check(self) -> None:
        with self.assertRaisesRegex(tinderbox.CommandFailed, "^it exited with 3$"):
            self.client.run(["exit", "3"], check=True)
        self.assertEqual(self.client.run(["exit", "0"], check=True).code, 0)

    def test_input(self) -> None:
        for data in (b"", b"text\n", b"\0\xff\n", bytes(65536)):
            self.assertEqual(self.client.run(["cat"], stdin=data).stdout, data)
        with self.assertRaises(tinderbox.TooLarge):
            self.client.run(["cat"], stdin=bytes(65537))
        with self.assertRaises(tinderbox.TooLarge):
            self.client.run(["cat"], stdin=bytes(4_000_000))  # the body itself is

    def test_arguments(self) -> None:
        self.assertEqual(self.client.run(["echo", "a b", "ü"]).text, "a b ü\n")
        self.assertEqual(self.client.run(["echo", b"\xff\xfe"]).stdout, b"\xff\xfe\n")
        self.assertEqual(self.client.run(["echo", os.fsdecode(b"\xff")]).stdout, b"\xff\n")

    def test_long_output(self) -> None:
        result = self.client.run(["flood", "3000000"])
        self.assertEqual((len(result.stdout), result.stdout_dropped), (1 << 20, 3000000 - (1 << 20)))
        with self.client.stream(["flood", "3000000"]) as stream:
            at = 0
            for output in stream:
                self.assertEqual((output.stream, output.offset), ("stdout", at))
                at = output.end
            self.assertEqual(at, 3000000)
            self.assertTrue(stream.result and stream.result.ok)

    def test_no_result(self) -> None:
        for word, kind in (
            ("refuse", tinderbox.AttachFailed),
            ("close", tinderbox.Incomplete),
            ("bad-type", tinderbox.Incomplete),
            ("panic", tinderbox.GuestLost),
        ):
            with self.assertRaises(kind) as caught:
                self.client.run([word])
            self.assertEqual(caught.exception.retryable, kind is tinderbox.AttachFailed)
            if kind is tinderbox.GuestLost:
                self.assertEqual(
                    caught.exception.message, "the VM died during the run: the guest's kernel panicked: pvpanic"
                )
                self.assertRegex(caught.exception.detail["vm"], "^vm-")
            with self.assertRaises(kind), self.client.stream([word]) as stream:
                stream.wait()

    def test_refused(self) -> None:
        with self.assertRaisesRegex(tinderbox.Invalid, "^invalid: timeout_ms is not a whole number from 1 to 86400000$"):
            self.client.run(["echo"], timeout_ms=0)
        with self.assertRaises(tinderbox.NotFound):
            self.client.run(["echo"], template="none")
        for timeout in (-1, 86_400_001):
            with self.assertRaisesRegex(tinderbox.Invalid, "timeout_ms is not a whole number"):
                self.client.stream(["echo"], timeout_ms=timeout)
        with self.assertRaises(tinderbox.Invalid):
            self.client.transport.call("POST", "/v1/run", {"argv": []})
        with self.assertRaises(tinderbox.MethodNotAllowed):
            self.client.transport.call("PUT", "/v1/run", {})
        with self.assertRaises(tinderbox.NotFound):
            self.client.sandbox("sb-none")
        with self.assertRaises(tinderbox.Conflict):
            self.client.delete_template("base")


class Misuse(unittest.TestCase):
    """What is plainly wrong is said before anything is asked of a daemon: there is none."""

    client = tinderbox.Client("/nonexistent/socket")

    def wrong(self, kind: type[Exception], words: str, call: Callable[[], object]) -> None:
        with self.assertRaises(kind) as caught:
            call()
        self.assertEqual(str(caught.exception), words)

    def test_argv(self) -> None:
        client: Any = self.client
        sandbox: Any = tinderbox.Sandbox(self.client.transport, "box")
        hint = 'as ["echo", "hi"], or for a line of the shell ["sh", "-c", "echo hi"]'
        for call in (client.run, client.stream, sandbox.run, sandbox.stream, sandbox.command):
            self.wrong(TypeError, f"argv is a list of words, not str: {hint}", lambda: call("echo hi"))
            self.wrong(TypeError, f"argv is a list of words, not bytes: {hint}", lambda: call(b"echo hi"))
            self.wrong(ValueError, "argv is empty: its first word is the command", lambda: call([]))
            self.wrong(
                TypeError, "expected str, bytes or os.PathLike object, not int", lambda: call(["sleep", 1])
            )
            with self.assertRaises(tinderbox.NoDaemon):
                call(["echo", b"\xff"])

    def test_input(self) -> None:
        client: Any = self.client
        command: Any = tinderbox.Sandbox(self.client.transport, "box").find("cmd-1")
        words = "stdin is bytes, not str: a str has encode()"
        self.wrong(TypeError, words, lambda: client.run(["cat"], stdin="text"))
        self.wrong(TypeError, words, lambda: command.send("text"))

    def test_names(self) -> None:
        client: Any = self.client
        sandbox: Any = tinderbox.Sandbox(self.client.transport, "box")
        for what, call in (
            ("name", client.sandbox),
            ("name", client.operation),
            ("name", client.template),
            ("name", client.delete_template),
            ("name", lambda name: sandbox.find(name).info()),
            ("sandbox", client.events),
            ("template", client.pool),
            ("template", lambda name: client.set_pool(1, name)),
            ("template", lambda name: client.sandboxes(template=name)),
            ("state", lambda name: client.sandboxes(state=name)),
        ):
            self.wrong(ValueError, f"{what} is empty", lambda: call(""))
            self.wrong(TypeError, f"{what} is a str, not int", lambda: call(7))
            with self.assertRaises(tinderbox.NoDaemon):
                call("x")


class Streams(WithDaemon):
    def test_iterates(self) -> None:
        with self.client.stream(["both"]) as stream:
            self.assertEqual(list(stream), [("stdout", 0, b"out\n"), ("stderr", 0, b"err\n")])
            self.assertEqual((stream.stdout_offset, stream.stderr_offset, stream.pid), (4, 4, 77))
            self.assertEqual(stream.result and stream.result.code, 0)
            self.assertEqual(list(stream), [])

    def test_callbacks(self) -> None:
        out: list[bytes] = []
        with self.client.stream(["both"]) as stream:
            result = stream.wait(on_stdout=out.append)
        self.assertEqual((out, result.stdout, result.stderr), ([b"out\n"], b"", b"err\n"))

    def test_input_beyond_its_window(self) -> None:
        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield bytes(100_000)

        with self.client.stream(["cat"], stdin=True) as stream:
            result = stream.wait(stdin=pieces())
        self.assertEqual(result.stdout, bytes(2_000_000))
        self.assertEqual(stream.stdin_offset, 2_000_000)

    def test_writes(self) -> None:
        with self.client.stream(["cat"], stdin=True) as stream:
            stream.write(b"one")
            output = next(iter(stream))
            self.assertEqual(output.data, b"one")
            stream.write(bytes(600_000))
            stream.close_stdin()
            self.assertEqual(sum(len(output.data) for output in stream), 600_000)

    def test_signal_and_kill(self) -> None:
        with self.client.stream(["started-sleep"]) as stream:
            stream.signal(15)
            self.assertEqual(stream.wait().signal, 15)
        with self.client.stream(["started-sleep"]) as stream:
            threading.Timer(0.05, stream.kill).start()
            self.assertEqual(stream.wait().kind, "killed")

    def test_a_frame_that_is_refused(self) -> None:
        with self.client.stream(["started-sleep"]) as stream:
            stream.signal(65)
            with self.assertRaisesRegex(tinderbox.Invalid, "SIGNAL with a number out of range"):
                stream.wait()

    def test_close_ends_a_run(self) -> None:
        with self.client.stream(["started-sleep"]):
            await_that(lambda: bool(self.client.pool()["busy"] == 1))
        await_that(lambda: bool(self.client.pool()["busy"] == 0))


class Watching(WithDaemon):
    def test_events(self) -> None:
        with self.client.events() as events, self.client.create() as sandbox:
            self.assertEqual(self._next(events, "sandbox", state="ready")["sandbox"], sandbox.id)
            sandbox.run(["exit", "7"])
            ended = self._next(events, "command", state="ended")
            self.assertEqual((ended["sandbox"], ended["result"]), (sandbox.id, "exited"))
            with sandbox.events() as own:
                sandbox.pause()
                self.assertEqual(self._next(own, "sandbox", state="paused")["before"], "pausing")
        with self.assertRaises(StopIteration):
            next(events)

    def test_close_wakes_who_waits(self) -> None:
        events = self.client.events()
        threading.Timer(0.1, events.close).start()
        self.assertEqual(list(events), [])

    def _next(self, events: tinderbox.Events, kind: str, **wanted: str) -> tinderbox.answers.Event:
        for event in events:
            openapi.check_named("Event", event)
            if event["event"] == kind and wanted.items() <= event.items():
                return event
        raise AssertionError("the events ended")


class Templates(WithDaemon):
    def test_life(self) -> None:
        built = self.client.build_template("tools", run=["echo prepared"])
        self.assertEqual(built["stdout"]["data"], "prepared\n")
        self.assertEqual({one["name"] for one in self.client.templates()}, {"base", "tools"})
        self.assertEqual(self.client.template("tools")["generation"], built["template"]["generation"])
        self.assertEqual(self.client.run(["echo", "x"], template="tools").text, "x\n")
        self.assertEqual(self.client.set_pool(1, "tools")["target"], 1)
        self.assertEqual(len(self.client.transport.call("GET", "/v1/pools")["pools"]), 2)
        with self.assertRaises(tinderbox.Conflict):
            self.client.delete_template("tools")
        self.client.set_pool(0, "tools")
        await_that(lambda: self.client.template("tools")["vms"] == 0)
        self.client.delete_template("tools")
        with self.assertRaises(tinderbox.NotFound):
            self.client.template("tools")

    def test_a_build_that_fails(self) -> None:
        with self.assertRaises(tinderbox.BuildFailed) as caught:
            self.client.build_template("broken", run=["exit 3"])
        self.assertIn("exited with status 3", caught.exception.message)


class Retries(unittest.TestCase):
    """What is asked again, and what is not."""

    def test_no_daemon(self) -> None:
        with self.assertRaisesRegex(tinderbox.NoDaemon, "/none/api.sock: No such file"):
            tinderbox.Client("/none/api.sock").run(["echo"])

    def test_who_waits_for_the_daemon(self) -> None:
        """Not a byte was sent, so that even an unkeyed POST is asked again."""
        daemon = Daemon("--pool", "1")
        client = checked_client(daemon.socket, patience=WAIT_SECONDS)
        self.addCleanup(daemon.stop)
        daemon.kill()
        with self.assertRaises(tinderbox.NoDaemon):
            checked_client(daemon.socket).run(["echo"])
        texts: list[str] = []
        waiter = threading.Thread(target=lambda: texts.append(client.run(["echo", "back"]).text))
        waiter.start()
        time.sleep(0.2)  # it finds no daemon some times
        daemon.start()
        waiter.join(WAIT_SECONDS)
        self.assertEqual(texts, ["back\n"])

    def test_with_is_left_when_the_daemon_is_gone(self) -> None:
        """The body's own error is what comes; without one, that of the removal does."""
        daemon = Daemon("--pool", "1")
        client = checked_client(daemon.socket)
        self.addCleanup(daemon.stop)
        gone = (tinderbox.NoDaemon, tinderbox.ConnectionLost)  # a child that it was starting may hold its socket
        for kinds, error in (((ZeroDivisionError,), ZeroDivisionError()), (gone, None)):
            with self.assertRaises(kinds) as caught, client.create() as sandbox:
                daemon.kill()
                if error:
                    raise error
            notes = getattr(caught.exception, "__notes__", [])
            self.assertEqual([f"the sandbox {sandbox.id} may be left" in note for note in notes], [True] if error else [])
            daemon.start()

    def test_a_key(self) -> None:
        daemon = Daemon("--pool", "1")
        client = checked_client(daemon.socket)
        self.addCleanup(daemon.stop)
        key = tinderbox.new_key()
        first, second = client.run(["echo", "x"], key=key), client.run(["echo", "x"], key=key)
        self.assertEqual((first.vm, first.usage), (second.vm, second.usage))
        with self.assertRaisesRegex(tinderbox.Conflict, "Idempotency-Key|key"):
            client.run(["echo", "y"], key=key)
        with self.assertRaises(tinderbox.Invalid):
            client.run(["echo"], key="")

    def test_a_lost_connection(self) -> None:
        """A server that takes the request and closes, twice, then answers."""
        for method, key, tries in (("POST", "k", 3), ("GET", None, 3), ("DELETE", None, 3), ("POST", None, 1)):
            with Closing(2) as server:
                client = tinderbox.Client(server.path, patience=WAIT_SECONDS)
                if tries == 1:
                    with self.assertRaises(tinderbox.ConnectionLost):
                        client.transport.call(method, "/x", {}, key=key)
                else:
                    self.assertEqual(client.transport.call(method, "/x", {}, key=key), {})
                self.assertEqual(len(server.requests), tries)
                if key:
                    self.assertTrue(all(b"Idempotency-Key: k\r\n" in text for text in server.requests))

    def test_errors_that_have_had_no_effect(self) -> None:
        for retryable, tries in ((True, 3), (False, 1)):
            error = f'{{"error":{{"code":"exhausted","message":"m","retryable":{str(retryable).lower()},"detail":null}}}}'
            with Closing(2, error) as server:
                client = tinderbox.Client(server.path, patience=WAIT_SECONDS)
                if retryable:
                    client.transport.call("POST", "/x", {})
                else:
                    with self.assertRaises(tinderbox.Exhausted):
                        client.transport.call("POST", "/x", {})
                self.assertEqual(len(server.requests), tries)

    def test_patience_ends(self) -> None:
        with Closing(1000) as server:
            begun = time.monotonic()
            with self.assertRaises(tinderbox.ConnectionLost):
                tinderbox.Client(server.path, patience=0.3).templates()
            self.assertLess(time.monotonic() - begun, WAIT_SECONDS)
            self.assertIn(len(server.requests), (2, 3))

    def test_answers_that_are_none(self) -> None:
        for answer, kind in (
            ("HTTP/1.1 400 Bad\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno", tinderbox.ProtocolError),
            ("nonsense\r\n\r\n", tinderbox.ConnectionLost),
            ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}", tinderbox.ConnectionLost),
        ):
            with Closing(1, raw=answer) as server, self.assertRaises(kind):
                tinderbox.Client(server.path).run(["x"])


class Closing:
    """A server that gives its first requests an error or nothing, and `{}` to those after them."""

    def __init__(self, bad: int, error: str | None = None, raw: str | None = None) -> None:
        self.requests: list[bytes] = []
        self.path = f"/tmp/tinderbox-python-{os.getpid()}.sock"
        self._bad, self._raw = bad, raw or (error and self._answer(429, error)) or ""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Closing:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        os.unlink(self.path)

    @staticmethod
    def _answer(status: int, body: str) -> str:
        return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(65536))
                bad = len(self.requests) <= self._bad
                connection.sendall((self._raw if bad else self._answer(200, "{}")).encode())


class Typed(unittest.TestCase):
    """The client's types are those of docs/openapi.json."""

    def fields(self, name: str) -> set[str]:
        schema = openapi.DOCUMENT["components"]["schemas"][name]
        return {field for one in schema.get("oneOf", [schema]) for field in one.get("properties", {})} or set(
            schema["properties"]
        )

    def test_answers(self) -> None:
        for schema, kind in (
            ("RunAnswer", "RunAnswer"),
            ("Result", "ResultInfo"),
            ("Output", "OutputInfo"),
            ("Usage", "Usage"),
            ("Sandbox", "SandboxInfo"),
            ("Receipt", "Receipt"),
            ("Operation", "Operation"),
            ("Command", "CommandInfo"),
            ("Kept", "StreamInfo"),
            ("OutputPart", "OutputPart"),
            ("Event", "Event"),
            ("Template", "TemplateInfo"),
            ("BuildAnswer", "BuildAnswer"),
            ("SandboxRequest", "SandboxOptions"),
            ("ForkRequest", "ForkOptions"),
            ("ForkAnswer", "ForkAnswer"),
            ("Idle", "Idle"),
        ):
            self.assertEqual(self.fields(schema), set(getattr(tinderbox.answers, kind).__annotations__), schema)
        self.assertEqual(self.fields("ErrorObject"), set(tinderbox.errors.ErrorInfo.__annotations__))

    def test_requests(self) -> None:
        """argv and stdin are arguments of their own."""
        given = {"argv", "argv_b64", "stdin", "stdin_b64", "stdin_stream", "env_b64"}
        for schema, kind in (("RunRequest", "RunOptions"), ("CommandRequest", "CommandOptions")):
            self.assertEqual(self.fields(schema) - given, set(getattr(tinderbox.answers, kind).__annotations__))
        options = set(tinderbox.answers.TemplateOptions.__annotations__)
        self.assertEqual(self.fields("TemplateRequest") - {"name"}, options)

    def test_codes(self) -> None:
        codes: Any = openapi.DOCUMENT["components"]["schemas"]["ErrorObject"]["properties"]["code"]["oneOf"]
        classes = tinderbox.ApiError.__subclasses__()
        self.assertEqual([code["const"] for code in codes], [kind.code for kind in classes])
        for kind in classes:
            info: tinderbox.errors.ErrorInfo = {"code": kind.code, "message": "m", "retryable": True, "detail": None}
            self.assertIs(type(tinderbox.ApiError.of(info)), kind)
        later: tinderbox.errors.ErrorInfo = {"code": "new", "message": "m", "retryable": True, "detail": {"vm": "v"}}
        self.assertIs(type(tinderbox.ApiError.of(later)), tinderbox.ApiError)
