# SPDX-License-Identifier: Apache-2.0
"""Two agents that have one directory mounted as a pool, with real files, leases and QEMU's locks."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.core.actions.host_actions import CreateVolume
from orchestrator.core.actions.pools import DeclarePool
from orchestrator.core.hosts.pool import disk_file, on_hosts

MIB = 1024 * 1024
POOL_ID, VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10", "0d9c1a52-7f0e-4a53-8c8e-2f4a1e7b6c11"
POOL = on_hosts("fast", POOL_ID)
DISK, VOLUME = disk_file(VM, POOL), f"data.{VM}.{POOL}.raw"
DECLARE = DeclarePool(name="fast", pool_id=POOL_ID)


@dataclass
class Host:
    """An agent's storage, and the file that says what is mounted."""

    storage: Storage
    shared: Path

    @property
    def mount_point(self) -> Path:
        return self.storage.paths.pools / "fast"

    def mount(self, directory: Path | None, how: str = "nfs4 nas:/fast rw,vers=4.2") -> None:
        """None: nothing is mounted, and an empty directory is seen."""
        if self.mount_point.is_symlink():
            self.mount_point.unlink()
        if directory is None:
            self.mount_point.mkdir()
        else:
            if self.mount_point.is_dir():
                self.mount_point.rmdir()
            self.mount_point.symlink_to(directory)
        line = f"36 35 0:50 / {self.mount_point} rw - {how}\n"
        (self.storage.paths.proc / "self/mountinfo").write_text("" if directory is None else line)

    @property
    def disk(self) -> Path:
        return self.mount_point / "volumes" / DISK


def host_at(directory: Path, shared: Path) -> Host:
    root = directory / "root"
    for part in ("proc/self", "etc"):
        (root / part).mkdir(parents=True)
    (root / "etc/machine-id").write_text(f"{directory.name * 16}\n")
    paths = Paths(root=root, storage=directory / "storage")
    host = Host(Storage(paths, Ledger(paths.ledger, site="s", epoch=1, boot_id="b")), shared)
    host.mount(shared)
    return host


def two_hosts(directory: Path) -> tuple[Host, Host]:
    shared = directory / "shared"
    shared.mkdir()
    one, two = (host_at(directory / name, shared) for name in ("aa", "bb"))
    return one, two


def with_disk(hosts: tuple[Host, Host]) -> tuple[Host, Host]:
    """With a disk that the first host has made, and its image there alone."""
    one, two = hosts
    one.storage.pools.declare(DECLARE)
    one.storage.create_volume(created(one))
    return one, two


def created(host: Host) -> CreateVolume:
    content = b"image" * 1000 + bytes(MIB - 5000)
    digest = sha256(content).hexdigest()
    host.storage.receive_image(digest, "raw", len(content), io.BytesIO(content).read)
    return CreateVolume(vm=VM, volume=DISK, base_sha256=digest, base_format="raw", size_bytes=64 * MIB)


@contextmanager
def written_by_qemu(path: Path) -> Iterator[None]:
    """QEMU has it open for writing, as a VM that runs."""
    process = subprocess.Popen(
        ["qemu-io", "-f", "qcow2", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("write -P 7 0 64k\n")
    process.stdin.flush()
    assert "wrote" in process.stdout.readline()
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(timeout=10)
