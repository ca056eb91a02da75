# SPDX-License-Identifier: Apache-2.0
"""What this machine must have; each lack is one line that says what to do."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.errors import LabError

_PACKAGE_OF = {
    "debootstrap": "debootstrap",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
}
BUILD_DISK_MIB = 6 * 1024


def require_root(what: str, euid: int | None = None) -> None:
    if (os.geteuid() if euid is None else euid) != 0:
        raise LabError(f"{what} needs root", "run the same command with sudo")


def require_programs(which: Mapping[str, str | None] | None = None) -> None:
    path = "/usr/sbin:/sbin:" + os.environ.get("PATH", "")
    found = which if which is not None else {name: shutil.which(name, path=path) for name in _PACKAGE_OF}
    missing = sorted({package for name, package in _PACKAGE_OF.items() if not found.get(name)})
    if missing:
        raise LabError(f"missing packages: {' '.join(missing)}", f"apt-get install {' '.join(missing)}")


def available_memory_mib(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo in MiB."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) // 1024


def require_memory(wanted_mib: int, available_mib: int) -> None:
    """Lab hosts touch their memory as VMs run in them, so all of it must be there at the start."""
    if wanted_mib > available_mib:
        raise LabError(
            f"the hosts want {wanted_mib} MiB of memory, {available_mib} MiB are free",
            "bring up fewer hosts, or give them a smaller memory_mib in the scenario",
        )


def require_disk(directory: Path, wanted_mib: int) -> None:
    there = next(path for path in [directory, *directory.parents] if path.exists())
    free_mib = shutil.disk_usage(there).free >> 20
    if free_mib < wanted_mib:
        raise LabError(
            f"{there} has {free_mib} MiB free, the lab wants {wanted_mib} MiB",
            "free some space, or point LAB_CACHE and LAB_STATE elsewhere",
        )


def require_free_ports(ports: Iterable[int]) -> None:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise LabError(
                    f"port {port} on 127.0.0.1 is taken", "give the host another ssh_port in the scenario"
                ) from error
