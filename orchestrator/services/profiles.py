# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.ports.store.transaction import Store, Transaction
from orchestrator.services.fleet_view import Overcommit, fleet_of
from orchestrator.services.gpus import free_places
from orchestrator.services.messages import ProfileInfo
from orchestrator.services.offerings import KnownProfiles


@dataclass(frozen=True, kw_only=True)
class ProfileService:
    store: Store
    overcommit: Overcommit

    def get(self, name: str) -> ProfileInfo:
        """:raises InvalidInput: ``profile.unknown`` with near names"""
        with self.store.read() as tx:
            return self._infos(tx, [name], KnownProfiles.of(tx))[0]

    def _infos(self, tx: Transaction, names: Sequence[str], known: KnownProfiles) -> tuple[ProfileInfo, ...]:
        fleet = fleet_of(tx, self.overcommit)
        infos = []
        for name in names:
            offering = known.resolve(name)
            wanted = offering.vgpu_type or ""
            hosts = [host for host in fleet if any(gpu.geometry.supports(wanted) for gpu in host.gpus)]
            free = sum(
                free_places(gpu, wanted) for host in hosts if not host.cordoned for gpu in host.gpus if gpu.usable
            )
            infos.append(ProfileInfo(offering=offering, hosts=tuple(host.name for host in hosts), free=free))
        return tuple(infos)

    def list(self) -> tuple[ProfileInfo, ...]:
        """Offerings, and vGPU types that some host offers now."""
        with self.store.read() as tx:
            known = KnownProfiles.of(tx)
            names = [offering.name for offering in known.offerings]
            return self._infos(tx, [*sorted(names), *sorted(known.types - set(names))], known)
