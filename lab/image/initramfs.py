# SPDX-License-Identifier: Apache-2.0
"""What a lab host boots from: a few modules, the root disk, and the files that make the host this one.

The NVIDIA surface and the host's identity travel in the initramfs and are laid over the root at every boot,
so a change of either needs no new disk image.
"""

from __future__ import annotations

from pathlib import Path

from lab.image.base import Base
from lab.image.cpio import Archive
from lab.image.modules import modules

# ext4 asks for crc32c by name, which modules.dep does not tell
_NEEDED = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "qemu_fw_cfg"]
SETTINGS = Path(__file__).parent / "settings"
"""Files for every host whose change does not need a new base image."""
_INIT = (Path(__file__).parent / "init").read_text()


def boot_archive(base: Base) -> bytes:
    """The part all hosts share: busybox, the modules that reach the root disk, the init script."""
    archive = Archive()
    for directory in ("dev", "proc", "sys", "root", "overlay"):
        archive.directory(directory)
    archive.file("bin/busybox", (base.root / "usr/bin/busybox").read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.file("init", _INIT, 0o755)
    loaded = modules(base.root, base.kernel_version, _NEEDED)
    for name, content in loaded:
        archive.file(f"modules/{name}", content)
    archive.file("modules.list", "".join(f"{name}\n" for name, _ in loaded))
    return archive.pack()


def overlay_archive(trees: list[Path], identity: Archive, without: tuple[str, ...] = ()) -> bytes:
    """``trees`` and ``identity`` (paths under ``overlay/``), packed to follow ``boot_archive``.

    ``without``: how the paths end that are left out.
    """
    archive = Archive()
    for tree in trees:
        archive.tree(tree, "overlay", without)
    return archive.pack() + identity.pack()
