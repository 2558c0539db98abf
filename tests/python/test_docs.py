# SPDX-License-Identifier: Apache-2.0
"""docs/api.md is what docs/openapi.json makes of it, and limits and make's targets are told as they are."""

from __future__ import annotations

import math
import pathlib
import re
import unittest

import api_md
import jsonschema  # type: ignore[import]  # Debian has no stubs of it
from openapi import DOCUMENT

TOPS = ["common", "vmm", "guest-init", "host-ctl", "kernel-config", "rootfs", "tests"]
# What whoever uses the daemon meets: each stands in the table of limits.
LIMITS = {
    "API_KEYED_MAX", "COMMANDS_ALL_MAX", "COMMANDS_MAX", "COMMANDS_RUNNING_MAX", "FORK_CHILDREN_MAX", "HTTP_CONNECTIONS_MAX",
    "JOURNAL_KEYS_MAX", "SANDBOXES_MAX", "TEMPLATES_BUILDS_MAX", "TEMPLATES_MAX", "TEMPLATES_POOLS_MAX",
}


def makefiles() -> str:
    """All of them, one after the other."""
    paths = [pathlib.Path("Makefile"), *(path for top in TOPS for path in pathlib.Path(top).rglob("*.mk"))]
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def asked_for() -> set[str]:
    """The targets of make that README and documents tell people to make, in a block of code or between backticks."""
    found = set()
    for path in [pathlib.Path("README.md"), *pathlib.Path("docs").glob("*.md")]:
        parts = path.read_text(encoding="utf-8").split("```")
        for text, pattern in [(part, r"`make ([a-z][a-z-]*)") for part in parts[::2]] + [
            (part, r"(?:^|&& )make ([a-z][a-z-]*)") for part in parts[1::2]
        ]:
            found |= set(re.findall(pattern, text, re.MULTILINE))
    return found


def constants() -> dict[str, int]:
    """The numbers that host-ctl's headers name, such as `NAME = 4 * 1024`."""
    found = {}
    for path in pathlib.Path("host-ctl").rglob("*.h"):
        for name, product in re.findall(r"\b([A-Z][A-Z0-9_]+) = (\d+(?: \* \d+)*)\b", path.read_text(encoding="utf-8")):
            found[name] = math.prod(int(factor) for factor in product.split(" * "))
    return found


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

    def test_limits(self) -> None:
        """Each number of the table that names its constant is that constant, and none that matters is missing."""
        with open("docs/protocol.md", encoding="utf-8") as file:
            table = file.read().split("\n## Limits of the daemon\n")[1].split("\n## ")[0]
        named = re.findall(r"(\d+) \(`([A-Z][A-Z0-9_]+)`\)", table)
        real = constants()
        for number, name in named:
            with self.subTest(name):
                self.assertEqual(int(number), real.get(name))
        self.assertEqual({name for _, name in named}, LIMITS)

    def test_make_help(self) -> None:
        """`make help` shows what documents ask for, and nothing that cannot be made."""
        text = makefiles()
        shown = set(re.findall(r"^## make ([a-z][a-z-]*)", text, re.MULTILINE))
        rules = re.findall(r"^([a-z][a-z -]*):", text, re.MULTILINE)
        self.assertEqual(asked_for() - shown, set())
        self.assertEqual(shown - {name for rule in rules for name in rule.split()}, set())
        for name in ("machine-tests", "kernel-foreign", "fuzz-corpus", "lint-quick"):
            self.assertIn(name, shown)

    def test_make_help_of_bench(self) -> None:
        """It names each BENCH that there is."""
        text = makefiles()
        named = re.findall(r"^## make bench BENCH=([a-z|]+)", text, re.MULTILINE)
        pairs = re.findall(r"^A_([a-z]+) :=", text, re.MULTILINE)
        others = re.findall(r"^ifneq \(\$\(filter ([a-z ]+),\$\(BENCH\)\),\)$", text, re.MULTILINE)
        self.assertEqual(len(named), 1)
        self.assertEqual(len(others), 1)
        self.assertEqual(set(named[0].split("|")), {*pairs, *others[0].split()})
