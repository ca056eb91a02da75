# SPDX-License-Identifier: Apache-2.0
"""Releases of the CUDA toolkit as packages are named by, and the oldest driver that each takes by the tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.core.drivers.matrix import CudaToolkit, DriverMatrix, version_key
from orchestrator.core.errors import Conflict, InvalidInput

_NAME: Final = re.compile(r"(?P<release>[0-9]+\.[0-9]+)(?: (?:GA|Update (?P<update>[0-9]+)))?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease:
    """``release``: ``12.8`` or, of one that is meant exactly, ``12.8.1``. ``row``: of the table that says so."""

    release: str
    oldest_driver: str
    row: str


def cuda_releases(matrix: DriverMatrix, locked: str | None = None) -> tuple[CudaRelease, ...]:
    """All that the tables know, newest first; or only the locked one. One that they do not know takes any driver that
    its major takes."""
    if locked is not None:
        unknown = CudaToolkit(name=locked, packaged_driver="0", source="")
        toolkit = next((toolkit for toolkit in matrix.toolkits if toolkit.name == locked), unknown)
        release = _release(matrix, toolkit, True)
        return () if release is None else (release,)
    known = [release for toolkit in matrix.toolkits if (release := _release(matrix, toolkit, False))]
    each = {release.release: release for release in known}
    return tuple(sorted(each.values(), key=lambda one: [int(part) for part in one.release.split(".")], reverse=True))


def check_cuda(matrix: DriverMatrix, *, driver: str, toolkit: str | None) -> None:
    """Whether a toolkit, or any where none is named, goes with a driver.

    :raises Conflict: ``guest.cuda_forbidden``, naming the table's row
    """
    releases = cuda_releases(matrix, toolkit)
    if releases and all(version_key(driver) < _key(release.oldest_driver) for release in releases):
        last = releases[-1]
        raise Conflict(
            "guest.cuda_forbidden",
            f"CUDA {last.release} needs driver {last.oldest_driver} or newer and the guest is to get {driver}"
            f" (driver_matrix.csv, row {last.row})",
            hint="lock an older cuda or a newer guest_driver: 'vgpuctl driver lock show' has both",
        )


def is_too_old(driver: str, release: CudaRelease) -> bool:
    """Whether the tables forbid it; a driver whose version nobody can read is not judged."""
    try:
        return version_key(driver) < _key(release.oldest_driver)
    except InvalidInput:
        return False


def _release(matrix: DriverMatrix, toolkit: CudaToolkit, exactly: bool) -> CudaRelease | None:
    """None: no table says which drivers it takes."""
    named = _NAME.fullmatch(toolkit.name)
    exact = (
        toolkit.name if named is None or named[0] == named["release"] else f"{named['release']}.{named['update'] or 0}"
    )
    release = exact if exactly else ".".join(exact.split(".")[:2])
    oldest = dict(matrix.cuda_min_branch).get(toolkit.major)
    if oldest is not None:
        return CudaRelease(release=release, oldest_driver=str(oldest), row=f"cuda_minor_compat {toolkit.major}.x")
    if toolkit.packaged_driver is None:
        return None
    return CudaRelease(release=release, oldest_driver=toolkit.packaged_driver, row=f"cuda_toolkit {toolkit.name}")


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
