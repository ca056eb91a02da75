# SPDX-License-Identifier: Apache-2.0
"""A VM that goes to another host with its disk. One that runs is shut down for it and started there. The operation is
the other host's; the one that it leaves is its input ``source``, and ``place`` what is held for the VM where it is not
(store/places.py): where it goes, and once it has changed hosts where it was.

Until the step that changes hosts the VM is whole where it was, and all on the other host is taken back. From then on it
is there, and what is left where it was goes. Nobody else starts it on either: its state says that it moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.core.actions.host_actions import DefineDomain, DeleteSeed, DeleteVolume
from orchestrator.core.actions.nics import giving_nic
from orchestrator.core.actions.pools import LeaveDisks, ShareDisks
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.diff.orphans import removal_of
from orchestrator.core.errors import Fatal, Unknown
from orchestrator.core.hosts.pool import short_of
from orchestrator.core.maintenance.leaving import AwaitedTenant, wait_of
from orchestrator.core.units import show_size
from orchestrator.core.vms.vm import Vm, VmState
from orchestrator.core.vms.volume import pools_of, shared_files
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.device import DEVICE, REMOVE_DEVICE, forget_devices
from orchestrator.operations.steps.domain import GUEST_SEEN, REDEFINE, SHUT_DOWN, START, power_off, undefine
from orchestrator.operations.steps.move_forecast import beside
from orchestrator.operations.steps.ports import warned, write_ports
from orchestrator.operations.steps.vm_record import as_before, devices_on, ran_before, say_stopped
from orchestrator.store.disk_copies import DiskCopy
from orchestrator.store.transaction import Transaction

MOVED: Final = "a VM that has changed hosts is not brought back"


def place_of(context: Context) -> Vm:
    """The VM as it will be on the other host, and once it is there as it was, under the place's id."""
    with context.world.store.read() as tx:
        place = tx.vms.find_id(context.text("place"))
    return context.known_vm() if place is None else place


def let_go(context: Context, *, undone: bool) -> None:
    """``undone``: all that was made there is taken back; else a person says so."""
    with context.begin() as tx:
        evidence = context.evidence(undone=True) if undone else context.no_evidence()
        tx.places.let_go(context.text("place"), evidence)


def _not_moved(context: Context) -> None:
    """As it was: what was done to one that ran is taken back before this."""
    let_go(context, undone=True)
    as_before(context)


def _shut_down(context: Context) -> str:
    with context.at(context.text("source")) as source:
        message = str(SHUT_DOWN.do(source))
        REMOVE_DEVICE.do(source)
        return message


def _start_again(context: Context) -> None:
    """Where it was, as its user would."""
    with context.at(context.text("source")) as source:
        for step in (DEVICE, REDEFINE, START):
            step.do(source)


def given_up(context: Context) -> None:
    """The operator has cleaned up: the VM is where the database has it, and stopped."""
    let_go(context, undone=False)
    vm = context.vm()
    if vm is not None and vm.state != "lost":
        say_stopped(context)


def stop_awaits(tx: Transaction, tenant: str, now: float) -> AwaitedTenant | None:
    """What keeps VMs of the tenant from being stopped for a move now; None: its policy lets them be, as for
    maintenance."""
    awaited = wait_of({tenant: 1}, tx.policies.maintenance(), None, now)
    return None if awaited is None else awaited.tenants[0]


def most_per_s(context: Context) -> int | None:
    """Bytes; None: as fast as it goes."""
    limit = context.inputs.get("max_bytes_per_s")
    return limit if isinstance(limit, int) else None


def copy_disk(context: Context) -> str:
    """The whole disk each time: what an earlier try has left of it is nobody's. One in a pool is there already, and
    only UEFI variables are copied."""
    vm, image = context.known_vm(), context.image()
    share_disks(context)
    if vm.spec.pool is not None and vm.firmware != "uefi":
        return f"none: it is in pool {short_of(vm.spec.pool)}"
    with context.at(context.text("source")) as source:
        source.observe_domain()  # if only one of the two is away, it is told which
        giver = source.host(), source.token(source.host())
    wanted = VolumeCopy(
        vm=vm.id,
        volume=vm.volume,
        base_sha256=image.sha256,
        base_format=image.format,
        size_bytes=vm.spec.disk_bytes,
        max_bytes_per_s=most_per_s(context),
    )

    def progress(sent: int) -> None:
        context.report(f"{show_size(sent // 1024**2 * 1024**2)} copied")
        context.pause(0.0)

    taker, clock = (context.host(), context.token(context.host())), context.world.clock
    begun = clock.monotonic()
    copied = context.world.link.copy_volume(*giver, *taker, wanted, progress).message
    took = _measured(context, clock.monotonic() - begun)
    return f"{copied}, {took}" if copied else took


def _measured(context: Context, seconds: float) -> str:
    """It is kept for the forecasts of later moves, unless it was held back."""
    size_bytes, forecast = context.inputs.get("copy_bytes"), context.inputs.get("forecast_s")
    low_s, high_s = forecast if isinstance(forecast, list) else (None, None)
    if isinstance(size_bytes, int) and most_per_s(context) is None:
        copy = DiskCopy(
            operation=context.operation_id,
            source=context.text("source"),
            target=context.host_name,
            size_bytes=size_bytes,
            seconds=seconds,
            low_s=low_s,
            high_s=high_s,
            at=context.world.clock.now(),
        )
        context.write_at_end(lambda tx: tx.disk_copies.add(copy))
    return f"took {beside(seconds, low_s, high_s)}"


def share_disks(context: Context) -> None:
    """What of the VM's is in pools is known on the other host too, and still where it is to open."""
    vm = context.known_vm()
    if files := shared_files(vm):
        context.perform(ShareDisks(vm=vm.id, files=files))


def _take_disks(context: Context) -> str:
    """The VM has changed hosts, and so has who may open what it has in pools."""
    vm = context.known_vm()
    files = shared_files(vm)
    if files:
        context.perform(ShareDisks(vm=vm.id, files=files, taken=True))
    return ", ".join(short_of(pool) for pool in pools_of(vm.spec)) or "none"


def delete_copy(context: Context) -> None:
    """With the UEFI variables that came with it, which go with the definition."""
    vm = context.known_vm()
    undefine(context)
    leave_disks(context, vm)
    if vm.spec.pool is None:
        context.perform(DeleteVolume(vm=vm.id, volume=vm.volume))


def leave_disks(context: Context, vm: Vm) -> None:
    """What of the VM's is in pools is not its on this host any more."""
    if files := shared_files(vm):
        context.perform(LeaveDisks(vm=vm.id, files=files))


def _define(context: Context) -> str:
    """Refused by the other host it is refused while there is a way back."""
    vm, place = context.known_vm(), place_of(context)
    arrived = vm if vm.host == context.host_name else replace(place, id=vm.id)  # which its files are called by
    context.perform(DefineDomain(vm=vm.id, domain=arrived.domain))
    return vm.domain_name


def exchange(tx: Transaction, vm: Vm, place: str) -> None:
    """The VM is where its place was held, of the size that it has there. What names the place where it is not any more
    is no part of it."""
    arrived = tx.vms.find_id(place)
    tx.places.exchange(vm.id, place)
    size = vm.spec if arrived is None else arrived.spec
    of_size = {name: getattr(size, name) for name in ("profile", "vcpus", "memory_mib", "disk_limits")}
    spec = replace(vm.spec, **of_size, host=None, gpu=None)
    moved = tx.vms.find_id(vm.id)
    if moved is not None and moved.spec != spec:
        tx.vms.update(replace(moved, spec=spec))


def change_hosts(context: Context) -> str:
    """In the commit that ends the step; once, however often the step is done."""
    source = context.text("source")

    def write(tx: Transaction) -> None:
        vm = tx.vms.find_id(context.subject)
        if vm is not None and vm.host == source:
            exchange(tx, vm, context.text("place"))
        tx.operations.works_at(context.operation_id, context.host_name)

    context.write_at_end(write)
    return f"{source} → {context.host_name}"


def _clear_source(context: Context) -> str:
    """All that the host's ledger says is the VM's; believed when the host shows nothing of it any more. A look at all
    of a host takes seconds, so what the VM is known to have had there goes before it."""
    vm, was = context.vm(), place_of(context)
    if vm is not None:
        with warned(context):
            write_ports(context, vm, (vm.host,))
    with context.at(context.text("source")) as source:
        # This waits for libvirt, which may still be removing what has left: it would not be seen meanwhile.
        power_off(source)
        leave_disks(source, context.known_vm())
        # First, for a host that defines it is believed to have it. What it printed, its variables and rows in the
        # ledger outlive a definition that left.
        undefine(source)
        _remove_known(source, was)
        seen = source.observe_for_the_end()
        rest = removal_of(seen, context.subject)
        for action in rest:
            source.perform(action)
        left = things_of(source.observe_for_the_end() if rest else seen, context.subject)
        if left:
            raise Unknown("vm.not_gone", "the host still shows something of the VM", details=", ".join(left))
        return source.host_name


def _remove_known(source: Context, was: Vm) -> None:
    """``was``: the VM as it was on that host."""
    forget_devices(source, was.devices)
    for given in giving_nic(source.subject, was.nic):
        source.perform(given.inverse())
    if was.spec.adopted is None and was.spec.pool is None:
        source.perform(DeleteVolume(vm=source.subject, volume=source.known_vm().volume))
        source.perform(DeleteSeed(vm=source.subject, seed=source.known_vm().seed))


def _settle(context: Context) -> None:
    def settled(tx: Transaction) -> None:
        tx.places.let_go(context.text("place"), context.evidence())
        state: VmState = "running" if ran_before(context) else "stopped"
        tx.vms.set_state(context.subject, state, operation=context.operation_id)

    context.write_at_end(settled)


def _see_guest(context: Context) -> str | None:
    """It has moved, whatever has become of its guest since: what it is now, the next observation shows."""
    try:
        return GUEST_SEEN.do(context)
    except Fatal as error:
        if error.code != "vm.guest_died":
            raise
        context.warnings.append(error.message)
        return error.message


def place_claimed(context: Context) -> str:
    """Where it goes; what it holds until then is where it was."""
    place = place_of(context)
    return devices_on(context, place, str(place.host))


def place_text(context: Context) -> tuple[str, ...]:
    place = place_of(context)
    return (f"a place held on host {place.host}",) if place.id != context.subject else ()


def copy_text(context: Context) -> tuple[str, ...]:
    vm = context.known_vm()
    return (f"volume {vm.volume} on host {context.host_name}",) if vm.spec.pool is None else ()


def _taken_text(context: Context) -> tuple[str, ...]:
    host = context.text("source")
    return tuple(f"{file}, which host {host} may still open" for file in shared_files(context.known_vm()))


def _definition_text(context: Context) -> tuple[str, ...]:
    return (f"domain {context.known_vm().domain_name} ({context.subject}) on host {context.host_name}",)


def _left_text(context: Context) -> tuple[str, ...]:
    return (f"whatever host {context.text('source')} still has of VM {context.subject}",)


MOVED_GUEST_SEEN = replace(GUEST_SEEN, name="moved_guest_seen.1", do=_see_guest)
LEAVING = Step(name="vm_moving.1", title="claim a place", do=place_claimed, undo=_not_moved, remains=place_text)
STOP_TO_MOVE = Step(
    name="shut_down_to_move.1",
    title="shut down where it is",
    do=_shut_down,
    undo=_start_again,
    remains=lambda context: (f"VM {context.known_vm().full_name}, stopped on host {context.text('source')}",),
)
COPY = Step(name="copy_disk.1", title="copy the disk", do=copy_disk, undo=delete_copy, remains=copy_text)
DEFINE_MOVED = Step(name="define_moved.1", title="definition", do=_define, undo=undefine, remains=_definition_text)
CHANGE_HOSTS = Step(
    name="change_hosts.1", title="change hosts", do=change_hosts, no_undo_reason=MOVED, remains=place_text
)
TAKE_DISKS = Step(
    name="take_disks.1", title="disks in pools", do=_take_disks, no_undo_reason=MOVED, remains=_taken_text
)
CLEAR_SOURCE = Step(
    name="clear_source.1",
    title="remove it from the host that it left",
    do=_clear_source,
    no_undo_reason=MOVED,
    remains=_left_text,
)
SETTLED = Step(
    name="move_settled.1", title="release what it had there", do=_settle, no_undo_reason=MOVED, remains=place_text
)
