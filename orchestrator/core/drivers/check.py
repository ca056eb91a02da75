# SPDX-License-Identifier: Apache-2.0
"""What is there against what is locked and what the tables allow. Pure; data, never text for a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.lock import Component, HostLock
from orchestrator.core.drivers.matrix import DriverMatrix, cuda_releases, is_too_old, toolkit_release, version_key
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.snapshot import HostSnapshot

Verdict = Literal["ok", "drift", "forbidden", "unknown"]
"""``drift``: not as it is locked. ``forbidden``: the tables say that it does not work together.
``unknown``: nobody has seen it, or the tables do not know it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedDriver:
    """One thing that was compared. ``subject``: ``host gpu-1``, ``VM default/train``."""

    subject: str
    """What or whom it is about."""
    part: str
    """What was compared."""
    wanted: str | None
    """None: not locked."""
    observed: str | None
    """None: nobody knows."""
    verdict: Verdict
    """How what is there compares with what is locked."""
    reason: str
    """Why, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedGuest:
    """A VM on a host. ``driver``: of its image, as the operator said; None: nobody said."""

    name: str
    driver: str | None


def host_rows(
    name: str, lock: HostLock, snapshot: HostSnapshot | None, matrix: DriverMatrix
) -> Iterator[ComparedDriver]:
    """The host's driver against the lock, its system against the tables."""
    observed = None if snapshot is None else snapshot.driver_version
    wanted = lock.version("host_driver")
    if observed is None:
        why = "nobody has seen it yet" if snapshot is None else "the driver does not answer"
        verdict: Verdict = "unknown" if snapshot is None or wanted is None else "drift"
    elif wanted is None:
        verdict, why = "ok", "no version is locked"
    else:
        verdict = "ok" if observed == wanted else "drift"
        why = f"locked by {lock.group}" + ("" if observed == wanted else _direction(observed, wanted))
    yield ComparedDriver(
        subject=f"host {name}", part="host_driver", wanted=wanted, observed=observed, verdict=verdict, reason=why
    )
    if snapshot is not None:
        yield from _beside_driver(name, lock, snapshot)
        yield _system_row(name, snapshot, matrix)


def _beside_driver(name: str, lock: HostLock, snapshot: HostSnapshot) -> Iterator[ComparedDriver]:
    """Fabric manager and DCGM, where the host has them or is to have them."""
    fabric, driver = snapshot.fabric, snapshot.driver_version
    if fabric is not None and fabric.version is not None and driver is not None and fabric.version != driver:
        yield ComparedDriver(
            subject=f"host {name}", part="fabric_manager", wanted=lock.version("fabric_manager"),
            observed=fabric.version, verdict="forbidden", reason=f"it must have the driver's version, {driver}",
        )  # fmt: skip
    elif fabric is not None:
        yield _part_row(name, lock, "fabric_manager", fabric.version)
    if snapshot.dcgm_version is not None or lock.version("dcgm") is not None:
        yield _part_row(name, lock, "dcgm", snapshot.dcgm_version)


def _part_row(name: str, lock: HostLock, part: Component, observed: str | None) -> ComparedDriver:
    wanted = lock.version(part)
    verdict: Verdict = "unknown" if observed is None else "ok" if wanted in {None, observed} else "drift"
    why = "the host does not tell of any" if observed is None else f"locked by {lock.group}"
    return ComparedDriver(
        subject=f"host {name}", part=part, wanted=wanted, observed=observed, verdict=verdict,
        reason="no version is locked" if observed is not None and wanted is None else why,
    )  # fmt: skip


def _direction(observed: str, wanted: str) -> str:
    try:
        return "; it is newer" if version_key(observed) > version_key(wanted) else "; it is older"
    except InvalidInput:
        return ""


def _system_row(name: str, snapshot: HostSnapshot, matrix: DriverMatrix) -> ComparedDriver:
    """Never a judgement: how vGPUs are offered is probed. It tells whether anybody has written of such a system."""
    system = f"{snapshot.os_name}, kernel {snapshot.kernel}"
    short = snapshot.kernel.split("-")[0]
    for row in matrix.host_systems:
        words = row.name.split(" (")[0].rstrip("+").split()[:2]
        if all(word in snapshot.os_name for word in words) and (row.kernel is None or short.startswith(row.kernel)):
            return ComparedDriver(
                subject=f"host {name}", part="kernel", wanted=None, observed=system, verdict="ok",
                reason=f"it is in the tables as {row.name}" + (f", vGPUs by {row.framework}" if row.framework else ""),
            )  # fmt: skip
    return ComparedDriver(
        subject=f"host {name}", part="kernel", wanted=None, observed=system, verdict="unknown",
        reason="it is not in the tables; how it offers vGPUs is probed on the host",
    )  # fmt: skip


def guest_row(guest: ComparedGuest, lock: HostLock, host_driver: str | None, matrix: DriverMatrix) -> ComparedDriver:
    """A VM's driver against its host's, then against the lock."""
    wanted = lock.version("guest_driver")
    verdict: Verdict = "unknown"
    if guest.driver is None:
        why = "its image's driver is not known ('vgpuctl image guest-driver IMAGE VERSION' says it)"
    elif host_driver is None:
        why = "its host's driver is not known"
    else:
        forbidden = forbidden_pair(matrix, host_driver=host_driver, guest_driver=guest.driver)
        if forbidden is not None:
            verdict, why = "forbidden", forbidden
        else:
            verdict = "ok" if wanted in {None, guest.driver} else "drift"
            why = matrix.guest_verdict(host_driver=host_driver, guest_driver=guest.driver).reason
    return ComparedDriver(
        subject=f"VM {guest.name}", part="guest_driver", wanted=wanted, observed=guest.driver, verdict=verdict,
        reason=why,
    )  # fmt: skip


def tool_rows(name: str, facts: GuestFacts, lock: HostLock, matrix: DriverMatrix) -> Iterator[ComparedDriver]:
    """What roles found in a VM's guest: against the lock, a CUDA toolkit against the guest's driver, too. None of what
    nobody has seen. It is the guest's word: it is told and nothing else."""
    if facts.cuda_toolkit is not None:
        yield _cuda_row(name, facts.cuda_toolkit, facts.driver, lock.version("cuda"), matrix)
    tools: tuple[tuple[Component, str | None], ...] = (
        ("cudnn", facts.cudnn), ("container_toolkit", facts.container_toolkit),
    )  # fmt: skip
    for part, observed in tools:
        if observed is not None:
            wanted = lock.version(part)
            # cuDNN's library tells three numbers of the four that its packages have
            same = wanted is None or f"{wanted}.".startswith(f"{observed}.")
            yield ComparedDriver(
                subject=f"VM {name}", part=part, wanted=wanted, observed=observed, verdict="ok" if same else "drift",
                reason="no version is locked" if wanted is None else f"locked by {lock.group}",
            )  # fmt: skip


def _cuda_row(name: str, observed: str, driver: str | None, wanted: str | None, matrix: DriverMatrix) -> ComparedDriver:
    """``observed``: as nvcc tells it, ``12.8``; ``wanted``: ``12.8 Update 1`` or ``12.8.1``."""
    listed = next((release for release in cuda_releases(matrix) if release.release == observed), None)
    release = listed or next(iter(cuda_releases(matrix, observed)), None)
    verdict: Verdict = "ok" if wanted is None or toolkit_release(wanted) == observed else "drift"
    why = "no version is locked" if wanted is None else "nvcc tells its release"
    if listed is None:
        verdict, why = ("unknown" if verdict == "ok" else verdict), "the tables do not have this release"
    if release is not None and driver is not None and is_too_old(driver, release):
        verdict = "forbidden"
        why = f"it needs driver {release.oldest_driver} or newer and the guest has {driver}"
        why += f" (driver_matrix.csv, row {release.row})"
    return ComparedDriver(
        subject=f"VM {name}", part="cuda", wanted=wanted, observed=observed, verdict=verdict, reason=why
    )  # fmt: skip


def forbidden_pair(matrix: DriverMatrix, *, host_driver: str, guest_driver: str) -> str | None:
    """Why the tables forbid such a guest on such a host, with the row that says so; None: they do not."""
    try:
        verdict = matrix.guest_verdict(host_driver=host_driver, guest_driver=guest_driver)
    except InvalidInput:
        return None
    if not verdict.forbidden:
        return None
    release = matrix.release_of_host_driver(host_driver)
    row = f"row vgpu_release {release.name}" if release else f"rows vgpu_release of R{version_key(host_driver)[0]}"
    return f"{verdict.reason} (driver_matrix.csv, {row})"
