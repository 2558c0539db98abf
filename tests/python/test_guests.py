# SPDX-License-Identifier: Apache-2.0
"""The client against the daemon at $TINDERBOX_SOCKET, whose guests are real; started by tests/e2e/python."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
import unittest

import tinderbox
from openapi import check_named, checked_client
from test_client import await_that

MEGABYTES = 3


def shell(line: str) -> list[str]:
    return ["sh", "-c", line]


class Guests(unittest.TestCase):
    client: tinderbox.Client
    sandbox: tinderbox.Sandbox

    @classmethod
    def setUpClass(cls) -> None:
        cls.client = checked_client(os.environ["TINDERBOX_SOCKET"])
        cls.sandbox = cls.client.create(env={"COLOUR": "red"})

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.sandbox.delete()["verified"]

    def test_runs(self) -> None:
        result = self.client.run(shell("cat; echo err >&2; exit 7"), stdin=b"\0in\xff")
        self.assertEqual((result.stdout, result.stderr, result.code), (b"\0in\xff", b"err\n", 7))
        self.assertGreater(result.usage["wall_us"], 0)
        # A VM of its own: nothing of it is left.
        self.client.run(shell("echo x >/root/file"), check=True)
        self.assertNotEqual(self.client.run(shell("test -e /root/file")).code, 0)

    def test_each_end(self) -> None:
        for result, kind, status in (
            (self.client.run(shell("kill -9 $$")), "signalled", 137),
            (self.client.run(["sleep", "60"], timeout_ms=300), "timed_out", 124),
            (self.client.run(["/none"]), "failed_to_start", 127),
            (self.client.run(["true"], user="nobody-here"), "failed_to_start", 126),
            (self.client.run(["id", "-u"], user="nobody", cwd="/tmp"), "exited", 0),
        ):
            self.assertEqual((result.kind, result.status), (kind, status))
        hog = self.client.run(shell("head -c 80000000 /dev/zero | tail -c 80000000 >/dev/null"), memory_max=16 << 20)
        self.assertFalse(hog.ok)

    def test_streams(self) -> None:
        data = os.urandom(1 << 20) * MEGABYTES
        with self.client.stream(["sha256sum"], stdin=True) as stream:
            result = stream.wait(stdin=(data[at : at + 100_000] for at in range(0, len(data), 100_000)))
        self.assertEqual(result.text.split()[0], hashlib.sha256(data).hexdigest())
        with self.client.stream(["cat"], stdin=True) as stream:
            self.assertTrue(stream.wait(stdin=[data]).stdout == data)

    def test_files_stay_over_a_pause(self) -> None:
        self.sandbox.run(shell("echo kept >/root/file"), check=True)
        self.assertEqual(self.sandbox.pause()["state"], "paused")
        self.assertEqual(self.sandbox.run(shell("cat /root/file; echo $COLOUR")).text, "kept\nred\n")
        self.assertEqual(self.sandbox.run(["env"], env={"COLOUR": "blue"}).text.count("COLOUR=blue\n"), 1)

    def test_reattaches(self) -> None:
        """A command that writes on while its client is away: each line comes once."""
        command = self.sandbox.command(shell("i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.05; done"))
        got, at = b"", 0
        for _ in range(5):
            with command.attach(stdout_offset=at) as stream:
                output = next(iter(stream))
                got, at = got + output.data, stream.stdout_offset
            time.sleep(0.1)
        with command.attach(stdout_offset=at) as stream:
            got += stream.wait().stdout
        self.assertEqual(got.decode(), "".join(f"line {number}\n" for number in range(40)))
        self.assertEqual(command.output(), got)

    def test_signals(self) -> None:
        line = "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
        with self.sandbox.stream(shell(line)) as stream:
            self.assertEqual(next(iter(stream)).data, b"ready\n")
            stream.signal(signal.SIGUSR1)
            result = stream.wait()
        self.assertEqual((result.stdout, result.code), (b"caught\n", 3))
        with self.sandbox.stream(shell("setsid sleep 61 & until pidof sleep >/dev/null; do :; done; echo ready; wait")) as stream:
            next(iter(stream))
            stream.kill()
            self.assertEqual(stream.wait().kind, "killed")
        self.assertEqual(self.sandbox.run(shell("pidof sleep || echo none")).text, "none\n")

    def test_terminal(self) -> None:
        with self.sandbox.stream(["sh"], stdin=True, tty={"rows": 31, "cols": 97}) as stream:
            stream.write(b"stty size; echo asked\n")
            seen = b""
            for output in stream:
                seen += output.data
                if b"31 97" in seen:
                    break
            stream.resize(40, 120)
            stream.write(b"stty size; exit 5\n")
            result = stream.wait()
            self.assertIn(b"40 120", result.stdout)
            self.assertEqual(result.code, 5)

    def test_events(self) -> None:
        with self.client.events(self.sandbox.id) as events:
            threading.Thread(target=lambda: self.sandbox.run(["false"])).start()
            told = []
            for event in events:
                check_named("Event", event)
                told.append((event["event"], event.get("state"), event.get("result")))
                if event.get("state") == "ended":
                    break
        self.assertEqual(told[-2:], [("command", "started", None), ("command", "ended", "exited")])

    def test_a_key(self) -> None:
        key = tinderbox.new_key()
        first = self.sandbox.run(shell("echo x >>/root/count; wc -l </root/count"), key=key)
        self.assertEqual(first, self.sandbox.run(shell("echo x >>/root/count; wc -l </root/count"), key=key))
        self.assertEqual(self.sandbox.run(shell("wc -l </root/count")).text.strip(), "1")

    def test_one_that_is_lost(self) -> None:
        with self.client.create() as sandbox:
            with self.assertRaises(tinderbox.GuestLost) as caught:
                sandbox.run(shell("echo c >/proc/sysrq-trigger"))
            self.assertRegex(caught.exception.message, "panic")
            await_that(lambda: sandbox.info()["state"] == "failed")

    def test_what_is_kept_after_a_deletion(self) -> None:
        with self.client.create(metadata={"for": "test"}) as sandbox:
            command = sandbox.command(["echo", "kept"])
            with command.attach() as stream:
                stream.wait()
        self.assertEqual(sandbox.info()["state"], "gone")
        self.assertEqual(command.output(), b"kept\n")
