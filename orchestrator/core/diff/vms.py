# SPDX-License-Identifier: Apache-2.0
"""Does each VM look on its host as the database wants it?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.actions.nics import giving_nic
from orchestrator.core.attachments import observed_on, remove
from orchestrator.core.attachments.host_facts import pools_of
from orchestrator.core.diff.finding import ExpectedVm, Finding, Repair, Severity, vm_finding
from orchestrator.core.gpu.device import Device, ObservedDevice
from orchestrator.core.gpu.vgpu_parameters import is_so, words
from orchestrator.core.hosts.nic import NicFunction
from orchestrator.core.hosts.pool import short_of
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot
from orchestrator.core.hosts.volume_key import NO_KEY
from orchestrator.core.protocol import not_on_bus, why_not_back
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE
from orchestrator.core.vms.lease import TenantPolicy, ends_soon, show_moment
from orchestrator.core.vms.vm import Vm, snapshot_files

_ACTIVE = frozenset({"running", "paused", "other"})
_RESTART = "stop it and start it again: both make it anew"
_TAKEN_UP = "the host's ledger takes it up as the VM's, if it is there as the database has it"
_NO_SEED = "only a new VM gets a new seed"
_NOT_OURS = "somebody defined it anew, or the ledger was lost: look at it on the host, then delete or keep it"
_NOT_DEFINED_BY_US = "its definition was not ours and cannot be made again; delete the VM, or define it there again"
_NO_LICENCE = "journalctl -u nvidia-gridd in the guest says why: its clock, the licence server, or too few licences"
_RESTORING = "the host was booted and is restoring its VMs, one after the other: it starts by itself"
_TOO_LATE = "its disk is gone; delete the VM, or put the file back"
_NOT_IN_DATABASE = (
    "was a backup restored, or an operation abandoned? it is left alone, and goes with the VM; "
    "what nobody needs is removed in directory volumes of the agent's storage on the host"
)
_NIC_GONE = (
    "how many functions a card has is the host's own to say: switch as many on as before, then start the VM again"
)
_AGAIN = (
    "the VM is left alone: a fabric manager with FABRIC_MODE_RESTART=1 is told with the next change of a partition; "
    "with any other, stop the VM and start it again"
)
_IN_DOUBT = "the database was restored, and it may have been extended since the backup"
_OVER = "a lease, or no VM"


def vm_findings(wanted: ExpectedVm, snapshot: HostSnapshot) -> Iterator[Finding]:
    vm = wanted.vm
    if not wanted.claimed:
        yield vm_finding(
            vm, "vm.claim_missing", "error", ("a claim", "none"), "its place may be given away; delete the VM"
        )
    adopted = vm.spec.adopted is not None  # disks and definition are somebody else's
    has_disk = not adopted and any(file.name == vm.volume for file in snapshot.volumes)
    if vm.spec.pool is not None and vm.spec.pool not in pools_of(snapshot):
        differ = (f"pool {short_of(vm.spec.pool)} mounted", "it is not, or is another directory, or does not answer")
        yield vm_finding(vm, "vm.pool_away", "error", differ, "its disk is in the pool: mount that on the host again")
    elif not has_disk and not adopted:
        yield vm_finding(vm, "vm.volume_missing", "error", (f"volume {vm.volume}", "no such file"), _TOO_LATE)
    if not adopted and not any(file.name == vm.seed for file in snapshot.seeds):
        yield vm_finding(vm, "vm.seed_missing", "warning", (f"seed {vm.seed}", "no such file"), _NO_SEED)
    yield from _snapshots(vm, snapshot)
    domain = next((candidate for candidate in snapshot.domains if candidate.uuid == vm.id), None)
    if domain is None:
        yield _domain_missing(wanted, has_disk)
    elif domain.owner != vm.id:
        yield vm_finding(vm, "vm.not_in_ledger", "error", ("a domain of ours", "one that the ledger lacks"), _NOT_OURS)
    else:
        yield from _run_state(wanted, domain, snapshot, has_disk=has_disk or adopted)
        if vm.deallocated is None:  # what it had is somebody else's now
            for device in vm.devices:
                yield from _device(wanted, device, domain, snapshot)
            yield from _nic(wanted, snapshot, active=domain.state in _ACTIVE)
            yield from _cpus(wanted, domain)
            yield from _memory(wanted, domain)
        yield from _definition(wanted, domain)
        if wanted.unlicensed is not None and wanted.running:
            differ = ("a licence", "its guest was given a token and has none")
            yield vm_finding(vm, "vm.unlicensed", wanted.unlicensed, differ, _NO_LICENCE)


def _snapshots(vm: Vm, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Rows that were taken to their end and have no file, and files that are in no row."""
    files = {file.name for file in snapshot.volumes if file.owner == vm.id and file.name.endswith(SNAPSHOT_FILE)}
    known = dict(zip(snapshot_files(vm), vm.snapshots, strict=True))
    gone = [its.name for file, its in known.items() if file not in files and its.taken_of is not None]
    if gone:
        name, tenant = vm.spec.name, vm.spec.tenant
        ends = f"'vgpuctl vm snapshot delete {name} {gone[0]} --tenant {tenant}' ends the record of it"
        why = f"put the file back, or {ends}"
        yield vm_finding(vm, "vm.snapshot_missing", "error", (f"snapshot {', '.join(gone)}", "no such file"), why)
    unknown = sorted(files - known.keys())
    if unknown:
        differ = ("snapshots that the database has", f"{', '.join(unknown[:3])} ({len(unknown)} files)")
        yield vm_finding(vm, "vm.snapshot_unknown", "warning", differ, _NOT_IN_DATABASE)


def _cpus(wanted: ExpectedVm, domain: DomainSnapshot) -> Iterator[Finding]:
    """Of one that runs: it may take time of CPUs that others have alone. An agent that does not tell is not judged."""
    place = wanted.vm.cpus
    if place is None or domain.affinity is None or domain.state not in _ACTIVE or domain.affinity == place.affinity:
        return
    differ = (f"vCPUs on CPUs {_on(place.affinity)}", _on(domain.affinity))
    why = "stop it and start it again: its definition is written anew"
    yield vm_finding(wanted.vm, "vm.cpus_differ", "error", differ, why)


def _memory(wanted: ExpectedVm, domain: DomainSnapshot) -> Iterator[Finding]:
    """Of one that runs: it may lie far from its GPU, or in memory that is others'."""
    place, observed = wanted.vm.cpus, domain.memory_words
    if place is None or observed is None or domain.state not in _ACTIVE or observed == place.memory_words:
        return
    why = "stop it and start it again: its definition is written anew"
    yield vm_finding(wanted.vm, "vm.memory_differs", "error", (f"memory: {place.memory_words}", observed), why)


def _on(affinity: tuple[str, ...]) -> str:
    return ", ".join(affinity) or "any"


def _domain_missing(wanted: ExpectedVm, has_disk: bool) -> Finding:
    differ = ("a running domain" if wanted.running else "a stopped domain", "none")
    if wanted.vm.spec.adopted is not None:
        return vm_finding(wanted.vm, "vm.domain_missing", "error", differ, _NOT_DEFINED_BY_US)
    if not has_disk:
        return vm_finding(wanted.vm, "vm.domain_missing", "error", differ, _TOO_LATE)
    if not wanted.running:
        return vm_finding(wanted.vm, "vm.domain_missing", "warning", differ, "starting the VM defines it again")
    why = "it is defined again from what the database knows, and started"
    return vm_finding(wanted.vm, "vm.domain_missing", "error", differ, why, Repair(kind="start_vm", automatic=False))


def _run_state(
    wanted: ExpectedVm, domain: DomainSnapshot, snapshot: HostSnapshot, *, has_disk: bool
) -> Iterator[Finding]:
    active, shown = domain.state in _ACTIVE, domain.state.replace("_", " ")
    if wanted.running and not active:
        why = "it is started; did the guest shut itself down? then stop-vm says that it shall stay so"
        not_back = why_not_back(wanted.vm.id, snapshot.problems)
        since = "" if not_back is None else " since the host booted"
        gone = snapshot.lacks(device.gpu for device in wanted.vm.devices)
        lacks = not_on_bus(gone) if gone else not_back
        if lacks is not None:
            shown, why = f"{shown}{since}: {lacks}", "it is started, once what it lacks is there"
        waits = not_back is not None and NO_KEY in not_back
        start = Repair(kind="start_vm", automatic=waits) if has_disk else None
        severity: Severity = "warning"
        if not has_disk:
            why = _TOO_LATE
        elif snapshot.restoring and lacks is None:
            shown, why, severity, start = f"{shown}, not yet restored", _RESTORING, "info", None
        yield vm_finding(wanted.vm, "vm.not_running", severity, ("running", shown), why, start)
    if not wanted.running and active:
        why = "it is shut down, and powered off after the grace time"
        stop = Repair(kind="stop_vm", automatic=False)
        yield vm_finding(wanted.vm, "vm.running", "warning", ("stopped", shown), why, stop)


def _device(wanted: ExpectedVm, device: Device, domain: DomainSnapshot, snapshot: HostSnapshot) -> Iterator[Finding]:
    vm, active, text = wanted.vm, domain.state in _ACTIVE, f"{device.type_name} on {device.parent}"
    seen = _observed(device, snapshot)
    if seen is None:
        if active:
            yield vm_finding(vm, "vm.device_missing", "error", (text, "no such vGPU"), _RESTART)
    elif (seen.device.type_name, seen.owner) != (device.type_name, vm.id):
        observed = f"{seen.device.type_name}, owned by {seen.owner or 'nobody we know'}"
        settle = Repair(kind="settle_ledger", automatic=False)
        if seen.owner is None and device.name in domain.devices:
            yield vm_finding(vm, "vm.device_differs", "error", (text, observed), _TAKEN_UP, settle)
        else:
            yield vm_finding(vm, "vm.device_differs", "error", (text, observed), _RESTART)
    elif active:
        yield from _scheduler(vm, device, snapshot)
        yield from _mixed_sizes(vm, device, seen.device.placement_id, snapshot)
        yield from _partition(vm, device, snapshot)
    elif not active and not wanted.running:
        repair = Repair(kind="clean_up", automatic=True, actions=remove(vm.id, device))
        differ = ("no vGPU while it is stopped", text)
        yield vm_finding(vm, "vm.device_left", "warning", differ, "the vGPU is removed, the claim stays", repair)


def _scheduler(vm: Vm, device: Device, snapshot: HostSnapshot) -> Iterator[Finding]:
    """An agent that does not tell, or a GPU that is not seen, is not judged."""
    now = next((gpu.scheduler for gpu in snapshot.gpus if gpu.address == device.gpu), None)
    if device.scheduler is None or now is None or is_so(device.scheduler, now):
        return
    differ = (f"GPU {device.gpu}: {words(device.scheduler)}", now.words)
    why = "stop the VMs on the GPU and start them again: the driver changes it only while no vGPU is there"
    yield vm_finding(vm, "vm.scheduler_differs", "error", differ, why)


def _mixed_sizes(vm: Vm, device: Device, placement_id: int | None, snapshot: HostSnapshot) -> Iterator[Finding]:
    """As with the scheduler: what the driver does not say is not judged."""
    gpu = next((gpu for gpu in snapshot.gpus if gpu.address == device.gpu), None)
    if device.placement_id is None or gpu is None:
        return
    if gpu.heterogeneous is False:
        differ = (f"GPU {device.gpu}: vGPUs of several sizes", "vGPUs of one size")
        why = "stop the VMs on the GPU and start them again: the driver changes it only while no vGPU is there"
        yield vm_finding(vm, "vm.mixed_sizes_off", "error", differ, why)
    elif placement_id is not None and placement_id != device.placement_id:
        text = f"{device.type_name} on GPU {device.gpu} at placement"
        differ = (f"{text} {device.placement_id}", f"{text} {placement_id}")
        yield vm_finding(vm, "vm.placement_differs", "error", differ, _RESTART)


def _definition(wanted: ExpectedVm, domain: DomainSnapshot) -> Iterator[Finding]:
    vm = wanted.vm
    ours = tuple(device.name for device in vm.devices) + (() if vm.nic is None else (vm.nic.function,))
    if domain.name != vm.domain_name or domain.devices != ours:
        observed = f"{domain.name} with {', '.join(domain.devices) or 'no device'}"
        differ = (f"{vm.domain_name} with {', '.join(ours)}", observed)
        why = "the next start writes our definition again"
        if vm.spec.adopted is not None:
            why = "it keeps the definition it came with: put that right on the host"
        yield vm_finding(vm, "vm.definition_changed", "warning", differ, why)


def _observed(device: Device, snapshot: HostSnapshot) -> ObservedDevice | None:
    """What is where the VM's device should be; None: nothing."""
    devices = (observed for gpu in snapshot.gpus for observed in observed_on(gpu))
    return next(
        (
            observed
            for observed in devices
            if (observed.device.kind, observed.device.name) == (device.kind, device.name)
        ),
        None,
    )


def _nic(wanted: ExpectedVm, snapshot: HostSnapshot, *, active: bool) -> Iterator[Finding]:
    """``active``: the VM runs, so that it must have it now. An agent that tells of no card is not judged."""
    vm, place = wanted.vm, wanted.vm.nic
    if place is None or not snapshot.nics:
        return
    functions = {item.address: item for nic in snapshot.nics for item in nic.functions}
    observed = functions.get(place.function)
    text = f"network function {place.function} of card {place.card}"
    if observed is None:
        yield vm_finding(vm, "vm.nic_gone", "error", (text, "no such function"), _NIC_GONE)
    elif observed.owner != vm.id and (active or observed.owner is not None or observed.held is not None):
        yield vm_finding(vm, "vm.nic_foreign", "error", (text, _whose_function(observed)), _RESTART)
    elif observed.owner == vm.id and not active and not wanted.running:
        actions = tuple(item.inverse() for item in giving_nic(vm.id, place))
        repair = Repair(kind="clean_up", automatic=True, actions=actions)
        differ = (f"no {text} while it is stopped", "it has it")
        yield vm_finding(
            vm, "vm.nic_left", "warning", differ, "it is given back to its driver; the claim stays", repair
        )


def _whose_function(function: NicFunction) -> str:
    return function.held or (f"owned by {function.owner}" if function.owner is not None else "the VM does not have it")


def _partition(vm: Vm, device: Device, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Of a VM that runs. A fabric that cannot be asked is the host's own finding."""
    place, fabric = device.fabric, snapshot.fabric
    if place is None or fabric is None or fabric.problem is not None:
        return
    observed = fabric.partition(place.partition)
    if observed is None or not observed.active:
        differ = (f"fabric partition {place.partition} active", "it is not: was the fabric manager started again?")
        yield vm_finding(vm, "vm.partition_inactive", "error", differ, _AGAIN)
    elif observed.owner != vm.id:
        differ = (
            f"fabric partition {place.partition} activated by us",
            "one that the ledger does not know as the VM's",
        )
        yield vm_finding(vm, "vm.partition_differs", "error", differ, "stop the VM and start it again")


def lease_finding(vm: Vm, policy: TenantPolicy, now: float) -> Iterator[Finding]:
    """At most one. Nothing here is repaired by itself: only its owner knows whether a VM is needed."""
    end, name = vm.lease_end, f"{vm.spec.name} --tenant {vm.spec.tenant}"
    if end is None or vm.state not in {"running", "stopped"}:
        return
    extend = f"'vgpuctl vm extend {name} --lease 4h' makes it longer"
    if now < end:
        if vm.deallocated is None and ends_soon(vm.created_at, end, now):
            observed = f"its lease ends {show_moment(end)}"
            yield vm_finding(
                vm, "vm.lease_ends_soon", "warning", ("a lease", observed), f"it is stopped then; {extend}"
            )
    elif vm.deallocated == "lease_over":
        kept_until = end + policy.disk_grace_s
        if now < kept_until:
            observed = f"its lease ended {show_moment(end)}"
            why = f"its place was given back, its disk is kept until {show_moment(kept_until)}; {extend}"
            yield vm_finding(vm, "vm.lease_over", "info", (_OVER, observed), why)
        else:
            observed = f"its lease ended {show_moment(end)}, its disk was to be kept until {show_moment(kept_until)}"
            yield vm_finding(
                vm, "vm.disk_kept_too_long", "warning", (_OVER, observed), f"'vgpuctl delete-vm {name}' deletes it"
            )


def lease_in_doubt(vm: Vm, now: float) -> Finding:
    """On a host whose database was restored: a lease that ended since, or before, of a VM that runs."""
    name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
    why = f"{_IN_DOUBT}: 'vgpuctl vm extend {name} --lease 4h' or 'vgpuctl stop-vm {name}' says which"
    differ = ("a lease", f"in the backup its lease ended {show_moment(vm.lease_end or now)}")
    return vm_finding(vm, "vm.lease_in_doubt", "warning", differ, why)
