# SPDX-License-Identifier: Apache-2.0
"""The guest's disk: one active FAT partition with syslinux, as a BIOS boots it, made without mounting anything."""

from __future__ import annotations

import struct
from pathlib import Path

from lab.commands import run
from lab.image.base import Base

SECTOR = 512
START = 2048
"""First sector of the partition (1 MiB)."""
_FAT16_LBA = 0x0E
EFI_SYSTEM = 0xEF


def partition_table(sectors: int, kind: int = _FAT16_LBA, start: int = START) -> bytes:
    """The 66 bytes at the end of a master boot record: one active partition of ``sectors`` sectors."""
    # addresses beyond what cylinder/head/sector can say, so that firmware takes the sector numbers
    beyond = b"\xfe\xff\xff"
    entry = struct.pack("<B3sB3sII", 0x80, beyond, kind, beyond, start, sectors)
    return entry + bytes(48) + b"\x55\xaa"


def make_disk(base: Base, directory: Path, kernel: bytes, initrd: bytes, config: str, log: Path) -> Path:
    """``guest.qcow2`` in ``directory``, built with the base image's tools; partition.img is left to the caller."""
    (directory / "vmlinuz").write_bytes(kernel)
    (directory / "initrd").write_bytes(initrd)
    (directory / "syslinux.cfg").write_text(config)
    mib = (len(kernel) + len(initrd) >> 20) + 8
    partition = directory / "partition.img"
    with partition.open("wb") as file:
        file.truncate(mib << 20)
    for argv in (
        ["mkfs.vfat", "-F", "16", "-h", str(START), "-n", "GUEST", "partition.img"],
        ["mcopy", "-i", "partition.img", "vmlinuz", "initrd", "syslinux.cfg", "::/"],
        ["syslinux", "--install", "partition.img"],
    ):
        run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _INSIDE, "sh", directory, base.root, *argv],
            log=log,
        )
    loader = (base.root / "usr/lib/syslinux/mbr/mbr.bin").read_bytes()[:440]
    raw = directory / "guest.raw"
    with raw.open("wb") as file:
        file.write(loader.ljust(446, b"\0") + partition_table((mib << 20) // SECTOR))
        file.seek(START * SECTOR)
        file.write(partition.read_bytes())
    disk = directory / "guest.qcow2"
    run([*base.tool("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", raw, disk], log=log)
    return disk


# The base image's own programs (syslinux wants /proc) see the build directory as /mnt.
_INSIDE = (
    'mount --bind "$1" "$2/mnt" && mount --rbind /dev "$2/dev" && mount -t proc proc "$2/proc" && '
    'root=$2 && shift 2 && exec chroot "$root" env -C /mnt MTOOLS_SKIP_CHECK=1 "$@"'
)
