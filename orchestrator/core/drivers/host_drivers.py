# SPDX-License-Identifier: Apache-2.0
"""What of NVIDIA's is put on a host: which of the operator's bundles, and where they lie on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.core.drivers.bundle import TAKEN, BundleFormat, BundleKind, DriverBundle
from orchestrator.core.drivers.lock import KINDS, Component
from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.snapshot import HostSnapshot

_DEB: Final[tuple[BundleFormat, ...]] = ("run", "deb")
_RPM: Final[tuple[BundleFormat, ...]] = ("run", "rpm")
_FORMATS: Final = {"Debian": _DEB, "Ubuntu": _DEB, "Red": _RPM, "Rocky": _RPM, "AlmaLinux": _RPM, "CentOS": _RPM}
"""By the first word of a system's name. Elsewhere only ``.run``."""
_ELSEWHERE: Final[tuple[BundleFormat, ...]] = ("run",)
_PREFERRED: Final[tuple[BundleKind, ...]] = ("vgpu_host", "datacenter")


def begins_anew(snapshot: HostSnapshot) -> bool:
    """Whether what its system needs takes a reboot: it shows no IOMMU, or the open driver has a GPU."""
    return not snapshot.iommu or any(gpu.driver == "nouveau" for gpu in snapshot.gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverFile:
    """A bundle on its way to a host or guest. ``path``: on this machine, its content checked. ``package``: its own
    name."""

    sha256: str
    kind: BundleKind
    version: str
    format: BundleFormat
    path: str
    package: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostDrivers:
    """What a host is to have. ``fabric_manager`` None: it needs none, or nobody brought one."""

    driver: DriverFile
    fabric_manager: DriverFile | None
    base: bool
    """Also what the system needs for it: IOMMU, VFIO, no other driver; the host is rebooted for that."""
    reboot: bool = False
    """The host may be rebooted where the driver cannot be swapped otherwise, and into a newer kernel that waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DueReboot:
    """A host reboots before its driver can be put there. ``boot_id``: of the boot that ends."""

    why: str
    boot_id: str


def choose_bundle(
    bundles: Iterable[DriverBundle],
    component: Component,
    version: str,
    *,
    os_name: str,
    sha256: str | None = None,
) -> DriverBundle:
    """The bundle that such a system takes; of several NVIDIA's vGPU manager before a data-center driver, and the
    newest that was added. ``sha256``: that one and no other.

    :raises NotFound: ``bundle.missing``
    """
    formats = _FORMATS.get(os_name.partition(" ")[0], _ELSEWHERE)
    fitting = [
        bundle
        for bundle in bundles
        if bundle.content.kind in KINDS[component]
        and bundle.content.version == version
        and bundle.content.format in formats
        and bundle.content.architecture in TAKEN
        and sha256 in {None, bundle.sha256}
    ]
    if not fitting:
        named = f" with the digest {sha256[:12]}" if sha256 else ""
        raise NotFound(
            "bundle.missing",
            f"there is no bundle of {component} {version}{named} that {os_name} takes",
            hint=f"'vgpuctl driver bundle add FILE --key KEY' takes yours; {' and '.join(formats)} go onto such a host",
        )
    return min(fitting, key=lambda one: (_rank(one.content.kind), formats.index(one.content.format), -one.created_at))


def _rank(kind: BundleKind) -> int:
    return _PREFERRED.index(kind) if kind in _PREFERRED else len(_PREFERRED)
