# SPDX-License-Identifier: Apache-2.0
"""vmm --trace on KVM: each trace is as docs/trace.md has it, and its sums are those of --stats. Needs a sound /dev/kvm."""

from __future__ import annotations

import collections
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from typing import Any

BUILD = os.environ.get("BUILD", "build")
VMM = f"{BUILD}/vmm/vmm"
HOST_CTL = f"{BUILD}/host-ctl/host-ctl"
HELLO_PORT = 1024
SECONDS = 180  # an initcall's line is thousands of exits
ENDED_BY_SIGNAL = 8
MARK_PORT = "0x5b0"
Json = dict[str, Any]

BOOT_PHASES = (
    "config files loop map_memory kernel initrd describe boot_data load working_set open_kvm features create_vm memory_slots irqchip "
    "vcpus ioapic serial devices eventfds restore kvm_stats control start"
).split()
INIT_MARKS = ["init", "init mounted", "init root", "init system", "init agent"]


class Vm:
    """One vmm until its guest's hello; then as the test likes. kernel: NONE with --restore."""

    def __init__(self, folder: str, *options: str, kernel: str | None = "up", fds: tuple[int, ...] = ()) -> None:
        self.socket = f"{folder}/vsock"
        for old in glob.glob(f"{folder}/vsock*"):
            os.unlink(old)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self.socket}_{HELLO_PORT}")
        self._listener.listen()
        self._listener.settimeout(SECONDS)
        self.errors = f"{folder}/errors"
        command = [VMM, "--disk", f"{BUILD}/images/base.erofs,ro", "--vsock", self.socket, f"--stats={folder}/stats"]
        if kernel:
            command += ["--kernel", f"{BUILD}/kernel/vmlinux-{kernel}", "--initrd", f"{BUILD}/images/initramfs.cpio"]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                command + list(options), stdin=subprocess.DEVNULL, stderr=errors, pass_fds=fds
            )
        self._stats = f"{folder}/stats"
        self._streams: list[socket.socket] = []

    def await_hello(self) -> None:
        stream, _ = self._listener.accept()
        stream.settimeout(SECONDS)
        assert stream.recv(1)
        self._streams.append(stream)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(SECONDS)
        self.close()
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for each in [*self._streams, self._listener]:
            each.close()

    def said(self) -> str:
        with open(self.errors, encoding="utf-8") as file:
            return file.read()

    def stats(self) -> Json:
        with open(self._stats, encoding="utf-8") as file:
            result: Json = json.load(file)
        return result


def read_trace(path: str) -> Json:
    with open(path, encoding="utf-8") as file:
        result: Json = json.load(file)
    return result


def events_of(trace: Json, category: str) -> list[Json]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def by_name(rows: list[Json]) -> dict[str, Json]:
    return {row["name"]: row for row in rows}


# What args must have, and may have.
ARGUMENTS: dict[str, tuple[set[str], set[str]]] = {
    "ioctl": ({"result"}, {"argument"}),
    "exit": ({"guest_us"}, {"port", "address", "write", "size", "value", "count", "device"}),
    "irq": ({"pin", "vector"}, set()),
    "notify": ({"number", "queue"}, set()),
    "mark": (set(), {"value"}),
    "initcall": ({"returned"}, set()),
}
OTHER_DATA = set(
    "format vmm command kernel_cmdline config host pid start_ns cpu_before_main_us until hello_us end bounds events dropped "
    "moments marks marks_dropped returns exits ioctls irqs notifications kvm process memory".split()
)


class TraceCase(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="vmm-trace.", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        self.trace = f"{self.folder}/trace.json"

    def vm(self, *options: str, kernel: str | None = "up", fds: tuple[int, ...] = ()) -> Vm:
        vm = Vm(self.folder, *options, kernel=kernel, fds=fds)
        self.addCleanup(vm.close)
        return vm

    def run_to_hello(self, *options: str, kernel: str | None = "up") -> tuple[Json, Json]:
        """The trace and the statistics of a VM that is ended after its hello."""
        vm = self.vm("--trace", self.trace, *options, kernel=kernel)
        vm.await_hello()
        self.assertEqual(vm.end(), ENDED_BY_SIGNAL, vm.said())
        return read_trace(self.trace), vm.stats()

    # --- what holds of each trace ---

    def check_event(self, event: Json) -> None:
        category = event["cat"]
        self.assertIn(event["ph"], "Xi", event)
        self.assertGreaterEqual(event["ts"], 0, event)
        self.assertEqual("dur" in event, event["ph"] == "X", event)
        self.assertEqual(event.get("s"), {"mark": "p", "irq": "t"}.get(category), event)
        if category == "phase":
            self.assertEqual(event["tid"], 0)
            return
        needed, allowed = ARGUMENTS[category]
        self.assertLessEqual(needed, set(event["args"]), event)
        self.assertLessEqual(set(event["args"]), needed | allowed, event)
        if category == "exit" and event["name"] in ("port", "mmio"):
            space = "port" if event["name"] == "port" else "address"
            self.assertLessEqual({space, "write", "size", "value"}, set(event["args"]), event)

    def check_format(self, trace: Json) -> None:
        other = trace["otherData"]
        self.assertEqual(set(trace), {"traceEvents", "displayTimeUnit", "otherData"})
        self.assertEqual(trace["displayTimeUnit"], "ns")
        self.assertEqual(set(other), OTHER_DATA)
        self.assertEqual(other["format"], 1)
        real = [event for event in trace["traceEvents"] if event["ph"] != "M"]
        self.assertEqual(len(real), other["events"])
        named = {event["tid"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
        for event in real:
            self.assertEqual(event["pid"], other["pid"])
            self.assertIn(event["tid"], named)
            self.check_event(event)
        for row in other["exits"]:
            self.assertGreaterEqual(row["count"], row["boot_count"])
            self.assertGreaterEqual(row["guest_ns"], row["boot_guest_ns"])

    def check_events_against_rows(self, trace: Json) -> None:
        """When nothing was dropped, the totals are the sums of the events."""
        other = trace["otherData"]
        self.assertEqual(other["dropped"], 0)

        def key(row: Json) -> tuple[Any, ...]:
            return row.get("port"), row.get("address"), row.get("write"), row.get("size")

        counts: collections.Counter[tuple[Any, ...]] = collections.Counter()
        handled: collections.Counter[tuple[Any, ...]] = collections.Counter()
        for event in events_of(trace, "exit"):
            counts[(event["name"], *key(event["args"]))] += 1
            handled[(event["name"], *key(event["args"]))] += round(event["dur"] * 1000)
        rows = {(row["reason"], *key(row)): row for row in other["exits"]}
        self.assertEqual(counts, {name: row["count"] for name, row in rows.items()})
        self.assertEqual(handled, {name: row["handle_ns"] for name, row in rows.items()})
        calls = collections.Counter(event["name"] for event in events_of(trace, "ioctl"))
        calls["KVM_RUN"] = len(events_of(trace, "exit"))
        self.assertEqual(calls, {row["name"]: row["count"] for row in other["ioctls"]})
        notified = collections.Counter(
            (event["name"], event["args"]["number"], event["args"]["queue"]) for event in events_of(trace, "notify")
        )
        self.assertEqual(
            notified, {(row["device"], row["number"], row["queue"]): row["count"] for row in other["notifications"]}
        )
        raised = collections.Counter(event["args"]["pin"] for event in events_of(trace, "irq"))
        self.assertEqual(raised, {row["pin"]: row["count"] for row in other["irqs"]})

    def check_sums(self, trace: Json, stats: Json, cpus: int) -> None:
        """Against --stats, which counts by itself."""
        other = trace["otherData"]
        runs = by_name(stats["sums"])["returns of KVM_RUN"]
        self.assertEqual(other["returns"]["total"], runs["total"])
        # The two look at a guest that runs on, one after the other.
        self.assertAlmostEqual(other["returns"]["boot"], runs["boot"], delta=2 * cpus)
        reasons: collections.Counter[str] = collections.Counter()
        accesses: collections.Counter[tuple[str, str]] = collections.Counter()
        for row in other["exits"]:
            reasons[row["reason"]] += row["count"]
            if row["device"]:
                accesses[(row["device"], "writes" if row["write"] else "reads")] += row["accesses"]
        self.assertEqual(reasons, {row["name"]: row["total"] for row in stats["exits"]})
        wanted: collections.Counter[tuple[str, str]] = collections.Counter()
        for row in stats["accesses"]:
            for what in ("reads", "writes"):
                if row[what]:
                    wanted[(row["name"].split(" ", 2)[2], what)] += row[what]
        self.assertEqual(accesses, wanted)
        kicks = {row["name"]: (row["kicks"], row["irqs"]) for row in stats["devices"]}
        for name, (kicked, raised) in kicks.items():
            self.assertEqual(sum(row["count"] for row in other["notifications"] if row["device"] == name), kicked)
            self.assertEqual(sum(row["count"] for row in other["irqs"] if row["device"] == name), raised)
        for row in other["kvm"]:
            self.assertAlmostEqual(row["total"], by_name(stats["sums"])["kvm " + row["name"]]["total"], delta=10)

    def check_time(self, trace: Json) -> None:
        """On a vCPU's thread guest and handling follow each other, and are nearly all of its time."""
        for thread in {event["tid"] for event in events_of(trace, "exit")}:
            exits = [event for event in events_of(trace, "exit") if event["tid"] == thread]
            for before, after in zip(exits, exits[1:]):
                self.assertGreaterEqual(
                    round((after["ts"] - after["args"]["guest_us"]) * 1000), round((before["ts"] + before["dur"]) * 1000)
                )
            spent = sum(event["dur"] + event["args"]["guest_us"] for event in exits)
            last = exits[-1]["ts"] + exits[-1]["dur"]
            first = exits[0]["ts"] - exits[0]["args"]["guest_us"]
            self.assertGreater(spent, 0.9 * (last - first))

    def check_marks(self, trace: Json, wanted: list[str]) -> None:
        """These marks and no others, in their order."""
        other = trace["otherData"]
        self.assertEqual([mark["name"] for mark in other["marks"]], wanted)
        times = [mark["us"] for mark in other["marks"]]
        self.assertEqual(times, sorted(times))
        self.assertEqual([(event["name"], event["ts"]) for event in events_of(trace, "mark")], list(zip(wanted, times)))
        self.assertEqual(other["hello_us"], by_name(other["marks"])["hello"]["us"])

    def check_all(self, trace: Json, stats: Json, cpus: int = 1) -> None:
        self.check_format(trace)
        self.check_events_against_rows(trace)
        self.check_sums(trace, stats, cpus)
        self.check_time(trace)

    # --- the traces ---

    def test_boot(self) -> None:
        trace, stats = self.run_to_hello("--cmdline", 'odd="word"')
        other = trace["otherData"]
        self.check_all(trace, stats)
        self.check_marks(trace, ["kernel", *INIT_MARKS, "hello", "end"])
        phases = [event["name"].replace(" ", "_") for event in events_of(trace, "phase")]
        self.assertEqual(phases, BOOT_PHASES)
        self.assertEqual(other["kernel_cmdline"].split()[-2:], ["tinderbox_trace=1", 'odd="word"'])
        self.assertEqual(other["config"]["devices"], ["blk", "vsock", "rng"])
        self.assertEqual((other["config"]["kind"], other["config"]["memory"]), ("boot", 128 << 20))
        self.assertEqual(other["command"][0], VMM)
        self.assertEqual(other["command"][-1], 'odd="word"')
        self.assertEqual(other["end"], {"status": ENDED_BY_SIGNAL, "reason": "ended by SIGTERM"})
        self.assertEqual(sum(sum(region["touched"]) for region in other["memory"]["regions"]), other["memory"]["touched"])
        self.assertGreater(other["memory"]["touched"], 1000)
        # All that is set up comes before the guest's first instruction.
        entered = other["marks"][0]["us"]
        before = sum(event["ts"] < entered for event in events_of(trace, "ioctl"))
        self.assertEqual(before, sum(row["before_run"] for row in other["ioctls"]))
        self.assertTrue(all(event["ts"] + event["dur"] < entered for event in events_of(trace, "phase")))
        written = [event["args"]["value"] for event in events_of(trace, "exit") if event["args"].get("port") == MARK_PORT]
        self.assertEqual(written, [hex(mark["value"]) for mark in other["marks"] if mark["value"]])
        self.assertEqual(os.listdir(self.folder).count("trace.json"), 1)
        self.assertEqual(glob.glob(f"{self.folder}/*.tmp"), [])

    def test_marks_of_a_guest_of_one_s_own(self) -> None:
        """A few instructions: marks 1, 200 and 1, a read, a mark that is two bytes wide, and the reset that ends it."""
        code = "66bab005 b001 ee b0c8 ee b001 ee ec 66ef $code_reset"
        kernel = f"{self.folder}/kernel"
        subprocess.run(
            ["bash", "-c", f'. tests/support/tiny_guest.sh; elf 2 4096 "{code}" >{kernel}'], check=True, timeout=SECONDS
        )
        done = subprocess.run(
            [VMM, "--kernel", kernel, "--mem", "16M", "--trace", self.trace, f"--stats={self.folder}/stats"],
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        self.assertEqual(done.returncode, 4, done.stderr)
        trace = read_trace(self.trace)
        other = trace["otherData"]
        with open(f"{self.folder}/stats", encoding="utf-8") as file:
            self.check_sums(trace, json.load(file), 1)
        self.check_format(trace)
        self.check_events_against_rows(trace)
        self.assertEqual(
            [(mark["name"], mark["value"]) for mark in other["marks"]],
            [("kernel", None), ("init", 1), ("mark 200", 200), ("init", 1), ("end", None)],
        )
        self.assertEqual(
            [
                (event["args"].get("port"), event["args"].get("device"), event["args"].get("write"), event["args"].get("size"))
                for event in events_of(trace, "exit")
            ],
            [(MARK_PORT, "marks", True, 1)] * 3
            + [(MARK_PORT, "marks", False, 1), (MARK_PORT, None, True, 2), ("0x64", "reset", True, 1)]
            # The vCPU is called off.
            + [(None, None, None, None)],
        )
        self.assertEqual(events_of(trace, "exit")[3]["args"]["value"], "0xff")
        self.assertIsNone(other["hello_us"])
        self.assertEqual(other["returns"], {"boot": 0, "total": 7})
        self.assertEqual(other["end"], {"status": 4, "reason": "the guest asked for a reset"})

    def test_several_cpus(self) -> None:
        trace, stats = self.run_to_hello("--cpus", "2", kernel="smp")
        self.check_all(trace, stats, 2)
        self.assertEqual({event["tid"] for event in events_of(trace, "exit")}, {1, 2})
        # Its kernel refuses guest-init the port (kernel-config/x86_64/21-flavour-up.config).
        self.check_marks(trace, ["kernel", "hello", "end"])

    def test_until_hello(self) -> None:
        vm = self.vm("--trace", f"{self.trace},until=hello")
        vm.await_hello()
        # It is written by the thread that hands over the stream, right after that.
        deadline = time.monotonic() + SECONDS
        while not os.path.exists(self.trace) and time.monotonic() < deadline:
            time.sleep(0.01)
        trace = read_trace(self.trace)
        other = trace["otherData"]
        self.check_format(trace)
        self.check_marks(trace, ["kernel", *INIT_MARKS, "hello"])
        self.assertIsNone(other["end"])
        self.assertEqual(other["until"], "hello")
        self.assertAlmostEqual(other["returns"]["boot"], other["returns"]["total"], delta=2)
        stamp = os.stat(self.trace).st_mtime_ns
        self.assertEqual(vm.end(), ENDED_BY_SIGNAL, vm.said())
        self.assertEqual(os.stat(self.trace).st_mtime_ns, stamp)
        self.assertAlmostEqual(by_name(vm.stats()["sums"])["returns of KVM_RUN"]["boot"], other["returns"]["boot"], delta=2)

    def test_restore(self) -> None:
        control, saved = f"{self.folder}/control", f"{self.folder}/saved"
        vm = self.vm("--control", control)
        vm.await_hello()
        for action in (["pause"], ["save", saved]):
            subprocess.run([HOST_CTL, "control", control, *action], check=True, stdout=subprocess.DEVNULL)
        vm.end()
        trace, stats = self.run_to_hello("--restore", saved, kernel=None)
        other = trace["otherData"]
        self.check_all(trace, stats)
        self.check_marks(trace, ["resume", "hello", "end"])
        phases = [event["name"] for event in events_of(trace, "phase")]
        self.assertEqual(phases[:4], ["config", "files", "snapshot", "loop"])
        self.assertEqual(phases[-4:], ["restore", "kvm stats", "control", "start"])
        self.assertNotIn("kernel", phases)
        self.assertIsNone(other["kernel_cmdline"])
        self.assertEqual(other["config"]["kind"], "restore")
        self.assertIn("KVM_SET_LAPIC", by_name(other["ioctls"]))
        # Its own copies alone, of a memory that has far more.
        self.assertLess(other["memory"]["touched"], 4000)

    def test_handed_over(self) -> None:
        with open(self.trace, "wb") as file:
            vm = self.vm("--trace", f"fd:{file.fileno()}", fds=(file.fileno(),))
            vm.await_hello()
            self.assertEqual(vm.end(), ENDED_BY_SIGNAL, vm.said())
        self.check_format(read_trace(self.trace))

    def test_initcalls(self) -> None:
        """A console that tells of each; every byte is an exit."""
        log = f"{self.folder}/log"
        trace, stats = self.run_to_hello("--serial", log, "--cmdline", "initcall_debug ignore_loglevel")
        self.check_format(trace)
        self.check_sums(trace, stats, 1)
        with open(log, encoding="utf-8", errors="replace") as file:
            printed = re.findall(r"initcall (.+) returned (-?\d+) after (\d+) usecs", file.read())
        found = events_of(trace, "initcall")
        self.assertGreater(len(found), 50)
        self.assertEqual(
            [(event["name"], event["args"]["returned"], event["dur"]) for event in found],
            [(name, int(returned), float(usecs)) for name, returned, usecs in printed],
        )

    def test_full_disk(self) -> None:
        """The VM is not concerned, and what was there stays."""
        small = f"{self.folder}/small"
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", small], check=True)
        self.addCleanup(subprocess.check_call, ["umount", small])
        with open(f"{small}/trace", "w", encoding="utf-8") as file:
            file.write("of before")
        vm = self.vm("--trace", f"{small}/trace")
        vm.await_hello()
        self.assertEqual(vm.end(), ENDED_BY_SIGNAL)
        self.assertIn(
            f"vmm: error: --trace {small}/trace cannot be written: No space left on device; the VM is not concerned; "
            "give a file where there is room\n",
            vm.said(),
        )
        self.assertEqual(os.listdir(small), ["trace"])
        with open(f"{small}/trace", encoding="utf-8") as file:
            self.assertEqual(file.read(), "of before")

    def test_memory_that_is_not_known(self) -> None:
        """The host tells of some of its pages, then no more: null, and no half of it."""
        kernel = f"{self.folder}/kernel"
        subprocess.run(
            ["bash", "-c", f'. tests/support/tiny_guest.sh; elf 2 4096 "$code_reset" >{kernel}'], check=True, timeout=SECONDS
        )

        def memory(*inject: str) -> Json | None:
            done = subprocess.run(
                ["strace", "-f", "-qq", "-o", f"{self.folder}/calls", "-e", "trace=pread64", *inject]
                + [VMM, "--kernel", kernel, "--mem", "16M", "--trace", self.trace],
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
            self.assertEqual(done.returncode, 4, done.stderr)
            trace = read_trace(self.trace)
            self.check_format(trace)
            result: Json | None = trace["otherData"]["memory"]
            return result

        self.assertEqual(len((memory() or {})["regions"][0]["touched"]), 16)
        with open(f"{self.folder}/calls", encoding="utf-8", errors="replace") as file:
            reads = sum("pread64(" in line for line in file)
        # Of the sixteen, a block of 1 MiB each, the last four.
        self.assertIsNone(memory("-e", f"inject=pread64:error=EIO:when={reads - 3}+"))

    def test_refusals(self) -> None:
        kernel, disk = f"{BUILD}/kernel/vmlinux-up", f"{self.folder}/disk"
        with open(disk, "wb") as file:
            file.truncate(4096)
        same = "are the same file, and it would be written to; give each its own"
        for options, status, line in (
            (["--trace", "/nowhere/x"], 1, "--trace /nowhere/x is in a folder that does not exist; check the path"),
            (["--trace", kernel], 2, f"--kernel {kernel} and --trace {kernel} {same}"),
            (["--disk", disk, "--trace", disk], 2, f"--disk {disk} and --trace {disk} {same}"),
            ([f"--stats={self.trace}", "--trace", self.trace], 2, f"--stats {self.trace} and --trace {self.trace} {same}"),
        ):
            with self.subTest(line):
                done = subprocess.run(
                    [VMM, "--kernel", kernel, *options], capture_output=True, timeout=SECONDS, check=False, encoding="utf-8"
                )
                self.assertEqual((done.returncode, done.stderr), (status, f"vmm: error: {line}\n"))
                self.assertEqual(glob.glob(f"{self.folder}/*.tmp"), [])

    def test_without(self) -> None:
        """No port for marks, no word for init."""
        vm = self.vm()
        vm.await_hello()
        vm.end()
        names = [row["name"] for row in vm.stats()["accesses"] + vm.stats()["unanswered"]]
        self.assertEqual([name for name in names if "marks" in name or MARK_PORT in name], [])


if __name__ == "__main__":
    unittest.main()
