# SPDX-License-Identifier: Apache-2.0
"""Observing hosts: keeps the last observation, the host's state and what is shown of its VMs up to date."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from orchestrator.core.attachments import changes_gpu
from orchestrator.core.attachments.host_facts import DISK_STEP
from orchestrator.core.errors import NotFound, VgpuctlError
from orchestrator.core.hosts.host import Host, HostState, seen_after_restore
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.cleanings import settle_cleanings
from orchestrator.operations.gpu_health import judge_gpus
from orchestrator.ports.clock import Clock
from orchestrator.ports.host import HostLink
from orchestrator.store.database import Store
from orchestrator.store.records import LastObservation, UnchangedObservation
from orchestrator.store.transaction import Transaction

_OBSERVED_STATES: frozenset[HostState] = frozenset({"ready", "unreachable"})
_KEY_CHANGED = "host.key_changed"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What came of one: what the host shows, or why it shows nothing."""

    began: float
    turn: int
    """The newest when it began."""
    found: HostSnapshot | VgpuctlError


@dataclass(frozen=True, kw_only=True)
class HostObserver:
    """``observe`` may be called from many threads; it never raises what a host does wrong."""

    store: Store
    link: HostLink
    clock: Clock
    controller: str = ""
    """Name of this one of several; "": there can be no other."""
    news: Callable[[], object] = lambda: None
    """Called when a host answers again, or one of its VMs has begun to run or stopped by itself: somebody may wait."""

    def observe(self, name: str) -> None:
        """One observation of one host. Hosts that come, go or are quarantined are left to their operations."""
        try:
            with self.store.read() as tx:
                host, turn = tx.hosts.get(name), tx.operations.turn()
        except NotFound:
            return
        if host.state not in _OBSERVED_STATES:
            return
        began = self.clock.now()
        try:
            answer: HostSnapshot | VgpuctlError = self.link.observe(host)
        except VgpuctlError as error:
            answer = error
        self.keep(name, Look(began=began, turn=turn, found=answer))

    def missed(self) -> frozenset[str]:
        """Hosts that this controller did not reach the last time, though others may."""
        if not self.controller:
            return frozenset()
        with self.store.read() as tx:
            return tx.controllers.missed(self.controller)

    def is_untrue(self, host: str, subject: str) -> bool:
        """Whether the picture of the host has become untrue: where what placement sees of it does not follow from
        claims. ``subject``: of the operation that has ended there."""
        with self.store.read() as tx:
            vm = tx.vms.find_id(subject)
            if vm is not None and vm.deallocated is None:
                return any(changes_gpu(device) for device in vm.devices)
            return subject == host or tx.observations.shows(host, subject)

    def is_pool(self, subject: str) -> bool:
        """Whether other hosts are otherwise too now: those that have it mounted."""
        with self.store.read() as tx:
            return tx.pools.find_id(subject) is not None

    def look(self, last: LastObservation, digest: str, turn: int) -> UnchangedObservation | Look:
        """Whether the host is as it stands. What it is otherwise, at that turn, is for :meth:`keep`; nothing is stored
        here."""
        began = self.clock.now()
        try:
            answer = self.link.look(last.host, digest)
            if isinstance(answer, Unchanged):
                if abs(answer.storage_free_bytes - last.storage_free_bytes) < DISK_STEP:
                    return UnchangedObservation(host=last.host.name, at=began)
                answer = self.link.observe(last.host)
        except VgpuctlError as error:
            return Look(began=began, turn=turn, found=error)
        return Look(began=began, turn=turn, found=answer)

    def keep(self, name: str, look: Look) -> None:
        """What came of a look."""
        if isinstance(look.found, HostSnapshot):
            if self._store(name, look.found, look.began, look.turn):
                self.news()
        else:
            self._failed(name, look.found)

    def _failed(self, name: str, error: VgpuctlError) -> None:
        state: HostState = "quarantined" if error.code == _KEY_CHANGED else "unreachable"
        with self.store.begin() as tx:
            host = _still(tx, name)
            if host is None:
                return
            others = state == "unreachable" and self.controller and tx.controllers.miss(self.controller, name)
            if not others:  # else it is those that work there
                tx.hosts.update(replace(host, state=state, state_reason=error.message))

    def _store(self, name: str, snapshot: HostSnapshot, began: float, turn: int) -> bool:
        """Whether it is news."""
        with self.store.begin() as tx:
            host = _still(tx, name)
            if host is None:
                return False
            if host.machine_id not in {None, snapshot.machine_id}:
                reason = "another machine answers at its address"
                tx.hosts.update(replace(host, state="quarantined", state_reason=reason))
                return False
            seen = seen_after_restore(host, snapshot)
            tx.hosts.update(replace(seen, state="ready", state_reason=None, last_seen_at=began))
            if self.controller:
                tx.controllers.reach(self.controller, name)
            news = host.state != "ready"
            if not tx.hosts.put_snapshot(name, snapshot, turn):
                return news
            now = tx.time.no_earlier(self.clock.now())
            judge_gpus(tx, host, snapshot, now)
            settle_cleanings(tx, name, snapshot, turn, now)
            tx.power.learn(name, snapshot.gpus)
            domains, vms = {domain.uuid: domain for domain in snapshot.domains}, tx.vms.list(host=name)
            _keep_metadata(tx, vms, snapshot)
            for vm in vms:
                if _at_rest(tx, vm, turn) and _shown(tx, vm, domains.get(vm.id), snapshot):
                    news = True
            return news


def _keep_metadata(tx: Transaction, vms: Iterable[Vm], snapshot: HostSnapshot) -> None:
    """Of VMs whose drivers say some, at most as many on a GPU as the VM has devices there: each is asked about. Those
    of others stay as they were."""
    devices = {vm.id: Counter(device.gpu for device in vm.devices) for vm in vms}
    metadata = defaultdict[str, dict[str, set[str]]](lambda: defaultdict(set))
    for gpu in snapshot.gpus:
        for vgpu in gpu.open_vgpus:
            if vgpu.vm in devices and gpu.address in devices[vgpu.vm]:
                metadata[vgpu.vm][gpu.address].add(vgpu.metadata)
    tx.vgpu_metadata.keep(
        {
            vm: {gpu: tuple(sorted(texts)[: devices[vm][gpu]]) for gpu, texts in by_gpu.items()}
            for vm, by_gpu in metadata.items()
        }
    )


def _shown(tx: Transaction, vm: Vm, domain: DomainSnapshot | None, snapshot: HostSnapshot) -> bool:
    """Whether its state has changed. Without its domain it does not run; unless libvirt did not answer, which is a
    problem of the snapshot."""
    if domain is None:
        gone = vm.state == "running" and not snapshot.problems
        if gone:
            tx.vms.set_state(vm.id, "stopped", operation=vm.operation or "")
        return gone
    if domain.state not in {"running", "shut_off", "crashed"}:
        return False
    running = domain.state == "running"
    addresses = (domain.addresses or vm.addresses) if running else ()
    observed = replace(vm, state="running" if running else "stopped", addresses=addresses)
    if observed != vm:
        tx.vms.set_state(vm.id, observed.state, operation=vm.operation or "", addresses=addresses)
    return observed.state != vm.state


def _still(tx: Transaction, name: str) -> Host | None:
    try:
        host = tx.hosts.get(name)
    except NotFound:
        return None
    return host if host.state in _OBSERVED_STATES else None


def _at_rest(tx: Transaction, vm: Vm, turn: int) -> bool:
    """No operation has worked on it since that turn, so what the host showed is its state."""
    if vm.state not in {"running", "stopped"} or vm.operation is None:
        return False
    return tx.operations.get(vm.operation).operation.over_by(turn)
