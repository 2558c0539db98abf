# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and their commands by the client, against a real daemon whose guests are played."""

from __future__ import annotations

import os
import unittest.mock
from typing import Any

import tinderbox
from daemon import Daemon
from openapi import checked_client
from test_client import WithDaemon, await_that


class Sandboxes(WithDaemon):
    def test_life(self) -> None:
        metadata = {"who": "test", "clé": "ü"}
        with self.client.create(name="box", metadata=metadata, env={"A": "1"}, ttl_ms=60000) as sandbox:
            info = self.client.sandbox("box").info()
            self.assertEqual((info["id"], info["state"], info["env"]), (sandbox.id, "ready", ["A"]))
            self.assertEqual(info["metadata"], metadata)
            self.assertEqual([one["id"] for one in self.client.sandboxes(metadata={"who": "test"})], [sandbox.id])
            self.assertEqual(self.client.sandboxes(metadata={"who": "else"}), [])
            self.assertEqual(self.client.sandboxes(state="paused", template="base"), [])
            self.assertEqual(sandbox.run(["echo", "x"]).text, "x\n")
            self.assertEqual(sandbox.pause()["state"], "paused")
            with self.assertRaises(tinderbox.Conflict):
                sandbox.run(["echo"], wake=False)
            self.assertEqual(sandbox.resume()["state"], "ready")
            with self.assertRaises(tinderbox.Conflict):
                self.client.create(name="box")
        info = sandbox.info()
        self.assertEqual((info["state"], info["receipt"] and info["receipt"]["verified"]), ("gone", True))
        self.assertEqual(sandbox.delete(), info["receipt"])
        with self.assertRaises(tinderbox.Conflict):
            sandbox.pause()

    def test_with_is_left_by_an_error(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.client.create() as sandbox:
            raise ZeroDivisionError
        self.assertEqual(sandbox.info()["state"], "gone")

    def test_without_waiting(self) -> None:
        with self.client.create() as sandbox:
            operation = sandbox.ask("pause")
            self.assertEqual((operation["kind"], operation["sandbox"]), ("pause", sandbox.id))
            self.assertEqual(self.client.operation(operation["id"], wait=True)["state"], "done")
            self.assertEqual(sandbox.ask("resume")["kind"], "resume")
            sandbox.ask("delete")
            await_that(lambda: sandbox.info()["state"] == "gone")

    def test_stop_and_start(self) -> None:
        with self.client.create(pids_max=50) as sandbox:
            command = sandbox.command(["echo", "kept"])
            command.attach().wait()
            with self.assertRaisesRegex(tinderbox.Conflict, "would lose them: stop it with"):
                sandbox.stop()
            self.assertEqual(sandbox.stop(discard_files=True)["vm"], None)
            with self.assertRaises(tinderbox.Conflict):
                sandbox.run(["echo"])
            operation = sandbox.ask("start")
            self.assertEqual(self.client.operation(operation["id"], wait=True)["state"], "done")
            self.assertEqual(sandbox.start()["state"], "ready")
            self.assertEqual((sandbox.run(["echo", "x"]).text, command.output()), ("x\n", b"kept\n"))

    def test_suspend_and_wake(self) -> None:
        with self.client.create() as sandbox:
            command = sandbox.command(["started-sleep"])
            command.attach().close()
            info = sandbox.suspend()
            self.assertEqual((info["state"], info["vm"]), ("suspended", None))
            with self.assertRaises(tinderbox.Conflict):
                sandbox.run(["echo"], wake=False)
            self.assertEqual(sandbox.run(["echo", "x"]).text, "x\n")
            operation = sandbox.ask("suspend")
            self.assertEqual(self.client.operation(operation["id"], wait=True)["state"], "done")
            self.assertEqual(sandbox.wake()["state"], "ready")
            self.assertEqual(command.info()["state"], "running")

    def test_fork(self) -> None:
        key = tinderbox.new_key()
        with self.client.create(env={"A": "1"}, metadata={"who": "parent"}) as parent:
            made = parent.fork(count=2, name="try", metadata={"who": "child"}, key=key)
            self.assertEqual((len(made.children), made.errors), (2, []))
            self.assertGreater(made.pause_us, 0)
            again = parent.fork(count=2, name="try", metadata={"who": "child"}, key=key)
            self.assertEqual([child.id for child in again.children], [child.id for child in made.children])
            for number, child in enumerate(made.children):
                with child:
                    info = child.info()
                    self.assertEqual((info["name"], info["state"], info["env"]), (f"try-{number + 1}", "ready", ["A"]))
                    self.assertEqual(info["metadata"], {"who": "child"})
                    self.assertEqual(child.run(["echo", "x"]).text, "x\n")
                    with self.assertRaisesRegex(tinderbox.Conflict, "the name try-"):
                        parent.fork(name=f"try-{number + 1}")
            self.assertEqual(parent.run(["echo", "x"]).text, "x\n")
            some = parent.fork(count=64)
            self.assertEqual(len(some.children) + len(some.errors), 64)
            for child in some.children:
                child.delete()
            for error in some.errors:
                self.assertIsInstance(error, tinderbox.Exhausted)

    def test_snapshot(self) -> None:
        key = tinderbox.new_key()
        with self.client.create() as parent:
            made = parent.snapshot("frozen", key=key)
            self.addCleanup(self.client.delete_template, "frozen")
            self.assertGreater(made["pause_us"], 0)
            about = made["template"]
            self.assertEqual((about["name"], about["state"]), ("frozen", "ready"))
            self.assertEqual((about["snapshot"]["sandbox"], about["snapshot"]["template"]), (parent.id, "base"))
            self.assertEqual(parent.snapshot("frozen", key=key), made)
            with self.assertRaisesRegex(tinderbox.Conflict, "there is a template frozen already"):
                parent.snapshot("frozen")
            for wrong in ("", 7):
                with self.assertRaises((TypeError, ValueError)):
                    parent.snapshot(wrong)  # type: ignore[arg-type]
            self.assertEqual(parent.run(["echo", "x"]).text, "x\n")
        with self.client.create(template="frozen") as sandbox:
            self.assertEqual(sandbox.run(["echo", "x"]).text, "x\n")
        await_that(lambda: self.client.template("frozen")["vms"] == 0)

    def test_changes(self) -> None:
        with self.client.create() as sandbox:
            changes = sandbox.changes()
            paths = [tinderbox.path_of(change) for change in changes]
            self.assertEqual(paths, [b"/a", b"/b.d", b"/b\xff", b"/b\xff/c\n"])
            self.assertEqual([change["kind"] for change in changes], ["added", "removed", "changed", "added"])
            sandbox.pause()
            with self.assertRaisesRegex(tinderbox.Conflict, "resume it"):
                sandbox.changes()

    def test_changes_of_many_pages(self) -> None:
        daemon = Daemon("--pool", "1", script="boot changes:2500")
        self.addCleanup(daemon.stop)
        with checked_client(daemon.socket).create() as sandbox:
            self.assertEqual([change["path"] for change in sandbox.changes()], [f"/file{i:08}" for i in range(2500)])

    def test_idle(self) -> None:
        with self.client.create(idle={"after_ms": 50, "action": "pause"}) as sandbox:
            await_that(lambda: sandbox.info()["state"] == "paused")

    def test_ttl(self) -> None:
        with self.client.create(ttl_ms=1000, ttl_action="pause") as sandbox:
            await_that(lambda: sandbox.info()["state"] == "paused")
            self.assertEqual(sandbox.info()["ttl_action"], "pause")
            self.assertEqual(sandbox.resume()["state"], "ready")

    def test_a_dead_vm(self) -> None:
        with self.client.create() as sandbox:
            with self.assertRaises(tinderbox.GuestLost):
                sandbox.run(["panic"])
            self.assertEqual(sandbox.info()["state"], "failed")
            lost = sandbox.commands()[0]
            self.assertEqual(lost["error"] and lost["error"]["code"], "guest_lost")


class Commands(WithDaemon):
    def setUp(self) -> None:
        self.sandbox = self.client.create()
        self.addCleanup(self.sandbox.delete)

    def test_attaching_starts_it(self) -> None:
        command = self.sandbox.command(["echo", "hello"])
        self.assertEqual(command.info()["state"], "created")
        with command.attach() as stream:
            self.assertEqual(stream.wait().text, "hello\n")
        info = command.info()
        self.assertEqual((info["state"], info["result"]), ("ended", {"kind": "exited", "code": 0}))
        self.assertEqual(self.sandbox.find(command.id).output(), b"hello\n")
        self.assertEqual(command.output("stderr"), b"")
        command.delete()
        with self.assertRaises(tinderbox.NotFound):
            command.info()

    def test_a_void_token(self) -> None:
        """The command's own is void, as after its minute: attach has another one by itself."""
        command = self.sandbox.command(["echo", "hello"])
        self.client.transport.call("POST", f"/v1/sandboxes/{self.sandbox.id}/commands/{command.id}/token")
        with command.attach() as stream:
            self.assertEqual(stream.wait().text, "hello\n")

    def test_a_token_of_the_daemon_before(self) -> None:
        daemon = Daemon("--pool", "1")
        self.addCleanup(daemon.stop)
        command = checked_client(daemon.socket).create().command(["echo", "hello"])
        daemon.kill()
        daemon.start()
        await_that(lambda: command.info()["state"] == "created")
        with command.attach() as stream:
            self.assertEqual(stream.wait().text, "hello\n")

    def test_reattaches_at_an_offset(self) -> None:
        """Left and attached again, no byte is lost or comes twice. What a piece's echo has ended is taken of stdin."""
        data, got, at = os.urandom(200_000), b"", 0
        command = self.sandbox.command(["cat"], stdin=True)
        for end in range(50_000, len(data) + 1, 50_000):
            with command.attach(stdout_offset=at) as stream:
                stream.write(data[end - 50_000 : end])
                output = next(iter(stream))
                self.assertEqual(output.offset, at)
                got, at = got + output.data, output.end
                while stream.stdout_offset < end:
                    next(iter(stream))
            with command.attach(stdout_offset=at) as stream:
                while at < end:
                    output = next(iter(stream))
                    self.assertEqual(output.offset, at)
                    got, at = got + output.data, output.end
        with command.attach(stdout_offset=at) as stream:
            stream.close_stdin()
            got += stream.wait().stdout
        self.assertEqual(got, data)
        self.assertEqual(command.output(offset=150_000), data[150_000:])
        with command.attach(stdout_offset=199_990) as stream:
            self.assertEqual(stream.wait().stdout, data[-10:])
        with self.assertRaisesRegex(tinderbox.Invalid, "stdout_offset is beyond the 200000 bytes"):
            command.attach(stdout_offset=200_001)

    def test_what_is_no_longer_held(self) -> None:
        command = self.sandbox.command(["flood", "3000000"])
        command.attach().close()
        await_that(lambda: command.info()["state"] == "ended")
        with self.assertRaises(tinderbox.Conflict):
            command.attach(stdout_offset=1_000_000)
        with self.assertRaises(tinderbox.Conflict):
            command.output(offset=1_000_000)
        with command.attach() as stream:
            self.assertEqual(next(iter(stream)).offset, command.info()["stdout"]["oldest"])

    def test_output_of_one_that_never_ends(self) -> None:
        command = self.sandbox.command(["cat"], stdin=True)
        asked: list[int] = []
        with command.attach() as stream:
            stream.write(bytes(300_000))
            call = self.sandbox._transport.call

            def slower(method: str, path: str, *rest: Any, **more: Any) -> Any:
                """Whatever is read, there is more when it has been."""
                answer = call(method, path, *rest, **more)
                asked.append(answer["bytes"])
                stream.write(bytes(300_000))
                await_that(lambda: bool(call("GET", command._path)["stdout"]["bytes"] > answer["bytes"]))
                return answer

            with unittest.mock.patch.object(command._transport, "call", slower):
                self.assertGreaterEqual(len(command.output()), asked[0])
        self.assertLessEqual(len(asked), 3)

    def test_the_last_one_wins(self) -> None:
        command = self.sandbox.command(["started-sleep"])
        with command.attach() as first, command.attach() as second:
            with self.assertRaisesRegex(tinderbox.Conflict, "another client attached to the command"):
                first.wait()
            second.kill()
            self.assertEqual(second.wait().kind, "killed")

    def test_told_from_outside(self) -> None:
        command = self.sandbox.command(["cat"], stdin=True)
        with self.assertRaises(tinderbox.Conflict):
            command.signal(15)
        with command.attach() as stream:
            await_that(lambda: command.info()["state"] == "running")
            command.send(b"some", end=False)
            self.assertEqual(next(iter(stream)).data, b"some")
            command.send(b"more", end=True)
            self.assertEqual(stream.wait().stdout, b"more")
        sleeper = self.sandbox.command(["started-sleep"])
        with sleeper.attach() as stream:
            await_that(lambda: sleeper.info()["state"] == "running")
            with self.assertRaises(tinderbox.Conflict):
                sleeper.delete()
            sleeper.signal(10)
            self.assertEqual(stream.wait().signal, 10)
        self.assertEqual(sleeper.kill()["state"], "ended")

    def test_left_by_its_client(self) -> None:
        with self.sandbox.stream(["started-sleep"]) as stream:
            next_id = self.sandbox.commands()[0]["id"]
        ended = self.sandbox.find(next_id)
        await_that(lambda: ended.info()["state"] == "ended")
        self.assertEqual(ended.info()["result"], {"kind": "killed"})
        kept = self.sandbox.command(["started-sleep"])
        kept.attach().close()
        await_that(lambda: not kept.info()["attached"])
        self.assertIn(kept.info()["state"], ("starting", "running"))
        kept.kill()
        self.assertIsNone(stream.result)

    def test_terminal(self) -> None:
        with self.sandbox.stream(["cat"], stdin=True, tty={"rows": 24, "cols": 80}) as stream:
            stream.resize(30, 100)
            self.assertEqual(stream.wait(stdin=[b"typed"]).stdout, b"typed")
