# SPDX-License-Identifier: Apache-2.0
"""Which files processes hold open, read from /proc. Not being able to tell counts as in use (rule of the callers)."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading


def open_below(paths: Paths, *prefixes: str) -> frozenset[str] | None:
    """Open files whose path starts with one of ``prefixes``; None when some process could not be looked at.

    Plain strings: a host has thousands of descriptors, and this is done at every observation and before every removal.
    """
    targets: set[str] = set()
    proc = str(paths.proc)
    try:
        processes = [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return None
    for process in processes:
        try:
            targets.update(_links(f"{proc}/{process}/fd", prefixes))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended meanwhile
        except OSError:
            return None
    return frozenset(targets)


def _links(directory: str, prefixes: tuple[str, ...]) -> list[str]:
    targets = []
    for descriptor in os.listdir(directory):  # noqa: PTH208
        try:
            target = os.readlink(f"{directory}/{descriptor}")  # noqa: PTH115
        except (FileNotFoundError, ProcessLookupError):
            continue
        if target.startswith(prefixes):
            targets.append(target)
    return targets


def holders(paths: Paths, nodes: frozenset[str]) -> tuple[str, ...] | None:
    """``name (pid)`` of every process that has one of these files open; None: could not tell."""
    processes = []
    for process in reading.names(paths.proc):
        if process.isdecimal():
            try:
                held = _links(f"{paths.proc}/{process}/fd", tuple(nodes))
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                return None
            if nodes.intersection(held):
                processes.append(f"{reading.text(paths.proc / process / 'comm') or 'a process'} ({process})")
    return tuple(processes)


def open_vfio_devices(paths: Paths) -> frozenset[str] | None:
    return open_below(paths, "/dev/vfio/")


def vfio_nodes(device: Path) -> frozenset[str]:
    """Device nodes through which a PCI function or mediated device can be opened: its group's and its own."""
    group = reading.link_name(device / "iommu_group")
    own = {f"/dev/vfio/devices/{name}" for name in reading.names(device / "vfio-dev")}
    return frozenset(own if group is None else own | {f"/dev/vfio/{group}"})


def in_use(device: Path, opened: frozenset[str] | None) -> bool | None:
    """Whether a process holds ``device`` open; None: could not tell."""
    if not opened:  # most hosts have hundreds of functions and none that is open
        return None if opened is None else False
    return bool(vfio_nodes(device) & opened)
