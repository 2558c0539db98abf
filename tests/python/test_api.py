# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json against a daemon whose guests are played: what it takes, and what it refuses.

Each bound in the file is tried: what is within is not refused, what is one over is, with the code that the
file tells. So are fields and parameters that are unknown, required and missing, or of another type.
"""

from __future__ import annotations

import base64
import json
import re
import time
import unittest
from typing import Any, Iterator, NamedTuple

import openapi
import tinderbox
from daemon import Daemon
from openapi import CheckedTransport, Operation, resolve
from tinderbox.frames import Type

REFUSED = ("invalid", "too_large")
# What no pattern of the file takes, or only some do.
WORDS = ("", "A", "a=b", "relative", "sb-a", "../x", "a/b", "-a", " ")
OTHER_TYPES: dict[str, list[Any]] = {
    "integer": ["1", 1.5, True, None, [1]],
    "string": [1, None, True, ["a"], {}],
    "boolean": ["true", 1, None],
    "array": ["a", {}, None, 1],
    "object": ["a", [], None, 1],
}


class Case(NamedTuple):
    name: str
    value: Any
    code: str | None  # that it is refused with


def text(schema: dict[str, Any], length: int) -> str:
    """One that its pattern takes."""
    start = "/" if schema.get("pattern") == "^/" else "a"
    return (start + "a" * length)[:length]


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bounds(schema: dict[str, Any], low: str, high: str, fits: str) -> Iterator[Case]:
    """fits: the name of a function of (schema, size)."""
    make = {"number": lambda _, n: n, "text": text, "list": make_list, "object": make_object}[fits]
    least, most, over = schema.get(low), schema.get(high), schema.get("x-over", "invalid")
    if least is not None:
        yield Case(f"{low} {least}", make(schema, least), None)
        if least > 0 or fits == "number":
            yield Case(f"below {low} {least}", make(schema, least - 1), "invalid")
    if most is not None:
        yield Case(f"{high} {most}", make(schema, most), None)
        yield Case(f"over {high} {most}", make(schema, most + 1), over)


def of_string(schema: dict[str, Any]) -> Iterator[Case]:
    yield Case("some value", "QT0x" if "contentEncoding" in schema else text(schema, 4), None)
    yield from bounds(schema, "minLength", "maxLength", "text")
    if schema.get("contentEncoding") == "base64":
        yield Case("no base64", "?", "invalid")
    if "x-max-bytes" in schema:
        yield Case("x-max-bytes", encode(bytes(schema["x-max-bytes"])), None)
        yield Case("over x-max-bytes", encode(bytes(schema["x-max-bytes"] + 1)), schema["x-over"])
    for word in WORDS:
        if "pattern" in schema and not re.search(schema["pattern"], word):
            yield Case(f"pattern {word!r}", word, "invalid")


def item(schema: dict[str, Any]) -> str:
    return "QT0x" if schema["items"].get("contentEncoding") else "echo"


def make_list(schema: dict[str, Any], length: int) -> list[str]:
    return [item(schema)] * length


def of_array(schema: dict[str, Any]) -> Iterator[Case]:
    yield from bounds(schema, "minItems", "maxItems", "list")
    for case in cases(schema["items"]):
        yield Case(f"an item: {case.name}", [item(schema), case.value], case.code)


def make_object(schema: dict[str, Any], size: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(size)}


def of_map(schema: dict[str, Any]) -> Iterator[Case]:
    """Of any names."""
    yield from bounds(schema, "minProperties", "maxProperties", "object")
    for case in cases(schema["additionalProperties"]):
        yield Case(f"a value: {case.name}", {"k": case.value}, case.code)
    for case in of_string(schema["propertyNames"]):
        yield Case(f"a name: {case.name}", {case.value: "v"}, case.code)


def of_object(schema: dict[str, Any], example: dict[str, Any]) -> Iterator[Case]:
    yield Case("an unknown field", {**example, "nope": 1}, "invalid")
    for name in schema.get("required", []):
        yield Case(f"without {name}", {k: v for k, v in example.items() if k != name}, "invalid")
    for name, about in schema["properties"].items():
        others = {k: v for k, v in example.items() if k not in (name, name.removesuffix("_b64"))}
        for case in cases(about):
            yield Case(f"{name}: {case.name}", {**others, name: case.value}, case.code)


def cases(schema: dict[str, Any]) -> Iterator[Case]:
    schema = resolve(schema)
    kind = schema.get("type", "string")
    for value in OTHER_TYPES[kind]:
        yield Case(f"of another type: {json.dumps(value)}", value, "invalid")
    if kind == "boolean":
        yield Case("false", False, None)
    if "enum" in schema:
        for word in schema["enum"]:
            yield Case(f"enum {word}", word, None)
        yield Case("not of the enum", "nonsense", "invalid")
    elif kind == "integer":
        yield from bounds(schema, "minimum", "maximum", "number")
    elif kind == "string":
        yield from of_string(schema)
    elif kind == "array":
        yield from of_array(schema)
    elif "properties" in schema:
        # Its fields are all required.
        example = {name: next(c.value for c in cases(s) if c.code is None) for name, s in schema["properties"].items()}
        yield from of_object(schema, example)
    elif kind == "object":
        yield from of_map(schema)


class Described(unittest.TestCase):
    daemon: Daemon
    client: tinderbox.Client
    transport: CheckedTransport
    sandbox: tinderbox.Sandbox
    command: tinderbox.Command  # has ended

    @classmethod
    def setUpClass(cls) -> None:
        # Nothing in it depends on what the host has free: --reserve 0.
        cls.daemon = Daemon("--pool", "2", "--max-vms", "256", "--starts", "2", "--reserve", "0")
        cls.client = openapi.checked_client(cls.daemon.socket)
        cls.transport = CheckedTransport(cls.daemon.socket, 0)
        cls.sandbox = cls.client.create()
        cls.command = cls.sandbox.find(cls.sandbox.command(["echo", "x"]).id)
        with cls.command.attach() as stream:
            stream.wait()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.daemon.stop()

    def ask(self, operation: Operation, body: Any, query: dict[str, str] | None = None) -> tuple[str | None, str]:
        """The code and the words that it is refused with, if it is."""
        path = operation.path
        names = {"sandbox": self.sandbox.id, "command": self.command.id, "template": "base", "operation": "op-none"}
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", value)
        try:
            if operation.about.get("x-upgrade") == "must":
                self.transport.upgrade(operation.method, path, body, query=query).close()
            else:
                answer = self.transport.call(operation.method, path, body, query=query)
                self.undo(operation, answer)
        except tinderbox.ApiError as error:
            return error.info["code"], error.message
        return None, ""

    def undo(self, operation: Operation, answer: Any) -> None:
        if operation.name == "POST /v1/sandboxes":
            self.client.sandbox((answer.get("operation") or {"sandbox": answer.get("id")})["sandbox"]).delete()
        elif operation.name == "POST /v1/sandboxes/{sandbox}/fork":
            for child in answer["children"]:
                if "sandbox" in child:
                    self.client.sandbox(child["sandbox"]["id"]).delete()
        elif operation.name == "POST /v1/sandboxes/{sandbox}/snapshot":
            self.client.delete_template(answer["template"]["name"])
        elif operation.name == "POST /v1/sandboxes/{sandbox}/stop":
            self.restart()
        elif operation.name == "PUT /v1/pool":
            self.client.set_pool(2)
        elif operation.name == "POST /v1/sandboxes/{sandbox}/commands":
            self.sandbox.find(answer["id"]).delete()

    def restart(self) -> None:
        """After a stop that was waited for, or not."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                self.sandbox.start()
                return
            except tinderbox.NotReady:
                time.sleep(0.01)

    def expect(self, operation: Operation, case: Case, query: dict[str, str] | None = None) -> None:
        with self.subTest(f"{operation.name}: {case.name}"):
            body = case.value
            if operation.path.endswith("/attach") and "token" in case.value and case.value["token"] == "0123":
                body = {**body, "token": self.transport.call("POST", f"{self.token_path()}")["attach_token"]}
            code, words = self.ask(operation, body, query)
            if case.code is None:
                self.assertNotIn(code, REFUSED, words)
            else:
                self.assertEqual(code, case.code, words)

    def token_path(self) -> str:
        return f"/v1/sandboxes/{self.sandbox.id}/commands/{self.command.id}/token"

    def test_bodies(self) -> None:
        count = 0
        for operation in openapi.OPERATIONS:
            if not operation.body:
                continue
            self.expect(operation, Case("the example", operation.example, None))
            for case in of_object(operation.body, operation.example):
                # Not any path and any string will do: test_images, test_sizes_of_memory, test_sizes_of_disks.
                if case.code or not case.name.startswith(("image: ", "mem: ", "disk: ")):
                    self.expect(operation, case)
                    count += 1
        # That the file was read at all: as many as it had when this was written.
        self.assertGreater(count, 400)

    def test_images(self) -> None:
        operation = openapi.find("POST", "/v1/templates")
        assert operation and operation.body
        most = operation.body["properties"]["image"]["maxLength"]
        for length, is_over in ((most, False), (most + 1, True)):
            code, words = self.ask(operation, {"name": "x", "image": "/" + "a" * (length - 1)})
            self.assertEqual((code, f"the limit is {most}" in words), ("invalid", is_over))
        self.assertIsNone(self.ask(operation, {"name": "x", "image": f"{self.daemon.folder}/image"})[0])

    def test_sizes_of_memory(self) -> None:
        bodies: tuple[tuple[str, dict[str, object]], ...] = (("/v1/templates", {"name": "x"}), ("/v1/sandboxes", {}))
        for path, others in bodies:
            operation = openapi.find("POST", path)
            assert operation
            for size in ("31M", "33554433", "512G", "511G", "x", "-1"):
                self.assertEqual(self.ask(operation, {**others, "mem": size})[0], "invalid", size)
            for size in ("32M", "33554432"):
                self.assertIsNone(self.ask(operation, {**others, "mem": size})[0])

    def test_sizes_of_disks(self) -> None:
        operation = openapi.find("POST", "/v1/templates")
        assert operation
        for size in ("15M", "16777217", "1025G", "x", "-1"):
            self.assertEqual(self.ask(operation, {"name": "x", "disk": size})[0], "invalid", size)
        for size in ("16M", "16777216"):
            self.assertIsNone(self.ask(operation, {"name": "x", "disk": size})[0])

    def test_without_a_body(self) -> None:
        for operation in openapi.OPERATIONS:
            if operation.body:
                needed = operation.about["requestBody"]["required"]
                with self.subTest(operation.name):
                    self.assertEqual(self.ask(operation, None)[0] == "invalid", needed)

    def test_parameters(self) -> None:
        for operation in openapi.OPERATIONS:
            body = operation.example if operation.body else None
            self.expect(operation, Case("an unknown parameter", body, "invalid"), {"nope": "1"})
            for parameter in operation.parameters:
                schema = resolve(parameter["schema"])
                if parameter["in"] != "query":
                    continue
                tries = [(word, None) for word in schema.get("enum", [])] + [("nonsense", "invalid")]
                if schema.get("type") == "integer":
                    least, most = schema["minimum"], schema.get("maximum")
                    tries = [(str(least), None), (str(least - 1), "invalid")]
                    tries += [(word, "invalid") for word in ("-1", "x", "1x", "")]
                    tries += [(str(most), None), (str(most + 1), "invalid")] if most else []
                elif "maxLength" in schema:
                    longest = schema["maxLength"]
                    tries = [(text(schema, longest), None), (text(schema, longest + 1), "invalid")]
                    tries += [("relative", "invalid"), ("", "invalid")]
                elif "enum" not in schema:
                    continue
                for word, code in tries:
                    if code or operation.method != "DELETE":
                        name = f"{parameter['name']}={word}"
                        self.expect(operation, Case(name, body, code), {parameter["name"]: word})
        self.sandbox.resume()

    def test_keys(self) -> None:
        """As the file says who takes one; no other method looks at it."""
        for operation in openapi.OPERATIONS:
            takes = any(one["name"] == "Idempotency-Key" for one in operation.parameters)
            self.assertEqual(takes, operation.method == "POST" and operation.about.get("x-upgrade") != "must")
        for key, code in (("k" * 128, None), ("k" * 129, "invalid"), ("ü", "invalid"), ("a\tb", "invalid")):
            with self.subTest(key):
                try:
                    self.transport.call("POST", "/v1/run", {"argv": ["echo"]}, key=key)
                    self.assertIsNone(code)
                except tinderbox.ApiError as error:
                    self.assertEqual(error.info["code"], code)

    def test_upgrades(self) -> None:
        """`must` is refused without, `may` takes stdin_stream with only."""
        for operation in openapi.OPERATIONS:
            upgrade = operation.about.get("x-upgrade")
            self.assertEqual(upgrade is not None, operation.response(101) is not None, operation.name)
        attach = self.token_path().replace("token", "attach")
        bodies: dict[str, dict[str, Any]] = {attach: {"token": "x"}, "/v1/run": {"argv": ["cat"], "stdin_stream": True}}
        for path, body in bodies.items():
            with self.assertRaisesRegex(tinderbox.Invalid, "needs the upgraded form"):
                self.transport.call("POST", path, body)
        with self.assertRaisesRegex(tinderbox.Invalid, "need the upgraded form"):
            self.transport.call("GET", "/v1/events")

    def test_a_build_that_is_followed(self) -> None:
        channel = self.transport.upgrade("POST", "/v1/templates", {"name": "followed", "run": ["echo one", "echo two"]})
        phases, output = [], b""
        while frame := channel.read():
            if frame.type == Type.HOST_PROGRESS:
                openapi.check_named("Progress", json.loads(frame.payload))
                phases.append(json.loads(frame.payload)["phase"])
            elif frame.type == Type.HOST_RESULT:
                openapi.check_named("BuildResult", json.loads(frame.payload))
            else:
                output += frame.payload[8:]
        self.assertEqual(phases, ["booting", "running", "running", "saving", "checking", "storing"])
        self.assertEqual(output, b"one\ntwo\n")
        self.client.delete_template("followed")

    def test_answers_that_no_method_has(self) -> None:
        """The others are held against the file by test_client and test_sandboxes."""
        operation = self.transport.call("POST", "/v1/sandboxes", {}, query={"wait": "false"})["operation"]
        self.assertEqual(operation["kind"], "create")
        self.client.operation(operation["id"])
        self.client.sandbox(operation["sandbox"]).delete()
        self.assertEqual(self.transport.call("GET", "/v1/healthz")["status"], "ok")
        self.assertIn("tinderbox_vms", self.transport.call("GET", "/metrics"))
        path = f"/v1/sandboxes/{self.client.create().id}"
        self.transport.call("POST", f"{path}/stop", {"discard_files": True}, query={"wait": "false"})
        self.transport.call("DELETE", path)

    def test_planted_differences(self) -> None:
        """That what is above can fail: a bound, a code, a field, a type that are not the daemon's."""
        run, signal = openapi.find("POST", "/v1/run"), openapi.find("POST", f"{self.token_path()[:-5]}signal")
        assert run and run.body and signal and signal.body
        for operation, name, change in (
            (run, "timeout_ms", {"maximum": 86400001}),
            (run, "timeout_ms", {"maximum": 86399999}),
            (run, "user", {"minLength": 2}),
            (run, "cwd", {"pattern": "^/a"}),
            (run, "argv", {"x-over": "invalid"}),
            (run, "nope", {"type": "string"}),
            (run, "pids_max", {"type": "string"}),
            (signal, "signal", {"minimum": 0}),
        ):
            about = resolve((operation.body or {})["properties"].get(name, {})) | change
            found = [case for case in cases(about) if self.differs(operation, name, case)]
            self.assertTrue(found, f"{name}: {change} is not found")

    def differs(self, operation: Operation, name: str, case: Case) -> bool:
        code, _ = self.ask(operation, {**operation.example, name: case.value})
        return code != case.code if case.code else code in REFUSED

    def test_planted_answers(self) -> None:
        good: dict[str, Any] = {**self.sandbox.info()}
        self.transport.answered("GET", "/v1/sandboxes/x", 200, good)
        for status, bad in (
            (200, {**good, "nope": 1}),
            (200, {name: value for name, value in good.items() if name != "vm"}),
            (200, {**good, "created_ms": "1"}),
            (200, {**good, "state": "nonsense"}),
            (201, good),
            (404, {"error": {"code": "conflict", "message": "", "retryable": False, "detail": None}}),
            (409, {"error": {"code": "conflict", "message": "", "retryable": False, "detail": None}}),
        ):
            with self.assertRaises(AssertionError):
                self.transport.answered("GET", "/v1/sandboxes/x", status, bad)
        with self.assertRaises(AssertionError):
            self.transport.answered("GET", "/v1/nowhere", 200, {})
