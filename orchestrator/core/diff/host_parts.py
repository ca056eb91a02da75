# SPDX-License-Identifier: Apache-2.0
"""What VMs' starts rely on beside the VMs themselves: the host's disk, its GPUs' driver and functions, networks."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.actions.host_actions import EnableVirtualFunctions
from orchestrator.core.diff.finding import ExpectedHost, Finding, Repair
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.units import GIB

MIN_FREE_BYTES = GIB
"""Below it disks of VMs cannot grow, and soon the agent cannot write its ledger."""
_MAKE_ROOM = "VMs' disks cannot grow, and at 0 the agent changes nothing more: delete VMs, or make room there"
_NO_DRIVER = "no vGPU can be made there: load NVIDIA's driver ('dmesg' says why it did not), or give the GPU back to it"
_SWITCHED_OFF = "no vGPU can be made there: they are switched on again (sriov-manage -e)"
_CUT_OFF = "it is made again, and the VMs that run are plugged into it"


def part_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Of a host that still restores what ran before its boot its functions and networks are not judged."""
    free = snapshot.storage_free_bytes
    if free < MIN_FREE_BYTES:
        subject = f"host {wanted.host.name}"
        differ = (f"{MIN_FREE_BYTES >> 20} MiB free for VMs' disks and the ledger", f"{free >> 20} MiB")
        yield _finding(wanted.host, "host.disk_full", subject, differ, _MAKE_ROOM)
    if not snapshot.restoring:
        yield from _of_gpus(wanted, snapshot)
        yield from _of_networks(wanted, snapshot)


def _of_gpus(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One that a VM has whole, or shall have, is with that VM. Without vGPUs on a host that has no driver at all none
    is missed: whole GPUs need none."""
    devices = [device for vm in wanted.placed if vm.deallocated is None for device in vm.devices]
    whole = {device.gpu for device in devices if device.is_whole_gpu}
    cut = {device.gpu for device in devices} - whole
    for gpu in snapshot.gpus:
        if gpu.address not in wanted.host.managed_gpus or gpu.address in whole or gpu.driver == "vfio-pci":
            continue
        subject = f"GPU {gpu.address}"
        if gpu.driver != "nvidia" and (snapshot.driver_version is not None or gpu.address in cut):
            differ = ("NVIDIA's driver", f"{gpu.driver or 'no'} driver")
            yield _finding(wanted.host, "gpu.no_driver", subject, differ, _NO_DRIVER)
        elif gpu.driver == "nvidia" and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            actions = (EnableVirtualFunctions(gpu=gpu.address),)
            repair = Repair(kind="mend_host", automatic=False, actions=actions)
            differ = (f"virtual functions, {gpu.sriov_total_vfs} at most", "none is switched on")
            yield _finding(wanted.host, "gpu.functions_off", subject, differ, _SWITCHED_OFF, repair)


def _of_networks(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each that VMs which run there are cut off from."""
    cut_off = {domain.uuid: domain.cut_off for domain in snapshot.domains if domain.state == "running"}
    for network in wanted.networks:
        vms = [
            one.vm.full_name
            for one in wanted.vms
            if one.vm.id in cut_off and network.name in one.vm.spec.networks
            and (network.name not in snapshot.networks or network.name in cut_off[one.vm.id])
        ]  # fmt: skip
        if vms:
            repair = Repair(kind="mend_host", automatic=False, actions=(network.ensure(),))
            there = "not plugged in" if network.name in snapshot.networks else "no such network is active"
            differ = (f"{', '.join(vms)} plugged in", there)
            yield _finding(wanted.host, "network.cut_off", f"network {network.name}", differ, _CUT_OFF, repair)


def _finding(
    host: Host, code: str, subject: str, differ: tuple[str, str], why: str, repair: Repair | None = None
) -> Finding:
    return Finding(
        code=code, severity="error", host=host.name, subject=subject, vm=None, whose="ours",
        wanted=differ[0], observed=differ[1], repair=repair, reason=why,
    )  # fmt: skip
