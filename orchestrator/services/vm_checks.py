# SPDX-License-Identifier: Apache-2.0
"""What must hold of a VM before anything is begun on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from orchestrator.core.errors import Conflict, InvalidInput, NotFound, one_line
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.health_states import MAX_WORD, reason_closed
from orchestrator.core.hosts.host import LOST, Host
from orchestrator.core.moves.moves import own_verdicts
from orchestrator.core.moves.rules import Traveller
from orchestrator.core.names import near
from orchestrator.core.vms.lease import show_moment
from orchestrator.core.vms.vm import Vm, VmSpec, VmState
from orchestrator.services.begin import running_operation
from orchestrator.services.maintenance.waits import gets_driver
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.transaction import Transaction

_SHORTEST_ID = 6
"""Digits of an id by which a VM may be called."""


_MOVES = frozenset({"move_vm", "move_running_vm", "move_vm_cold", "evacuate_vm", "evacuate_stopped_vm"})


def known_vm(tx: Transaction, tenant: str, name: str) -> Vm:
    """By name, by id, or by how its id begins. :raises NotFound: ``vm.unknown``, ``tenant.unknown``"""
    vm = tx.vms.find(tenant, name)
    if vm is not None:
        return vm
    known_tenant(tx, tenant)
    others = tx.vms.list(tenant=tenant)
    beginning = name.lower()
    meant = [other for other in others if other.id.startswith(beginning)] if len(name) >= _SHORTEST_ID else []
    if len(meant) != 1:
        names = [other.spec.name for other in others]
        raise NotFound("vm.unknown", f"no VM is called {name[:63]!a}", hint=near(name, names, "vgpuctl list-vms"))
    return meant[0]


def _check_adopted(tx: Transaction, vm: Vm) -> None:
    """Deleting powers a VM off; a domain that was not taken over to the end is not ours to power off.

    :raises Conflict: ``vm.busy``"""
    if vm.operation is None:
        return
    last = tx.operations.get(vm.operation).operation
    if last.kind == "adopt_vm" and last.state != "done":
        raise Conflict(
            "vm.busy",
            f"VM {vm.spec.name} is not taken over yet",
            hint=f"'vgpuctl operation show {last.id}' tells how far it is; cancelling or abandoning it gives it back",
        )


def check_state(vm: Vm, needed: VmState, *, suspended: bool = False) -> None:
    """``suspended``: whether one may be that is to be stopped.

    :raises Conflict: ``vm.busy``, ``vm.suspended``"""
    name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
    if vm.state == "stopped" and needed in {"running", "stopped"} and vm.suspended_bytes is not None and not suspended:
        hint = f"'vgpuctl vm resume {name}', or 'vgpuctl vm discard-suspended {name}' gives its memory up"
        raise Conflict("vm.suspended", f"VM {vm.spec.name} is suspended", hint=hint)
    if vm.state != needed:
        at_rest = {"running": f"'vgpuctl stop-vm {name}' stops it", "stopped": f"'vgpuctl start-vm {name}' starts it"}
        hint = at_rest.get(vm.state, f"'vgpuctl operation show {vm.operation}' tells how far it is")
        raise Conflict("vm.busy", f"VM {vm.spec.name} is {vm.state}", hint=hint)


def check_may_delete(tx: Transaction, vm: Vm) -> None:
    """:raises Conflict: ``vm.protected``, ``vm.busy``"""
    check_unprotected(vm)
    _check_adopted(tx, vm)
    _check_does_not_move(tx, vm)


def with_word(tx: Transaction, vm: Vm, word: str | None, running: str | None) -> dict[str, object]:
    """What its deletion is given to tell of its GPUs. ``running``: the id of the one that is under way.

    :raises Conflict: ``vm.gpu_unknown``; ``vm.being_deleted``: without that word
    :raises InvalidInput: ``vm.word_empty``"""
    if word is None:
        return {}
    text = one_line(word, MAX_WORD).strip()
    if not text:
        hint = "name what went wrong, such as 'its results were wrong'"
        raise InvalidInput("vm.word_empty", "nothing is said of the GPU", hint=hint)
    if running is not None and tx.operations.get(running).inputs.get("gpu_was_bad") != text:
        hint = "wait until it is gone, and tell whoever runs the pool of its GPU"
        raise Conflict("vm.being_deleted", f"VM {vm.spec.name} is being deleted without that word", hint=hint)
    if vm.state == "lost" or not vm.devices:
        hint = "delete it without a word on its GPU, and tell whoever runs the pool"
        raise Conflict("vm.gpu_unknown", f"it is not known which GPU VM {vm.spec.name} had", hint=hint)
    return {"gpu_was_bad": text}


def _check_does_not_move(tx: Transaction, vm: Vm) -> None:
    """On which of two hosts it ends is not known yet.

    :raises Conflict: ``vm.busy``"""
    running = running_operation(tx, vm)
    if running is not None and tx.operations.get(running).operation.kind in _MOVES:
        hint = f"'vgpuctl operation wait {running}' waits for it, 'vgpuctl operation cancel {running}' takes it back"
        raise Conflict("vm.busy", f"VM {vm.spec.name} moves to another host", hint=hint)


def check_runs_well(tx: Transaction, vm: Vm) -> None:
    """Of one that runs: its host answers, and it has a place, which it lacks where somebody started it on its host or
    a backup that has it without one was restored.

    :raises Conflict: ``vm.running``, ``vm.host_silent``"""
    if tx.hosts.get(vm.host).state in LOST:
        hint = f"'vgpuctl show-vm {vm.spec.name}' tells since when; whoever runs the site can start it elsewhere"
        raise Conflict("vm.host_silent", f"whether VM {vm.spec.name} runs is not known: its host is silent", hint=hint)
    if vm.deallocated is not None:
        name = vm.spec.name
        hint = f"'vgpuctl stop-vm {name}' stops it; 'vgpuctl start-vm {name}' then claims a place"
        raise Conflict("vm.running", f"VM {name} is running, and its place was given back", hint=hint)


def check_may_rename(tx: Transaction, vm: Vm) -> None:
    """:raises Conflict: ``vm.running``, ``vm.busy``"""
    if vm.state == "running":
        name = vm.spec.name
        raise Conflict("vm.running", f"VM {name} is running", hint=f"'vgpuctl stop-vm {name}' stops it")
    check_state(vm, "stopped")
    check_idle(tx, vm)


def check_settled(tx: Transaction, vm: Vm) -> None:
    """Running or stopped, and nothing works on it. :raises Conflict: ``vm.busy``"""
    if vm.state != "running":
        check_state(vm, "stopped")
    check_idle(tx, vm)


def check_free_port(tx: Transaction, vm: Vm) -> None:
    """Of one that runs, as its host was observed last; none was told of by an older agent.

    :raises Conflict: ``vm.no_port``"""
    snapshot = tx.hosts.snapshot(vm.host) if vm.state == "running" else None
    domains = () if snapshot is None else snapshot.domains
    if any(domain.uuid == vm.id and domain.free_ports == 0 for domain in domains):
        name = vm.spec.name
        hint = f"'vgpuctl stop-vm {name}' stops it; once it is started again, it has free ports"
        raise Conflict("vm.no_port", f"VM {name} runs and has no free PCIe port for another device", hint=hint)


def check_idle(tx: Transaction, vm: Vm) -> None:
    """:raises Conflict: ``vm.busy``"""
    running = running_operation(tx, vm)
    if running is not None:
        hint = f"'vgpuctl operation wait {running}' waits for it"
        raise Conflict("vm.busy", f"operation {running} works on VM {vm.spec.name}", hint=hint)


def check_host(tx: Transaction, vm: Vm) -> None:
    """:raises Conflict: ``host.provisioning``: it gets a driver, or is or gets emptied"""
    if gets_driver(tx, tx.hosts.get(vm.host)):
        raise Conflict(
            "host.provisioning",
            f"the host of VM {vm.spec.name} has maintenance",  # unnamed: it is the tenant that is told
            hint="start it when that is over: then 'vgpuctl host list' says that the host is ready",
        )


def check_gpus(tx: Transaction, vm: Vm) -> None:
    """That nothing keeps VMs off those that it holds for their health.

    :raises Conflict: ``gpu.out_of_service``"""
    host = tx.hosts.get(vm.host)
    if not any(_is_out_of_service(tx, host, device) for device in vm.devices):
        return
    moving = Traveller(vm=vm, host_state=host.state, offered=False)
    stays = next(verdict.limits for verdict in own_verdicts(moving) if verdict.kind == "cold")
    move = f"'vgpuctl vm move {vm.spec.name} --tenant {vm.spec.tenant}' takes it to another host, if one has room"
    raise Conflict(
        "gpu.out_of_service",
        f"a GPU of VM {vm.spec.name} is out of service",  # unnamed: it is the tenant that is told
        hint=f"{f'it cannot move: {stays[0].message}' if stays else move}; else an operator gives the GPU back: "
        "'vgpuctl health show' tells who closed it and why, 'health return' gives it back",
    )


def _is_out_of_service(tx: Transaction, host: Host, device: Device) -> bool:
    """Its GPU takes nothing new, or its virtual function does not and all others are claimed or closed."""
    if reason_closed(host.health_of(device.gpu)) is not None:
        return True
    if device.function not in host.closed_functions:
        return False
    snapshot = tx.hosts.snapshot(host.name)
    if snapshot is None:
        return False
    gpus = (gpu for gpu in snapshot.gpus if gpu.address == device.gpu)
    functions = {part.address for gpu in gpus for part in gpu.parents if part.is_vf}
    claimed = {claimed.function for claim in tx.claims.of_host(host.name) for claimed in claim.devices}
    return bool(functions) and functions <= claimed | host.closed_functions


def check_labelled(vm: Vm, labels: Mapping[str, str], *, protected: bool) -> None:
    """:raises Conflict: ``vm.labelled``: it has others, or is not protected and shall be"""
    current = dict(vm.spec.labels)
    options = [f"--label {key}={value}" for key, value in labels.items() if current.get(key) != value]
    options += ["--protect"] if protected and not vm.spec.protected else []
    if options:
        words = " ".join(options)
        other = "without protection" if options == ["--protect"] else "with other labels"
        raise Conflict(
            "vm.labelled",
            f"there is already such a VM {vm.spec.name} {other}",
            hint=f"'vgpuctl vm set {vm.spec.name} {words}' changes it",
        )


def check_unprotected(vm: Vm) -> None:
    """:raises Conflict: ``vm.protected``"""
    if vm.spec.protected:
        name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
        raise Conflict(
            "vm.protected",
            f"VM {vm.spec.name} is protected and is not deleted",
            hint=f"'vgpuctl vm set {name} --no-protect' lets it be deleted",
        )


def check_lease(vm: Vm, now: float) -> None:
    """:raises Conflict: ``lease.over``"""
    if vm.lease_end is not None and vm.lease_end <= now:
        raise Conflict(
            "lease.over",
            f"the lease of VM {vm.spec.name} ended {show_moment(vm.lease_end)}",
            hint=f"'vgpuctl vm extend {vm.spec.name} --lease 4h' makes it longer",
        )


_CALLED: Final = {"vcpus": "number of vCPUs", "memory_mib": "memory", "disk_bytes": "disk", "nic": "NIC"}
"""Members of a specification, where people call them otherwise."""


def _called(spec: VmSpec, name: str) -> str:
    """A member of it. Of one that its request left out it is not where the VM is now that counts."""
    called = _CALLED.get(name, name.replace("_", " "))
    return f"{called} (left out then)" if getattr(spec, name) is None and name != "user_data" else called


def already_there(vm: Vm, wanted: VmSpec | None = None) -> Conflict:
    """``vm.exists``. ``wanted``: it was asked for again, and what differs is in there or else in its user data"""
    other = ""
    if wanted is not None:
        names = [member.name for member in fields(VmSpec) if member.compare]
        differing = [name for name in names if getattr(vm.spec, name) != getattr(wanted, name)] or ["user_data"]
        other = f", asked for otherwise: {', '.join(_called(vm.spec, name) for name in differing)}"
    return Conflict(
        "vm.exists",
        f"there is already a VM {vm.spec.name}{other}",
        hint=f"'vgpuctl show-vm {vm.spec.name}' shows it; choose another name or delete it",
    )
