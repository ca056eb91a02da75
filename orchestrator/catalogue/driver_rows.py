# SPDX-License-Identifier: Apache-2.0
"""driver_matrix.csv: five kinds of rows in one table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from orchestrator.catalogue.tables import TableRow
from orchestrator.core.drivers.matrix import CudaToolkit, DriverBranch, DriverMatrix, HostSystem, VgpuRelease

_LEADING_NUMBER = re.compile(r"[^0-9]*([0-9]+)", re.ASCII)


class DriverRow(TableRow):
    """One row; which fields are filled depends on ``kind``."""

    kind: Literal["vgpu_release", "datacenter_branch", "cuda_toolkit", "cuda_minor_compat", "host_os"]
    name: str
    driver_branch: str | None = None
    host_driver_linux_kvm: str | None = None
    guest_driver_linux: str | None = None
    guest_driver_windows: str | None = None
    release_date: str | None = None
    support_class: str | None = None
    end_of_support: str | None = None
    supported_guest_releases: str | None = None
    cuda_max: str | None = None
    cuda_minor_compat_range: str | None = None
    host_os: str | None = None
    kernel: str | None = None
    vfio_framework: str | None = None
    notes: str = ""
    source: str
    cuda_packaged_driver_linux: str | None = None


def to_matrix(rows: Iterable[DriverRow]) -> DriverMatrix:
    """All rows as the core knows them."""
    by_kind: dict[str, list[DriverRow]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    return DriverMatrix(
        releases=tuple(_release(row) for row in by_kind.get("vgpu_release", [])),
        branches=tuple(_branch(row) for row in by_kind.get("datacenter_branch", [])),
        toolkits=tuple(
            CudaToolkit(name=row.name, packaged_driver=row.cuda_packaged_driver_linux, source=row.source)
            for row in by_kind.get("cuda_toolkit", [])
        ),
        cuda_min_branch=tuple(
            (_number(row.name), _number(row.cuda_minor_compat_range or ""))
            for row in by_kind.get("cuda_minor_compat", [])
        ),
        host_systems=tuple(_host_system(row) for row in by_kind.get("host_os", [])),
    )


def _release(row: DriverRow) -> VgpuRelease:
    guests = row.supported_guest_releases or ""
    return VgpuRelease(
        name=row.name,
        branch=row.driver_branch or "",
        host_driver=row.host_driver_linux_kvm,
        guest_driver_linux=row.guest_driver_linux,
        guest_driver_windows=row.guest_driver_windows,
        release_date=row.release_date,
        end_of_support=row.end_of_support,
        long_term=row.support_class == "LTS",
        guest_releases=tuple(name.strip() for name in guests.split(",") if name.strip()),
        source=row.source,
        notes=row.notes,
    )


def _branch(row: DriverRow) -> DriverBranch:
    return DriverBranch(
        name=row.name,
        support_class=row.support_class,
        end_of_support=row.end_of_support,
        cuda_max=row.cuda_max,
        source=row.source,
    )


def _host_system(row: DriverRow) -> HostSystem:
    return HostSystem(
        name=row.name, kernel=row.kernel, framework=row.vfio_framework, source=row.source, notes=row.notes
    )


def _number(text: str) -> int:
    """13 for ``13.x``, 580 for ``>=580``; 0 when there is none."""
    match = _LEADING_NUMBER.match(text)
    return int(match[1]) if match else 0
