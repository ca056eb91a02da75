# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mdev import mdev_key
from orchestrator.agent.attachments.vendor_vfio import vf_key
from orchestrator.agent.gpu_switches import GpuSwitches
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domain_devices import read_domain_xml
from orchestrator.agent.libvirt.domains import Domains, domain_key
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.performing import Parts, Performer
from orchestrator.agent.settling import Settler
from orchestrator.agent.turns import Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.device import Device
from orchestrator.core.errors import Conflict, Denied, NotFound
from orchestrator.core.host_actions import (
    ACTIONS,
    ActionResult,
    AdoptDomain,
    CreateMdev,
    DefineDomain,
    FencingToken,
    HostAction,
    ReleaseDomain,
    SetVgpuType,
    UndefineDomain,
)
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, L40S, VF1 = "0000:01:00.0", "0000:02:00.0", "0000:02:00.1"
MDEV = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
L40S_2Q = 1148


def mdev(type_name: str = "GRID T4-2Q") -> Device:
    return Device(kind="mdev", gpu=T4, parent=T4, type_name=type_name, name=MDEV)


class Bench:
    """An agent over libvirt's own test driver and a small sysfs."""

    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.host.add_t4(T4)
        self.host.add_l40s(L40S)
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.ledger.manage_gpus((T4, L40S))
        connection, timing = Libvirt("test:///default"), FakeTiming()
        self.domains = Domains(connection, self.ledger, timing)
        self.wanted = RestoreList(self.host.paths, self.ledger, "boot-1")
        names = {1145: "NVIDIA L40S-1B", L40S_2Q: "NVIDIA L40S-2Q"}
        files = DeviceFiles(self.host.paths, self.ledger, timing, lambda: names, self.host.write)
        kinds = kinds_of(files, FakeMig(), Nvml())
        storage = Storage(self.host.paths, self.ledger)
        parts = Parts(
            storage,
            kinds,
            GpuSwitches(self.host.paths, self.ledger, timing, Nvml(), kinds, FakeMig()),
            self.domains,
            LibvirtNetworks(connection, self.ledger),
            Settler(self.ledger, storage, kinds, self.domains),
        )
        self.handlers = parts.handlers
        self.performer = Performer(self.ledger, Turns(), self.wanted, self.handlers)
        self.libvirt: Any = libvirt.open("test:///default")
        self.vm = str(uuid.uuid4())
        self.attempt = 0

    def define(self, *sources: str) -> None:
        """By hand, and running."""
        hostdevs = "".join(
            f"<hostdev {kind}><source>{inner}</source></hostdev>" for kind, inner in map(_split, sources)
        )
        self.libvirt.createXML(
            f"<domain type='test'><name>byhand-{self.vm[:8]}</name><uuid>{self.vm}</uuid><memory unit='MiB'>64</memory>"
            f"<vcpu>3</vcpu><os><type>hvm</type></os><devices>{hostdevs}</devices></domain>"
        )

    def do(self, action: HostAction) -> ActionResult:
        self.attempt += 1
        return self.performer.perform(action, FencingToken(site="s", epoch=1, operation=f"op{self.attempt}", attempt=1))

    def adopt_mdev(self, type_name: str = "GRID T4-2Q") -> AdoptDomain:
        return AdoptDomain(vm=self.vm, devices=(mdev(type_name),), running=True)

    def owners(self) -> set[str]:
        keys = (domain_key(self.vm), mdev_key(MDEV), vf_key(VF1))
        return {key.partition(":")[0] for key in keys if self.ledger.owner(key) is not None}


def _split(source: str) -> tuple[str, str]:
    if "uuid" in source:
        return "mode='subsystem' type='mdev' model='vfio-pci'", source
    return "mode='subsystem' type='pci' managed='no'", source


MDEV_SOURCE = f"<address uuid='{MDEV}'/>"
VF_SOURCE = "<address domain='0x0000' bus='0x02' slot='0x00' function='0x1'/>"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for domain in made.libvirt.listAllDomains():
        if domain.UUIDString() == made.vm:
            domain.destroy()


def test_the_agent_performs_every_action(bench: Bench) -> None:
    assert set(bench.handlers) == set(ACTIONS.values())


def test_a_running_domain_and_its_mdev_become_ours_and_nobodys_again(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    written = list(bench.host.writes)
    xml = bench.libvirt.lookupByUUIDString(bench.vm).XMLDesc()
    assert bench.do(bench.adopt_mdev()).changed
    assert not bench.do(bench.adopt_mdev()).changed
    assert bench.owners() == {"domain", "mdev"}
    wanted = bench.wanted.find(bench.vm)
    assert wanted is not None
    assert wanted.devices == (CreateMdev(vm=bench.vm, uuid=MDEV, parent=T4, type_name="GRID T4-2Q"),)
    release = ReleaseDomain(vm=bench.vm, devices=(mdev(),))
    assert bench.do(release).changed
    assert not bench.do(release).changed
    assert bench.owners() == set()
    assert bench.wanted.find(bench.vm) is None
    assert bench.host.writes == written
    assert bench.libvirt.lookupByUUIDString(bench.vm).XMLDesc() == xml


def test_a_typed_virtual_function_becomes_ours_with_the_type_it_has(bench: Bench) -> None:
    bench.host.set_type(VF1, L40S_2Q)
    bench.define(VF_SOURCE)
    device = Device(kind="vendor_vfio", gpu=L40S, parent=VF1, type_name="NVIDIA L40S-2Q", name=VF1)
    adopt = AdoptDomain(vm=bench.vm, devices=(device,), running=True)
    assert bench.do(adopt).changed
    assert bench.owners() == {"domain", "vf"}
    assert not bench.do(SetVgpuType(vm=bench.vm, vf=VF1, type_name="NVIDIA L40S-2Q")).changed


def test_the_snapshot_tells_a_foreign_domains_size(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    seen = next(one for one in bench.domains.snapshots() if one.uuid == bench.vm)
    assert (seen.vcpus, seen.memory_mib, seen.disk_bytes) == (3, 64, 0)
    assert (seen.owner, seen.devices) == (None, (MDEV,))


def test_an_adopted_domain_is_never_defined_again(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    bench.do(bench.adopt_mdev())
    with pytest.raises(Conflict) as refused:
        bench.do(DefineDomain(vm=bench.vm, xml=f"<domain><uuid>{bench.vm}</uuid></domain>"))
    assert refused.value.code == "vm.adopted"


def test_what_is_not_as_it_was_seen_is_not_adopted(bench: Bench) -> None:
    bench.define(MDEV_SOURCE)
    with pytest.raises(Conflict, match="as it was seen"):
        bench.do(bench.adopt_mdev())
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    with pytest.raises(Conflict, match="as it was seen"):
        bench.do(bench.adopt_mdev("GRID T4-1Q"))
    assert bench.owners() == set()


def test_a_domain_that_takes_something_else_is_not_adopted(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(VF_SOURCE)
    with pytest.raises(Conflict) as refused:
        bench.do(bench.adopt_mdev())
    assert refused.value.code == "vm.definition_differs"
    assert "domain" not in bench.owners()


def test_no_domain_is_adopted_that_is_not_there_or_that_we_made(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    with pytest.raises(NotFound):
        bench.do(bench.adopt_mdev())
    bench.define(MDEV_SOURCE)
    bench.ledger.claim(domain_key(bench.vm), bench.vm, detail="digest")
    with pytest.raises(Conflict) as refused:
        bench.do(bench.adopt_mdev())
    assert refused.value.code == "host.owned_by_other"
    with pytest.raises(Conflict):
        bench.do(ReleaseDomain(vm=bench.vm, devices=(mdev(),)))


def test_a_gpu_that_was_not_given_to_us_is_left_alone(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    bench.ledger.manage_gpus((L40S,))
    with pytest.raises(Denied):
        bench.do(bench.adopt_mdev())
    assert bench.owners() == set()


def test_an_adopted_domain_is_undefined_as_one_of_ours(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE)
    bench.do(bench.adopt_mdev())
    with pytest.raises(Conflict, match="running"):
        bench.do(UndefineDomain(vm=bench.vm))
    bench.libvirt.lookupByUUIDString(bench.vm).destroy()
    bench.do(UndefineDomain(vm=bench.vm))
    assert "domain" not in bench.owners()


def test_a_usb_or_scsi_device_of_a_domain_is_no_pci_function() -> None:
    usb = "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='4'/></source></hostdev>"
    scsi = (
        "<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/>"
        "<address bus='0' target='0' unit='0'/></source></hostdev>"
    )
    at = "<address domain='0' bus='1' slot='0' function='4'/>"
    pci = f"<hostdev mode='subsystem' type='pci'><source>{at}</source></hostdev>"
    found = read_domain_xml(f"<domain><devices>{usb}{scsi}{pci}</devices></domain>")
    assert found.devices == ("0000:01:00.4",)
