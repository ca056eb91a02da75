# SPDX-License-Identifier: Apache-2.0
"""Steps that change what the database says about a VM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from orchestrator.core.actions.pools import LeaveDisks
from orchestrator.core.diff.orphans import removal_of, undefinition_of
from orchestrator.core.errors import Bug, Conflict, NoCapacity, WorldError
from orchestrator.core.gpu.device import Device
from orchestrator.core.guest.guest import secret_of
from orchestrator.core.hosts.host import Host
from orchestrator.core.labels import kept_from
from orchestrator.core.vms.claim import Claim, DeviceClaim, HostCapacity
from orchestrator.core.vms.cleaning import Evidence
from orchestrator.core.vms.vm import DeallocationReason, Vm, VmState, WantedState
from orchestrator.core.vms.volume import Volume, shared_files
from orchestrator.operations.context import Context
from orchestrator.operations.gpu_health import hear_tenant
from orchestrator.operations.journal import Suspended
from orchestrator.operations.step import Step
from orchestrator.operations.steps.ports import remove_ports
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


def claim_text(context: Context) -> tuple[str, ...]:
    """What remains while its claim does."""
    with context.world.store.read() as tx:
        claim = tx.claims.find(context.subject)
    if claim is None:
        return ()
    return tuple(
        f"claim on GPU {device.gpu} of host {claim.host}, slots {', '.join(str(slot) for slot in device.slots)}"
        for device in claim.devices
    )


def drop_vm(tx: Transaction, vm: Vm, evidence: Evidence) -> None:
    """Row, claims and secrets."""
    tx.vms.remove(vm.id, evidence)
    tx.secrets.remove(*filter(None, (vm.spec.user_data, secret_of(vm.id))))


def volumes_before(context: Context) -> tuple[Volume, ...]:
    """Those that the operation gives to its VM, as they were; none of an operation of an older version. One whose file
    was there already is none that it makes, whatever the database said."""
    stored = context.inputs.get("volumes")
    volumes = tuple(Volume.from_fields(volume) for volume in stored) if isinstance(stored, list) else ()
    return tuple(volume if context.made(volume.file) else _made_before(volume, context.host_name) for volume in volumes)


def _made_before(volume: Volume, host: str) -> Volume:
    return replace(volume, state="ready", host=volume.host or (host if volume.pool is None else None))


def put_back(tx: Transaction, context: Context) -> None:
    """In the database: as they were before the operation gave them to its VM."""
    tx.volumes.put_back(volumes_before(context), context.subject)


def forget_vm(context: Context) -> None:
    """Release everything the VM holds in the database. Gone already is fine."""
    _forget_all(context, context.no_evidence())


def _take_back(context: Context) -> None:
    """As :func:`forget_vm`, once what was made for it is gone."""
    _forget_all(context, context.evidence(undone=True))


def _forget_all(context: Context, evidence: Evidence) -> None:
    with context.begin() as tx:
        put_back(tx, context)
        _forget(tx, context.subject, evidence)


def _forget(tx: Transaction, vm_id: str, evidence: Evidence) -> None:
    vm = tx.vms.find_id(vm_id)
    if vm is not None:
        drop_vm(tx, vm, evidence)


def set_vm_state(context: Context, state: VmState, wanted: WantedState | None = None) -> None:
    """Write the state, unless a later operation (a delete) already says what becomes of the VM. ``wanted``: None
    leaves what is wanted of it."""
    with context.begin() as tx:
        tx.vms.set_state(context.subject, state, operation=context.operation_id, wanted=wanted)


def mark_stuck(context: Context) -> None:
    """Its users see that an operator is needed."""
    set_vm_state(context, "stuck")


def say_stopped(context: Context) -> None:
    """The operator has cleaned up: nothing of it runs, and nothing is to."""
    with context.begin() as tx:
        tx.suspended.end(context.subject)
    set_vm_state(context, "stopped", "stopped")


def _wanted_before(context: Context) -> WantedState | None:
    """Operations of older versions say only in which state the VM was."""
    before = context.inputs.get("previous_wanted", context.inputs.get("previous_state"))
    return "running" if before == "running" else "stopped" if before == "stopped" else None


def ran_before(context: Context) -> bool:
    """Whether the VM ran when the operation was begun."""
    return context.inputs.get("previous_state") == "running"


def state_before(context: Context) -> Literal["running", "stopped"]:
    """As :func:`ran_before` says."""
    return "running" if ran_before(context) else "stopped"


def as_before(context: Context) -> None:
    """Running or stopped, as it was; what was wanted of it then is wanted again."""
    set_vm_state(context, state_before(context), _wanted_before(context))


def claim_of(context: Context) -> str:
    claim, vm = context.claim(), context.vm()
    if vm is None or claim is None:
        return "it holds nothing any more"
    return devices_on(context, vm, claim.host)


def devices_on(context: Context, vm: Vm, host: str) -> str:
    """Which devices of which host ``vm`` holds, and why those."""
    devices = ", ".join(f"{device.type_name} on GPU {device.gpu}" for device in vm.devices)
    why = context.inputs.get("why_there")
    return f"{devices} of {host}{f': {why}' if isinstance(why, str) else ''}"


def as_observed(context: Context) -> None:
    """Before anything was done: what the VM's state was, or what the host shows now."""
    state = context.text("previous_state")
    try:
        running = any(d.uuid == context.subject and d.state == "running" for d in context.observe().domains)
        state = "running" if running else "stopped"
    except WorldError:
        context.warnings.append("the host could not be asked; the state shown is the last one known")
    set_vm_state(context, "running" if state == "running" else "stopped", _wanted_before(context))


def _release(context: Context) -> str | None:
    vm = context.vm()
    with context.world.store.read() as tx:
        stuck = tx.operations.stuck_about(context.subject)
        names = [str(tx.operations.get(operation.id).inputs.get("place")) for operation in stuck]
        held = [place for place in map(tx.vms.find_id, names) if place is not None]
    if vm is not None:
        remove_ports(context, vm)
    _clear(context, held)

    def released(tx: Transaction) -> None:
        for place in held:
            tx.places.let_go(place.id, context.evidence())
        word = context.inputs.get("gpu_was_bad")
        known = tx.vms.find_id(context.subject) if isinstance(word, str) else None
        if known is not None:
            hear_tenant(tx, known, str(word), tx.time.no_earlier(context.world.clock.now()))
        _forget(tx, context.subject, context.evidence())
        if stuck:  # as they are by now; none gets stuck while this one works on the VM
            _close_stuck(tx, context)

    context.write_at_end(released)
    return "key destroyed" if vm is not None and vm.spec.encrypted else None


def _clear(context: Context, places: Iterable[Vm]) -> None:
    """Where its moves which got stuck hold places: nothing of it is left there then."""
    for place in places:
        with context.at(place.host) as other:
            if files := shared_files(place):
                other.perform(LeaveDisks(vm=context.subject, files=files))
            seen = other.observe()
            for action in (*removal_of(seen, context.subject), *undefinition_of(seen, context.subject)):
                other.perform(action)


def _close_stuck(tx: Transaction, context: Context) -> None:
    """Nothing is left of the VM, so nothing remains of its operations that had got stuck."""
    for operation in tx.operations.stuck_about(context.subject):
        note = f"what remained was removed by operation {context.operation_id}"
        tx.operations.update(replace(operation, state="undone", remainder=(), warnings=(*operation.warnings, note)))


def _running(context: Context) -> None:
    """An operation that follows on this one has the VM from the same commit on: nothing else gets in between."""
    following = context.inputs.get("provisioning")

    def runs(tx: Transaction) -> None:
        tx.vms.set_state(context.subject, "running", operation=context.operation_id)
        vm = tx.vms.find_id(context.subject) if isinstance(following, str) else None
        if vm is not None and vm.operation == context.operation_id:
            tx.vms.update(replace(vm, operation=str(following)))

    context.write_at_end(runs)


def _stopped(context: Context) -> None:
    """Of one that was suspended nothing is kept, nor is anything on its host."""

    def stopped(tx: Transaction) -> None:
        tx.suspended.end(context.subject)
        tx.vms.set_state(context.subject, "stopped", operation=context.operation_id)

    context.write_at_end(stopped)


def _deallocate(context: Context) -> None:
    """Stopped, and without its place; a delete that came meanwhile gives everything back itself."""
    with context.begin() as tx:
        vm = tx.vms.find_id(context.subject)
        if vm is not None and vm.operation == context.operation_id:
            _mark_deallocated(tx, context, vm.devices, context.evidence())


def _free_again(context: Context) -> None:
    """As it was before it was to be started: without a place, and with the devices it once had."""
    with context.begin() as tx:
        vm = tx.vms.find_id(context.subject)
        if vm is not None and vm.operation == context.operation_id:
            _mark_deallocated(tx, context, context.devices_before(), context.evidence(undone=True))


def _name_back(context: Context) -> None:
    """Unless somebody has taken its name meanwhile."""
    before = context.text("name_before")
    try:
        with context.begin() as tx:
            tx.vms.rename(context.subject, before)
    except Conflict:
        context.warnings.append(f"another VM is called {before} by now: it keeps the new name")
    as_before(context)


def _mark_deallocated(tx: Transaction, context: Context, devices: Sequence[Device], evidence: Evidence) -> None:
    tx.suspended.end(context.subject)
    tx.claims.free_place(context.subject, evidence)
    tx.vms.deallocate(context.subject, _DEALLOCATED[context.text("freed")], devices)


_DEALLOCATED: dict[str, DeallocationReason] = {"lease_over": "lease_over", "preempted": "preempted"}
_NO_RECORD_UNDO = "the steps before it set the state back"

CLAIM = Step(name="claim.1", title="claim the device", do=claim_of, undo=_take_back, remains=claim_text)
STARTING = Step(name="vm_starting.1", title="check the claim", do=claim_of, undo=as_before)
PLACED = Step(name="placed.1", title="claim a device again", do=claim_of, undo=_free_again, remains=claim_text)
NAMED = Step(name="vm_named.1", title="check the state", do=claim_of, undo=_name_back)
STOPPING = Step(name="vm_stopping.1", title="check the state", do=claim_of, undo=as_observed)
DELETING = Step(name="vm_deleting.1", title="check the state", do=claim_of, undo=as_observed)
RUNNING = Step(name="vm_running.1", title="record that it runs", do=_running, no_undo_reason=_NO_RECORD_UNDO)
STOPPED = Step(
    name="vm_stopped.1",
    title="record that it is stopped",
    do=_stopped,
    no_undo_reason=_NO_RECORD_UNDO,
)
DEALLOCATED = Step(
    name="free_place.1",
    title="give its place back, keep its disk",
    do=_deallocate,
    no_undo_reason="starting the VM claims a place again",
    remains=claim_text,
)
RELEASE = Step(
    name="release.1",
    title="release the claim",
    do=_release,
    no_undo_reason="nothing of the VM is left on the host",
    remains=claim_text,
)


def _claim_deallocated(context: Context) -> str:
    """As it was planned: nobody else was given the place meanwhile (services/fleet/view.py)."""
    _observe_what_is_left(context)
    try:
        with context.begin() as tx:
            vm = tx.vms.find_id(context.subject)
            if vm is not None and tx.claims.find(context.subject) is None:
                if context.operation_id not in {
                    operation.operation for operation in tx.operations.due([context.operation_id])
                }:
                    raise Suspended  # too early: who has to go has not gone
                check_not_kept(tx.hosts.get(vm.host), vm.spec.tenant)
                tx.cleanings.check(vm.host, (device.gpu for device in vm.devices))
                tx.claims.take(*_planned(context))
    except ClaimLost as error:
        raise NoCapacity(
            "preemption.not_freed",
            "the place that was to be freed for it is not free",
            hint="try again: a VM that was to make way could not be stopped or moved, or its host does not answer",
            details=str(error),
        ) from error
    return claim_of(context)


def _observe_what_is_left(context: Context) -> None:
    """Who made way may have left pieces of which it is not known that they are clean: now, and not by and by."""
    claim, _ = _planned(context)
    with context.world.store.read() as tx:
        unclean = {cleaning.gpu for cleaning in tx.cleanings.open_on((claim.host,))}
    if unclean & {device.gpu for device in claim.devices}:
        context.observe()


def check_not_kept(host: Host, tenant: str) -> None:
    """:raises ClaimLost: for another tenant; whoever planned it before that has to plan again"""
    keeper = kept_from(host.labels, tenant)
    if keeper is not None:
        raise ClaimLost(f"host {host.name} is kept for tenant {keeper} now")


def _planned(context: Context) -> tuple[Claim, HostCapacity]:
    claim, capacity = context.inputs.get("claim"), context.inputs.get("capacity")
    if not isinstance(claim, dict) or not isinstance(capacity, dict):
        raise Bug("operation.inputs", f"operation {context.operation_id} lacks its planned claim")
    devices = tuple(DeviceClaim(**{**fields, "slots": tuple(fields["slots"])}) for fields in claim["devices"])
    cpus = tuple(claim.get("cpus", ()))
    return Claim(**{**claim, "devices": devices, "cpus": cpus}), HostCapacity(**capacity)


CLAIM_DEALLOCATED = Step(
    name="claim_freed.1",
    title="claim the device that is freed",
    do=_claim_deallocated,
    undo=_take_back,
    remains=claim_text,
)
