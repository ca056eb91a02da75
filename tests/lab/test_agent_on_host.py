# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import hashlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.actions.host_actions import (
    ClearVgpuType,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    EnableVirtualFunctions,
    EnsureNetwork,
    FencingToken,
    HostAction,
    MakeVgpu,
    ManageGpus,
    RemoveMdev,
    StartDomain,
    StopDomain,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.errors import Conflict, Denied, Fatal, Retryable, Unknown
from orchestrator.core.gpu.device import Device, DeviceKind
from orchestrator.core.hosts.domain import DomainDescription
from orchestrator.core.hosts.snapshot import GpuSnapshot
from tests.lab.agent_on_host import SITE, AgentOnHost, agent_on
from tests.lab.conftest import LabHost, lab
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab

TYPES = {"mdev": ("GRID T4-2Q", "GRID T4-1Q"), "vendor_vfio": ("NVIDIA L40S-12Q", "NVIDIA L40S-24Q")}
GUEST_IDS = {"mdev": "10de:1eb8", "vendor_vfio": "10de:26b9"}
NETWORK = "agent-test"
SUBNET = "192.168.177.0/24"


class Bench:
    """One agent and the last GPU of its host, which it is given."""

    def __init__(self, agent: AgentOnHost) -> None:
        self.agent = agent
        self.gpu = self.look().address
        agent.perform(ManageGpus(gpus=(self.gpu,)))
        if self.look().sriov_total_vfs:
            agent.perform(EnableVirtualFunctions(gpu=self.gpu))
        self.kind = self.look().framework
        self.type_name, self.other_size = TYPES[self.kind]

    def look(self) -> GpuSnapshot:
        return self.agent.link.observe(self.agent.host).gpus[-1]

    def vgpu(
        self, vm: str, *, type_name: str | None = None, device: str | None = None
    ) -> tuple[HostAction, HostAction]:
        """Actions that make and remove a vGPU; ``device``: mdev UUID or address of the virtual function."""
        wanted = type_name or self.type_name
        if self.kind == "mdev":
            device = device or vm
            return MakeVgpu(vm=vm, uuid=device, parent=self.gpu, type_name=wanted), RemoveMdev(vm=vm, uuid=device)
        device = device or self.look().parents[0].address
        return MakeVgpu(vm=vm, parent=device, type_name=wanted), ClearVgpuType(vm=vm, vf=device)

    def fault(self, *words: str) -> None:
        index = len(self.agent.link.observe(self.agent.host).gpus) - 1
        lab("fault", self.agent.name, str(index), *words)


@pytest.fixture(scope="module", params=["t4", pytest.param("l40s", marks=pytest.mark.soak)])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    host: LabHost = request.getfixturevalue(request.param)
    with agent_on(host.name, tmp_path_factory.mktemp("agent")) as agent:
        yield Bench(agent)
        assert "Traceback" not in agent.log()


def made_on(action: HostAction) -> str:
    assert isinstance(action, MakeVgpu)
    return action.uuid or action.parent


def vm_id() -> str:
    return str(uuid.uuid4())


def test_the_snapshot_says_what_the_host_says(bench: Bench) -> None:
    snapshot = bench.agent.link.observe(bench.agent.host)
    shell = bench.agent.shell
    assert snapshot.boot_id == shell("cat /proc/sys/kernel/random/boot_id").strip()
    assert snapshot.driver_version == shell("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split()[0]
    listed = shell("nvidia-smi --query-gpu=pci.bus_id,uuid --format=csv,noheader").lower().split()
    assert [gpu.uuid.lower() for gpu in snapshot.gpus] == listed[1::2]
    assert all(gpu.types and gpu.parents and not gpu.problems for gpu in snapshot.gpus if gpu.address == bench.gpu)
    assert snapshot.iommu
    assert snapshot.problems == ()


def test_a_vgpu_is_made_once_and_removed_once_and_the_host_is_as_before(bench: Bench) -> None:
    before, vm = facts(bench.agent.shell), vm_id()
    make, remove = bench.vgpu(vm)
    assert [bench.agent.perform(make).changed for _ in range(2)] == [True, False]
    owners = {m.owner for p in bench.look().parents for m in p.mdevs} | {p.owner for p in bench.look().parents}
    assert vm in owners
    beside = None if bench.kind == "mdev" else bench.look().parents[1].address
    another, _ = bench.vgpu(vm_id(), type_name=bench.other_size, device=beside)
    with pytest.raises(Fatal) as refused:
        bench.agent.perform(another)
    assert refused.value.code == "vgpu.no_room"
    assert [bench.agent.perform(remove).changed for _ in range(2)] == [True, False]
    assert facts(bench.agent.shell) == before


def test_what_somebody_made_by_hand_is_left_alone(bench: Bench) -> None:
    make, remove = bench.vgpu(vm_id())
    bench.agent.perform(make)
    _, foreign = bench.vgpu(vm_id(), device=made_on(make))
    if bench.kind == "mdev":
        with pytest.raises(Conflict) as refused:
            bench.agent.perform(foreign)
        assert refused.value.code == "vgpu.foreign"
    else:
        assert not bench.agent.perform(foreign).changed
    assert bench.agent.perform(remove).changed


def test_a_gpu_that_is_not_ours_is_refused(bench: Bench) -> None:
    first = bench.agent.link.observe(bench.agent.host).gpus[0].address
    with pytest.raises(Denied) as refused:
        bench.agent.perform(MakeVgpu(vm=vm_id(), uuid=vm_id(), parent=first, type_name=bench.type_name))
    assert refused.value.code == "gpu.not_managed"


@pytest.mark.parametrize(
    ("fault", "family", "code"),
    [(("busy", "20"), Retryable, "vgpu.busy"), (("io", "1"), Fatal, "vgpu.driver_refused")],
)
def test_a_driver_that_refuses_leaves_nothing(
    bench: Bench, fault: tuple[str, ...], family: type[Retryable | Fatal], code: str
) -> None:
    before = facts(bench.agent.shell)
    bench.fault("fault_create", *fault)
    try:
        with pytest.raises(family) as refused:
            bench.agent.perform(bench.vgpu(vm_id())[0])
    finally:
        bench.fault("fault_create", "none")
    assert refused.value.code == code
    assert facts(bench.agent.shell) == before


def test_a_driver_that_hangs_is_unknown_and_the_agent_goes_on(bench: Bench) -> None:
    before = facts(bench.agent.shell)
    make, remove = bench.vgpu(vm_id())
    bench.fault("fault_create", "hang", "600")
    try:
        with pytest.raises(Unknown) as hung:
            bench.agent.perform(make)
        assert bench.look().address == bench.gpu
    finally:
        bench.fault("fault_create", "none")
    assert hung.value.code == "vgpu.create_hung"
    bench.agent.shell("sleep 2")  # the write that hung ends now, and its vGPU is found by its owner
    bench.agent.perform(remove)
    assert facts(bench.agent.shell) == before


def test_a_restarted_libvirt_is_found_again(bench: Bench) -> None:
    domains = bench.agent.link.observe(bench.agent.host).domains
    bench.agent.shell("systemctl restart libvirtd")
    snapshot = bench.agent.link.observe(bench.agent.host)
    assert (snapshot.domains, snapshot.problems) == (domains, ())


def _seed(directory: Path, vm: str) -> str:
    """A NoCloud seed as the guest image reads it."""
    import io

    import pycdlib

    iso, packed = pycdlib.PyCdlib(), io.BytesIO()
    iso.new(interchange_level=4, vol_ident="cidata", rock_ridge="1.09", joliet=3)
    for name, text in (
        ("meta-data", f"instance-id: {vm}\nlocal-hostname: agent-test\n"),
        ("user-data", "#cloud-config\n"),
    ):
        content = text.encode()
        iso.add_fp(io.BytesIO(content), len(content), f"/{name}", rr_name=name, joliet_path=f"/{name}")
    iso.write_fp(packed)
    iso.close()
    return base64.b64encode(packed.getvalue()).decode()


def _device(bench: Bench, make: HostAction) -> Device:
    assert isinstance(make, MakeVgpu)
    kind: DeviceKind = "vendor_vfio" if make.uuid is None else "mdev"
    return Device(kind=kind, gpu=bench.gpu, parent=make.parent, type_name=bench.type_name, name=made_on(make))


def _domain(vm: str, device: Device) -> DomainDescription:
    return DomainDescription(
        name=f"agent-test.{vm[:8]}", tenant="agent-test", profile=device.type_name, vcpus=1, memory_mib=256,
        volume=f"{vm}.qcow2", seed=f"{vm}.iso", network=NETWORK, devices=(device,),
    )  # fmt: skip


def _greeting(agent: AgentOnHost, vm: str) -> bytes:
    """The host's filter opens for an address after its lease: under emulation that takes seconds."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return agent.link.open_tcp(agent.host, vm, 22).receive(4)
        except Retryable:
            assert time.monotonic() < deadline


def _read_console(bench: Bench, vm: str, until: str) -> str:
    console, seen = bench.agent.link.open_console(bench.agent.host, vm), ""
    try:
        while until not in seen:
            data = console.receive(4096)
            assert data, f"the console ended: {seen}"
            seen += data.decode(errors="replace")
    finally:
        console.close()
    return seen


@pytest.mark.parametrize("bench", ["l40s"], indirect=True)
def test_a_vm_with_a_vgpu_runs_answers_and_is_gone_without_a_trace(bench: Bench, tmp_path: Path) -> None:
    agent, vm = bench.agent, vm_id()
    before = facts(agent.shell)
    image = Path(lab("guest-image").strip())
    sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
    token = FencingToken(site=SITE, epoch=1, operation="image", attempt=1)
    assert agent.link.send_image(agent.host, image, sha256, "qcow2", token).changed
    make, remove = bench.vgpu(vm)
    device = _device(bench, make)
    actions: tuple[HostAction, ...] = (
        EnsureNetwork(name=NETWORK, subnet=SUBNET),
        CreateVolume(vm=vm, volume=f"{vm}.qcow2", base_sha256=sha256, base_format="qcow2", size_bytes=1024**3),
        WriteSeed(vm=vm, seed=f"{vm}.iso", iso_base64=_seed(tmp_path, vm)),
        make,
        DefineDomain(vm=vm, domain=_domain(vm, device)),
        StartDomain(vm=vm),
    )
    assert all(agent.perform(action).changed for action in actions)
    assert GUEST_IDS[bench.kind] in _read_console(bench, vm, "vgpu-guest ready")
    for taken in (remove, DeleteVolume(vm=vm, volume=f"{vm}.qcow2")):
        with pytest.raises(Conflict) as refused:
            agent.perform(taken)
        assert refused.value.code.endswith("in_use")
    assert _greeting(agent, vm) == b"SSH-"
    undoing: tuple[HostAction, ...] = (
        StopDomain(vm=vm, grace_seconds=0),
        remove,
        UndefineDomain(vm=vm),
        DeleteSeed(vm=vm, seed=f"{vm}.iso"),
        DeleteVolume(vm=vm, volume=f"{vm}.qcow2"),
        DeleteImage(sha256=sha256, image_format="qcow2"),
    )
    assert all(agent.perform(action).changed for action in undoing)
    assert facts(agent.shell) == before
