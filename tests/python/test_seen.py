# SPDX-License-Identifier: Apache-2.0
"""After the others, in one run with them: every answer of success that docs/openapi.json describes came."""

from __future__ import annotations

import unittest

from openapi import OPERATIONS, CheckedTransport


class Seen(unittest.TestCase):
    def test_each_success(self) -> None:
        wanted = set()
        for operation in OPERATIONS:
            for status in operation.about["responses"]:
                if not status.isdigit() or int(status) >= 400:
                    continue
                response = operation.response(int(status))
                if int(status) == 101 or "application/json" in (response or {})["content"]:
                    wanted.add((operation.name, int(status)))
        self.assertEqual(wanted - CheckedTransport.seen, set())
