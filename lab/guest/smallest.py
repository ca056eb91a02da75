# SPDX-License-Identifier: Apache-2.0
"""The smallest guest: one boot sector of ours (smallest.S) on a disk of 1 MiB."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.commands import run
from lab.image.base import Base
from lab.image.fingerprint import fingerprint
from lab.requirements import require_root

_SOURCE = Path(__file__).with_name("smallest.S")
_DISK_BYTES = 1 << 20
# The base image's assembler and linker see the build directory as /mnt.
_ASSEMBLE = (
    'mount --bind "$1" "$2/mnt" && exec chroot "$2" sh -c "as --32 -o /mnt/boot.o /mnt/smallest.S && '
    'ld -m elf_i386 -Ttext 0x7c00 --oformat binary -o /mnt/boot.bin /mnt/boot.o"'
)


def smallest_image(base: Base, cache: Path) -> Path:
    """``smallest.qcow2`` in the cache; built when the source or the base image changed (a second)."""
    done = cache / f"smallest-{fingerprint([_SOURCE, Path(__file__)], base.directory.name)}"
    if not done.exists():
        require_root("building the guest image")
        part = done.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        shutil.copy(_SOURCE, part)
        run(["unshare", "--mount", "--propagation", "private", "sh", "-c", _ASSEMBLE, "sh", part, base.root])
        (part / "disk.raw").write_bytes((part / "boot.bin").read_bytes().ljust(_DISK_BYTES, b"\0"))
        run([*base.tool("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", part / "disk.raw", part / "smallest.qcow2"])
        part.rename(done)
    return done / "smallest.qcow2"
