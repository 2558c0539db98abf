# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json, and a client that holds each answer against it."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, NamedTuple

import jsonschema  # type: ignore[import]  # Debian has no stubs of it
import tinderbox
from tinderbox.transport import Channel, Transport

with open("docs/openapi.json", encoding="utf-8") as file:
    DOCUMENT: dict[str, Any] = json.load(file)
METHODS = ("get", "put", "post", "delete")


def resolve(schema: Any) -> Any:
    """What a $ref names, and so on."""
    while "$ref" in schema:
        target: Any = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    return schema


class Operation(NamedTuple):
    method: str
    path: str  # with its {names}
    about: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def body(self) -> dict[str, Any] | None:
        """The schema of its body."""
        content = self.about.get("requestBody", {}).get("content", {})
        schema: dict[str, Any] | None = resolve(content.get("application/json", {}).get("schema", {}))
        return schema or None

    @property
    def example(self) -> Any:
        return self.about["requestBody"]["content"]["application/json"]["example"]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        shared = DOCUMENT["paths"][self.path].get("parameters", [])
        return [resolve(one) for one in shared + self.about.get("parameters", [])]

    def response(self, status: int) -> dict[str, Any] | None:
        found: dict[str, Any] | None = resolve(self.about["responses"].get(str(status), {}))
        return found or None


OPERATIONS = [
    Operation(method.upper(), path, about)
    for path, methods in DOCUMENT["paths"].items()
    for method, about in methods.items()
    if method in METHODS
]


def find(method: str, path: str) -> Operation | None:
    for operation in OPERATIONS:
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(operation.path))
        if operation.method == method and re.fullmatch(pattern, path):
            return operation
    return None


def check(schema: Any, value: Any) -> None:
    """Raises AssertionError when it is not as described."""
    validator = jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    problem = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if problem:
        raise AssertionError(f"{problem.json_path}: {problem.message}")


def check_named(name: str, value: Any) -> None:
    check({"$ref": f"#/components/schemas/{name}"}, value)


class CheckedTransport(Transport):
    """Each answer is as the file describes it for its method, path and status."""

    seen: set[tuple[str, int]] = set()  # by all of them: operation, status

    def answered(self, method: str, path: str, status: int, answer: Any) -> None:
        operation = find(method, path)
        if not operation:
            assert status in (404, 405), f"{method} {path} is not described, and answered {status}"
            check_named("Error", answer)
            return
        self.seen.add((operation.name, status))
        response = operation.response(status) or resolve(operation.about["responses"]["default"])
        content = response.get("content", {}).get("application/json")
        assert content, f"{operation.name} is not described to answer {status} with JSON"
        try:
            check(content["schema"], answer)
        except AssertionError as problem:
            raise AssertionError(f"{operation.name}, {status}: {problem} in {json.dumps(answer)}") from None

    def upgrade(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Channel:
        channel = super().upgrade(method, path, body, query=query)
        operation = find(method, path)
        assert operation and operation.response(101), f"{method} {path} is not described to be upgraded"
        self.seen.add((operation.name, 101))
        return channel


def checked_client(path: str, patience: float = 0) -> tinderbox.Client:
    client = tinderbox.Client(path, patience)
    client.transport = CheckedTransport(path, patience)
    return client
