# SPDX-License-Identifier: Apache-2.0
"""The files that drivers are installed from. An operator brings them; vgpuctl ships none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.bundle import DriverBundle, NewBundle
from orchestrator.core.drivers.lock import digests_of
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.names import check_sha256
from orchestrator.ports.clock import Clock
from orchestrator.ports.files import BundleFiles
from orchestrator.services.acting import actor
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_OF_A_RELEASE: Final = frozenset({"vgpu_host", "vgpu_guest"})
"""Kinds that come with a release of the vGPU software."""
_SWAPS: Final = frozenset({"provision_host", "upgrade_driver"})


@dataclass(frozen=True, kw_only=True)
class DriverBundleService:
    """Add, look, remove."""

    store: Store
    files: BundleFiles
    clock: Clock

    def add(self, wanted: NewBundle) -> DriverBundle:
        """The same again is fine.

        :raises InvalidInput: ``bundle.…``: nothing is kept of the file
        """
        check_sha256(wanted.sha256, "bundle.digest_invalid")
        with self.files.take(wanted, self.clock.now()) as taken, self.store.begin() as tx:
            bundle = taken.described
            known = tx.driver_bundles.find(bundle.sha256)
            if known is None and not _branch_is_known(bundle):
                raise InvalidInput(
                    "bundle.unknown_branch",
                    f"driver {bundle.content.version} is of branch {bundle.branch}, which no known vGPU release has",
                    hint="a newer vgpuctl may know it; its tables are vgpu_profiles/nvidia/driver_matrix.csv",
                )
            taken.keep()
            if known is None:
                tx.driver_bundles.add(bundle)
                self._note(tx, "add_driver_bundle", bundle.sha256)
        return known or bundle

    def list(self) -> tuple[DriverBundle, ...]:
        """By kind and version."""
        with self.store.read() as tx:
            return tx.driver_bundles.list()

    def get(self, sha256: str) -> DriverBundle:
        """:raises NotFound: ``bundle.unknown``"""
        with self.store.read() as tx:
            bundle = tx.driver_bundles.find(sha256)
        if bundle is None:
            raise _unknown(sha256)
        return bundle

    def remove(self, sha256: str) -> None:
        """:raises NotFound: ``bundle.unknown``; :raises Conflict: ``bundle.locked``, ``bundle.in_use``"""
        with self.store.begin() as tx:
            if tx.driver_bundles.find(sha256) is None:
                raise _unknown(sha256)
            lock = tx.driver_locks.get()
            if lock is not None and sha256 in digests_of(lock):
                raise Conflict(
                    "bundle.locked",
                    f"the lock names driver bundle {sha256[:12]}",
                    hint="take its digest out of the lock first: 'vgpuctl driver lock apply FILE'",
                )
            if any(operation.kind in _SWAPS for operation in tx.operations.list(unfinished=True)) or any(
                maintenance.act == "upgrade" for maintenance in tx.maintenances.active()
            ):
                raise Conflict(
                    "bundle.in_use",
                    "hosts are getting their drivers, and may need any bundle to go back",
                    hint="'vgpuctl maintenance list' and 'vgpuctl operation list --active' show them",
                )
            tx.driver_bundles.remove(sha256)
            self._note(tx, "remove_driver_bundle", sha256)
        with self.store.begin() as tx:  # once that is certain: it may have been added again by now
            if tx.driver_bundles.find(sha256) is None:
                self.files.remove(sha256)

    def _note(self, tx: Transaction, action: str, subject: str) -> None:
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome="done")


def _branch_is_known(bundle: DriverBundle) -> bool:
    """Of a driver that nobody can judge nothing may be made. Data-centre drivers stand in no vGPU release."""
    releases = shipped_profiles().catalogue.driver_matrix.releases
    return bundle.content.kind not in _OF_A_RELEASE or bundle.branch in {release.branch for release in releases}


def _unknown(sha256: str) -> NotFound:
    return NotFound(
        "bundle.unknown",
        f"no driver bundle has the digest {sha256[:64]!a}",
        hint="'vgpuctl driver bundle list' shows them",
    )
