# SPDX-License-Identifier: Apache-2.0
"""Which files processes hold open, read from /proc. Not being able to tell counts as in use (rule of the callers)."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading


def open_below(paths: Paths, *prefixes: str) -> frozenset[str] | None:
    """Open files whose path starts with one of ``prefixes``; None when some process could not be looked at."""
    found: set[str] = set()
    try:
        processes = [entry.name for entry in paths.proc.iterdir() if entry.name.isdecimal()]
    except OSError:
        return None
    for process in processes:
        descriptors = paths.proc / process / "fd"
        try:
            found.update(_links(descriptors, prefixes))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended meanwhile
        except OSError:
            return None
    return frozenset(found)


def _links(descriptors: Path, prefixes: tuple[str, ...]) -> list[str]:
    found = []
    for descriptor in descriptors.iterdir():
        try:
            target = os.readlink(descriptor)  # noqa: PTH115 - a Path of it would cost more than the call
        except (FileNotFoundError, ProcessLookupError):
            continue
        if target.startswith(prefixes):
            found.append(target)
    return found


def open_vfio_devices(paths: Paths) -> frozenset[str] | None:
    return open_below(paths, "/dev/vfio/")


def vfio_nodes(device: Path) -> frozenset[str]:
    """Device nodes through which a PCI function or mediated device can be opened: its group's and its own."""
    group = reading.link_name(device / "iommu_group")
    own = {f"/dev/vfio/devices/{name}" for name in reading.names(device / "vfio-dev")}
    return frozenset(own if group is None else own | {f"/dev/vfio/{group}"})


def in_use(device: Path, opened: frozenset[str] | None) -> bool | None:
    """Whether a process holds ``device`` open; None: could not tell."""
    if opened is None:
        return None
    return bool(vfio_nodes(device) & opened)
