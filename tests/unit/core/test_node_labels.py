# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.fabric import FabricPlace
from orchestrator.core.hosts.cpus import CpuPlace, NumaNode
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.tenancy.node_labels import label_value, node_labels
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.vms.vm import Vm, VmSpec
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4

GPU, OTHER = "0000:41:00.0", "0000:81:00.0"
SPEC = VmSpec(
    name="train", tenant="ml", profile="t4-2q", image="i", vcpus=2, memory_mib=64, disk_bytes=1, network="n"
)  # fmt: skip
MDEV = Device(kind="mdev", gpu=GPU, parent=GPU, type_name="GRID T4-2Q", name="x")
VM = Vm(
    id="v", spec=SPEC, state="running", host="h1", devices=(MDEV,), addresses=(), operation=None, created_at=0.0
)  # fmt: skip
A_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
"""What Kubernetes takes as a label's value, and as its name."""

FIRST = NumaNode(id=0, cores=((0,), (1,)), memory_mib=1)


def _host(*numa: int | None, nodes: int = 2) -> HostSnapshot:
    machine = FakeMachine(machine_id="m", gpus=[t4(GPU), t4(OTHER)], managed=(GPU, OTHER))
    seen = snapshot_of(machine)
    gpus = tuple(replace(gpu, numa_node=node) for gpu, node in zip(seen.gpus, numa, strict=False))
    told = tuple(NumaNode(id=one, cores=((2 * one,), (2 * one + 1,)), memory_mib=1) for one in range(nodes))
    return replace(seen, gpus=gpus, nodes=told)


def _own(labels: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix("vgpuctl/"): value for key, value in labels.items() if key.startswith("vgpuctl/")}


def test_a_node_is_told_its_gpu_its_size_and_its_tenants_quotas() -> None:
    limits = [
        Limit(tenant="ml", resource="devices", amount=8), Limit(tenant="ml", resource="devices:RTX PRO 6000", amount=2),
        Limit(tenant="other", resource="devices", amount=1), Limit(tenant="*", resource="vgpus", amount=9),
    ]  # fmt: skip
    labels = node_labels(VM, None, limits, "11111111-1111-4111-8111-111111111111")
    assert labels["node.kubernetes.io/instance-type"] == "t4-2q"
    assert labels["topology.kubernetes.io/zone"] == "11111111-1111-4111-8111-111111111111"
    own = _own(labels)
    assert "h1" not in own.pop("host")
    assert own == {
        "tenant": "ml", "gpu-count": "1", "gpu-model": "T4", "gpu-share": "vgpu", "gpu-memory-mib": "2048",
        "mig": "none", "fabric": "none", "gpu-numa-nodes": "unknown", "cpu-numa": "shared",
        "quota-devices": "8", "quota-devices.RTX-PRO-6000": "2",
    }  # fmt: skip


def test_gpu_instances_and_whole_gpus_on_a_fabric_are_told_apart() -> None:
    cut = replace(MDEV, kind="mig_backed", type_name="NVIDIA A100-1-5C", gi_profile="1g.5gb", gi_start=0)
    own = _own(node_labels(replace(VM, devices=(cut,)), None, (), "s"))
    assert (own["mig"], own["gpu-model"], own["gpu-memory-mib"]) == ("1g.5gb", "A100", "5120")
    whole = replace(MDEV, kind="passthrough", type_name="NVIDIA H100 SXM")
    last = replace(whole, gpu=OTHER, fabric=FabricPlace(1, (1, 2), (GPU, OTHER)))
    own = _own(node_labels(replace(VM, devices=(whole, last)), None, (), "s"))
    assert (own["fabric"], own["gpu-count"], own["gpu-share"], own["gpu-model"]) == (
        "nvswitch", "2", "whole", "H100-SXM",
    )  # fmt: skip
    assert "gpu-memory-mib" not in own


def test_cpus_near_the_gpu_are_told_from_those_that_are_far_or_shared() -> None:
    pinned = replace(VM, cpus=CpuPlace(shared=(0,), pinned=(2, 3)))

    def numa(vm: Vm, host: HostSnapshot) -> tuple[str, str]:
        own = _own(node_labels(vm, host, (), "s"))
        return own["gpu-numa-nodes"], own["cpu-numa"]

    assert numa(pinned, _host(1, 0)) == ("1", "near")
    assert numa(pinned, _host(0, 0)) == ("1", "far")
    assert numa(replace(pinned, cpus=CpuPlace(shared=(), pinned=(0, 2))), _host(0, 0)) == ("1", "far")
    assert numa(replace(pinned, cpus=CpuPlace(shared=(), pinned=(0,))), _host(-1, -1, nodes=1)) == ("unknown", "near")
    beside_memory = replace(_host(-1, -1, nodes=1), nodes=(FIRST, NumaNode(id=1, cores=(), memory_mib=1)))
    assert numa(replace(pinned, cpus=CpuPlace(shared=(), pinned=(0,))), beside_memory) == ("unknown", "near")
    both = replace(pinned, devices=(MDEV, replace(MDEV, gpu=OTHER)))
    assert numa(both, _host(0, 1)) == ("2", "near")
    assert numa(VM, _host(0, 1)) == ("1", "shared")


@given(st.text(max_size=200))
def test_whatever_something_is_called_kubernetes_takes_it_and_it_is_no_template(name: str) -> None:
    value = label_value(name)
    assert A_LABEL.fullmatch(value)
    assert "{" not in value
    spec = replace(SPEC, tenant=name, profile=name)
    labels = node_labels(replace(VM, spec=spec), None, [Limit(tenant=name, resource=f"devices:{name}", amount=1)], name)
    assert all(A_LABEL.fullmatch(one) for one in labels.values())
    assert all(A_LABEL.fullmatch(key.partition("/")[2]) for key in labels)
