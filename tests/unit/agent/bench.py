# SPDX-License-Identifier: Apache-2.0
"""An agent over libvirt's own test driver and a small sysfs."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import libvirt

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mdev import mdev_key
from orchestrator.agent.attachments.vendor_vfio import vf_key
from orchestrator.agent.belongings import Belongings
from orchestrator.agent.gpu_settings import SettingDrivers, VgpuParameterFiles
from orchestrator.agent.gpu_switches import Chosen, GpuSwitches
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.consoles import ConsoleLogs
from orchestrator.agent.libvirt.domains import Domains, domain_key
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.libvirt.saved_memory import SavedMemory
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.performing import Parts, Performer
from orchestrator.agent.settling import Settler
from orchestrator.agent.sysfs.bridges import HostBridges
from orchestrator.agent.turns import Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.host_actions import (
    ActionResult,
    AdoptDomain,
    CreateVolume,
    EnsureNetwork,
    FencingToken,
    HostAction,
    WriteSeed,
)
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.domain import DomainDescription
from tests.fakes.fake_gpu_settings import BEST_EFFORT, OWN_LIMIT, FakeSetting
from tests.fakes.fake_mig import FakeMig
from tests.fakes.fake_nics import FakeNicLinks
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, L40S, VF1 = "0000:01:00.0", "0000:02:00.0", "0000:02:00.1"
MDEV = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
L40S_2Q = 1148


def mdev(type_name: str = "GRID T4-2Q") -> Device:
    return Device(kind="mdev", gpu=T4, parent=T4, type_name=type_name, name=MDEV)


def domain_of(vm: str, *devices: Device) -> DomainDescription:
    return DomainDescription(
        name="default.train", tenant="default", profile="p", vcpus=1, memory_mib=64, volume=f"{vm}.qcow2",
        seed=f"{vm}.iso", network="default", devices=devices,
    )  # fmt: skip


class Bench:
    """An agent over libvirt's own test driver and a small sysfs."""

    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.host.add_t4(T4)
        self.host.add_l40s(L40S)
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.ledger.manage_gpus((T4, L40S))
        connection, timing = Libvirt("test:///default"), FakeTiming()
        self.drivers_of_interfaces: defaultdict[str, str] = defaultdict(str)
        self.domains = Domains(connection, self.ledger, timing)
        self.wanted = RestoreList(self.host.paths, self.ledger, "boot-1")
        self.schedulers = FakeSetting({T4: BEST_EFFORT, L40S: BEST_EFFORT})
        self.mixed_sizes = FakeSetting({L40S: False})
        self.power = FakeSetting({T4: OWN_LIMIT})
        names = {1145: "NVIDIA L40S-1B", L40S_2Q: "NVIDIA L40S-2Q"}
        files = DeviceFiles(self.host.paths, self.ledger, timing, lambda: names, self.host.write)
        kinds = kinds_of(files, FakeMig(), Nvml())
        storage = Storage(self.host.paths, self.ledger)
        networks = LibvirtNetworks(
            connection, self.ledger, HostBridges(self.host.paths, self.drivers_of_interfaces.__getitem__)
        )
        self.links = FakeNicLinks()
        self.nics = NicFunctions(files, self.links)
        self.belongings = Belongings(storage, kinds, networks, self.nics)
        chosen = Chosen(FakeMig(), SettingDrivers(schedulers=self.schedulers, mixed_sizes=self.mixed_sizes), self.power)
        switches = GpuSwitches(self.host.paths, self.ledger, timing, Nvml(), kinds, chosen)
        parts = Parts(
            self.host.paths,
            storage,
            kinds,
            switches,
            self.domains,
            networks,
            Settler(self.ledger, storage, kinds, self.domains, self.nics, switches),
            VgpuParameterFiles(files, kinds),
            ConsoleLogs(self.host.paths),
            self.nics,
            SavedMemory(connection, self.domains, self.ledger, storage.directory),
        )
        self.handlers = parts.handlers
        self.storage = storage
        self.performer = Performer(self.ledger, Turns(), self.wanted, self.handlers)
        self.libvirt: Any = libvirt.open("test:///default")
        self.vm = str(uuid.uuid4())
        self.attempt = 0

    def define(self, *sources: str, more: str = "", later: str | None = None, stays: bool = True) -> None:
        """By hand, and running. ``more``: other devices; ``later``: those of its definition, where others;
        ``stays``: it has one."""
        hostdevs = "".join(
            f"<hostdev {kind}><source>{inner}</source></hostdev>" for kind, inner in map(_split, sources)
        )
        xml = (
            f"<domain type='test'><name>byhand-{self.vm[:8]}</name><uuid>{self.vm}</uuid><memory unit='MiB'>64</memory>"
            f"<vcpu>3</vcpu><os><type>hvm</type></os><devices>{hostdevs}{{}}</devices></domain>"
        )
        if not stays:
            self.libvirt.createXML(xml.format(more))
            return
        self.libvirt.defineXML(xml.format(more)).create()
        if later is not None:
            self.libvirt.defineXML(xml.format(later))

    def furnish(self, vm: str) -> None:
        """What a definition takes: an image, a disk on it, a seed and a network."""
        content = b"\0" * 4096
        sha256, waiting = hashlib.sha256(content).hexdigest(), io.BytesIO(content)
        self.storage.receive_image(sha256, "raw", len(content), waiting.read)
        self.do(EnsureNetwork(name="default", subnet="192.168.122.0/24"))
        self.do(CreateVolume(vm=vm, volume=f"{vm}.qcow2", base_sha256=sha256, base_format="raw", size_bytes=2**20))
        self.do(WriteSeed(vm=vm, seed=f"{vm}.iso", iso_base64="AAAA"))

    def domains_there(self) -> dict[str, str]:
        """UUID → definition, of all but the test driver's own."""
        found = {one.UUIDString(): one.XMLDesc() for one in self.libvirt.listAllDomains() if one.name() != "test"}
        return dict(sorted(found.items()))

    def close(self) -> None:
        """The test driver's domains are the whole process's."""
        for uuid_there in self.domains_there():
            domain = self.libvirt.lookupByUUIDString(uuid_there)
            if domain.isActive():
                domain.destroy()
            if uuid_there in self.domains_there():
                domain.undefine()
        self.ledger.close()

    def do(self, action: HostAction) -> ActionResult:
        """To its end, by an operation of its own."""
        self.attempt += 1
        token = FencingToken(site="s", epoch=1, operation=f"op{self.attempt}", attempt=1)
        while (result := self.performer.perform(action, token)).unfinished:
            pass
        return result

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
