# SPDX-License-Identifier: Apache-2.0
"""Mediated devices: types that a PCI function offers, devices that exist.

Layout: Linux Documentation/driver-api/vfio-mediated-device.rst; type directories are named ``nvidia-<type id>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading

_TYPE_DIRECTORY = re.compile(r"nvidia-(?P<id>[0-9]+)", re.ASCII)


@dataclass(frozen=True)
class MdevType:
    """One directory below ``mdev_supported_types``."""

    directory: Path
    type_id: int
    name: str

    def available(self) -> int | None:
        """How many more of it the driver would make here now."""
        return reading.number(self.directory / "available_instances")

    def description(self) -> str:
        """The driver's free text; empty where it has none."""
        return reading.text(self.directory / "description") or ""


@dataclass(frozen=True)
class MdevDevice:
    """One directory below ``/sys/bus/mdev/devices``."""

    uuid: str
    parent: str
    type_name: str
    """Empty while the driver has not come back from making it."""
    directory: Path


def type_id_of(directory_name: str) -> int | None:
    """558 of ``nvidia-558``."""
    match = _TYPE_DIRECTORY.fullmatch(directory_name)
    return None if match is None else int(match["id"])


def _type_name(directory: Path, type_id: int, names: Mapping[int, str]) -> str:
    """The attribute ``name`` is optional: then the driver library's name for the id, then the directory's."""
    return reading.text(directory / "name") or names.get(type_id) or directory.name


def offers_types(paths: Paths, address: str) -> bool:
    return reading.is_there(f"{paths.pci_devices}/{address}/mdev_supported_types")


def types(paths: Paths, address: str, names: Mapping[int, str]) -> tuple[MdevType, ...]:
    """Types of one PCI function. ``names``: type id to name, as far as the driver library knows them."""
    parent = paths.pci(address) / "mdev_supported_types"
    found = []
    for entry in reading.names(parent):
        type_id = type_id_of(entry)
        if type_id is not None:
            found.append(
                MdevType(
                    directory=parent / entry,
                    type_id=type_id,
                    name=_type_name(parent / entry, type_id, names),
                )
            )
    return tuple(found)


def find(paths: Paths, uuid: str, names: Mapping[int, str]) -> MdevDevice | None:
    """The device of this UUID on any parent."""
    link = paths.mdev_devices / uuid
    try:
        directory = link.resolve(strict=True)
    except OSError:
        return None
    type_directory = reading.link_name(directory / "mdev_type") or ""
    type_id = type_id_of(type_directory)
    parent = directory.parent.name
    if type_id is None:
        return MdevDevice(uuid, parent, type_directory, directory)
    type_path = paths.pci(parent) / "mdev_supported_types" / type_directory
    return MdevDevice(uuid, parent, _type_name(type_path, type_id, names), directory)


def existing(paths: Paths, names: Mapping[int, str]) -> tuple[MdevDevice, ...]:
    """All mediated devices of the host."""
    found = [find(paths, uuid, names) for uuid in reading.names(paths.mdev_devices)]
    return tuple(device for device in found if device is not None)
