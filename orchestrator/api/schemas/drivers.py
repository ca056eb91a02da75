# SPDX-License-Identifier: Apache-2.0
"""Bodies about driver bundles, locked drivers (in the form of the file), and what begins an upgrade."""

from __future__ import annotations

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment, Name
from orchestrator.api.schemas.maintenances import planned
from orchestrator.api.schemas.moves import MAX_BANDWIDTH_MIB
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.drivers.bundle import BundleContent, BundleFormat, BundleKind, DriverBundle, NewBundle
from orchestrator.core.drivers.check import ComparedDriver
from orchestrator.core.drivers.lock import DriverLock, Locked
from orchestrator.core.maintenance.leaving import parse_window
from orchestrator.core.maintenance.maintenance import MAX_LENGTH_S, MAX_REASON, Maintenance, Reboot, UpgradePolicy
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.core.units import MIB
from orchestrator.services.drivers.upgrades import WantedUpgrade


class LockedAnswer(CopiedAnswer, copies=Locked):
    """One version."""


class LockGroupAnswer(AnswerBody):
    """Hosts that differ from the site."""

    name: str
    """What it is called."""
    labels: str
    """Selector of the hosts; the first group that picks a host counts."""
    locked: tuple[LockedAnswer, ...]
    """Versions that it has to have."""


class DriverLockAnswer(AnswerBody):
    """Versions for all hosts, and for groups of them."""

    site: tuple[LockedAnswer, ...]
    """For all hosts."""
    groups: tuple[LockGroupAnswer, ...]
    """Hosts that differ from the site; the first that picks a host counts."""

    @classmethod
    def of(cls, lock: DriverLock) -> DriverLockAnswer:
        return cls(
            site=tuple(map(LockedAnswer.of, lock.site)),
            groups=tuple(
                LockGroupAnswer(
                    name=group.name, labels=group.selector, locked=tuple(map(LockedAnswer.of, group.locked))
                )
                for group in lock.groups
            ),
        )


class DriverRowAnswer(CopiedAnswer, copies=ComparedDriver):
    """One thing that was compared."""


class DriverCheckAnswer(AnswerBody):
    """All that was compared."""

    rows: tuple[DriverRowAnswer, ...]
    """One for each thing that was looked at."""


class AddDriverBundleBody(
    StrictForm,
    example={
        "source": "/srv/NVIDIA-Linux-x86_64-580.65.05-vgpu-kvm.run",
        "signature": "(text of the .asc file)",
        "key": "(text of the signer's key, armored)",
    },
):
    """A signed driver of the operator's."""

    copied_from = (NewBundle,)

    source: str = Field(max_length=4096)
    """Absolute path on the server's machine: .run, .deb or .rpm."""
    signature: str | None = Field(default=None, max_length=6144)
    key: str = Field(max_length=6144)
    sha256: str | None = Field(default=None, max_length=64)

    def wanted(self) -> NewBundle:
        return NewBundle(source=self.source, signature=self.signature, key=self.key, sha256=self.sha256)


class DriverBundleAnswer(AnswerBody):
    """A driver as its file describes itself, checked."""

    copied_from = (
        BundleContent,
        DriverBundle,
    )

    sha256: str
    kind: BundleKind
    package: str
    version: str
    branch: str | None
    """null: it is not of a driver branch."""
    architecture: str
    format: BundleFormat
    size_bytes: int
    key_id: str
    comment: str
    created_at: Moment

    @classmethod
    def of(cls, bundle: DriverBundle) -> DriverBundleAnswer:
        return cls.copied(
            bundle,
            **{
                name: getattr(bundle.content, name) for name in ("kind", "package", "version", "architecture", "format")
            },
        )


class StartDriverUpgradeBody(StrictForm, example={"version": "580.95.02", "max_unavailable": 2}):
    """Which hosts get which driver, and how many at a time."""

    copied_from = (Maintenance,)

    version: str = Field(max_length=40)
    """Of the host driver; its bundle must be there."""
    hosts: tuple[Name, ...] = Field(default=(), max_length=100000, strict=False)
    """Empty: all."""
    policy: UpgradePolicy = "tenant"
    max_unavailable: int = 2
    canary: int = 1
    failure_budget: int = 1
    window: str | None = Field(default=None, max_length=40)
    """Part of each day in which hosts are taken out, in UTC: 22:00-05:00; without it at any time."""
    at: str | None = Field(default=None, max_length=40)
    """No host is taken out before, like 2026-12-01T10:00Z; null: now."""
    length_s: int | None = Field(default=None, ge=60, le=MAX_LENGTH_S)
    """So many seconds after its beginning it is planned to be over."""
    reason: str = Field(default="", max_length=MAX_REASON, pattern=LINE_PATTERN)
    """Why; tenants with VMs there are told."""
    parallel: int = Field(default=4, ge=1, le=64)
    bandwidth_mib: int | None = Field(default=None, ge=1, le=MAX_BANDWIDTH_MIB)
    """MiB a second that each of them takes at most; null: as fast as it goes."""
    reboot: Reboot = "if-needed"
    """if-needed: a host reboots when its driver's module stays in use, or a newer kernel waits; never: it is not."""
    dry_run: bool = False
    """Begin nothing."""

    def to_request(self) -> WantedUpgrade:
        return WantedUpgrade(
            version=self.version,
            hosts=self.hosts,
            policy=self.policy,
            max_unavailable=self.max_unavailable,
            canary=self.canary,
            failure_budget=self.failure_budget,
            reboot=self.reboot,
            window=None if self.window is None else parse_window(self.window),
            when=planned(self.at, self.length_s, self.reason),
            parallel=self.parallel,
            max_bytes_per_s=None if self.bandwidth_mib is None else self.bandwidth_mib * MIB,
        )
