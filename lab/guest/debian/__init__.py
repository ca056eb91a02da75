# SPDX-License-Identifier: Apache-2.0
"""The Debian guest: systemd, sshd, cloud-init and a compiler, as small as they come, to be provisioned by roles."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.commands import run
from lab.guest.disk import make_disk
from lab.image.base import RELEASE, Base, package_names
from lab.image.cpio import Archive
from lab.image.fingerprint import fingerprint, inputs
from lab.image.mirror import find_mirror
from lab.image.modules import modules
from lab.requirements import require_root

_HERE = Path(__file__).parent
_ROOT_DISK = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"]
_LATER = ["virtio_net", "virtio_rng", "ahci", "sr_mod", "isofs", "button"]
"""Those that its udev loads: the guest has no others."""
_ROOT_MIB = 1536


def debian_image(base: Base, cache: Path) -> Path:
    """``guest.qcow2`` in a directory of the cache; built when its inputs changed (a minute or two, needs root)."""
    sources = [*inputs(_HERE), _HERE.parent / "disk.py", *inputs(_HERE.parents[1] / "image" / "root")]
    done = cache / f"debian-{fingerprint(sources, base.directory.name)}"
    if not done.exists():
        require_root("building the Debian guest image")
        part = done.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        root = _system(base, part, cache / "packages")
        disk = part / "root.img"
        with disk.open("wb") as file:
            file.truncate(_ROOT_MIB << 20)
        run(["mkfs.ext4", "-q", "-F", "-L", "guest", "-d", root, disk], log=part / "build.log")
        made = make_disk(base, part, base.kernel.read_bytes(), _first_system(base), _HERE / "syslinux.cfg", root=disk)
        for path in part.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path not in {made, part / "build.log"}:
                path.unlink()
        part.rename(done)
    return done / "guest.qcow2"


def _system(base: Base, part: Path, archives: Path) -> Path:
    """Its root, unpacked. Kernel and headers are those of lab hosts: a mirror may have newer ones by now."""
    root, log, version = part / "root", part / "build.log", base.kernel_version
    archives.mkdir(exist_ok=True)
    packages = ",".join(package_names((_HERE / "packages.txt").read_text()))
    words = ["debootstrap", "--variant=minbase", f"--cache-dir={archives}", f"--include={packages}", RELEASE]
    run([*words, root, find_mirror(os.environ)], log=log)
    for name in (f"linux-headers-{version}", f"linux-headers-{version.removesuffix('-amd64')}-common"):
        shutil.copytree(base.root / "usr/src" / name, root / "usr/src" / name, symlinks=True)
    for kbuild in (base.root / "usr/lib").glob("linux-kbuild-*"):
        shutil.copytree(kbuild, root / "usr/lib" / kbuild.name, symlinks=True)
    there, here = (one / "usr/lib/modules" / version for one in (base.root, root))
    here.mkdir(parents=True)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(there / name, here)
    for name, content in modules(base.root, version, [*_ROOT_DISK, *_LATER]):
        (here / name).write_bytes(content)
    (here / "build").symlink_to(f"/usr/src/linux-headers-{version}")
    shutil.copytree(_HERE.parents[1] / "image/root/etc/ssh", root / "etc/ssh", dirs_exist_ok=True)
    script = root / "configure"
    shutil.copy(_HERE / "configure", script)
    run(["chroot", root, "/configure", version], log=log)
    script.unlink()
    return root


def _first_system(base: Base) -> bytes:
    """What reaches the root disk."""
    archive = Archive()
    for directory in ("dev", "root"):
        archive.directory(directory)
    archive.file("bin/busybox", (base.root / "usr/bin/busybox").read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.file("init", (_HERE / "init").read_bytes(), 0o755)
    loaded = modules(base.root, base.kernel_version, _ROOT_DISK)
    for name, content in loaded:
        archive.file(f"modules/{name}", content)
    archive.file("modules.list", "".join(f"{name}\n" for name, _ in loaded))
    return archive.pack()
