# SPDX-License-Identifier: Apache-2.0
"""The Debian guest of the lab as a machine of its own, beside lab hosts and not inside of one."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.commands import run
from lab.image.base import base
from lab.machine.accelerator import accelerator, processor
from lab.places import places
from tests.lab.conftest import lab

MAC: Final = "52:54:00:12:34:56"
_BOOTED_WITHIN_S: Final = 1500.0


@contextmanager
def debian_machine(directory: Path, seed: bytes) -> Iterator[int]:
    """The port of the loopback behind which its ssh server is. It reaches nothing outside."""
    image = lab("guest-image", "--debian").strip()
    built = base(places().cache, lambda _line: None)
    disk, drive = directory / "disk.qcow2", directory / "seed.iso"
    run([*built.tool("qemu-img"), "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2", disk, "2G"])
    drive.write_bytes(seed)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    words = [
        *built.emulator(), *processor(accelerator(built), 1), "-nodefaults", "-display", "none", "-m", "1024M",
        "-drive", f"file={disk},if=virtio,format=qcow2", "-drive", f"file={drive},media=cdrom,format=raw",
        "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22",
        "-device", f"virtio-net-pci,netdev=net,mac={MAC},romfile=", "-device", "virtio-rng-pci",
        "-serial", f"file:{directory / 'console.log'}",
    ]  # fmt: skip
    with subprocess.Popen([str(word) for word in words]) as machine:
        try:
            _wait(machine, port)
            yield port
        finally:
            machine.kill()


def _wait(machine: subprocess.Popen[bytes], port: int) -> None:
    """Until its ssh server greets."""
    deadline = time.monotonic() + _BOOTED_WITHIN_S
    while not _greets(port):
        assert machine.poll() is None, "its QEMU ended"
        assert time.monotonic() < deadline, "it did not boot"
        time.sleep(1)


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as door:
            return door.recv(4) == b"SSH-"
    except OSError:
        return False
