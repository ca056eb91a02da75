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

_ENABLED = [
    "systemd-networkd.service",
    "ssh.service",
    "libvirtd.service",
    "virtlogd.socket",
    "serial-getty@ttyS0.service",
]
# Nothing in a lab host needs these, and under emulation each costs up to a second of every boot.
_MASKED = [
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "getty@tty1.service", "libvirt-guests.service", "systemd-networkd-wait-online.service",
    "systemd-timesyncd.service", "systemd-hwdb-update.service", "systemd-journal-catalog-update.service",
    "systemd-update-done.service", "systemd-firstboot.service", "systemd-pstore.service", "ldconfig.service",
    "systemd-sysusers.service", "systemd-logind.service", "sys-kernel-tracing.mount", "sys-kernel-debug.mount",
    "modprobe@drm.service", "modprobe@configfs.service", "modprobe@fuse.service", "tmp.mount",
    "systemd-network-generator.service", "systemd-remount-fs.service", "systemd-ask-password-console.path", "systemd-ask-password-wall.path",
]  # fmt: skip


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
        return next((self.root / "boot").glob("vmlinuz-*"))

    @property
    def kernel_version(self) -> str:
        return self.kernel.name.removeprefix("vmlinuz-")

    def tool(self, name: str) -> list[str | Path]:
        """Start of an argv that runs a program of the image on this machine: its own loader, its own libraries."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        return [self.root / "lib64/ld-linux-x86-64.so.2", "--library-path", libraries, self.root / "usr/bin" / name]


def package_names(text: str) -> list[str]:
    """Names in a package list: one a line, ``#`` starts a comment."""
    words = (line.split("#")[0].strip() for line in text.splitlines())
    return [word for word in words if word]


def base(cache: Path, say: Callable[[str], None]) -> Base:
    """The base image for this version of the lab; builds it when the cache has none (minutes, needs root)."""
    key = fingerprint([Path(__file__), _HERE / "packages.txt", *inputs(_HERE / "root")], RELEASE)
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
    )  # fmt: skip
    _configure(root, log)
    _make_disk(root, part / "base.img", log)


def _configure(root: Path, log: Path) -> None:
    shutil.copytree(_HERE / "root", root, dirs_exist_ok=True)
    run(["chroot", root, "systemctl", "enable", *_ENABLED], log=log)
    run(["chroot", root, "systemctl", "mask", *_MASKED], log=log)
    run(["chroot", root, "systemctl", "set-default", "multi-user.target"], log=log)
    autostart = root / "etc/libvirt/qemu/networks/autostart/default.xml"
    autostart.parent.mkdir(parents=True, exist_ok=True)
    autostart.unlink(missing_ok=True)
    autostart.symlink_to("/etc/libvirt/qemu/networks/default.xml")
    (root / "etc/default/libvirtd").write_text('LIBVIRTD_ARGS=""\n')
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/fstab").write_text("")
    # a login must not start a user manager: it costs seconds of every ssh under emulation
    sessions = root / "etc/pam.d/common-session"
    sessions.write_text("".join(line for line in sessions.open() if "pam_systemd.so" not in line))
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for leftover in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / leftover, ignore_errors=True)
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
