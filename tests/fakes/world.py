# SPDX-License-Identifier: Apache-2.0
"""What all fake services share: one dictionary of everything, with counted ids and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot, HostVgpuType
from orchestrator.core.operation import Operation, StepRecord, Watched
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import CreateVm, HostInfo

EPOCH = 1_790_000_000.0
GPU = "0000:41:00.0"
PROFILE = "GRID T4-1Q"
FINGERPRINT = "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGYeGYi2YJKKkoDmSXs"
STEPS = ("claim on gpu1", "disk on gpu1", "vGPU on gpu1", "start")


@dataclass
class World:
    """What all services share."""

    vms: dict[tuple[str, str], Vm] = field(default_factory=dict)
    hosts: dict[str, HostInfo] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)
    networks: dict[str, Network] = field(default_factory=dict)
    operations: dict[str, Watched] = field(default_factory=dict)
    after: dict[str, Callable[[], None]] = field(default_factory=dict)
    drawn: int = 0

    def new_id(self) -> str:
        self.drawn += 1
        return f"00000000-0000-4000-8000-{self.drawn:012d}"

    def begin(
        self, kind: str, subject: str, tenant: str | None, done: Callable[[], None], name: str | None = None
    ) -> str:
        operation_id = self.new_id()
        steps = tuple(StepRecord(name=f"{title.split()[0].lower()}.1", title=title, state="pending") for title in STEPS)
        operation = Operation(
            id=operation_id, kind=kind, subject=subject, subject_name=name or subject, tenant=tenant, state="queued",
            steps=steps, attempt=1,
            created_at=EPOCH,
        )  # fmt: skip
        self.operations[operation_id] = Watched(operation=operation, revision=0)
        self.after[operation_id] = done
        return operation_id

    def put(self, operation: Operation) -> Watched:
        watched = Watched(operation=operation, revision=self.operations[operation.id].revision + 1)
        self.operations[operation.id] = watched
        if operation.state == "done":
            self.after[operation.id]()
        return watched


def gpu_snapshot() -> GpuSnapshot:
    return GpuSnapshot(
        address=GPU, uuid="GPU-1", serial=None, model="Tesla T4", pci_vendor="10de", pci_device="1eb8",
        pci_subsystem_vendor="10de", pci_subsystem_device="12a2", numa_node=0, memory_mib=15360, driver="nvidia",
        framework="mdev", sriov_total_vfs=0, sriov_enabled_vfs=0, mig_enabled=None, heterogeneous=None, module_id=None,
        types=(HostVgpuType(name=PROFILE, type_id=230, framebuffer_mib=1024, max_instances=16),), parents=(),
    )  # fmt: skip


def host_info(name: str) -> HostInfo:
    host = Host(
        name=name, address="192.0.2.10", port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA",
        state="ready", state_reason=None, cordoned=False, machine_id="0123", epoch=1, managed_gpus=(GPU,),
        last_seen_at=EPOCH,
    )  # fmt: skip
    snapshot = HostSnapshot(
        machine_id="0123", boot_id="b", hostname=name, agent_version="0.1.0", kernel="6.12.0", os_name="Debian 13",
        libvirt_version="11.3.0", qemu_version="10.0.2", driver_version="580.95", vcpus=64, memory_mib=262144,
        storage_free_bytes=2**40, storage_total_bytes=2**41, iommu=True, gpus=(gpu_snapshot(),), domains=(),
        volumes=(), seeds=(), images=(), networks=("default",), protocol=PROTOCOL_VERSION, confinement="apparmor",
    )  # fmt: skip
    return HostInfo(
        host=host,
        snapshot=snapshot,
        vms=(),
        capacity=HostCapacity(vcpus=256, memory_mib=261632, disk_bytes=2**40),
        claimed_vcpus=0,
        claimed_memory_mib=0,
        agent_differs=False,
    )


def sized(request: CreateVm) -> CreateVm:
    """With the size that the one profile of this world gives where none is asked for."""
    return replace(
        request,
        vcpus=request.vcpus or 2,
        memory_mib=request.memory_mib or 4096,
        disk_bytes=request.disk_bytes or 20 * 2**30,
    )
