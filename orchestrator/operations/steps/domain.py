# SPDX-License-Identifier: Apache-2.0
"""The libvirt domain of a VM: made for it, or taken over from whoever made it.

Of one that is taken over the host's ledger learns whose it is, and the guest notices nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.actions.host_actions import (
    AdoptDomain,
    DefineDomain,
    DeleteVolume,
    ReleaseDomain,
    StartDomain,
    StopDomain,
    UndefineDomain,
)
from orchestrator.core.actions.pools import ShareDisks
from orchestrator.core.attachments import changes_gpu
from orchestrator.core.drivers.check import forbidden_pair
from orchestrator.core.errors import Conflict, Fatal, NotFound, Unknown
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import shared_files
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.device import make_devices
from orchestrator.operations.steps.volume_keys import keys_of
from orchestrator.store.transaction import Transaction

_DOMAIN: Final = "domain"
_RUNNING: Final = "running domain"


def _define(context: Context) -> str:
    vm = context.known_vm()
    context.make(_DOMAIN, DefineDomain(vm=vm.id, domain=vm.domain))
    return vm.domain_name


def _redefine(context: Context) -> str:
    vm = context.known_vm()
    if vm.spec.adopted is not None:
        return f"{vm.domain_name}, as it came"
    context.perform(DefineDomain(vm=vm.id, domain=vm.domain))
    return vm.domain_name


def _define_as_before(context: Context) -> None:
    """With the devices that it had before it was placed again. CPUs that it had alone and its function of a
    network card may be another's by now."""
    vm = context.known_vm()
    before = replace(vm.domain, devices=context.devices_before(), cpus=None, nic=None)
    context.perform(DefineDomain(vm=vm.id, domain=before))


def _define_by_its_old_name(context: Context) -> None:
    vm = context.known_vm()
    if vm.spec.adopted is None:
        before = replace(vm, spec=replace(vm.spec, name=context.text("name_before")))
        context.perform(DefineDomain(vm=vm.id, domain=before.domain))


def undefine(context: Context) -> None:
    """On the operation's host; gone already is fine."""
    context.perform(UndefineDomain(vm=context.subject))


def _undefine_made(context: Context) -> None:
    if context.made(_DOMAIN):
        undefine(context)


def _start(context: Context) -> None:
    vm = context.known_vm()
    with context.world.store.read() as tx:
        check_guest_driver(tx, vm)
    start = StartDomain(vm=vm.id, boot_policy=vm.spec.boot_policy, keys=keys_of(context, vm))
    try:
        context.make(_RUNNING, start)
    except Conflict as error:
        if error.code == "pool.held_elsewhere":  # by a host that it was to start on once
            context.perform(ShareDisks(vm=vm.id, files=shared_files(vm), taken=True))
        elif error.code == "vm.device_foreign":
            # a host that was booted since has nothing of what its driver held; what is another VM's stays so
            make_devices(context)
            _redefine(context)
        else:
            raise
        context.make(_RUNNING, start)


def _power_off_started(context: Context) -> None:
    if context.made(_RUNNING):
        power_off(context)


def power_off(context: Context) -> None:
    """On the operation's host, at once."""
    context.perform(StopDomain(vm=context.subject, grace_seconds=0))


def _shut_down(context: Context) -> str:
    grace = 0 if context.inputs.get("force") else context.world.limits.shutdown_grace
    return context.perform(StopDomain(vm=context.subject, grace_seconds=grace)).message


def _see_guest(context: Context) -> str:
    """Running, and with an address. One that runs without an address in time is done, with a warning."""
    vm, addresses = context.known_vm(), addresses_of_running(context)
    if not addresses:
        context.wait_for_guest()
        warning = f"no address was seen within {context.world.limits.guest_seen:.0f} s; look at its console"
        context.warnings.append(warning)
        return warning
    if any(changes_gpu(device) for device in vm.devices):
        context.observe_for_the_end()  # what placement sees of the host does not follow from claims
    context.write_at_end(lambda tx: tx.vms.set_addresses(vm.id, addresses))
    return ", ".join(addresses)


def addresses_of_running(context: Context) -> tuple[str, ...]:
    """Asked about this domain alone: looking at the whole host would take its processors from the guest that boots."""
    domain = context.observe_domain()
    if domain is None:
        raise Fatal("vm.gone", "the VM is not defined on its host any more", hint="somebody removed it there")
    if domain.state not in {"running", "paused"}:
        raise Fatal(
            "vm.guest_died",
            f"the VM started and is {domain.state.replace('_', ' ')} now",
            hint="does its image boot? try it with more memory",
        )
    return domain.addresses if domain.state == "running" else ()


def _see_nothing(context: Context) -> None:
    """Deleting is believed when the host shows nothing of the VM any more. Snapshots that the database does not know,
    as of an operation that was abandoned, go here."""
    if left := context.things_left():
        for file in context.observe().volumes:
            if file.owner == context.subject and file.name.endswith(SNAPSHOT_FILE):
                context.perform(DeleteVolume(vm=context.subject, volume=file.name))
        left = context.things_left()
    if left:
        raise Unknown("vm.not_gone", "the host still shows something of the VM", details=", ".join(left))


def _domain_text(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    return () if vm is None else (f"domain {vm.domain_name} ({vm.id}) on host {vm.host}",)


def _running_text(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    return () if vm is None else (f"running domain {vm.domain_name} on host {vm.host}",)


def _something_text(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    return () if vm is None else (f"whatever host {vm.host} still shows of VM {vm.id}",)


DEFINE = Step(name="define.1", title="definition", do=_define, undo=_undefine_made, remains=_domain_text)
REDEFINE = Step(
    name="redefine.1",
    title="definition",
    do=_redefine,
    no_undo_reason="the definition is the VM's own, with the device that is claimed for it",
)
REDEFINE_PLACED = Step(
    name="redefine_placed.1", title="definition", do=_redefine, undo=_define_as_before, remains=_domain_text
)
REDEFINE_RENAMED = Step(
    name="redefine_renamed.1", title="definition", do=_redefine, undo=_define_by_its_old_name, remains=_domain_text
)
START = Step(name="start.1", title="start", do=_start, undo=_power_off_started, remains=_running_text)
GUEST_SEEN = Step(name="guest_seen.1", title="guest seen running", do=_see_guest, no_undo_reason="it only observes")
SHUT_DOWN = Step(
    name="shut_down.1",
    title="shut down",
    do=_shut_down,
    no_undo_reason="a guest that was shut down is started again by its user",
    remains=_running_text,
)
POWER_OFF = Step(
    name="power_off.1",
    title="power off",
    do=power_off,
    no_undo_reason="a deleted VM does not run again",
    remains=_running_text,
)
UNDEFINE = Step(
    name="undefine.1",
    title="remove the definition",
    do=undefine,
    no_undo_reason="a deleted VM does not come back",
    remains=_domain_text,
)
GONE_SEEN = Step(
    name="gone_seen.1",
    title="nothing left on the host",
    do=_see_nothing,
    no_undo_reason="it only observes",
    remains=_something_text,
)


_ADOPTED: Final = "adopted"


def _adoption(context: Context, vm: Vm) -> AdoptDomain:
    return AdoptDomain(
        vm=vm.id,
        devices=vm.devices,
        running=context.inputs.get("running") is True,
        boot_policy=vm.spec.boot_policy,
    )


def _adopt(context: Context) -> str:
    vm = context.known_vm()
    if vm.spec.adopted is None:
        return f"{vm.domain_name} is ours already"
    context.make(_ADOPTED, _adoption(context, vm))
    devices = ", ".join(f"{device.type_name} on {device.parent}" for device in vm.devices)
    return f"{vm.domain_name} with {devices}"


def _release_adopted(context: Context) -> None:
    vm = context.vm()
    if vm is None or vm.spec.adopted is None or not context.made(_ADOPTED):
        return
    context.perform(ReleaseDomain(vm=vm.id, devices=vm.devices))


def _ledger_text(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    return () if vm is None else (f"domain {vm.domain_name} ({vm.id}) in the ledger of host {vm.host}",)


def _as_it_is(context: Context) -> str:
    """The VM's state is what the host shows, and that is wanted of it: nobody has asked for anything else."""
    domain = next((one for one in context.observe().domains if one.uuid == context.subject), None)
    if domain is None:
        raise Fatal("vm.gone", "the domain is not defined on its host any more", hint="somebody removed it there")
    state: Literal["running", "stopped"] = "running" if domain.active else "stopped"
    seen, addresses, by = context.subject, domain.addresses, context.operation_id
    context.write_at_end(lambda tx: tx.vms.set_state(seen, state, operation=by, addresses=addresses, wanted=state))
    return domain.state.replace("_", " ")


ADOPT = Step(name="adopt.1", title="the host's ledger", do=_adopt, undo=_release_adopted, remains=_ledger_text)
AS_IT_IS = Step(
    name="as_it_is.1",
    title="record how it is",
    do=_as_it_is,
    no_undo_reason="the steps before it forget the VM",
)


def check_guest_driver(tx: Transaction, vm: Vm) -> None:
    """Nothing is refused that nobody knows: an image of which no driver was told, a driver that no table has.

    :raises Conflict: ``vm.driver_forbidden``
    """
    try:
        driver = tx.images.get(vm.spec.image).guest_driver
    except NotFound:  # of an adopted VM
        return
    snapshot = tx.hosts.snapshot(vm.host) if driver is not None else None
    if driver is None or snapshot is None or snapshot.driver_version is None:
        return
    matrix = shipped_profiles().catalogue.driver_matrix
    why = forbidden_pair(matrix, host_driver=snapshot.driver_version, guest_driver=driver)
    if why is not None:
        raise Conflict(
            "vm.driver_forbidden",
            f"VM {vm.full_name} has driver {driver} and host {vm.host} has {snapshot.driver_version}: {why}",
            hint=f"choose another host or image; 'vgpuctl image guest-driver {vm.spec.image} VERSION' if that is wrong",
        )
