# SPDX-License-Identifier: Apache-2.0
"""The small guest image: Debian's kernel, busybox, pciutils, dropbear and e2fsprogs in one initramfs on a bootable
disk."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable
from pathlib import Path

from lab.commands import run
from lab.guest.disk import make_disk
from lab.image.base import Base
from lab.image.cpio import Archive
from lab.image.fingerprint import fingerprint, inputs
from lab.image.modules import modules
from lab.requirements import require_root

_HERE = Path(__file__).parent
_MODULES = [
    "virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ahci", "sr_mod", "isofs", "button", "evdev",
]  # fmt: skip
_PROGRAMS = [
    "usr/bin/lspci", "usr/sbin/dropbear", "usr/bin/dropbearkey", "usr/sbin/mkfs.ext4", "usr/sbin/resize2fs",
]  # fmt: skip
# What a virtual machine can hold; the whole table is a third of the image.
_VENDORS = ("10de", "8086", "1af4", "1b36", "1234", "1013")


def guest_image(base: Base, cache: Path) -> Path:
    """``guest.qcow2`` in the cache; built when its inputs changed (seconds)."""
    key = fingerprint(
        [*inputs(_HERE), *(path for path in inputs(_HERE.parent / "image") if path.suffix == ".py")],
        base.directory.name,
    )
    done = cache / f"guest-{key}"
    if not done.exists():
        require_root("building the guest image")
        part = cache / f"guest-{key}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        disk = make_disk(base, part, base.cloud_kernel.read_bytes(), _system(base), _HERE / "syslinux.cfg")
        for file in part.iterdir():
            if file not in {disk, part / "build.log"}:
                file.unlink()
        part.rename(done)
    stable = cache / "guest.qcow2"
    if not stable.is_symlink() or stable.readlink() != Path(done.name, "guest.qcow2"):
        stable.unlink(missing_ok=True)
        stable.symlink_to(Path(done.name, "guest.qcow2"))
    return stable


def pci_names(text: str, vendors: Iterable[str]) -> str:
    """Of a pci.ids text: the given vendors with their devices, and all classes."""
    kept, keep = [], False
    for line in text.splitlines():
        if line and line[0] not in "#\t":
            keep = line.startswith("C ") or line.split(" ", 1)[0] in vendors
        if keep and line and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def _system(base: Base) -> bytes:
    archive = Archive()
    for directory in ("dev", "proc", "sys", "tmp", "var/run", "run", "etc/dropbear", "usr/bin"):
        archive.directory(directory)
    archive.directory("root", 0o700)
    archive.directory("root/.ssh", 0o700)
    _programs(base, archive)
    archive.file("init", (_HERE / "init").read_bytes(), 0o755)
    archive.file("etc/udhcpc.script", (_HERE / "udhcpc.script").read_bytes(), 0o755)
    # where busybox acpid looks when the power button is pressed
    archive.file("etc/acpi/PWRF/00000080", "#!/bin/sh\nexec busybox poweroff -f\n", 0o755)
    archive.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    archive.file("etc/group", "root:x:0:\n")
    archive.file("etc/shells", "/bin/sh\n")
    archive.file("etc/mke2fs.conf", (base.root / "etc/mke2fs.conf").read_bytes())
    names = (base.root / "usr/share/misc/pci.ids").read_text(errors="replace")
    archive.file("usr/share/misc/pci.ids", pci_names(names, _VENDORS))
    version = base.cloud_kernel.name.removeprefix("vmlinuz-")
    loaded = modules(base.root, version, _MODULES)
    for name, content in loaded:
        archive.file(f"usr/lib/modules/{version}/{name}", content)
    # named in loading order to one modprobe: none of them needs one that is not there yet
    archive.file(f"usr/lib/modules/{version}/modules.dep", "".join(f"{name}:\n" for name, _ in loaded))
    archive.file("modules.list", "".join(f"{name.removesuffix('.ko')}\n" for name, _ in loaded))
    # a BIOS reads slowly, the kernel unpacks fast
    return gzip.compress(archive.pack(), mtime=0)


def _programs(base: Base, archive: Archive) -> None:
    for applet in run([base.root / "usr/bin/busybox", "--list"]).split():
        archive.link(f"bin/{applet}", "busybox")
    archive.file("bin/busybox", (base.root / "usr/bin/busybox").read_bytes(), 0o755)
    loader = base.root / "lib64/ld-linux-x86-64.so.2"
    libraries = base.root / "usr/lib/x86_64-linux-gnu"
    archive.file("lib64/ld-linux-x86-64.so.2", loader.read_bytes(), 0o755)
    for program in _PROGRAMS:
        archive.file(f"usr/bin/{Path(program).name}", (base.root / program).read_bytes(), 0o755)
        for line in run([loader, "--library-path", libraries, "--list", base.root / program]).splitlines():
            words = line.split()
            if len(words) >= 3 and words[1] == "=>" and "/" not in words[0]:
                archive.file(f"usr/lib/x86_64-linux-gnu/{words[0]}", Path(words[2]).read_bytes(), 0o755)
    archive.link("lib", "usr/lib")
