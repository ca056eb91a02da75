# SPDX-License-Identifier: Apache-2.0
"""Hosts: enrolling, looking, giving back; what an operator sets for one; and giving up one that will never come back:
what was on it is lost, what it held is free again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.hosts.cpus import check_pinnable
from orchestrator.core.hosts.host import (
    LOST,
    MAX_OVERCOMMIT,
    Cordon,
    Host,
    HostCondition,
    HostState,
    check_address,
    check_gpus,
    check_port,
    check_user,
    new_host,
)
from orchestrator.core.hosts.nic import check_given
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.labels import KEPT_FOR, Selector, changed_labels
from orchestrator.core.names import check_name
from orchestrator.core.vms.cleaning import Evidence
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.steps.volumes import check_no_volumes
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.ports.files import HostKeys
from orchestrator.services.acting import actor
from orchestrator.services.begin import begin_on_host, busy_with, new_operation, record
from orchestrator.services.fleet.view import Overcommit, capacity_of
from orchestrator.services.maintenance.maintenances import end_drain
from orchestrator.services.messages import AddHost, HostChange, HostInfo, HostKey, Started
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.pages import PageKey
from orchestrator.store.records import HostRecord
from orchestrator.store.transaction import Transaction


def changed(host: Host, change: HostChange) -> Host:
    """:raises InvalidInput: ``label.…``, ``host.overcommit_invalid``"""
    return replace(
        host,
        vcpu_overcommit=_overcommit(host.vcpu_overcommit, change.vcpu_overcommit),
        memory_overcommit=_overcommit(host.memory_overcommit, change.memory_overcommit),
        allow_unconfined=host.allow_unconfined if change.allow_unconfined is None else change.allow_unconfined,
        labels=changed_labels(host.labels, change.labels),
        rdma_nics=host.rdma_nics if change.rdma_nics is None else change.rdma_nics,
    )


def check_nics(tx: Transaction, host: Host, nics: tuple[str, ...]) -> None:
    """Whether VMs may be given functions of these cards. VMs that have some keep them, whatever is said later.

    :raises InvalidInput: ``nic.unknown``; :raises Conflict: ``nic.none_told``"""
    snapshot = tx.hosts.snapshot(host.name)
    check_given(() if snapshot is None else snapshot.nics, nics, host.name)


def keep_cpus(tx: Transaction, host: Host, cpus: tuple[int, ...]) -> None:
    """For VMs that have theirs alone.

    :raises InvalidInput: ``host.cpus_invalid``; :raises Conflict: ``host.cpus_unknown``, ``host.has_vms``"""
    snapshot = tx.hosts.snapshot(host.name)
    check_pinnable(() if snapshot is None else snapshot.nodes, cpus, host.name)
    tx.hosts.keep_cpus(host.name, cpus)


def _overcommit(current: float | None, wanted: float | Literal["site"] | None) -> float | None:
    if wanted is None:
        return current
    if wanted == "site":
        return None
    if not 1.0 <= wanted <= MAX_OVERCOMMIT:
        raise InvalidInput(
            "host.overcommit_invalid", f"an overcommit of {wanted:g} is none", hint=f"1 to {MAX_OVERCOMMIT:g}"
        )
    return wanted


_GIVEN_UP = "given up: whatever is there is no longer ours to touch"


def forget(tx: Transaction, name: str, confirm: str, now: float) -> Host:
    """The host as it is from now on. Forgotten already is fine.

    :raises NotFound: ``host.unknown``; :raises InvalidInput: ``host.not_confirmed``
    :raises Conflict: ``host.answers``: it can be emptied and removed in good order
    """
    host = tx.hosts.get(name)
    if confirm != name:
        raise InvalidInput(
            "host.not_confirmed",
            "giving up a host has to be confirmed with its name",
            hint=f"'vgpuctl host forget {name} --confirm {name}' does it",
        )
    if host.state == "forgotten":
        return host
    if host.state not in LOST:
        raise Conflict(
            "host.answers",
            f"host {name} is {host.state}, not lost",
            hint=f"delete its VMs, then 'vgpuctl host remove {name}' gives it back as it was",
        )
    lost = tx.vms.list(host=name)
    _check_no_moves(tx, name, lost)
    ended = _end_operations(tx, name, now)
    for vm in lost:
        tx.claims.free_place(vm.id, Evidence(at=now))
        tx.vms.update(replace(vm, state="lost", addresses=()))
    tx.cleanings.give_up(name, now)
    volumes = tx.volumes.lose(name)
    forgotten = replace(host, state="forgotten", state_reason=_GIVEN_UP, cordoned=True)
    tx.hosts.update(forgotten)
    volumes_too = f" and {volumes} volumes" if volumes else ""
    outcome = f"{len(lost)} VMs{volumes_too} are lost, {ended} operations were ended"
    tx.audit.append(at=now, actor=actor(), action="forget_host", subject=name, outcome=outcome)
    return forgotten


def _check_no_moves(tx: Transaction, host: str, vms: Sequence[Vm]) -> None:
    """:raises Conflict: ``host.has_moves``"""
    moving = next((vm for vm in vms if vm.state == "moving"), None)
    if moving is not None:
        raise Conflict(
            "host.has_moves",
            f"VM {moving.full_name} moves to host {host} or from it",
            hint=f"'vgpuctl operation abandon {moving.operation}' gives that up",
        )


def _end_operations(tx: Transaction, host: str, now: float) -> int:
    """Those that have not ended, and those that wait for a person: nobody can finish them any more."""
    note = "its host was given up: nobody knows what of it remains there"
    left = [
        operation
        for operation in tx.operations.list(unfinished=True, limit=1_000_000)
        if tx.operations.get(operation.id).host == host
    ]
    left += tx.operations.stuck_on(host)
    at = tx.time.no_earlier(now)
    for operation in left:
        # A run that is under way is overtaken: it can write nothing any more.
        ended = replace(operation, state="undone", attempt=operation.attempt + 1, finished_at=at, remainder=())
        tx.operations.update(replace(ended, warnings=(*operation.warnings, note)))
    return len(left)


@dataclass(frozen=True, kw_only=True)
class HostService:
    """``scan_key`` reads the SSH host key at an address and port."""

    store: Store
    engine: Engine
    keys: HostKeys
    clock: Clock
    ids: Ids
    scan_key: Callable[[str, int], HostKey]
    overcommit: Overcommit
    own_agent: Callable[[], str | None] = lambda: None
    """The version that an agent of this server's build reports."""

    def scan(self, address: str, port: int) -> HostKey:
        """The SSH host key at that address, for the operator to confirm.

        :raises InvalidInput: ``host.address_invalid``; :raises Retryable: ``host.unreachable``"""
        return self.scan_key(check_address(address), check_port(port))

    def add(self, request: AddHost) -> Started:
        """Pin the key, install the agent, take over GPUs.

        :raises InvalidInput: ``host.address_invalid``, ``host.user_invalid``, ``host.key_invalid``, bad GPU addresses
        :raises Fatal: ``host.key_differs`` when the host does not show the confirmed key
        :raises Conflict: ``host.exists``, ``host.address_taken``
        """
        host = self.checked(request)
        with self.store.begin() as tx:
            tx.hosts.add(host)
            operation = new_operation("add_host", host, clock=self.clock, ids=self.ids)
            inputs = {"gpus": check_gpus(request.gpus), "take_over": request.take_over}
            record(tx, operation, host=host.name, inputs=inputs)
            self.keys.put(tx, host.name, request.provisioning_key)
        self.engine.submit(operation.id)
        return Started(operation=operation.id, name=host.name)

    def checked(self, request: AddHost) -> Host:
        """The host as it would be added; its key is looked at. Raises what :meth:`add` does before it writes."""
        check_name(request.name, what="host")
        address, port = check_address(request.address), check_port(request.port)
        check_user(request.user)
        check_gpus(request.gpus)
        scanned = self.scan_key(address, port)
        if scanned.fingerprint != request.fingerprint:
            raise Fatal(
                "host.key_differs",
                f"the host at {address} shows another key than the confirmed one",
                hint="somebody may be between you and the host; compare with ssh-keygen -lf on its console",
                details=f"confirmed {ascii(request.fingerprint)[:80]}, found {scanned.fingerprint}",
            )
        return new_host(
            request.name, address, port, provisioning_user=request.user, host_key=f"{scanned.type} {scanned.key}"
        )

    def remove(self, name: str) -> Started:
        """Give the host back as it was; of a forgotten one only the record goes.

        :raises Conflict: ``host.has_vms``, ``host.has_volumes``, ``host.has_layouts``, ``host.busy``"""
        with self.store.begin() as tx:
            host = tx.hosts.get(name)
            vms = tx.vms.list(host=name)
            if vms:
                shown = ", ".join(f"{vm.spec.tenant}/{vm.spec.name}" for vm in vms[:5])
                shown += f" and {len(vms) - 5} more" if len(vms) > 5 else ""
                tenant = vms[0].spec.tenant
                names = " ".join(vm.spec.name for vm in vms[:5] if vm.spec.tenant == tenant)
                hint = f"delete them first: 'vgpuctl delete-vm {names} --tenant {tenant}'"
                raise Conflict("host.has_vms", f"host {name} has VMs: {shown}", hint=hint)
            if host.state == "forgotten":  # nobody is there to be asked
                tx.gpu_health.keep_quarantines(name)
                tx.hosts.remove(name)
                self.keys.remove(tx, name)
                return Started(operation=None, name=name)
            check_no_volumes(tx, name)
            if host.mig_layouts:
                raise Conflict(
                    "host.has_layouts",
                    f"host {name} has MIG layouts on {', '.join(layout.gpu for layout in host.mig_layouts)}",
                    hint=f"'vgpuctl mig release {name}' first: containers of the host may use them",
                )
            started = self._begin(tx, host, "remove_host", "removing")
        return self._submitted(started)

    def forget(self, name: str, *, confirm: str) -> HostInfo:
        """Give up a host that will never come back (:func:`forget`).

        :raises InvalidInput: ``host.not_confirmed``; :raises Conflict: ``host.answers``"""
        with self.store.begin() as tx:
            return self._info(tx, forget(tx, name, confirm, self.clock.now()))

    def upgrade_agent(self, name: str) -> Started:
        """Install this version's agent; VMs are left alone. :raises Conflict: ``host.busy``"""
        with self.store.begin() as tx:
            started = self._begin(tx, tx.hosts.get(name), "upgrade_agent", None)
        return self._submitted(started)

    def _begin(self, tx: Transaction, host: Host, kind: str, state: HostState | None) -> Started:
        busy = busy_with(tx, host)
        if busy is not None and busy.kind == kind:
            return Started(operation=busy.id, name=host.name, existing=True)
        inputs: dict[str, object] = {"previous_state": host.state}
        operation = begin_on_host(tx, host, kind, inputs, clock=self.clock, ids=self.ids)
        if state is not None:
            tx.hosts.update(replace(host, state=state))
        return Started(operation=operation.id, name=host.name)

    def _submitted(self, started: Started) -> Started:
        if started.operation is not None and not started.existing:
            self.engine.submit(started.operation)
        return started

    def counts(self) -> dict[tuple[HostState, bool], int]:
        """How many there are, by state and whether they are cordoned."""
        with self.store.read() as tx:
            return tx.hosts.counts()

    def list(self) -> tuple[HostInfo, ...]:
        with self.store.read() as tx:
            return self._infos(tx, [name for name, _ in tx.host_pages.names()])

    def page(
        self, selector: Selector, state: HostCondition | None, sort: str, after: PageKey | None, most: int
    ) -> tuple[tuple[tuple[HostInfo, object], ...], int]:
        """``most`` of those behind ``after`` as :meth:`HostPages.names` has them, each with what it is sorted by, and
        how many there are in all."""
        with self.store.read() as tx:
            page = tx.host_pages.names(selector, state, sort, after, most)
            total = tx.host_pages.how_many(selector, state) if len(page) == most else len(page)
            infos = self._infos(tx, [name for name, _ in page])
        return tuple(zip(infos, (by for _, by in page), strict=True)), total

    def get(self, name: str) -> HostInfo:
        """:raises NotFound: ``host.unknown``"""
        with self.store.read() as tx:
            return self._info(tx, tx.hosts.get(name))

    def cordon(self, name: str, reason: str | None = None) -> HostInfo:
        """Place no new VMs there."""
        return self._set_cordoned(name, Cordon(at=self.clock.now(), by=actor(), reason=reason))

    def uncordon(self, name: str) -> HostInfo:
        """Place VMs there again. :raises Conflict: ``host.busy``: its driver is being upgraded"""
        return self._set_cordoned(name, None)

    def change(self, name: str, change: HostChange) -> HostInfo:
        """Set what is named. VMs that are there stay, even if they have more than the host may give now.

        :raises InvalidInput: ``label.…``, ``host.overcommit_invalid``, ``host.cpus_invalid``, ``nic.unknown``
        :raises Conflict: ``host.has_vms``, ``host.cpus_unknown``: CPUs are divided before VMs come
        :raises Conflict: ``nic.none_told``; :raises NotFound: ``tenant.unknown``: it is to be kept for"""
        with self.store.begin() as tx:
            host = tx.hosts.get(name)
            if change.pinnable_cpus not in {None, host.pinnable_cpus}:
                keep_cpus(tx, host, change.pinnable_cpus)
            if change.rdma_nics is not None:
                check_nics(tx, host, change.rdma_nics)
            keeper = change.labels.get(KEPT_FOR)
            if keeper is not None:
                known_tenant(tx, keeper)
            wanted = changed(host, change)
            if wanted == host and change.pinnable_cpus in {None, host.pinnable_cpus}:
                return self._info(tx, host)
            tx.hosts.update(wanted)
            changes = ", ".join(f"{key}={value}" for key, value in asdict(change).items() if value not in (None, {}))
            tx.audit.append(
                at=self.clock.now(), actor=actor(), action=f"set_host {changes}", subject=name, outcome="done"
            )  # fmt: skip
            return self._info(tx, tx.hosts.get(name))

    def _info(self, tx: Transaction, host: Host) -> HostInfo:
        return self._infos(tx, (host.name,))[0]

    def _infos(self, tx: Transaction, names: Sequence[str]) -> tuple[HostInfo, ...]:
        """In their order."""
        records = {record.host.name: record for record in tx.fleet.hosts(names)}
        return tuple(self._info_of(records[name], tx.hosts.snapshot(name)) for name in names)

    def _info_of(self, record: HostRecord, snapshot: HostSnapshot | None) -> HostInfo:
        claiming = [vm for vm in record.vms if vm.deallocated is None]
        agent = None if snapshot is None else snapshot.agent_version
        capacity = None if record.facts is None else capacity_of(record.facts, self.overcommit.of(record.host))
        return HostInfo(
            host=record.host,
            snapshot=snapshot,
            vms=tuple(sorted(vm.full_name for vm in record.vms)),
            capacity=capacity,
            claimed_vcpus=sum(vm.floating_vcpus for vm in claiming),
            claimed_memory_mib=sum(vm.ordinary_mib for vm in claiming),
            pinned_cpus=tuple(sorted(cpu for claim in record.claims for cpu in claim.cpus)),
            nic_functions={claim.nic: claim.vm for claim in record.claims if claim.nic is not None},
            agent_differs=agent is not None and self.own_agent() not in {None, agent},
        )

    def _set_cordoned(self, name: str, cordon: Cordon | None) -> HostInfo:
        with self.store.begin() as tx:
            host = tx.hosts.get(name)
            if cordon is None:
                end_drain(tx, host)
            if _is_so(host, cordon):
                return self._info(tx, host)
            tx.hosts.update(replace(host, cordoned=cordon is not None, cordoned_for=None, cordon=cordon))
            tx.observations.judge_host_anew(name)
            action = "uncordon" if cordon is None else "cordon"
            outcome = cordon.reason if cordon is not None and cordon.reason else "done"
            tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=name, outcome=outcome)
            return self._info(tx, tx.hosts.get(name))


def _is_so(host: Host, cordon: Cordon | None) -> bool:
    """Whether it is cordoned for that reason already, by somebody and not for maintenance; None: not at all."""
    if cordon is None or host.cordon is None:
        return cordon is None and not host.cordoned
    return host.cordoned and host.cordoned_for is None and host.cordon.reason == cordon.reason
