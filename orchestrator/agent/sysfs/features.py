# SPDX-License-Identifier: Apache-2.0
"""What the host's software can give VMs (core/hosts/features.py). It is read at each observation, as packages come and
go while libvirt runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.hosts.features import HostFeature

_DIRECTORIES: Final = ("usr/share/qemu/firmware", "etc/qemu/firmware")
"""A description of a later one replaces one of the same name; an empty one takes it away."""
_PROGRAMS: Final = ("usr/bin", "usr/sbin", "usr/local/bin", "bin")
_SWTPM: Final = ("swtpm", "swtpm_setup", "swtpm_ioctl")
_NOT_OURS: Final = frozenset({"secure-boot", "requires-smm"})


def read(paths: Paths) -> tuple[HostFeature, ...]:
    """Those that it has."""
    return tuple(feature for feature, is_there in _FINDERS.items() if is_there(paths))


def _has_uefi(paths: Paths) -> bool:
    """UEFI firmware without Secure Boot, for x86-64 and the machine type of our VMs, with variables of each VM's own:
    what QEMU's firmware descriptions say, which libvirt chooses from (QEMU docs/interop/firmware.json)."""
    described: dict[str, Path] = {}
    for directory in _DIRECTORIES:
        below = paths.root / directory
        described |= {name: below / name for name in reading.names(below) if name.endswith(".json")}
    return any(_fits(paths, file) for file in described.values())


def _fits(paths: Paths, file: Path) -> bool:
    try:
        told = json.loads(reading.text(file) or "null")
        if "uefi" not in told["interface-types"] or _NOT_OURS.intersection(told.get("features", ())):
            return False
        if not any(_is_target(target) for target in told["targets"]):
            return False
        files = tuple(_files(told["mapping"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return all((paths.root / name.removeprefix("/")).is_file() for name in files)


def _is_target(target: Any) -> bool:
    return target["architecture"] == "x86_64" and any(
        str(machine).startswith("pc-q35") for machine in target["machines"]
    )


def _files(mapping: Any) -> Iterator[str]:
    """Of flash with code and variables apart; firmware in one piece would have no variables that are a VM's."""
    if mapping["device"] != "flash" or mapping.get("mode", "split") != "split":
        raise ValueError(mapping["device"])
    yield str(mapping["executable"]["filename"])
    yield str(mapping["nvram-template"]["filename"])


def _has_tpm(paths: Paths) -> bool:
    """libvirt starts a TPM where it finds these three on its path (virTPMEmulatorInit of src/util/virtpm.c)."""
    return all(any(os.access(paths.root / place / name, os.X_OK) for place in _PROGRAMS) for name in _SWTPM)


_FINDERS: Final[dict[HostFeature, Callable[[Paths], bool]]] = {"uefi": _has_uefi, "tpm": _has_tpm}
