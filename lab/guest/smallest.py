# SPDX-License-Identifier: Apache-2.0
"""The smallest guest on a disk of 2 MiB: a boot sector of ours (smallest.S) for BIOS, and the same as a program of UEFI
(smallest_efi.S) in the partition where firmware looks for one. Of the boot sector there is one that counts, too."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.commands import run
from lab.guest.disk import EFI_SYSTEM, SECTOR, partition_table
from lab.image.base import Base
from lab.image.fingerprint import fingerprint
from lab.requirements import require_root

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("smallest.S", "smallest_efi.S", "smallest_common.S"))
_DISK_BYTES = 2 << 20
_START = 64
"""First sector of the partition."""
_TABLE = 446
"""Where a boot sector has its partitions."""
# The base image's assembler, linker and tools for FAT see the build directory as /mnt.
_ASSEMBLE = """
set -e
mount --bind "$1" "$2/mnt"
exec chroot "$2" env -C /mnt MTOOLS_SKIP_CHECK=1 sh -ec '
as --32 -o boot.o smallest.S
ld -m elf_i386 -Ttext 0x7c00 --oformat binary -o smallest.bin boot.o
as --32 --defsym COUNTING=1 -o counting.o smallest.S
ld -m elf_i386 -Ttext 0x7c00 --oformat binary -o counting.bin counting.o
as --64 -o efi.o smallest_efi.S
ld -m elf_x86_64 -Ttext 0 --oformat binary -o efi.bin efi.o
mkfs.vfat -F 12 -n GUEST partition.img >/dev/null
mmd -i partition.img ::/EFI ::/EFI/BOOT
mcopy -i partition.img efi.bin ::/EFI/BOOT/BOOTX64.EFI
'
"""


def smallest_image(base: Base, cache: Path, name: str = "smallest") -> Path:
    """``smallest.qcow2`` or ``counting.qcow2`` in the cache; built when a source or the base image changed."""
    here = Path(__file__)
    key = fingerprint([*_SOURCES, here, here.with_name("disk.py")], base.directory.name)
    done = cache / f"smallest-{key}"
    if not done.exists():
        require_root("building the guest image")
        part = done.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for source in _SOURCES:
            shutil.copy(source, part)
        with (part / "partition.img").open("wb") as file:
            file.truncate(_DISK_BYTES - _START * SECTOR)
        run(["unshare", "--mount", "--propagation", "private", "sh", "-c", _ASSEMBLE, "sh", part, base.root])
        for made in ("smallest", "counting"):
            raw, image = part / "disk.raw", part / f"{made}.qcow2"
            raw.write_bytes(_disk((part / f"{made}.bin").read_bytes(), (part / "partition.img").read_bytes()))
            run([*base.tool("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", raw, image])
        part.rename(done)
    return done / f"{name}.qcow2"


def _disk(boot: bytes, partition: bytes) -> bytes:
    """``boot``: a boot sector that leaves room for the table of partitions."""
    table = partition_table(len(partition) // SECTOR, EFI_SYSTEM, _START)
    return (boot[:_TABLE] + table).ljust(_START * SECTOR, b"\0") + partition
