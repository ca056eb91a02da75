# SPDX-License-Identifier: Apache-2.0
"""A domain that somebody else made becomes a VM of ours: checks, claim and operation in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.attachments.host_facts import facts_of
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.domain import DiskLimits, MadeAs
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot
from orchestrator.core.hosts.volume_key import is_encrypted
from orchestrator.core.names import check_name
from orchestrator.core.vms.adoption import check_free, devices_of, find_domain, places_of
from orchestrator.core.vms.claim import Claim, HostCapacity
from orchestrator.core.vms.vm import MIN_DISK_BYTES, Vm, VmSpec
from orchestrator.core.vms.volume import Volume, file_of, id_of, reader_found, short_of
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.ports.host import HostLink
from orchestrator.services.begin import held_by, new_operation, record, running_operation
from orchestrator.services.fleet.sharing import in_its_instances
from orchestrator.services.fleet.view import Overcommit, capacity_of
from orchestrator.services.messages import AdoptVm, Started
from orchestrator.services.tenancy.quotas import within_quota
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class AdoptionService:
    """Nothing that runs is changed: what is written is the claim, the VM, and the host's ledger."""

    store: Store
    link: HostLink
    engine: Engine
    overcommit: Overcommit
    clock: Clock
    ids: Ids

    def adopt(self, request: AdoptVm) -> Started:
        """The same request again is answered with what it started before. A domain that we made for a VM that the
        database does not know, as after a restore, becomes that VM again, with its own name.

        :raises NotFound: ``host.unknown``, ``tenant.unknown``, ``domain.unknown``
        :raises Conflict: ``host.not_ready``, ``domain.ours``, ``vm.exists``, and those of core/vms/adoption.py
        :raises NoCapacity: ``gpu.no_capacity``, ``host.no_capacity``
        :raises QuotaExceeded: ``quota.exceeded``
        """
        check_name(request.host, what="host")
        check_name(request.tenant, what="tenant")
        if request.name is not None:
            check_name(request.name, what="vm")
        made = self._made_as(request)
        if made is not None:
            request = self._as_it_was(request, made)
        try:
            started = self._begin(request, made)
        except ClaimLost as error:
            raise NoCapacity(
                "host.no_capacity",
                f"the vCPUs or the memory that are not claimed on host {request.host} are fewer than it has",
                hint=f"delete VMs there, or allow more: 'vgpuctl host set {request.host} --vcpu-overcommit 2'",
                details=str(error),
            ) from error
        if started.operation is not None and not started.existing:
            self.engine.submit(started.operation)
        return started

    def _made_as(self, request: AdoptVm) -> MadeAs | None:
        """None: somebody else made it, or the database knows it.

        :raises Conflict: ``domain.not_described``"""
        with self.store.read() as tx:
            host, snapshot = self._observed(tx, request.host)
            domain = find_domain(snapshot, request.domain)
            if domain.owner != domain.uuid or tx.vms.find_id(domain.uuid) is not None:
                return None
        observed = self.link.observe_domain(host, domain.uuid)
        if observed is None or observed.made_as is None:
            raise Conflict(
                "domain.not_described",
                f"the host's agent does not remember how domain {domain.name} was made",
                hint="an agent that was older made it: copy what is on its disk, or remove it: "
                "'vgpuctl server settle-restored' shows how",
            )
        return observed.made_as

    def _as_it_was(self, request: AdoptVm, made: MadeAs) -> AdoptVm:
        """It stays its tenant's; only where that is not known either, whoever asks says whose it is."""
        tenant, _, name = made.domain.name.partition(".")
        with self.store.read() as tx:
            known = tenant in {row.name for row in tx.tenants.list()}
        return replace(request, tenant=tenant if known else request.tenant, name=request.name or name)

    def _begin(self, request: AdoptVm, made: MadeAs | None) -> Started:
        with self.store.begin() as tx:
            host, snapshot = self._observed(tx, request.host)
            domain = find_domain(snapshot, request.domain)
            name = request.name if request.name is not None else _name_of(domain)
            existing = tx.vms.find_id(domain.uuid)
            if existing is not None and (existing.spec.tenant, existing.spec.name, existing.host) == (
                request.tenant, name, request.host,
            ):  # fmt: skip
                return Started(operation=running_operation(tx, existing), name=name, existing=True)
            if made is None:
                _check_foreign(domain, existing)
            known_tenant(tx, request.tenant)
            if tx.vms.find(request.tenant, name) is not None:
                raise Conflict("vm.exists", f"there is already a VM {name}", hint="give it another one with --name")
            vm, claim = (
                self._adopted(tx, request, name, host, snapshot, domain)
                if made is None
                else self._taken_over(tx, request, host, snapshot, made)
            )
            within_quota(tx, vm)
            operation = new_operation("adopt_vm", vm, clock=self.clock, ids=self.ids)
            tx.vms.add(held_by(operation, vm))
            capacity = capacity_of(facts_of(snapshot), self.overcommit.of(host))
            tx.claims.take(claim, capacity)
            self._take_volumes(tx, vm, snapshot, capacity)
            check_instances(tx, vm, claim)
            inputs: dict[str, object] = {"vm": name, "running": domain.active}
            record(tx, operation, host=request.host, inputs=inputs)
        return Started(operation=operation.id, name=name)

    def _observed(self, tx: Transaction, name: str) -> tuple[Host, HostSnapshot]:
        host, snapshot = tx.hosts.get(name), tx.hosts.snapshot(name)
        if host.state != "ready" or snapshot is None:
            raise Conflict(
                "host.not_ready", f"host {name} is {host.state}", hint=f"'vgpuctl host show {name}' tells why"
            )
        return host, snapshot

    def _adopted(
        self, tx: Transaction, request: AdoptVm, name: str, host: Host, snapshot: HostSnapshot, domain: DomainSnapshot
    ) -> tuple[Vm, Claim]:
        claims = tx.claims.of_host(host.name)
        devices = devices_of(host, snapshot, domain)
        check_free(domain, request.although_managed_by)
        _check_functions(devices, claims)
        geometries = {gpu.address: tables_of(gpu).now for gpu in snapshot.gpus}
        places = places_of(geometries, domain.uuid, devices, claims, host.name)
        if domain.vcpus is None or domain.memory_mib is None or domain.disk_bytes is None:
            raise Conflict(
                "domain.size_unknown",
                f"the host's agent cannot tell the vCPUs, memory or disks of domain {domain.name}",
                hint=f"are all its disks there? Older agents cannot tell: 'vgpuctl host upgrade-agent {host.name}'",
            )
        _check_shares_all(host)
        spec = VmSpec(
            name=name,
            tenant=request.tenant,
            profile=devices[0].type_name,
            image="",
            vcpus=domain.vcpus,
            memory_mib=domain.memory_mib,
            disk_bytes=domain.disk_bytes,
            network="",
            host=request.host,
            boot_policy=request.boot_policy,
            adopted=domain.name,
        )
        vm = Vm(
            id=domain.uuid,
            spec=spec,
            state="adopting",
            host=request.host,
            devices=devices,
            addresses=domain.addresses,
            operation=None,
            created_at=self.clock.now(),
            wanted="running" if domain.active else "stopped",
        )
        # Its disks are none of our volumes: what they take is missing from what the host has free already.
        claim = Claim(
            vm=vm.id,
            host=vm.host,
            devices=places,
            vcpus=spec.vcpus,
            memory_mib=spec.memory_mib,
            disk_bytes=0,
        )
        return vm, claim

    def _taken_over(
        self, tx: Transaction, request: AdoptVm, host: Host, snapshot: HostSnapshot, made: MadeAs
    ) -> tuple[Vm, Claim]:
        """:raises NotFound: ``network.unknown``; :raises Conflict: ``domain.network_function``"""
        was, domain = made.domain, find_domain(snapshot, request.domain)
        for network in was.networks:
            tx.networks.get(network)
        if was.nic is not None:
            raise Conflict(
                "domain.network_function", f"domain {domain.name} has the network function {was.nic}",
                hint="detach it on the host, then take the VM over",
            )  # fmt: skip
        claims = tx.claims.of_host(host.name)
        _check_functions(was.devices, claims)
        geometries = {gpu.address: tables_of(gpu).now for gpu in snapshot.gpus}
        places = places_of(geometries, domain.uuid, was.devices, claims, host.name)
        image = next((item.name for item in tx.images.list() if f"{item.sha256}.{item.format}" == made.image), "")
        spec = VmSpec.of_made(made, tenant=request.tenant, name=str(request.name), image=image)
        vm = Vm(
            id=domain.uuid, spec=spec, state="adopting", host=host.name, devices=was.devices,
            addresses=domain.addresses, operation=None, created_at=self.clock.now(),
            wanted="running" if domain.active else "stopped", cpus=was.cpus, firmware=was.firmware,
        )  # fmt: skip
        claim = Claim(
            vm=vm.id, host=host.name, devices=places, vcpus=vm.floating_vcpus, memory_mib=vm.ordinary_mib,
            disk_bytes=spec.host_disk_bytes, cpus=() if was.cpus is None else was.cpus.pinned,
        )  # fmt: skip
        return vm, claim

    def _take_volumes(self, tx: Transaction, vm: Vm, snapshot: HostSnapshot, capacity: HostCapacity) -> None:
        """Of one that is taken over: those that the database does not know come with it."""
        sizes = {item.name: item.length_bytes or item.size_bytes for item in snapshot.data}
        limits = {known.volume: known.limits for known in vm.spec.volume_limits}
        for item in vm.spec.volumes:
            own = limits.get(item, DiskLimits())
            known = tx.volumes.find_id(id_of(item))
            if known is None:
                volume = Volume(
                    id=id_of(item), tenant=vm.spec.tenant, name=short_of(item), host=vm.host, vm=vm.id, state="ready",
                    size_bytes=max(sizes.get(file_of(item), 0), MIN_DISK_BYTES), created_at=self.clock.now(),
                    max_bytes_per_s=own.bytes_per_s or None, max_iops=own.iops or None,
                    encryption="keyless" if is_encrypted(item) else "none",
                )  # fmt: skip
                tx.volumes.add(reader_found(volume, item), capacity)
            else:
                tx.volumes.attach(known, vm.id, vm.host, capacity)
                tx.volumes.made(known.id)


def _name_of(domain: DomainSnapshot) -> str:
    """:raises InvalidInput: ``vm.name_invalid``"""
    try:
        return check_name(domain.name, what="vm")
    except InvalidInput as error:
        raise InvalidInput(error.code, error.message, hint="give the VM another one with --name") from error


def check_instances(tx: Transaction, vm: Vm, claim: Claim) -> None:
    """Its part of a GPU instance may be none that a stopped VM claims, and yet of another size than that.

    :raises Conflict: ``gpu.cut_differs``"""
    try:
        for _ in in_its_instances(tx, vm, claim):
            pass
    except ClaimLost as error:
        raise Conflict(
            "gpu.cut_differs",
            "the GPU instance of its vGPU is claimed for vGPUs of another size",
            hint="delete the stopped VMs that hold it",
        ) from error


def _check_functions(devices: Iterable[Device], claims: Iterable[Claim]) -> None:
    """:raises NoCapacity: ``gpu.function_claimed``"""
    claimed = {claimed_device.function for claim in claims for claimed_device in claim.devices}
    for device in devices:
        if device.function is not None and device.function in claimed:
            raise NoCapacity(
                "gpu.function_claimed",
                f"function {device.function} is claimed by a stopped VM",
                hint="start that VM, which then takes another function, or delete it",
            )


def _check_shares_all(host: Host) -> None:
    """:raises Conflict: ``domain.runs_anywhere``"""
    if host.pinnable_cpus:
        raise Conflict(
            "domain.runs_anywhere",
            f"host {host.name} keeps CPUs for VMs that have theirs alone; a domain that is adopted may run on them",
            hint=f"'vgpuctl host set {host.name} --pinnable-cpus none' while no VM is there, then adopt it",
        )


def _check_foreign(domain: DomainSnapshot, known: Vm | None) -> None:
    """:raises Conflict: ``domain.ours``"""
    if known is not None:
        raise Conflict(
            "domain.ours",
            f"domain {domain.name} is VM {known.spec.name} of tenant {known.spec.tenant} already",
            hint=f"'vgpuctl show-vm {known.spec.name} --tenant {known.spec.tenant}' shows it",
        )
    if domain.owner is not None:
        raise Conflict(
            "domain.ours",
            f"domain {domain.name} was made by us, for a VM that the database does not know",
            hint="it has another id than its VM: 'vgpuctl doctor' tells what else is there",
        )
