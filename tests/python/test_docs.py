# SPDX-License-Identifier: Apache-2.0
"""docs/api.md is what docs/openapi.json makes of it."""

from __future__ import annotations

import unittest

import api_md
import jsonschema  # type: ignore[import]  # Debian has no stubs of it
from openapi import DOCUMENT


class Docs(unittest.TestCase):
    def test_api_md(self) -> None:
        with open("docs/api.md", encoding="utf-8") as file:
            self.assertTrue(file.read() == api_md.render(), "docs/api.md is not up to date: make docs-api")

    def test_schemas(self) -> None:
        """They are sound themselves, and each object says which fields it has."""
        for name, schema in DOCUMENT["components"]["schemas"].items():
            jsonschema.Draft202012Validator.check_schema(schema)
            for one in schema.get("oneOf", [schema]) if "properties" not in schema else [schema]:
                if "properties" in one:
                    self.assertIs(one["additionalProperties"], False, name)
