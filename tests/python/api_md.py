#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/api.md out of docs/openapi.json: `make docs-api`. A test holds the one against the other."""

from __future__ import annotations

import json
from typing import Any, Iterator

Schema = dict[str, Any]
METHODS = ("get", "put", "post", "delete")
HEAD = """\
<!-- Made of openapi.json by `make docs-api`: change that, not this. -->
# The API, path by path

What `host-ctl serve` answers on its Unix socket; [openapi.json](openapi.json) says the same for programs. How it behaves is told in [protocol.md](protocol.md) (runs,
templates, pools, asking again) and [sandboxes.md](sandboxes.md) (sandboxes and their commands). A number is whole; a length of a string is in bytes of UTF-8. What is beyond
a bound is `invalid`, unless the table names another error. A field or parameter that is not named here is refused, and no answer has one.

## Requests

K: takes `Idempotency-Key`. U: may be upgraded, which is answered 101; **U**: must be. Any request may also be answered {common}.

| | | body | answer | errors |
| --- | --- | --- | --- | --- |
"""


def link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def name_of(schema: Schema) -> str | None:
    """Of what is shown in a section of its own."""
    parts = schema.get("$ref", "").split("/")
    return parts[-1] if parts[-2:-1] == ["schemas"] else None


def code(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def within(least: Any, most: Any, unit: str = "") -> str:
    if least is not None and most is not None:
        return f"{least} to {most}{unit}"
    if most is not None:
        return f"at most {most}{unit}"
    return f"{least} or more{unit}" if least else ""


class Document:
    def __init__(self, document: Schema) -> None:
        self.document = document
        self.schemas: Schema = document["components"]["schemas"]

    def resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            target: Any = self.document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            schema = target
        return schema

    # --- types ---

    def kind(self, schema: Schema) -> str:
        name = name_of(schema)
        if name:
            return link(name)
        schema = self.resolve(schema)
        if "anyOf" in schema:
            return " or ".join(self.kind(one) for one in schema["anyOf"])
        types = schema.get("type", [])
        if types == "null":
            return "null"
        if isinstance(types, list) and "null" in types:
            return self.bare({**schema, "type": types[0]}) + " or null"
        return self.bare(schema)

    def bare(self, schema: Schema) -> str:
        kind = schema.get("type")
        if "const" in schema:
            return code(schema["const"])
        if "enum" in schema:
            return " or ".join(code(one) for one in schema["enum"])
        if "oneOf" in schema and not kind:
            return " or ".join(self.kind(one) for one in schema["oneOf"])
        if kind == "integer":
            return within(schema.get("minimum"), schema.get("maximum")) or "number"
        if kind == "string":
            return self.string(schema)
        if kind == "array":
            count = within(schema.get("minItems"), schema.get("maxItems"))
            return f"list{' of ' + count if count else ''}: {self.kind(schema['items'])}"
        if kind == "object":
            return self.object(schema)
        return str(kind)

    def string(self, schema: Schema) -> str:
        what = "base64" if "contentEncoding" in schema else "string"
        size = within(schema.get("minLength"), schema.get("maxLength", schema.get("x-max-bytes")), " bytes")
        pattern = f"`{schema['pattern']}`" if "pattern" in schema else ""
        return ", ".join(part for part in (what, size, pattern) if part)

    def object(self, schema: Schema) -> str:
        if "properties" in schema:
            required = schema.get("required", [])
            fields = (f"{name}{'' if name in required else '?'}: {self.kind(s)}" for name, s in schema["properties"].items())
            return f"{{{', '.join(fields)}}}"
        count = within(schema.get("minProperties"), schema.get("maxProperties"))
        keys = self.string({"type": "string", **schema["propertyNames"]}) if "propertyNames" in schema else ""
        return f"object{' of ' + count if count else ''}: {self.kind(schema['additionalProperties'])}{'; a key: ' + keys if keys else ''}"

    def notes(self, schema: Schema) -> str:
        about = self.resolve(schema)
        notes = [] if name_of(schema) else [about.get("description", "")]
        if "default" in about:
            notes.append(f"default: {code(about['default'])}")
        if "x-over" in about:
            notes.append(f"over it: `{about['x-over']}`")
        return ". ".join(note for note in notes if note)

    # --- sections ---

    def codes(self, response: Schema) -> Iterator[tuple[str, bool]]:
        """Codes of an error, and whether each is retryable."""
        for content in self.resolve(response).get("content", {}).values():
            for part in content["schema"].get("allOf", []):
                about = part.get("properties", {}).get("error", {})
                for one in about.get("oneOf", [about] if about else []):
                    for name in one["properties"]["code"]["enum"]:
                        yield name, one["properties"]["retryable"]["const"]

    def answer(self, status: str, response: Schema) -> str:
        about = self.resolve(response)
        for kind, content in about.get("content", {}).items():
            what = self.kind(content["schema"]) if kind == "application/json" else kind
            return f"{status} {what}"
        return f"{status} {about['description']}"

    def requests(self) -> Iterator[str]:
        for path, methods in self.document["paths"].items():
            for method in METHODS:
                if method in methods:
                    yield self.request(path, method, methods[method])

    def request(self, path: str, method: str, about: Schema) -> str:
        parameters = [self.resolve(one) for one in about.get("parameters", [])]
        query = ", ".join(f"`{one['name']}`" for one in parameters if one["in"] == "query")
        marks = ["K"] if any(one["name"] == "Idempotency-Key" for one in parameters) else []
        marks += {"may": ["U"], "must": ["**U**"]}.get(about.get("x-upgrade", ""), [])
        body = about.get("requestBody", {}).get("content", {}).get("application/json")
        responses = {status: one for status, one in about["responses"].items() if status != "default"}
        good = [self.answer(status, one) for status, one in responses.items() if not list(self.codes(one))]
        bad = [f"`{name}`" for one in responses.values() for name, _ in self.codes(one)]
        what = " ".join([about["summary"], *([f"Query: {query}."] if query else []), " ".join(marks)]).strip()
        cells = [f"`{method.upper()} {path}`", what, self.kind(body["schema"]) if body else ""]
        return "| " + " | ".join([*cells, "; ".join(good), " ".join(bad)]) + " |"

    def parameters(self) -> Iterator[str]:
        """Each once, by what it is."""
        seen: dict[str, None] = {}
        for methods in self.document["paths"].values():
            shared = methods.get("parameters", [])
            for parameter in shared + [p for m in METHODS for p in methods.get(m, {}).get("parameters", [])]:
                one = self.resolve(parameter)
                notes = ". ".join(note for note in (one.get("description"), self.notes(one["schema"])) if note)
                seen[f"| `{one['name']}` | {one['in']} | {self.kind(one['schema'])} | {notes} |"] = None
        return iter(seen)

    def section(self, name: str, schema: Schema) -> Iterator[str]:
        yield f"\n### {name}\n"
        if "description" in schema:
            yield f"{schema['description']}\n"
        if "properties" not in schema:
            if "oneOf" in schema:
                yield "One of:\n"
            for one in schema.get("oneOf", [schema]):
                yield f"- {self.kind(one)}{': ' + one['description'] if 'oneOf' in schema and 'description' in one else ''}"
            return
        fields = schema["properties"]
        if not any(self.notes(about) for about in fields.values()):
            yield self.object(schema)
            return
        yield "| | | |\n| --- | --- | --- |"
        borrowed = [(field, about["$ref"].split("/")[-3]) for field, about in fields.items() if "/properties/" in about.get("$ref", "")]
        if borrowed:
            yield f"| {', '.join(f'`{field}`' for field, _ in borrowed)} | as of a {link(borrowed[0][1])} | |"
        for field, about in fields.items():
            if (field, borrowed[0][1] if borrowed else "") not in borrowed:
                mark = "" if field in schema.get("required", []) else "?"
                yield f"| `{field}`{mark} | {self.kind(about)} | {self.notes(about)} |"

    def errors(self) -> Iterator[str]:
        statuses: dict[str, tuple[str, str]] = {}
        for status, response in self.document["components"]["responses"].items():
            for name, retryable in self.codes(response):
                statuses.setdefault(name, (status, "yes" if retryable else "no"))
        own = {"method_not_allowed": "405", "request_timeout": "408", "internal": "500"}
        for one in self.schemas["ErrorObject"]["properties"]["code"]["oneOf"]:
            status, again = statuses[one["const"]]
            yield f"| `{one['const']}` | {own.get(one['const'], status)} | {again} | {one['description']} |"

    def text(self) -> str:
        responses = self.document["components"]["responses"]
        common = " ".join(f"`{name}`" for name, _ in self.codes(responses["default"]))
        lines = [HEAD.format(common=common) + "\n".join(self.requests())]
        lines += ["\n| parameter | in | | |\n| --- | --- | --- | --- |", *self.parameters()]
        lines += ["\n## Errors\n", "| code | HTTP | retryable | |\n| --- | --- | --- | --- |", *self.errors()]
        lines += ["\n## Objects\n\nA field with a `?` may be absent; in an answer any other is there."]
        for name, schema in self.schemas.items():
            lines += self.section(name, schema)
        return "\n".join(lines) + "\n"


def render() -> str:
    with open("docs/openapi.json", encoding="utf-8") as file:
        return Document(json.load(file)).text()


if __name__ == "__main__":
    with open("docs/api.md", "w", encoding="utf-8") as target:
        target.write(render())
