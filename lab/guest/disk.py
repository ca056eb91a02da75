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
_LINUX = 0x83
EFI_SYSTEM = 0xEF


def partition_table(sectors: int, kind: int = _FAT16_LBA, start: int = START, behind: int = 0) -> bytes:
    """The 66 bytes at the end of a master boot record: one active partition of ``sectors`` sectors, and of Linux'
    ``behind`` of them right behind it."""
    # addresses beyond what cylinder/head/sector can say, so that firmware takes the sector numbers
    beyond = b"\xfe\xff\xff"
    entry = struct.pack("<B3sB3sII", 0x80, beyond, kind, beyond, start, sectors)
    if behind:
        entry += struct.pack("<B3sB3sII", 0, beyond, _LINUX, beyond, start + sectors, behind)
    return entry.ljust(64, b"\0") + b"\x55\xaa"


def make_disk(
    base: Base, directory: Path, kernel: bytes, initrd: bytes, config: Path, root: Path | None = None
) -> Path:
    """``guest.qcow2`` in ``directory``, built with the base image's tools; partition.img is left to the caller.

    ``root``: an image of a file system that becomes the second partition.
    """
    log = directory / "build.log"
    (directory / "vmlinuz").write_bytes(kernel)
    (directory / "initrd").write_bytes(initrd)
    (directory / "syslinux.cfg").write_bytes(config.read_bytes())
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
        behind = 0 if root is None else root.stat().st_size // SECTOR
        file.write(loader.ljust(446, b"\0") + partition_table((mib << 20) // SECTOR, behind=behind))
        file.seek(START * SECTOR)
        file.write(partition.read_bytes())
        if root is not None:
            file.seek(START * SECTOR + (mib << 20))
            file.write(root.read_bytes())
    disk = directory / "guest.qcow2"
    packed = [] if root is None else ["-c", "-o", "compression_type=zstd"]
    run([*base.tool("qemu-img"), "convert", *packed, "-f", "raw", "-O", "qcow2", raw, disk], log=log)
    return disk


# The base image's own programs (syslinux wants /proc) see the build directory as /mnt.
_INSIDE = (
    'mount --bind "$1" "$2/mnt" && mount --rbind /dev "$2/dev" && mount -t proc proc "$2/proc" && '
    'root=$2 && shift 2 && exec chroot "$root" env -C /mnt MTOOLS_SKIP_CHECK=1 "$@"'
)
