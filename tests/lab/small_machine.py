# SPDX-License-Identifier: Apache-2.0
"""A machine with the kernel of lab hosts that starts one program and nothing else, so that a boot takes seconds.

Its disks: the lab's Debian, the server's Python with all that it needs (neither is written to), and those of the test.
What the program prints comes line by line, each of ours ended by :data:`END`: a line that a reset has cut has no end.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.image.base import Base, base
from lab.image.cpio import Archive
from lab.image.modules import modules
from lab.machine.accelerator import PROCESSOR, accelerator
from lab.places import places
from tests.lab.server_on_host import PLACE, laid_out

END = "<"
SERVER, DATA = "/mnt", "/srv"
"""Where the server's disk and the first of the test's are mounted."""
SILENT_S = 200.0
_MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "dm_log_writes")
_WORDS = "console=ttyS0 quiet loglevel=3 mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check"
_INIT = f"""#!/bin/sh
export PATH=/bin:/usr/sbin:/usr/bin:/sbin
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for module in $($b cat /modules.list); do $b insmod "/modules/$module"; done
until [ -b /dev/vdc ]; do $b sleep 0.05; done
$b mount -t ext4 -o ro,noload /dev/vda /root
$b mount -t ext4 -o ro,noload /dev/vdb /root{SERVER}
$b mount -t tmpfs tmp /root/tmp
$b cp /start /root/tmp/start
for one in dev proc sys; do $b mount --move /$one /root/$one; done
exec $b chroot /root /bin/sh /tmp/start
"""
_START = f"""
export LD_LIBRARY_PATH={SERVER}/usr/local/lib PATH={SERVER}{PLACE}/bin:$PATH
(set -e
%s)
code=$?; echo; echo "ended with $code{END}"
sleep 1000000
"""


def disk_of(tree: Path, disk: Path, mib: int) -> Path:
    """An ext4 file system in a file, with what ``tree`` has."""
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, disk, f"{mib}M"], check=True, timeout=300)
    return disk


def server_disk(scratch: Path, program: Path) -> Path:
    """The server's Python, all that it needs, and ``program``."""
    laid_out(scratch / "server")
    (scratch / "server" / program.name).write_bytes(program.read_bytes())
    return disk_of(scratch / "server", scratch / "server.img", 1024)


@dataclass
class SmallMachine:
    """What runs; :meth:`line` is what it prints."""

    _process: subprocess.Popen[bytes]
    _qmp: socket.socket
    _said: bytearray = field(default_factory=bytearray)
    noise: str = ""
    """What else was said, before the last line of ours."""

    def line(self) -> str:
        """The next of ours, without its end.

        :raises TimeoutError: it says nothing for :data:`SILENT_S`
        :raises AssertionError: it has ended; both with the last that it did say"""
        assert self._process.stdout is not None
        deadline, end = time.monotonic() + SILENT_S, f"{END}\n".encode()
        while end not in self._said:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(self._said.decode(errors="replace")[-4000:])
            more = os.read(self._process.stdout.fileno(), 65536)
            assert more, self._said.decode(errors="replace")[-4000:]
            self._said += more.replace(b"\r", b"")
        found, _, rest = bytes(self._said).partition(end)
        self._said, self.noise = bytearray(rest), found.decode(errors="replace")
        return self.noise.rpartition("\n")[2].strip()

    def greet(self) -> None:
        self._qmp.recv(65536)
        self._ask("qmp_capabilities")

    def reset(self) -> None:
        """As when its power is cut and comes back. What it had said before comes before what it says then."""
        self._ask("system_reset")

    def _ask(self, word: str) -> None:
        self._qmp.sendall(json.dumps({"execute": word}).encode())
        while b'"return"' not in self._qmp.recv(65536):
            pass


@contextmanager
def small_machine(directory: Path, server: Path, disks: Sequence[Path], script: str) -> Iterator[SmallMachine]:
    """It boots, and at every boot it runs ``script`` (sh), whose ``python3`` is the server's. Ended at the end."""
    image = base(places().cache, print)
    (directory / "initrd").write_bytes(_initrd(image, script))
    ours, theirs = socket.socketpair()
    words = [*map(str, [*image.emulator(), *PROCESSOR[accelerator(image)]]), *_arguments(image, directory, theirs)]
    for disk in (image.disk, server):
        words += _disk(disk, ",read-only=on")
    for disk in disks:
        words += _disk(disk, "")
    with ours, subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()]
    ) as process:  # fmt: skip
        theirs.close()
        machine = SmallMachine(process, ours)
        try:
            machine.greet()
            yield machine
        finally:
            process.kill()


def _arguments(image: Base, directory: Path, qmp: socket.socket) -> list[str]:
    return [
        "-nodefaults", "-no-user-config", "-display", "none", "-m", "1024M", "-smp", "1",
        "-kernel", str(image.kernel), "-initrd", str(directory / "initrd"), "-append", _WORDS,
        "-chardev", f"socket,id=qmp,fd={qmp.fileno()}", "-mon", "chardev=qmp,mode=control", "-serial", "stdio",
    ]  # fmt: skip


def _disk(disk: Path, how: str) -> list[str]:
    """``cache.no-flush``: whatever this machine keeps for itself, no reset takes it away."""
    name = disk.name.partition(".")[0]
    back = f"raw,node-name={name},file.driver=file,file.filename={disk},file.cache.no-flush=on{how}"
    return ["-blockdev", back, "-device", f"virtio-blk-pci,drive={name}"]


def _initrd(image: Base, script: str) -> bytes:
    archive = Archive()
    for directory in ("dev", "proc", "sys", "root"):
        archive.directory(directory)
    archive.file("bin/busybox", (image.root / "usr/bin/busybox").read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.file("init", _INIT, 0o755)
    archive.file("start", _START % script)
    loaded = modules(image.root, image.kernel_version, _MODULES)
    for name, content in loaded:
        archive.file(f"modules/{name}", content)
    archive.file("modules.list", "".join(f"{name}\n" for name, _ in loaded))
    return archive.pack()
