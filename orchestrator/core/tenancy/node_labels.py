# SPDX-License-Identifier: Apache-2.0
"""What a VM is as a node of its tenant's Kubernetes cluster: labels by key, as a kubelet may set them itself.

A host is only told apart from the tenant's others: its name stays ours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_type import parse_vgpu_type_name
from orchestrator.core.hosts.cpus import only_node
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.vms.vm import Vm

PREFIX: Final = "vgpuctl/"
MAX_VALUE: Final = 63
_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9._-]+")


def node_labels(vm: Vm, snapshot: HostSnapshot | None, limits: Iterable[Limit], site: str) -> dict[str, str]:
    """``snapshot``: of the VM's host; None: not known. ``site``: id of the database.

    Sizes are MiB. Labels outside of ``kubernetes.io`` are any that a kubelet likes to set."""
    own = dict((*_gpus(vm), *_numa(vm, snapshot), *_quotas(vm.spec.tenant, limits)))
    return {
        "node.kubernetes.io/instance-type": label_value(vm.spec.profile),
        "topology.kubernetes.io/zone": label_value(site),
        **{f"{PREFIX}{key}": label_value(value) for key, value in own.items()},
    }


def label_value(text: str) -> str:
    """The nearest that Kubernetes takes: letters, digits, ``.``, ``_`` and ``-``, 63 at most."""
    return _NO_LETTER.sub("-", text)[:MAX_VALUE].strip("-._")


def _gpus(vm: Vm) -> Iterator[tuple[str, str]]:
    yield "tenant", vm.spec.tenant
    yield "host", hashlib.sha256(f"{vm.spec.tenant}\0{vm.host}".encode()).hexdigest()[:16]
    yield "gpu-count", str(len(vm.devices))
    yield "gpu-model", "+".join(sorted({_model(device) for device in vm.devices}))
    yield "mig", "+".join(sorted({device.gi_profile for device in vm.devices if device.gi_profile})) or "none"
    yield "fabric", "nvswitch" if any(device.fabric is not None for device in vm.devices) else "none"
    shared = [
        parse_vgpu_type_name(device.type_name).framebuffer_mib for device in vm.devices if not device.is_whole_gpu
    ]
    yield "gpu-share", "vgpu" if shared else "whole"
    if shared:
        yield "gpu-memory-mib", str(sum(shared))


def _model(device: Device) -> str:
    """``L40S`` of ``NVIDIA L40S`` and of ``NVIDIA L40S-12Q``."""
    if device.is_whole_gpu:
        return device.type_name.partition(" ")[2]
    return parse_vgpu_type_name(device.type_name).board


def _numa(vm: Vm, snapshot: HostSnapshot | None) -> Iterator[tuple[str, str]]:
    """How many nodes the GPUs are on, and whether the VM's own CPUs are on them."""
    known = {} if snapshot is None else {gpu.address: gpu.numa_node for gpu in snapshot.gpus}
    gpu_nodes = {known.get(device.gpu) for device in vm.devices}
    gpus = {node for node in gpu_nodes if node is not None and node >= 0}
    yield "gpu-numa-nodes", str(len(gpus)) if len(gpus) == len(gpu_nodes) else "unknown"
    pinned = set(vm.cpus.pinned) if vm.cpus is not None else set()
    nodes = () if snapshot is None else snapshot.nodes
    cpus = {node.id for node in nodes if pinned.intersection(node.cpus)}
    only = only_node(nodes) is not None
    yield "cpu-numa", "shared" if not pinned else "near" if cpus and (only or cpus <= gpus) else "far"


def _quotas(tenant: str, limits: Iterable[Limit]) -> Iterator[tuple[str, str]]:
    """Of the tenant alone; ``devices:L40S`` is ``quota-devices.L40S``."""
    for limit in limits:
        if limit.tenant == tenant:
            yield f"quota-{label_value(limit.resource.replace(':', '.'))}"[:MAX_VALUE].strip("-._"), str(limit.amount)
