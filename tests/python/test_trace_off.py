# SPDX-License-Identifier: Apache-2.0
"""What the hooks of vmm --trace cost without it, read in the built program: a look at one pointer and a branch each."""

from __future__ import annotations

import collections
import os
import re
import subprocess
import unittest

BUILD = os.environ.get("BUILD", "build")
PROGRAM = f"{BUILD}/vmm/vmm.debug"

# Where the hooks are, and how many: on the way of an exit two, and one when the vCPU has left the loop.
HOOKS = {
    "run_thread": 3,
    "kvm_call_value": 1,
    "on_notify": 1,
    "raise_line": 1,
    "write_serial": 1,
}


def disassemble() -> dict[str, list[str]]:
    """The instructions of each function, with the names of what they refer to. Functions of one name are put together."""
    functions: dict[str, list[str]] = collections.defaultdict(list)
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-M", "intel", PROGRAM], check=True, capture_output=True, encoding="utf-8"
    ).stdout
    name = ""
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        if head:
            # What a compiler has moved out of a function is named after it: it is not on the way.
            name = head[1]
        elif "\t" in line:
            functions[name].append(line.split("\t", 1)[1].strip())
    return functions


NEAR = 7  # instructions; a compiler puts others between the two


def is_test(code: list[str]) -> bool:
    """A comparison with 0, or a load and a test of that register; then a branch by that."""
    if re.match(r"cmp\s+QWORD PTR .*,0x0", code[0]):
        return bool(re.match(r"j(e|ne)\s", code[1]))
    loaded = re.match(r"mov\s+(\w+),QWORD PTR ", code[0])
    if not loaded:
        return False
    tested = [i for i, line in enumerate(code) if re.match(rf"test\s+{loaded[1]},{loaded[1]}$", line)]
    return bool(tested) and tested[0] + 1 < len(code) and bool(re.match(r"j(e|ne)\s", code[tested[0] + 1]))


class TraceOff(unittest.TestCase):
    def setUp(self) -> None:
        symbols = subprocess.run(["nm", PROGRAM], check=True, capture_output=True, encoding="utf-8").stdout
        found = re.search(r"^([0-9a-f]+) \w trace_active$", symbols, re.MULTILINE)
        assert found
        self.address = f"{int(found[1], 16):x}"
        self.functions = disassemble()

    def looks(self, name: str) -> list[list[str]]:
        """The instructions of a function that look at the pointer, each with some that follow it."""
        lines = self.functions[name]
        pattern = re.compile(rf"(0x{self.address}\b|<trace_active>)")
        return [lines[i : i + NEAR] for i, line in enumerate(lines) if pattern.search(line)]

    def test_a_hook_is_a_look_and_a_branch(self) -> None:
        for name, count in HOOKS.items():
            with self.subTest(name):
                looks = self.looks(name)
                tests = [code for code in looks if is_test(code)]
                self.assertEqual(len(tests), count, looks)
                # Where the pointer itself is wanted: that is behind such a branch, on the way with a trace.
                for code in looks:
                    if code not in tests:
                        self.assertTrue(any(re.match(r"call .*<trace_add_", line) for line in code), code)


if __name__ == "__main__":
    unittest.main()
