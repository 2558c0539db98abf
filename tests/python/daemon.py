# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests: host-ctl serve with tests/fake-vmm, which plays vmm and guest and needs no KVM."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import unittest

BUILD = os.environ.get("BUILD", "build")
READY_SECONDS = END_SECONDS = 30


def find_cgroups() -> str | None:
    """Where cgroup v2 is mounted, if we may write there."""
    with open("/proc/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, where, kind, *_ = line.split()
            if kind == "cgroup2" and os.geteuid() == 0 and os.access(where, os.W_OK):
                return where
    return None


class Daemon:
    """script: how its guests behave (tests/fake-vmm/fake_vmm.c)."""

    def __init__(self, *options: str, script: str = "boot") -> None:
        cgroups = find_cgroups()
        if not cgroups:
            raise unittest.SkipTest("needs root and a writable cgroup v2 mount")
        self.folder = tempfile.mkdtemp(prefix="tinderbox-python.", dir="/tmp")
        os.chmod(self.folder, 0o755)
        self.socket = f"{self.folder}/run/api.sock"
        self._cgroups = f"{cgroups}/{os.path.basename(self.folder)}"
        self._options = options
        for name, content in (("kernel", f"\x7fELF {script}"), ("initrd", "070701"), ("image", "i" * 512)):
            with open(f"{self.folder}/{name}", "w", encoding="latin-1") as file:
                file.write(content)
        self.start()

    def start(self) -> None:
        """Returns when its pool is full."""
        ready, theirs = os.pipe()
        # setpriv: should the test be killed, the daemon goes too.
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", f"{BUILD}/host-ctl/host-ctl", "serve"]
            + ["--socket", self.socket, "--runtime-dir", f"{self.folder}/run"]
            + ["--state-dir", f"{self.folder}/state", "--cgroup-root", self._cgroups]
            + ["--limits", "available", "--kvm", "/dev/null", "--vmm", f"{BUILD}/tests/fake-vmm"]
            + ["--kernel", f"{self.folder}/kernel", "--initrd", f"{self.folder}/initrd"]
            + ["--image", f"{self.folder}/image", "--standby", "0", "--ready-fd", str(theirs)]
            + list(self._options),
            pass_fds=[theirs],
            stderr=None if os.environ.get("TINDERBOX_TEST_LOG") else subprocess.DEVNULL,
        )
        os.close(theirs)
        with open(ready, "rb") as pipe:
            if pipe.read(1):
                return
        raise AssertionError(f"the daemon ended with status {self._process.wait()}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As a service manager does; nothing is left then."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(END_SECONDS)
            left = [name for name in os.listdir(self._cgroups) if name.startswith("vm-")]
            assert (status, left) == (0, []), f"status {status}, left {left}"
            os.rmdir(self._cgroups)
        finally:
            self._process.kill()
            shutil.rmtree(self.folder)
