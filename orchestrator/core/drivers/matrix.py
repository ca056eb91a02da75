# SPDX-License-Identifier: Apache-2.0
"""Which drivers go together: vGPU host and guest releases, CUDA toolkits, host systems.

The tables stop where their sources stop. Beyond them NVIDIA's rule applies (vGPU 19 release notes, "Guest VM drivers"):
a host takes guests of its own branch and of the one before, and a host of a long-term support branch also those of the
long-term support branch before it. The driver's own answer (``nvmlGetVgpuCompatibility``) overrides both.
Releases of the CUDA toolkit are those that packages are named by, with the oldest driver that each takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput

_VERSION = re.compile(r"[0-9]{2,4}(?:\.[0-9]{1,4}){1,2}", re.ASCII)
_TOOLKIT = re.compile(r"(?P<release>[0-9]{1,3}\.[0-9]{1,4})(?:\.[0-9]{1,4}| GA| Update [0-9]{1,2})?", re.ASCII)
_LEADING = re.compile(r"[0-9]{0,4}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class VgpuRelease:
    """One release of the vGPU software, e.g. 19.1. None means unknown."""

    name: str
    branch: str
    """``R580``"""
    host_driver: str | None
    guest_driver_linux: str | None
    guest_driver_windows: str | None
    release_date: str | None
    end_of_support: str | None
    long_term: bool
    guest_releases: tuple[str, ...]
    """Guest releases that a published table lists; empty: no table, the rule decides."""
    source: str
    notes: str

    @property
    def major(self) -> int:
        """19 for 19.1"""
        return int(self.name.split(".")[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverBranch:
    """A data-centre driver branch and the end of its support."""

    name: str
    support_class: str | None
    end_of_support: str | None
    cuda_max: str | None
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaToolkit:
    """A CUDA toolkit and the driver that came with it."""

    name: str
    packaged_driver: str | None
    source: str

    @property
    def major(self) -> int:
        """13 for ``13.0 Update 2``; 0 for what begins with no number."""
        match = _LEADING.match(self.name)
        return int(match[0]) if match and match[0] else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSystem:
    """A host operating system and how vGPUs were seen to be offered on it. Never decide by it: probe."""

    name: str
    kernel: str | None
    framework: str | None
    source: str
    notes: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GuestVerdict:
    """Whether a guest driver works on a host driver, and how that is known."""

    accepted: bool
    basis: Literal["table", "branch_rule", "unknown_driver"]
    reason: str

    @property
    def forbidden(self) -> bool:
        """Whether the tables speak against it; what they do not know they do not forbid."""
        return not self.accepted and self.basis != "unknown_driver"


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverMatrix:
    """All of it. ``cuda_min_branch`` maps a CUDA major to the oldest branch that its minor releases take."""

    releases: tuple[VgpuRelease, ...]
    branches: tuple[DriverBranch, ...]
    toolkits: tuple[CudaToolkit, ...]
    cuda_min_branch: tuple[tuple[int, int], ...]
    host_systems: tuple[HostSystem, ...]

    def release_of_host_driver(self, version: str) -> VgpuRelease | None:
        """The release whose host driver this is; of two with one driver, the later."""
        releases = [r for r in self.releases if r.host_driver == version]
        return max(releases, key=lambda r: _release_key(r.name), default=None)

    def release_of_guest_driver(self, version: str) -> VgpuRelease | None:
        """The release whose Linux or Windows guest driver this is."""
        releases = [r for r in self.releases if version in (r.guest_driver_linux, r.guest_driver_windows)]
        return max(releases, key=lambda r: _release_key(r.name), default=None)

    def guest_verdict(self, *, host_driver: str, guest_driver: str) -> GuestVerdict:
        """Whether a Linux guest with ``guest_driver`` may run on a host with ``host_driver``."""
        host_major = self._major(host_driver)
        guest_major = self._major(guest_driver)
        if host_major is None or guest_major is None:
            stranger = host_driver if host_major is None else guest_driver
            return GuestVerdict(
                accepted=False,
                basis="unknown_driver",
                reason=f"driver {stranger} is of no vGPU branch that the tables know",
            )
        host, guest = self.release_of_host_driver(host_driver), self.release_of_guest_driver(guest_driver)
        if host and guest and guest.name in host.guest_releases:
            return GuestVerdict(accepted=True, basis="table", reason=f"vGPU {host.name} lists guests of {guest.name}")
        before = self._long_term_before(host_major)
        rule = "only its own branch and the one before"
        if before is not None:
            rule = f"only its own branch, the one before and the long-term branch before, vGPU {before}"
        accepted = guest_major in (host_major, host_major - 1, before)
        verb = "takes" if accepted else "does not take"
        return GuestVerdict(
            accepted=accepted,
            basis="branch_rule",
            reason=f"a host of vGPU {host_major} {verb} guests of vGPU {guest_major}: {rule}",
        )

    def _long_term_before(self, major: int) -> int | None:
        """16 for 19: the long-term support branch before a long-term support branch; None for any other branch."""
        long_term = {release.major for release in self.releases if release.long_term}
        return max((m for m in long_term if m < major), default=None) if major in long_term else None

    def _major(self, version: str) -> int | None:
        branch = f"R{branch_number(version)}"
        return next((r.major for r in self.releases if r.branch == branch), None)

    def cuda_supported(self, *, driver: str, toolkit: str) -> bool | None:
        """Whether programs of a toolkit run on a driver without a compatibility package; None: unknown. What is known
        of a major holds for all of its releases."""
        unlisted = CudaToolkit(name=toolkit, packaged_driver=None, source="")
        entry = next((t for t in self.toolkits if t.name == toolkit), unlisted)
        oldest = dict(self.cuda_min_branch).get(entry.major)
        if oldest is not None:
            return branch_number(driver) >= oldest
        if entry.packaged_driver is None:
            return None
        return version_key(driver) >= version_key(entry.packaged_driver)


def version_key(version: str) -> tuple[int, ...]:
    """``580.65.06`` as (580, 65, 6), for comparing.

    :raises InvalidInput: ``driver.version_invalid``
    """
    if _VERSION.fullmatch(version) is None:
        raise InvalidInput(
            "driver.version_invalid",
            f"{version[:40]!a} is not a driver version",
            hint="write it like 580.65.06",
        )
    return tuple(int(part) for part in version.split("."))


def toolkit_release(name: str) -> str | None:
    """``13.0`` of ``13.0 Update 2``, as the tables name it, and of ``13.0.2``, as its packages do; None: it is none."""
    match = _TOOLKIT.fullmatch(name)
    return None if match is None else match["release"]


def branch_number(version: str) -> int:
    """580 for ``580.65.06``.

    :raises InvalidInput: ``driver.version_invalid``
    """
    return version_key(version)[0]


def _release_key(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))


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
