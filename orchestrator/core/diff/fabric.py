# SPDX-License-Identifier: Apache-2.0
"""Does the fabric manager know the partitions of the VMs that run?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.diff.finding import Finding, vm_finding
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.vm import Vm

_AGAIN = (
    "the VM is left alone: a fabric manager with FABRIC_MODE_RESTART=1 is told with the next change of a partition; "
    "with any other, stop the VM and start it again"
)


def partition_findings(vm: Vm, device: Device, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Of a VM that runs. A fabric that cannot be asked is the host's own finding."""
    place, fabric = device.fabric, snapshot.fabric
    if place is None or fabric is None or fabric.problem is not None:
        return
    there = fabric.partition(place.partition)
    if there is None or not there.active:
        differ = (f"fabric partition {place.partition} active", "it is not: was the fabric manager started again?")
        yield vm_finding(vm, "vm.partition_inactive", "error", differ, _AGAIN)
    elif there.owner != vm.id:
        differ = (
            f"fabric partition {place.partition} activated by us",
            "one that the ledger does not know as the VM's",
        )
        yield vm_finding(vm, "vm.partition_differs", "error", differ, "stop the VM and start it again")


def fabric_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """At most one."""
    if snapshot.fabric is not None and snapshot.fabric.problem is not None:
        yield Finding(
            code="host.fabric", severity="warning", host=host.name, subject=f"host {host.name}", vm=None, whose="ours",
            wanted="a fabric manager that activates partitions", observed=snapshot.fabric.problem, repair=None,
            reason="no GPU of it is given out as a whole until it does; what runs there is left alone",
        )  # fmt: skip
