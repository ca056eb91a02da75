# SPDX-License-Identifier: Apache-2.0
"""VMs whose memory is on their host's disk: room for it is claimed with the VM's disk, and what they ran on is kept."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import delete, insert, select, update

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.vms.claim import Claim
from orchestrator.store.records import ClaimLost
from orchestrator.store.snapshots import facts_from_text, facts_text
from orchestrator.store.statements import Statements
from orchestrator.store.tables import host_claims, suspended_vms
from orchestrator.store.usage import ANY, Usage
from orchestrator.store.vms import Claims, Vms


class SuspendedVms:
    """Of one transaction."""

    def __init__(self, db: Statements, usage: Usage, vms: Vms, claims: Claims) -> None:
        self._db, self._usage, self._vms, self._claims = db, usage, vms, claims

    def begin(self, vm_id: str, facts: HostFacts, size_bytes: int, disk_bytes: int) -> None:
        """It is suspended, or is going to be. ``facts``: of its host now; ``size_bytes``: what the file may come to;
        ``disk_bytes``: the most that is claimed of its host's disk.

        :raises ClaimLost: so much is not left there"""
        vm, claim = self._vms.find_id(vm_id), self._claims.find(vm_id)
        if vm is None or claim is None:
            raise ClaimLost(f"VM {vm_id} has no place")
        own = tuple(gpu for gpu in facts.gpus if gpu.address in {device.gpu for device in vm.devices})
        kept = replace(facts, gpus=own, nodes=(), nics=(), bridges=(), fabric=None, features=())
        self._resize(claim, size_bytes - (vm.suspended_bytes or 0), disk_bytes)
        self._db.execute(delete(suspended_vms).where(suspended_vms.c.vm == vm_id))
        self._db.execute(insert(suspended_vms).values(vm=vm_id, facts=facts_text(kept)))
        self._vms.change(vm_id, suspended_bytes=size_bytes)

    def end(self, vm_id: str) -> None:
        """It runs, or nothing of its memory is left. So already is fine."""
        if not self._db.execute(delete(suspended_vms).where(suspended_vms.c.vm == vm_id)).rowcount:
            return
        vm, claim = self._vms.find_id(vm_id), self._claims.find(vm_id)
        if vm is not None and vm.suspended_bytes is not None:
            if claim is not None:
                self._resize(claim, -vm.suspended_bytes, ANY)
            self._vms.change(vm_id, suspended_bytes=None)

    def facts(self, vm_id: str) -> HostFacts | None:
        """What it ran on. None: it is not suspended."""
        row = self._db.execute(select(suspended_vms.c.facts).where(suspended_vms.c.vm == vm_id)).one_or_none()
        return None if row is None else facts_from_text(row.facts, 0)

    def _resize(self, claim: Claim, more_bytes: int, disk_bytes: int) -> None:
        wanted = replace(claim, disk_bytes=claim.disk_bytes + more_bytes)
        if not self._usage.take_disk(wanted, disk_bytes):
            raise ClaimLost(f"{claim.host} has too little disk left for the memory of VM {claim.vm}")
        its = update(host_claims).where(host_claims.c.vm == claim.vm)
        self._db.execute(its.values(disk_bytes=wanted.disk_bytes))
