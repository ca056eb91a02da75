# SPDX-License-Identifier: Apache-2.0
"""The base image: a Debian 13 GPU host without anything of NVIDIA's, built once and kept by the hash of its inputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.commands import run
from lab.errors import LabError
from lab.image.fingerprint import fingerprint, inputs
from lab.image.mirror import find_mirror
from lab.requirements import require_root

_HERE = Path(__file__).parent
RELEASE = "trixie"
DISK_GIB = 24


@dataclass(frozen=True)
class Base:
    """``directory`` holds the unpacked root (tools run out of it) and the disk image made from it."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def disk(self) -> Path:
        return self.directory / "base.img"

    @property
    def kernel(self) -> Path:
        return next(path for path in (self.root / "boot").glob("vmlinuz-*") if "cloud" not in path.name)

    @property
    def cloud_kernel(self) -> Path:
        """Debian's kernel without drivers for real machines: what the guest image boots."""
        return next((self.root / "boot").glob("vmlinuz-*-cloud-*"))

    @property
    def kernel_version(self) -> str:
        return self.kernel.name.removeprefix("vmlinuz-")

    def tool(self, name: str) -> list[str | Path]:
        """Start of an argv that runs a program of the image on this machine: its own loader, its own libraries."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        return [self.root / "lib64/ld-linux-x86-64.so.2", "--library-path", libraries, self.root / "usr/bin" / name]

    def emulator(self) -> list[str | Path]:
        """Start of QEMU's argv: the image's own QEMU and firmware."""
        firmware: list[str | Path] = ["-L", self.root / "usr/share/qemu", "-L", self.root / "usr/share/seabios"]
        return [*self.tool("qemu-system-x86_64"), *firmware]


def package_names(text: str) -> list[str]:
    """Names in a package list: one a line, ``#`` starts a comment."""
    words = (line.split("#")[0].strip() for line in text.splitlines())
    return [word for word in words if word]


def base(cache: Path, say: Callable[[str], None]) -> Base:
    """The base image for this version of the lab; builds it when the cache has none (minutes, needs root)."""
    key = fingerprint([_HERE / "packages.txt", _HERE / "configure", *inputs(_HERE / "root")], RELEASE, str(DISK_GIB))
    done = cache / f"base-{key}"
    if not done.exists():
        require_root("building the lab image")
        part = cache / f"base-{key}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        say(f"building the Debian {RELEASE} image (once, some minutes; log: {part / 'build.log'})")
        _build(part, cache)
        part.rename(done)
    return Base(done)


def _build(part: Path, cache: Path) -> None:
    log, root = part / "build.log", part / "root"
    mirror = find_mirror(os.environ)
    packages = package_names((_HERE / "packages.txt").read_text())
    archives = cache / "packages"
    archives.mkdir(exist_ok=True)
    run(
        ["debootstrap", "--variant=minbase", f"--cache-dir={archives}", f"--include={','.join(packages)}",
         RELEASE, root, mirror],
        log=log,
        # the hosts boot from an initramfs of our own
        env={**os.environ, "INITRD": "No"},
    )  # fmt: skip
    _configure(root, log)
    _make_disk(root, part / "base.img", log)


def _configure(root: Path, log: Path) -> None:
    shutil.copytree(_HERE / "root", root, dirs_exist_ok=True)
    script = root / "configure"
    shutil.copy(_HERE / "configure", script)
    run(["chroot", root, "/configure"], log=log)
    script.unlink()
    for directory in ("proc", "sys", "mnt"):
        if any((root / directory).iterdir()):
            raise LabError(f"{root / directory} is not empty", "something is still mounted there: unmount it")


def _make_disk(root: Path, disk: Path, log: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(DISK_GIB << 30)
    run(
        ["mkfs.ext4", "-q", "-F", "-L", "lab", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", root, disk],
        log=log,
    )
